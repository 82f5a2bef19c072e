"""Objects whose bytes have changed on the disk: no client takes them for whole."""
import http.client
import os
import urllib.request

import pytest
from botocore.exceptions import ClientError

from harness.waiting import wait_for

SIZES = [20_000, 200_000, 1_000_000, 5_000_000]


def damage(store, body):
    """Flips a bit of the file that has these bytes."""
    for path in store.root.rglob("*"):
        if path.is_file() and path.stat().st_size >= len(body) and body[:1000] in path.read_bytes():
            with open(path, "r+b") as file:
                at = path.read_bytes().index(body[:1000]) + len(body) // 2
                file.seek(at)
                file.write(bytes([body[len(body) // 2] ^ 1]))
            return path
    raise AssertionError("no file has the bytes")


@pytest.mark.parametrize("size", SIZES)
def test_a_damaged_object_is_not_sent_as_a_whole(store, size):
    body = os.urandom(size)
    store.client.create_bucket(Bucket="data", ACL="public-read")
    checksum = store.client.put_object(Bucket="data", Key="k", Body=body, ACL="public-read")
    assert store.client.head_object(Bucket="data", Key="k", ChecksumMode="ENABLED")["ResponseMetadata"]["HTTPHeaders"]["x-amz-checksum-crc64nvme"]
    assert checksum["ResponseMetadata"]["HTTPHeaders"]["x-amz-checksum-crc64nvme"]
    damage(store, body)

    for _ in range(2):
        if size <= 262144:
            with pytest.raises(ClientError) as failure:
                store.client.get_object(Bucket="data", Key="k")
            assert failure.value.response["Error"]["Code"] == "InternalError"
        else:
            with pytest.raises((http.client.IncompleteRead, ConnectionError)):  # it ends before the last bytes
                with urllib.request.urlopen(f"{store.endpoint}/data/k") as reply:
                    reply.read()
    wait_for(lambda: store.process.err.count("'s3://data/k': its bytes do not match its checksum") >= 2, 20)
    store.client.put_object(Bucket="data", Key="k", Body=body)
    assert store.client.get_object(Bucket="data", Key="k")["Body"].read() == body


@pytest.mark.parametrize("size", [0, 100, *SIZES])
@pytest.mark.parametrize("algorithm", [None, "CRC32C", "SHA256"])
def test_intact_objects_are_sent_by_all_ways(store, size, algorithm):
    body = os.urandom(size)
    store.client.create_bucket(Bucket="data")
    store.client.put_object(Bucket="data", Key="k", Body=body, **({"ChecksumAlgorithm": algorithm} if algorithm else {}))

    for _ in range(2):  # the second time it was verified before
        if size:
            assert store.client.get_object(Bucket="data", Key="k", Range="bytes=0-9")["Body"].read() == body[:10]
        assert store.client.get_object(Bucket="data", Key="k")["Body"].read() == body
    assert store.client.head_object(Bucket="data", Key="k")["ContentLength"] == size


def test_bytes_with_a_key_of_the_client_have_no_checksum_that_shows_them(store):
    key = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": os.urandom(32)}
    store.client.create_bucket(Bucket="data")

    made = store.client.put_object(Bucket="data", Key="k", Body=b"x" * 20_000, **key)
    assert not [name for name in made["ResponseMetadata"]["HTTPHeaders"] if name.startswith("x-amz-checksum-")]
    made = store.client.put_object(Bucket="data", Key="k", Body=b"x" * 20_000, ServerSideEncryption="AES256")
    assert made["ResponseMetadata"]["HTTPHeaders"]["x-amz-checksum-crc64nvme"]

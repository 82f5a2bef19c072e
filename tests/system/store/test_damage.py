"""Damaged bytes on the disk: a GET of a whole object does not deliver them as complete."""
import http.client
import os
import sqlite3
import urllib.error
import urllib.request

import pytest

SIZES = {"row": 100, "file": 70_000, "large": 3_000_000}


def raw(store, key, headers=None):
    """The bytes of a GET, without boto3's own checks."""
    url = store.boto3(signature_version="s3v4").generate_presigned_url("get_object", Params={"Bucket": "bkt", "Key": key})
    return urllib.request.urlopen(urllib.request.Request(url, headers=headers or {})).read()


def damage(store, at=50):
    """Flips a bit of each object while nothing serves them."""
    for path in store.root.glob("data/*/*"):
        content = bytearray(path.read_bytes())
        content[at] ^= 1
        path.write_bytes(content)
    with sqlite3.connect(store.root / "meta.db") as db:
        db.execute("UPDATE objects SET body=zeroblob(100) WHERE body IS NOT NULL")
    db.close()


@pytest.fixture
def filled(store):
    store.client.create_bucket(Bucket="bkt")
    for key, size in SIZES.items():
        store.client.put_object(Bucket="bkt", Key=key, Body=os.urandom(size), ChecksumAlgorithm="CRC64NVME")
    upload = store.client.create_multipart_upload(Bucket="bkt", Key="parts", ChecksumAlgorithm="CRC32", ChecksumType="COMPOSITE")["UploadId"]
    parts = []
    for n, body in ((1, os.urandom(5 << 20)), (2, os.urandom(100_000))):
        part = store.client.upload_part(Bucket="bkt", Key="parts", UploadId=upload, PartNumber=n, Body=body, ChecksumAlgorithm="CRC32")
        parts.append({"PartNumber": n, "ETag": part["ETag"], "ChecksumCRC32": part["ChecksumCRC32"]})
    store.client.complete_multipart_upload(Bucket="bkt", Key="parts", UploadId=upload, MultipartUpload={"Parts": parts})
    return store


@pytest.mark.parametrize("key", [*SIZES, "parts"])
def test_a_damaged_object_is_not_delivered_as_complete(filled, key):
    """In the database it is an error; from a file the connection ends before the last bytes."""
    filled.stop()
    damage(filled)
    filled.start()

    with pytest.raises((http.client.IncompleteRead, http.client.RemoteDisconnected, urllib.error.HTTPError)) as failure:
        raw(filled, key)

    if key == "row":
        assert failure.value.code == 500
    else:
        assert f"s3://bkt/{key}" in filled.process.err and len(getattr(failure.value, "partial", b"")) < SIZES.get(key, 5 << 20)


def test_whole_objects_are_delivered_again_and_again(filled):
    """The first GET compares, the next ones come from the page cache."""
    for key in [*SIZES, "parts"] * 2:
        assert len(raw(filled, key)) == SIZES.get(key, (5 << 20) + 100_000)


def test_a_range_of_a_damaged_object_is_delivered(filled):
    """There is no checksum of a range, and the damage may be elsewhere."""
    filled.stop()
    damage(filled)
    filled.start()

    assert len(raw(filled, "file", {"Range": "bytes=100-199"})) == 100

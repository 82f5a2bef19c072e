"""Many reads in one request, the extension of the store that data sets use (docs/stores.md)."""
import base64
import hashlib
import os
import signal
import socket
import struct
import zlib

import pytest

from harness.s3_wire import Wire
from store.test_iam import policy, user_with_key

KINDS = {1: "CRC32", 2: "CRC32C", 3: "CRC64NVME"}


@pytest.fixture
def wire(store):
    wire = Wire(store)
    assert wire.send("PUT", "/bkt").status == 200
    return wire


def ask(wire, body, path="/bkt"):
    return wire.send("POST", path, "penstock-read", body=body)


def results(reply, n):
    """Returns (status, bytes, (kind, digest) or None) of each read."""
    assert reply.status == 200 and reply.headers["x-penstock-read"] == "1", reply.body
    at, found = 24 * n, []
    for i in range(n):
        status, kind, length, digest = struct.unpack_from("<IIQ8s", reply.body, 24 * i)
        found.append((status, reply.body[at : at + length], (KINDS[kind], digest) if kind else None))
        at += length
    assert at == len(reply.body)
    return found


def test_objects_and_ranges_come_in_their_order(wire):
    small, large = os.urandom(3000), os.urandom(300000)
    wire.send("PUT", "/bkt/small", body=small, headers={"x-amz-checksum-crc32": base64.b64encode(zlib.crc32(small).to_bytes(4, "big")).decode()})
    etag = wire.send("PUT", "/bkt/d/large%20%C3%A4%0A", body=large).headers["etag"]
    wire.send("PUT", "/bkt/empty", body=b"")

    reply = ask(wire, f"0 * - small\n1000 5 {etag} d/large%20%C3%A4%0A\n299999 1 - d/large%20%C3%A4%0A\n0 * - empty\n3000 0 - small\n0 * - small\n".encode())

    got = results(reply, 6)
    assert [(status, data) for status, data, _ in got] == [(200, x) for x in (small, large[1000:1005], large[-1:], b"", b"", small)]
    assert got[0][2] == ("CRC32", zlib.crc32(small).to_bytes(4, "big") + bytes(4)) and got[1][2] is None


def test_a_bad_read_does_not_fail_the_others(wire):
    wire.send("PUT", "/bkt/k", body=b"0123456789")

    reply = ask(wire, b'0 * - k\n0 * - none\n0 * "other" k\n5 6 - k\n11 0 - k\n18446744073709551615 18446744073709551615 - k\n9 1 - k\n')

    assert [(status, data) for status, data, _ in results(reply, 7)] == [
        (200, b"0123456789"), (404, b""), (412, b""), (416, b""), (416, b""), (416, b""), (200, b"9"),
    ]  # fmt: skip


def test_a_missing_object_is_hidden_from_those_who_may_not_list_it(wire, store):
    wire.send("PUT", "/bkt/k", body=b"x")
    iam, key, secret = user_with_key(store)
    user = Wire(store)
    user.access_key, user.secret_key = key, secret

    for actions, status in ((["s3:GetObject"], 403), (["s3:GetObject", "s3:ListBucket"], 404)):
        iam.put_user_policy(UserName="jo", PolicyName="p", PolicyDocument=policy(*actions))
        assert [found for found, _, _ in results(ask(user, b"0 * - k\n0 * - none\n"), 2)] == [200, status]


def test_an_object_that_the_store_has_lost_does_not_fail_the_others(wire, store):
    wire.send("PUT", "/bkt/k", body=b"0123456789")
    lost = os.urandom(300000)
    wire.send("PUT", "/bkt/lost", body=lost)
    [path] = [path for path in store.root.rglob("*") if path.is_file() and path.read_bytes() == lost]
    path.unlink()

    reply = ask(wire, b"0 * - k\n0 * - lost\n0 * - k\n")

    assert [(status, data) for status, data, _ in results(reply, 3)] == [(200, b"0123456789"), (501, b""), (200, b"0123456789")]


# An upload in parts has several files. A read may be within one file, or go across two files.
def test_parts_are_read_where_they_are(store):
    store.client.create_bucket(Bucket="bkt")
    parts = [os.urandom(5 << 20), os.urandom(1000)]
    upload = store.client.create_multipart_upload(Bucket="bkt", Key="k")["UploadId"]
    tags = [
        {"PartNumber": n, "ETag": store.client.upload_part(Bucket="bkt", Key="k", UploadId=upload, PartNumber=n, Body=part)["ETag"]}
        for n, part in enumerate(parts, 1)
    ]
    store.client.complete_multipart_upload(Bucket="bkt", Key="k", UploadId=upload, MultipartUpload={"Parts": tags})

    edge = 5 << 20
    got = results(ask(Wire(store), f"7 9 - k\n{edge} 1000 - k\n{edge - 1} 2 - k\n".encode()), 3)

    assert [status for status, _, _ in got] == [200, 200, 200]
    assert [data for _, data, _ in got] == [parts[0][7:16], parts[1], parts[0][-1:] + parts[1][:1]]
    part = store.client.get_object(Bucket="bkt", Key="k", Range=f"bytes={edge - 2}-{edge + 1}")["Body"].read()
    assert part == parts[0][-2:] + parts[1][:2]


def test_a_reply_has_a_limit(wire):
    wire.send("PUT", "/bkt/k", body=bytes(3 << 20))

    got = results(ask(wire, b"0 * - k\n" * 3 + b"5 10 - k\n"), 4)

    assert [(status, len(data)) for status, data, _ in got] == [(200, 3 << 20), (200, 3 << 20), (503, 0), (200, 10)]


def test_a_batch_whose_client_is_gone_is_not_read(wire, store):
    wire.send("PUT", "/bkt/k", body=b"0123456789")
    body = b"0 * - k\n" * 4096
    headers = wire.sign("POST", "/bkt", "penstock-read", {"content-length": str(len(body))}, payload=hashlib.sha256(body).hexdigest())

    with wire.connect() as connection:
        store.process.send(signal.SIGSTOP)  # the server sees the request and the end of the stream together
        connection.sendall(wire.head("POST", "/bkt?penstock-read", headers) + body)
        connection.shutdown(socket.SHUT_WR)
        store.process.send(signal.SIGCONT)
        reply = b"".join(iter(lambda: connection.recv(1 << 16), b""))

    assert b"0123456789" not in reply and (not reply or b"RequestTimeout" in reply)


# libmicrohttpd once ended the process if the list of reads for the reply did not fit into its
# memory next to the request's head.
@pytest.mark.parametrize("reads, head", [(4096, 0), (500, 56000)])
def test_the_largest_requests_are_answered(wire, reads, head):
    wire.send("PUT", "/bkt/k", body=b"x")

    reply = wire.send("POST", "/bkt", "penstock-read", body=b"0 * - k\n" * reads, headers={"x-padding": "p" * head})

    assert [(status, data) for status, data, _ in results(reply, reads)] == [(200, b"x")] * reads
    assert ask(wire, b"0 * - k\n").status == 200


@pytest.mark.parametrize(
    "body",
    [b"", b"0 * - k", b"0 * -\n", b"k\n", b"-1 5 - k\n", b"1 * - k\n", b"0 * - %zz\n", b"0 * - k\n\0", b"0 * - k\n" * 4097, b"0 * - " + b"x" * 1100 + b"\n"],
    ids=range(10),
)
def test_an_invalid_request_is_refused(wire, body):
    wire.send("PUT", "/bkt/k", body=b"x")

    reply = ask(wire, body)

    assert (reply.status, reply.code) == (400, "InvalidRequest")
    assert ask(wire, b"0 * - k\n").status == 200


def test_other_subjects_and_senders_are_refused(wire):
    wire.send("PUT", "/bkt/k", body=b"x")
    signed = wire.sign("POST", "/bkt", "penstock-read", {"content-length": "8"}, payload="0" * 64)

    assert ask(wire, b"0 * - k\n", "/none").code == "NoSuchBucket"
    assert ask(wire, b"0 * - k\n", "/bkt/k").code == "NotImplemented"
    assert wire.send("GET", "/bkt", "penstock-read").code == "NotImplemented"
    assert wire.raw("POST", "/bkt?penstock-read", {"host": "x", "content-length": "8"}, b"0 * - k\n").code == "AccessDenied"
    assert wire.raw("POST", "/bkt?penstock-read", signed, b"0 * - k\n").code == "XAmzContentSHA256Mismatch"

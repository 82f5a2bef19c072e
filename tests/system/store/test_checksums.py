"""Checksums of objects and parts that the SDK of Debian does not know: SHA512, MD5 and the xxHashes."""
import base64
import ctypes
import hashlib
import os
import re

import pytest

from harness.program import Store
from harness.s3_wire import Wire
from store.test_damaged_reads import damage
from store.test_post import Form, post
from store.test_replication import here, rule, set_rules, there, wait_until_equal  # noqa: F401
from store.test_wire import UNSIGNED, put_chunked, unsigned

MIB = 1024 * 1024
BOTH = {"x-amz-checksum-mode": "ENABLED"}


class Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


_xxhash = ctypes.CDLL("libxxhash.so.0")
_xxhash.XXH64.restype = _xxhash.XXH3_64bits.restype = ctypes.c_uint64
_xxhash.XXH64.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]
_xxhash.XXH3_64bits.argtypes = _xxhash.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
_xxhash.XXH3_128bits.restype = Hash128


def xxhash128(data):
    value = _xxhash.XXH3_128bits(data, len(data))
    return value.high.to_bytes(8, "big") + value.low.to_bytes(8, "big")


SUMS = {
    "SHA512": lambda data: hashlib.sha512(data).digest(),
    "MD5": lambda data: hashlib.md5(data).digest(),
    "XXHASH64": lambda data: _xxhash.XXH64(data, len(data), 0).to_bytes(8, "big"),
    "XXHASH3": lambda data: _xxhash.XXH3_64bits(data, len(data)).to_bytes(8, "big"),
    "XXHASH128": xxhash128,
}


@pytest.fixture
def wire(store):
    wire = Wire(store)
    assert wire.send("PUT", "/bkt").status == 200
    return wire


@pytest.fixture(params=SUMS)
def kind(request):
    return request.param


def header(kind):
    return f"x-amz-checksum-{kind.lower()}"


def text(kind, data):
    return base64.b64encode(SUMS[kind](data)).decode()


def element(kind, value):
    return f"<Checksum{kind}>{value}</Checksum{kind}>".encode()


def sums(wire, path, query=""):
    """Returns the headers of all checksums of an object, and their type."""
    reply = wire.send("HEAD", path, query, BOTH)
    return {name: value for name, value in reply.headers.items() if name.startswith("x-amz-checksum-")}


def begin_upload(wire, kind=None):
    """Returns the parameter with the id of a new upload of /bkt/m."""
    made = wire.send("POST", "/bkt/m", "uploads=", {"x-amz-checksum-algorithm": kind} if kind else {})
    return f"uploadId={re.search(b'<UploadId>(.*)</UploadId>', made.body)[1].decode()}"


def complete(wire, upload, etag, headers=None):
    document = f"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part></CompleteMultipartUpload>"
    return wire.send("POST", "/bkt/m", upload, headers, document.encode())


def whole(kind, data):
    return {header(kind): text(kind, data), "x-amz-checksum-type": "FULL_OBJECT"}


@pytest.mark.parametrize("size", [0, 9, 300, 200_000])
def test_a_checksum_in_a_header_is_verified_and_kept(wire, kind, size):
    body = os.urandom(size)

    assert wire.send("PUT", "/bkt/k", headers={header(kind): text(kind, body + b"x")}, body=body).code == "BadDigest"
    assert wire.send("PUT", "/bkt/k", headers={header(kind): "AAAA"}, body=body).code == "InvalidRequest"
    assert wire.send("PUT", "/bkt/k", headers={header(kind): text(kind, body)}, body=body).status == 200
    assert sums(wire, "/bkt/k") == whole(kind, body)
    assert wire.send("GET", "/bkt/k", headers=BOTH).body == body
    assert wire.send("PUT", "/bkt/k", headers={"x-amz-sdk-checksum-algorithm": kind}, body=body + b"2").status == 200
    assert sums(wire, "/bkt/k") == whole(kind, body + b"2")


def test_a_checksum_in_a_trailer_or_a_form(wire, kind):
    trailer = (header(kind), text(kind, b"onetwo"))

    assert put_chunked(wire, [b"one", b"two"], UNSIGNED, trailer, body=unsigned([b"one", b"two"], trailer)).status == 200
    assert sums(wire, "/bkt/k") == whole(kind, b"onetwo")
    wrong = (header(kind), text(kind, b"other"))
    assert put_chunked(wire, [b"one"], UNSIGNED, wrong, body=unsigned([b"one"], wrong)).code == "BadDigest"
    assert post(wire, Form(wire, {"key": "f", header(kind): wrong[1]}).parts(b"text")).code == "BadDigest"
    assert post(wire, Form(wire, {"key": "f", header(kind): text(kind, b"text")}).parts(b"text")).status == 204
    assert sums(wire, "/bkt/f") == whole(kind, b"text")


# As at AWS, only CRCs of parts are combined into a checksum of the whole object.
def test_the_checksum_of_an_object_in_parts_is_a_composite(wire, kind):
    bodies = [os.urandom(5 * MIB), b"tail"]
    algorithm = {"x-amz-checksum-algorithm": kind}
    assert wire.send("POST", "/bkt/m", "uploads=", algorithm | {"x-amz-checksum-type": "FULL_OBJECT"}).code == "InvalidRequest"
    made = wire.send("POST", "/bkt/m", "uploads=", algorithm)
    assert (made.headers["x-amz-checksum-algorithm"], made.headers["x-amz-checksum-type"]) == (kind, "COMPOSITE")
    upload = f"uploadId={re.search(b'<UploadId>(.*)</UploadId>', made.body)[1].decode()}"
    document = b""
    for i, body in enumerate(bodies, 1):
        place = f"partNumber={i}&{upload}"
        assert wire.send("PUT", "/bkt/m", place, {header(kind): text(kind, b"other")}, body).code == "BadDigest"
        sent = wire.send("PUT", "/bkt/m", place, {header(kind): text(kind, body)}, body)
        assert sent.headers[header(kind)] == text(kind, body)
        document += f"<Part><PartNumber>{i}</PartNumber><ETag>{sent.headers['etag']}</ETag>".encode() + element(kind, text(kind, body)) + b"</Part>"
    listed = wire.send("GET", "/bkt/m", upload).body
    assert all(element(kind, text(kind, body)) in listed for body in bodies)
    composite = text(kind, b"".join(map(SUMS[kind], bodies))) + "-2"

    outer = b"<CompleteMultipartUpload>%s</CompleteMultipartUpload>"
    spoiled = document.replace(text(kind, b"tail").encode(), text(kind, b"other").encode())
    assert wire.send("POST", "/bkt/m", upload, body=outer % spoiled).code == "InvalidPart"
    assert wire.send("POST", "/bkt/m", upload, {header(kind): text(kind, b"other")}, outer % document).code == "BadDigest"
    done = wire.send("POST", "/bkt/m", upload, {header(kind): composite}, outer % document)

    assert element(kind, composite) in done.body
    assert sums(wire, "/bkt/m") == {header(kind): composite, "x-amz-checksum-type": "COMPOSITE"}
    assert sums(wire, "/bkt/m", "partNumber=2") == {header(kind): text(kind, b"tail"), "x-amz-checksum-type": "COMPOSITE"}
    attributes = wire.send("GET", "/bkt/m", "attributes=", {"x-amz-object-attributes": "Checksum,ObjectParts"}).body
    assert element(kind, composite) in attributes and all(element(kind, text(kind, body)) in attributes for body in bodies)


def test_a_checksum_needs_the_algorithm_of_its_upload(wire, kind):
    upload = begin_upload(wire)
    etag = wire.send("PUT", "/bkt/m", f"partNumber=1&{upload}", body=b"part").headers["etag"]

    assert complete(wire, upload, etag, {header(kind): text(kind, b"part")}).code == "InvalidRequest"
    assert complete(wire, upload, etag).status == 200


def test_a_copy_may_get_another_checksum(wire, kind):
    assert wire.send("PUT", "/bkt/k", body=b"text").status == 200
    source = {"x-amz-copy-source": "/bkt/k", "x-amz-checksum-algorithm": kind}

    assert element(kind, text(kind, b"text")) in wire.send("PUT", "/bkt/copy", headers=source).body
    assert sums(wire, "/bkt/copy") == whole(kind, b"text")
    upload = begin_upload(wire, kind)
    part = wire.send("PUT", "/bkt/m", f"partNumber=1&{upload}", {"x-amz-copy-source": "/bkt/k"})
    assert element(kind, text(kind, b"text")) in part.body


def test_a_copy_of_an_object_in_parts_has_no_checksums_of_another_algorithm(wire):
    upload = begin_upload(wire, "SHA512")
    assert complete(wire, upload, wire.send("PUT", "/bkt/m", f"partNumber=1&{upload}", body=b"part").headers["etag"]).status == 200

    wire.send("PUT", "/bkt/copy", headers={"x-amz-copy-source": "/bkt/m", "x-amz-checksum-algorithm": "MD5"})

    assert sums(wire, "/bkt/copy") == whole("MD5", b"part")
    assert not [name for name in sums(wire, "/bkt/copy", "partNumber=1") if name.startswith("x-amz-checksum-") and name != "x-amz-checksum-type"]


def test_a_copy_of_an_object_without_a_checksum_gets_one(wire):
    key = os.urandom(32)
    secret = {"algorithm": "AES256", "key": base64.b64encode(key).decode(), "key-md5": base64.b64encode(hashlib.md5(key).digest()).decode()}
    prefix = "x-amz-server-side-encryption-customer-"
    assert wire.send("PUT", "/bkt/k", headers={prefix + name: text for name, text in secret.items()}, body=b"text").status == 200

    copy = {"x-amz-copy-source": "/bkt/k"} | {"x-amz-copy-source-server-side-encryption-customer-" + name: text for name, text in secret.items()}
    assert wire.send("PUT", "/bkt/copy", headers=copy).status == 200

    assert wire.send("PUT", "/bkt/plain", body=b"text").status == 200
    assert "x-amz-checksum-crc64nvme" in sums(wire, "/bkt/copy") and sums(wire, "/bkt/copy") == sums(wire, "/bkt/plain")


def test_an_archive_and_a_replica_keep_checksums(here, there, penstock, tmp_path, kind):  # noqa: F811
    set_rules(here, rule())
    wire = Wire(here)
    assert wire.send("PUT", "/bkt/k", headers={"x-amz-sdk-checksum-algorithm": kind}, body=b"text").status == 200
    upload = begin_upload(wire, kind)
    assert complete(wire, upload, wire.send("PUT", "/bkt/m", f"partNumber=1&{upload}", body=b"part").headers["etag"]).status == 200
    composite = {header(kind): text(kind, SUMS[kind](b"part")) + "-1", "x-amz-checksum-type": "COMPOSITE"}
    wait_until_equal(here, there)
    penstock.run("store", "export", tmp_path / "bkt.tar", "--root", here.root).ok()
    penstock.run("store", "import", tmp_path / "bkt.tar", "--root", tmp_path / "new").ok()
    imported = Store(penstock, tmp_path / "new")

    for store, bucket in ((here, "bkt"), (there, "copy"), (imported, "bkt")):
        assert sums(Wire(store), f"/{bucket}/k") == whole(kind, b"text")
        assert sums(Wire(store), f"/{bucket}/m") == composite
    imported.stop().ok()


def test_scrub_and_reads_find_damaged_bytes(wire, store, penstock, kind):
    body = os.urandom(200_000)
    assert wire.send("PUT", "/bkt/k", headers={header(kind): text(kind, body)}, body=body).status == 200
    penstock.run("store", "scrub", "--root", store.root).ok()
    damage(store, body)

    # A read verifies only the xxHashes. Like SHA256, the other hashes would cost more than the read
    # itself.
    reply = wire.send("GET", "/bkt/k")
    assert (reply.status, reply.code) == ((500, "InternalError") if kind.startswith("XX") else (200, None))
    assert kind in penstock.run("store", "scrub", "--root", store.root).exits(66).text

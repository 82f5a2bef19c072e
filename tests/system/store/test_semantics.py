"""Semantics of the store's operations: conditions, ranges, copies, multipart rules, listings, errors."""
import concurrent.futures
import hashlib
import os
import sqlite3
import struct
import subprocess
import time
import zlib

import pytest
from botocore.exceptions import ClientError

from harness.s3_wire import Wire, crc32
from harness.waiting import wait_for

MIB = 1024 * 1024


@pytest.fixture
def s3(store):
    client = store.client
    client.create_bucket(Bucket="bkt")
    return client


@pytest.fixture
def wire(s3, store):
    return Wire(store)


def fails(call, **arguments):
    with pytest.raises(ClientError) as error:
        call(**arguments)
    answer = error.value.response
    return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"]


def put(wire, body=b"new", path="/bkt/k", **headers):
    return wire.send("PUT", path, headers={name.replace("_", "-"): value for name, value in headers.items()}, body=body)


def tag(body):
    return hashlib.md5(body).hexdigest()


# --- conditions


@pytest.mark.parametrize("quoted", ['"%s"', "%s"])
def test_writes_are_conditional(wire, quoted):
    assert put(wire, if_match=quoted % tag(b"x")).code == "NoSuchKey"
    assert put(wire, b"one", if_none_match="*").status == 200
    assert put(wire, b"two", if_none_match="*").code == "PreconditionFailed"
    assert put(wire, b"two", if_match=quoted % tag(b"x")).status == 412
    assert put(wire, b"two", if_match=quoted % tag(b"one")).status == 200
    assert wire.send("GET", "/bkt/k").body == b"two"
    assert wire.send("DELETE", "/bkt/k", headers={"if-match": quoted % tag(b"one")}).status == 412
    assert wire.send("DELETE", "/bkt/k", headers={"if-match": quoted % tag(b"two")}).status == 204
    assert wire.send("DELETE", "/bkt/k", headers={"if-match": quoted % tag(b"two")}).status == 204
    assert wire.send("GET", "/bkt/k").code == "NoSuchKey"


def test_conditions_of_writes_are_lists_and_may_be_weak(wire):
    """If-Match compares strongly, If-None-Match weakly (RFC 9110, 13.1)."""
    put(wire, b"one")
    put(wire, b"source", path="/bkt/source")
    etag = f'"{tag(b"one")}"'
    upload = wire.send("POST", "/bkt/k", "uploads=").body.split(b"<UploadId>")[1].split(b"<")[0].decode()
    part = wire.send("PUT", "/bkt/k", f"partNumber=1&uploadId={upload}", body=b"part").headers["etag"]
    document = f"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{part}</ETag></Part></CompleteMultipartUpload>".encode()

    def changes(condition):
        yield "PUT", "", condition, b"one"
        yield "PUT", "", condition | {"x-amz-copy-source": "/bkt/source"}, b""
        yield "POST", f"uploadId={upload}", condition, document
        yield "DELETE", "", condition, b""

    for name, value in [
        ("if-none-match", f'{etag}, "0"'), ("if-none-match", f'"0",{etag}'), ("if-none-match", f"W/{etag}"), ("if-none-match", '"0", *'),
        ("if-match", f"W/{etag}"), ("if-match", '"0", "1"'), ("if-match", '"*"'),
    ]:  # fmt: skip
        for method, query, headers, body in changes({name: value}):
            assert wire.send(method, "/bkt/k", query, headers, body).status == 412, (method, name, value)
    assert wire.send("GET", "/bkt/k").body == b"one"
    for name, value in [("if-match", f'"0", {etag}'), ("if-match", f'W/"0",{etag}'), ("if-none-match", '"*"'), ("if-none-match", '"0", W/"1"')]:
        assert put(wire, b"one", **{name: value}).status == 200, (name, value)
    assert wire.send("POST", "/bkt/k", f"uploadId={upload}", {"if-match": f'"0", {etag}'}, document).status == 200
    assert wire.send("DELETE", "/bkt/k", headers={"if-none-match": f'W/{etag}, "0"'}).status == 204


def test_reads_are_conditional(wire):
    put(wire, b"body")
    modified = wire.send("HEAD", "/bkt/k").headers["last-modified"]
    before, etag = "Mon, 01 Jan 2024 00:00:00 GMT", f'"{tag(b"body")}"'

    def status(**headers):
        return wire.send("GET", "/bkt/k", headers={name.replace("_", "-"): value for name, value in headers.items()}).status

    assert status(if_match=etag) == 200
    assert status(if_match='"other"') == 412
    assert status(if_match=f'"other", {etag}') == 200
    assert status(if_none_match=etag) == 304
    assert status(if_none_match="*") == 304
    assert status(if_none_match='"other"') == 200
    assert status(if_modified_since=modified) == 304
    assert status(if_modified_since=before) == 200
    assert status(if_unmodified_since=modified) == 200
    assert status(if_unmodified_since=before) == 412
    assert status(if_match=etag, if_unmodified_since=before) == 200
    assert status(if_none_match='"other"', if_modified_since=modified) == 200
    assert wire.send("GET", "/bkt/k", headers={"range": "bytes=0-1", "if-range": '"other"'}).status == 200
    assert wire.send("GET", "/bkt/k", headers={"range": "bytes=0-1", "if-range": etag}).status == 206
    refused = wire.send("GET", "/bkt/k", headers={"if-none-match": etag})
    assert refused.body == b"" and refused.headers["etag"] == etag


# --- reading


@pytest.mark.parametrize("size", [10, 100_000])
def test_ranges(wire, size):
    body = os.urandom(size)
    put(wire, body)

    def get(text):
        return wire.send("GET", "/bkt/k", headers={"range": text})

    part = get("bytes=2-4")
    assert (part.status, part.body) == (206, body[2:5])
    assert part.headers["content-range"] == f"bytes 2-4/{size}"
    assert get(f"bytes={size - 2}-{size + 5}").body == body[-2:]
    assert get(f"bytes=-{size + 5}").body == body
    past = get(f"bytes={size}-")
    assert (past.status, past.code, past.headers["content-range"]) == (416, "InvalidRange", f"bytes */{size}")
    for ignored in ("bytes=4-2", "lines=1-2", "bytes=0-1,3-4", "bytes=x"):
        assert (get(ignored).status, get(ignored).body) == (200, body)


def test_headers_are_kept_and_may_be_overridden(wire):
    put(
        wire, content_type="text/x; charset=utf-8", cache_control="max-age=1", content_disposition='attachment; filename="a b"',
        content_encoding="gzip", content_language="de", expires="Thu, 01 Dec 2033 16:00:00 GMT", x_amz_meta_a="1", x_amz_meta_Case="2",
        x_amz_storage_class="STANDARD_IA",
    )  # fmt: skip

    got = wire.send("GET", "/bkt/k").headers
    assert got["content-type"] == "text/x; charset=utf-8" and got["cache-control"] == "max-age=1"
    assert got["content-disposition"] == 'attachment; filename="a b"' and got["content-encoding"] == "gzip"
    assert got["content-language"] == "de" and got["expires"] == "Thu, 01 Dec 2033 16:00:00 GMT"
    assert got["x-amz-meta-a"] == "1" and got["x-amz-meta-case"] == "2" and got["x-amz-storage-class"] == "STANDARD_IA"
    got = wire.send("GET", "/bkt/k", "response-content-type=a%2Fb&response-cache-control=no-store").headers
    assert got["content-type"] == "a/b" and got["cache-control"] == "no-store" and got["content-language"] == "de"
    put(wire)
    assert wire.send("GET", "/bkt/k").headers["content-type"] == "binary/octet-stream"
    assert put(wire, x_amz_meta_long="x" * 2100).code == "MetadataTooLarge"
    assert put(wire, content_disposition="x" * 5000, cache_control="x" * 3500).code == "MetadataTooLarge"
    put(wire, content_disposition="x" * 5000, x_amz_meta_long="x" * 2000)
    assert len(wire.send("GET", "/bkt/k").headers["content-disposition"]) == 5000
    assert put(wire, x_amz_server_side_encryption="aws:kms").code == "NotImplemented"
    assert put(wire, x_amz_storage_class="COLD").code == "InvalidStorageClass"


def test_replaced_objects_are_seen_at_once(wire):
    for i in range(30):
        body = b"%d" % i * (1 + 20_000 * (i % 2))
        assert put(wire, body).status == 200
        assert wire.send("GET", "/bkt/k").body == body
        assert wire.send("HEAD", "/bkt/k").headers["content-length"] == str(len(body))


# --- copies


# Metadata may have a name without a value; a copy keeps such metadata.
def test_metadata_without_a_value_is_kept(s3):
    s3.put_object(Bucket="bkt", Key="k", Body=b"", Metadata={"flag": "", "name": "value"})
    s3.copy_object(Bucket="bkt", Key="copy", CopySource="bkt/k")

    for key in ("k", "copy"):
        assert s3.head_object(Bucket="bkt", Key=key)["Metadata"] == {"flag": "", "name": "value"}


def test_copies_take_headers_or_replace_them(s3, wire):
    s3.put_object(Bucket="bkt", Key="source ü+", Body=b"x" * 50_000, ContentType="a/b", Metadata={"m": "1"})
    source = {"Bucket": "bkt", "Key": "source ü+"}

    done = s3.copy_object(Bucket="bkt", Key="copy", CopySource=source)
    assert done["CopyObjectResult"]["ETag"] == f'"{tag(b"x" * 50_000)}"'
    head = s3.head_object(Bucket="bkt", Key="copy")
    assert (head["ContentType"], head["Metadata"]) == ("a/b", {"m": "1"})
    s3.copy_object(Bucket="bkt", Key="copy", CopySource=source, MetadataDirective="REPLACE", ContentType="c/d")
    head = s3.head_object(Bucket="bkt", Key="copy")
    assert (head["ContentType"], head["Metadata"], head["ContentLength"]) == ("c/d", {}, 50_000)

    same = {"Bucket": "bkt", "Key": "source ü+", "CopySource": source}
    assert fails(s3.copy_object, **same) == (400, "InvalidRequest")
    s3.copy_object(**same, MetadataDirective="REPLACE", Metadata={"m": "2"})
    assert s3.get_object(Bucket="bkt", Key="source ü+")["Metadata"] == {"m": "2"}
    assert s3.get_object(Bucket="bkt", Key="source ü+")["Body"].read() == b"x" * 50_000


def test_copies_are_conditional(s3, wire):
    etag = s3.put_object(Bucket="bkt", Key="k", Body=b"body")["ETag"]
    at = {"Bucket": "bkt", "Key": "to", "CopySource": "bkt/k"}

    assert fails(s3.copy_object, **at, CopySourceIfMatch='"other"') == (412, "PreconditionFailed")
    assert fails(s3.copy_object, **at, CopySourceIfNoneMatch=etag) == (412, "PreconditionFailed")
    s3.copy_object(**at, CopySourceIfMatch=etag)
    headers = {"x-amz-copy-source": "/bkt/k", "if-none-match": "*"}
    assert wire.send("PUT", "/bkt/to", headers=headers).status == 412
    assert wire.send("PUT", "/bkt/fresh", headers=headers).status == 200
    assert fails(s3.copy_object, Bucket="bkt", Key="to", CopySource="bkt/none") == (404, "NoSuchKey")
    assert fails(s3.copy_object, Bucket="bkt", Key="to", CopySource="none/k") == (404, "NoSuchBucket")
    for source in ("nokey", "bkt/", "//k"):
        assert wire.send("PUT", "/bkt/to", headers={"x-amz-copy-source": source}).code == "InvalidArgument", source


# --- bodies that arrive at the same time


def half_sent(wire, path, body, query="", **headers):
    """Opens a connection, and sends a request and the first half of its body."""
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    signed = wire.sign("PUT", path, query, headers, hashlib.sha256(body).hexdigest()) | {"content-length": str(len(body))}
    connection = wire.connect()
    connection.sendall(wire.head("PUT", path + (f"?{query}" if query else ""), signed) + body[: len(body) // 2])
    return connection


def test_bodies_that_come_together_have_each_its_own_tag(s3, wire):
    sizes = [1, 16384, 16385, 16384 + 64, 20000, 65536, 100_001, 262_144, 262_145, MIB - 3, MIB, MIB + 1] * 3
    bodies = [os.urandom(size) for size in sizes]
    upload = s3.create_multipart_upload(Bucket="bkt", Key="big")["UploadId"]
    parts = [os.urandom(size) for size in (1, 63, 64, 5000, 70_000, MIB)]
    cut = half_sent(wire, "/bkt/cut", os.urandom(MIB))
    wrong = half_sent(wire, "/bkt/wrong", bodies[7], content_md5="1B2M2Y8AsgTpgAmY7PhCfg==")
    under_way = [half_sent(wire, f"/bkt/together/{i}", body) for i, body in enumerate(bodies)]
    under_way += [half_sent(wire, "/bkt/big", part, f"partNumber={i}&uploadId={upload}") for i, part in enumerate(parts, 1)]
    for connection, body in zip(under_way, bodies + parts):
        connection.sendall(body[len(body) // 2 :])
    cut.close()
    wrong.sendall(bodies[7][len(bodies[7]) // 2 :])
    for connection, body in zip(under_way, bodies + parts):
        reply = wire.read(connection)
        assert (reply.status, reply.headers["etag"]) == (200, f'"{tag(body)}"')
        connection.close()
    assert wire.read(wrong).code == "BadDigest"
    for i, body in enumerate(bodies):
        assert wire.send("GET", f"/bkt/together/{i}").body == body
    assert wire.send("GET", "/bkt/cut").status == wire.send("GET", "/bkt/wrong").status == 404


def test_small_bodies_for_no_bucket_are_refused(wire):
    for size in (0, 10, 20_000, 2 * MIB):
        assert wire.send("PUT", "/nobucket/k", body=bytes(size)).code == "NoSuchBucket"


# --- multipart


@pytest.fixture
def upload(s3):
    """Makes an upload of key "m" with two parts. Returns the request that completes it."""
    at = {"Bucket": "bkt", "Key": "m", "UploadId": s3.create_multipart_upload(Bucket="bkt", Key="m", ContentType="a/b")["UploadId"]}
    bodies = [os.urandom(5 * MIB), b"the rest"]
    parts = [{"PartNumber": i, "ETag": s3.upload_part(**at, PartNumber=i, Body=body)["ETag"]} for i, body in enumerate(bodies, 1)]
    return at, parts, b"".join(bodies)


def test_parts_that_come_at_once_each_get_the_tag_of_their_bytes(s3):
    """MD5s of parts with different lengths are computed together; the longest part is hashed while it arrives."""
    upload = s3.create_multipart_upload(Bucket="bkt", Key="m")["UploadId"]
    sizes = [1, 64 * 1024 - 1, 64 * 1024, 64 * 1024 + 1, 96 * 1024, 5 * MIB, 5 * MIB + 13, MIB, 8 * MIB, 3 * MIB + 64, 100_000, 200_001, 40 * MIB]
    bodies = [os.urandom(size) for size in sizes]

    def send(number):
        return s3.upload_part(Bucket="bkt", Key="m", UploadId=upload, PartNumber=number, Body=bodies[number - 1])["ETag"]

    for _ in range(2):
        with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
            tags = list(pool.map(send, range(1, len(bodies) + 1)))
        assert tags == [f'"{tag(body)}"' for body in bodies]


def complete(wire, query, etags, key="k", headers=None):
    parts = "".join(f"<Part><PartNumber>{n}</PartNumber><ETag>{etag}</ETag></Part>" for n, etag in enumerate(etags, 1))
    document = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
    return wire.send("POST", f"/bkt/{key}", query, headers=headers, body=document)


def upload_without_algorithm(wire, key="k"):
    """Sends parts with and without checksums, and a copy. Returns the query of the upload, the ETags and the bytes."""
    query = "uploadId=" + wire.send("POST", f"/bkt/{key}", "uploads=").body.decode().split("<UploadId>")[1].split("<")[0]
    bodies = [os.urandom(5 * MIB), os.urandom(5 * MIB), os.urandom(5 * MIB), b"the rest"]
    for name, body in (("whole", bodies[1]), ("more", b"before" + bodies[2] + b"after")):
        assert put(wire, body, path=f"/bkt/source-{name}").status == 200
    ranged = {"x-amz-copy-source": "bkt/source-more", "x-amz-copy-source-range": f"bytes=6-{6 + 5 * MIB - 1}"}
    replies = [
        wire.send("PUT", f"/bkt/{key}", f"partNumber=1&{query}", headers={"x-amz-checksum-crc32": crc32(bodies[0])}, body=bodies[0]),
        wire.send("PUT", f"/bkt/{key}", f"partNumber=2&{query}", headers={"x-amz-copy-source": "bkt/source-whole"}),
        wire.send("PUT", f"/bkt/{key}", f"partNumber=3&{query}", headers=ranged),
        wire.send("PUT", f"/bkt/{key}", f"partNumber=4&{query}", body=bodies[3]),
    ]
    assert [reply.status for reply in replies] == [200] * 4
    return query, [f'"{tag(body)}"' for body in bodies], b"".join(bodies)


def test_an_upload_without_algorithm_gets_the_checksum_that_a_put_gets(wire):
    query, etags, whole = upload_without_algorithm(wire)
    wanted = put(wire, whole, path="/bkt/put").headers["x-amz-checksum-crc64nvme"]

    assert complete(wire, query, etags, headers={"x-amz-checksum-crc64nvme": "AAAAAAAAAAA="}).code == "BadDigest"
    done = complete(wire, query, etags, headers={"x-amz-checksum-crc64nvme": wanted, "x-amz-checksum-type": "FULL_OBJECT"})

    assert f"<ChecksumCRC64NVME>{wanted}<" in done.body.decode() and b"<ChecksumType>FULL_OBJECT<" in done.body
    assert complete(wire, query, etags).body == done.body
    head = wire.send("HEAD", "/bkt/k", headers={"x-amz-checksum-mode": "ENABLED"}).headers
    assert (head["x-amz-checksum-crc64nvme"], head["x-amz-checksum-type"]) == (wanted, "FULL_OBJECT")
    found = wire.send("GET", "/bkt/k", "attributes=", headers={"x-amz-object-attributes": "Checksum,ObjectParts"}).body.decode()
    sums = [text.split("<")[0] for text in found.split("<ChecksumCRC64NVME>")[1:]]
    assert sums[0] == wanted and sums[4] == put(wire, b"the rest", path="/bkt/put").headers["x-amz-checksum-crc64nvme"]
    assert wire.send("GET", "/bkt/k").body == whole


def test_an_upload_of_an_older_version_is_completed(wire, store):
    """The older version stored parts without checksums; the parts that are sent to the new version
    have checksums."""
    query, etags, whole = upload_without_algorithm(wire)
    store.stop()
    with sqlite3.connect(store.root / "meta.db") as db:
        db.execute("UPDATE parts SET ck_value = NULL WHERE number < 3")
    db.close()
    store.start()

    wire = Wire(store)
    assert complete(wire, query, etags).status == 200
    reply = wire.send("GET", "/bkt/k", headers={"x-amz-checksum-mode": "ENABLED"})
    assert reply.body == whole and "x-amz-checksum-type" not in reply.headers


def test_a_part_has_its_own_checksum(wire):
    start = wire.send("POST", "/bkt/k", "uploads=", headers={"x-amz-checksum-algorithm": "CRC32", "x-amz-checksum-type": "COMPOSITE"})
    upload = start.body.decode().split("<UploadId>")[1].split("<")[0]
    parts = [b"a" * 5 * MIB, b"rest"]
    for number, body in enumerate(parts, 1):
        assert wire.send("PUT", "/bkt/k", f"partNumber={number}&uploadId={upload}", headers={"x-amz-checksum-crc32": crc32(body)}, body=body).status == 200
    listed = "".join(f"<Part><PartNumber>{n}</PartNumber><ETag>{tag(body)}</ETag></Part>" for n, body in enumerate(parts, 1))
    done = wire.send("POST", "/bkt/k", f"uploadId={upload}", body=f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode())
    assert done.status == 200

    for number, body in enumerate(parts, 1):
        got = wire.send("HEAD", "/bkt/k", f"partNumber={number}", headers={"x-amz-checksum-mode": "ENABLED"})
        assert (got.headers["x-amz-checksum-crc32"], got.headers["x-amz-checksum-type"]) == (crc32(body), "COMPOSITE")
    whole = wire.send("HEAD", "/bkt/k", headers={"x-amz-checksum-mode": "ENABLED"})
    assert whole.headers["x-amz-checksum-crc32"].endswith("-2")


def test_a_multipart_object_has_the_tag_that_s3_gives_it(s3, upload, wire):
    at, parts, body = upload

    listed = s3.list_parts(**at)["Parts"]
    assert [(part["PartNumber"], part["Size"]) for part in listed] == [(1, 5 * MIB), (2, 8)]
    assert [entry["UploadId"] for entry in s3.list_multipart_uploads(Bucket="bkt")["Uploads"]] == [at["UploadId"]]
    done = s3.complete_multipart_upload(**at, MultipartUpload={"Parts": parts})
    digests = b"".join(bytes.fromhex(part["ETag"].strip('"')) for part in parts)
    assert done["ETag"] == f'"{hashlib.md5(digests).hexdigest()}-2"'
    got = s3.get_object(Bucket="bkt", Key="m")
    assert got["Body"].read() == body and got["ContentType"] == "a/b"
    assert s3.get_object(Bucket="bkt", Key="m", Range=f"bytes={5 * MIB - 3}-{5 * MIB + 2}")["Body"].read() == body[5 * MIB - 3 : 5 * MIB + 3]
    second = s3.get_object(Bucket="bkt", Key="m", PartNumber=2)
    assert second["Body"].read() == b"the rest" and second["PartsCount"] == 2
    assert second["ContentRange"] == f"bytes {5 * MIB}-{len(body) - 1}/{len(body)}"
    assert wire.send("GET", "/bkt/m", "partNumber=3").status in (400, 416)
    assert "Uploads" not in s3.list_multipart_uploads(Bucket="bkt")


def test_what_is_wrong_with_a_completion_is_said(s3, upload, wire):
    at, parts, body = upload

    def complete(parts):
        return fails(s3.complete_multipart_upload, **at, MultipartUpload={"Parts": parts})

    assert complete(parts[::-1]) == (400, "InvalidPartOrder")
    assert complete([parts[0] | {"ETag": '"' + "0" * 32 + '"'}]) == (400, "InvalidPart")
    assert complete(parts + [{"PartNumber": 3, "ETag": parts[0]["ETag"]}]) == (400, "InvalidPart")
    assert complete([parts[1], {"PartNumber": 3, "ETag": s3.upload_part(**at, PartNumber=3, Body=b"3")["ETag"]}]) == (400, "EntityTooSmall")
    assert wire.send("POST", "/bkt/m", f"uploadId={at['UploadId']}", body=b"<nonsense").code == "MalformedXML"
    assert wire.send("POST", "/bkt/m", "uploadId=none", body=b"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>x</ETag></Part></CompleteMultipartUpload>").code == "NoSuchUpload"  # fmt: skip
    s3.complete_multipart_upload(**at, MultipartUpload={"Parts": parts})
    again = s3.complete_multipart_upload(**at, MultipartUpload={"Parts": parts})
    assert again["ETag"] == s3.head_object(Bucket="bkt", Key="m")["ETag"]
    for others in (parts[:1], parts[::-1][:1], [parts[0], parts[1] | {"ETag": parts[0]["ETag"]}], parts + [parts[1] | {"PartNumber": 3}]):
        assert complete(others) == (404, "NoSuchUpload")
    assert s3.head_object(Bucket="bkt", Key="m")["ETag"] == again["ETag"]


def test_a_completion_is_conditional(s3, upload, wire):
    at, parts, body = upload
    document = "".join(f"<Part><PartNumber>{p['PartNumber']}</PartNumber><ETag>{p['ETag']}</ETag></Part>" for p in parts)
    document = f"<CompleteMultipartUpload>{document}</CompleteMultipartUpload>".encode()

    def complete(**headers):
        return wire.send("POST", "/bkt/m", f"uploadId={at['UploadId']}", {k.replace("_", "-"): v for k, v in headers.items()}, document)

    s3.put_object(Bucket="bkt", Key="m", Body=b"there already")
    assert complete(if_none_match="*").status == 412
    assert complete(if_match='"other"').status == 412
    assert complete(x_amz_mp_object_size="5").status == 400
    assert s3.get_object(Bucket="bkt", Key="m")["Body"].read() == b"there already"
    assert complete(if_match=f'"{tag(b"there already")}"').status == 200
    assert s3.get_object(Bucket="bkt", Key="m")["Body"].read() == body


def test_an_aborted_upload_leaves_nothing(s3, upload, store, wait_for):
    at, parts, body = upload

    s3.abort_multipart_upload(**at)

    assert fails(s3.list_parts, **at) == (404, "NoSuchUpload")
    assert fails(s3.upload_part, **at, PartNumber=1, Body=b"x") == (404, "NoSuchUpload")
    # A thread of the store unlinks the files after the reply.
    wait_for(lambda: not [path for path in (store.root / "data").rglob("*") if path.is_file()], 30)


@pytest.mark.parametrize("size", [1000, 100_000])
def test_parts_are_copied_from_ranges(s3, upload, size):
    at, parts, body = upload
    source = os.urandom(size)
    s3.put_object(Bucket="bkt", Key="source", Body=source)

    copied = s3.upload_part_copy(**at, PartNumber=2, CopySource="bkt/source", CopySourceRange="bytes=10-99")["CopyPartResult"]
    beyond = fails(s3.upload_part_copy, **at, PartNumber=2, CopySource="bkt/source", CopySourceRange=f"bytes=10-{size}")
    assert beyond == (400, "InvalidArgument")
    assert copied["ETag"] == f'"{tag(source[10:100])}"'
    s3.delete_object(Bucket="bkt", Key="source")
    s3.complete_multipart_upload(**at, MultipartUpload={"Parts": [parts[0], {"PartNumber": 2, "ETag": copied["ETag"]}]})
    assert s3.get_object(Bucket="bkt", Key="m")["Body"].read() == body[: 5 * MIB] + source[10:100]


# A reader opens a file for each piece, so an object of many one-byte pieces would keep an event
# loop busy.
def test_copies_of_copies_do_not_double_their_pieces(s3, store):
    def make(*parts):
        at, made = {"Bucket": "bkt", "Key": "t"}, []
        at["UploadId"] = s3.create_multipart_upload(**at)["UploadId"]
        for number, part in enumerate(parts, 1):
            reply = (s3.upload_part if "Body" in part else s3.upload_part_copy)(**at, PartNumber=number, **part)
            made.append({"PartNumber": number, "ETag": reply.get("CopyPartResult", reply)["ETag"]})
        s3.complete_multipart_upload(**at, MultipartUpload={"Parts": made})

    base = os.urandom(5 * MIB)
    s3.put_object(Bucket="bkt", Key="base", Body=base)
    make({"CopySource": "bkt/base"}, {"Body": b"x"})
    for doubled in range(9):
        tail = f"bytes={5 * MIB}-{5 * MIB + 2**doubled - 1}"
        make({"CopySource": "bkt/t"}, {"CopySource": "bkt/t", "CopySourceRange": tail})

    assert s3.get_object(Bucket="bkt", Key="t")["Body"].read() == base + b"x" * 512
    store.stop()
    with sqlite3.connect(store.root / "meta.db") as db:
        (layout,) = db.execute("SELECT layout FROM objects ORDER BY length(layout) DESC LIMIT 1").fetchone()
    db.close()
    assert struct.unpack_from("<BII", layout)[2] < 120
    store.start()


# Clients with a short timeout repeat CompleteMultipartUpload while the first request still runs.
def test_equal_completes_at_a_time_all_succeed(s3, wire):
    for round in range(20):
        at = {"Bucket": "bkt", "Key": f"m{round}"}
        at["UploadId"] = s3.create_multipart_upload(**at)["UploadId"]
        etag = s3.upload_part(**at, PartNumber=1, Body=b"part")["ETag"]
        document = f"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part></CompleteMultipartUpload>"

        def complete(_, at=at, document=document):
            return wire.send("POST", f"/bkt/{at['Key']}", f"uploadId={at['UploadId']}", body=document.encode())

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(complete, range(8)))

        assert {(reply.status, reply.code) for reply in replies} == {(200, None)}


def test_completes_with_other_parts_at_a_time_have_one_winner(s3, wire):
    for round in range(10):
        at = {"Bucket": "bkt", "Key": f"m{round}"}
        at["UploadId"] = s3.create_multipart_upload(**at)["UploadId"]
        etags = {n: s3.upload_part(**at, PartNumber=n, Body=b"part %d" % n)["ETag"] for n in range(1, 9)}

        def complete(n, at=at, etags=etags):
            document = f"<CompleteMultipartUpload><Part><PartNumber>{n}</PartNumber><ETag>{etags[n]}</ETag></Part></CompleteMultipartUpload>"
            return wire.send("POST", f"/bkt/{at['Key']}", f"uploadId={at['UploadId']}", body=document.encode())

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(complete, etags))

        assert sorted(reply.code or "" for reply in replies) == [""] + ["NoSuchUpload"] * 7
        won = next(n for n, reply in enumerate(replies, 1) if reply.status == 200)
        assert s3.get_object(Bucket="bkt", Key=at["Key"])["Body"].read() == b"part %d" % won


def crc32_number(body):
    return zlib.crc32(body).to_bytes(4, "big")


@pytest.mark.parametrize("kind", ["COMPOSITE", "FULL_OBJECT"])
def test_checksums_of_multipart_objects(s3, wire, kind):
    bodies = [os.urandom(5 * MIB), b"tail"]
    made = wire.send("POST", "/bkt/m", "uploads=", {"x-amz-checksum-algorithm": "CRC32", "x-amz-checksum-type": kind})
    upload = made.body.split(b"<UploadId>")[1].split(b"<")[0].decode()
    document = ""
    for i, body in enumerate(bodies, 1):
        sent = wire.send("PUT", "/bkt/m", f"partNumber={i}&uploadId={upload}", {"x-amz-checksum-crc32": crc32(body)}, body)
        document += f"<Part><PartNumber>{i}</PartNumber><ETag>{sent.headers['etag']}</ETag><ChecksumCRC32>{crc32(body)}</ChecksumCRC32></Part>"
    document = f"<CompleteMultipartUpload>{document}</CompleteMultipartUpload>".encode()
    wanted = crc32(b"".join(bodies)) if kind == "FULL_OBJECT" else crc32(b"".join(map(crc32_number, bodies))) + "-2"

    bad = wire.send("POST", "/bkt/m", f"uploadId={upload}", {"x-amz-checksum-crc32": crc32(b"other")}, document)
    assert bad.code == "BadDigest"
    for headers, code in [
        ({"x-amz-checksum-crc32": wanted[:3]}, "BadDigest"),
        ({"x-amz-checksum-crc32": wanted, "x-amz-checksum-sha1": "AAAA"}, "InvalidRequest"),
        ({"x-amz-checksum-md5": "AAAA"}, "InvalidRequest"),
        ({"x-amz-checksum-type": "COMPOSITE" if kind == "FULL_OBJECT" else "FULL_OBJECT"}, "InvalidRequest"),
    ]:
        assert wire.send("POST", "/bkt/m", f"uploadId={upload}", headers, document).code == code
    for part, code in [(b"<ChecksumCRC32>AAAAAA==<", "InvalidPart"), (b"<ChecksumSHA1>AAAA</ChecksumSHA1><ChecksumCRC32>AAAAAA==<", "InvalidRequest")]:
        spoiled = document.replace(f"<ChecksumCRC32>{crc32(bodies[1])}<".encode(), part)
        assert wire.send("POST", "/bkt/m", f"uploadId={upload}", body=spoiled).code == code
    done = wire.send("POST", "/bkt/m", f"uploadId={upload}", body=document)
    assert f"<ChecksumCRC32>{wanted}</ChecksumCRC32>".encode() in done.body
    got = wire.send("HEAD", "/bkt/m", headers={"x-amz-checksum-mode": "ENABLED"}).headers
    assert (got["x-amz-checksum-crc32"], got["x-amz-checksum-type"]) == (wanted, kind)
    attributes = s3.get_object_attributes(Bucket="bkt", Key="m", ObjectAttributes=["ETag", "Checksum", "ObjectParts", "ObjectSize", "StorageClass"])
    assert attributes["Checksum"]["ChecksumCRC32"] == wanted and attributes["ObjectSize"] == 5 * MIB + 4
    assert [part["Size"] for part in attributes["ObjectParts"]["Parts"]] == [5 * MIB, 4]


# --- listings


# XML 1.0 cannot contain control characters, so a page with such a key is encoded even if the client
# has not requested it.
@pytest.mark.parametrize("query", ["", "list-type=2", "versions=", "uploads="])
def test_a_key_that_xml_cannot_hold_is_listed_as_it_is(s3, wire, query):
    if query == "uploads=":
        s3.create_multipart_upload(Bucket="bkt", Key="a\x01\ufffeb")
    else:
        s3.put_object(Bucket="bkt", Key="a\x01\ufffeb", Body=b"x")

    plain, asked = wire.send("GET", "/bkt", query), wire.send("GET", "/bkt", query + "&encoding-type=url" if query else "encoding-type=url")

    for reply in (plain, asked):
        assert b"<EncodingType>url</EncodingType>" in reply.body
        assert b"<Key>a%01%EF%BF%BEb</Key>" in reply.body


def test_lists_have_the_storage_class_of_each_entry(s3):
    wanted = {"a": "STANDARD", "b": "STANDARD_IA", "c": "INTELLIGENT_TIERING"}
    ids = {}
    s3.put_bucket_versioning(Bucket="bkt", VersioningConfiguration={"Status": "Enabled"})
    s3.put_object(Bucket="bkt", Key="a", Body=b"x", StorageClass="GLACIER")
    for key, storage_class in wanted.items():
        s3.put_object(Bucket="bkt", Key=key, Body=b"x" * 20_000, StorageClass=storage_class)
        ids[key] = s3.create_multipart_upload(Bucket="bkt", Key=key, StorageClass=storage_class)["UploadId"]

    def classes(entries):
        return {entry["Key"]: entry["StorageClass"] for entry in entries}

    assert classes(s3.list_objects(Bucket="bkt")["Contents"]) == wanted
    assert classes(s3.list_objects_v2(Bucket="bkt")["Contents"]) == wanted
    assert classes(s3.list_multipart_uploads(Bucket="bkt")["Uploads"]) == wanted
    assert {key: s3.list_parts(Bucket="bkt", Key=key, UploadId=id)["StorageClass"] for key, id in ids.items()} == wanted
    versions = s3.list_object_versions(Bucket="bkt")["Versions"]
    assert classes(entry for entry in versions if entry["IsLatest"]) == wanted
    assert [entry["StorageClass"] for entry in versions if not entry["IsLatest"]] == ["GLACIER"]
    rest = s3.list_object_versions(Bucket="bkt", KeyMarker="a", VersionIdMarker=versions[0]["VersionId"])["Versions"]
    assert rest[0]["StorageClass"] == "GLACIER"


def test_a_list_of_uploads_has_the_parameters_of_a_list_of_objects(s3, wire):
    s3.create_multipart_upload(Bucket="bkt", Key="a b/c")

    assert wire.send("GET", "/bkt", "uploads=&encoding-type=zip").code == "InvalidArgument"
    assert wire.send("GET", "/bkt", "uploads=&max-uploads=-1").code == "InvalidArgument"
    assert b"Delimiter" not in wire.send("GET", "/bkt", "uploads=&delimiter=").body
    found = wire.send("GET", "/bkt", "uploads=&delimiter=%2F&encoding-type=url").body
    assert b"<Prefix>a%20b/</Prefix>" in found and b"<Delimiter>/</Delimiter>" in found


def test_uploads_of_a_key_are_listed_in_the_order_of_their_beginning(s3):
    begun = [s3.create_multipart_upload(Bucket="bkt", Key=key)["UploadId"] for key in "abababab"]

    found = s3.list_multipart_uploads(Bucket="bkt")["Uploads"]

    assert [upload["UploadId"] for upload in found] == begun[::2] + begun[1::2]
    assert len(set(begun)) == 8 and {len(id) for id in begun} == {32}


def test_listings_page_and_fold(s3, wire):
    keys = ["a", "b/1", "b/2", "b2", "c d", "c+", "d/e/f", "é", "😀"]
    for key in keys:
        s3.put_object(Bucket="bkt", Key=key, Body=b"x")

    def pages(size, **query):
        seen, token = [], {}
        while True:
            page = s3.list_objects_v2(Bucket="bkt", MaxKeys=size, **query, **token)
            names = [e["Key"] for e in page.get("Contents", [])] + [e["Prefix"] for e in page.get("CommonPrefixes", [])]
            assert page["KeyCount"] == len(names) <= size
            seen += sorted(names, key=str.encode)
            if not page["IsTruncated"]:
                return seen
            token = {"ContinuationToken": page["NextContinuationToken"]}

    folded = ["a", "b/", "b2", "c d", "c+", "d/", "é", "😀"]
    for size in (1, 2, 3, 100):
        assert pages(size) == keys
        assert pages(size, Delimiter="/") == folded
        assert pages(size, Prefix="b") == ["b/1", "b/2", "b2"]
        assert pages(size, StartAfter="b/1") == keys[2:]
        assert pages(size, Prefix="b/", Delimiter="/") == ["b/1", "b/2"]
    first = s3.list_objects(Bucket="bkt", Delimiter="/", MaxKeys=2)
    assert first["NextMarker"] == "b/"
    assert [e["Key"] for e in s3.list_objects(Bucket="bkt", Delimiter="/", Marker="b/")["Contents"]] == ["b2", "c d", "c+", "é", "😀"]
    assert s3.list_objects_v2(Bucket="bkt", MaxKeys=0)["KeyCount"] == 0
    assert b"<Key>c%20d</Key>" in wire.send("GET", "/bkt", "list-type=2&encoding-type=url").body
    assert wire.send("GET", "/bkt", "list-type=2&continuation-token=zz").code == "InvalidArgument"
    assert wire.send("GET", "/bkt", "max-keys=-1").code == "InvalidArgument"
    owned = s3.list_objects_v2(Bucket="bkt", FetchOwner=True)["Contents"]
    assert owned[0]["Owner"]["ID"] and "Owner" not in s3.list_objects_v2(Bucket="bkt")["Contents"][0]
    assert len(s3.list_object_versions(Bucket="bkt")["Versions"]) == len(keys)


def test_many_are_deleted_at_once(s3, wire):
    for key in ("a", "b", "c"):
        s3.put_object(Bucket="bkt", Key=key, Body=b"x")

    done = s3.delete_objects(Bucket="bkt", Delete={"Objects": [{"Key": "a"}, {"Key": "none"}]})
    assert [entry["Key"] for entry in done["Deleted"]] == ["a", "none"]
    assert "Deleted" not in s3.delete_objects(Bucket="bkt", Delete={"Objects": [{"Key": "b"}], "Quiet": True})
    items = "".join(f"<Object><Key>{i}</Key></Object>" for i in range(1001))
    assert wire.send("POST", "/bkt", "delete=", body=f"<Delete>{items}</Delete>".encode()).code == "MalformedXML"
    body = b"<Delete><Object><Key>c</Key><ETag>other</ETag></Object></Delete>"
    assert b"<Code>PreconditionFailed</Code>" in wire.send("POST", "/bkt", "delete=", body=body).body
    assert [entry["Key"] for entry in s3.list_objects_v2(Bucket="bkt")["Contents"]] == ["c"]


# --- buckets, and replies that clients need


def test_buckets(s3, wire, store):
    s3.create_bucket(Bucket="bkt")
    elsewhere = {"LocationConstraint": "eu-west-1"}
    s3.create_bucket(Bucket="elsewhere", CreateBucketConfiguration=elsewhere)
    for bucket, options in (("elsewhere", {"CreateBucketConfiguration": elsewhere}), ("elsewhere", {}), ("bkt", {"CreateBucketConfiguration": elsewhere})):
        assert fails(s3.create_bucket, Bucket=bucket, **options) == (409, "BucketAlreadyOwnedByYou")
    assert [entry["Name"] for entry in s3.list_buckets()["Buckets"]] == ["bkt", "elsewhere"]
    assert s3.get_bucket_location(Bucket="bkt").get("LocationConstraint") is None
    assert "Status" not in s3.get_bucket_versioning(Bucket="bkt")
    assert s3.get_bucket_acl(Bucket="bkt")["Grants"][0]["Permission"] == "FULL_CONTROL"
    s3.put_object(Bucket="bkt", Key="k", Body=b"x")
    assert s3.get_object_acl(Bucket="bkt", Key="k")["Grants"][0]["Permission"] == "FULL_CONTROL"
    assert s3.get_object_tagging(Bucket="bkt", Key="k")["TagSet"] == []
    assert fails(s3.delete_bucket, Bucket="bkt") == (409, "BucketNotEmpty")
    s3.delete_object(Bucket="bkt", Key="k")
    s3.delete_bucket(Bucket="bkt")
    assert fails(s3.head_bucket, Bucket="bkt")[0] == 404
    assert wire.send("PUT", "/Upper_Case").code == "InvalidBucketName"


# --- the process


def test_what_was_acknowledged_survives_kill_and_restart(s3, store):
    for i in range(20):
        s3.put_object(Bucket="bkt", Key=f"k{i}", Body=b"%d" % i * (i * 5000))

    store.kill()
    store.start()

    for i in range(20):
        assert store.bytes("bkt", f"k{i}") == b"%d" % i * (i * 5000)


def test_a_terminated_server_finishes_what_it_does_and_exits_cleanly(s3, store, wire):
    headers = wire.sign("PUT", "/bkt/k", "", None, "UNSIGNED-PAYLOAD") | {"content-length": "6"}

    with wire.connect() as connection:
        connection.sendall(wire.head("PUT", "/bkt/k", headers) + b"abc")
        time.sleep(0.2)
        store.process.send()
        time.sleep(0.2)
        connection.sendall(b"def")
        assert wire.read(connection).status == 200

    assert store.stop().code == 0
    store.start()
    assert store.bytes("bkt", "k") == b"abcdef"


def test_a_second_server_on_the_same_root_is_refused(store, penstock):
    result = penstock.run("serve", "--root", store.root, "--listen", "127.0.0.1:0")

    assert result.code == 69
    assert str(store.root) in result.err and result.err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments, env, code, text",
    [
        (["--root", "r", "--listen", "9000"], {}, 64, "'9000'"),
        (["--root", "r", "--listen", "localhost:0"], {}, 78, "'localhost'"),
        (["--root", "r", "--durability", "some"], {}, 64, "full|relaxed"),
        (["--root", "/proc/r", "--listen", "127.0.0.1:0"], {}, 66, "/proc/r"),
        (["--root", "r", "--listen", "127.0.0.1:0"], {"PENSTOCK_ACCESS_KEY_ID": "x"}, 78, "PENSTOCK_SECRET_ACCESS_KEY"),
    ],
)
def test_what_keeps_a_server_from_starting_is_one_line(penstock, arguments, env, code, text):
    result = penstock.run("serve", *arguments, env=env).exits(code)

    assert text in result.err and result.err.count("\n") == 1 and result.out == ""


def test_keys_of_any_length_and_characters_work(penstock, tmp_path):
    from harness.program import Store

    for access, secret in (("a", "b"), ("AK/with+odd=chars, and spaces", "s" * 300 + "ü/+ &"), ("x" * 500, '"quoted"\\')):
        running = Store(penstock, tmp_path / hashlib.md5(access.encode()).hexdigest(), access_key=access, secret_key=secret)
        running.client.create_bucket(Bucket="bkt")
        running.client.put_object(Bucket="bkt", Key="k", Body=b"x")
        assert running.bytes("bkt", "k") == b"x"
        running.stop()


def test_generated_keys_are_kept_in_a_private_file(penstock, tmp_path):
    import boto3

    root = tmp_path / "generated"
    process = penstock.popen("serve", "--root", root, "--listen", "127.0.0.1:0")
    endpoint = process.wait_for_output(r"listening on (http://\S+)", 30).group(1)
    assert (root / "credentials").stat().st_mode & 0o777 == 0o600
    os.environ["AWS_SHARED_CREDENTIALS_FILE"] = str(root / "credentials")
    try:
        client = boto3.session.Session().client("s3", endpoint_url=endpoint, region_name="us-east-1")
        assert client.list_buckets()["Buckets"] == []
    finally:
        del os.environ["AWS_SHARED_CREDENTIALS_FILE"]
    process.send()
    assert process.wait(30).code == 0


def test_secrets_stay_out_of_the_log(penstock, tmp_path):
    from harness.program import Store

    penstock.env["PENSTOCK_LOG"] = "debug"
    running = Store(penstock, tmp_path / "logged")
    wire = Wire(running)
    wire.send("PUT", "/bkt")
    wire.raw("GET", "/bkt/k?" + wire.presign("GET", "/bkt/k"), {"host": f"{wire.host}:{wire.port}"})
    running.stop()

    assert "/bkt/k" in running.process.err
    assert running.secret_key not in running.process.err and "X-Amz-Signature=" not in running.process.err


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_is_said_and_leaves_nothing_behind(penstock, tmp_path):
    from harness.program import Store

    mount = tmp_path / "small"
    mount.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "none", mount], check=False).returncode != 0:
        pytest.skip("this machine does not let root mount a small file system")
    running = Store(penstock, mount / "store")
    try:
        client = running.client
        client.create_bucket(Bucket="bkt")
        client.put_object(Bucket="bkt", Key="small", Body=b"kept")
        wire = Wire(running)
        headers = wire.sign("PUT", "/bkt/big", "", None, "UNSIGNED-PAYLOAD") | {"content-length": str(50 * MIB), "expect": "100-continue"}
        with wire.connect() as connection:
            connection.sendall(wire.head("PUT", "/bkt/big", headers))
            told = wire.read(connection)
        assert told.status == 507, told.body
        # If a request has no length, the store detects that it is too large only while the body
        # arrives.
        headers = wire.sign("PUT", "/bkt/big", "", None, "UNSIGNED-PAYLOAD") | {"transfer-encoding": "chunked"}
        chunk = b"100000\r\n" + b"x" * MIB + b"\r\n"
        found = wire.raw("PUT", "/bkt/big", headers, chunk * 45 + b"0\r\n\r\n")
        assert found.status == 507, found.body
        assert running.keys("bkt") == ["small"]
        assert not [path for path in (running.root / "data").rglob("*") if path.is_file()]
        client.put_object(Bucket="bkt", Key="fits", Body=b"y" * MIB)
        assert running.stop().code == 0
    finally:
        running.process.close()
        subprocess.run(["umount", mount], check=True)


def test_uploads_that_nobody_finishes_are_dropped_after_the_age_given(s3, store):
    kept = s3.create_multipart_upload(Bucket="bkt", Key="kept")["UploadId"]
    assert [entry["UploadId"] for entry in s3.list_multipart_uploads(Bucket="bkt")["Uploads"]] == [kept]

    store.stop().ok()
    store.options += ["--abort-uploads-after", "500ms"]
    store.start()

    s3 = store.client
    wait_for(lambda: "Uploads" not in s3.list_multipart_uploads(Bucket="bkt"), 60, "the upload to be dropped")
    assert fails(s3.upload_part, Bucket="bkt", Key="kept", UploadId=kept, PartNumber=1, Body=b"x") == (404, "NoSuchUpload")

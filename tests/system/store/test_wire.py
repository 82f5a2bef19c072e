"""The store's protocol byte by byte: signatures, aws-chunked bodies, checksums, odd paths, bodies that are cut."""
import base64
import hashlib
import signal
import socket

import pytest

from harness.s3_wire import EMPTY, Wire, crc32

STREAM = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
UNSIGNED = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"


@pytest.fixture
def wire(store):
    wire = Wire(store)
    assert wire.send("PUT", "/bkt").status == 200
    assert wire.send("PUT", "/bkt/k", body=b"old").status == 200
    return wire


def stored(wire, path="/bkt/k"):
    reply = wire.send("GET", path)
    return reply.body if reply.status == 200 else reply.code


# --- identity of the sender


def test_nobody_gets_in_without_a_signature(wire):
    reply = wire.raw("GET", "/bkt/k", {"host": "x"})

    assert (reply.status, reply.code) == (403, "AccessDenied")
    assert reply.headers["x-amz-request-id"] and reply.headers["content-type"] == "application/xml"


@pytest.mark.parametrize(
    "spoil, code",
    [
        (lambda h: h | {"authorization": h["authorization"][:-1] + "x"}, "AuthorizationHeaderMalformed"),
        (lambda h: h | {"authorization": h["authorization"][:-4] + "0000"}, "SignatureDoesNotMatch"),
        (lambda h: h | {"authorization": h["authorization"].replace("Credential=", "Credential=X")}, "InvalidAccessKeyId"),
        (lambda h: h | {"x-amz-date": "20200101T000000Z"}, None),
        (lambda h: h | {"authorization": "AWS AK:sig"}, None),
        (lambda h: h | {"x-amz-acl": "private"}, "AccessDenied"),
    ],
)
def test_a_request_that_was_changed_is_refused(wire, spoil, code):
    reply = wire.raw("GET", "/bkt/k", spoil(wire.sign("GET", "/bkt/k")))

    assert reply.status in (400, 403)
    assert code is None or reply.code == code


def test_any_region_is_accepted(wire):
    assert wire.send("GET", "/bkt/k", region="mars-north-1").body == b"old"


@pytest.mark.parametrize("skew_s, status", [(-840, 200), (840, 200), (-960, 403), (960, 403)])
def test_clocks_may_differ_by_fifteen_minutes(wire, skew_s, status):
    reply = wire.send("GET", "/bkt/k", skew_s=skew_s)

    assert reply.status == status
    assert status == 200 or reply.code == "RequestTimeTooSkewed"


def test_presigned_urls_expire_and_cover_method_and_query(wire):
    host = {"host": f"{wire.host}:{wire.port}"}
    query = wire.presign("GET", "/bkt/k")

    assert wire.raw("GET", f"/bkt/k?{query}", host).body == b"old"
    assert wire.raw("PUT", f"/bkt/k?{query}", host, b"new").code == "SignatureDoesNotMatch"
    assert wire.raw("GET", f"/bkt/k?{query}&partNumber=1", host).code == "SignatureDoesNotMatch"
    assert wire.raw("GET", f"/bkt/other?{query}", host).code == "SignatureDoesNotMatch"
    assert wire.raw("GET", "/bkt/k?" + wire.presign("GET", "/bkt/k", skew_s=-120), host).status == 403
    assert wire.raw("GET", "/bkt/k?" + wire.presign("GET", "/bkt/k", expires=604801), host).status in (400, 403)
    put = wire.presign("PUT", "/bkt/by-url")
    assert wire.raw("PUT", f"/bkt/by-url?{put}", host, b"by url").status == 200
    assert stored(wire, "/bkt/by-url") == b"by url"


def test_a_url_for_an_empty_body_takes_no_other(wire):
    host = {"host": f"{wire.host}:{wire.port}"}
    query = wire.presign("PUT", "/bkt/k", payload=EMPTY, **{"X-Amz-Content-Sha256": EMPTY})

    assert wire.raw("PUT", f"/bkt/k?{query}", host, b"new").code == "XAmzContentSHA256Mismatch"
    assert stored(wire) == b"old"
    assert wire.raw("PUT", f"/bkt/k?{query}", host).status == 200
    assert stored(wire) == b""


# --- the body


def put_chunked(wire, chunks, mode=STREAM, trailer=None, spoil=None, length=None, body=None, cut=0, path="/bkt/k", more=None, **form):
    plain = b"".join(chunks)
    headers = {"x-amz-decoded-content-length": str(len(plain) if length is None else length), "content-encoding": "aws-chunked,gzip"}
    if trailer:
        headers["x-amz-trailer"] = trailer[0]
    headers |= more or {}
    signed = wire.sign("PUT", path, "", headers, mode)
    if body is None:
        body = wire.chunked(chunks, signed, trailer=trailer, spoil=spoil, **form)
    body = body[: len(body) - cut]
    return wire.raw("PUT", path, signed, body)


def unsigned(chunks, trailer):
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return body + b"0\r\n" + (b"%s:%s\r\n" % tuple(part.encode() for part in trailer) if trailer else b"") + b"\r\n"


@pytest.mark.parametrize("mode", [STREAM, STREAM + "-TRAILER"])
def test_signed_chunks_need_a_signature_to_begin_with(store, wire, mode):
    """Forms, whose sender is known only at the end of the body, and anonymous requests are refused,
    too."""
    store.client.create_bucket(Bucket="open", ACL="public-read-write")
    headers = {"host": f"{wire.host}:{wire.port}", "x-amz-content-sha256": mode, "x-amz-decoded-content-length": "1"}
    form = {"content-type": "application/x-www-form-urlencoded"}

    for method, target, more in [("PUT", "/open/k", {}), ("POST", "/open?delete", {}), ("POST", "/", form)]:
        reply = wire.raw(method, target, headers | more, b"x")
        assert (reply.status, reply.code) == (400, "InvalidRequest"), target
    assert store.client.list_objects_v2(Bucket="open")["KeyCount"] == 0


@pytest.mark.parametrize("sizes", [[], [1], [8192, 8192, 5], [65536] * 5 + [1], [300_000]])
def test_signed_chunks_are_put_together(wire, sizes):
    chunks = [bytes([65 + i]) * size for i, size in enumerate(sizes)]

    reply = put_chunked(wire, chunks)

    assert reply.status == 200
    assert reply.headers["etag"] == '"' + hashlib.md5(b"".join(chunks)).hexdigest() + '"'
    got = wire.send("GET", "/bkt/k")
    assert got.body == b"".join(chunks)
    assert got.headers["content-encoding"] == "gzip"


@pytest.mark.parametrize("documented", [False, True], ids=["as-sent", "as-documented"])
def test_a_signed_trailer_is_checked_and_kept(wire, documented):
    chunks = [b"a" * 70_000, b"tail"]
    trailer = ("x-amz-checksum-crc32", crc32(b"".join(chunks)))

    reply = put_chunked(wire, chunks, STREAM + "-TRAILER", trailer, documented=documented)

    assert reply.status == 200
    head = wire.send("HEAD", "/bkt/k", headers={"x-amz-checksum-mode": "ENABLED"})
    assert head.headers["x-amz-checksum-crc32"] == trailer[1]
    assert head.headers["content-length"] == "70004"


def test_an_unsigned_trailer_is_checked_and_kept(wire):
    chunks = [b"b" * 9000, b"tail"]
    trailer = ("x-amz-checksum-crc32", crc32(b"".join(chunks)))

    assert put_chunked(wire, chunks, UNSIGNED, trailer, body=unsigned(chunks, trailer)).status == 200
    assert stored(wire) == b"".join(chunks)
    wrong = (trailer[0], crc32(b"other"))
    assert put_chunked(wire, chunks, UNSIGNED, wrong, body=unsigned(chunks, wrong)).code == "BadDigest"
    assert put_chunked(wire, chunks, UNSIGNED, trailer, body=unsigned(chunks, None)).status == 400


@pytest.mark.parametrize(
    "announced, sent, more, code",
    [
        (("x-amz-checksum-crc32", "right"), ["x-amz-checksum-crc32"] * 2, {}, "MalformedTrailerError"),
        (("x-amz-checksum-crc32", "right"), ["x-amz-checksum-crc32", "x-amz-checksum-sha1"], {}, "MalformedTrailerError"),
        (("x-amz-checksum-crc32", "right"), ["x-amz-checksum-crc32", "x-other"], {}, "MalformedTrailerError"),
        (("x-amz-checksum-sha1", "right"), ["x-amz-checksum-crc32"], {}, "MalformedTrailerError"),
        (None, ["x-amz-checksum-crc32"], {}, "MalformedTrailerError"),
        (("crc32", "right"), ["x-amz-checksum-crc32"], {}, "InvalidRequest"),
        (("x-amz-checksum-crc16", "right"), ["x-amz-checksum-crc16"], {}, "InvalidRequest"),
        (("x-amz-checksum-crc32", "right"), ["x-amz-checksum-crc32"], {"x-amz-checksum-crc32": crc32(b"new")}, "InvalidRequest"),
        (("x-amz-checksum-crc32", "right"), ["x-amz-checksum-crc32"], {"x-amz-sdk-checksum-algorithm": "SHA1"}, "InvalidRequest"),
    ],
)
def test_trailers_are_those_that_were_announced(wire, announced, sent, more, code):
    lines = b"".join(f"{name}:{crc32(b'new')}\r\n".encode() for name in sent)

    reply = put_chunked(wire, [b"new"], UNSIGNED, announced, more=more, body=b"3\r\nnew\r\n0\r\n" + lines + b"\r\n")

    assert reply.code == code
    assert stored(wire) == b"old"


@pytest.mark.parametrize(
    "spoiled",
    [
        {"spoil": 0},
        {"spoil": 1},
        {"spoil": 2},
        {"mode": STREAM + "-TRAILER", "trailer": ("x-amz-checksum-crc32", crc32(b"a" * 70_000 + b"tail")), "spoil": "trailer"},
        {"mode": STREAM + "-TRAILER", "trailer": ("x-amz-checksum-crc32", crc32(b"not these"))},
        {"mode": STREAM + "-TRAILER", "trailer": ("x-amz-checksum-crc32", "AAAA")},
        {"length": 70_003},
        {"length": 70_005},
        {"cut": 80},
        {"cut": 2},
        {"body": b"zz;chunk-signature=" + b"0" * 64 + b"\r\n"},
        {"body": b"5;chunk-signature=short\r\nhello\r\n"},
        {"body": b""},
    ],
)
def test_a_spoiled_chunked_body_leaves_the_old_object(wire, spoiled):
    reply = put_chunked(wire, [b"a" * 70_000, b"tail"], **spoiled)

    assert reply.status in (400, 403), reply.body
    assert stored(wire) == b"old"


@pytest.mark.parametrize(
    "headers, code",
    [
        ({"content-md5": base64.b64encode(hashlib.md5(b"new").digest()).decode()}, None),
        ({"content-md5": base64.b64encode(hashlib.md5(b"other").digest()).decode()}, "BadDigest"),
        ({"content-md5": "nonsense"}, "InvalidDigest"),
        ({"x-amz-checksum-crc32": crc32(b"new")}, None),
        ({"x-amz-checksum-crc32": crc32(b"other")}, "BadDigest"),
        ({"x-amz-checksum-crc32": "bad"}, "InvalidRequest"),
        ({"x-amz-checksum-sha256": base64.b64encode(hashlib.sha256(b"new").digest()).decode()}, None),
        ({"x-amz-checksum-sha1": base64.b64encode(hashlib.sha1(b"other").digest()).decode()}, "BadDigest"),
        ({"x-amz-checksum-crc32": crc32(b"new"), "x-amz-checksum-sha1": "AAAA"}, "InvalidRequest"),
        ({"x-amz-checksum-crc32": crc32(b"new"), "x-amz-checksum-crc16": "AAAA"}, "NotImplemented"),
        ({"x-amz-checksum-xxhash64": "AAAA"}, "InvalidRequest"),
        ({"x-amz-checksum-crc32": crc32(b"new"), "x-amz-sdk-checksum-algorithm": "SHA256"}, "InvalidRequest"),
        ({"x-amz-checksum-crc32": crc32(b"new"), "x-amz-sdk-checksum-algorithm": "CRC16"}, "InvalidRequest"),
        ({"x-amz-trailer": "x-amz-checksum-crc32"}, "InvalidRequest"),
    ],
)
def test_checksums_in_headers_are_verified(wire, headers, code):
    reply = wire.send("PUT", "/bkt/k", headers=headers, body=b"new")

    assert reply.code == code
    assert stored(wire) == (b"old" if code else b"new")


def test_the_body_must_have_the_hash_that_was_signed(wire):
    reply = wire.send("PUT", "/bkt/k", body=b"new", payload=hashlib.sha256(b"other").hexdigest())

    assert (reply.status, reply.code) == (400, "XAmzContentSHA256Mismatch")
    assert stored(wire) == b"old"
    assert wire.send("PUT", "/bkt/k", body=b"unsigned", payload="UNSIGNED-PAYLOAD").status == 200
    assert stored(wire) == b"unsigned"


@pytest.mark.parametrize("sent", [0, 1000, 200_000])
@pytest.mark.parametrize("at_once", [False, True], ids=["as-it-goes", "all-in-one-event"])
def test_a_client_that_dies_while_sending_leaves_the_old_object(wire, store, wait_for, sent, at_once):
    headers = wire.sign("PUT", "/bkt/k", "", None, "UNSIGNED-PAYLOAD") | {"content-length": str(2 * sent + 100_000)}

    with wire.connect() as connection:
        if at_once:  # the server sees the last bytes and the end of the stream together
            store.process.send(signal.SIGSTOP)
        connection.sendall(wire.head("PUT", "/bkt/k", headers) + b"x" * sent)
        connection.shutdown(socket.SHUT_WR)
        if at_once:
            store.process.send(signal.SIGCONT)
        assert connection.recv(1) == b""

    wait_for(lambda: not [path for path in (store.root / "data").rglob("*") if path.is_file()], 60, "the half file to be gone")
    assert stored(wire) == b"old"


def test_a_chunked_transfer_without_a_length_is_taken(wire):
    headers = wire.sign("PUT", "/bkt/k", "", None, "UNSIGNED-PAYLOAD") | {"transfer-encoding": "chunked"}

    reply = wire.raw("PUT", "/bkt/k", headers, b"3\r\nnew\r\n0\r\n\r\n")

    assert reply.status == 200
    assert stored(wire) == b"new"


def test_a_put_without_any_length_is_refused(wire):
    signed = wire.sign("PUT", "/bkt/k", "", None, "UNSIGNED-PAYLOAD")

    with wire.connect() as connection:
        connection.sendall(wire.head("PUT", "/bkt/k", signed))
        reply = wire.read(connection)

    assert (reply.status, reply.code) == (411, "MissingContentLength")


def test_a_refusal_comes_before_the_body_where_the_client_waits_for_it(wire):
    headers = wire.sign("PUT", "/none/k", "", None, "UNSIGNED-PAYLOAD") | {"content-length": "1000000", "expect": "100-continue"}

    with wire.connect() as connection:
        connection.sendall(wire.head("PUT", "/none/k", headers))
        reply = wire.read(connection)

    assert (reply.status, reply.code) == (404, "NoSuchBucket")


def test_one_hundred_continue_is_sent(wire):
    headers = wire.sign("PUT", "/bkt/k", "", None, "UNSIGNED-PAYLOAD") | {"content-length": "3", "expect": "100-continue"}

    with wire.connect() as connection:
        connection.sendall(wire.head("PUT", "/bkt/k", headers))
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b"new")
        assert wire.read(connection).status == 200
    assert stored(wire) == b"new"


def test_a_refused_body_is_read_so_that_the_client_sees_why(wire):
    body = b"x" * 4_000_000

    reply = wire.raw("PUT", "/bkt/k", wire.sign("PUT", "/bkt/k", "", None, "UNSIGNED-PAYLOAD") | {"x-amz-acl": "private"}, body)

    assert (reply.status, reply.code) == (403, "AccessDenied")


# --- paths and limits


@pytest.mark.parametrize(
    "path, key",
    [
        ("/bkt/a%2Fb", "a/b"),
        ("/bkt/a+b", "a+b"),
        ("/bkt/a%20b", "a b"),
        ("/bkt/../x", "../x"),
        ("/bkt/a//b/", "a//b/"),
        ("/bkt/./.", "./."),
        ("/bkt//lead", "/lead"),
        ("/bkt/%E2%82%AC", "€"),
        ("/bkt/%25%3F%23", "%?#"),
    ],
)
def test_keys_are_taken_literally(wire, store, path, key):
    assert wire.send("PUT", path, body=b"odd").status == 200
    assert stored(wire, path) == b"odd"
    assert key in store.keys("bkt")


@pytest.mark.parametrize("path", ["/bkt/a%zz", "/bkt/%00", "/bkt/%ff", "/bkt/" + "x" * 1025, "/b%2Fkt/k", "//k", "/" + "b" * 70 + "/k"])
def test_names_that_cannot_be_are_refused(wire, path):
    assert wire.send("PUT", path, body=b"x").status == 400


@pytest.mark.parametrize("method, path, query", [
    ("GET", "/bkt", "prefix=%00"),
    ("GET", "/bkt", "prefix=%zz"),
    ("GET", "/bkt", "prefix=%"),
    ("GET", "/bkt/k", "versionId=%00"),
    ("PUT", "/bkt/k", "partNumber=1&uploadId=%00"),
    ("DELETE", "/bkt/k", "%00="),
])
def test_a_query_that_cannot_be_decoded_is_refused(wire, method, path, query):
    reply = wire.send(method, path, query)

    assert (reply.status, reply.code) == (400, "InvalidURI")
    assert stored(wire) == b"old"


def test_many_or_long_headers_are_refused_and_the_server_lives(wire):
    many = {f"x-h-{i}": "v" for i in range(200)}

    assert wire.raw("GET", "/bkt/k", wire.sign("GET", "/bkt/k") | many).status == 400
    with wire.connect() as connection:
        connection.sendall(b"GET /bkt/k HTTP/1.1\r\nhost: x\r\nx-long: " + b"x" * 1_000_000 + b"\r\n\r\n")
        assert connection.recv(64).split()[1:2] in ([b"431"], [b"413"], [b"400"], [])
    assert stored(wire) == b"old"


# libmicrohttpd drops a request whose parameters do not fit into its memory, and the store compares
# each parameter with many names, so the store limits the number of parameters.
@pytest.mark.parametrize("n, status, code", [(128, 403, "AccessDenied"), (129, 400, "InvalidRequest"), (5000, 400, "InvalidRequest")])
def test_a_request_with_many_parameters_is_answered(wire, n, status, code):
    reply = wire.raw("GET", "/bkt/k?" + "&".join(f"p{i}=" for i in range(n)), {"host": "x"})

    assert (reply.status, reply.code) == (status, code)


def test_lines_of_the_same_header_are_one_list(wire):
    signed = wire.sign("PUT", "/bkt/k", "", {"x-amz-meta-a": "1,2 3"}, "UNSIGNED-PAYLOAD") | {"content-length": "3"}
    head = wire.head("PUT", "/bkt/k", signed).replace(b"x-amz-meta-a: 1,2 3\r\n", b"x-amz-meta-a: 1 \r\nX-Amz-Meta-A:  2 3\r\n")
    assert head.count(b"\r\nX-Amz-Meta-A") == 1

    with wire.connect() as connection:
        connection.sendall(head + b"new")
        assert wire.read(connection).status == 200

    assert wire.send("HEAD", "/bkt/k").headers["x-amz-meta-a"] == "1,2 3"


def test_all_of_the_allowed_metadata_can_be_signed(wire):
    metadata = {f"x-amz-meta-{i:012}": f"{i:08}" for i in range(100)}

    assert wire.send("PUT", "/bkt/k", headers=metadata, body=b"new").status == 200

    assert metadata.items() <= wire.send("HEAD", "/bkt/k").headers.items()


# A proxy and the store must agree on the end of a request, so the store refuses heads with two
# interpretations.
@pytest.mark.parametrize(
    "head",
    [
        b"PUT /bkt/k HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 4\r\n\r\n",
        b"PUT /bkt/k HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"PUT /bkt/k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"PUT /bkt/k HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"PUT /bkt/k HTTP/1.1\r\nHost: x\r\nContent-Length : 5\r\n\r\n",
        b"PUT /bkt/k HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"GET /bkt/k HTTP/1.1\nHost: x\r\n\r\n",
        b"GET /bkt/k HTTP/1.1\r\nHost: x\nA: b\r\n\r\n",
        b"GET /bkt/k HTTP/1.1\r\nHost: x\n\r\n",
        b"GET /bkt/k HTTP/1.1\r\nHost: x\r\n\n",
        b"GET /bkt/k HTTP/1.1\r\nHost: x\rA: b\r\n\r\n",
        b"GET /bkt/k HTTP/1.1\r\nHost: x\x00A: b\r\n\r\n",
        b"GET /bkt/k HTTP/1.1\r\nHost: x\r\nA\x00: b\r\n\r\n",
        b"GET /bkt/k\x00c HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /bkt/k c HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /bkt/k HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
        b"GET /bkt/k HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        b"GET /bkt/k HTTP/1.1\r\n\r\n",
    ],
)
def test_a_malformed_head_is_refused_and_ends_the_connection(wire, head):
    with wire.connect() as connection:
        connection.sendall(head)

        with connection.makefile("rb") as stream:
            reply = stream.read()

    assert reply.startswith(b"HTTP/1.1 400 ")


def test_a_long_head_in_pieces_is_taken(wire):
    signed = wire.sign("GET", "/bkt/k", headers={f"x-amz-meta-{i}": "v" * 300 for i in range(60)})
    head = wire.head("GET", "/bkt/k", signed)

    with wire.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(0, len(head), 211):
            connection.sendall(head[i : i + 211])
        reply = wire.read(connection)

    assert (reply.status, reply.body) == (200, b"old")


def test_a_long_document_is_refused(wire):
    body = b"<Delete>" + b" " * (9 << 20) + b"</Delete>"

    assert wire.send("POST", "/bkt", "delete=", body=body).status == 400


@pytest.mark.parametrize(
    "method, path, query, status, code",
    [
        ("GET", "/bkt", "policy=", 404, "NoSuchBucketPolicy"),
        ("GET", "/bkt", "tagging=", 404, "NoSuchTagSet"),
        ("GET", "/bkt", "object-lock=", 404, "ObjectLockConfigurationNotFoundError"),
        ("GET", "/bkt", "encryption=", 404, "ServerSideEncryptionConfigurationNotFoundError"),
        ("GET", "/none", "policy=", 404, "NoSuchBucket"),
        ("PUT", "/bkt/k", "tagging=", 400, "MalformedXML"),
        ("POST", "/bkt/k", "tagging=", 501, "NotImplemented"),
        ("PUT", "/bkt/k", "retention=", 400, "InvalidRequest"),
        ("DELETE", "/bkt", "object-lock=", 501, "NotImplemented"),
        ("DELETE", "/bkt/none", "tagging=", 404, "NoSuchKey"),
        ("DELETE", "/bkt", "website=", 501, "NotImplemented"),
        ("POST", "/bkt/k", "restore=", 501, "NotImplemented"),
        ("PATCH", "/bkt/k", "", 405, "MethodNotAllowed"),
        ("GET", "/bkt/k", "versionId=abc", 400, "InvalidArgument"),
        ("DELETE", "/bkt/k", "versionId=abc", 400, "InvalidArgument"),
        ("PUT", "/bkt/k", "versionId=null", 400, "InvalidArgument"),
        ("PUT", "/bkt/k", "partNumber=1", 501, "NotImplemented"),
    ],
)
def test_what_is_not_there_is_never_taken_for_something_else(wire, method, path, query, status, code):
    reply = wire.send(method, path, query)

    assert (reply.status, reply.code) == (status, code)
    assert stored(wire) == b"old"


def test_one_connection_serves_many_requests(wire):
    with wire.connect() as connection:
        for i in range(50):
            path = f"/bkt/{i}"
            body = b"x" * (i * 1000)
            signed = wire.sign("PUT", path, "", None, hashlib.sha256(body).hexdigest()) | {"content-length": str(len(body))}
            connection.sendall(wire.head("PUT", path, signed) + body)
            assert wire.read(connection).status == 200
            connection.sendall(wire.head("HEAD", "/bkt/none", wire.sign("HEAD", "/bkt/none")))
            assert wire.read(connection, "HEAD").status == 404
            connection.sendall(wire.head("GET", path, wire.sign("GET", path)))
            assert wire.read(connection).body == body


# --- as at AWS, a signature covers the meaning of a path and a query, not their spelling


def test_an_escaped_slash_is_a_slash_in_the_key_and_in_what_is_signed(wire):
    assert wire.send("PUT", "/bkt/a/b", body=b"deep").status == 200

    signed = wire.sign("GET", "/bkt/a/b")
    assert wire.raw("GET", "/bkt/a%2Fb", signed).body == b"deep"
    assert wire.raw("GET", "/bkt/a%2fb", signed).body == b"deep"


def test_a_plus_is_a_space_in_a_query_and_itself_in_a_path(wire):
    assert wire.send("PUT", "/bkt/one%20two", body=b"space").status == 200
    assert wire.send("PUT", "/bkt/one%2Btwo", body=b"plus").status == 200

    assert b"<Key>one two</Key>" in wire.send("GET", "/bkt", "list-type=2&prefix=one+t").body
    assert b"<Key>one+two</Key>" in wire.send("GET", "/bkt", "list-type=2&prefix=one%2Bt").body
    assert wire.raw("GET", "/bkt/one+two", wire.sign("GET", "/bkt/one%2Btwo")).body == b"plus"

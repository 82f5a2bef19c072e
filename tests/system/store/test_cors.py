"""Requests of browsers on behalf of other sites: rules of a bucket, preflights, and the headers of real replies."""
import pytest
from botocore.exceptions import ClientError

from harness.s3_wire import Wire

ALLOW = "access-control-allow-"
RULES = [
    {
        "ID": "site",
        "AllowedOrigins": ["https://site.example", "https://*.site.example"],
        "AllowedMethods": ["GET", "PUT"],
        "AllowedHeaders": ["content-*", "x-amz-meta-a"],
        "ExposeHeaders": ["ETag", "x-amz-version-id"],
        "MaxAgeSeconds": 600,
    },
    {"AllowedOrigins": ["*"], "AllowedMethods": ["HEAD"]},
]


@pytest.fixture
def wire(store):
    wire = Wire(store)
    assert wire.send("PUT", "/bkt").status == 200
    assert wire.send("PUT", "/bkt/k", body=b"text").status == 200
    return wire


@pytest.fixture
def ruled(wire, store):
    store.client.put_bucket_cors(Bucket="bkt", CORSConfiguration={"CORSRules": RULES})
    return wire


def preflight(wire, origin, method, headers=None, path="/bkt/k"):
    sent = {"host": "x", "origin": origin, "access-control-request-method": method, "access-control-request-headers": headers}
    return wire.raw("OPTIONS", path, {name: value for name, value in sent.items() if value is not None})


def has_cors(reply):
    return any(name.startswith("access-control-") for name in reply.headers)


def test_rules_are_kept_replaced_and_deleted(wire, store):
    s3 = store.client
    with pytest.raises(ClientError, match="NoSuchCORSConfiguration"):
        s3.get_bucket_cors(Bucket="bkt")

    s3.put_bucket_cors(Bucket="bkt", CORSConfiguration={"CORSRules": RULES})
    assert s3.get_bucket_cors(Bucket="bkt")["CORSRules"] == RULES
    s3.put_bucket_cors(Bucket="bkt", CORSConfiguration={"CORSRules": RULES[1:]})
    assert s3.get_bucket_cors(Bucket="bkt")["CORSRules"] == RULES[1:]
    s3.delete_bucket_cors(Bucket="bkt")
    s3.delete_bucket_cors(Bucket="bkt")

    with pytest.raises(ClientError, match="NoSuchCORSConfiguration"):
        s3.get_bucket_cors(Bucket="bkt")
    with pytest.raises(ClientError, match="NoSuchBucket"):
        s3.get_bucket_cors(Bucket="none")


@pytest.mark.parametrize("change, code", [
    ({"AllowedMethods": ["OPTIONS"]}, "InvalidRequest"),
    ({"AllowedOrigins": ["http://*.*"]}, "InvalidRequest"),
    ({"AllowedHeaders": ["*a*"]}, "InvalidRequest"),
    ({"ExposeHeaders": ["x-*"]}, "InvalidRequest"),
    ({"AllowedOrigins": []}, "MalformedXML"),
    ({"MaxAgeSeconds": -1}, "MalformedXML"),
])  # fmt: skip
def test_invalid_rules_are_refused_and_the_old_ones_stay(ruled, store, change, code):
    with pytest.raises(ClientError, match=code):
        store.client.put_bucket_cors(Bucket="bkt", CORSConfiguration={"CORSRules": [RULES[0] | change]})

    assert store.client.get_bucket_cors(Bucket="bkt")["CORSRules"] == RULES


def test_a_long_document_of_rules_is_refused(wire):
    body = b"<CORSConfiguration>" + b" " * 66_000 + b"</CORSConfiguration>"

    assert wire.send("PUT", "/bkt", "cors=", body=body).status == 400


def test_rules_outlive_a_restart(ruled, store):
    store.stop()
    store.start()

    assert store.client.get_bucket_cors(Bucket="bkt")["CORSRules"] == RULES


def test_a_preflight_gets_the_rule_that_it_matches(ruled):
    reply = preflight(ruled, "https://a.site.example", "PUT", "Content-Type, X-Amz-Meta-A")

    assert (reply.status, reply.body) == (200, b"")
    assert reply.headers[ALLOW + "origin"] == "https://a.site.example"
    assert reply.headers[ALLOW + "methods"] == "GET, PUT"
    assert reply.headers[ALLOW + "headers"] == "content-type, x-amz-meta-a"
    assert reply.headers[ALLOW + "credentials"] == "true"
    assert reply.headers["access-control-expose-headers"] == "ETag, x-amz-version-id"
    assert reply.headers["access-control-max-age"] == "600"
    assert reply.headers["vary"] == "Origin, Access-Control-Request-Headers, Access-Control-Request-Method"
    assert preflight(ruled, "https://a.site.example", "PUT", path="/bkt").status == 200


# The reply to a preflight repeats the names, so the store limits their number and length.
def test_a_preflight_with_too_many_or_too_long_names_is_refused(ruled):
    for names in (",".join(["content-type"] * 201), "x-amz-meta-" + 40_000 * "a"):
        reply = preflight(ruled, "https://a.site.example", "PUT", names)

        assert reply.status == 403 and b"<Code>AccessForbidden</Code>" in reply.body


def test_a_rule_for_all_origins_has_no_credentials(ruled):
    reply = preflight(ruled, "https://other.example", "HEAD")

    assert (reply.status, reply.headers[ALLOW + "origin"]) == (200, "*")
    assert ALLOW + "credentials" not in reply.headers and ALLOW + "headers" not in reply.headers


@pytest.mark.parametrize("origin, method, headers, status, code", [
    ("https://site.example", "DELETE", None, 403, "AccessForbidden"),
    ("https://other.example", "GET", None, 403, "AccessForbidden"),
    ("https://site.example", "PUT", "x-amz-meta-b", 403, "AccessForbidden"),
    (None, "GET", None, 400, "BadRequest"),
    ("https://site.example", None, None, 400, "BadRequest"),
    ("https://site.example", "PATCH", None, 400, "BadRequest"),
])  # fmt: skip
def test_other_preflights_are_refused(ruled, origin, method, headers, status, code):
    reply = preflight(ruled, origin, method, headers)

    assert (reply.status, reply.code) == (status, code)
    assert not has_cors(reply)


# A client without keys must not learn which buckets and objects exist.
def test_a_preflight_reveals_nothing_but_rules(wire, store):
    replies = [preflight(wire, "https://site.example", "GET", path=path) for path in ("/bkt/k", "/bkt/none", "/none/k")]
    assert {reply.body.split(b"<RequestId>")[0] for reply in replies} == {replies[0].body.split(b"<RequestId>")[0]}
    assert (replies[0].status, replies[0].code) == (403, "AccessForbidden")
    assert b"<Method>GET</Method><ResourceType>OBJECT</ResourceType>" in replies[0].body
    assert b"<ResourceType>BUCKET</ResourceType>" in preflight(wire, "https://site.example", "GET", path="/bkt/").body

    store.client.put_bucket_cors(Bucket="bkt", CORSConfiguration={"CORSRules": RULES})
    found, missing = (preflight(wire, "https://site.example", "GET", path=path) for path in ("/bkt/k", "/bkt/none"))
    assert found.status == missing.status == 200
    for reply in found, missing:
        del reply.headers["x-amz-request-id"], reply.headers["date"]
    assert found.headers == missing.headers


def test_real_requests_get_the_headers_of_their_rule(ruled):
    reply = ruled.send("GET", "/bkt/k", headers={"origin": "https://site.example"})

    assert (reply.status, reply.body) == (200, b"text")
    assert reply.headers[ALLOW + "origin"] == "https://site.example"
    assert reply.headers[ALLOW + "methods"] == "GET, PUT"
    assert reply.headers["access-control-expose-headers"] == "ETag, x-amz-version-id"
    assert "vary" in reply.headers and ALLOW + "headers" not in reply.headers
    assert ruled.send("PUT", "/bkt/n", headers={"origin": "https://site.example"}, body=b"x").headers[ALLOW + "origin"]
    assert ruled.send("HEAD", "/bkt/k", headers={"origin": "https://any.example"}).headers[ALLOW + "origin"] == "*"
    assert not has_cors(ruled.send("GET", "/bkt/k", headers={"origin": "https://other.example"}))
    assert not has_cors(ruled.send("DELETE", "/bkt/n", headers={"origin": "https://site.example"}))
    assert not has_cors(ruled.send("GET", "/bkt/k"))


# Without these headers, a page would not see why its request failed.
def test_errors_have_the_headers_too(ruled):
    origin = {"origin": "https://site.example"}
    missing = ruled.send("GET", "/bkt/none", headers=origin)
    unsigned = ruled.raw("PUT", "/bkt/k", {"host": "x"} | origin, b"text")
    presigned = ruled.raw("GET", "/bkt/k?" + ruled.presign("GET", "/bkt/k", skew_s=-3600), {"host": f"{ruled.host}:{ruled.port}"} | origin)

    assert (missing.status, unsigned.status, presigned.status) == (404, 403, 403)
    for reply in missing, unsigned, presigned:
        assert reply.headers[ALLOW + "origin"] == "https://site.example"


# Preflights, which need no keys, could hold connections that clients with keys need.
def test_a_connection_with_preflights_only_is_ended(ruled):
    head = ruled.head("OPTIONS", "/bkt/k", {"host": "x", "origin": "https://site.example", "access-control-request-method": "GET"})
    connection = ruled.connect()
    connection.settimeout(60)

    with connection:
        for _ in range(3):
            connection.sendall(head)
            assert ruled.read(connection).status == 200

        assert connection.recv(1) == b""

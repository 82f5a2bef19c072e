"""Uploads by the forms of browsers: POST with a signed policy."""
import base64
import hashlib
import json
import socket
import time
from xml.etree import ElementTree

import pytest
import requests

from harness.s3_wire import Wire, crc32, hmac256
from store.test_iam import policy, user_with_key

BOUNDARY = "form-boundary-7"


@pytest.fixture
def wire(store):
    wire = Wire(store)
    assert wire.send("PUT", "/bkt").status == 200
    return wire


def encoded(parts, end=True):
    """A body of (name, value) and (name, value, filename)."""
    body = b""
    for name, value, *filename in parts:
        file = f'; filename="{filename[0]}"' if filename else ""
        body += f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'.encode()
        body += (value if isinstance(value, bytes) else value.encode()) + b"\r\n"
    return body + (f"--{BOUNDARY}--\r\n".encode() if end else b"")


class Form:
    """A signed form; `fields` are added to those of the signature, and the policy allows only the
    values of `fields`."""

    def __init__(self, wire, fields, conditions=None, expires_s=600, document=None, skew_s=0):
        date = wire.stamp(skew_s)
        scope = f"{date[:8]}/us-east-1/s3/aws4_request"
        self.fields = dict(fields) | {
            "x-amz-algorithm": "AWS4-HMAC-SHA256",
            "x-amz-credential": f"{wire.access_key}/{scope}",
            "x-amz-date": date,
        }
        if conditions is None:
            conditions = [{name: value} for name, value in fields.items()]
        signing = [{name: self.fields[name]} for name in ("x-amz-algorithm", "x-amz-credential", "x-amz-date")]
        expiration = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + expires_s))
        if document is None:
            document = {"expiration": expiration, "conditions": [{"bucket": "bkt"}, *conditions, *signing]}
        text = document if isinstance(document, str) else json.dumps(document)
        policy = base64.b64encode(text.encode()).decode()
        self.fields |= {"policy": policy, "x-amz-signature": hmac256(wire.key(date, "us-east-1"), policy).hex()}

    def parts(self, file=b"text", filename="f.txt"):
        return [*self.fields.items(), ("file", file, filename)]


def post(wire, parts, target="/bkt", headers=None, end=True):
    body = parts if isinstance(parts, bytes) else encoded(parts, end)
    return wire.raw("POST", target, {"host": "x", "content-type": f"multipart/form-data; boundary={BOUNDARY}"} | (headers or {}), body)


def keys(wire):
    return [part.split(b"<")[0].decode() for part in wire.send("GET", "/bkt", "list-type=2").body.split(b"<Key>")[1:]]


# --- uploads


def test_a_presigned_post_of_boto3_uploads(wire, store):
    form = store.boto3(signature_version="s3v4").generate_presigned_post(
        "bkt", "d/${filename}", Fields={"Content-Type": "text/plain"}, Conditions=[["starts-with", "$Content-Type", "text/"]]
    )

    reply = requests.post(form["url"], data=form["fields"], files={"file": ("a b.txt", b"hello")}, timeout=60)

    assert (reply.status_code, reply.content) == (204, b"")
    assert reply.headers["ETag"] == '"' + hashlib.md5(b"hello").hexdigest() + '"'
    assert reply.headers["Location"].endswith("/bkt/d/a%20b.txt")
    got = store.client.get_object(Bucket="bkt", Key="d/a b.txt")
    assert (got["Body"].read(), got["ContentType"]) == (b"hello", "text/plain")


def test_fields_become_headers_of_the_object(wire):
    fields = {
        "key": "k", "acl": "private", "Cache-Control": "no-cache", "Content-Disposition": "inline", "Content-Encoding": "gzip",
        "x-amz-meta-Colour": "red", "x-amz-storage-class": "STANDARD_IA", "x-amz-website-redirect-location": "/other",
    }  # fmt: skip

    assert post(wire, Form(wire, fields).parts()).status == 204

    head = wire.send("HEAD", "/bkt/k").headers
    assert (head["cache-control"], head["content-disposition"], head["content-encoding"]) == ("no-cache", "inline", "gzip")
    assert (head["x-amz-meta-colour"], head["x-amz-storage-class"]) == ("red", "STANDARD_IA")
    assert head["content-type"] == "binary/octet-stream" and "policy" not in head


def test_a_form_can_make_a_public_object(wire):
    url = f"http://{wire.host}:{wire.port}/bkt/k"
    assert post(wire, Form(wire, {"key": "k", "acl": "public-read"}).parts()).status == 204
    assert requests.get(url, timeout=60).content == b"text"

    assert post(wire, Form(wire, {"key": "k"}).parts()).status == 204
    assert requests.get(url, timeout=60).status_code == 403


def test_a_form_without_a_signature_fills_a_public_bucket(wire):
    parts = [("key", "k"), ("file", "text", "f")]
    assert post(wire, parts).code == "AccessDenied"
    assert wire.send("PUT", "/bkt", "acl=", headers={"x-amz-acl": "public-read-write"}).status == 200

    assert post(wire, parts).status == 204
    assert keys(wire) == ["k"]


@pytest.mark.parametrize("asked, status", [("200", 200), ("204", 204), ("404", 204), ("", 204), (None, 204)])
def test_the_form_chooses_the_status_of_success(wire, asked, status):
    fields = {"key": "k"} if asked is None else {"key": "k", "success_action_status": asked}

    reply = post(wire, Form(wire, fields).parts())

    assert (reply.status, reply.body) == (status, b"")
    assert wire.send("GET", "/bkt/k").body == b"text"


def test_status_201_has_a_document(wire):
    reply = post(wire, Form(wire, {"key": "a/b c", "success_action_status": "201"}).parts())

    assert (reply.status, reply.headers["content-type"]) == (201, "application/xml")
    document = ElementTree.fromstring(reply.body)
    assert document.tag == "PostResponse"
    assert [(e.tag, e.text) for e in document] == [
        ("Location", f"http://{wire.host}:{wire.port}/bkt/a/b%20c"),
        ("Bucket", "bkt"),
        ("Key", "a/b c"),
        ("ETag", '"' + hashlib.md5(b"text").hexdigest() + '"'),
    ]


@pytest.mark.parametrize("name", ["success_action_redirect", "redirect"])
@pytest.mark.parametrize("url, before", [("http://site/done", "http://site/done?"), ("https://site/?a=1", "https://site/?a=1&")])
def test_a_redirect_names_the_object(wire, name, url, before):
    reply = post(wire, Form(wire, {"key": "a&b", name: url, "success_action_status": "201"}).parts())

    etag = hashlib.md5(b"text").hexdigest()
    assert (reply.status, reply.headers["location"]) == (303, f"{before}bucket=bkt&key=a%26b&etag=%22{etag}%22")


def test_an_invalid_redirect_is_ignored(wire):
    reply = post(wire, Form(wire, {"key": "k", "success_action_redirect": "http://a b"}).parts())

    assert (reply.status, reply.headers["location"][-6:]) == (204, "/bkt/k")


# The sizes are around the limit of the database, and around the limit of memory.
@pytest.mark.parametrize("size", [0, 1, 16_000, 17_000, 1_500_000, 20_000_000])
def test_files_of_any_size_are_stored(wire, size):
    file = (b"0123456789\r\n--form\r\n\r\n" * (size // 20 + 1))[:size]

    assert post(wire, Form(wire, {"key": "k"}).parts(file)).status == 204

    got = wire.send("GET", "/bkt/k")
    assert got.body == file and got.headers["etag"] == '"' + hashlib.md5(file).hexdigest() + '"'


def test_a_form_in_small_pieces_is_taken(wire):
    body = encoded(Form(wire, {"key": "k"}).parts(b"\r\n-\r\n--" + BOUNDARY[:-1].encode() + b"\r\n"))

    with wire.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        headers = {"host": "x", "content-type": f'multipart/form-data; boundary="{BOUNDARY}"', "content-length": str(len(body))}
        connection.sendall(wire.head("POST", "/bkt/", headers))
        for i in range(0, len(body), 7):
            connection.sendall(body[i : i + 7])
        assert wire.read(connection).status == 204

    assert wire.send("GET", "/bkt/k").body == b"\r\n-\r\n--" + BOUNDARY[:-1].encode() + b"\r\n"


def test_a_version_is_named(wire, store):
    store.client.put_bucket_versioning(Bucket="bkt", VersioningConfiguration={"Status": "Enabled"})

    reply = post(wire, Form(wire, {"key": "k"}).parts())

    assert store.client.head_object(Bucket="bkt", Key="k")["VersionId"] == reply.headers["x-amz-version-id"]


def test_tags_and_retentions_are_those_of_the_form(wire, store):
    s3 = store.client
    s3.create_bucket(Bucket="locked", ObjectLockEnabledForBucket=True)
    rule = {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 1}}
    s3.put_object_lock_configuration(Bucket="locked", ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": rule})
    tagging = "<Tagging><TagSet><Tag><Key>a b</Key><Value>c+d</Value></Tag></TagSet></Tagging>"
    fields = {"key": "k", "tagging": tagging}
    document = {"expiration": "2100-01-01T00:00:00Z", "conditions": [{"bucket": "locked"}, ["starts-with", "$tagging", "<Tagging>"]]}
    document["conditions"] += [["starts-with", f"${name}", ""] for name in ("key", "x-amz-algorithm", "x-amz-credential", "x-amz-date")]

    reply = post(wire, Form(wire, fields, document=document).parts(), "/locked")
    assert reply.status == 204, reply.body

    assert s3.get_object_tagging(Bucket="locked", Key="k")["TagSet"] == [{"Key": "a b", "Value": "c+d"}]
    assert s3.head_object(Bucket="locked", Key="k")["ObjectLockMode"] == "GOVERNANCE"


def test_the_name_of_the_file_has_no_directory(wire):
    for filename, key in (("C:\\\\dir\\\\a.txt", "u/a.txt"), ("/home/me/b.txt", "u/b.txt"), ("", "u/")):
        form = Form(wire, {"key": "u/${filename}"}, [["starts-with", "$key", "u/"]])
        assert post(wire, form.parts(filename=filename)).status == 204
        assert key in keys(wire)


def test_the_name_of_the_file_does_not_make_a_short_form_long(wire):
    """The store keeps the fields in memory before it knows the sender."""
    parts = [(f"x-ignore-{i}", "${filename}${filename}") for i in range(90)]

    assert post(wire, [*parts, ("key", "k"), ("file", "text", "f" * 16_000)]).code == "MaxPostPreDataLengthExceeded"


def test_checksums_and_conditions_hold_as_for_a_put(wire):
    good = {"key": "k", "x-amz-checksum-crc32": crc32(b"text")}
    md5 = base64.b64encode(hashlib.md5(b"other").digest()).decode()

    assert post(wire, Form(wire, good).parts(b"other")).code == "BadDigest"
    assert post(wire, Form(wire, {"key": "k", "Content-MD5": md5}).parts()).code == "BadDigest"
    assert post(wire, Form(wire, good | {"x-amz-checksum-crc32": "x"}).parts()).code == "InvalidRequest"
    assert keys(wire) == []
    assert post(wire, Form(wire, good).parts()).headers["x-amz-checksum-crc32"] == crc32(b"text")
    assert post(wire, Form(wire, {"key": "k", "If-None-Match": "*"}).parts()).code == "PreconditionFailed"


def test_a_form_with_the_etag_of_the_object_needs_the_right_to_read(wire, store):
    wire.send("PUT", "/bkt/k", body=b"yes")
    iam, key, secret = user_with_key(store)
    iam.put_user_policy(UserName="jo", PolicyName="p", PolicyDocument=policy("s3:PutObject"))
    user = Wire(store)
    user.access_key, user.secret_key = key, secret

    for etag in f'"{hashlib.md5(b"yes").hexdigest()}"', '"0"':
        assert post(user, Form(user, {"key": "k", "If-None-Match": etag}).parts()).code == "AccessDenied"
    assert post(user, Form(user, {"key": "k", "If-None-Match": "*"}).parts()).code == "PreconditionFailed"
    assert post(user, Form(user, {"key": "new", "If-None-Match": "*"}).parts()).status == 204


def test_a_form_without_a_checksum_gets_that_of_a_put(wire):
    """The store needs a checksum to detect damage when the object is read."""
    put = wire.send("PUT", "/bkt/put", body=b"text").headers["x-amz-checksum-crc64nvme"]

    assert post(wire, Form(wire, {"key": "k"}).parts(b"text")).headers["x-amz-checksum-crc64nvme"] == put
    assert wire.send("HEAD", "/bkt/k", headers={"x-amz-checksum-mode": "ENABLED"}).headers["x-amz-checksum-crc64nvme"] == put


def test_a_page_of_another_site_sees_the_reply(wire, store):
    rule = {"AllowedOrigins": ["http://site"], "AllowedMethods": ["POST"], "ExposeHeaders": ["ETag"]}
    store.client.put_bucket_cors(Bucket="bkt", CORSConfiguration={"CORSRules": [rule]})
    form = Form(wire, {"key": "k"})

    replies = [post(wire, parts, headers={"origin": "http://site"}) for parts in (form.parts(), form.parts()[1:])]

    assert [reply.status for reply in replies] == [204, 400]
    assert {reply.headers["access-control-allow-origin"] for reply in replies} == {"http://site"}


# --- policies


@pytest.mark.parametrize("conditions, code", [
    ([["eq", "$key", "k"], {"x-amz-meta-a": "b"}], None),
    ([["eq", "$KEY", "k"], {"X-AMZ-Meta-A": "b"}], None),
    ([["starts-with", "$key", ""], ["starts-with", "$x-amz-meta-a", "b"]], None),
    ([{"key": "k"}, {"x-amz-meta-a": "b"}, ["content-length-range", 4, "4"]], None),
    ([{"key": "k"}, {"x-amz-meta-a": "b"}, ["starts-with", "$x-amz-meta-absent", ""]], None),
    ([{"key": "k"}, {"x-amz-meta-a": "B"}], "AccessDenied"),
    ([{"key": "k"}, {"x-amz-meta-a": "b"}, {"bucket": "other"}], "AccessDenied"),
    ([{"key": "k"}, {"x-amz-meta-a": "b"}, {"acl": "private"}], "AccessDenied"),
    ([{"key": "k"}], "AccessDenied"),
    ([], "AccessDenied"),
    ([{"key": "k"}, {"x-amz-meta-a": "b"}, ["content-length-range", 5, 9]], "EntityTooSmall"),
    ([{"key": "k"}, {"x-amz-meta-a": "b"}, ["content-length-range", 0, 3]], "EntityTooLarge"),
    ([{"key": "k"}, ["contains", "$x-amz-meta-a", "b"]], "InvalidPolicyDocument"),
    ([{"key": "k"}, ["eq", "x-amz-meta-a", "b"]], "InvalidPolicyDocument"),
    ([{"key": "k"}, ["content-length-range", -1, 0]], "InvalidPolicyDocument"),
    ([{"key": "k", "x-amz-meta-a": "b"}], "InvalidPolicyDocument"),
    ([{}], "InvalidPolicyDocument"),
])  # fmt: skip
def test_a_form_must_fit_the_policy(wire, conditions, code):
    reply = post(wire, Form(wire, {"key": "k", "x-amz-meta-a": "b"}, conditions).parts())

    assert reply.code == code
    assert keys(wire) == ([] if code else ["k"])


@pytest.mark.parametrize("document", ["", "no JSON", "[]", "{}", '{"expiration": "tomorrow", "conditions": []}', '{"expiration": "2100-01-01T00:00:00Z"}'])
def test_an_invalid_document_is_refused(wire, document):
    assert post(wire, Form(wire, {"key": "k"}, document=document).parts()).code == "InvalidPolicyDocument"
    assert keys(wire) == []


def test_a_policy_expires(wire):
    reply = post(wire, Form(wire, {"key": "k"}, expires_s=-1).parts())

    assert (reply.status, reply.code) == (403, "AccessDenied")


# --- signatures


@pytest.mark.parametrize("change, status, code", [
    ({"x-amz-signature": "0" * 64}, 403, "SignatureDoesNotMatch"),
    ({"x-amz-signature": "short"}, 403, "SignatureDoesNotMatch"),
    ({"policy": base64.b64encode(b"{}").decode()}, 403, "SignatureDoesNotMatch"),
    ({"x-amz-credential": "X/20200101/us-east-1/s3/aws4_request"}, 403, "InvalidAccessKeyId"),
    ({"x-amz-credential": "nonsense"}, 400, "InvalidArgument"),
    ({"x-amz-date": "today"}, 400, "InvalidArgument"),
    ({"x-amz-date": "20200101T000000Z"}, 400, "AuthorizationHeaderMalformed"),
    ({"x-amz-algorithm": "AWS4-HMAC-SHA1"}, 400, "InvalidRequest"),
    ({"x-amz-signature": None}, 400, "InvalidArgument"),
    ({"x-amz-date": None}, 400, "InvalidArgument"),
    ({"policy": None}, 400, "InvalidArgument"),
    ({"key": None}, 400, "InvalidArgument"),
    ({"key": ""}, 400, "InvalidArgument"),
    ({"KEY": "other"}, 400, "InvalidArgument"),
    ({"key": "x" * 1025}, 400, "KeyTooLongError"),
])  # fmt: skip
def test_a_changed_form_is_refused(wire, change, status, code):
    form = Form(wire, {"key": "k"})
    form.fields = {name: value for name, value in (form.fields | change).items() if value is not None}

    reply = post(wire, form.parts(b"x" * 100_000))

    assert (reply.status, reply.code) == (status, code)
    assert keys(wire) == []


# As at AWS, a signature is valid for seven days, even if its policy is longer.
@pytest.mark.parametrize("skew_s, status, code", [
    (-6 * 86400, 204, None),
    (-8 * 86400, 403, "AccessDenied"),
    (3600, 403, "AccessDenied"),
])  # fmt: skip
def test_the_date_of_a_form_bounds_its_signature(wire, skew_s, status, code):
    form = Form(wire, {"key": "k"}, skew_s=skew_s, expires_s=30 * 86400)

    reply = post(wire, form.parts())

    assert (reply.status, reply.code) == (status, code)
    assert keys(wire) == (["k"] if status == 204 else [])


def test_a_form_without_a_signature_is_refused(wire):
    anonymous = post(wire, [("key", "k"), ("acl", "public-read"), ("file", "text", "f")])
    old = post(wire, [("key", "k"), ("AWSAccessKeyId", wire.access_key), ("signature", "x"), ("policy", "e30="), ("file", "text", "f")])

    assert (anonymous.status, anonymous.code) == (403, "AccessDenied")
    assert (old.status, old.code) == (403, "SignatureDoesNotMatch")


def test_a_missing_bucket_is_only_named_to_those_with_keys(wire):
    form = Form(wire, {"key": "k"})
    allowed = [["starts-with", "$" + name, ""] for name in ("bucket", *form.fields) if name not in ("policy", "x-amz-signature")]
    form = Form(wire, {"key": "k"}, document={"expiration": "2100-01-01T00:00:00Z", "conditions": allowed})

    assert post(wire, form.parts(), "/none").code == "NoSuchBucket"
    assert post(wire, form.parts()[:-2] + form.parts()[-1:], "/none").code == "InvalidArgument"
    assert post(wire, form.parts()).status == 204


# --- forms beyond the limits, and malformed ones


@pytest.mark.parametrize("more, status, code", [
    ({"acl": "public"}, 400, "InvalidArgument"),
    ({"acl": "private", "x-amz-acl": "private"}, 400, "InvalidArgument"),
    ({"tagging": "a=b"}, 400, "MalformedXML"),
    ({"tagging": "<Tagging><TagSet/></Tagging>", "x-amz-tagging": "a=b"}, 400, "InvalidArgument"),
    ({"x-amz-object-lock-mode": "GOVERNANCE"}, 400, "InvalidArgument"),
    ({"x-amz-server-side-encryption": "aws:kms"}, 501, "NotImplemented"),
    ({"x-amz-copy-source": "bkt/k"}, 501, "NotImplemented"),
    ({"x-amz-storage-class": "NONE"}, 400, "InvalidStorageClass"),
    ({"x-amz-meta-a": "b\r\nSet-Cookie: c"}, 400, "InvalidArgument"),
    ({"x-amz-meta-a b": "c"}, 400, "InvalidArgument"),
    ({"x-amz-meta-a": "b" * 3000}, 400, "MetadataTooLarge"),
    ({"x-amz-expected-bucket-owner": "111111111111"}, 403, "AccessDenied"),
    ({"x-amz-expected-bucket-owner": "me"}, 400, "InvalidBucketOwnerAWSAccountID"),
    ({"x-ignore-a": "b" * 33_000}, 400, "MaxPostPreDataLengthExceeded"),
])  # fmt: skip
def test_fields_are_honoured_or_refused_by_name(wire, more, status, code):
    reply = post(wire, Form(wire, {"key": "k"} | more).parts())

    assert (reply.status, reply.code) == (status, code)
    assert keys(wire) == []


def test_many_fields_are_refused(wire):
    assert post(wire, [(f"x-ignore-{i}", "") for i in range(101)]).code == "MaxPostPreDataLengthExceeded"


@pytest.mark.parametrize("spoil", [
    lambda body: body.replace(b"--\r\n", b"\r\n"),
    lambda body: body[: body.rindex(b"--" + BOUNDARY.encode())],
    lambda body: body.replace(b"\r\n", b"\n"),
    lambda body: body.replace(b'name="key"', b"", 1),
    lambda body: body.replace(b"form-data", b"attachment", 1),
    lambda body: b"",
    lambda body: body + b"x" * 40_000,
])  # fmt: skip
def test_a_malformed_form_stores_nothing(wire, spoil):
    reply = post(wire, spoil(encoded(Form(wire, {"key": "k"}).parts())))

    assert (reply.status, reply.code) == (400, "MalformedPOSTRequest")
    assert keys(wire) == []


def test_a_form_has_one_file(wire):
    parts = Form(wire, {"key": "k"}).parts()

    assert post(wire, parts[:-1]).code == "InvalidArgument"
    assert post(wire, [*parts, ("file", "more", "g")]).code == "InvalidArgument"
    assert keys(wire) == []
    assert post(wire, [*parts, ("x-amz-meta-late", "ignored")]).status == 204


def test_conditions_on_the_browser_hold_for_forms(wire, store):
    """The browser's name comes from the request's header, and no form field can replace it."""
    denied = {"Effect": "Deny", "Principal": "*", "Action": "s3:PutObject", "Resource": "arn:aws:s3:::bkt/*",
              "Condition": {"StringLike": {"aws:UserAgent": "bot/*"}}}  # fmt: skip
    store.client.put_bucket_policy(Bucket="bkt", Policy=json.dumps({"Version": "2012-10-17", "Statement": [denied]}))
    parts = Form(wire, {"key": "k"}).parts()

    assert post(wire, parts, headers={"user-agent": "bot/1"}).code == "AccessDenied"
    assert post(wire, parts, headers={"user-agent": "browser/1"}).status == 204


def test_a_form_held_open_ends_with_its_key(wire, store):
    iam, key, secret = user_with_key(store)
    iam.put_user_policy(UserName="jo", PolicyName="all", PolicyDocument=policy("s3:*"))
    user = Wire(store)
    user.access_key, user.secret_key = key, secret
    body = encoded(Form(user, {"key": "k"}).parts())
    headers = {"host": "x", "content-type": f"multipart/form-data; boundary={BOUNDARY}", "content-length": str(len(body))}

    with user.connect() as connection:
        connection.sendall(user.head("POST", "/bkt", headers) + body[:-10])
        for _ in range(3):  # these replies arrive after the store has read the data
            store.client.list_buckets()
        iam.update_access_key(UserName="jo", AccessKeyId=key, Status="Inactive")
        connection.sendall(body[-10:])
        reply = user.read(connection)

    assert (reply.status, reply.code) == (403, "InvalidAccessKeyId")
    assert keys(wire) == []


def test_a_post_that_is_no_form_is_refused(wire):
    body = encoded(Form(wire, {"key": "k"}).parts())

    assert wire.send("POST", "/bkt", headers={"content-type": "text/plain"}, body=body).code == "PreconditionFailed"
    assert wire.raw("POST", "/bkt", {"host": "x", "content-type": "text/plain"}, body).code == "AccessDenied"
    assert post(wire, body, "/bkt/k").code == "AccessDenied"
    assert post(wire, body, "/bkt?delete").code == "AccessDenied"
    assert post(wire, body, headers={"content-type": "multipart/form-data"}).code == "MalformedPOSTRequest"


def test_a_form_that_is_cut_leaves_nothing(wire, store, wait_for):
    body = encoded(Form(wire, {"key": "k"}).parts(b"x" * 2_000_000))
    headers = {"host": "x", "content-type": f"multipart/form-data; boundary={BOUNDARY}", "content-length": str(len(body))}

    with wire.connect() as connection:
        connection.sendall(wire.head("POST", "/bkt", headers) + body[:1_000_000])
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""

    wait_for(lambda: not [path for path in (store.root / "data").rglob("*") if path.is_file()], 60, "the half file to be gone")
    assert keys(wire) == []

"""Signature Version 2: headers and URLs as botocore signs them, and forms."""
import base64
import datetime
import email.utils
import hashlib
import hmac
import json
import urllib.error
import urllib.request

import pytest
from botocore.exceptions import ClientError

from store.test_iam import policy, refused, user_with_key
from store.test_post import post
from store.test_sessions import ROOT, assume, role


@pytest.fixture
def old(store):
    """A client of version 2."""
    store.client.create_bucket(Bucket="bkt")
    return client(store)


def client(store, *keys):
    return store.boto3(keys=keys, signature_version="s3")


def signature(secret, text):
    return base64.b64encode(hmac.new(secret.encode(), text.encode(), hashlib.sha1).digest()).decode()


def send(store, method, target, headers, body=None):
    request = urllib.request.Request(store.endpoint + target, body, headers, method=method)
    try:
        with urllib.request.urlopen(request) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_requests_with_a_header(store, old):
    old.create_bucket(Bucket="made")
    old.head_bucket(Bucket="made")
    old.put_object(Bucket="bkt", Key="a b/ä", Body=b"x", Metadata={"m": "v"}, ContentType="text/plain")
    assert old.get_object(Bucket="bkt", Key="a b/ä", ResponseContentType="x/y")["ContentType"] == "x/y"
    assert [found["Key"] for found in store.client.list_objects_v2(Bucket="bkt")["Contents"]] == ["a b/ä"]
    old.delete_object(Bucket="bkt", Key="a b/ä")
    assert store.client.list_objects_v2(Bucket="bkt")["KeyCount"] == 0
    assert refused(client(store, store.access_key, "wrong").list_buckets) == "SignatureDoesNotMatch"
    assert refused(client(store, "unknown", store.secret_key).list_buckets) == "InvalidAccessKeyId"


def test_rights_and_sessions_count_as_for_version_4(store, old):
    old.put_object(Bucket="bkt", Key="k", Body=b"x")
    iam, key, secret = user_with_key(store)
    iam.put_user_policy(UserName="jo", PolicyName="p", PolicyDocument=policy("s3:GetObject"))
    jo = client(store, key, secret)
    session = assume(store, role(store, "reader", ROOT, "s3:GetObject"))

    assert jo.get_object(Bucket="bkt", Key="k")["Body"].read() == b"x"
    assert refused(jo.put_object, Bucket="bkt", Key="k", Body=b"y") == "AccessDenied"
    temporary = client(store, session["AccessKeyId"], session["SecretAccessKey"], session["SessionToken"])
    assert temporary.get_object(Bucket="bkt", Key="k")["Body"].read() == b"x"
    assert refused(temporary.put_object, Bucket="bkt", Key="k", Body=b"y") == "AccessDenied"


def test_a_header_is_valid_for_a_quarter_of_an_hour_and_for_its_request(store, old):
    def signed(date, resource="/bkt/k", amz="", method="GET"):
        text = f"{method}\n\n\n{date}\n{amz}{resource}"
        return f"AWS {store.access_key}:{signature(store.secret_key, text)}"

    def at(minutes):
        return email.utils.format_datetime(datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=minutes), usegmt=True)

    old.put_object(Bucket="bkt", Key="k", Body=b"x")
    now, late = at(0), at(-16)
    assert send(store, "GET", "/bkt/k", {"Date": now, "Authorization": signed(now)}) == (200, b"x")
    assert send(store, "GET", "/bkt/k", {"x-amz-date": now, "Authorization": signed("", amz=f"x-amz-date:{now}\n")}) == (200, b"x")
    # Debian's botocore signs the name of a subresource twice, so these requests are signed by hand.
    uploads = {"Date": now, "Authorization": signed(now, "/bkt/k?uploads", method="POST")}
    upload = send(store, "POST", "/bkt/k?uploads", uploads)[1].split(b"<UploadId>")[1].split(b"<")[0].decode()
    part = f"/bkt/k?partNumber=1&uploadId={upload}"
    assert send(store, "PUT", part, {"Date": now, "Content-Type": "", "Authorization": signed(now, part, method="PUT")}, b"part")[0] == 200
    assert send(store, "PUT", part.replace("=1", "=2"), {"Date": now, "Authorization": signed(now, part, method="PUT")}, b"part")[0] == 403
    for status, code, target, headers in [
        (403, b"RequestTimeTooSkewed", "/bkt/k", {"Date": late, "Authorization": signed(late)}),
        (403, b"AccessDenied", "/bkt/k", {"Authorization": signed("")}),
        (403, b"AccessDenied", "/bkt/k", {"Date": "yesterday", "Authorization": signed("yesterday")}),
        (403, b"SignatureDoesNotMatch", "/bkt/other", {"Date": now, "Authorization": signed(now)}),
        (403, b"SignatureDoesNotMatch", "/bkt/k?acl", {"Date": now, "Authorization": signed(now)}),
        (403, b"SignatureDoesNotMatch", "/bkt/k", {"Date": now, "x-amz-meta-a": "b", "Authorization": signed(now)}),
        (403, b"AccessDenied", "/bkt/k?legal-hold", {"Date": now, "Authorization": signed(now)}),
        (400, b"InvalidArgument", "/bkt/k", {"Date": now, "Authorization": "AWS HAHAHA"}),
        (400, b"InvalidArgument", "/bkt/k", {"Date": now, "Authorization": "AWS :x"}),
        (400, b"InvalidArgument", "/bkt/k", {"Date": now, "Authorization": "AWS " + "k" * 4000 + ":x"}),
    ]:
        found, body = send(store, "GET", target, headers)
        assert found == status and code in body, (target, headers, body)


def test_forms(store, old):
    from harness.s3_wire import Wire

    document = {"expiration": "2100-01-01T00:00:00Z", "conditions": [{"bucket": "bkt"}, ["starts-with", "$key", "in/"]]}
    text = base64.b64encode(json.dumps(document).encode()).decode()

    def fields(key="in/k", sign=None, id=store.access_key):
        return [("key", key), ("AWSAccessKeyId", id), ("policy", text), ("signature", sign or signature(store.secret_key, text)), ("file", "body", "f")]

    wire = Wire(store)
    assert post(wire, fields()).status == 204
    assert old.get_object(Bucket="bkt", Key="in/k")["Body"].read() == b"body"
    assert post(wire, fields(key="out")).code == "AccessDenied"
    assert post(wire, fields(sign=signature("wrong", text))).code == "SignatureDoesNotMatch"
    assert post(wire, fields(id="unknown")).code == "InvalidAccessKeyId"
    assert post(wire, [field for field in fields() if field[0] != "policy"]).status == 400
    assert post(wire, [field for field in fields() if field[0] != "signature"]).status == 400


# A signature of version 2 does not cover these parameters, so anyone who has the URL could add
# them.
@pytest.mark.parametrize("added", ["x-amz-copy-source=/bkt/secret", "x-amz-acl=public-read", "X-AMZ-Meta-A=b", "x-amz-%61cl=public-read"])
def test_a_url_takes_no_other_parameters(store, old, added):
    old.put_object(Bucket="bkt", Key="secret", Body=b"x")
    url = old.generate_presigned_url("put_object", Params={"Bucket": "bkt", "Key": "new"})

    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(urllib.request.Request(f"{url}&{added}", b"", method="PUT"))

    assert [item["Key"] for item in old.list_objects(Bucket="bkt")["Contents"]] == ["secret"]


def test_urls(store, old):
    old.put_object(Bucket="bkt", Key="k", Body=b"x")
    url = old.generate_presigned_url("get_object", Params={"Bucket": "bkt", "Key": "k"})

    assert "AWSAccessKeyId=" in url
    with urllib.request.urlopen(url) as reply:
        assert reply.read() == b"x"
    session = assume(store, role(store, "reader", ROOT, "s3:GetObject"))
    temporary = client(store, session["AccessKeyId"], session["SecretAccessKey"], session["SessionToken"])
    url = temporary.generate_presigned_url("get_object", Params={"Bucket": "bkt", "Key": "k"})
    assert "x-amz-security-token=" in url
    with urllib.request.urlopen(url) as reply:
        assert reply.read() == b"x"
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(url.replace("Signature=", "Signature=A"))
    with pytest.raises(ClientError):
        client(store, store.access_key, "wrong").head_object(Bucket="bkt", Key="k")

"""Attempts to exceed the sender's rights: requests whose body is held back, changed URLs, and
headers that ask for other actions."""
import base64
import contextlib
import hashlib
import hmac
import json
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from datetime import datetime, timedelta, timezone

import pytest
from botocore import UNSIGNED
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from harness.s3_wire import Wire
from store.test_iam import OTHER, accounts, client, other, policy, refused, user_with_key  # noqa: F401

BODY = b"hello"


def held(store, method, path, key, secret, body=BODY):
    """Sends the head of a signed request. Returns a function that sends the body and reads the status and the reply."""
    endpoint = urllib.parse.urlsplit(store.endpoint)
    request = AWSRequest(method, store.endpoint + path, data=body, headers={"x-amz-content-sha256": hashlib.sha256(body).hexdigest()})
    S3SigV4Auth(Credentials(key, secret), "s3", "us-east-1").add_auth(request)
    lines = [f"{method} {path} HTTP/1.1", f"Host: {endpoint.netloc}", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in request.headers.items()]
    connection = socket.create_connection((endpoint.hostname, endpoint.port))
    connection.sendall("\r\n".join([*lines, "", ""]).encode())

    def finish():
        with connection:
            connection.settimeout(30)
            connection.sendall(body)
            reply = b"".join(iter(lambda: connection.recv(65536), b""))
        return int(reply.split()[1]), reply

    return finish


def everyone(bucket):
    """A policy that allows all users all actions on the bucket."""
    statement = {"Effect": "Allow", "Principal": "*", "Action": "s3:*", "Resource": [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"]}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def settle(store):
    """Returns when the store has read all bytes that were sent before this call: the store serves
    all connections in one loop."""
    for _ in range(3):
        store.client.list_buckets()


def test_a_request_begun_before_its_bucket_existed_gets_nothing(accounts):  # noqa: F811
    keys = OTHER["access_key_id"], OTHER["secret_access_key"]
    requests = [held(accounts, "PUT", "/victim?policy", *keys, body=everyone("victim").encode()), held(accounts, "GET", "/victim/secret", *keys),
                held(accounts, "DELETE", "/victim/secret", *keys), held(accounts, "GET", "/victim", *keys),
                held(accounts, "PUT", "/victim/secret", *keys)]  # fmt: skip
    settle(accounts)
    accounts.client.create_bucket(Bucket="victim")
    accounts.client.put_object(Bucket="victim", Key="secret", Body=b"TOP SECRET")

    for request in requests:
        status, reply = request()
        assert status in (403, 404) and b"SECRET" not in reply
    assert accounts.bytes("victim", "secret") == b"TOP SECRET"
    assert refused(other(accounts, "s3").get_object, Bucket="victim", Key="secret") == "AccessDenied"


def test_a_request_held_open_ends_with_the_bucket_that_it_was_for(accounts):  # noqa: F811
    """The account may do everything in the first bucket, and nothing in the next bucket of the same
    name."""
    theirs = other(accounts, "s3")
    theirs.create_bucket(Bucket="name")
    keys = OTHER["access_key_id"], OTHER["secret_access_key"]
    get, put = held(accounts, "GET", "/name/k", *keys), held(accounts, "PUT", "/name/k", *keys)
    settle(accounts)
    theirs.delete_bucket(Bucket="name")
    accounts.client.create_bucket(Bucket="name")
    accounts.client.put_object(Bucket="name", Key="k", Body=b"SECRET")

    assert get()[0] == 403 and put()[0] == 403
    assert accounts.bytes("name", "k") == b"SECRET"


def test_a_request_held_open_ends_with_its_key(store):
    iam, key, secret = user_with_key(store)
    iam.put_user_policy(UserName="jo", PolicyName="all", PolicyDocument=policy("s3:*"))
    store.client.create_bucket(Bucket="own")
    store.client.put_object(Bucket="own", Key="k", Body=b"SECRET")
    get, put, allowed = (held(store, method, "/own/k", key, secret) for method in ("GET", "PUT", "GET"))

    assert allowed()[0] == 200
    iam.update_access_key(UserName="jo", AccessKeyId=key, Status="Inactive")
    assert get()[0] == 403 and put()[0] == 403
    assert store.bytes("own", "k") == b"SECRET"


def test_copies_in_a_queue_end_with_the_key_of_their_sender(store):
    iam, key, secret = user_with_key(store)
    iam.put_user_policy(UserName="jo", PolicyName="all", PolicyDocument=policy("s3:*"))
    store.client.create_bucket(Bucket="own")
    store.client.put_object(Bucket="own", Key="source", Body=b"x" * (32 << 20))
    user = Wire(store)
    user.access_key, user.secret_key = key, secret
    asked = {"x-amz-copy-source": "/own/source", "x-amz-checksum-algorithm": "SHA256"}

    with contextlib.ExitStack() as stack:
        connections = {f"copy{i}": stack.enter_context(user.connect()) for i in range(48)}
        for name, connection in connections.items():
            head = user.sign("PUT", f"/own/{name}", headers=asked) | {"content-length": "0"}
            connection.sendall(user.head("PUT", f"/own/{name}", head))
        settle(store)
        iam.delete_access_key(UserName="jo", AccessKeyId=key)
        replies = {name: user.read(connection) for name, connection in connections.items()}

    refused = [name for name, reply in replies.items() if reply.status == 403]
    assert refused and {replies[name].code for name in refused} == {"InvalidAccessKeyId"}
    made = {name for name, reply in replies.items() if reply.status == 200}
    assert made | set(refused) == set(connections) and set(store.keys("own")) == made | {"source"}


def test_no_user_is_created_after_the_key_of_the_sender_was_deleted(store):
    iam, key, secret = user_with_key(store)
    iam.put_user_policy(UserName="jo", PolicyName="all", PolicyDocument=policy("iam:CreateUser"))

    def request(keys, action, **parameters):
        body = urllib.parse.urlencode({"Version": "2010-05-08", "Action": action, "UserName": "jo"} | parameters).encode()
        signed = AWSRequest("POST", store.endpoint + "/", data=body, headers={"Content-Type": "application/x-www-form-urlencoded"})
        SigV4Auth(Credentials(*keys), "iam", "us-east-1").add_auth(signed)
        return wire.head("POST", "/", dict(signed.headers) | {"Host": store.address, "Content-Length": str(len(body))}) + body

    wire = Wire(store)
    creations = [request((key, secret), "CreateUser", UserName=f"new{i}") for i in range(100)]
    deletion = request((store.access_key, store.secret_key), "DeleteAccessKey", AccessKeyId=key)
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(wire.connect()) for _ in range(101)]
        for connection, sent in zip(connections, [*creations[:30], deletion, *creations[30:]]):
            connection.sendall(sent)
        assert wire.read(connections[30]).status == 200
        users = len(iam.list_users(MaxItems=1000)["Users"])
        statuses = [wire.read(connection).status for connection in connections[:30] + connections[31:]]

    assert len(iam.list_users(MaxItems=1000)["Users"]) == users == 1 + statuses.count(200)


def fetch(url, method="GET", body=None):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data=body, method=method, headers={"Content-Type": ""})) as reply:
            return reply.status
    except urllib.error.HTTPError as failure:
        return failure.code


def presigned_v2(store, method, path):
    until = int(time.time()) + 600
    digest = hmac.new(store.secret_key.encode(), f"{method}\n\n\n{until}\n{path}".encode(), "sha1").digest()
    query = {"AWSAccessKeyId": store.access_key, "Expires": until, "Signature": base64.b64encode(digest).decode()}
    return f"{store.endpoint}{path}?{urllib.parse.urlencode(query)}"


@pytest.mark.parametrize("sub", ["policy", "acl", "publicAccessBlock", "ownershipControls", "object-lock", "encryption", "logging",
                                 "lifecycle", "cors", "notification", "replication", "policyStatus"])  # fmt: skip
def test_a_url_of_version_2_is_for_one_operation(store, sub):
    store.client.create_bucket(Bucket="own", ObjectLockEnabledForBucket=True)
    store.client.put_bucket_policy(Bucket="own", Policy=everyone("own").replace('"Allow"', '"Deny"').replace("s3:*", "s3:DeleteBucket"))
    url = presigned_v2(store, "GET", "/own")

    assert fetch(url) == 200
    assert fetch(f"{url}&{sub}") == 403


def test_a_url_of_version_2_to_put_an_object_locks_nothing(store):
    store.client.create_bucket(Bucket="own", ObjectLockEnabledForBucket=True)
    store.client.put_object(Bucket="own", Key="k", Body=b"x")
    url = presigned_v2(store, "PUT", "/own/k")

    assert fetch(url + "&legal-hold", "PUT", b"<LegalHold><Status>ON</Status></LegalHold>") == 403
    assert refused(store.client.get_object_legal_hold, Bucket="own", Key="k") == "NoSuchObjectLockConfiguration"


@pytest.mark.parametrize("action, options", [
    ("s3:PutBucketAcl", {"ACL": "public-read-write"}),
    ("s3:PutBucketOwnershipControls", {"ObjectOwnership": "BucketOwnerEnforced"}),
    ("s3:PutBucketObjectLockConfiguration", {"ObjectLockEnabledForBucket": True}),
    ("s3:PutBucketVersioning", {"ObjectLockEnabledForBucket": True}),
])  # fmt: skip
def test_a_new_bucket_gets_what_its_maker_may_give_it(store, action, options):
    iam, key, secret = user_with_key(store)
    iam.put_user_policy(UserName="jo", PolicyName="all", PolicyDocument=policy("s3:*"))
    iam.put_user_policy(UserName="jo", PolicyName="no", PolicyDocument=policy(action, effect="Deny"))
    s3 = client(store, "s3", key, secret)

    assert refused(s3.create_bucket, Bucket="new", **options) == "AccessDenied"
    s3.create_bucket(Bucket="new")
    iam.delete_user_policy(UserName="jo", PolicyName="no")
    s3.create_bucket(Bucket="next", **options)


@pytest.mark.parametrize("action", ["s3:TagResource", "s3:PutBucketTagging"])
def test_a_new_bucket_gets_tags_only_from_a_sender_who_may_set_them(store, action):
    iam, key, secret = user_with_key(store)
    iam.put_user_policy(UserName="jo", PolicyName="all", PolicyDocument=policy("s3:*"))
    iam.put_user_policy(UserName="jo", PolicyName="no", PolicyDocument=policy(action, effect="Deny"))
    user = Wire(store)
    user.access_key, user.secret_key = key, secret
    tags = b"<CreateBucketConfiguration><Tags><Tag><Key>k</Key><Value>v</Value></Tag></Tags></CreateBucketConfiguration>"

    assert user.send("PUT", "/new", body=tags).code == "AccessDenied"
    assert user.send("PUT", "/new").status == 200
    iam.delete_user_policy(UserName="jo", PolicyName="no")
    assert user.send("PUT", "/next", body=tags).status == 200


def deny(action, condition):
    statement = {"Effect": "Deny", "Principal": "*", "Action": action, "Resource": "arn:aws:s3:::own/*", "Condition": condition}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


@pytest.mark.parametrize("condition", [
    {"Null": {"s3:if-none-match": "true"}, "Bool": {"s3:ObjectCreationOperation": "true"}},
    {"StringEquals": {"s3:ResourceAccount": "000000000000"}},
    {"StringEquals": {"aws:ResourceAccount": "000000000000"}},
    {"NotIpAddress": {"aws:SourceIp": "192.0.2.0/24"}, "Bool": {"aws:ViaAWSService": "false", "aws:PrincipalIsAWSService": "false"}},
])  # fmt: skip
def test_a_condition_that_denies_is_held(store, condition):
    store.client.create_bucket(Bucket="own")
    store.client.put_bucket_policy(Bucket="own", Policy=deny("s3:PutObject", condition))

    assert refused(store.client.put_object, Bucket="own", Key="k", Body=b"1") == "AccessDenied"


@pytest.mark.parametrize("key, value", [("s3:RequestObjectTag/clearance", "top"), ("s3:RequestObjectTagKeys", "clearance")])
def test_a_header_of_a_copy_does_not_hide_the_tags_of_an_upload(store, key, value):
    store.client.create_bucket(Bucket="own")
    store.client.put_object(Bucket="own", Key="source", Body=b"x")
    store.client.put_bucket_policy(Bucket="own", Policy=deny("s3:PutObject", {"ForAnyValue:StringEquals": {key: value}}))
    wire = Wire(store)
    tags, copy = {"x-amz-tagging": "clearance=top"}, {"x-amz-copy-source": "own/source"}

    assert wire.send("POST", "/own/k", "uploads=", headers=tags).code == "AccessDenied"
    assert wire.send("POST", "/own/k", "uploads=", headers=tags | copy).code == "AccessDenied"
    assert wire.send("PUT", "/own/k", headers=tags | copy | {"x-amz-tagging-directive": "REPLACE"}).code == "AccessDenied"
    assert wire.send("PUT", "/own/k", headers=tags | copy).status == 200
    assert "TagCount" not in store.client.get_object(Bucket="own", Key="k")


def test_parts_are_no_creation_of_an_object(store):
    store.client.create_bucket(Bucket="own")
    condition = {"Null": {"s3:if-none-match": "true"}, "Bool": {"s3:ObjectCreationOperation": "true"}}
    store.client.put_bucket_policy(Bucket="own", Policy=deny("s3:PutObject", condition))
    upload = {"Bucket": "own", "Key": "k"}
    upload["UploadId"] = store.client.create_multipart_upload(**upload)["UploadId"]
    etag = store.client.upload_part(PartNumber=1, Body=b"x", **upload)["ETag"]
    parts = {"Parts": [{"PartNumber": 1, "ETag": etag}]}

    assert refused(store.client.complete_multipart_upload, MultipartUpload=parts, **upload) == "AccessDenied"


@pytest.mark.parametrize("key", ["s3:BucketTag/a", "s3:LocationConstraint", "s3:ResourceTag/a"])
def test_a_condition_without_a_value_is_refused(store, key):
    store.client.create_bucket(Bucket="own")
    iam, _, _ = user_with_key(store)
    statement = {"Effect": "Deny", "Action": "s3:*", "Resource": "*", "Condition": {"StringEquals": {key: "x"}}}
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})

    assert refused(store.client.put_bucket_policy, Bucket="own", Policy=deny("s3:PutObject", {"StringEquals": {key: "x"}})) == "MalformedPolicy"
    assert refused(iam.put_user_policy, UserName="jo", PolicyName="p", PolicyDocument=document) == "MalformedPolicyDocument"


def test_tags_of_a_copy_are_those_of_its_source(store):
    """Tags in an unused header do not satisfy a condition, and a sender without the right to set
    tags gets no copy with tags."""
    store.client.create_bucket(Bucket="own")
    store.client.put_object(Bucket="own", Key="tagged", Body=b"x", Tagging="class=secret")
    iam, key, secret = user_with_key(store)
    s3 = client(store, "s3", key, secret)
    put = {"Effect": "Allow", "Action": "s3:PutObject", "Resource": "*", "Condition": {"StringEquals": {"s3:RequestObjectTag/class": "open"}}}
    read = {"Effect": "Allow", "Action": "s3:Get*", "Resource": "*"}
    iam.put_user_policy(UserName="jo", PolicyName="p", PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [put, read]}))
    copy = {"Bucket": "own", "Key": "copy", "CopySource": "own/tagged", "Tagging": "class=open"}

    assert refused(s3.copy_object, TaggingDirective="COPY", **copy) == "AccessDenied"
    s3.copy_object(TaggingDirective="REPLACE", **copy)
    iam.put_user_policy(UserName="jo", PolicyName="p", PolicyDocument=policy("s3:*"))
    iam.put_user_policy(UserName="jo", PolicyName="no", PolicyDocument=policy("s3:PutObjectTagging", effect="Deny"))
    assert refused(s3.copy_object, Bucket="own", Key="next", CopySource="own/tagged") == "AccessDenied"


def test_a_policy_for_all_actions_does_not_pass_on_the_bucket(accounts):  # noqa: F811
    accounts.client.create_bucket(Bucket="own")
    accounts.client.put_bucket_policy(Bucket="own", Policy=everyone("own"))

    for s3 in (other(accounts, "s3"), accounts.boto3(signature_version=UNSIGNED)):
        s3.put_object(Bucket="own", Key="k", Body=b"x")
        assert refused(s3.get_bucket_policy, Bucket="own") == "MethodNotAllowed"
        assert refused(s3.put_bucket_policy, Bucket="own", Policy=everyone("own")) == "MethodNotAllowed"
        assert refused(s3.delete_bucket_policy, Bucket="own") == "MethodNotAllowed"
    assert accounts.client.get_bucket_policy(Bucket="own")["Policy"] == everyone("own")


def test_a_denied_unsigned_payload_is_denied_in_a_url(store):
    store.client.create_bucket(Bucket="own")
    store.client.put_bucket_policy(Bucket="own", Policy=deny("s3:PutObject", {"StringEquals": {"s3:x-amz-content-sha256": "UNSIGNED-PAYLOAD"}}))
    wire = Wire(store)
    host = {"host": f"{wire.host}:{wire.port}"}

    assert wire.send("PUT", "/own/k", body=b"x").status == 200
    assert wire.send("PUT", "/own/k", body=b"x", payload="UNSIGNED-PAYLOAD").code == "AccessDenied"
    assert wire.raw("PUT", "/own/k?" + wire.presign("PUT", "/own/k"), host, b"x").code == "AccessDenied"


def sent_early(s3):
    """Adds a header with tomorrow's date to requests whose document has another date."""
    near = (datetime.now(timezone.utc) + timedelta(days=1)).isoformat()
    s3.meta.events.register("before-sign.s3", lambda request, **_: request.headers.add_header("x-amz-object-lock-retain-until-date", near))


def retention(days):
    until = datetime.now(timezone.utc) + timedelta(days=days)
    return {"Bucket": "own", "Key": "k", "Retention": {"Mode": "GOVERNANCE", "RetainUntilDate": until}}


def test_a_policy_limits_the_locks_of_a_document(store):
    """A condition on the lock's date checks the date of the document, not that of the header."""
    store.client.create_bucket(Bucket="own", ObjectLockEnabledForBucket=True)
    store.client.put_object(Bucket="own", Key="k", Body=b"x")
    iam, key, secret = user_with_key(store)
    s3 = client(store, "s3", key, secret)
    days = {"NumericLessThanEquals": {"s3:object-lock-remaining-retention-days": "10"}}
    hold = {"StringEquals": {"s3:object-lock-legal-hold": "ON"}}
    statements = [{"Effect": "Allow", "Action": action, "Resource": "*", "Condition": condition}
                  for action, condition in (("s3:PutObjectRetention", days), ("s3:PutObjectLegalHold", hold))]  # fmt: skip
    iam.put_user_policy(UserName="jo", PolicyName="p", PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": statements}))

    sent_early(s3)
    s3.put_object_retention(**retention(5))
    assert refused(s3.put_object_retention, **retention(50)) == "AccessDenied"
    assert refused(s3.put_object_retention, Bucket="own", Key="k", Retention={}) == "AccessDenied"
    s3.put_object_legal_hold(Bucket="own", Key="k", LegalHold={"Status": "ON"})
    assert refused(s3.put_object_legal_hold, Bucket="own", Key="k", LegalHold={"Status": "OFF"}) == "AccessDenied"


def test_a_policy_limits_the_bypass_of_a_lock_by_its_document(store):
    store.client.create_bucket(Bucket="own", ObjectLockEnabledForBucket=True)
    store.client.put_object(Bucket="own", Key="k", Body=b"x")
    store.client.put_object_retention(**retention(50))
    iam, key, secret = user_with_key(store)
    s3 = client(store, "s3", key, secret)
    days = {"NumericLessThanEquals": {"s3:object-lock-remaining-retention-days": "10"}}
    statements = [{"Effect": "Allow", "Action": "s3:PutObjectRetention", "Resource": "*"},
                  {"Effect": "Allow", "Action": "s3:BypassGovernanceRetention", "Resource": "*", "Condition": days}]  # fmt: skip
    iam.put_user_policy(UserName="jo", PolicyName="p", PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": statements}))
    sent_early(s3)

    assert refused(s3.put_object_retention, BypassGovernanceRetention=True, **retention(20)) == "AccessDenied"
    s3.put_object_retention(BypassGovernanceRetention=True, **retention(5))


def test_headers_of_a_reply_need_the_right_to_read_the_same(store):
    """The right to read an object does not include its lock and the number of its tags."""
    store.client.create_bucket(Bucket="own", ObjectLockEnabledForBucket=True)
    store.client.put_object(Bucket="own", Key="k", Body=b"x", Tagging="a=b")
    store.client.put_object_retention(**retention(5))
    store.client.put_object_legal_hold(Bucket="own", Key="k", LegalHold={"Status": "ON"})
    iam, key, secret = user_with_key(store)
    wire = Wire(store)
    wire.access_key, wire.secret_key = key, secret
    shown = {
        "s3:GetObjectRetention": {"x-amz-object-lock-mode", "x-amz-object-lock-retain-until-date"},
        "s3:GetObjectLegalHold": {"x-amz-object-lock-legal-hold"},
        "s3:GetObjectTagging": {"x-amz-tagging-count"},
        "s3:*": set(),
    }
    shown["s3:*"] = set().union(*shown.values())

    for action, names in {"s3:GetObject": set(), **shown}.items():
        iam.put_user_policy(UserName="jo", PolicyName="p", PolicyDocument=policy("s3:GetObject", action))
        for method in "GET", "HEAD":
            assert wire.send(method, "/own/k").headers.keys() & shown["s3:*"] == names, (method, action)


@pytest.mark.parametrize("source", ["own/k", "/own/k", "own%2Fk", "own/k?versionId={version}"])
def test_a_condition_on_the_source_of_a_copy_holds_for_its_versions(store, source):
    store.client.create_bucket(Bucket="own")
    store.client.put_bucket_versioning(Bucket="own", VersioningConfiguration={"Status": "Enabled"})
    version = store.client.put_object(Bucket="own", Key="k", Body=b"x")["VersionId"]
    store.client.put_bucket_policy(Bucket="own", Policy=deny("s3:PutObject", {"StringEquals": {"s3:x-amz-copy-source": "own/k"}}))

    assert Wire(store).send("PUT", "/own/copy", headers={"x-amz-copy-source": source.format(version=version)}).code == "AccessDenied"


def test_a_copy_does_not_show_that_a_version_is_missing(store):
    """Neither a copy nor a GET shows whether the object exists."""
    store.client.create_bucket(Bucket="own")
    store.client.put_bucket_versioning(Bucket="own", VersioningConfiguration={"Status": "Enabled"})
    store.client.put_object(Bucket="own", Key="k", Body=b"x")
    iam, key, secret = user_with_key(store)
    s3 = client(store, "s3", key, secret)
    objects = ["s3:GetObject", "s3:GetObjectVersion", "s3:PutObject"]
    copy = {"Bucket": "own", "Key": "copy"}
    iam.put_user_policy(UserName="jo", PolicyName="p", PolicyDocument=policy(*objects))
    upload = s3.create_multipart_upload(**copy)["UploadId"]

    for actions, code in ((objects, "AccessDenied"), (["s3:ListBucket", *objects], "NoSuchVersion")):
        iam.put_user_policy(UserName="jo", PolicyName="p", PolicyDocument=policy(*actions))
        for missing in "k", "none":
            source = f"own/{missing}?versionId=0000000000000001"
            assert refused(s3.copy_object, CopySource=source, **copy) == code
            assert refused(s3.upload_part_copy, CopySource=source, UploadId=upload, PartNumber=1, **copy) == code
            assert refused(s3.get_object, Bucket="own", Key=missing, VersionId="0000000000000001") == code


def test_a_change_under_a_condition_needs_the_right_to_read(store):
    """The reply to a conditional change shows whether an object with this ETag exists."""
    store.client.create_bucket(Bucket="own")
    store.client.put_object(Bucket="own", Key="source", Body=b"x")
    iam, key, secret = user_with_key(store)
    wire = Wire(store)
    wire.access_key, wire.secret_key = key, secret
    changes = ["s3:PutObject", "s3:DeleteObject"]
    wrong = {"if-match": '"0"'}
    item = "<Object><Key>{}</Key><ETag>0</ETag></Object>"
    several = f"<Delete>{item.format('k')}{item.format('none')}</Delete>".encode()

    def codes(*actions):
        """Returns the codes for each key, and the number of keys of a multi-delete that are denied. The object "none" is missing."""
        store.client.put_object(Bucket="own", Key="k", Body=b"x")
        iam.put_user_policy(UserName="jo", PolicyName="p", PolicyDocument=policy(*changes, *actions))
        found = {}
        for name in "k", "none":
            sent = [wire.send("PUT", f"/own/{name}", headers=wrong), wire.send("DELETE", f"/own/{name}", headers=wrong),
                    wire.send("DELETE", f"/own/{name}", headers={"x-amz-if-match-size": "7"}),
                    wire.send("PUT", f"/own/{name}", headers=wrong | {"x-amz-copy-source": "own/source"})]  # fmt: skip
            found[name] = [reply.code for reply in sent]
        listed = wire.send("POST", "/own", "delete=", body=several)
        return found, listed.body.count(b"<Code>AccessDenied</Code>")

    assert codes() == ({"k": ["AccessDenied"] * 4, "none": ["AccessDenied"] * 4}, 2)
    failed = "PreconditionFailed"
    assert codes("s3:GetObject", "s3:ListBucket") == ({"k": [failed] * 4, "none": ["NoSuchKey", None, None, "NoSuchKey"]}, 0)
    iam.put_user_policy(UserName="jo", PolicyName="p", PolicyDocument=policy(*changes))
    assert wire.send("PUT", "/own/k", headers={"if-none-match": "*"}).code == failed
    assert wire.send("DELETE", "/own/k", headers={"if-match": "*"}).status == 204


def test_a_change_unless_the_etag_is_the_same_needs_the_right_to_read(store):
    """The reply shows whether the object has this ETag, which is the MD5 of its content."""
    store.client.create_bucket(Bucket="own")
    store.client.put_object(Bucket="own", Key="k", Body=b"yes")
    store.client.put_object(Bucket="own", Key="source", Body=b"x")
    iam, key, secret = user_with_key(store)
    wire = Wire(store)
    wire.access_key, wire.secret_key = key, secret
    iam.put_user_policy(UserName="jo", PolicyName="p", PolicyDocument=policy("s3:PutObject", "s3:DeleteObject"))
    iam.put_user_policy(UserName="jo", PolicyName="source", PolicyDocument=policy("s3:GetObject", resource="arn:aws:s3:::own/source"))
    part = client(store, "s3", key, secret)
    upload = part.create_multipart_upload(Bucket="own", Key="k")["UploadId"]
    etag = part.upload_part(Bucket="own", Key="k", UploadId=upload, PartNumber=1, Body=b"x")["ETag"]
    parts = f"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part></CompleteMultipartUpload>".encode()

    def codes(etag):
        unless = {"if-none-match": etag}
        sent = [wire.send("PUT", "/own/k", headers=unless), wire.send("PUT", "/own/k", headers=unless | {"x-amz-copy-source": "own/source"}),
                wire.send("POST", "/own/k", f"uploadId={upload}", headers=unless, body=parts),
                wire.send("DELETE", "/own/k", headers=unless)]  # fmt: skip
        return [reply.code for reply in sent]

    same = f'"{hashlib.md5(b"yes").hexdigest()}"'
    assert codes(same) == codes('"0"') == ["AccessDenied"] * 4
    assert codes("*") == ["PreconditionFailed"] * 4
    iam.put_user_policy(UserName="jo", PolicyName="source", PolicyDocument=policy("s3:GetObject"))
    assert codes(same) == ["PreconditionFailed"] * 4
    assert store.bytes("own", "k") == b"yes"
    assert codes('"0"') == [None] * 4

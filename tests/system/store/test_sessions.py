"""Temporary keys: AssumeRole and GetSessionToken, as boto3's clients of STS, IAM and S3 see them."""
import base64
import hashlib
import hmac
import json
import re
import sqlite3
import time
import urllib.parse
from pathlib import Path

import pytest

from harness.s3_wire import Wire
from store.test_iam import OTHER, accounts, client, other, policy, refused, user_with_key  # noqa: F401

ROOT = "arn:aws:iam::000000000000:root"


def session_client(store, service, credentials, token=None):
    keys = credentials["AccessKeyId"], credentials["SecretAccessKey"], token or credentials["SessionToken"]
    return store.boto3(service=service, keys=keys, signature_version="s3v4" if service == "s3" else "v4")


def trust(principal, **condition):
    statement = {"Effect": "Allow", "Principal": {"AWS": principal}, "Action": "sts:AssumeRole"}
    if condition:
        statement["Condition"] = condition
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def role(store, name, principal, *actions, **condition):
    iam = client(store, "iam")
    arn = iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust(principal, **condition))["Role"]["Arn"]
    if actions:
        iam.put_role_policy(RoleName=name, PolicyName="p", PolicyDocument=policy(*actions))
    return arn


def assume(store, arn, service="sts", credentials=None, **arguments):
    sts = session_client(store, "sts", credentials) if credentials else client(store, "sts")
    return sts.assume_role(RoleArn=arn, RoleSessionName="work", **arguments)["Credentials"]


def test_a_session_may_do_what_its_role_may_and_no_more_than_its_own_policy(store):
    store.client.create_bucket(Bucket="data")
    store.client.put_object(Bucket="data", Key="k", Body=b"x")
    arn = role(store, "reader", ROOT, "s3:GetObject", "s3:ListBucket")
    reply = client(store, "sts").assume_role(RoleArn=arn, RoleSessionName="work")
    s3 = session_client(store, "s3", reply["Credentials"])

    assert reply["AssumedRoleUser"]["Arn"] == "arn:aws:sts::000000000000:assumed-role/reader/work"
    assert 3500 < reply["Credentials"]["Expiration"].timestamp() - time.time() < 3700
    assert s3.get_object(Bucket="data", Key="k")["Body"].read() == b"x"
    assert refused(s3.put_object, Bucket="data", Key="k", Body=b"y") == "AccessDenied"
    caller = session_client(store, "sts", reply["Credentials"]).get_caller_identity()
    assert caller["Arn"] == reply["AssumedRoleUser"]["Arn"] and caller["UserId"] == reply["AssumedRoleUser"]["AssumedRoleId"]
    narrow = session_client(store, "s3", assume(store, arn, Policy=policy("s3:ListBucket")))
    assert narrow.list_objects_v2(Bucket="data")["KeyCount"] == 1
    assert refused(narrow.get_object, Bucket="data", Key="k") == "AccessDenied"
    builtin = assume(store, arn, PolicyArns=[{"arn": "arn:aws:iam::aws:policy/IAMFullAccess"}])
    assert refused(session_client(store, "s3", builtin).get_object, Bucket="data", Key="k") == "AccessDenied"


def test_a_session_in_urls_and_after_a_restart(store, tmp_path):
    import urllib.request

    store.client.create_bucket(Bucket="data")
    store.client.put_object(Bucket="data", Key="k", Body=b"x")
    credentials = assume(store, role(store, "reader", ROOT, "s3:GetObject"))
    store.process.kill()
    store.process.wait()
    store.start()

    s3 = session_client(store, "s3", credentials)
    assert s3.get_object(Bucket="data", Key="k")["Body"].read() == b"x"
    with urllib.request.urlopen(s3.generate_presigned_url("get_object", Params={"Bucket": "data", "Key": "k"})) as reply:
        assert reply.read() == b"x"


def test_tokens_that_are_not_those_of_the_key(store):
    store.client.create_bucket(Bucket="data")
    arn = role(store, "reader", ROOT, "s3:*")
    first, second = assume(store, arn), assume(store, arn)
    damaged = first["SessionToken"][:-8] + "AAAAAAA="

    session_client(store, "s3", first).list_objects_v2(Bucket="data")
    for token in (second["SessionToken"], damaged, "AAAA", "not base64!"):
        assert refused(session_client(store, "s3", first, token).list_objects_v2, Bucket="data") == "InvalidToken", token
    assert refused(client(store, "s3", first["AccessKeyId"], first["SecretAccessKey"]).list_objects_v2, Bucket="data") == "InvalidToken"
    fresh = assume(store, arn)
    assert refused(client(store, "s3", fresh["AccessKeyId"], fresh["SecretAccessKey"]).list_objects_v2, Bucket="data") == "InvalidAccessKeyId"
    keys = {"AccessKeyId": store.access_key, "SecretAccessKey": store.secret_key}
    assert refused(session_client(store, "s3", keys, first["SessionToken"]).list_objects_v2, Bucket="data") == "InvalidToken"


def forge(store, credentials, **changes):
    """Returns a token with changed terms, signed with the store's own key."""
    with sqlite3.connect(store.root / "meta.db") as db:
        key = bytes.fromhex(json.loads(db.execute("SELECT value FROM meta WHERE name = 'iam/session-key'").fetchone()[0])["key"])
    terms = json.loads(base64.b64decode(credentials["SessionToken"])[32:])
    text = json.dumps({**terms, **changes}).encode()
    return base64.b64encode(hmac.new(key, b"penstock session token\0" + text, hashlib.sha256).digest() + text).decode()


def test_a_session_ends(store):
    store.client.create_bucket(Bucket="data")
    credentials = assume(store, role(store, "reader", ROOT, "s3:*"))

    session_client(store, "s3", credentials, forge(store, credentials)).list_objects_v2(Bucket="data")
    store.process.kill()
    store.process.wait()
    store.start()
    expired = session_client(store, "s3", credentials, forge(store, credentials, expires=int(time.time()) - 1))
    assert refused(expired.list_objects_v2, Bucket="data") == "ExpiredToken"
    iam = client(store, "iam")
    iam.delete_role_policy(RoleName="reader", PolicyName="p")
    assert refused(session_client(store, "s3", credentials).list_objects_v2, Bucket="data") == "AccessDenied"
    iam.delete_role(RoleName="reader")
    role(store, "reader", ROOT, "s3:*")
    assert refused(session_client(store, "s3", credentials).list_objects_v2, Bucket="data") == "InvalidToken"


def test_roles_are_assumed_by_those_that_their_trust_policy_names(accounts):  # noqa: F811
    iam, key, secret = user_with_key(accounts)
    jo = client(accounts, "sts", key, secret)
    named = role(accounts, "named", "arn:aws:iam::000000000000:user/jo")
    delegated = role(accounts, "delegated", ROOT)
    foreign = role(accounts, "foreign", OTHER["number"], StringEquals={"sts:ExternalId": "agreed"})
    arguments = {"RoleSessionName": "work"}

    jo.assume_role(RoleArn=named, **arguments)
    assert refused(jo.assume_role, RoleArn=delegated, **arguments) == "AccessDenied"
    iam.put_user_policy(UserName="jo", PolicyName="p", PolicyDocument=policy("sts:AssumeRole", resource=delegated))
    jo.assume_role(RoleArn=delegated, **arguments)
    assert refused(jo.assume_role, RoleArn=foreign, **arguments) == "AccessDenied"
    assert refused(jo.assume_role, RoleArn="arn:aws:iam::000000000000:role/none", **arguments) == "AccessDenied"
    iam.put_user_policy(UserName="jo", PolicyName="no", PolicyDocument=policy("sts:AssumeRole", effect="Deny"))
    assert refused(jo.assume_role, RoleArn=named, **arguments) == "AccessDenied"

    theirs = other(accounts, "iam").create_policy(PolicyName="p", PolicyDocument=policy("s3:*"))["Policy"]["Arn"]
    sts = client(accounts, "sts")
    assert refused(sts.assume_role, RoleArn=delegated, PolicyArns=[{"arn": theirs}], **arguments) == "MalformedPolicyDocument"
    sts = other(accounts, "sts")
    assert refused(sts.assume_role, RoleArn=foreign, **arguments) == "AccessDenied"
    assert refused(sts.assume_role, RoleArn=foreign, ExternalId="guessed", **arguments) == "AccessDenied"
    assert refused(sts.assume_role, RoleArn=named, **arguments) == "AccessDenied"
    session = sts.assume_role(RoleArn=foreign, ExternalId="agreed", **arguments)
    assert session["AssumedRoleUser"]["Arn"] == "arn:aws:sts::000000000000:assumed-role/foreign/work"
    assert session_client(accounts, "sts", session["Credentials"]).get_caller_identity()["Account"] == "000000000000"


def test_limits_of_a_session(store):
    iam, arn = client(store, "iam"), role(store, "reader", ROOT, "*")
    sts, arguments = client(store, "sts"), {"RoleArn": arn, "RoleSessionName": "work"}

    assert refused(sts.assume_role, DurationSeconds=3601, **arguments) == "ValidationError"
    iam.update_role(RoleName="reader", MaxSessionDuration=7200, Description="longer")
    session = sts.assume_role(DurationSeconds=7200, **arguments)["Credentials"]
    assert iam.get_role(RoleName="reader")["Role"]["Description"] == "longer"
    assert refused(sts.assume_role, SerialNumber="arn:aws:iam::000000000000:mfa/x", TokenCode="123456", **arguments) == "NotImplemented"
    assert refused(sts.assume_role, Tags=[{"Key": "a", "Value": "b"}], **arguments) == "NotImplemented"
    assert refused(sts.assume_role, Policy="{}", **arguments) == "MalformedPolicyDocument"
    assert refused(sts.assume_role, PolicyArns=[{"arn": "arn:aws:iam::000000000000:policy/none"}], **arguments) == "MalformedPolicyDocument"
    assert refused(sts.assume_role, RoleArn=arn, RoleSessionName="a name") == "ValidationError"
    chained = session_client(store, "sts", session)
    assert refused(chained.assume_role, DurationSeconds=7200, **arguments) == "ValidationError"
    iam.update_assume_role_policy(RoleName="reader", PolicyDocument=trust("arn:aws:iam::000000000000:role/reader"))
    chained.assume_role(**arguments)
    session_client(store, "iam", session).create_user(UserName="made")
    assert [user["UserName"] for user in iam.list_users()["Users"]] == ["made"]


@pytest.mark.parametrize("more, code", [
    ({"PolicyArns.member.2.arn": "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"}, "NotImplemented"),
    ({"PolicyArns.member.1.Arn": "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"}, "NotImplemented"),
    ({"policy": policy("s3:GetObject")}, "NotImplemented"),
    ({"Policy": [policy("s3:*"), policy("s3:GetObject")]}, "ValidationError"),
    ({"Tags.member.2.Key": "a"}, "NotImplemented"),
    ({"ProvidedContexts.member.1.ProviderArn": "x"}, "NotImplemented"),
    ({"PolicyArns": "", "Tags": "", "TransitiveTagKeys": "", "ProvidedContexts": ""}, None),
    ({"PolicyArns.member.1.arn": "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess", "Policy": policy("s3:GetObject")}, None),
])  # fmt: skip
def test_a_parameter_that_is_not_read_gives_no_keys(store, more, code):
    """A parameter that the store ignores may be meant to limit the keys."""
    parameters = {"Action": "AssumeRole", "Version": "2011-06-15", "RoleArn": role(store, "reader", ROOT, "s3:*"), "RoleSessionName": "work",
                  "DurationSeconds": "900", "ExternalId": "x"}  # fmt: skip
    wire = Wire(store)
    wire.service = "sts"

    reply = wire.send("POST", "/", headers={"content-type": "application/x-www-form-urlencoded"},
                      body=urllib.parse.urlencode({**parameters, **more}, doseq=True).encode())  # fmt: skip

    assert reply.code == code and (b"<SecretAccessKey>" in reply.body) == (code is None)


def test_a_session_token_has_the_rights_of_its_user_until_its_key_is_deleted(store):
    store.client.create_bucket(Bucket="data")
    iam, key, secret = user_with_key(store)
    iam.put_user_policy(UserName="jo", PolicyName="p", PolicyDocument=policy("s3:*", "iam:*"))
    credentials = client(store, "sts", key, secret).get_session_token(DurationSeconds=900)["Credentials"]
    s3 = session_client(store, "s3", credentials)

    s3.put_object(Bucket="data", Key="k", Body=b"x")
    assert session_client(store, "sts", credentials).get_caller_identity()["Arn"] == "arn:aws:iam::000000000000:user/jo"
    assert refused(session_client(store, "iam", credentials).list_users) == "InvalidClientTokenId"
    assert refused(session_client(store, "sts", credentials).get_session_token) == "AccessDenied"
    iam.update_access_key(UserName="jo", AccessKeyId=key, Status="Inactive")
    assert refused(s3.list_objects_v2, Bucket="data") == "InvalidToken"
    iam.update_access_key(UserName="jo", AccessKeyId=key, Status="Active")
    s3.list_objects_v2(Bucket="data")
    iam.delete_access_key(UserName="jo", AccessKeyId=key)
    assert refused(s3.list_objects_v2, Bucket="data") == "InvalidToken"
    root = client(store, "sts").get_session_token()["Credentials"]
    session_client(store, "s3", root).list_objects_v2(Bucket="data")
    assert refused(client(store, "sts").get_session_token, DurationSeconds=7200) == "ValidationError"


# Each key once had its own copy of the policies, ten times as large as their documents: 40 MB in
# all. A sanitizer keeps freed memory for a while.
def test_temporary_keys_share_the_policies_of_their_user(store):
    def resident():
        return int(re.search(r"^VmRSS:\s*(\d+)", Path(f"/proc/{store.process.pid}/status").read_text(), re.M).group(1)) * 1024

    def use(credentials):
        wire.access_key, wire.secret_key = credentials["AccessKeyId"], credentials["SecretAccessKey"]
        assert wire.send("GET", "/data", headers={"x-amz-security-token": credentials["SessionToken"]}).status == 200

    wire = Wire(store)
    store.client.create_bucket(Bucket="data")
    iam, key, secret = user_with_key(store)
    for i in range(10):
        document = policy("s3:ListBucket", *["a:b"] * 900)
        arn = iam.create_policy(PolicyName=f"p{i}", PolicyDocument=document.replace(" ", "").replace("a:b", f"a:{i}"))["Policy"]["Arn"]
        iam.attach_user_policy(UserName="jo", PolicyArn=arn)
    sts = client(store, "sts", key, secret)
    use(sts.get_session_token()["Credentials"])
    before = resident()

    for _ in range(80):
        use(sts.get_session_token()["Credentials"])

    assert resident() - before < 24 << 20


def test_the_program_assumes_a_role_of_a_profile(store, penstock, tmp_path):
    store.client.create_bucket(Bucket="bucket")
    arn = role(store, "trainer", ROOT, "s3:PutObject", "s3:ListBucket")
    (tmp_path / "config").write_text(
        f"[profile base]\naws_access_key_id = {store.access_key}\naws_secret_access_key = {store.secret_key}\n"
        f"[profile trainer]\nrole_arn = {arn}\nsource_profile = base\nduration_seconds = 900\n")  # fmt: skip
    (tmp_path / "file").write_bytes(b"by a role")
    environment = {"AWS_ENDPOINT_URL": store.endpoint, "AWS_CONFIG_FILE": str(tmp_path / "config"), "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
                   "AWS_PROFILE": "trainer", "AWS_EC2_METADATA_DISABLED": "true"}  # fmt: skip

    penstock.run("cp", tmp_path / "file", "s3://bucket/k", env=environment).ok()
    assert store.bytes("bucket", "k") == b"by a role"
    refused_copy = penstock.run("cp", "s3://bucket/k", tmp_path / "back", env=environment)
    assert refused_copy.code == 77 and "403" in refused_copy.err and store.secret_key not in refused_copy.text

"""Accounts, users, groups and their keys and policies, as boto3's clients of IAM, STS and S3 see them."""
import json
import re
import sqlite3

import pytest
from botocore.exceptions import ClientError

from harness.program import Store
from harness.s3_wire import Wire

OTHER = {"number": "111111111111", "name": "other", "email": "other@example.com", "id": "ab" * 32,
         "access_key_id": "OTHERKEY", "secret_access_key": "the secret of the other"}  # fmt: skip


def client(store, service, *keys):
    return store.boto3(service=service, keys=keys)


@pytest.fixture
def accounts(penstock, tmp_path):
    """A store with the account OTHER."""
    path = tmp_path / "accounts.json"
    path.write_text(json.dumps([OTHER]))
    store = Store(penstock, tmp_path / "store", access_key="FIRSTKEY", secret_key="the first secret", options=["--accounts", path])
    yield store
    store.stop()


def other(store, service):
    return client(store, service, OTHER["access_key_id"], OTHER["secret_access_key"])


def policy(*actions, resource="*", effect="Allow"):
    return json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": effect, "Action": list(actions), "Resource": resource}]})


def refused(call, **arguments):
    with pytest.raises(ClientError) as failure:
        call(**arguments)
    return failure.value.response["Error"]["Code"]


def user_with_key(store, name="jo"):
    iam = client(store, "iam")
    iam.create_user(UserName=name)
    key = iam.create_access_key(UserName=name)["AccessKey"]
    return iam, key["AccessKeyId"], key["SecretAccessKey"]


def test_a_user_may_do_what_its_policies_and_those_of_its_groups_allow(store):
    iam, key, secret = user_with_key(store)
    s3 = client(store, "s3", key, secret)
    store.client.create_bucket(Bucket="data")
    store.client.put_object(Bucket="data", Key="k", Body=b"x")

    assert refused(s3.get_object, Bucket="data", Key="k") == "AccessDenied"
    assert refused(s3.list_buckets) == "AccessDenied"
    iam.put_user_policy(UserName="jo", PolicyName="read", PolicyDocument=policy("s3:GetObject", resource="arn:aws:s3:::data/*"))
    assert s3.get_object(Bucket="data", Key="k")["Body"].read() == b"x"
    assert refused(s3.put_object, Bucket="data", Key="k", Body=b"y") == "AccessDenied"
    iam.create_group(GroupName="writers")
    iam.put_group_policy(GroupName="writers", PolicyName="write", PolicyDocument=policy("s3:PutObject"))
    iam.add_user_to_group(GroupName="writers", UserName="jo")
    s3.put_object(Bucket="data", Key="k", Body=b"y")
    iam.put_user_policy(UserName="jo", PolicyName="no", PolicyDocument=policy("s3:PutObject", effect="Deny"))
    assert refused(s3.put_object, Bucket="data", Key="k", Body=b"z") == "AccessDenied"
    iam.remove_user_from_group(GroupName="writers", UserName="jo")
    iam.delete_user_policy(UserName="jo", PolicyName="no")
    assert refused(s3.put_object, Bucket="data", Key="k", Body=b"z") == "AccessDenied"


def test_a_key_ends_when_it_is_inactive_or_deleted(store):
    iam, key, secret = user_with_key(store)
    sts = client(store, "sts", key, secret)

    assert sts.get_caller_identity()["Arn"] == "arn:aws:iam::000000000000:user/jo"
    iam.update_access_key(UserName="jo", AccessKeyId=key, Status="Inactive")
    assert refused(sts.get_caller_identity) == "InvalidClientTokenId"
    iam.update_access_key(UserName="jo", AccessKeyId=key, Status="Active")
    assert sts.get_caller_identity()["Account"] == "000000000000"
    assert refused(client(store, "sts", key, "wrong").get_caller_identity) == "SignatureDoesNotMatch"
    iam.delete_access_key(UserName="jo", AccessKeyId=key)
    assert refused(sts.get_caller_identity) == "InvalidClientTokenId"
    assert client(store, "sts").get_caller_identity()["Arn"] == "arn:aws:iam::000000000000:root"


def test_entities_are_listed_in_pages_and_deleted_when_they_are_empty(store):
    iam, key, _ = user_with_key(store)
    for name in ("a", "b", "c"):
        iam.create_user(UserName=name, Path="/team/")

    pages = iam.get_paginator("list_users").paginate(PathPrefix="/team/", PaginationConfig={"PageSize": 2})
    assert [user["UserName"] for page in pages for user in page["Users"]] == ["a", "b", "c"]
    assert iam.get_user(UserName="a")["User"]["Arn"] == "arn:aws:iam::000000000000:user/team/a"
    assert refused(iam.create_user, UserName="A") == "EntityAlreadyExists"
    assert refused(iam.get_user, UserName="none") == "NoSuchEntity"
    assert refused(iam.delete_user, UserName="jo") == "DeleteConflict"
    iam.delete_access_key(UserName="jo", AccessKeyId=key)
    iam.delete_user(UserName="jo")
    assert refused(iam.get_user, UserName="jo") == "NoSuchEntity"


def test_users_without_policies_manage_nothing_and_unknown_actions_are_refused_by_name(store):
    _, key, secret = user_with_key(store)
    iam = client(store, "iam")

    assert refused(client(store, "iam", key, secret).create_user, UserName="x") == "AccessDenied"
    assert refused(iam.create_login_profile, UserName="jo", Password="p") == "NotImplemented"
    assert refused(iam.put_user_policy, UserName="jo", PolicyName="p", PolicyDocument="{}") == "MalformedPolicyDocument"
    twice = json.dumps({"Version": "2012-10-17", "Statement": [{"Sid": "a", "Effect": "Allow", "Action": "*", "Resource": "*"}] * 2})
    assert refused(iam.put_user_policy, UserName="jo", PolicyName="p", PolicyDocument=twice) == "MalformedPolicyDocument"
    assert iam.list_open_id_connect_providers()["OpenIDConnectProviderList"] == []
    assert iam.get_account_summary()["SummaryMap"]["Users"] == 1
    assert refused(iam.create_user, UserName="t", Tags=[{"Key": "k", "Value": "v"}]) == "NotImplemented"


def test_what_was_changed_survives_a_kill(store):
    iam, key, secret = user_with_key(store)
    iam.put_user_policy(UserName="jo", PolicyName="all", PolicyDocument=policy("s3:*"))
    store.process.kill()
    store.process.wait()
    store.start()

    client(store, "s3", key, secret).create_bucket(Bucket="made")
    assert client(store, "iam").list_user_policies(UserName="jo")["PolicyNames"] == ["all"]


def test_accounts_have_their_own_buckets_and_users(accounts):
    mine, theirs = client(accounts, "s3"), other(accounts, "s3")
    mine.create_bucket(Bucket="mine")
    theirs.create_bucket(Bucket="theirs")
    theirs.put_object(Bucket="theirs", Key="k", Body=b"x")

    assert [b["Name"] for b in theirs.list_buckets()["Buckets"]] == ["theirs"]
    assert theirs.list_buckets()["Owner"]["ID"] == OTHER["id"]
    assert [b["Name"] for b in mine.list_buckets()["Buckets"]] == ["mine"]
    assert refused(mine.get_object, Bucket="theirs", Key="k") == "AccessDenied"
    assert refused(theirs.list_objects_v2, Bucket="mine") == "AccessDenied"
    assert refused(mine.create_bucket, Bucket="theirs") == "BucketAlreadyExists"
    theirs.head_bucket(Bucket="theirs", ExpectedBucketOwner=OTHER["number"])
    assert refused(theirs.head_bucket, Bucket="theirs", ExpectedBucketOwner="000000000000") == "403"
    other(accounts, "iam").create_user(UserName="jo")
    assert client(accounts, "iam").list_users()["Users"] == []
    accounts.process.kill()
    accounts.process.wait()
    accounts.start()
    assert [b["Name"] for b in other(accounts, "s3").list_buckets()["Buckets"]] == ["theirs"]


def test_an_account_has_at_most_ten_thousand_buckets(accounts):
    accounts.stop()
    with sqlite3.connect(accounts.root / "meta.db") as db:
        names = [(f"bucket-{i:05}",) for i in range(10_001)]
        db.executemany("INSERT INTO buckets(name, created) VALUES(?, 0)", names)
    accounts.start()
    mine, theirs = client(accounts, "s3"), other(accounts, "s3")

    assert refused(mine.create_bucket, Bucket="one-more") == "TooManyBuckets"
    wire = Wire(accounts)
    first = wire.send("GET", "/")
    token = re.search("<ContinuationToken>(.*)</ContinuationToken>", first.body.decode()).group(1)
    second = wire.send("GET", "/", f"continuation-token={token}")
    listed = [re.findall("<Name>(.*?)</Name>", reply.body.decode()) for reply in (first, second)]
    assert [len(names) for names in listed] == [10_000, 1] and [(name,) for name in sum(listed, [])] == names
    theirs.create_bucket(Bucket="theirs")
    assert [b["Name"] for b in theirs.list_buckets()["Buckets"]] == ["theirs"]


def test_a_bucket_policy_and_the_policy_of_a_user_let_another_account_in(accounts):
    theirs = other(accounts, "s3")
    theirs.create_bucket(Bucket="theirs")
    theirs.put_object(Bucket="theirs", Key="k", Body=b"x")
    iam, key, secret = user_with_key(accounts)
    jo = client(accounts, "s3", key, secret)
    document = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::000000000000:root"},
                "Action": "s3:GetObject", "Resource": "arn:aws:s3:::theirs/*"}]}  # fmt: skip
    theirs.put_bucket_policy(Bucket="theirs", Policy=json.dumps(document))

    assert client(accounts, "s3").get_object(Bucket="theirs", Key="k")["Body"].read() == b"x"
    assert refused(jo.get_object, Bucket="theirs", Key="k") == "AccessDenied"
    iam.put_user_policy(UserName="jo", PolicyName="p", PolicyDocument=policy("s3:GetObject"))
    assert jo.get_object(Bucket="theirs", Key="k")["Body"].read() == b"x"


def test_an_upload_belongs_to_the_account_that_began_it(accounts):
    mine, theirs = client(accounts, "s3"), other(accounts, "s3")
    mine.create_bucket(Bucket="open", ACL="public-read-write")
    own = mine.create_multipart_upload(Bucket="open", Key="a")["UploadId"]
    foreign = theirs.create_multipart_upload(Bucket="open", Key="b")["UploadId"]

    uploads = mine.list_multipart_uploads(Bucket="open")["Uploads"]
    assert [(found["Key"], found["Initiator"]["ID"] == OTHER["id"], found["Owner"]["ID"] == OTHER["id"]) for found in uploads] == [
        ("a", False, False), ("b", True, True)]  # fmt: skip
    assert refused(theirs.abort_multipart_upload, Bucket="open", Key="a", UploadId=own) == "AccessDenied"
    assert refused(theirs.list_parts, Bucket="open", Key="a", UploadId=own) == "AccessDenied"
    assert theirs.list_parts(Bucket="open", Key="b", UploadId=foreign)["Initiator"]["ID"] == OTHER["id"]
    theirs.abort_multipart_upload(Bucket="open", Key="b", UploadId=foreign)
    mine.abort_multipart_upload(Bucket="open", Key="a", UploadId=own)
    assert "Uploads" not in mine.list_multipart_uploads(Bucket="open")

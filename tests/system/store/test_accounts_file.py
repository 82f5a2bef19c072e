"""`penstock serve --accounts FILE`: the content of the file, the effect of a change, and the removal of an account."""
import json
import re
import sqlite3

import boto3
import pytest

from store.test_iam import OTHER, accounts, client, other, policy, refused, user_with_key  # noqa: F401

THIRD = {"number": "222222222222", "name": "third", "email": "third@example.com", "id": "cd" * 32,
         "access_key_id": "THIRDKEY", "secret_access_key": "the secret of the third"}  # fmt: skip


def restart(store, *entries):
    store.stop()
    store.options[1].write_text(json.dumps(entries))
    store.start()


def names(store, *keys):
    return [b["Name"] for b in client(store, "s3", *keys).list_buckets()["Buckets"]]


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"id": OTHER["id"]}, "account 2 of '.*': the id is that of another account"),
        ({"id": "70656e73746f636b" + "0" * 48}, "the id is that of the account 000000000000"),
        ({"email": "Other@Example.com"}, "the email address is that of another account"),
        ({"access_key_id": "OTHERKEY"}, "the access key has another owner"),
        ({"access_key_id": "FIRSTKEY"}, "the access key has another owner"),
        ({"number": OTHER["number"]}, "the number is repeated"),
        ({"secret_access_key": ""}, "access_key_id or secret_access_key is missing"),
    ],
)
def test_two_accounts_do_not_share_what_is_of_one(penstock, accounts, change, reason):  # noqa: F811
    """The store refuses the whole file, and stores none of its accounts."""
    accounts.stop()
    accounts.options[1].write_text(json.dumps([{**OTHER, "name": "changed"}, THIRD | change]))
    with sqlite3.connect(accounts.root / "meta.db") as db:
        before = db.execute("SELECT name, value FROM meta WHERE name LIKE 'iam/%'").fetchall()

        result = penstock.run("serve", "--root", accounts.root, "--listen", "127.0.0.1:0", *accounts.options,
                              env={"PENSTOCK_ACCESS_KEY_ID": accounts.access_key, "PENSTOCK_SECRET_ACCESS_KEY": accounts.secret_key})  # fmt: skip

        assert db.execute("SELECT name, value FROM meta WHERE name LIKE 'iam/%'").fetchall() == before
    db.close()
    assert result.code == 78
    assert re.search(reason, result.err), result.err
    restart(accounts, OTHER)


def test_an_account_of_the_store_counts_too(penstock, accounts):  # noqa: F811
    accounts.stop()
    accounts.options[1].write_text(json.dumps([THIRD | {"id": OTHER["id"]}]))

    result = penstock.run("serve", "--root", accounts.root, "--listen", "127.0.0.1:0", *accounts.options,
                          env={"PENSTOCK_ACCESS_KEY_ID": accounts.access_key, "PENSTOCK_SECRET_ACCESS_KEY": accounts.secret_key})  # fmt: skip

    assert result.code == 78 and "the id is that of another account" in result.err
    restart(accounts, OTHER)


def test_a_key_that_the_root_made_itself_is_kept_when_that_of_the_file_changes(accounts):  # noqa: F811
    other(accounts, "s3").create_bucket(Bucket="theirs")
    made = other(accounts, "iam").create_access_key()["AccessKey"]

    restart(accounts, OTHER | {"access_key_id": "NEWKEY", "secret_access_key": "the new secret"})

    assert names(accounts, made["AccessKeyId"], made["SecretAccessKey"]) == ["theirs"]
    assert names(accounts, "NEWKEY", "the new secret") == ["theirs"]
    assert refused(other(accounts, "s3").list_buckets) == "InvalidAccessKeyId"
    listed = client(accounts, "iam", "NEWKEY", "the new secret").list_access_keys()["AccessKeyMetadata"]
    assert {key["AccessKeyId"] for key in listed} == {made["AccessKeyId"], "NEWKEY"}


def test_the_key_of_an_older_version_is_replaced(accounts):  # noqa: F811
    """An older version did not record which of an account's keys came from the file, and an account
    had only the key of the file."""
    accounts.stop()
    with sqlite3.connect(accounts.root / "meta.db") as db:
        db.execute("UPDATE meta SET value=json_remove(value, '$.file_key') WHERE name='iam/account/111111111111'")
    db.close()
    accounts.start()
    restart(accounts, OTHER | {"access_key_id": "NEWKEY"})

    assert refused(other(accounts, "s3").list_buckets) == "InvalidAccessKeyId"
    assert names(accounts, "NEWKEY", OTHER["secret_access_key"]) == []


def test_a_key_of_the_file_stays_as_its_account_made_it_until_the_file_has_another(accounts):  # noqa: F811
    made = other(accounts, "iam").create_access_key()["AccessKey"]
    of_file = OTHER | {"access_key_id": "OTHERKEYOTHERKEY"}
    pair = of_file["access_key_id"], of_file["secret_access_key"]
    restart(accounts, of_file)
    own = client(accounts, "iam", made["AccessKeyId"], made["SecretAccessKey"])
    own.update_access_key(AccessKeyId=of_file["access_key_id"], Status="Inactive")

    restart(accounts, of_file | {"name": "renamed"})

    assert refused(client(accounts, "s3", *pair).list_buckets) == "InvalidAccessKeyId"
    own = client(accounts, "iam", made["AccessKeyId"], made["SecretAccessKey"])
    assert {key["AccessKeyId"]: key["Status"] for key in own.list_access_keys()["AccessKeyMetadata"]}[pair[0]] == "Inactive"
    own.delete_access_key(AccessKeyId=of_file["access_key_id"])
    restart(accounts, of_file)
    assert refused(client(accounts, "s3", *pair).list_buckets) == "InvalidAccessKeyId"
    restart(accounts, OTHER)
    assert names(accounts, OTHER["access_key_id"], OTHER["secret_access_key"]) == []


def test_an_account_is_revoked_as_a_whole(accounts):  # noqa: F811
    """Requests of the account's root, its users and its temporary keys are refused. The account's
    data stays, and a new key in the file gives access to it again."""
    theirs, iam = other(accounts, "s3"), other(accounts, "iam")
    theirs.create_bucket(Bucket="theirs")
    theirs.put_object(Bucket="theirs", Key="k", Body=b"x")
    root = iam.create_access_key()["AccessKey"]
    iam.create_user(UserName="jo")
    iam.put_user_policy(UserName="jo", PolicyName="all", PolicyDocument=policy("s3:*"))
    jo = iam.create_access_key(UserName="jo")["AccessKey"]
    session = client(accounts, "sts", root["AccessKeyId"], root["SecretAccessKey"]).get_session_token()["Credentials"]

    def temporary():
        return boto3.client("s3", endpoint_url=accounts.endpoint, region_name="us-east-1", aws_access_key_id=session["AccessKeyId"],
                            aws_secret_access_key=session["SecretAccessKey"], aws_session_token=session["SessionToken"])  # fmt: skip

    def keys():
        pairs = [(OTHER["access_key_id"], OTHER["secret_access_key"])] + [(k["AccessKeyId"], k["SecretAccessKey"]) for k in (root, jo)]
        return [client(accounts, "s3", *pair) for pair in pairs] + [temporary()]

    assert all(s3.get_object(Bucket="theirs", Key="k") for s3 in keys())

    restart(accounts, {key: value for key, value in OTHER.items() if key != "secret_access_key"} | {"access_key_id": None})

    assert {refused(s3.get_object, Bucket="theirs", Key="k") for s3 in keys()} == {"InvalidAccessKeyId"}
    accounts.stop()
    accounts.options[1].write_text("[]")
    accounts.start()
    assert {refused(s3.get_object, Bucket="theirs", Key="k") for s3 in keys()} == {"InvalidAccessKeyId"}
    restart(accounts, OTHER)
    assert all(s3.get_object(Bucket="theirs", Key="k")["Body"].read() == b"x" for s3 in keys()[:3])


def test_a_revoked_account_keeps_no_session_of_a_role_of_another(accounts):  # noqa: F811
    iam = client(accounts, "iam")
    trust = {"Effect": "Allow", "Principal": {"AWS": OTHER["number"]}, "Action": "sts:AssumeRole"}
    arn = iam.create_role(RoleName="r", AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [trust]}))["Role"]["Arn"]
    iam.put_role_policy(RoleName="r", PolicyName="p", PolicyDocument=policy("s3:*", "sts:*"))
    first = other(accounts, "sts").assume_role(RoleArn=arn, RoleSessionName="work")["Credentials"]
    names_ = "AccessKeyId", "SecretAccessKey", "SessionToken"
    assert names(accounts, *(first[name] for name in names_)) == []

    restart(accounts, {key: value for key, value in OTHER.items() if key != "secret_access_key"} | {"access_key_id": None})

    assert refused(client(accounts, "s3", *(first[name] for name in names_)).list_buckets) == "InvalidAccessKeyId"

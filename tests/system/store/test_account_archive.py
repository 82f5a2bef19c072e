"""Accounts and users in an archive of `penstock store export`: only on request, and never in place
of others."""
import json
import os
import sqlite3
import tarfile

import pytest

from store.test_iam import OTHER, accounts, client, other, policy, user_with_key  # noqa: F401


@pytest.fixture
def exported(penstock, accounts, tmp_path):  # noqa: F811
    """Exports a store with two accounts, one of which has a user with a bucket. Returns the archive, and the keys of the user."""
    iam, key, secret = user_with_key(accounts)
    arn = iam.create_policy(PolicyName="all", PolicyDocument=policy("s3:*"))["Policy"]["Arn"]
    iam.attach_user_policy(UserName="jo", PolicyArn=arn)
    client(accounts, "sts").get_session_token()  # makes the store create its key for session tokens
    other(accounts, "s3").create_bucket(Bucket="theirs")
    client(accounts, "s3", key, secret).create_bucket(Bucket="mine")
    accounts.stop()
    path = tmp_path / "all.tar"
    penstock.run("store", "export", "--with-accounts", "--root", accounts.root, path).ok()
    accounts.options = []
    return path, key, secret


def document(path):
    with tarfile.open(path) as tar:
        return json.load(tar.extractfile("accounts.json")) if "accounts.json" in tar.getnames() else None


def records(root):
    with sqlite3.connect(root / "meta.db") as db:
        rows = dict(db.execute("SELECT name, value FROM meta WHERE name LIKE 'iam/%'"))
    db.close()
    return rows


def test_an_archive_has_accounts_only_if_asked_for(penstock, accounts, exported, tmp_path):  # noqa: F811
    path, key, secret = exported
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert set(document(path)["records"]) == {"account/111111111111", "user/000000000000/jo", "policy/000000000000/all"}
    assert "iam/session-key" in records(accounts.root)

    penstock.run("store", "export", "--root", accounts.root, tmp_path / "plain.tar").ok()

    content = (tmp_path / "plain.tar").read_bytes()
    assert document(tmp_path / "plain.tar") is None and secret.encode() not in content
    penstock.run("store", "import", "--root", tmp_path / "new", tmp_path / "plain.tar").ok()
    missing = penstock.run("store", "import", "--with-accounts", "--root", tmp_path / "newer", tmp_path / "plain.tar")
    assert missing.code and "has no accounts" in missing.err


def test_imported_keys_work_in_the_other_store(penstock, accounts, exported, tmp_path):  # noqa: F811
    path, key, secret = exported
    new = tmp_path / "new"

    penstock.run("store", "import", "--with-accounts", "--root", new, path).ok()

    assert "iam/session-key" not in records(new)
    accounts.root = new
    accounts.start()
    assert [b["Name"] for b in client(accounts, "s3", key, secret).list_buckets()["Buckets"]] == ["mine"]
    assert [b["Name"] for b in other(accounts, "s3").list_buckets()["Buckets"]] == ["theirs"]


def test_accounts_of_an_archive_are_imported_only_if_asked_for(penstock, exported, tmp_path):
    """Imported accounts would give other users access to the store."""
    new = tmp_path / "new"

    result = penstock.run("store", "import", "--root", new, exported[0]).ok()

    assert "--with-accounts imports them" in result.err and records(new) == {}


def test_accounts_of_the_store_are_not_replaced(penstock, accounts, exported, tmp_path):  # noqa: F811
    """Equal accounts do not prevent an import, so a failed import can be repeated."""
    path, new = exported[0], tmp_path / "new"
    penstock.run("store", "import", "--with-accounts", "--root", new, path).ok()
    with sqlite3.connect(new / "meta.db") as db:
        db.execute("DELETE FROM buckets")
    db.close()
    penstock.run("store", "import", "--with-accounts", "--root", new, path).ok()
    with sqlite3.connect(new / "meta.db") as db:
        db.execute("DELETE FROM buckets")
        db.execute("UPDATE meta SET value=json_set(value, '$.name', 'changed') WHERE name='iam/account/111111111111'")
    db.close()
    before = records(new)

    refused = penstock.run("store", "import", "--with-accounts", "--root", new, path).exits(69)

    assert "account/111111111111" in refused.err and OTHER["secret_access_key"] not in refused.err
    assert records(new) == before
    assert penstock.run("store", "stat", "--json", "--root", new).json()["buckets"] == []


@pytest.mark.parametrize("name", ["session-key", "region/x", "user"])
def test_an_archive_adds_no_other_records(penstock, exported, tmp_path, name):
    path, new = exported[0], tmp_path / "new"
    text = path.read_bytes().replace(b'"account/111111111111"', f'"{name}"'.encode() + b" " * (len('"account/111111111111"') - len(name) - 2))
    path.write_bytes(text)

    penstock.run("store", "import", "--with-accounts", "--root", new, path).exits(66)

    assert records(new) == {}

"""Configurations of a bucket that cannot be read: the store starts, and handles each of them
safely."""
import re
import sqlite3

import pytest
from botocore import UNSIGNED
from botocore.exceptions import ClientError

from harness.program import Store
from harness.waiting import wait_for

KINDS = ["lifecycle", "logging", "notification", "replication"]
EVERYTHING = {"Status": "Enabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 1}}


def damage(store, bucket, **configs):
    """Makes configuration rows of a stopped store unreadable."""
    with sqlite3.connect(store.root / "meta.db") as db:
        for name, value in configs.items():
            db.execute("INSERT OR REPLACE INTO configs(bucket,name,value) SELECT id,?,? FROM buckets WHERE name=?",
                       (name.replace("_", "-"), value, bucket))  # fmt: skip
    db.close()


@pytest.fixture
def damaged(penstock, tmp_path):
    running = Store(penstock, tmp_path / "store")
    running.options += ["--lifecycle-day", "100ms"]
    for bucket in ("bad", "good"):
        running.client.create_bucket(Bucket=bucket)
        running.client.put_object(Bucket=bucket, Key="k", Body=b"x")
    running.stop()
    damage(running, "bad", **{kind: b"<Nonsense>" for kind in KINDS})
    running.start()
    yield running
    running.stop()


def warnings(store):
    return re.findall(r"'(\w+)': its (\w+) configuration is unreadable", store.process.err)


def test_the_store_starts_and_names_each_of_them_once(damaged):
    """A change of another bucket's configuration does not read the unreadable configurations
    again."""
    damaged.client.put_bucket_lifecycle_configuration(Bucket="good", LifecycleConfiguration={"Rules": [EVERYTHING]})
    wait_for(lambda: "Contents" not in damaged.client.list_objects_v2(Bucket="good"), 30)

    assert sorted(warnings(damaged)) == [("bad", kind) for kind in KINDS]
    assert damaged.client.get_object(Bucket="bad", Key="k")["Body"].read() == b"x"


def test_it_can_be_replaced(damaged):
    damaged.client.put_bucket_lifecycle_configuration(Bucket="bad", LifecycleConfiguration={"Rules": [EVERYTHING]})

    wait_for(lambda: "Contents" not in damaged.client.list_objects_v2(Bucket="bad"), 30)


def test_unreadable_settings_of_access_are_the_strict_ones(damaged):
    damaged.client.put_object_acl(Bucket="good", Key="k", ACL="public-read")
    anyone = damaged.boto3(signature_version=UNSIGNED)
    assert anyone.get_object(Bucket="good", Key="k")["Body"].read() == b"x"

    for config in ({"ownership": "Nonsense"}, {"public_access_block": "?"}):
        damaged.stop()
        damage(damaged, "good", **config)
        damaged.start()
        with pytest.raises(ClientError, match="AccessDenied"):
            damaged.boto3(signature_version=UNSIGNED).get_object(Bucket="good", Key="k")
        damaged.stop()
        with sqlite3.connect(damaged.root / "meta.db") as db:
            db.execute("DELETE FROM configs WHERE name IN ('ownership', 'public-access-block')")
        db.close()
        damaged.start()

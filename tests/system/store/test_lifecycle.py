"""Lifecycle of buckets: their configuration, what their rules remove, and the headers that announce it."""
import datetime
import re
import threading

import pytest
from botocore.exceptions import ClientError

from harness.program import Store
from harness.s3_wire import Wire
from harness.waiting import wait_for
from store.test_iam import OTHER, accounts, other  # noqa: F401

DAYS = {"Expiration": {"Days": 1}}
ALL = {"ID": "all", "Status": "Enabled", "Filter": {"Prefix": ""}}


@pytest.fixture
def s3(store):
    store.client.create_bucket(Bucket="bkt")
    return store.client


@pytest.fixture
def quick(penstock, tmp_path):
    """A store whose days are 100 ms long."""
    running = Store(penstock, tmp_path / "store", durability="relaxed")
    running.stop()
    running.options += ["--lifecycle-day", "100ms"]
    running.start()
    running.client.create_bucket(Bucket="bkt")
    yield running
    running.stop()


def set_rules(s3, *rules):
    s3.put_bucket_lifecycle_configuration(Bucket="bkt", LifecycleConfiguration={"Rules": list(rules)})


def keys(s3):
    return [entry["Key"] for entry in s3.list_objects_v2(Bucket="bkt").get("Contents", [])]


def versions(s3):
    page = s3.list_object_versions(Bucket="bkt")
    return len(page.get("Versions", [])), len(page.get("DeleteMarkers", []))


def test_rules_are_kept_replaced_and_deleted(s3):
    rules = [
        {"ID": "old", "Status": "Enabled", "Prefix": "o/", "Expiration": {"Days": 3}},
        {
            "ID": "new",
            "Status": "Disabled",
            "Filter": {"And": {"Prefix": "n/", "Tags": [{"Key": "k", "Value": "v"}], "ObjectSizeGreaterThan": 10}},
            "NoncurrentVersionExpiration": {"NoncurrentDays": 4, "NewerNoncurrentVersions": 2},
        },
        {"ID": "uploads", "Status": "Enabled", "Filter": {}, "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7}},
    ]
    with pytest.raises(ClientError, match="NoSuchLifecycleConfiguration"):
        s3.get_bucket_lifecycle_configuration(Bucket="bkt")

    set_rules(s3, *rules)
    assert s3.get_bucket_lifecycle_configuration(Bucket="bkt")["Rules"] == rules
    set_rules(s3, {"Status": "Enabled", "Prefix": "", **DAYS})
    (only,) = s3.get_bucket_lifecycle_configuration(Bucket="bkt")["Rules"]
    assert only["ID"] and only["Expiration"] == {"Days": 1}
    s3.delete_bucket_lifecycle(Bucket="bkt")
    s3.delete_bucket_lifecycle(Bucket="bkt")

    with pytest.raises(ClientError, match="NoSuchLifecycleConfiguration"):
        s3.get_bucket_lifecycle_configuration(Bucket="bkt")
    with pytest.raises(ClientError, match="NoSuchBucket"):
        s3.delete_bucket_lifecycle(Bucket="none")


@pytest.mark.parametrize(
    "rule, code",
    [
        ({"Expiration": {"Days": 0}}, "InvalidArgument"),
        ({"ID": "x" * 256, **DAYS}, "InvalidArgument"),
        ({"Status": "enabled", **DAYS}, "MalformedXML"),
        ({"Transitions": [{"Days": 1, "StorageClass": "GLACIER"}]}, "NotImplemented"),
        ({"Expiration": {"Date": datetime.datetime(2030, 1, 1, 5)}}, "InvalidArgument"),
        ({}, "InvalidRequest"),
        ({"Filter": {"And": {"Tags": [{"Key": str(i), "Value": ""} for i in range(11)]}}, **DAYS}, "InvalidRequest"),
    ],
)
def test_invalid_rules_are_refused_and_change_nothing(s3, rule, code):
    with pytest.raises(ClientError, match=code):
        set_rules(s3, {**ALL, **rule})
    with pytest.raises(ClientError, match="NoSuchLifecycleConfiguration"):
        s3.get_bucket_lifecycle_configuration(Bucket="bkt")


def test_the_rules_of_a_bucket_have_a_maximum_size(s3):
    tags = [{"Key": str(i) * 128, "Value": "v" * 256} for i in range(4)]
    rules = [{**ALL, "ID": str(i), "Filter": {"And": {"Prefix": "p" * 1024, "Tags": tags}}, **DAYS} for i in range(900)]
    with pytest.raises(ClientError, match="MaxMessageLengthExceeded"):
        set_rules(s3, *rules)

    set_rules(s3, *rules[:600])
    assert len(s3.get_bucket_lifecycle_configuration(Bucket="bkt")["Rules"]) == 600


def test_replies_name_the_end_of_an_object(s3):
    set_rules(s3, {**ALL, "ID": "a rule", "Filter": {"Prefix": "p/"}, "Expiration": {"Days": 2},
                   "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}})  # fmt: skip
    replies = [s3.put_object(Bucket="bkt", Key="p/k", Body=b"text"), s3.get_object(Bucket="bkt", Key="p/k"),
               s3.head_object(Bucket="bkt", Key="p/k"),
               s3.copy_object(Bucket="bkt", Key="p/copy", CopySource="bkt/p/k")]  # fmt: skip
    upload = s3.create_multipart_upload(Bucket="bkt", Key="p/parts")
    part = s3.upload_part(Bucket="bkt", Key="p/parts", UploadId=upload["UploadId"], PartNumber=1, Body=b"part")
    listed = s3.list_parts(Bucket="bkt", Key="p/parts", UploadId=upload["UploadId"])
    replies.append(s3.complete_multipart_upload(Bucket="bkt", Key="p/parts", UploadId=upload["UploadId"],
                   MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}))  # fmt: skip

    now = datetime.datetime.now(datetime.timezone.utc)
    for reply in replies:
        date, rule = re.fullmatch(r'expiry-date="(.+) GMT", rule-id="(.+)"', reply["Expiration"]).groups()
        end = datetime.datetime.strptime(date, "%a, %d %b %Y %H:%M:%S").replace(tzinfo=datetime.timezone.utc)
        assert end.hour == end.minute == end.second == 0
        assert datetime.timedelta(days=2) - datetime.timedelta(minutes=5) < end - now <= datetime.timedelta(days=3)
        assert rule == "a%20rule"
    for reply in (upload, listed):
        assert reply["AbortRuleId"] == "a%20rule"
        assert reply["AbortDate"] > now
    assert "Expiration" not in s3.put_object(Bucket="bkt", Key="other", Body=b"text")
    s3.delete_bucket_lifecycle(Bucket="bkt")
    assert "Expiration" not in s3.head_object(Bucket="bkt", Key="p/k")


def test_rules_of_a_deleted_bucket_do_not_come_back(s3):
    set_rules(s3, {**ALL, **DAYS})
    s3.delete_bucket(Bucket="bkt")
    s3.create_bucket(Bucket="bkt")

    assert "Expiration" not in s3.put_object(Bucket="bkt", Key="k", Body=b"text")
    with pytest.raises(ClientError, match="NoSuchLifecycleConfiguration"):
        s3.get_bucket_lifecycle_configuration(Bucket="bkt")


def test_objects_with_the_tags_of_a_rule_expire(quick):
    s3 = quick.client
    for key, tags in (("p/a", "k=v"), ("p/b", "k=w"), ("q/a", "k=v")):
        s3.put_object(Bucket="bkt", Key=key, Body=b"text", Tagging=tags)
    set_rules(s3, {**ALL, "Filter": {"And": {"Prefix": "p/", "Tags": [{"Key": "k", "Value": "v"}]}}, **DAYS})

    wait_for(lambda: keys(s3) == ["p/b", "q/a"], 20)
    s3.put_object_tagging(Bucket="bkt", Key="p/b", Tagging={"TagSet": [{"Key": "k", "Value": "v"}]})
    wait_for(lambda: keys(s3) == ["q/a"], 20)


def test_versions_and_markers_expire(quick):
    s3 = quick.client
    s3.put_bucket_versioning(Bucket="bkt", VersioningConfiguration={"Status": "Enabled"})
    for number in range(3):
        s3.put_object(Bucket="bkt", Key="k", Body=b"%d" % number)
    set_rules(s3, {**ALL, **DAYS})
    wait_for(lambda: versions(s3) == (3, 1), 20)

    set_rules(s3, {**ALL, "NoncurrentVersionExpiration": {"NoncurrentDays": 1, "NewerNoncurrentVersions": 2}})
    wait_for(lambda: versions(s3) == (2, 1), 20)
    set_rules(s3, {**ALL, "NoncurrentVersionExpiration": {"NoncurrentDays": 1}, "Expiration": {"ExpiredObjectDeleteMarker": True}})
    wait_for(lambda: versions(s3) == (0, 0), 20)


def test_unfinished_uploads_are_aborted(quick):
    s3 = quick.client
    for key in ("p/a", "q/b"):
        upload = s3.create_multipart_upload(Bucket="bkt", Key=key)["UploadId"]
        s3.upload_part(Bucket="bkt", Key=key, UploadId=upload, PartNumber=1, Body=b"part")
    set_rules(s3, {**ALL, "Filter": {"Prefix": "p/"}, "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}})

    wait_for(lambda: [entry["Key"] for entry in s3.list_multipart_uploads(Bucket="bkt")["Uploads"]] == ["q/b"], 20)


def test_a_kill_in_the_middle_leaves_no_half_deletion(quick):
    """Each object either has all its bytes or is deleted; after the next start, the rule deletes
    the rest."""
    s3, n = quick.client, 600
    body = bytes(40_000)

    def put(first):
        client = quick.client
        for number in range(first, n, 4):
            client.put_object(Bucket="bkt", Key=f"{'pq'[number % 2]}/{number:04}", Body=body if number % 8 < 2 else b"small")

    writers = [threading.Thread(target=put, args=(first,)) for first in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    set_rules(s3, {**ALL, "Filter": {"Prefix": "p/"}, **DAYS})
    for _ in range(3):
        left = len(keys(s3))
        wait_for(lambda: len(keys(s3)) < left or left == n // 2, 20)
        quick.process.kill()
        quick.start()
        s3 = quick.client
        for key in keys(s3)[::20]:
            try:
                assert len(quick.bytes("bkt", key)) in (len(body), 5)
            except s3.exceptions.NoSuchKey:
                assert key.startswith("p/"), key  # the rule may have deleted it since the listing

    wait_for(lambda: len(keys(s3)) == n // 2, 20)
    assert all(key.startswith("q/") for key in keys(s3))

    def files():
        return sum(1 for path in (quick.root / "data").rglob("*") if path.is_file())

    assert files() >= n // 8
    # A relaxed store removes files after a sync of the whole file system, which other tests may keep busy.
    wait_for(lambda: files() == n // 8, 200, "the removal of all other files")
    assert files() == n // 8


def test_an_account_may_have_as_many_bytes_of_rules_as_stay_free_for_others(accounts):  # noqa: F811
    """All buckets may have 64 MiB of rules, so an account may have half of that."""

    def put(keys, bucket, n_rules=1000, begin="v"):
        wire = Wire(accounts)
        if keys:
            wire.access_key, wire.secret_key = keys
        tags = "".join(f"<Tag><Key>k{i}</Key><Value>{begin * 168}</Value></Tag>" for i in range(8))
        conditions = f"<Filter><And><Prefix>{'p' * 100}</Prefix>{tags}</And></Filter><Expiration><Days>1</Days></Expiration>"
        rules = "".join(f"<Rule><ID>{i}</ID><Status>Enabled</Status>{conditions}</Rule>" for i in range(n_rules))
        document = f"<LifecycleConfiguration>{rules}</LifecycleConfiguration>"
        return wire.send("PUT", f"/{bucket}", "lifecycle=", {}, document.encode()).code

    keys = OTHER["access_key_id"], OTHER["secret_access_key"]
    theirs, codes = other(accounts, "s3"), []
    while not any(codes) and len(codes) < 40:
        bucket = f"theirs-{len(codes)}"
        theirs.create_bucket(Bucket=bucket)
        codes.append(put(keys, bucket))
    assert len(codes) == 18 and codes[-1] == "InvalidRequest"
    with pytest.raises(ClientError, match="NoSuchLifecycleConfiguration"):
        theirs.get_bucket_lifecycle_configuration(Bucket=bucket)

    accounts.client.create_bucket(Bucket="mine")
    assert not put(None, "mine")
    assert not put(keys, "theirs-0", begin="w") and not put(keys, "theirs-0", n_rules=999)
    assert put(keys, bucket) == "InvalidRequest"
    theirs.delete_bucket_lifecycle(Bucket="theirs-0")
    theirs.delete_bucket(Bucket="theirs-1")
    assert not put(keys, bucket)

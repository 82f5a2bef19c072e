"""Object Lock, as boto3 sees it: versions that may not be deleted until a time, or while they are held."""
from datetime import datetime, timedelta, timezone

import pytest
from botocore.exceptions import ClientError

from harness.s3_wire import Wire

SOON, LATER = (datetime.now(timezone.utc).replace(microsecond=0) + timedelta(days=days) for days in (1, 2))


@pytest.fixture
def s3(store):
    store.client.create_bucket(Bucket="bkt", ObjectLockEnabledForBucket=True)
    return store.client


def refused(call, **arguments):
    with pytest.raises(ClientError) as failure:
        call(**arguments)
    reply = failure.value.response
    return reply["ResponseMetadata"]["HTTPStatusCode"], reply["Error"]["Code"]


def put(s3, key="k", **options):
    return s3.put_object(Bucket="bkt", Key=key, Body=b"text", **options)["VersionId"]


def retain(s3, mode, until, **options):
    retention = {"Mode": mode, "RetainUntilDate": until} if mode else {}
    return s3.put_object_retention(Bucket="bkt", Key="k", Retention=retention, **options)


def retention(s3, key="k", **options):
    found = s3.get_object_retention(Bucket="bkt", Key=key, **options)["Retention"]
    return found["Mode"], found["RetainUntilDate"]


def hold(s3, status, **options):
    return s3.put_object_legal_hold(Bucket="bkt", Key="k", LegalHold={"Status": status}, **options)


def rule(mode, **period):
    return {"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": {"Mode": mode} | period}}


DENIED = (403, "AccessDenied")


def test_a_bucket_with_object_lock_keeps_its_versioning(s3):
    assert s3.get_bucket_versioning(Bucket="bkt")["Status"] == "Enabled"
    assert s3.get_object_lock_configuration(Bucket="bkt")["ObjectLockConfiguration"] == {"ObjectLockEnabled": "Enabled"}
    assert refused(s3.create_bucket, Bucket="bkt", ObjectLockEnabledForBucket=True) == (409, "BucketAlreadyOwnedByYou")
    suspended = {"Status": "Suspended"}
    assert refused(s3.put_bucket_versioning, Bucket="bkt", VersioningConfiguration=suspended) == (409, "InvalidBucketState")
    s3.put_bucket_versioning(Bucket="bkt", VersioningConfiguration={"Status": "Enabled"})
    s3.delete_bucket(Bucket="bkt")


def test_a_bucket_with_versions_gets_object_lock_later(s3):
    s3.create_bucket(Bucket="plain")
    lock = {"ObjectLockEnabled": "Enabled"}

    assert refused(s3.get_object_lock_configuration, Bucket="plain") == (404, "ObjectLockConfigurationNotFoundError")
    assert refused(s3.put_object_lock_configuration, Bucket="plain", ObjectLockConfiguration=lock) == (409, "InvalidBucketState")
    s3.put_bucket_versioning(Bucket="plain", VersioningConfiguration={"Status": "Enabled"})
    s3.put_object_lock_configuration(Bucket="plain", ObjectLockConfiguration=lock)
    assert s3.get_object_lock_configuration(Bucket="plain")["ObjectLockConfiguration"] == lock


@pytest.mark.parametrize("period", [{"Days": 3}, {"Years": 2}])
def test_new_versions_have_the_default_retention(s3, period):
    before = put(s3)
    s3.put_object_lock_configuration(Bucket="bkt", ObjectLockConfiguration=rule("GOVERNANCE", **period))
    days = timedelta(days=period.get("Days", 365 * period.get("Years", 0)))

    assert s3.get_object_lock_configuration(Bucket="bkt")["ObjectLockConfiguration"] == rule("GOVERNANCE", **period)
    after = put(s3)
    mode, until = retention(s3)
    assert mode == "GOVERNANCE" and abs(until - s3.head_object(Bucket="bkt", Key="k")["LastModified"] - days) < timedelta(seconds=2)
    assert refused(retention, s3=s3, VersionId=before) == (404, "NoSuchObjectLockConfiguration")
    put(s3, "own", ObjectLockMode="COMPLIANCE", ObjectLockRetainUntilDate=SOON)
    assert retention(s3, "own") == ("COMPLIANCE", SOON)
    upload = s3.create_multipart_upload(Bucket="bkt", Key="parts")["UploadId"]
    part = s3.upload_part(Bucket="bkt", Key="parts", UploadId=upload, PartNumber=1, Body=b"x")
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    s3.complete_multipart_upload(Bucket="bkt", Key="parts", UploadId=upload, MultipartUpload=parts)
    assert retention(s3, "parts")[0] == "GOVERNANCE"
    assert refused(s3.delete_object, Bucket="bkt", Key="k", VersionId=after) == DENIED
    s3.put_object_lock_configuration(Bucket="bkt", ObjectLockConfiguration={"ObjectLockEnabled": "Enabled"})
    put(s3, "free")
    assert refused(retention, s3=s3, key="free") == (404, "NoSuchObjectLockConfiguration")


def test_a_locked_version_is_not_deleted(s3):
    version = put(s3, ObjectLockMode="COMPLIANCE", ObjectLockRetainUntilDate=SOON)
    objects = [{"Key": "k", "VersionId": version}, {"Key": "k"}]

    for bypass in (False, True):
        assert refused(s3.delete_object, Bucket="bkt", Key="k", VersionId=version, BypassGovernanceRetention=bypass) == DENIED
        reply = s3.delete_objects(Bucket="bkt", Delete={"Objects": objects}, BypassGovernanceRetention=bypass)
        assert [(error["Code"], error["VersionId"]) for error in reply["Errors"]] == [("AccessDenied", version)]
        marker = reply["Deleted"][0]["DeleteMarkerVersionId"]
        s3.delete_object(Bucket="bkt", Key="k", VersionId=marker)
    assert s3.get_object(Bucket="bkt", Key="k")["Body"].read() == b"text"


def test_governance_is_bypassed_by_name(s3):
    first, second = (put(s3, ObjectLockMode="GOVERNANCE", ObjectLockRetainUntilDate=SOON) for _ in range(2))

    assert refused(s3.delete_object, Bucket="bkt", Key="k", VersionId=first) == DENIED
    s3.delete_object(Bucket="bkt", Key="k", VersionId=first, BypassGovernanceRetention=True)
    assert refused(retain, s3=s3, mode="GOVERNANCE", until=SOON - timedelta(hours=1)) == DENIED
    assert refused(retain, s3=s3, mode="COMPLIANCE", until=SOON) == DENIED
    assert refused(retain, s3=s3, mode=None, until=None) == DENIED
    retain(s3, "GOVERNANCE", LATER)
    assert retention(s3) == ("GOVERNANCE", LATER)
    retain(s3, None, None, BypassGovernanceRetention=True)
    assert refused(retention, s3=s3) == (404, "NoSuchObjectLockConfiguration")
    s3.delete_object(Bucket="bkt", Key="k", VersionId=second)


def test_compliance_only_gets_longer(s3):
    put(s3)

    retain(s3, "COMPLIANCE", SOON)
    for mode, until in (("COMPLIANCE", SOON - timedelta(hours=1)), ("GOVERNANCE", LATER), (None, None)):
        assert refused(retain, s3=s3, mode=mode, until=until, BypassGovernanceRetention=True) == DENIED
    retain(s3, "COMPLIANCE", LATER)
    assert retention(s3) == ("COMPLIANCE", LATER)


def test_a_legal_hold_ends_when_it_is_lifted(s3):
    version = put(s3)

    assert refused(s3.get_object_legal_hold, Bucket="bkt", Key="k") == (404, "NoSuchObjectLockConfiguration")
    hold(s3, "ON", VersionId=version)
    assert s3.get_object_legal_hold(Bucket="bkt", Key="k")["LegalHold"] == {"Status": "ON"}
    assert refused(s3.delete_object, Bucket="bkt", Key="k", VersionId=version, BypassGovernanceRetention=True) == DENIED
    hold(s3, "OFF")
    assert s3.head_object(Bucket="bkt", Key="k")["ObjectLockLegalHoldStatus"] == "OFF"
    s3.delete_object(Bucket="bkt", Key="k", VersionId=version)


def test_each_way_to_write_takes_the_lock(s3):
    lock = {"ObjectLockMode": "GOVERNANCE", "ObjectLockRetainUntilDate": SOON, "ObjectLockLegalHoldStatus": "ON"}
    put(s3, "put", **lock)
    s3.copy_object(Bucket="bkt", Key="copy", CopySource={"Bucket": "bkt", "Key": "put"}, **lock)
    upload = s3.create_multipart_upload(Bucket="bkt", Key="parts", **lock)["UploadId"]
    part = s3.upload_part(Bucket="bkt", Key="parts", UploadId=upload, PartNumber=1, Body=b"x")
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    s3.complete_multipart_upload(Bucket="bkt", Key="parts", UploadId=upload, MultipartUpload=parts)

    for key in ("put", "copy", "parts"):
        for reply in (s3.head_object(Bucket="bkt", Key=key), s3.get_object(Bucket="bkt", Key=key)):
            assert lock.items() <= reply.items()
    s3.copy_object(Bucket="bkt", Key="plain", CopySource={"Bucket": "bkt", "Key": "put"})
    assert not lock.keys() & s3.head_object(Bucket="bkt", Key="plain").keys()


def test_a_lock_survives_a_kill(store, s3):
    version = put(s3, ObjectLockMode="COMPLIANCE", ObjectLockRetainUntilDate=SOON)

    store.kill()
    store.start()

    assert refused(store.client.delete_object, Bucket="bkt", Key="k", VersionId=version) == DENIED


@pytest.mark.parametrize("call, options", [
    ("put_object", {"ObjectLockLegalHoldStatus": "ON"}),
    ("put_object", {"ObjectLockMode": "GOVERNANCE", "ObjectLockRetainUntilDate": SOON}),
    ("create_multipart_upload", {"ObjectLockLegalHoldStatus": "ON"}),
    ("copy_object", {"CopySource": "plain/k", "ObjectLockLegalHoldStatus": "ON"}),
    ("put_object_retention", {"Retention": {"Mode": "GOVERNANCE", "RetainUntilDate": SOON}}),
    ("get_object_retention", {}),
    ("put_object_legal_hold", {"LegalHold": {"Status": "ON"}}),
    ("get_object_legal_hold", {}),
])  # fmt: skip
def test_a_bucket_without_object_lock_locks_nothing(s3, call, options):
    s3.create_bucket(Bucket="plain")
    s3.put_object(Bucket="plain", Key="k")

    assert refused(getattr(s3, call), Bucket="plain", Key="k", **options) == (400, "InvalidRequest")


@pytest.mark.parametrize("configuration, status, code", [
    (rule("GOVERNANCE", Days=0), 400, "InvalidRetentionPeriod"),
    (rule("GOVERNANCE", Years=-1), 400, "InvalidRetentionPeriod"),
    (rule("GOVERNANCE", Days=36501), 400, "InvalidRetentionPeriod"),
    (rule("GOVERNANCE", Years=101), 400, "InvalidRetentionPeriod"),
    (rule("GOVERNANCE", Days=1, Years=1), 400, "MalformedXML"),
    (rule("GOVERNANCE"), 400, "MalformedXML"),
    (rule("governance", Days=1), 400, "MalformedXML"),
    ({"ObjectLockEnabled": "Disabled"}, 400, "MalformedXML"),
    ({}, 400, "MalformedXML"),
])  # fmt: skip
def test_an_invalid_configuration_is_refused(s3, configuration, status, code):
    s3.put_object_lock_configuration(Bucket="bkt", ObjectLockConfiguration=rule("COMPLIANCE", Days=1))

    assert refused(s3.put_object_lock_configuration, Bucket="bkt", ObjectLockConfiguration=configuration) == (status, code)
    assert s3.get_object_lock_configuration(Bucket="bkt")["ObjectLockConfiguration"] == rule("COMPLIANCE", Days=1)


UNTIL = "2099-01-01T00:00:00Z"


@pytest.mark.parametrize("headers, code", [
    ({"mode": "GOVERNANCE"}, "InvalidArgument"),
    ({"retain-until-date": UNTIL}, "InvalidArgument"),
    ({"mode": "governance", "retain-until-date": UNTIL}, "InvalidArgument"),
    ({"mode": "GOVERNANCE", "retain-until-date": "tomorrow"}, "InvalidArgument"),
    ({"mode": "GOVERNANCE", "retain-until-date": "2020-01-01T00:00:00Z"}, "InvalidArgument"),
    ({"mode": "GOVERNANCE", "retain-until-date": "2300-01-01T00:00:00Z"}, "InvalidArgument"),
    ({"legal-hold": "on"}, "InvalidArgument"),
    ({"legal-hold": "ON"}, "InvalidRequest"),  # without a checksum
])  # fmt: skip
def test_an_invalid_header_is_refused(store, s3, headers, code):
    reply = Wire(store).send("PUT", "/bkt/k", headers={f"x-amz-object-lock-{name}": value for name, value in headers.items()}, body=b"x")

    assert (reply.status, reply.code) == (400, code)
    assert "Contents" not in s3.list_objects_v2(Bucket="bkt")


@pytest.mark.parametrize("query, document, code", [
    ("retention=", "<Retention><Mode>GOVERNANCE</Mode></Retention>", "MalformedXML"),
    ("retention=", f"<Retention><RetainUntilDate>{UNTIL}</RetainUntilDate></Retention>", "MalformedXML"),
    ("retention=", f"<Retention><Mode>none</Mode><RetainUntilDate>{UNTIL}</RetainUntilDate></Retention>", "MalformedXML"),
    ("retention=", "<Retention><Mode>GOVERNANCE</Mode><RetainUntilDate>2020-01-01T00:00:00Z</RetainUntilDate></Retention>", "InvalidArgument"),
    ("retention=", "<Other/>", "MalformedXML"),
    ("legal-hold=", "<LegalHold><Status>on</Status></LegalHold>", "MalformedXML"),
    ("legal-hold=", "<LegalHold/>", "MalformedXML"),
    ("legal-hold=", "", "MalformedXML"),
])  # fmt: skip
def test_an_invalid_document_is_refused(store, s3, query, document, code):
    put(s3)

    assert Wire(store).send("PUT", "/bkt/k", query, body=document.encode()).code == code


def test_a_lock_of_a_missing_version_is_refused(s3):
    version = put(s3)
    marker = s3.delete_object(Bucket="bkt", Key="k")["VersionId"]

    assert refused(hold, s3=s3, status="ON") == (404, "NoSuchKey")
    assert refused(hold, s3=s3, status="ON", VersionId=marker) == (405, "MethodNotAllowed")
    assert refused(retain, s3=s3, mode="GOVERNANCE", until=SOON, VersionId="0123456789abcdef") == (404, "NoSuchVersion")
    retain(s3, "GOVERNANCE", SOON, VersionId=version)
    assert retention(s3, VersionId=version) == ("GOVERNANCE", SOON)

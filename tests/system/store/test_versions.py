"""Buckets with versioning, as boto3 sees them."""
import pytest
from botocore.exceptions import ClientError


@pytest.fixture
def s3(store):
    store.client.create_bucket(Bucket="bkt")
    return store.client


@pytest.fixture
def versioned(s3):
    s3.put_bucket_versioning(Bucket="bkt", VersioningConfiguration={"Status": "Enabled"})
    return s3


def put(s3, text, key="k"):
    return s3.put_object(Bucket="bkt", Key=key, Body=text.encode()).get("VersionId")


def get(s3, version=None, key="k"):
    reply = s3.get_object(Bucket="bkt", Key=key, **({"VersionId": version} if version else {}))
    return reply["Body"].read().decode(), reply.get("VersionId")


def names(s3, **options):
    """Returns the versions and markers of all pages, in their order."""
    pages = s3.get_paginator("list_object_versions").paginate(Bucket="bkt", **options)
    found = [(v, "Version") for page in pages for v in page.get("Versions", [])]
    found += [(v, "Marker") for page in pages for v in page.get("DeleteMarkers", [])]
    return {(v["Key"], v["VersionId"]): (kind, v["IsLatest"]) for v, kind in found}


def refused(call, **arguments):
    with pytest.raises(ClientError) as failure:
        call(**arguments)
    reply = failure.value.response
    return reply["ResponseMetadata"]["HTTPStatusCode"], reply["Error"]["Code"], reply["ResponseMetadata"]["HTTPHeaders"]


def test_a_replaced_object_is_an_older_version(versioned):
    first, second = put(versioned, "one"), put(versioned, "two")

    assert get(versioned) == ("two", second)
    assert get(versioned, first) == ("one", first)
    assert versioned.head_object(Bucket="bkt", Key="k", VersionId=first)["ContentLength"] == 3
    assert names(versioned) == {("k", first): ("Version", False), ("k", second): ("Version", True)}


def test_an_object_of_before_is_the_version_null(s3):
    assert put(s3, "old") is None
    s3.put_bucket_versioning(Bucket="bkt", VersioningConfiguration={"Status": "Enabled"})

    assert get(s3) == ("old", "null")
    new = put(s3, "new")
    assert get(s3, "null") == ("old", "null") and get(s3)[1] == new


def test_a_deleted_object_is_behind_a_marker(versioned):
    version = put(versioned, "text")
    deleted = versioned.delete_object(Bucket="bkt", Key="k")
    marker = deleted["VersionId"]

    assert deleted["DeleteMarker"] is True
    status, code, headers = refused(versioned.get_object, Bucket="bkt", Key="k")
    assert (status, code, headers["x-amz-delete-marker"], headers["x-amz-version-id"]) == (404, "NoSuchKey", "true", marker)
    status, code, headers = refused(versioned.get_object, Bucket="bkt", Key="k", VersionId=marker)
    assert (status, code, headers["x-amz-delete-marker"]) == (405, "MethodNotAllowed", "true") and "last-modified" in headers
    assert refused(versioned.head_object, Bucket="bkt", Key="k", VersionId=marker)[0] == 405
    assert get(versioned, version) == ("text", version)
    assert "Contents" not in versioned.list_objects_v2(Bucket="bkt")
    assert names(versioned) == {("k", version): ("Version", False), ("k", marker): ("Marker", True)}

    undone = versioned.delete_object(Bucket="bkt", Key="k", VersionId=marker)
    assert undone["DeleteMarker"] is True and undone["VersionId"] == marker
    assert get(versioned) == ("text", version)


def test_the_version_before_takes_the_place_of_a_deleted_one(versioned):
    first, second = put(versioned, "one"), put(versioned, "two")

    deleted = versioned.delete_object(Bucket="bkt", Key="k", VersionId=second)

    assert deleted["VersionId"] == second and "DeleteMarker" not in deleted
    assert get(versioned) == ("one", first)
    assert refused(versioned.get_object, Bucket="bkt", Key="k", VersionId=second)[:2] == (404, "NoSuchVersion")


def test_suspended_versioning_replaces_only_the_version_null(versioned):
    kept = put(versioned, "kept")
    versioned.put_bucket_versioning(Bucket="bkt", VersioningConfiguration={"Status": "Suspended"})

    assert put(versioned, "null 1") is None and put(versioned, "null 2") is None
    assert versioned.get_bucket_versioning(Bucket="bkt")["Status"] == "Suspended"
    assert names(versioned) == {("k", kept): ("Version", False), ("k", "null"): ("Version", True)}
    deleted = versioned.delete_object(Bucket="bkt", Key="k")
    assert (deleted["DeleteMarker"], deleted["VersionId"]) == (True, "null")
    assert names(versioned) == {("k", kept): ("Version", False), ("k", "null"): ("Marker", True)}


def test_versions_are_listed_in_pages(versioned):
    versions = {("a", put(versioned, str(i), "a")) for i in range(5)} | {("b/c", put(versioned, "x", "b/c"))}

    assert set(names(versioned, PaginationConfig={"PageSize": 2})) == versions
    assert {key for key, _ in names(versioned, Prefix="b")} == {"b/c"}
    listed = versioned.list_object_versions(Bucket="bkt", Delimiter="/")
    assert [prefix["Prefix"] for prefix in listed["CommonPrefixes"]] == ["b/"] and len(listed["Versions"]) == 5
    assert [v["IsLatest"] for v in listed["Versions"]] == [True, False, False, False, False]


def test_a_bucket_is_emptied_page_by_page(versioned, store):
    for key in ("a", "b", "c"):
        put(versioned, "1", key), put(versioned, "2", key)
    versioned.put_bucket_versioning(Bucket="bkt", VersioningConfiguration={"Status": "Suspended"})
    for key in ("a", "b", "c"):
        put(versioned, "3", key)

    for page in versioned.get_paginator("list_object_versions").paginate(Bucket="bkt", PaginationConfig={"PageSize": 2}):
        versioned.delete_objects(Bucket="bkt", Delete={"Objects": [{"Key": v["Key"], "VersionId": v["VersionId"]} for v in page["Versions"]]})

    versioned.delete_bucket(Bucket="bkt")


def test_versions_are_copied(versioned):
    first, second = put(versioned, "one"), put(versioned, "two")

    restored = versioned.copy_object(Bucket="bkt", Key="k", CopySource={"Bucket": "bkt", "Key": "k", "VersionId": first})

    assert restored["CopySourceVersionId"] == first and restored["VersionId"] not in (first, second)
    assert get(versioned) == ("one", restored["VersionId"])
    marker = versioned.delete_object(Bucket="bkt", Key="k")["VersionId"]
    source = {"Bucket": "bkt", "Key": "k"}
    assert refused(versioned.copy_object, Bucket="bkt", Key="x", CopySource=source)[:2] == (404, "NoSuchKey")
    assert refused(versioned.copy_object, Bucket="bkt", Key="x", CopySource=source | {"VersionId": marker})[:2] == (400, "InvalidRequest")
    upload = versioned.create_multipart_upload(Bucket="bkt", Key="x")["UploadId"]
    part = versioned.upload_part_copy(Bucket="bkt", Key="x", UploadId=upload, PartNumber=1, CopySource=source | {"VersionId": second})
    assert part["CopySourceVersionId"] == second
    done = versioned.complete_multipart_upload(
        Bucket="bkt", Key="x", UploadId=upload, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["CopyPartResult"]["ETag"]}]}
    )
    assert get(versioned, done["VersionId"], "x") == ("two", done["VersionId"])


# If the reply was lost, a client may repeat the request when another version is already the current
# one.
def test_a_repeated_complete_names_the_older_version(versioned):
    upload = versioned.create_multipart_upload(Bucket="bkt", Key="k")["UploadId"]
    part = versioned.upload_part(Bucket="bkt", Key="k", UploadId=upload, PartNumber=1, Body=b"text")
    complete = {"Bucket": "bkt", "Key": "k", "UploadId": upload, "MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}}
    first = versioned.complete_multipart_upload(**complete)
    newer = put(versioned, "newer")

    second = versioned.complete_multipart_upload(**complete)

    assert (second["VersionId"], second["ETag"]) == (first["VersionId"], first["ETag"])
    assert get(versioned) == ("newer", newer)


def test_many_versions_are_deleted_at_once(versioned):
    first, second = put(versioned, "one"), put(versioned, "two")

    reply = versioned.delete_objects(
        Bucket="bkt", Delete={"Objects": [{"Key": "k", "VersionId": first}, {"Key": "k"}, {"Key": "k", "VersionId": "unknown"}]}
    )

    plain, marked = sorted(reply["Deleted"], key=lambda d: "DeleteMarker" in d)
    assert plain == {"Key": "k", "VersionId": first} and marked["DeleteMarker"] is True
    assert [error["Code"] for error in reply["Errors"]] == ["NoSuchVersion"]
    assert names(versioned) == {("k", second): ("Version", False), ("k", marked["DeleteMarkerVersionId"]): ("Marker", True)}


def test_a_bucket_with_versions_is_not_deleted(versioned):
    version = put(versioned, "text")
    marker = versioned.delete_object(Bucket="bkt", Key="k")["VersionId"]

    assert refused(versioned.delete_bucket, Bucket="bkt")[:2] == (409, "BucketNotEmpty")
    for each in (version, marker):
        versioned.delete_object(Bucket="bkt", Key="k", VersionId=each)
    versioned.delete_bucket(Bucket="bkt")


@pytest.mark.parametrize("call, options, code", [
    ("get_object", {"Key": "k", "VersionId": "zz"}, "InvalidArgument"),
    ("get_object", {"Key": "k", "VersionId": "0123456789abcdef"}, "NoSuchVersion"),
    ("put_bucket_versioning", {"VersioningConfiguration": {"Status": "On"}}, "MalformedXML"),
    ("put_bucket_versioning", {"VersioningConfiguration": {}}, "IllegalVersioningConfigurationException"),
    ("put_bucket_versioning", {"VersioningConfiguration": {"Status": "Enabled", "MFADelete": "Enabled"}}, "NotImplemented"),
    ("list_object_versions", {"VersionIdMarker": "null"}, "InvalidArgument"),
])  # fmt: skip
def test_invalid_requests_are_refused_by_name(versioned, call, options, code):
    put(versioned, "text")

    assert refused(getattr(versioned, call), Bucket="bkt", **options)[1] == code

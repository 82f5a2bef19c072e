"""Tags of objects and buckets, as boto3 sees them."""
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode

import pytest
from botocore.exceptions import ClientError

from harness.s3_wire import Wire


@pytest.fixture
def s3(store):
    store.client.create_bucket(Bucket="bkt")
    return store.client


def tag_set(tags):
    return {"TagSet": [{"Key": key, "Value": value} for key, value in tags.items()]}


def tags(s3, key="k", **options):
    reply = s3.get_object_tagging(Bucket="bkt", Key=key, **options)
    return {tag["Key"]: tag["Value"] for tag in reply["TagSet"]}


def refused(call, **arguments):
    with pytest.raises(ClientError) as failure:
        call(**arguments)
    reply = failure.value.response
    return reply["ResponseMetadata"]["HTTPStatusCode"], reply["Error"]["Code"]


# Tags with all characters that a tag may have.
ODD = {"a b+c-d=e._:/@ü": "= +-._:/@€😀", "empty": ""}


def test_tags_of_an_object_are_replaced_and_removed(s3):
    s3.put_object(Bucket="bkt", Key="k", Body=b"x", Metadata={"m": "v"}, ContentType="text/plain")
    before = s3.head_object(Bucket="bkt", Key="k")

    assert tags(s3) == {} and "TagCount" not in s3.get_object(Bucket="bkt", Key="k")
    s3.put_object_tagging(Bucket="bkt", Key="k", Tagging=tag_set({"a": "1", "b": "2"}))
    s3.put_object_tagging(Bucket="bkt", Key="k", Tagging=tag_set(ODD))
    assert tags(s3) == ODD
    assert s3.get_object(Bucket="bkt", Key="k")["TagCount"] == 2
    after = s3.head_object(Bucket="bkt", Key="k")
    assert all(before[name] == after[name] for name in ("ETag", "LastModified", "Metadata", "ContentType"))
    s3.delete_object_tagging(Bucket="bkt", Key="k")
    assert tags(s3) == {}
    s3.put_object_tagging(Bucket="bkt", Key="k", Tagging=tag_set({}))
    assert tags(s3) == {}


def test_an_object_gets_its_tags_with_its_bytes(s3):
    s3.put_object(Bucket="bkt", Key="k", Tagging="a=b+c&d=%2B&e")
    upload = s3.create_multipart_upload(Bucket="bkt", Key="parts", Tagging="p=1")["UploadId"]
    part = s3.upload_part(Bucket="bkt", Key="parts", UploadId=upload, PartNumber=1, Body=b"x")
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    s3.complete_multipart_upload(Bucket="bkt", Key="parts", UploadId=upload, MultipartUpload=parts)

    assert tags(s3) == {"a": "b c", "d": "+", "e": ""}
    assert tags(s3, "parts") == {"p": "1"}
    s3.put_object(Bucket="bkt", Key="k")
    assert tags(s3) == {}


def test_a_copy_has_the_tags_of_its_source_or_its_own(s3):
    source = {"Bucket": "bkt", "Key": "k"}
    s3.put_object(Bucket="bkt", Key="k", Tagging="a=1", Metadata={"m": "v"})

    s3.copy_object(Bucket="bkt", Key="same", CopySource=source)
    s3.copy_object(Bucket="bkt", Key="metadata", CopySource=source, MetadataDirective="REPLACE")
    s3.copy_object(Bucket="bkt", Key="own", CopySource=source, TaggingDirective="REPLACE", Tagging="b=2")
    s3.copy_object(Bucket="bkt", Key="none", CopySource=source, TaggingDirective="REPLACE")

    assert tags(s3, "same") == tags(s3, "metadata") == {"a": "1"}
    assert tags(s3, "own") == {"b": "2"} and tags(s3, "none") == {}
    assert s3.head_object(Bucket="bkt", Key="own")["Metadata"] == {"m": "v"}


def test_each_version_has_its_own_tags(s3):
    s3.put_bucket_versioning(Bucket="bkt", VersioningConfiguration={"Status": "Enabled"})
    first = s3.put_object(Bucket="bkt", Key="k", Tagging="v=1")["VersionId"]
    second = s3.put_object(Bucket="bkt", Key="k", Tagging="v=2")["VersionId"]

    assert s3.put_object_tagging(Bucket="bkt", Key="k", VersionId=first, Tagging=tag_set({"n": "1"}))["VersionId"] == first
    assert s3.delete_object_tagging(Bucket="bkt", Key="k")["VersionId"] == second
    assert (tags(s3), tags(s3, VersionId=first)) == ({}, {"n": "1"})
    assert s3.get_object_tagging(Bucket="bkt", Key="k", VersionId=first)["VersionId"] == first
    marker = s3.delete_object(Bucket="bkt", Key="k")["VersionId"]
    assert refused(tags, s3=s3, VersionId=marker) == (405, "MethodNotAllowed")
    assert refused(s3.put_object_tagging, Bucket="bkt", Key="k", VersionId=marker, Tagging=tag_set({})) == (405, "MethodNotAllowed")
    assert refused(s3.put_object_tagging, Bucket="bkt", Key="k", Tagging=tag_set({})) == (404, "NoSuchKey")
    assert refused(s3.delete_object_tagging, Bucket="bkt", Key="none") == (404, "NoSuchKey")


def test_tags_of_many_clients_are_all_taken(s3):
    s3.put_object(Bucket="bkt", Key="k")
    sets = [{"n": str(n)} for n in range(64)]

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda each: s3.put_object_tagging(Bucket="bkt", Key="k", Tagging=tag_set(each)), sets))

    assert tags(s3) in sets


def test_tags_of_a_bucket(s3):
    assert refused(s3.get_bucket_tagging, Bucket="bkt") == (404, "NoSuchTagSet")
    many = {f"k{i}": f"v{i}" for i in range(50)}
    s3.put_bucket_tagging(Bucket="bkt", Tagging=tag_set(many))
    assert {tag["Key"]: tag["Value"] for tag in s3.get_bucket_tagging(Bucket="bkt")["TagSet"]} == many
    assert refused(s3.put_bucket_tagging, Bucket="bkt", Tagging=tag_set(many | {"more": ""})) == (400, "BadRequest")
    s3.delete_bucket_tagging(Bucket="bkt")
    assert refused(s3.get_bucket_tagging, Bucket="bkt") == (404, "NoSuchTagSet")
    assert refused(s3.put_bucket_tagging, Bucket="none", Tagging=tag_set(many)) == (404, "NoSuchBucket")


def test_a_bucket_is_created_with_tags(store):
    wire = Wire(store)
    tag = "<Tag><Key>{}</Key><Value>b</Value></Tag>"

    def create(bucket, *keys):
        inside = "".join(tag.format(key) for key in keys)
        return wire.send("PUT", f"/{bucket}", body=f"<CreateBucketConfiguration><Tags>{inside}</Tags></CreateBucketConfiguration>".encode())

    assert create("new", "a").status == 200
    assert store.client.get_bucket_tagging(Bucket="new")["TagSet"] == [{"Key": "a", "Value": "b"}]
    assert create("new", "a").code == "BucketAlreadyOwnedByYou"
    assert create("other", "a", "a").code == "InvalidTag"
    assert wire.send("HEAD", "/other").status == 404


@pytest.mark.parametrize("wrong, code", [
    ({"k" * 129: "v"}, "InvalidTag"),
    ({"k": "v" * 257}, "InvalidTag"),
    ({"k": "a?b"}, "InvalidTag"),
    ({"k\t": "v"}, "InvalidTag"),
    ({"aws:k": "v"}, "InvalidTag"),
    ({f"k{i}": "" for i in range(11)}, "BadRequest"),
])  # fmt: skip
def test_invalid_tags_are_refused_everywhere(s3, wrong, code):
    s3.put_object(Bucket="bkt", Key="k", Tagging="old=1")

    assert refused(s3.put_object_tagging, Bucket="bkt", Key="k", Tagging=tag_set(wrong)) == (400, code)
    assert refused(s3.put_object, Bucket="bkt", Key="k", Tagging=urlencode(wrong)) == (400, code)
    assert refused(s3.create_multipart_upload, Bucket="bkt", Key="k", Tagging=urlencode(wrong)) == (400, code)
    source = {"Bucket": "bkt", "Key": "k"}
    assert refused(s3.copy_object, Bucket="bkt", Key="k2", CopySource=source, TaggingDirective="REPLACE", Tagging=urlencode(wrong)) == (400, code)
    assert tags(s3) == {"old": "1"}


@pytest.mark.parametrize("header", ["a=1&a=2", "a=%zz", "a=%ff"])
def test_a_malformed_header_is_refused(s3, header):
    assert refused(s3.put_object, Bucket="bkt", Key="k", Tagging=header) == (400, "InvalidArgument")


@pytest.mark.parametrize("document", [
    b"", b"rubbish", b"<Tagging/>", b"<Other><TagSet/></Other>",
    b"<Tagging><TagSet><Tag><Key>a</Key></Tag></TagSet></Tagging>",
    b"<Tagging><TagSet><Tag><Value>a</Value></Tag></TagSet></Tagging>",
])  # fmt: skip
def test_a_malformed_document_is_refused(store, s3, document):
    s3.put_object(Bucket="bkt", Key="k")
    wire = Wire(store)

    for path in ("/bkt", "/bkt/k"):
        assert wire.send("PUT", path, "tagging=", body=document).code == "MalformedXML"


def test_the_longest_tags_are_taken_and_longer_documents_refused(store, s3):
    wire = Wire(store)
    s3.put_object(Bucket="bkt", Key="k", Body=b"x")
    longest = "".join(f"<Tag><Key>{i}{'&#8364;' * 127}</Key><Value>{'&#8364;' * 256}</Value></Tag>" for i in range(10))

    reply = wire.send("PUT", "/bkt/k", "tagging=", body=f"<Tagging><TagSet>{longest}</TagSet></Tagging>".encode())
    assert reply.status == 200, reply.body
    assert tags(s3) == {f"{i}{'€' * 127}": "€" * 256 for i in range(10)}
    for sub in ("tagging", "retention", "legal-hold", "acl"):
        reply = wire.send("PUT", "/bkt/k", sub + "=", body=b" " * (65 << 10))
        assert (reply.status, reply.code) == (400, "MaxMessageLengthExceeded")


def test_an_empty_key_is_refused(store, s3):
    s3.put_object(Bucket="bkt", Key="k")
    wire = Wire(store)
    document = b"<Tagging><TagSet><Tag><Key/><Value>v</Value></Tag></TagSet></Tagging>"

    assert wire.send("PUT", "/bkt/k", "tagging=", body=document).code == "InvalidTag"
    assert wire.send("PUT", "/bkt/k", headers={"x-amz-tagging": "=v"}).code == "InvalidTag"

"""Lists of grants (ACLs) of buckets and objects, and the owners of objects."""
import json
import sqlite3

import boto3
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError

GROUPS = "http://acs.amazonaws.com/groups/"
ALL_READ = ("READ", GROUPS + "global/AllUsers")
OTHER_ID = "ab" * 32
DENIED = (403, "AccessDenied")


@pytest.fixture
def s3(store):
    """A client of the first account, in a store that has another account."""
    record = {"id": OTHER_ID, "name": "ada", "email": "ada@example.com", "keys": {"AKADA": {"secret": "secret-ada", "active": True}}}
    store.stop()
    with sqlite3.connect(store.root / "meta.db") as db:
        db.execute("INSERT INTO meta(name, value) VALUES('iam/account/111111111111', ?)", (json.dumps(record),))
    db.close()
    store.start()
    client = store.boto3()
    client.create_bucket(Bucket="bkt")
    return client


@pytest.fixture
def anyone(s3, store):
    return store.boto3(signature_version=UNSIGNED)


@pytest.fixture
def ada(s3, store):
    """A client of the other account."""
    options = {"aws_access_key_id": "AKADA", "aws_secret_access_key": "secret-ada", "region_name": "us-east-1"}
    return boto3.client("s3", endpoint_url=store.endpoint, config=Config(s3={"addressing_style": "path"}), **options)


def refused(call, **arguments):
    with pytest.raises(ClientError) as failure:
        call(**arguments)
    reply = failure.value.response
    return reply["ResponseMetadata"]["HTTPStatusCode"], reply["Error"]["Code"]


def grants(reply):
    return [(g["Permission"], g["Grantee"].get("ID") or g["Grantee"]["URI"]) for g in reply["Grants"]]


def grantee(permission, **who):
    kind = "Group" if "URI" in who else "CanonicalUser" if "ID" in who else "AmazonCustomerByEmail"
    return {"Permission": permission, "Grantee": {"Type": kind} | who}


def owner_id(s3):
    return s3.list_buckets()["Owner"]["ID"]


def body(s3, key, **options):
    return s3.get_object(Bucket="bkt", Key=key, **options)["Body"].read()


def block(s3, **settings):
    names = ["BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"]
    s3.put_public_access_block(
        Bucket="bkt", PublicAccessBlockConfiguration={name: settings.get(name, False) for name in names}
    )


def own(s3, ownership):
    s3.put_bucket_ownership_controls(Bucket="bkt", OwnershipControls={"Rules": [{"ObjectOwnership": ownership}]})


# --- what grants allow


def test_an_object_is_public_as_long_as_its_list_says_so(s3, anyone, store):
    s3.put_object(Bucket="bkt", Key="open", Body=b"x", ACL="public-read")
    s3.put_object(Bucket="bkt", Key="closed", Body=b"x")

    assert body(anyone, "open") == b"x"
    assert refused(anyone.get_object, Bucket="bkt", Key="closed") == DENIED
    assert refused(anyone.list_objects_v2, Bucket="bkt") == DENIED
    assert refused(anyone.get_object_acl, Bucket="bkt", Key="open") == DENIED
    assert refused(anyone.put_object, Bucket="bkt", Key="open", Body=b"y") == DENIED
    assert refused(anyone.delete_object, Bucket="bkt", Key="open") == DENIED
    store.kill()
    store.start()
    anyone, s3 = store.boto3(signature_version=UNSIGNED), store.boto3()
    assert body(anyone, "open") == b"x"
    s3.put_object_acl(Bucket="bkt", Key="open", ACL="private")
    assert refused(anyone.get_object, Bucket="bkt", Key="open") == DENIED
    s3.put_object_acl(Bucket="bkt", Key="open", ACL="public-read")
    s3.put_object(Bucket="bkt", Key="open", Body=b"new")
    assert refused(anyone.get_object, Bucket="bkt", Key="open") == DENIED


def test_a_public_bucket_is_listed_and_written_by_all(s3, anyone):
    s3.put_object(Bucket="bkt", Key="k", Body=b"x")
    s3.put_bucket_acl(Bucket="bkt", ACL="public-read")
    assert [o["Key"] for o in anyone.list_objects_v2(Bucket="bkt")["Contents"]] == ["k"]
    assert refused(anyone.put_object, Bucket="bkt", Key="new") == DENIED
    assert refused(anyone.get_object, Bucket="bkt", Key="k") == DENIED
    assert s3.get_bucket_policy_status(Bucket="bkt")["PolicyStatus"]["IsPublic"]

    s3.put_bucket_acl(Bucket="bkt", ACL="public-read-write")
    anyone.put_object(Bucket="bkt", Key="new", Body=b"y")
    # The bucket's owner owns an anonymous upload: without an owner, nobody could manage the object.
    assert body(s3, "new") == b"y"
    assert s3.get_object_acl(Bucket="bkt", Key="new")["Owner"]["ID"] == owner_id(s3)
    anyone.delete_object(Bucket="bkt", Key="k")
    assert refused(anyone.get_bucket_acl, Bucket="bkt") == DENIED
    assert refused(anyone.delete_bucket, Bucket="bkt") == DENIED


@pytest.mark.parametrize("permission, allowed", [
    ("READ", {"list"}), ("WRITE", {"put"}), ("READ_ACP", {"get acl"}), ("WRITE_ACP", {"put acl"}),
    ("FULL_CONTROL", {"list", "put", "get acl", "put acl"}),
])  # fmt: skip
def test_a_grant_to_an_account_allows_what_it_names(s3, ada, permission, allowed):
    s3.put_bucket_acl(Bucket="bkt", **{f"Grant{permission.title().replace('_', '').replace('Acp', 'ACP')}": f'id="{OTHER_ID}"'})
    calls = {
        "list": lambda: ada.list_objects_v2(Bucket="bkt"),
        "put": lambda: ada.put_object(Bucket="bkt", Key="k"),
        "get acl": lambda: ada.get_bucket_acl(Bucket="bkt"),
        "put acl": lambda: ada.put_bucket_acl(Bucket="bkt", ACL="private"),
    }

    for name, call in calls.items():
        if name in allowed:
            call()
        else:
            assert refused(call) == DENIED


def test_an_owner_without_a_grant_can_still_repair_the_list(s3, ada):
    owner = {"ID": owner_id(s3)}
    s3.put_bucket_acl(Bucket="bkt", AccessControlPolicy={"Owner": owner, "Grants": []})

    assert grants(s3.get_bucket_acl(Bucket="bkt")) == []
    s3.put_bucket_acl(Bucket="bkt", ACL="private")
    assert grants(s3.get_bucket_acl(Bucket="bkt")) == [("FULL_CONTROL", owner["ID"])]


# --- lists in requests


def test_grants_are_given_by_headers_and_documents(s3):
    s3.put_object(
        Bucket="bkt", Key="k", GrantFullControl="emailAddress=ada@example.com", GrantReadACP=f'id={OTHER_ID}, uri="{ALL_READ[1]}"'
    )
    reply = s3.get_object_acl(Bucket="bkt", Key="k")

    assert grants(reply) == [("READ_ACP", ALL_READ[1]), ("READ_ACP", OTHER_ID), ("FULL_CONTROL", OTHER_ID)]
    assert reply["Grants"][1]["Grantee"]["DisplayName"] == "ada"
    again = {"Owner": reply["Owner"], "Grants": reply["Grants"][:1] + [grantee("WRITE", URI=GROUPS + "s3/LogDelivery")]}
    s3.put_object_acl(Bucket="bkt", Key="k", AccessControlPolicy=again)
    assert grants(s3.get_object_acl(Bucket="bkt", Key="k")) == [("READ_ACP", ALL_READ[1]), ("WRITE", GROUPS + "s3/LogDelivery")]


@pytest.mark.parametrize("options, status, code", [
    ({"ACL": "public"}, 400, "InvalidArgument"),
    ({"ACL": "aws-exec-read"}, 501, "NotImplemented"),
    ({"GrantRead": "id=nobody"}, 400, "InvalidArgument"),
    ({"GrantRead": "all"}, 400, "InvalidArgument"),
    ({"GrantRead": "uri=http://example.com/all"}, 400, "InvalidArgument"),
    ({"GrantRead": "emailAddress=nobody@example.com"}, 400, "UnresolvableGrantByEmailAddress"),
    ({"ACL": "private", "GrantRead": f"id={OTHER_ID}"}, 400, "InvalidRequest"),
])  # fmt: skip
def test_an_invalid_list_is_refused_and_changes_nothing(s3, options, status, code):
    s3.put_object(Bucket="bkt", Key="k", ACL="public-read")

    for call in (s3.put_object_acl, s3.put_object, s3.create_multipart_upload):
        assert refused(call, Bucket="bkt", Key="k", **options) == (status, code)
    assert refused(s3.copy_object, Bucket="bkt", Key="k", CopySource="bkt/k", MetadataDirective="REPLACE", **options) == (status, code)
    assert refused(s3.put_bucket_acl, Bucket="bkt", **options) == (status, code)
    assert refused(s3.create_bucket, Bucket="new", **options) == (status, code)
    assert grants(s3.get_object_acl(Bucket="bkt", Key="k")) == [ALL_READ, ("FULL_CONTROL", owner_id(s3))]
    assert [b["Name"] for b in s3.list_buckets()["Buckets"]] == ["bkt"]


def test_an_invalid_document_is_refused(s3):
    owner = {"ID": owner_id(s3)}
    s3.put_object(Bucket="bkt", Key="k")

    def put(document):
        return refused(s3.put_object_acl, Bucket="bkt", Key="k", AccessControlPolicy=document)

    assert put({"Owner": owner, "Grants": [grantee("ALL", ID=OTHER_ID)]}) == (400, "MalformedACLError")
    assert put({"Owner": owner, "Grants": [grantee("READ", ID=OTHER_ID)] * 101}) == (400, "MalformedACLError")
    assert put({"Grants": []}) == (400, "MalformedACLError")
    assert put({"Owner": {"ID": OTHER_ID}, "Grants": []}) == DENIED
    assert refused(s3.put_object_acl, Bucket="bkt", Key="k") == (400, "MissingSecurityHeader")


def test_each_version_has_a_list(s3, anyone):
    s3.put_bucket_versioning(Bucket="bkt", VersioningConfiguration={"Status": "Enabled"})
    old = s3.put_object(Bucket="bkt", Key="k", Body=b"old")["VersionId"]
    new = s3.put_object(Bucket="bkt", Key="k", Body=b"new")["VersionId"]

    reply = s3.put_object_acl(Bucket="bkt", Key="k", VersionId=old, ACL="public-read")

    assert reply["ResponseMetadata"]["HTTPHeaders"]["x-amz-version-id"] == old
    assert body(anyone, "k", VersionId=old) == b"old"
    assert refused(anyone.get_object, Bucket="bkt", Key="k") == DENIED
    assert refused(anyone.get_object, Bucket="bkt", Key="k", VersionId=new) == DENIED
    assert grants(s3.get_object_acl(Bucket="bkt", Key="k", VersionId=old))[0] == ALL_READ
    assert grants(s3.get_object_acl(Bucket="bkt", Key="k"))[0][0] == "FULL_CONTROL"


def test_copies_and_uploads_have_lists_of_their_own(s3, anyone):
    s3.put_object(Bucket="bkt", Key="k", Body=b"x", ACL="public-read")
    s3.copy_object(Bucket="bkt", Key="plain", CopySource="bkt/k")
    s3.copy_object(Bucket="bkt", Key="open", CopySource="bkt/k", ACL="public-read")
    upload = s3.create_multipart_upload(Bucket="bkt", Key="parts", ACL="public-read")["UploadId"]
    part = s3.upload_part(Bucket="bkt", Key="parts", UploadId=upload, PartNumber=1, Body=b"x")
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    s3.complete_multipart_upload(Bucket="bkt", Key="parts", UploadId=upload, MultipartUpload=parts)

    assert refused(anyone.get_object, Bucket="bkt", Key="plain") == DENIED
    assert body(anyone, "open") == b"x"
    assert body(anyone, "parts") == b"x"


# --- owners


def test_an_object_belongs_to_its_writer(s3, ada):
    s3.put_bucket_acl(Bucket="bkt", GrantWrite=f"id={OTHER_ID}")
    ada.put_object(Bucket="bkt", Key="k", Body=b"x")
    ada.put_object(Bucket="bkt", Key="shared", Body=b"y", ACL="bucket-owner-full-control")

    assert body(ada, "k") == b"x"
    assert refused(s3.get_object, Bucket="bkt", Key="k") == DENIED
    assert refused(s3.put_object_acl, Bucket="bkt", Key="k", ACL="public-read") == DENIED
    assert body(s3, "shared") == b"y"
    reply = s3.get_object_acl(Bucket="bkt", Key="shared")
    assert reply["Owner"] == {"ID": OTHER_ID, "DisplayName": "ada"}
    assert grants(reply) == [("FULL_CONTROL", OTHER_ID), ("FULL_CONTROL", owner_id(s3))]
    s3.delete_object(Bucket="bkt", Key="k")
    assert refused(ada.get_object, Bucket="bkt", Key="k")[0] in (403, 404)


def test_the_owner_of_the_bucket_may_own_its_objects(s3, ada):
    s3.put_bucket_acl(Bucket="bkt", GrantWrite=f"id={OTHER_ID}")
    own(s3, "BucketOwnerPreferred")
    ada.put_object(Bucket="bkt", Key="given", Body=b"x", ACL="bucket-owner-full-control")
    ada.put_object(Bucket="bkt", Key="kept", Body=b"x")

    assert s3.get_object_acl(Bucket="bkt", Key="given")["Owner"]["ID"] == owner_id(s3)
    assert refused(ada.get_object, Bucket="bkt", Key="given") == DENIED
    assert refused(s3.get_object, Bucket="bkt", Key="kept") == DENIED


def test_lists_that_are_switched_off_do_not_count(s3, ada, anyone):
    s3.put_object(Bucket="bkt", Key="open", Body=b"x", ACL="public-read")
    s3.put_bucket_acl(Bucket="bkt", GrantWrite=f"id={OTHER_ID}")
    ada.put_object(Bucket="bkt", Key="k", Body=b"x")
    refusal = (400, "AccessControlListNotSupported")

    with pytest.raises(ClientError, match="InvalidBucketAclWithObjectOwnership"):
        own(s3, "BucketOwnerEnforced")
    s3.put_bucket_acl(Bucket="bkt", ACL="private")
    own(s3, "BucketOwnerEnforced")

    assert refused(anyone.get_object, Bucket="bkt", Key="open") == DENIED
    assert body(s3, "k") == b"x"
    assert grants(s3.get_object_acl(Bucket="bkt", Key="open")) == [("FULL_CONTROL", owner_id(s3))]
    assert refused(s3.put_object, Bucket="bkt", Key="k", ACL="private") == refusal
    assert refused(s3.put_object_acl, Bucket="bkt", Key="k", ACL="private") == refusal
    assert refused(s3.put_bucket_acl, Bucket="bkt", ACL="private") == refusal
    s3.put_object(Bucket="bkt", Key="k", ACL="bucket-owner-full-control")


def test_a_bucket_begins_with_its_list_and_its_ownership(s3, anyone):
    s3.create_bucket(Bucket="open", ACL="public-read", ObjectOwnership="ObjectWriter")
    s3.create_bucket(Bucket="closed", ObjectOwnership="BucketOwnerEnforced")

    assert anyone.list_objects_v2(Bucket="open")["KeyCount"] == 0
    assert refused(s3.put_object, Bucket="closed", Key="k", ACL="private")[1] == "AccessControlListNotSupported"
    # A second creation is refused, because a success would hide that its ACL is ignored.
    assert refused(s3.create_bucket, Bucket="open") == (409, "BucketAlreadyExists")
    options = {"ACL": "public-read", "ObjectOwnership": "BucketOwnerEnforced"}
    assert refused(s3.create_bucket, Bucket="new", **options) == (400, "InvalidBucketAclWithObjectOwnership")
    assert refused(s3.create_bucket, Bucket="new", ObjectOwnership="Writer") == (400, "InvalidArgument")


# --- blocked public access


def test_public_grants_can_be_refused_and_ignored(s3, ada, anyone):
    s3.put_object(Bucket="bkt", Key="k", Body=b"x", ACL="public-read")
    s3.put_object(Bucket="bkt", Key="granted", Body=b"x", GrantRead=f"id={OTHER_ID}")
    s3.put_bucket_acl(Bucket="bkt", ACL="authenticated-read")
    ada.list_objects_v2(Bucket="bkt")

    block(s3, BlockPublicAcls=True)
    for acl in ("public-read", "public-read-write", "authenticated-read"):
        assert refused(s3.put_object, Bucket="bkt", Key="k", ACL=acl) == DENIED
        assert refused(s3.put_object_acl, Bucket="bkt", Key="k", ACL=acl) == DENIED
        assert refused(s3.put_bucket_acl, Bucket="bkt", ACL=acl) == DENIED
    assert body(anyone, "k") == b"x"

    block(s3, IgnorePublicAcls=True)
    assert refused(anyone.get_object, Bucket="bkt", Key="k") == DENIED
    assert refused(ada.list_objects_v2, Bucket="bkt") == DENIED
    assert body(ada, "granted") == b"x"

"""Policies of buckets: anonymous readers, drop boxes, conditions, and the settings that limit them."""
import json
import re

import pytest
from botocore import UNSIGNED
from botocore.exceptions import ClientError

from harness.program import TOP
from harness.s3_wire import Wire

DENIED = (403, "AccessDenied")


@pytest.fixture
def s3(store):
    store.client.create_bucket(Bucket="bkt")
    return store.client


@pytest.fixture
def anyone(store):
    return store.boto3(signature_version=UNSIGNED)


def refused(call, **arguments):
    with pytest.raises(ClientError) as failure:
        call(**arguments)
    reply = failure.value.response
    return reply["ResponseMetadata"]["HTTPStatusCode"], reply["Error"]["Code"]


def statement(actions, resource="bkt/*", effect="Allow", condition=None, principal="*"):
    found = {"Effect": effect, "Principal": principal, "Action": actions, "Resource": f"arn:aws:s3:::{resource}"}
    return found | ({"Condition": condition} if condition else {})


def put_policy(s3, *statements, **options):
    text = json.dumps({"Version": "2012-10-17", "Statement": list(statements)})
    s3.put_bucket_policy(Bucket="bkt", Policy=text, **options)
    return text


def documented(name):
    """The policy of an example in the documentation."""
    text = (TOP / "docs" / "access.md").read_text(encoding="utf-8")
    section = text.split(f"## {name}\n", 1)[1]
    return "".join(line[4:] for line in re.search(r"\n((?:    .*\n|\n)+)", section).group(1).splitlines(True))


def test_a_bucket_keeps_its_policy_as_given(s3, store):
    assert refused(s3.get_bucket_policy, Bucket="bkt") == (404, "NoSuchBucketPolicy")
    text = put_policy(s3, statement("s3:GetObject"))
    assert s3.get_bucket_policy(Bucket="bkt")["Policy"] == text

    store.stop()
    store.start()
    s3 = store.boto3()
    assert s3.get_bucket_policy(Bucket="bkt")["Policy"] == text
    s3.delete_bucket_policy(Bucket="bkt")
    assert refused(s3.get_bucket_policy, Bucket="bkt") == (404, "NoSuchBucketPolicy")
    assert refused(s3.put_bucket_policy, Bucket="none", Policy=text) == (404, "NoSuchBucket")


@pytest.mark.parametrize("text", ["x", "{}", '{"Version":"2012-10-17","Statement":[]}', '{"Statement":' + " " * 20480 + "[]}"])
def test_an_invalid_policy_changes_nothing(s3, text):
    before = put_policy(s3, statement("s3:GetObject"))
    assert refused(s3.put_bucket_policy, Bucket="bkt", Policy=text) == (400, "MalformedPolicy")
    assert s3.get_bucket_policy(Bucket="bkt")["Policy"] == before


# The policy changes while the store serves requests. Each change is in force once its reply has
# been sent.
def test_anyone_may_do_what_the_policy_allows_and_nothing_else(s3, anyone):
    s3.put_object(Bucket="bkt", Key="data/x", Body=b"text")
    s3.put_object(Bucket="bkt", Key="secret", Body=b"text")
    for _ in range(3):
        assert refused(anyone.get_object, Bucket="bkt", Key="data/x") == DENIED
        put_policy(s3, statement("s3:GetObject", "bkt/data/*"))
        assert anyone.get_object(Bucket="bkt", Key="data/x")["Body"].read() == b"text"
        assert refused(anyone.get_object, Bucket="bkt", Key="secret") == DENIED
        assert refused(anyone.list_objects_v2, Bucket="bkt") == DENIED
        assert refused(anyone.put_object, Bucket="bkt", Key="data/x", Body=b"") == DENIED
        assert refused(anyone.delete_object, Bucket="bkt", Key="data/x") == DENIED
        assert refused(anyone.get_object_tagging, Bucket="bkt", Key="data/x") == DENIED
        assert refused(anyone.delete_bucket_policy, Bucket="bkt") == DENIED
        assert refused(anyone.create_bucket, Bucket="other") == DENIED
        s3.delete_bucket_policy(Bucket="bkt")


def test_only_a_signed_request_replaces_headers_of_the_reply(s3, store):
    """An unsigned link that sets the content type of the reply could make a browser show a public
    text as a web page."""
    s3.put_object(Bucket="bkt", Key="k", Body=b"<script>", ACL="public-read")
    wire = Wire(store)

    for query, status in [("", 200), ("?response-content-type=text/html", 400), ("?response-content-disposition=inline", 400)]:
        assert wire.raw("GET", "/bkt/k" + query, {"host": "x"}).status == status, query
    assert s3.get_object(Bucket="bkt", Key="k", ResponseContentType="text/html")["ContentType"] == "text/html"


def test_a_missing_object_is_hidden_from_those_who_may_not_list_it(s3, anyone):
    put_policy(s3, statement("s3:GetObject", "bkt/data/*"))
    assert refused(anyone.get_object, Bucket="bkt", Key="data/none") == DENIED

    listed = statement("s3:ListBucket", "bkt", condition={"StringLike": {"s3:prefix": "data/*"}})
    put_policy(s3, statement("s3:GetObject", "bkt/data/*"), listed)
    assert refused(anyone.get_object, Bucket="bkt", Key="data/none") == (404, "NoSuchKey")
    assert refused(anyone.get_object, Bucket="bkt", Key="other") == DENIED


def test_a_deleted_object_is_hidden_as_well(s3, anyone):
    s3.put_bucket_versioning(Bucket="bkt", VersioningConfiguration={"Status": "Enabled"})
    s3.put_object(Bucket="bkt", Key="data/x", Body=b"text")
    s3.delete_object(Bucket="bkt", Key="data/x")
    put_policy(s3, statement("s3:GetObject", "bkt/data/*"))

    with pytest.raises(ClientError) as failure:
        anyone.get_object(Bucket="bkt", Key="data/x")

    reply = failure.value.response
    assert reply["Error"]["Code"] == "AccessDenied"
    assert "x-amz-delete-marker" not in reply["ResponseMetadata"]["HTTPHeaders"]


def test_a_deny_also_holds_for_the_owner_but_not_for_the_policy_itself(s3):
    s3.put_object(Bucket="bkt", Key="k", Body=b"text")
    put_policy(s3, statement("s3:*", "bkt", "Deny"), statement(["s3:DeleteObject", "s3:PutObject"], effect="Deny"))
    assert refused(s3.delete_object, Bucket="bkt", Key="k") == DENIED
    assert s3.delete_objects(Bucket="bkt", Delete={"Objects": [{"Key": "k"}]})["Errors"][0]["Code"] == "AccessDenied"
    assert refused(s3.put_object, Bucket="bkt", Key="k", Body=b"") == DENIED
    assert refused(s3.create_multipart_upload, Bucket="bkt", Key="k") == DENIED
    assert refused(s3.list_objects, Bucket="bkt") == DENIED
    assert refused(s3.get_bucket_tagging, Bucket="bkt") == DENIED
    assert s3.get_object(Bucket="bkt", Key="k")["Body"].read() == b"text"

    put_policy(s3, statement("s3:*", "bkt", "Deny"), ConfirmRemoveSelfBucketAccess=True)
    assert refused(s3.get_bucket_policy, Bucket="bkt") == DENIED
    assert refused(s3.delete_bucket_policy, Bucket="bkt") == DENIED


def test_both_sides_of_a_copy_are_checked(s3):
    s3.put_object(Bucket="bkt", Key="public/x", Body=b"text", Tagging="a=b")
    s3.put_object(Bucket="bkt", Key="private/x", Body=b"text")
    put_policy(s3, statement("s3:GetObject", "bkt/private/*", "Deny"), statement("s3:PutObject", "bkt/out/*", "Deny"))
    assert refused(s3.copy_object, Bucket="bkt", Key="copy", CopySource="bkt/private/x") == DENIED
    assert refused(s3.copy_object, Bucket="bkt", Key="out/copy", CopySource="bkt/public/x") == DENIED
    s3.copy_object(Bucket="bkt", Key="copy", CopySource="bkt/public/x")
    upload = s3.create_multipart_upload(Bucket="bkt", Key="parts")["UploadId"]
    part = {"Bucket": "bkt", "Key": "parts", "UploadId": upload, "PartNumber": 1}
    assert refused(s3.upload_part_copy, **part, CopySource="bkt/private/x") == DENIED
    s3.upload_part_copy(**part, CopySource="bkt/public/x")

    put_policy(s3, statement("s3:GetObjectTagging", effect="Deny"))
    assert refused(s3.copy_object, Bucket="bkt", Key="copy", CopySource="bkt/public/x") == DENIED
    s3.copy_object(Bucket="bkt", Key="copy", CopySource="bkt/public/x", TaggingDirective="REPLACE")


@pytest.mark.parametrize(
    "condition, held",
    [
        ({"StringEquals": {"s3:ExistingObjectTag/kind": "open"}}, True),
        ({"StringEquals": {"s3:ExistingObjectTag/kind": "closed"}}, False),
        ({"IpAddress": {"aws:SourceIp": "127.0.0.0/8"}}, True),
        ({"NotIpAddress": {"aws:SourceIp": "127.0.0.0/8"}}, False),
        ({"Bool": {"aws:SecureTransport": "false"}}, True),
        ({"StringLike": {"aws:UserAgent": "*Boto*"}}, True),
        ({"StringEquals": {"s3:authType": "REST-HEADER"}}, False),
        ({"Null": {"s3:authType": "true"}}, True),
        ({"DateLessThan": {"aws:CurrentTime": "2020-01-01T00:00:00Z"}}, False),
        ({"StringEquals": {"aws:PrincipalType": "Anonymous"}}, True),
        ({"Null": {"aws:PrincipalArn": "false"}}, False),
    ],
)
def test_a_condition_decides(s3, anyone, condition, held):
    s3.put_object(Bucket="bkt", Key="k", Body=b"text", Tagging="kind=open")
    put_policy(s3, statement("s3:GetObject", condition=condition))
    if held:
        assert anyone.get_object(Bucket="bkt", Key="k")["Body"].read() == b"text"
    else:
        assert refused(anyone.get_object, Bucket="bkt", Key="k") == DENIED


def test_a_policy_for_a_network_admits_all_requests(s3, anyone):
    """The policy names a network, so it is not public. A deletion of many objects checks the policy
    for each object."""
    for key in "data/x", "other":
        s3.put_object(Bucket="bkt", Key=key, Body=b"text")
    put_policy(s3, statement("s3:DeleteObject", "bkt/data/*", condition={"IpAddress": {"aws:SourceIp": "127.0.0.0/8"}}))

    reply = anyone.delete_objects(Bucket="bkt", Delete={"Objects": [{"Key": "data/x"}, {"Key": "other"}]})

    assert [deleted["Key"] for deleted in reply["Deleted"]] == ["data/x"]
    assert [(error["Key"], error["Code"]) for error in reply["Errors"]] == [("other", "AccessDenied")]


def test_a_pattern_is_compared_with_no_long_value(s3, store):
    """The comparison of a pattern in a policy of 20 KB with a head of 64 KB would keep an event
    loop busy for seconds."""
    put_policy(s3, statement("s3:GetObject", condition={"StringLike": {"aws:UserAgent": "*" + "a" * 15_000 + "b*"}}))
    wire = Wire(store)

    reply = wire.raw("GET", "/bkt/k", {"host": "x", "user-agent": "a" * 40_000})

    assert (reply.status, reply.code) == (503, "SlowDown")
    assert wire.raw("GET", "/bkt/k", {"host": "x", "user-agent": "a" * 2000}).status == 403


def test_policies_that_take_too_long_are_refused(s3, store):
    """The patterns of this policy would keep an event loop busy for 10 ms for each key, and for a
    minute for a list of keys."""
    patterns = ["arn:aws:s3:::bkt/*" + "a" * 500 + "b"] * 36 + ["arn:aws:s3:::bkt/k"]
    put_policy(s3, statement("s3:GetObject") | {"Resource": patterns})
    s3.put_object(Bucket="bkt", Key="k", Body=b"text")
    wire, long = Wire(store), "a" * 1000

    reply = wire.raw("GET", f"/bkt/{long}", {"host": "x"})
    lines = f"0 1 - {long}\n0 4 - k\n".encode()
    read = wire.raw("POST", "/bkt?penstock-read", {"host": "x", "content-length": str(len(lines))}, lines)

    assert (reply.status, reply.code) == (503, "SlowDown")
    assert [read.body[24 * i : 24 * i + 4] for i in (0, 1)] == [(503).to_bytes(4, "little"), (200).to_bytes(4, "little")]
    assert wire.raw("GET", "/bkt/k", {"host": "x"}).body == b"text"


def test_conditions_on_what_is_written(s3):
    put_policy(
        s3,
        statement("s3:PutObject", effect="Deny", condition={"StringEquals": {"s3:RequestObjectTag/kind": "closed"}}),
        statement("s3:PutObjectTagging", effect="Deny", condition={"Null": {"s3:RequestObjectTag/kind": "true"}}),
        statement("s3:PutObject", effect="Deny", condition={"StringLike": {"s3:x-amz-copy-source": "bkt/private/*"}}),
        statement("s3:ListBucket", "bkt", "Deny", condition={"NumericGreaterThan": {"s3:max-keys": "10"}}),
        statement("s3:DeleteObjectVersion", effect="Deny"),
    )
    s3.put_object(Bucket="bkt", Key="private/x", Body=b"")
    assert refused(s3.put_object, Bucket="bkt", Key="k", Body=b"", Tagging="kind=closed") == DENIED
    assert refused(s3.put_object_tagging, Bucket="bkt", Key="private/x", Tagging={"TagSet": [{"Key": "a", "Value": "b"}]}) == DENIED
    s3.put_object_tagging(Bucket="bkt", Key="private/x", Tagging={"TagSet": [{"Key": "kind", "Value": "b"}]})
    assert refused(s3.copy_object, Bucket="bkt", Key="k", CopySource="bkt/private/x") == DENIED
    assert refused(s3.list_objects_v2, Bucket="bkt", MaxKeys=11) == DENIED
    s3.list_objects_v2(Bucket="bkt", MaxKeys=10)
    assert refused(s3.delete_object, Bucket="bkt", Key="private/x", VersionId="null") == DENIED
    s3.delete_object(Bucket="bkt", Key="private/x")


def test_public_access_is_blocked(s3, anyone):
    assert refused(s3.get_public_access_block, Bucket="bkt") == (404, "NoSuchPublicAccessBlockConfiguration")
    s3.put_object(Bucket="bkt", Key="k", Body=b"text")
    put_policy(s3, statement("s3:GetObject"))
    assert s3.get_bucket_policy_status(Bucket="bkt")["PolicyStatus"] == {"IsPublic": True}
    block = {"BlockPublicAcls": True, "IgnorePublicAcls": False, "BlockPublicPolicy": True, "RestrictPublicBuckets": True}
    s3.put_public_access_block(Bucket="bkt", PublicAccessBlockConfiguration=block)

    assert s3.get_public_access_block(Bucket="bkt")["PublicAccessBlockConfiguration"] == block
    assert refused(anyone.get_object, Bucket="bkt", Key="k") == DENIED
    assert s3.get_object(Bucket="bkt", Key="k")["Body"].read() == b"text"
    for condition in None, {"StringEquals": {"aws:userid": "anonymous"}}:
        with pytest.raises(ClientError, match="AccessDenied"):
            put_policy(s3, statement("s3:GetObject", condition=condition))
    put_policy(s3, statement("s3:GetObject", condition={"IpAddress": {"aws:SourceIp": "127.0.0.1"}}))
    assert s3.get_bucket_policy_status(Bucket="bkt")["PolicyStatus"] == {"IsPublic": False}
    assert anyone.get_object(Bucket="bkt", Key="k")["Body"].read() == b"text"
    s3.delete_public_access_block(Bucket="bkt")
    put_policy(s3, statement("s3:GetObject"))
    assert anyone.get_object(Bucket="bkt", Key="k")["Body"].read() == b"text"


def test_object_ownership_is_kept(s3):
    missing = (404, "OwnershipControlsNotFoundError")
    assert refused(s3.get_bucket_ownership_controls, Bucket="bkt") == missing
    for ownership in "ObjectWriter", "BucketOwnerPreferred", "BucketOwnerEnforced":
        controls = {"Rules": [{"ObjectOwnership": ownership}]}
        s3.put_bucket_ownership_controls(Bucket="bkt", OwnershipControls=controls)
        assert s3.get_bucket_ownership_controls(Bucket="bkt")["OwnershipControls"] == controls
    for rules in [], [{"ObjectOwnership": "Mine"}], controls["Rules"] * 2:
        assert refused(s3.put_bucket_ownership_controls, Bucket="bkt", OwnershipControls={"Rules": rules}) == (400, "MalformedXML")
    s3.delete_bucket_ownership_controls(Bucket="bkt")
    assert refused(s3.get_bucket_ownership_controls, Bucket="bkt") == missing


# The next tests check that the documentation's examples have the documented effects.
def test_a_data_set_that_anyone_may_read(s3, anyone):
    s3.create_bucket(Bucket="imagenet")
    s3.put_object(Bucket="imagenet", Key="train/0.tar", Body=b"shard")
    s3.put_bucket_policy(Bucket="imagenet", Policy=documented("A data set that anyone may read"))

    assert anyone.get_object(Bucket="imagenet", Key="train/0.tar")["Body"].read() == b"shard"
    assert [entry["Key"] for entry in anyone.list_objects_v2(Bucket="imagenet")["Contents"]] == ["train/0.tar"]
    assert refused(anyone.put_object, Bucket="imagenet", Key="train/0.tar", Body=b"") == DENIED


def test_a_drop_box(s3, anyone):
    s3.create_bucket(Bucket="results")
    s3.put_bucket_policy(Bucket="results", Policy=documented("A drop box"))

    assert refused(anyone.put_object, Bucket="results", Key="inbox/a", Body=b"") == DENIED
    # Debian's boto3 has no parameter for If-None-Match.
    anyone.meta.events.register("before-call.s3.PutObject", lambda params, **_: params["headers"].update({"If-None-Match": "*"}))
    anyone.put_object(Bucket="results", Key="inbox/a", Body=b"mine")
    for key in "inbox/a", "inbox/none":
        assert refused(anyone.get_object, Bucket="results", Key=key) == DENIED
    assert refused(anyone.list_objects_v2, Bucket="results") == DENIED
    assert refused(anyone.put_object, Bucket="results", Key="inbox/a", Body=b"other") == (412, "PreconditionFailed")
    assert refused(anyone.delete_object, Bucket="results", Key="inbox/a") == DENIED
    assert refused(anyone.put_object, Bucket="results", Key="elsewhere", Body=b"") == DENIED
    assert s3.get_object(Bucket="results", Key="inbox/a")["Body"].read() == b"mine"


def test_a_list_may_delete_a_key_twice_under_a_condition_on_its_tags(s3, anyone):
    """An earlier entry can change the current version of a key, so each entry is checked against
    the version that is current by then."""
    s3.put_bucket_versioning(Bucket="bkt", VersioningConfiguration={"Status": "Enabled"})
    put_policy(
        s3,
        statement(["s3:DeleteObject", "s3:DeleteObjectVersion"]),
        statement(["s3:DeleteObject", "s3:DeleteObjectVersion"], effect="Deny", condition={"StringEquals": {"s3:ExistingObjectTag/kind": "kept"}}),
    )
    s3.put_object(Bucket="bkt", Key="k", Body=b"1", Tagging="kind=kept")
    last = s3.put_object(Bucket="bkt", Key="k", Body=b"2")["VersionId"]
    s3.put_object(Bucket="bkt", Key="free", Body=b"1")

    def delete(*keys):
        reply = anyone.delete_objects(Bucket="bkt", Delete={"Objects": list(keys)})
        return len(reply.get("Deleted", [])), [error["Code"] for error in reply.get("Errors", [])]

    assert delete({"Key": "free"}, {"Key": "free"}) == (2, [])
    # The first entry makes the version that has the tag the current one again.
    assert delete({"Key": "k", "VersionId": last}, {"Key": "k"}) == (1, ["AccessDenied"])
    assert s3.get_object(Bucket="bkt", Key="k")["Body"].read() == b"1"

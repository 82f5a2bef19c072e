"""Requests that the store does not serve are refused and change nothing, and docs/compatibility.md lists them.

The page is compared with botocore's model of S3, so a new version of botocore shows the operations that the page lacks.
"""
import gzip
import json

import pytest

from harness.program import TOP
from harness.s3_wire import Wire

# Headers and parameters that need a special value; all others get "x".
REQUIRED = {"partNumber": "1", "x-amz-copy-source": "bkt/k", "x-amz-object-attributes": "ETag"}


@pytest.fixture
def wire(store):
    wire = Wire(store)
    wire.make = lambda: wire.send("PUT", "/bkt").status == 200 and wire.send("PUT", "/bkt/k", body=b"old").status == 200
    wire.make()
    return wire


def state(wire):
    """Returns all state that a refused request could change by mistake."""
    found = [wire.send("GET", path, query) for path, query in (("/bkt/k", ""), ("/bkt", ""), ("/bkt", "versions"), ("/bkt", "uploads"))]
    return [reply.body for reply in found], found[0].headers.get("etag")


def page():
    text = (TOP / "docs/compatibility.md").read_text(encoding="utf-8")
    return text.split("## What is not served")[1].split("<!-- results -->")[0]


def rows(title):
    """Returns the cells of the table whose first column has this title."""
    lines = page().split(f"| {title} |")[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


# --- operations


def operations(venv):
    """Returns a request (method, path, query, headers) by the name of the operation, from the newest boto3."""
    from botocore.model import ServiceModel

    (path,) = venv.glob("lib/python3*/site-packages/botocore/data/s3/*/service-2.json.gz")
    model = ServiceModel(json.loads(gzip.decompress(path.read_bytes())))
    found = {}
    for name in model.operation_names:
        operation = model.operation_model(name)
        if operation.endpoint:  # an operation of Object Lambda, which has hosts of its own
            continue
        path, _, query = operation.http["requestUri"].partition("?")
        shape = operation.input_shape
        members = [shape.members[member].serialization for member in shape.required_members] if shape else []
        values = {kind: {m["name"]: REQUIRED.get(m["name"], "x") for m in members if m.get("location") == kind} for kind in ("querystring", "header")}
        more = [f"{key}={value}" for key, value in values["querystring"].items()]
        path = path.replace("{Bucket}", "bkt").replace("{Key+}", "k")
        found[name] = operation.http["method"], path, "&".join([query, *more] if query else more), values["header"]
    return found


def test_the_page_lists_the_operations_that_are_refused(venv, wire):
    listed = {name for _, names in rows("feature") for name in names.split(", ")}
    before = state(wire)
    refused, changed, ignored = set(), set(), set()
    for name, (method, path, query, headers) in operations(venv).items():
        reply = wire.send(method, path, query, headers=headers, body=b"x" if method in ("PUT", "POST") else b"")
        if reply.status == 501:
            refused.add(name)
            changed |= {name} if state(wire) != before else set()
            continue
        if method == "GET" and query and reply.status == 200:
            ignored |= {name} if reply.body == wire.send(method, path).body else set()
        wire.make()
        before = state(wire)

    assert (changed, ignored) == (set(), set())
    assert refused == listed


# --- parts of requests


def rule(inside):
    return ("PUT", "/bkt", "lifecycle", {}, f"<LifecycleConfiguration><Rule><Status>Enabled</Status><Filter/>{inside}</Rule></LifecycleConfiguration>")


def replication(inside, destination=""):
    return ("PUT", "/bkt", "replication", {},
            f"<ReplicationConfiguration><Role>r</Role><Rule><Status>Enabled</Status><Prefix/><Destination><Bucket>arn:aws:s3:::there</Bucket>"
            f"{destination}</Destination>{inside}</Rule></ReplicationConfiguration>")  # fmt: skip


def encryption(inside):
    return ("PUT", "/bkt", "encryption", {}, f"<ServerSideEncryptionConfiguration><Rule>{inside}</Rule></ServerSideEncryptionConfiguration>")


def notification(inside):
    return ("PUT", "/bkt", "notification", {}, f"<NotificationConfiguration>{inside}</NotificationConfiguration>")


def put(header, value):
    return ("PUT", "/bkt/k", "", {header: value}, "")


PARTS = {
    "a parameter without a value and with an unknown name": ("PUT", "/bkt/k", "unknown", {}, "x"),
    "`Transition`": rule("<Transition><Days>1</Days><StorageClass>GLACIER</StorageClass></Transition>"),
    "`NoncurrentVersionTransition`": rule(
        "<NoncurrentVersionTransition><NoncurrentDays>1</NoncurrentDays><StorageClass>GLACIER</StorageClass></NoncurrentVersionTransition>"
    ),
    "`MfaDelete`": (
        "PUT", "/bkt", "versioning", {},
        "<VersioningConfiguration><Status>Enabled</Status><MfaDelete>Enabled</MfaDelete></VersioningConfiguration>",
    ),
    "`x-amz-server-side-encryption: aws:kms`": put("x-amz-server-side-encryption", "aws:kms"),
    "`SSEAlgorithm` of KMS": encryption(
        "<ApplyServerSideEncryptionByDefault><SSEAlgorithm>aws:kms</SSEAlgorithm></ApplyServerSideEncryptionByDefault>"
    ),
    "`BlockedEncryptionTypes`": encryption("<BlockedEncryptionTypes><EncryptionType>SSE-C</EncryptionType></BlockedEncryptionTypes>"),
    "`x-amz-write-offset-bytes`": put("x-amz-write-offset-bytes", "3"),
    "`x-amz-rename-source`": put("x-amz-rename-source", "bkt/k"),
    "`x-amz-object-lock-event-hold`": put("x-amz-object-lock-event-hold", "ON"),
    "`x-amz-acl: aws-exec-read`": put("x-amz-acl", "aws-exec-read"),
    "`x-amz-bucket-namespace: account-regional`": ("PUT", "/new", "", {"x-amz-bucket-namespace": "account-regional"}, ""),
    "directory buckets": (
        "PUT", "/new", "", {}, "<CreateBucketConfiguration><Bucket><Type>Directory</Type></Bucket></CreateBucketConfiguration>",
    ),
    "`TopicConfiguration`": notification("<TopicConfiguration><Topic>t</Topic><Event>s3:ObjectCreated:*</Event></TopicConfiguration>"),
    "`CloudFunctionConfiguration`": notification(
        "<CloudFunctionConfiguration><CloudFunction>f</CloudFunction><Event>s3:ObjectCreated:*</Event></CloudFunctionConfiguration>"
    ),
    "`EventBridgeConfiguration`": notification("<EventBridgeConfiguration/>"),
    "`TargetGrants`": (
        "PUT", "/bkt", "logging", {},
        "<BucketLoggingStatus><LoggingEnabled><TargetBucket>bkt</TargetBucket><TargetPrefix/><TargetGrants><Grant><Grantee "
        'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="CanonicalUser"><ID>i</ID></Grantee><Permission>READ</Permission>'
        "</Grant></TargetGrants></LoggingEnabled></BucketLoggingStatus>",
    ),
    "`ReplicationTime`": replication("", "<ReplicationTime><Status>Enabled</Status><Time><Minutes>15</Minutes></Time></ReplicationTime>"),
    "`Metrics` of replication": replication("", "<Metrics><Status>Enabled</Status></Metrics>"),
    "`ExistingObjectReplication`": replication("<ExistingObjectReplication><Status>Enabled</Status></ExistingObjectReplication>"),
    "`ReplicaModifications`": replication(
        "<SourceSelectionCriteria><ReplicaModifications><Status>Enabled</Status></ReplicaModifications></SourceSelectionCriteria>"
    ),
    "`SseKmsEncryptedObjects`": replication(
        "<SourceSelectionCriteria><SseKmsEncryptedObjects><Status>Enabled</Status></SseKmsEncryptedObjects></SourceSelectionCriteria>"
    ),
    "`AccessControlTranslation`": replication("", "<AccessControlTranslation><Owner>Destination</Owner></AccessControlTranslation>"),
}  # fmt: skip


def test_the_page_lists_the_parts_of_requests_that_are_refused():
    assert {part for part, _ in rows("part of a request")} == set(PARTS)


def test_a_part_that_is_not_served_is_refused(wire):
    before = state(wire)
    for part, (method, path, query, headers, body) in PARTS.items():
        reply = wire.send(method, path, query, headers=headers, body=body.encode())

        assert (reply.status, reply.code) == (501, "NotImplemented"), part
        assert state(wire) == before, part
    assert wire.send("HEAD", "/new").status == 404


# --- requests of harmless clients


@pytest.mark.parametrize("query", ["x-id=PutObject", "foo=bar", "customer_id=7&x-id=PutObject", "x-amz-meta-a=", "response-content-type="])
def test_a_parameter_that_selects_nothing_is_ignored(wire, query):
    assert wire.send("PUT", "/bkt/k", query, body=b"new").status == 200
    assert wire.send("GET", "/bkt/k", "unknown").body == b"new"
    assert wire.send("DELETE", "/bkt/k", query).status == 204

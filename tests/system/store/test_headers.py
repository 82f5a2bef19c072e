"""Every header of every operation that botocore knows is used, refused, or listed here as harmless."""
import gzip
import json
import re
from urllib.parse import quote

import pytest

from harness.s3_wire import Wire

# Headers of features that the store does not have.
REFUSED = {
    "x-amz-bucket-namespace",
    "x-amz-object-lock-event-hold",
    "x-amz-object-lock-event-hold-duration-days",
    "x-amz-object-lock-event-hold-duration-years",
    "x-amz-transition-default-minimum-object-size",
    "x-amz-write-offset-bytes",
}
# Headers without effect, each with the reason why a request with the header still gets a correct
# reply.
HARMLESS = {
    "x-amz-bucket-object-lock-token": "a bucket needs no permission of AWS's support to get Object Lock",
    "x-amz-mfa": "MFA Delete is refused, so no deletion needs a code",
    "x-amz-object-annotation-directive": "an object has no annotations",
    "x-amz-optional-object-attributes": "no object is archived, so none has a state of its restore",
    "x-amz-request-payer": "only the owner of a bucket can pay",
}
# Headers that are stored with the object, and sent with it.
KEPT = {"cache-control", "content-disposition", "content-encoding", "content-language", "content-type", "expires", "x-amz-meta-"}
# A header of HTTP itself, which the test does not try.
FRAMING = {"content-length"}

# Values whose effect the reply shows. All other headers get the value RUBBISH.
RUBBISH = "?!"
VALUES = {
    "if-modified-since": "Fri, 01 Jan 2100 00:00:00 GMT",
    "if-none-match": "*",
    "if-unmodified-since": "Mon, 01 Jan 2001 00:00:00 GMT",
    "range": "bytes=99-",
    "x-amz-copy-source-if-modified-since": "Fri, 01 Jan 2100 00:00:00 GMT",
    "x-amz-copy-source-if-none-match": "*",
    "x-amz-copy-source-if-unmodified-since": "Mon, 01 Jan 2001 00:00:00 GMT",
    "x-amz-object-annotation-directive": "COPY",
    "x-amz-request-payer": "requester",
    "x-amz-tagging": "a=b&a=c",
}

ACL = {"x-amz-acl": "private"}
COPY = {"x-amz-copy-source": "bkt/k", "x-amz-metadata-directive": "REPLACE", "x-amz-tagging-directive": "REPLACE"}
HOLD = "<LegalHold><Status>OFF</Status></LegalHold>"
LIFECYCLE = "<Rule><Status>Enabled</Status><Prefix>p</Prefix><Expiration><Days>9</Days></Expiration></Rule>"
LOCK = "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled></ObjectLockConfiguration>"
OWNERSHIP = "<OwnershipControls><Rule><ObjectOwnership>ObjectWriter</ObjectOwnership></Rule></OwnershipControls>"
POLICY = '{"Statement": {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::bkt/*"}}'
REPLICATION = (
    "<ReplicationConfiguration><Role>arn:aws:iam::000000000000:role/r</Role><Rule><Status>Enabled</Status><Prefix/>"
    "<Destination><Bucket>arn:aws:s3:::b</Bucket></Destination></Rule></ReplicationConfiguration>"
)
CORS = "<CORSConfiguration><CORSRule><AllowedOrigin>*</AllowedOrigin><AllowedMethod>GET</AllowedMethod></CORSRule></CORSConfiguration>"
ENCRYPTION = (
    "<ServerSideEncryptionConfiguration><Rule><ApplyServerSideEncryptionByDefault><SSEAlgorithm>AES256</SSEAlgorithm>"
    "</ApplyServerSideEncryptionByDefault></Rule></ServerSideEncryptionConfiguration>"
)
TAGGING = "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>"
COMPLETE = "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part></CompleteMultipartUpload>"
PUBLIC = "<PublicAccessBlockConfiguration><BlockPublicAcls>false</BlockPublicAcls></PublicAccessBlockConfiguration>"

# The served operations, with each request's query, headers and body.
SERVED = {
    "AbortMultipartUpload": ("uploadId={upload}", {}, ""),
    "CompleteMultipartUpload": ("uploadId={upload}", {}, COMPLETE),
    "CopyObject": ("", COPY, ""),
    "CreateBucket": ("", {}, ""),
    "CreateMultipartUpload": ("", {}, ""),
    "DeleteBucket": ("", {}, ""),
    "DeleteBucketCors": ("", {}, ""),
    "DeleteBucketEncryption": ("", {}, ""),
    "DeleteBucketLifecycle": ("", {}, ""),
    "DeleteBucketOwnershipControls": ("", {}, ""),
    "DeleteBucketPolicy": ("", {}, ""),
    "DeleteBucketReplication": ("", {}, ""),
    "DeleteBucketTagging": ("", {}, ""),
    "DeleteObject": ("", {}, ""),
    "DeleteObjectTagging": ("", {}, ""),
    "DeleteObjects": ("", {}, "<Delete><Object><Key>none</Key></Object></Delete>"),
    "DeletePublicAccessBlock": ("", {}, ""),
    "GetBucketAcl": ("", {}, ""),
    "GetBucketCors": ("", {}, ""),
    "GetBucketEncryption": ("", {}, ""),
    "GetBucketLifecycle": ("", {}, ""),
    "GetBucketLifecycleConfiguration": ("", {}, ""),
    "GetBucketLocation": ("", {}, ""),
    "GetBucketLogging": ("", {}, ""),
    "GetBucketNotification": ("", {}, ""),
    "GetBucketNotificationConfiguration": ("", {}, ""),
    "GetBucketOwnershipControls": ("", {}, ""),
    "GetBucketPolicy": ("", {}, ""),
    "GetBucketPolicyStatus": ("", {}, ""),
    "GetBucketReplication": ("", {}, ""),
    "GetBucketTagging": ("", {}, ""),
    "GetBucketVersioning": ("", {}, ""),
    "GetBucketWebsite": ("", {}, ""),
    "GetObject": ("", {}, ""),
    "GetObjectAcl": ("", {}, ""),
    "GetObjectAttributes": ("", {"x-amz-object-attributes": "ETag"}, ""),
    "GetObjectLegalHold": ("", {}, ""),
    "GetObjectLockConfiguration": ("", {}, ""),
    "GetObjectRetention": ("", {}, ""),
    "GetObjectTagging": ("", {}, ""),
    "GetPublicAccessBlock": ("", {}, ""),
    "HeadBucket": ("", {}, ""),
    "HeadObject": ("", {}, ""),
    "ListBuckets": ("", {}, ""),
    "ListMultipartUploads": ("", {}, ""),
    "ListObjectVersions": ("", {}, ""),
    "ListObjects": ("", {}, ""),
    "ListObjectsV2": ("", {}, ""),
    "ListParts": ("uploadId={upload}", {}, ""),
    "PutBucketAcl": ("", ACL, ""),
    "PutBucketCors": ("", {}, CORS),
    "PutBucketEncryption": ("", {}, ENCRYPTION),
    "PutBucketLifecycle": ("", {}, f"<LifecycleConfiguration>{LIFECYCLE}</LifecycleConfiguration>"),
    "PutBucketLifecycleConfiguration": ("", {}, f"<LifecycleConfiguration>{LIFECYCLE}</LifecycleConfiguration>"),
    "PutBucketLogging": ("", {}, "<BucketLoggingStatus/>"),
    "PutBucketNotification": ("", {}, "<NotificationConfiguration/>"),
    "PutBucketNotificationConfiguration": ("", {}, "<NotificationConfiguration/>"),
    "PutBucketOwnershipControls": ("", {}, OWNERSHIP),
    "PutBucketPolicy": ("", {}, POLICY),
    "PutBucketReplication": ("", {}, REPLICATION),
    "PutBucketTagging": ("", {}, TAGGING),
    "PutBucketVersioning": ("", {}, "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"),
    "PutObject": ("", {}, "text"),
    "PutObjectAcl": ("", ACL, ""),
    "PutObjectLegalHold": ("", {}, HOLD),
    "PutObjectLockConfiguration": ("", {}, LOCK),
    "PutObjectRetention": ("", {}, "<Retention/>"),
    "PutObjectTagging": ("", {}, TAGGING),
    "PutPublicAccessBlock": ("", {}, PUBLIC),
    "UploadPart": ("partNumber=1&uploadId={upload}", {}, "text"),
    "UploadPartCopy": ("partNumber=1&uploadId={upload}", {"x-amz-copy-source": "bkt/k"}, ""),
}
# SDKs send these operations to other services.
OF_OTHER_HOSTS = {"ListDirectoryBuckets", "WriteGetObjectResponse"}


@pytest.fixture(scope="module")
def model(venv):
    (path,) = venv.glob("lib/python3*/site-packages/botocore/data/s3/2006-03-01/service-2.json.gz")
    return json.loads(gzip.decompress(path.read_bytes()))


@pytest.fixture
def wire(store):
    """A client of a store with a bucket that has Object Lock and ownership controls."""
    wire = Wire(store)
    assert wire.send("PUT", "/bkt", headers={"x-amz-bucket-object-lock-enabled": "true"}).status == 200
    assert wire.send("PUT", "/bkt", "ownershipControls=", body=OWNERSHIP.encode()).status == 200
    return wire


def headers_of(model, operation):
    shape = model["operations"][operation].get("input", {}).get("shape")
    members = model["shapes"][shape]["members"].values() if shape else []
    return {member["locationName"].lower() for member in members if member.get("location") in ("header", "headers")}


CHECKSUM = re.compile("x-amz-checksum-(?!algorithm|mode|type)|x-amz-sdk-checksum-algorithm")


def send(wire, model, operation, header=None, in_url=False):
    """Sends a request of the operation, with this header; without the header the request would
    succeed. Returns the reply."""
    query, headers, body = SERVED.get(operation, ("", {}, ""))
    http = model["operations"][operation]["http"]
    path, _, fixed = http["requestUri"].partition("?")
    path = "/new" if operation in ("CreateBucket", "DeleteBucket") else path.replace("{Bucket}", "bkt").replace("{Key+}", "k")
    names = {}
    assert wire.send("PUT", "/bkt/k", body=b"text").status == 200
    if operation == "DeleteBucket":
        wire.send("PUT", "/new")
    elif operation == "CreateBucket":
        wire.send("DELETE", "/new")
    if "uploadId" in query:
        started = wire.send("POST", "/bkt/k", "uploads=").body.decode()
        names["upload"] = re.search("<UploadId>(.*)</UploadId>", started).group(1)
        part = wire.send("PUT", "/bkt/k", f"partNumber=1&uploadId={names['upload']}", body=b"text")
        names["etag"] = part.headers["etag"]
    query = "&".join(part if "=" in part else part + "=" for part in (fixed, query.format(**names)) if part)
    if header:
        name, value = header + "a" if header.endswith("-") else header, VALUES.get(header, RUBBISH)
        headers = {one: text for one, text in headers.items() if one != name} if in_url else headers | {name: value}
        query += f"{'&' if query else ''}{name}={quote(value, safe='')}" if in_url else ""
    text = body.format(**names) if "{etag}" in body else body
    reply = wire.send(http["method"], path, query, headers=headers, body=text.encode())
    if operation == "CreateMultipartUpload" and reply.status == 200:
        upload = re.search("<UploadId>(.*)</UploadId>", reply.body.decode()).group(1)
        etag = wire.send("PUT", "/bkt/k", f"partNumber=1&uploadId={upload}", body=b"x").headers["etag"]
        assert wire.send("POST", "/bkt/k", f"uploadId={upload}", body=COMPLETE.format(etag=etag).encode()).status == 200
    return reply


def outcome(reply):
    message = re.search(b"<Message>(.*?)</Message>", reply.body)
    return reply.status, reply.code, message and message.group(1)


def find_class(wire, model, operation, header, without):
    """Returns the effect of the header in a request of this operation."""
    reply = send(wire, model, operation, header)
    if reply.code == "NotImplemented":
        return "refused"
    if outcome(reply) != without:
        return "used"
    if header in KEPT and reply.status == 200:
        name = header + "a" if header.endswith("-") else header
        assert wire.send("HEAD", "/bkt/k").headers.get(name) == RUBBISH, (operation, header)
        return "used"
    return "harmless"


def test_each_header_is_used_or_refused_or_harmless(wire, model):
    wrong = {}
    for operation in SERVED:
        without = outcome(send(wire, model, operation))
        for header in sorted(headers_of(model, operation) - FRAMING):
            wanted = "refused" if header in REFUSED else "harmless" if header in HARMLESS else "used"
            found = find_class(wire, model, operation, header, without)
            # A checksum that the store cannot compute is refused, too.
            if found != wanted and not (found == "refused" and header.startswith("x-amz-checksum-")):
                wrong[operation, header] = found

    assert wrong == {}
    assert not REFUSED & HARMLESS.keys()


def test_a_header_in_the_url_has_the_same_effect(wire, model):
    wrong = {}
    for operation in SERVED:
        for header in sorted(headers_of(model, operation)):
            if header.startswith("x-amz-") and not CHECKSUM.match(header) and outcome(send(wire, model, operation, header, True)) != outcome(send(wire, model, operation, header)):
                wrong[operation, header] = True

    assert wrong == {}


def test_checksums_in_a_url_are_ignored(wire):
    # The JavaScript SDK signs the checksum of an empty body.
    query = wire.presign("PUT", "/bkt/k", **{"x-amz-checksum-crc32": "AAAAAA==", "x-amz-sdk-checksum-algorithm": "CRC32"})
    assert wire.raw("PUT", "/bkt/k?" + query, {"host": f"{wire.host}:{wire.port}"}, b"text").status == 200


def test_headers_of_a_signed_url_are_stored(wire, store):
    client, host = store.client, {"host": f"{wire.host}:{wire.port}"}
    headers = {"x-amz-meta-color": "blue sky", "x-amz-tagging": "a=1&b=2", "x-amz-storage-class": "STANDARD_IA", "x-amz-server-side-encryption": "AES256"}
    assert wire.raw("PUT", "/bkt/k?" + wire.presign("PUT", "/bkt/k", **headers), host, b"text").status == 200

    head = client.head_object(Bucket="bkt", Key="k")

    assert head["Metadata"] == {"color": "blue sky"} and head["StorageClass"] == "STANDARD_IA" and head["ServerSideEncryption"] == "AES256"
    assert client.get_object_tagging(Bucket="bkt", Key="k")["TagSet"] == [{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}]
    copy = wire.presign("PUT", "/bkt/copy", **{"x-amz-copy-source": "bkt/k"})
    assert b"CopyObjectResult" in wire.raw("PUT", "/bkt/copy?" + copy, host).body


@pytest.mark.parametrize(
    "query, headers",
    [
        ("x-amz-meta-a=1%0d%0aSet-Cookie:x", {}),
        ("x-amz-meta-a%0d%0ab=1", {}),
        ("x-amz-meta-a=1&x-amz-meta-a=2", {}),
        ("x-amz-acl=private", {"x-amz-acl": "public-read"}),
    ],
)
def test_a_parameter_that_is_no_header_is_refused(wire, query, headers):
    assert wire.send("PUT", "/bkt/new", query, headers=headers, body=b"x").code == "InvalidArgument"
    assert wire.send("HEAD", "/bkt/new").status == 404


def test_other_operations_are_refused(wire, model):
    done = {}
    for operation in model["operations"].keys() - SERVED.keys() - OF_OTHER_HOSTS:
        reply = send(wire, model, operation)
        if reply.code not in ("NotImplemented", "MethodNotAllowed"):
            done[operation] = outcome(reply)

    assert done == {}

"""Every part of a request has its effect, or the request is refused by name and changes nothing."""
import datetime

import pytest

from harness.s3_wire import Wire


@pytest.fixture
def wire(store):
    wire = Wire(store)
    assert wire.send("PUT", "/bkt").status == 200
    assert wire.send("PUT", "/bkt/k", body=b"old").status == 200
    return wire


def texts(reply, element):
    """Returns the texts of the elements of this name."""
    assert reply.status == 200, reply.body
    return [part.split("<")[0] for part in reply.body.decode().split(f"<{element}>")[1:]]


def keys(wire):
    return texts(wire.send("GET", "/bkt", "list-type=2"), "Key")


# --- features that the store does not have

REFUSED = [
    ("x-amz-server-side-encryption-of-tomorrow", "true"),
    ("x-amz-object-lock-event-hold", "ON"),
    ("x-amz-object-lock-event-hold-duration-days", "1"),
    ("x-amz-write-offset-bytes", "3"),
]


@pytest.mark.parametrize("header, value", REFUSED)
@pytest.mark.parametrize(
    "method, path, query, more",
    [
        ("PUT", "/bkt/new", "", {}),
        ("PUT", "/bkt/new", "", {"x-amz-copy-source": "bkt/k"}),
        ("PUT", "/bkt/new", "", {"x-amz-copy-source": "bkt/k", "x-amz-metadata-directive": "REPLACE"}),
        ("POST", "/bkt/new", "uploads=", {}),
        ("PUT", "/new", "", {}),
    ],
    ids=["put", "copy", "replace", "upload", "bucket"],
)
def test_what_is_not_implemented_is_refused_by_every_write(wire, method, path, query, more, header, value):
    reply = wire.send(method, path, query, headers=more | {header: value})

    assert (reply.status, reply.code) == (501, "NotImplemented")
    assert keys(wire) == ["k"]
    assert wire.send("HEAD", "/new").status == 404
    assert b"<Upload>" not in wire.send("GET", "/bkt", "uploads=").body


def test_a_copy_has_storage_class_and_redirect_of_its_own_request(wire):
    source = {"x-amz-copy-source": "bkt/k"}
    own = {"x-amz-storage-class": "STANDARD_IA", "x-amz-website-redirect-location": "/there"}

    assert wire.send("PUT", "/bkt/with", headers=source | own).status == 200
    assert wire.send("PUT", "/bkt/plain", headers={"x-amz-copy-source": "bkt/with"}).status == 200
    assert wire.send("PUT", "/bkt/none", headers=source | {"x-amz-storage-class": "MY_OWN"}).code == "InvalidStorageClass"

    assert {name: wire.send("HEAD", "/bkt/with").headers.get(name) for name in own} == own
    assert {name: wire.send("HEAD", "/bkt/plain").headers.get(name) for name in own} == dict.fromkeys(own)


@pytest.mark.parametrize("location, code", [("/page", None), ("https://host/", None), ("page", "InvalidRedirectLocation")])
@pytest.mark.parametrize("source", [{}, {"x-amz-copy-source": "bkt/k"}], ids=["put", "copy"])
def test_a_redirect_leads_to_a_page(wire, location, code, source):
    assert wire.send("PUT", "/bkt/new", headers=source | {"x-amz-website-redirect-location": location}).code == code
    assert keys(wire) == (["k"] if code else ["k", "new"])


@pytest.mark.parametrize(
    "headers, code",
    [
        ({"x-amz-object-attributes": "ETag, ObjectSize,"}, None),
        ({"x-amz-object-attributes": "ETag,Owner"}, "InvalidArgument"),
        ({"x-amz-object-attributes": "ETagObjectSize"}, "InvalidArgument"),
        ({"x-amz-object-attributes": "ObjectParts", "x-amz-max-parts": "many"}, "InvalidArgument"),
        ({"x-amz-object-attributes": "ObjectParts", "x-amz-part-number-marker": "-1"}, "InvalidArgument"),
    ],
)
def test_attributes_are_those_of_an_object(wire, headers, code):
    assert wire.send("GET", "/bkt/k", "attributes=", headers=headers).code == code


def test_a_part_of_an_object_that_the_store_does_not_have_is_not_the_object(wire):
    """An annotation has a name and a text of its own."""
    query = "annotation=&annotationName=a"

    assert [wire.send(method, "/bkt/k", query).code for method in ("PUT", "GET", "DELETE")] == ["NotImplemented"] * 3
    assert wire.send("GET", "/bkt/k").body == b"old"


# --- documents

PART = "<PartNumber>1</PartNumber><ETag>x</ETag>"
GRANT = '<Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="Group"><URI>http://acs.amazonaws.com/groups/global/AllUsers</URI>%s</Grantee><Permission>READ</Permission>'
LIFECYCLE = "<ID>i</ID><Status>Enabled</Status><Filter><Prefix/></Filter><Expiration><Days>1</Days>%s</Expiration>"
DOCUMENTS = {
    "complete": ("POST", "/bkt/k", "uploadId=u", f"<CompleteMultipartUpload><Part>{PART}%s</Part></CompleteMultipartUpload>"),
    "delete": ("POST", "/bkt", "delete=", "<Delete><Object><Key>k</Key>%s</Object></Delete>"),
    "bucket": ("PUT", "/new", "", "<CreateBucketConfiguration>%s</CreateBucketConfiguration>"),
    "retention": ("PUT", "/locked/k", "retention=", "<Retention>%s</Retention>"),
    "hold": ("PUT", "/locked/k", "legal-hold=", "<LegalHold><Status>ON</Status>%s</LegalHold>"),
    "lock": ("PUT", "/locked", "object-lock=", "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled>%s</ObjectLockConfiguration>"),
    "acl": ("PUT", "/bkt", "acl=", f"<AccessControlPolicy><AccessControlList><Grant>{GRANT}</Grant></AccessControlList></AccessControlPolicy>"),
    "tagging": ("PUT", "/bkt/k", "tagging=", "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value>%s</Tag></TagSet></Tagging>"),
    "versioning": ("PUT", "/bkt", "versioning=", "<VersioningConfiguration><Status>Enabled</Status>%s</VersioningConfiguration>"),
    "lifecycle": ("PUT", "/bkt", "lifecycle=", f"<LifecycleConfiguration><Rule>{LIFECYCLE}</Rule></LifecycleConfiguration>"),
    "encryption": ("PUT", "/bkt", "encryption=", "<ServerSideEncryptionConfiguration><Rule>%s</Rule></ServerSideEncryptionConfiguration>"),
    "replication": ("PUT", "/bkt", "replication=", "<ReplicationConfiguration><Role>r</Role><Rule><Status>Enabled</Status>%s</Rule></ReplicationConfiguration>"),
    "notification": ("PUT", "/bkt", "notification=", "<NotificationConfiguration>%s</NotificationConfiguration>"),
    "cors": ("PUT", "/bkt", "cors=", "<CORSConfiguration><CORSRule><AllowedOrigin>*</AllowedOrigin><AllowedMethod>GET</AllowedMethod>%s</CORSRule></CORSConfiguration>"),
    "logging": ("PUT", "/bkt", "logging=", "<BucketLoggingStatus>%s</BucketLoggingStatus>"),
    "block": ("PUT", "/bkt", "publicAccessBlock=", "<PublicAccessBlockConfiguration>%s</PublicAccessBlockConfiguration>"),
    "ownership": ("PUT", "/bkt", "ownershipControls=", "<OwnershipControls><Rule><ObjectOwnership>ObjectWriter</ObjectOwnership>%s</Rule></OwnershipControls>"),
}  # fmt: skip
HOLD = "<DefaultRetention><Mode>GOVERNANCE</Mode><Days>1</Days><DefaultEventHold><Days>1</Days></DefaultEventHold></DefaultRetention>"


@pytest.fixture
def locked(wire):
    assert wire.send("PUT", "/locked", headers={"x-amz-bucket-object-lock-enabled": "true"}).status == 200
    assert wire.send("PUT", "/locked/k", body=b"old").status == 200
    return wire


def send_document(wire, name, inside):
    method, path, query, document = DOCUMENTS[name]
    return wire.send(method, path, query, body=(document % inside).encode())


@pytest.mark.parametrize("name", DOCUMENTS)
def test_an_unknown_element_is_refused(locked, name):
    reply = send_document(locked, name, "<OfTomorrow>1</OfTomorrow>")

    assert (reply.status, reply.code) == (400, "MalformedACLError" if name == "acl" else "MalformedXML")
    assert (keys(locked), locked.send("HEAD", "/new").status) == (["k"], 404)


@pytest.mark.parametrize(
    "name, inside",
    [
        ("bucket", "<Location><Type>AvailabilityZone</Type></Location>"),
        ("retention", "<EventHold>ON</EventHold>"),
        ("retention", "<EventHoldDuration><Days>1</Days></EventHoldDuration>"),
        ("hold", "<EventHold>ON</EventHold>"),
        ("lock", f"<Rule>{HOLD}</Rule>"),
        ("encryption", "<BlockedEncryptionTypes><EncryptionType>SSE-C</EncryptionType></BlockedEncryptionTypes>"),
        ("replication", "<Filter><Not><Prefix>p</Prefix></Not></Filter>"),
        ("replication", "<Filter><And><Not><Prefix>p</Prefix></Not></And></Filter>"),
        ("replication", "<Destination><Account>000000000000</Account></Destination>"),
        ("notification", "<EventBridgeConfiguration/>"),
        ("logging", "<LoggingEnabled><TargetGrants/></LoggingEnabled>"),
    ],
)
def test_an_element_that_is_not_implemented_is_refused(locked, name, inside):
    reply = send_document(locked, name, inside)

    assert (reply.status, reply.code) == (501, "NotImplemented")
    assert locked.send("HEAD", "/new").status == 404


def test_a_checksum_of_another_algorithm_is_not_skipped(wire):
    upload = texts(wire.send("POST", "/bkt/new", "uploads="), "UploadId")[0]
    etag = wire.send("PUT", "/bkt/new", f"partNumber=1&uploadId={upload}", body=b"x").headers["etag"]
    for name in ("SHA512", "MD5", "XXHASH64", "XXHASH3", "XXHASH128"):
        part = f"<PartNumber>1</PartNumber><ETag>{etag}</ETag><Checksum{name}>AAAA</Checksum{name}>"
        document = f"<CompleteMultipartUpload><Part>{part}</Part></CompleteMultipartUpload>".encode()
        assert wire.send("POST", "/bkt/new", f"uploadId={upload}", body=document).status >= 400
    assert keys(wire) == ["k"]


def test_elements_that_ask_for_nothing_are_allowed(wire):
    """The documents are as SDKs write them, with namespaces, white space and the names of owners."""
    owner = texts(wire.send("GET", "/bkt", "acl="), "ID")[0]
    document = f"""<?xml version="1.0"?>
        <s3:AccessControlPolicy xmlns:s3="http://s3.amazonaws.com/doc/2006-03-01/">
          <s3:Owner><s3:ID>{owner}</s3:ID> <s3:DisplayName>me</s3:DisplayName></s3:Owner>
          <s3:AccessControlList> <s3:Grant>
            <s3:Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="CanonicalUser">
              <s3:ID>{owner}</s3:ID><s3:DisplayName>me</s3:DisplayName>
            </s3:Grantee>
            <s3:Permission>FULL_CONTROL</s3:Permission>
          </s3:Grant> </s3:AccessControlList>
        </s3:AccessControlPolicy>"""

    assert wire.send("PUT", "/bkt", "acl=", body=document.encode()).status == 200


# --- conditions of an abort


@pytest.mark.parametrize("shift_s, status", [(0, 204), (-1, 412), (3600, 412)])
def test_an_abort_may_depend_on_the_start(store, wire, shift_s, status):
    s3 = store.client
    upload = {"Bucket": "bkt", "Key": "k", "UploadId": s3.create_multipart_upload(Bucket="bkt", Key="k")["UploadId"]}
    (begun,) = (found["Initiated"] for found in s3.list_multipart_uploads(Bucket="bkt")["Uploads"])
    time = (begun + datetime.timedelta(seconds=shift_s)).strftime("%a, %d %b %Y %H:%M:%S GMT")
    condition = {"x-amz-if-match-initiated-time": time}

    assert wire.send("DELETE", "/bkt/k", f"uploadId={upload['UploadId']}", headers=condition).status == status
    assert ("Uploads" in s3.list_multipart_uploads(Bucket="bkt")) == (status == 412)
    assert wire.send("DELETE", "/bkt/k", "uploadId=none", headers=condition).status == 204
    assert wire.send("DELETE", "/bkt/k", "uploadId=none", headers={"x-amz-if-match-initiated-time": "now"}).status == 400


# --- conditions of a delete


@pytest.mark.parametrize("holds", [True, False])
@pytest.mark.parametrize("condition", ["size", "time", "both"])
@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_a_delete_may_depend_on_size_and_time(wire, holds, condition, many):
    size = "3" if holds else "4"
    time = wire.send("HEAD", "/bkt/k").headers["last-modified"] if holds else "Sun, 06 Nov 1994 08:49:37 GMT"
    headers, inside = {}, ""
    if condition != "time":
        headers["x-amz-if-match-size"], inside = size, inside + f"<Size>{size}</Size>"
    if condition != "size":
        headers["x-amz-if-match-last-modified-time"], inside = time, inside + f"<LastModifiedTime>{time}</LastModifiedTime>"
    document = f"<Delete><Object><Key>k</Key>{inside}</Object></Delete>".encode()

    reply = wire.send("POST", "/bkt", "delete=", body=document) if many else wire.send("DELETE", "/bkt/k", headers=headers)

    assert reply.code == (None if holds else "PreconditionFailed")
    assert keys(wire) == ([] if holds else ["k"])


def test_a_malformed_condition_deletes_nothing(wire):
    assert wire.send("DELETE", "/bkt/k", headers={"x-amz-if-match-size": "3 bytes"}).status == 400
    assert wire.send("DELETE", "/bkt/k", headers={"x-amz-if-match-last-modified-time": "today"}).status == 400
    document = b"<Delete><Object><Key>k</Key><Size>x</Size></Object></Delete>"
    assert wire.send("POST", "/bkt", "delete=", body=document).code == "MalformedXML"
    assert keys(wire) == ["k"]


# --- buckets


def region(wire, bucket):
    return wire.send("HEAD", f"/{bucket}").headers["x-amz-bucket-region"]


def test_a_bucket_remembers_its_region(store, wire):
    s3 = store.client
    s3.create_bucket(Bucket="far", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})

    assert s3.get_bucket_location(Bucket="far")["LocationConstraint"] == "eu-central-1"
    assert s3.get_bucket_location(Bucket="bkt")["LocationConstraint"] is None
    assert (region(wire, "far"), region(wire, "bkt")) == ("eu-central-1", "us-east-1")
    assert texts(wire.send("GET", "/", "bucket-region=eu-central-1"), "Name") == ["far"]
    s3.delete_bucket(Bucket="far")
    s3.create_bucket(Bucket="far")
    assert region(wire, "far") == "us-east-1"


@pytest.mark.parametrize(
    "inside, headers, code",
    [
        ("<LocationConstraint>a b</LocationConstraint>", {}, "InvalidLocationConstraint"),
        ("<Location><Type>AvailabilityZone</Type></Location>", {}, "NotImplemented"),
        ("<Bucket><Type>Directory</Type></Bucket>", {}, "NotImplemented"),
        ("<Tags><Tag><Key>a</Key><Value>b</Value></Tag></Tags>", {}, None),
        ("<Tags><Tag><Key>a</Key></Tag></Tags>", {}, "MalformedXML"),
        ("", {"x-amz-bucket-object-lock-enabled": "True"}, None),
        ("", {"x-amz-bucket-object-lock-enabled": "yes"}, "InvalidArgument"),
        ("", {"x-amz-object-ownership": "ObjectWriter"}, None),
        ("", {"x-amz-bucket-namespace": "global"}, None),
        ("", {"x-amz-bucket-namespace": "account-regional"}, "NotImplemented"),
        ("", {"x-amz-object-ownership": "Writer"}, "InvalidArgument"),
        ("", {"x-amz-object-ownership": "BucketOwnerEnforced", "x-amz-bucket-object-lock-enabled": "false"}, None),
    ],
)
def test_a_bucket_is_what_was_asked_for(wire, inside, headers, code):
    body = f"<CreateBucketConfiguration>{inside}</CreateBucketConfiguration>".encode()

    assert wire.send("PUT", "/new", headers=headers, body=body).code == code
    assert wire.send("HEAD", "/new").status == (404 if code else 200)


def test_buckets_are_listed_in_pages(wire):
    for name in ("bb-1", "bb-2", "bb-3", "zz-1"):
        assert wire.send("PUT", f"/{name}").status == 200

    first = wire.send("GET", "/", "max-buckets=2&prefix=bb-")
    (token,) = texts(first, "ContinuationToken")
    second = wire.send("GET", "/", f"continuation-token={token}&max-buckets=2&prefix=bb-")

    assert (texts(first, "Name"), texts(first, "Prefix")) == (["bb-1", "bb-2"], ["bb-"])
    assert (texts(second, "Name"), texts(second, "ContinuationToken")) == (["bb-3"], [])
    assert len(texts(wire.send("GET", "/"), "Name")) == 5
    assert wire.send("GET", "/", "max-buckets=0").code == "InvalidArgument"
    assert wire.send("GET", "/", "continuation-token=x").code == "InvalidArgument"


# --- the owner of a bucket

ACCOUNT = "000000000000"


@pytest.mark.parametrize("account, code", [(ACCOUNT, None), ("111122223333", "AccessDenied"), ("me", "InvalidBucketOwnerAWSAccountID")])
def test_the_expected_owner_must_be_the_owner(wire, account, code):
    expected = {"x-amz-expected-bucket-owner": account}
    source = {"x-amz-copy-source": "bkt/k", "x-amz-source-expected-bucket-owner": account}

    replies = [
        wire.send("GET", "/bkt/k", headers=expected),
        wire.send("GET", "/bkt", headers=expected),
        wire.send("PUT", "/bkt/new", headers=expected),
        wire.send("PUT", "/bkt/copy", headers=source),
        wire.send("DELETE", "/bkt/k", headers=expected),
    ]

    assert {reply.code for reply in replies} == {code}
    assert keys(wire) == (["k"] if code else ["copy", "new"])

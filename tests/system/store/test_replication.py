"""Replication of buckets: versions are queued in the transaction of their write, and sent to another store."""
import base64
import errno
import hashlib
import http.server
import json
import os
import re
import socketserver
import threading
import time
import urllib.parse
import urllib.request

import pytest
from botocore.exceptions import ClientError

from harness.power import WAL, WRITE, Faults
from harness.program import Store
from harness.waiting import wait_for

MIB = 1 << 20
ROLE = "arn:aws:iam::000000000000:role/replication"


def write_targets(path, *targets, mode=0o600):
    path.write_text(json.dumps(targets))
    path.chmod(mode)
    return path


def target_of(store, name="copy", **more):
    return {"name": name, "endpoint": store.endpoint, "access_key_id": store.access_key, "secret_access_key": store.secret_key, **more}


def rule(name="copy", number=1, markers="Enabled", **more):
    return {"ID": f"rule-{number}", "Priority": number, "Status": "Enabled", "Filter": {"Prefix": ""},
            "DeleteMarkerReplication": {"Status": markers}, "Destination": {"Bucket": f"arn:aws:s3:::{name}"}, **more}  # fmt: skip


def set_rules(store, *rules, bucket="bkt"):
    store.client.put_bucket_replication(Bucket=bucket, ReplicationConfiguration={"Role": ROLE, "Rules": list(rules)})


def make_bucket(store, name, **more):
    store.client.create_bucket(Bucket=name, **more)
    store.client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})


def status(store, key, bucket="bkt", **more):
    return store.client.head_object(Bucket=bucket, Key=key, **more).get("ReplicationStatus")


def versions(store, bucket):
    """Returns (key, version, ETag, is current) of all versions and markers; the ETag of a marker is
    None."""
    page = store.client.list_object_versions(Bucket=bucket)
    assert not page["IsTruncated"]
    entries = [(v["Key"], v["VersionId"], v["ETag"], v["IsLatest"]) for v in page.get("Versions", [])]
    return sorted(entries + [(m["Key"], m["VersionId"], "", m["IsLatest"]) for m in page.get("DeleteMarkers", [])])


def metric(store, name):
    address = store.process.wait_for_output(r"metrics on (\S+)", 30).group(1)
    with urllib.request.urlopen(address) as reply:
        text = reply.read().decode()
    return {target: float(value) for target, value in re.findall(rf'^penstock_replication_{name}{{target="([^"]+)"}} (\S+)$', text, re.M)}


class OldStore:
    """A store without versions and checksums: it refuses the headers of both, and verifies Content-MD5."""

    def __init__(self):
        self.objects, self.parts, self.requests = {}, {}, []
        self.unknown = None  # the path of an object that the store refuses with 501
        self.open = threading.Event()  # the store replies only once this is set
        self.open.set()
        self.held = []  # requests that have waited for `open`
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self, status, xml="", **headers):
                self.send_response(status)
                for name, value in {"Content-Length": len(xml), **headers}.items():
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(xml.encode() if self.command != "HEAD" else b"")

            def serve(self):
                path, _, query = self.path.partition("?")
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                key, md5 = urllib.parse.unquote(path), hashlib.md5(body)
                outer.requests.append((self.command, key, query))
                if not outer.open.is_set():
                    outer.held.append((self.command, key))
                outer.open.wait(60)
                if key == outer.unknown or any(name.lower().startswith("x-amz-checksum") for name in self.headers):
                    self.answer(501, "<Error><Code>NotImplemented</Code></Error>")
                elif self.command == "DELETE":
                    outer.objects.pop(key, None)
                    self.answer(204)
                elif self.command == "POST" and query == "uploads":
                    self.answer(200, "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>")
                elif self.command == "POST":
                    outer.objects[key] = b"".join(outer.parts[number] for number in sorted(outer.parts))
                    self.answer(200, "<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>")
                elif self.command == "PUT":
                    assert self.headers["content-md5"] == base64.b64encode(md5.digest()).decode()
                    number = re.search(r"partNumber=(\d+)", query)
                    (outer.parts if number else outer.objects)[int(number.group(1)) if number else key] = body
                    self.answer(200, ETag=f'"{md5.hexdigest()}"')
                else:
                    self.answer(200)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = serve

            def log_message(self, *_):
                pass

        class Threads(socketserver.ThreadingMixIn, http.server.HTTPServer):
            daemon_threads = True

        self.httpd = Threads(("127.0.0.1", 0), Handler)
        self.endpoint, self.access_key, self.secret_key = f"http://127.0.0.1:{self.httpd.server_address[1]}", "key", "secret"
        threading.Thread(target=self.httpd.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()


@pytest.fixture
def there(penstock, tmp_path):
    store = Store(penstock, tmp_path / "there")
    make_bucket(store, "copy")
    yield store
    store.stop().ok()


@pytest.fixture
def here(penstock, tmp_path, there):
    """A store with the bucket `bkt`, which is replicated to `copy` of another store."""
    path = write_targets(tmp_path / "replication.json", target_of(there), target_of(there, "second", bucket="other"))
    store = Store(penstock, tmp_path / "here", options=["--replication", path, "--replication-retry", "50ms", "--metrics", "0"])
    make_bucket(store, "bkt")
    yield store
    store.stop().ok()


def wait_until_equal(here, there, source="bkt", destination="copy"):
    wait_for(lambda: versions(here, source) == versions(there, destination), 60, what="both stores have the same versions")


# --- the configuration


def test_a_configuration_is_kept_replaced_and_removed(here):
    s3 = here.client
    with pytest.raises(ClientError, match="ReplicationConfigurationNotFoundError"):
        s3.get_bucket_replication(Bucket="bkt")
    rules = [rule(Filter={"And": {"Prefix": "p/", "Tags": [{"Key": "a", "Value": "b"}]}}, markers="Disabled"), rule("second", 2)]
    set_rules(here, *rules)
    kept = s3.get_bucket_replication(Bucket="bkt")["ReplicationConfiguration"]
    assert kept == {"Role": ROLE, "Rules": rules}

    with pytest.raises(ClientError, match="InvalidBucketState"):
        s3.put_bucket_versioning(Bucket="bkt", VersioningConfiguration={"Status": "Suspended"})
    s3.delete_bucket_replication(Bucket="bkt")
    with pytest.raises(ClientError, match="ReplicationConfigurationNotFoundError"):
        s3.get_bucket_replication(Bucket="bkt")
    s3.put_bucket_versioning(Bucket="bkt", VersioningConfiguration={"Status": "Suspended"})


def test_a_bucket_without_versioning_and_an_unknown_destination_are_refused(here):
    here.client.create_bucket(Bucket="plain")
    with pytest.raises(ClientError, match="Versioning must be 'Enabled'"):
        set_rules(here, rule(), bucket="plain")
    with pytest.raises(ClientError, match="InvalidRequest.*Destination bucket must exist"):
        set_rules(here, rule("unknown"))


@pytest.mark.parametrize("more", [
    {"SourceSelectionCriteria": {"SseKmsEncryptedObjects": {"Status": "Enabled"}}},
    {"SourceSelectionCriteria": {"ReplicaModifications": {"Status": "Enabled"}}},
    {"ExistingObjectReplication": {"Status": "Enabled"}},
    {"Destination": {"Bucket": "arn:aws:s3:::copy", "Metrics": {"Status": "Enabled"}}},
    {"Destination": {"Bucket": "arn:aws:s3:::copy", "ReplicationTime": {"Status": "Enabled", "Time": {"Minutes": 15}}}},
    {"Destination": {"Bucket": "arn:aws:s3:::copy", "Account": "111111111111", "AccessControlTranslation": {"Owner": "Destination"}}},
    {"Destination": {"Bucket": "arn:aws:s3:::copy", "EncryptionConfiguration": {"ReplicaKmsKeyID": "key"}}},
])  # fmt: skip
def test_features_that_the_store_lacks_are_refused_by_name(here, more):
    with pytest.raises(ClientError, match="NotImplemented"):
        set_rules(here, rule(**more))


# A policy may allow a user only to configure replication. The store accepts replicas only from
# senders with the right to make replicas.
def test_the_rights_are_those_of_aws(here):
    iam = here.boto3(service="iam")
    iam.create_user(UserName="ann")
    keys = iam.create_access_key(UserName="ann")["AccessKey"]
    ann = here.boto3(keys=(keys["AccessKeyId"], keys["SecretAccessKey"]))
    config = {"Role": ROLE, "Rules": [rule()]}

    def allow(*actions):
        statement = {"Effect": "Allow", "Action": list(actions), "Resource": ["arn:aws:s3:::bkt", "arn:aws:s3:::bkt/*"]}
        iam.put_user_policy(UserName="ann", PolicyName="p", PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [statement]}))

    def put_replica(client):
        client.meta.events.register("before-call.s3.PutObject", lambda params, **_: params["headers"].update({"x-amz-penstock-replica": "17" * 8}))
        client.put_object(Bucket="bkt", Key="k", Body=b"x")

    allow("s3:GetReplicationConfiguration", "s3:PutObject")
    with pytest.raises(ClientError, match="AccessDenied"):
        ann.put_bucket_replication(Bucket="bkt", ReplicationConfiguration=config)
    with pytest.raises(ClientError, match="ReplicationConfigurationNotFoundError"):
        ann.get_bucket_replication(Bucket="bkt")
    with pytest.raises(ClientError, match="AccessDenied"):
        put_replica(ann)
    allow("s3:PutReplicationConfiguration", "s3:PutObject", "s3:ReplicateObject", "s3:GetObject")
    ann.put_bucket_replication(Bucket="bkt", ReplicationConfiguration=config)
    with pytest.raises(ClientError, match="AccessDenied"):
        ann.get_bucket_replication(Bucket="bkt")
    ann.delete_bucket_replication(Bucket="bkt")
    put_replica(ann)
    assert status(here, "k") == "REPLICA"


# --- the file of the operator


@pytest.mark.parametrize(("text", "mode"), [
    ('[{"name":"a","endpoint":"http://127.0.0.1:1","access_key_id":"A","secret_access_key":"B"}]', 0o644),
    ('[{"name":"a","endpoint":"http://127.0.0.1:1"}]', 0o600),
    ('[{"name":"a","endpoint":"http://127.0.0.1:1","access_key_id":"A","secret_access_key":"B","more":"x"}]', 0o600),
    ('[{"name":"a/b","endpoint":"http://127.0.0.1:1","access_key_id":"A","secret_access_key":"B"}]', 0o600),
    ('[{"name":"a","endpoint":"127.0.0.1:1","access_key_id":"A","secret_access_key":"B"}]', 0o600),
    ('[{"name":"a","endpoint":"http://127.0.0.1:1","profile":"unknown"}]', 0o600),
    ('{"name":"a"}', 0o600),
])  # fmt: skip
def test_an_invalid_file_is_refused_without_its_secrets(penstock, tmp_path, text, mode):
    path = tmp_path / "replication.json"
    path.write_text(text)
    path.chmod(mode)
    result = penstock.run("serve", "--root", tmp_path / "store", "--listen", "127.0.0.1:0", "--replication", path)
    assert str(path) in result.exits(78).err and '"B"' not in result.err


def test_a_profile_of_the_client_configuration_has_the_keys(penstock, tmp_path, there):
    credentials = tmp_path / "aws"
    credentials.write_text(f"[lab]\naws_access_key_id={there.access_key}\naws_secret_access_key={there.secret_key}\n")
    path = write_targets(tmp_path / "r.json", {"name": "copy", "endpoint": there.endpoint, "profile": "lab"}, mode=0o644)
    penstock.env["AWS_SHARED_CREDENTIALS_FILE"] = str(credentials)
    here = Store(penstock, tmp_path / "here", options=["--replication", path])
    make_bucket(here, "bkt")
    set_rules(here, rule())
    here.client.put_object(Bucket="bkt", Key="k", Body=b"x")
    wait_until_equal(here, there)
    here.stop()


# --- versions


# A replica looks like the original: bytes, headers, metadata, tags, checksum, version and time.
def test_a_replica_is_the_same_object(here, there):
    set_rules(here, rule())
    made = here.client.put_object(
        Bucket="bkt", Key="d/ä b+c", Body=b"text", ContentType="text/x", CacheControl="no-cache", ContentDisposition="attachment",
        ContentEncoding="zz", ContentLanguage="de", Metadata={"one": "1", "two": "a=b"}, Tagging="k=v&x=y%20z", ChecksumAlgorithm="SHA256")  # fmt: skip
    wait_until_equal(here, there)
    wait_for(lambda: status(here, "d/ä b+c") == "COMPLETED", 30)

    names = ("ETag", "ContentType", "CacheControl", "ContentDisposition", "ContentEncoding", "ContentLanguage", "Metadata", "TagCount",
             "ChecksumSHA256", "VersionId", "LastModified")  # fmt: skip
    source, replica = (s.client.get_object(Bucket=b, Key="d/ä b+c", ChecksumMode="ENABLED") for s, b in ((here, "bkt"), (there, "copy")))
    assert {name: source.get(name) for name in names} == {name: replica.get(name) for name in names}
    assert replica["VersionId"] == made["VersionId"] and replica["ChecksumSHA256"]
    assert replica["Body"].read() == b"text" and replica["ReplicationStatus"] == "REPLICA"
    tags = there.client.get_object_tagging(Bucket="copy", Key="d/ä b+c")["TagSet"]
    assert {tag["Key"]: tag["Value"] for tag in tags} == {"k": "v", "x": "y z"}


@pytest.mark.parametrize("checksum", ["CRC32", "SHA1", None])
def test_an_object_in_parts_keeps_its_parts(here, there, checksum):
    set_rules(here, rule())
    s3 = here.client
    sums = {"ChecksumAlgorithm": checksum} if checksum else {}
    upload = s3.create_multipart_upload(Bucket="bkt", Key="big", Metadata={"m": "1"}, **sums)["UploadId"]
    bodies = [os.urandom(5 * MIB), os.urandom(6 * MIB), b"end"]
    parts = []
    for number, body in zip((1, 3, 7), bodies):
        part = s3.upload_part(Bucket="bkt", Key="big", UploadId=upload, PartNumber=number, Body=body, **sums)
        parts.append({"PartNumber": number, "ETag": part["ETag"]} | {name: value for name, value in part.items() if name == f"Checksum{checksum}"})
    s3.complete_multipart_upload(Bucket="bkt", Key="big", UploadId=upload, MultipartUpload={"Parts": parts})
    wait_until_equal(here, there)

    attributes = ["ETag", "Checksum", "ObjectParts", "ObjectSize"]
    of = [s.client.get_object_attributes(Bucket=b, Key="big", ObjectAttributes=attributes) for s, b in ((here, "bkt"), (there, "copy"))]
    assert [{name: o.get(name) for name in attributes} for o in of][0] == {name: of[1].get(name) for name in attributes}
    assert there.bytes("copy", "big") == b"".join(bodies)
    assert status(there, "big", "copy") == "REPLICA"
    assert not there.client.list_multipart_uploads(Bucket="copy").get("Uploads")


# A copy keeps the parts of its source, but the algorithm of its checksum may differ from that of
# the parts.
@pytest.mark.parametrize("checksum", ["CRC32C", "SHA256"])
def test_a_copy_in_parts_with_another_checksum(here, there, checksum):
    s3 = here.client
    upload = s3.create_multipart_upload(Bucket="bkt", Key="big", ChecksumAlgorithm="CRC32")
    parts = []
    for number, body in enumerate((b"a" * 5 * MIB, b"b"), 1):
        part = s3.upload_part(Bucket="bkt", Key="big", UploadId=upload["UploadId"], PartNumber=number, Body=body, ChecksumAlgorithm="CRC32")
        parts.append({"PartNumber": number, "ETag": part["ETag"], "ChecksumCRC32": part["ChecksumCRC32"]})
    s3.complete_multipart_upload(Bucket="bkt", Key="big", UploadId=upload["UploadId"], MultipartUpload={"Parts": parts})
    set_rules(here, rule())
    s3.copy_object(Bucket="bkt", Key="copied", CopySource="bkt/big", ChecksumAlgorithm=checksum)

    wait_for(lambda: status(here, "copied") == "COMPLETED", 30)
    assert there.bytes("copy", "copied") == b"a" * 5 * MIB + b"b"
    assert there.client.head_object(Bucket="copy", Key="copied")["ETag"] == here.client.head_object(Bucket="bkt", Key="big")["ETag"]


def test_versions_and_markers_are_those_of_the_source(here, there):
    set_rules(here, rule())
    s3 = here.client
    for i in range(30):
        s3.put_object(Bucket="bkt", Key=f"k{i % 3}", Body=f"{i}".encode())
    s3.delete_object(Bucket="bkt", Key="k0")
    s3.delete_objects(Bucket="bkt", Delete={"Objects": [{"Key": "k1"}]})
    s3.copy_object(Bucket="bkt", Key="k3", CopySource="bkt/k2")
    wait_until_equal(here, there)
    assert there.keys("copy") == ["k2", "k3"]
    # A deletion of a version is not replicated, as at AWS.
    version = next(v for v in versions(here, "bkt") if v[0] == "k2" and not v[3])
    s3.delete_object(Bucket="bkt", Key="k2", VersionId=version[1])
    s3.put_object(Bucket="bkt", Key="k2", Body=b"last")
    wait_for(lambda: there.bytes("copy", "k2") == b"last", 30)
    assert version in versions(there, "copy")


# The requests are like those of another penstock. A replica has the id of its version, may be of
# any time, and is sent again if a reply was lost.
def test_a_replica_has_its_place_and_is_made_once(there):
    def send(version, key="k", method="put_object", **more):
        client = there.boto3()
        client.meta.events.register("before-call.s3.*", lambda params, **_: params["headers"].update({"x-amz-penstock-replica": version}))
        return getattr(client, method)(Bucket="copy", Key=key, **more)

    made = there.client.put_object(Bucket="copy", Key="k", Body=b"new")["VersionId"]
    older, marker = f"{int(made, 16) - 10**9:016x}", f"{int(made, 16) - 10**6:016x}"
    assert send(older, Body=b"old")["VersionId"] == older
    assert send(marker, method="delete_object")["VersionId"] == marker
    with pytest.raises(ClientError, match="PreconditionFailed"):
        send(older, Body=b"old")
    with pytest.raises(ClientError, match="InvalidBucketState.*another version"):
        send(older, Body=b"other")
    with pytest.raises(ClientError, match="InvalidBucketState.*another version"):
        send(older, method="delete_object")
    with pytest.raises(ClientError, match="InvalidBucketState.*another version"):
        send(marker, Body=b"old")
    send(marker, method="delete_object")

    assert [(version, latest) for _, version, _, latest in versions(there, "copy")] == [(older, False), (marker, False), (made, True)]
    assert there.bytes("copy", "k") == b"new"
    assert there.client.get_object(Bucket="copy", Key="k", VersionId=older)["Body"].read() == b"old"
    newer = f"{int(made, 16) + 10**15:016x}"
    send(newer, method="delete_object")
    assert there.keys("copy") == []
    assert there.client.put_object(Bucket="copy", Key="k", Body=b"last")["VersionId"] > newer
    # An id contains a time. An id without room for later times is refused, too, because the next id
    # would overflow.
    for name in ("null", "x", "", "0" * 16, "7fffffffffffffff", "4000000000000000"):
        with pytest.raises(ClientError, match="InvalidArgument"):
            send(name, Body=b"x")
        with pytest.raises(ClientError, match="InvalidArgument"):
            send(name, method="delete_object")
        with pytest.raises(ClientError, match="InvalidArgument"):
            send(name, method="create_multipart_upload")
    send("3fffffffffffffff", Body=b"x")
    there.client.put_object(Bucket="copy", Key="k", Body=b"after")
    assert there.bytes("copy", "k") == b"after"


# The sender chooses the time of a replica, so the retention must not be computed from that time.
def test_a_replica_of_long_ago_is_protected_from_now_on(penstock, tmp_path):
    store = Store(penstock, tmp_path / "store")
    store.client.create_bucket(Bucket="locked", ObjectLockEnabledForBucket=True)
    default = {"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 1}}}
    store.client.put_object_lock_configuration(Bucket="locked", ObjectLockConfiguration=default)
    sender = store.boto3()
    sender.meta.events.register("before-call.s3.PutObject", lambda params, **_: params["headers"].update({"x-amz-penstock-replica": "00000000000f4240"}))
    version = sender.put_object(Bucket="locked", Key="k", Body=b"x")["VersionId"]
    with pytest.raises(ClientError, match="AccessDenied"):
        store.client.delete_object(Bucket="locked", Key="k", VersionId=version)
    store.stop().ok()


# The operator's keys send the replicas, so without this limit an account could write into the
# backup of another account.
def test_a_destination_is_open_to_one_account(penstock, tmp_path, there):
    other = {"number": "111122223333", "name": "other", "access_key_id": "OTHERKEY", "secret_access_key": "the secret of the other"}
    accounts = write_targets(tmp_path / "accounts.json", other)
    path = write_targets(tmp_path / "r.json", target_of(there), target_of(there, "theirs", bucket="copy", account=other["number"]))
    here = Store(penstock, tmp_path / "here", options=["--replication", path, "--accounts", accounts, "--replication-retry", "10ms"])
    make_bucket(here, "bkt")
    keys = other["access_key_id"], other["secret_access_key"]
    s3 = here.boto3(keys=keys)
    s3.create_bucket(Bucket="foreign")
    s3.put_bucket_versioning(Bucket="foreign", VersioningConfiguration={"Status": "Enabled"})

    def allow(client, bucket, name):
        client.put_bucket_replication(Bucket=bucket, ReplicationConfiguration={"Role": ROLE, "Rules": [rule(name)]})

    for client, bucket, name in ((s3, "foreign", "copy"), (here.client, "bkt", "theirs")):
        with pytest.raises(ClientError, match="must exist"):
            allow(client, bucket, name)
    allow(s3, "foreign", "theirs")
    address = there.address
    there.stop()
    s3.put_object(Bucket="foreign", Key="k", Body=b"x")
    here.stop()
    # Pending versions are not sent after the destination was given to another account.
    write_targets(path, target_of(there), target_of(there, "theirs", bucket="copy"))
    there.start(listen=address)
    here.start()
    allow(here.client, "bkt", "theirs")
    here.client.put_object(Bucket="bkt", Key="own", Body=b"x")
    wait_for(lambda: status(here, "own") == "COMPLETED", 30)
    wait_for(lambda: "ReplicationStatus" not in here.boto3(keys=keys).head_object(Bucket="foreign", Key="k"), 30)
    assert there.keys("copy") == ["own"]
    here.stop().ok()


def test_encrypted_objects_and_those_with_a_key_of_the_client(here, there):
    set_rules(here, rule())
    here.client.put_object(Bucket="bkt", Key="own", Body=b"o" * 100_000, ServerSideEncryption="AES256")
    here.client.put_object(Bucket="bkt", Key="customer", Body=b"c", SSECustomerAlgorithm="AES256", SSECustomerKey=b"k" * 32)
    wait_for(lambda: there.keys("copy") == ["own"], 30)
    assert there.client.head_object(Bucket="copy", Key="own")["ServerSideEncryption"] == "AES256"
    assert there.bytes("copy", "own") == b"o" * 100_000
    assert status(here, "customer", SSECustomerAlgorithm="AES256", SSECustomerKey=b"k" * 32) is None


def test_retention_and_hold_are_replicated(penstock, tmp_path):
    there = Store(penstock, tmp_path / "there")
    there.client.create_bucket(Bucket="copy", ObjectLockEnabledForBucket=True)
    here = Store(penstock, tmp_path / "here", options=["--replication", write_targets(tmp_path / "r", target_of(there))])
    here.client.create_bucket(Bucket="bkt", ObjectLockEnabledForBucket=True)
    set_rules(here, rule())
    here.client.put_object(Bucket="bkt", Key="k", Body=b"x", ObjectLockMode="GOVERNANCE", ObjectLockRetainUntilDate="2100-01-01T00:00:00Z",
                           ObjectLockLegalHoldStatus="ON")  # fmt: skip
    wait_until_equal(here, there)
    head = there.client.head_object(Bucket="copy", Key="k")
    assert (head["ObjectLockMode"], head["ObjectLockRetainUntilDate"].year, head["ObjectLockLegalHoldStatus"]) == ("GOVERNANCE", 2100, "ON")
    here.stop()
    there.stop()


# Tags and locks of the changed version are sent, even if that version is not the current one.
def test_tags_and_locks_that_change_later_are_sent_on(penstock, tmp_path):
    there = Store(penstock, tmp_path / "there")
    there.client.create_bucket(Bucket="copy", ObjectLockEnabledForBucket=True)
    here = Store(penstock, tmp_path / "here", options=["--replication", write_targets(tmp_path / "r", target_of(there))])
    here.client.create_bucket(Bucket="bkt", ObjectLockEnabledForBucket=True)
    set_rules(here, rule())
    first = here.client.put_object(Bucket="bkt", Key="k", Body=b"1", Tagging="a=b")["VersionId"]
    here.client.put_object(Bucket="bkt", Key="k", Body=b"2", Tagging="a=b")
    wait_until_equal(here, there)

    here.client.put_object_tagging(Bucket="bkt", Key="k", VersionId=first, Tagging={"TagSet": [{"Key": "x", "Value": "y z"}]})
    here.client.delete_object_tagging(Bucket="bkt", Key="k")
    here.client.put_object_legal_hold(Bucket="bkt", Key="k", LegalHold={"Status": "ON"})
    here.client.put_object_retention(Bucket="bkt", Key="k", VersionId=first, Retention={"Mode": "COMPLIANCE", "RetainUntilDate": "2100-01-01T00:00:00Z"})

    def tags(**version):
        return [(tag["Key"], tag["Value"]) for tag in there.client.get_object_tagging(Bucket="copy", Key="k", **version)["TagSet"]]

    def head(**version):
        found = there.client.head_object(Bucket="copy", Key="k", **version)
        return found.get("ObjectLockMode"), found.get("ObjectLockLegalHoldStatus")

    wait_for(lambda: tags(VersionId=first) == [("x", "y z")] and tags() == [], 30)
    wait_for(lambda: head(VersionId=first) == ("COMPLIANCE", None) and head() == (None, "ON"), 30)
    assert status(here, "k") == "COMPLETED"
    here.stop().ok()
    there.stop().ok()


# A store that does not know checksums gets the MD5s instead. Later requests do not try checksums
# again.
def test_a_store_without_checksums_gets_the_md5s(penstock, tmp_path):
    there = OldStore()
    here = Store(penstock, tmp_path / "here", options=["--replication", write_targets(tmp_path / "r", target_of(there))])
    make_bucket(here, "bkt")
    set_rules(here, rule())
    large, bodies = os.urandom(MIB), [os.urandom(5 * MIB), b"end"]
    upload = here.client.create_multipart_upload(Bucket="bkt", Key="parts", ChecksumAlgorithm="CRC32")["UploadId"]
    parts = []
    for number, body in enumerate(bodies, 1):
        part = here.client.upload_part(Bucket="bkt", Key="parts", UploadId=upload, PartNumber=number, Body=body, ChecksumAlgorithm="CRC32")
        parts.append({"PartNumber": number, "ETag": part["ETag"], "ChecksumCRC32": part["ChecksumCRC32"]})
    here.client.put_object(Bucket="bkt", Key="large", Body=large)
    wait_for(lambda: status(here, "large") == "COMPLETED", 30)
    here.client.complete_multipart_upload(Bucket="bkt", Key="parts", UploadId=upload, MultipartUpload={"Parts": parts})
    here.client.put_object(Bucket="bkt", Key="gone", Body=b"x")
    here.client.delete_object(Bucket="bkt", Key="gone")

    wait_for(lambda: status(here, "parts") == "COMPLETED" and ("DELETE", "/copy/gone", "") in there.requests, 30)
    assert there.objects == {"/copy/large": large, "/copy/parts": b"".join(bodies)}
    assert [method for method, key, _ in there.requests if key == "/copy/large"] == ["PUT", "PUT"]
    assert [method for method, key, _ in there.requests if key == "/copy/parts"] == ["POST", "PUT", "PUT", "POST"]
    here.stop().ok()
    there.httpd.shutdown()


# --- rules


def test_prefixes_tags_priorities_and_statuses_decide(here, there):
    make_bucket(there, "other")
    set_rules(here, rule(Filter={"Prefix": "p/"}, markers="Disabled"),
              rule("second", 2, "Disabled", Filter={"And": {"Prefix": "p/", "Tags": [{"Key": "k", "Value": "v"}, {"Key": "l", "Value": ""}]}}),
              rule("second", 3, Filter={"Prefix": "off/"}, Status="Disabled"),
              rule("second", 4, Filter={"Prefix": "cold/"}, Destination={"Bucket": "arn:aws:s3:::second", "StorageClass": "STANDARD_IA"}))  # fmt: skip
    s3 = here.client
    for key, tags in (("p/a", ""), ("p/b", "k=v&l="), ("p/c", "k=v"), ("q/d", "k=v&l="), ("off/e", "k=v&l="), ("cold/f", "")):
        s3.put_object(Bucket="bkt", Key=key, Body=b"x", Tagging=tags)
    s3.delete_object(Bucket="bkt", Key="p/a")
    s3.put_object(Bucket="bkt", Key="p/z", Body=b"x")
    wait_for(lambda: there.keys("copy") == ["p/a", "p/b", "p/c", "p/z"] and there.keys("other") == ["cold/f", "p/b"], 30)
    assert status(here, "q/d") is None and status(here, "off/e") is None
    assert there.client.head_object(Bucket="other", Key="cold/f")["StorageClass"] == "STANDARD_IA"
    wait_for(lambda: status(here, "p/b") == "COMPLETED", 30)


def test_objects_from_before_the_rule_stay_where_they_are(here, there):
    here.client.put_object(Bucket="bkt", Key="before", Body=b"x")
    set_rules(here, {"ID": "old", "Prefix": "", "Status": "Enabled", "Destination": {"Bucket": "arn:aws:s3:::copy"}})
    here.client.put_object(Bucket="bkt", Key="after", Body=b"x")
    here.client.delete_object(Bucket="bkt", Key="after")
    wait_for(lambda: [v[:3:2] for v in versions(there, "copy")] == [("after", v[2]) for v in versions(there, "copy")] != [], 30)
    wait_for(lambda: len(versions(there, "copy")) == 2, 30)
    assert there.keys("copy") == [] and status(here, "before") is None


# Two stores that replicate to each other end with the same versions, each of them sent once.
def test_two_stores_that_replicate_to_each_other(penstock, tmp_path):
    a, b = Store(penstock, tmp_path / "a"), Store(penstock, tmp_path / "b")
    for store, other in ((a, b), (b, a)):
        make_bucket(store, "bkt")
        store.options += ["--replication", write_targets(tmp_path / f"{store.root.name}.json", target_of(other, bucket="bkt")), "--metrics", "0"]
    for store in (a, b):
        address = store.address
        store.stop()
        store.start(listen=address)
        set_rules(store, rule())
    for i in range(20):
        for store in (a, b):
            store.client.put_object(Bucket="bkt", Key=f"k{i % 4}", Body=f"{store.root.name}{i}".encode())
    a.client.delete_object(Bucket="bkt", Key="k1")

    wait_for(lambda: len(versions(a, "bkt")) == 41 and versions(a, "bkt") == versions(b, "bkt"), 60)
    wait_for(lambda: metric(a, "pending_objects") == metric(b, "pending_objects") == {"copy": 0}, 30)
    assert metric(a, "sent_total") == {"copy": 21} and metric(b, "sent_total") == {"copy": 20}
    a.stop()
    b.stop()


# --- failures


def test_an_outage_is_caught_up_and_its_lag_is_visible(penstock, here, there):
    set_rules(here, rule())
    address = there.address
    there.stop()
    for i in range(50):
        here.client.put_object(Bucket="bkt", Key=f"k{i % 10}", Body=b"x" * i)
    here.client.delete_object(Bucket="bkt", Key="k3")
    assert status(here, "k1") == "PENDING"
    assert metric(here, "pending_objects") == {"copy": 51, "second": 0}
    assert metric(here, "pending_bytes")["copy"] == sum(range(50))
    wait_for(lambda: metric(here, "lag_seconds")["copy"] > 0.3, 30)
    wait_for(lambda: "replication to 'copy'" in here.process.err, 30)

    lags = penstock.run("store", "stat", "--json", "--root", here.root).json()["replication"]
    assert [(lag["bucket"], lag["target"], lag["versions"], lag["bytes"]) for lag in lags] == [("bkt", "copy", 51, sum(range(50)))]
    assert lags[0]["oldest_seconds"] > 0.3
    assert re.search(r"bkt +copy +51 ", penstock.run("store", "stat", "--root", here.root).ok().out)

    # The queue also survives a kill of the source.
    here.kill()
    here.start()
    assert metric(here, "pending_objects")["copy"] == 51 and metric(here, "pending_bytes")["copy"] == sum(range(50))
    there.start(listen=address)
    wait_until_equal(here, there)
    wait_for(lambda: metric(here, "pending_objects")["copy"] == metric(here, "pending_bytes")["copy"] == 0, 30)
    assert metric(here, "lag_seconds")["copy"] == 0 and status(here, "k1") == "COMPLETED"


def test_a_killed_source_loses_and_repeats_nothing(here, there):
    set_rules(here, rule())
    acknowledged = []
    for turn in range(4):
        for i in range(60):
            key = f"k{i % 20}"
            acknowledged.append((key, here.client.put_object(Bucket="bkt", Key=key, Body=os.urandom(100 * (i % 5) ** 5))["VersionId"]))
        here.kill()
        here.start()
    wait_until_equal(here, there)
    assert sorted(acknowledged) == [v[:2] for v in versions(there, "copy")]


# A large object whose connection breaks leaves no half object, and is sent again.
def test_a_destination_that_dies_in_the_middle(here, there):
    set_rules(here, rule())
    body = os.urandom(8 * MIB)
    address = there.address
    for i in range(6):
        here.client.put_object(Bucket="bkt", Key=f"k{i}", Body=body)
    there.kill()
    there.start(listen=address)
    wait_until_equal(here, there)
    assert {hashlib.md5(there.bytes("copy", key)).digest() for key in there.keys("copy")} == {hashlib.md5(body).digest()}


def test_wrong_keys_are_reported_and_lose_nothing(here, there, tmp_path):
    path = tmp_path / "replication.json"
    right = path.read_text()
    here.stop()
    write_targets(path, target_of(there, secret_access_key="w" * 40))
    here.start()
    set_rules(here, rule())
    here.client.put_object(Bucket="bkt", Key="k", Body=b"x")
    wait_for(lambda: status(here, "k") == "FAILED", 30)
    wait_for(lambda: "replication to 'copy'" in here.process.err, 30)
    assert "w" * 40 not in here.process.err and metric(here, "pending_objects") == {"copy": 1}

    here.stop()
    path.write_text(right)
    here.start()
    wait_until_equal(here, there)
    wait_for(lambda: status(here, "k") == "COMPLETED", 30)


# A change that is refused for a while does not affect the version, and later changes are sent, too.
def test_tags_that_were_refused_for_a_while(here, there, tmp_path):
    path = tmp_path / "replication.json"
    right = path.read_text()
    set_rules(here, rule())
    here.client.put_object(Bucket="bkt", Key="k", Body=b"x")
    wait_for(lambda: status(here, "k") == "COMPLETED", 30)
    here.stop()
    write_targets(path, target_of(there, secret_access_key="w" * 40))
    here.start()
    here.client.put_object_tagging(Bucket="bkt", Key="k", Tagging={"TagSet": [{"Key": "n", "Value": "1"}]})
    wait_for(lambda: "replication to 'copy'" in here.process.err, 30)
    here.stop()
    path.write_text(right)
    here.start()
    for number in ("1", "2"):
        wait_for(lambda number=number: there.client.get_object_tagging(Bucket="copy", Key="k")["TagSet"] == [{"Key": "n", "Value": number}], 30)
        here.client.put_object_tagging(Bucket="bkt", Key="k", Tagging={"TagSet": [{"Key": "n", "Value": "2"}]})
    assert status(here, "k") == "COMPLETED"


# Some stores refuse unknown features with 501. If the version is given up, its tags must not be
# sent, because they would change another version.
def test_an_object_that_the_destination_does_not_implement_is_given_up(penstock, tmp_path):
    there = OldStore()
    there.unknown = "/copy/no"
    path = write_targets(tmp_path / "r", target_of(there))
    here = Store(penstock, tmp_path / "here", options=["--replication", path, "--replication-retry", "1ms"])
    make_bucket(here, "bkt")
    set_rules(here, rule())
    there.open.clear()
    here.client.put_object(Bucket="bkt", Key="no", Body=b"x")
    wait_for(lambda: there.held, 30)
    here.client.put_object_tagging(Bucket="bkt", Key="no", Tagging={"TagSet": [{"Key": "n", "Value": "1"}]})
    there.open.set()
    wait_for(lambda: "gave up" in here.process.err, 60)
    wait_for(lambda: not penstock.run("store", "stat", "--json", "--root", here.root).ok().json()["replication"], 60)
    assert status(here, "no") == "FAILED"
    assert "tagging" not in [query for _, _, query in there.requests]
    here.stop().ok()


# The attempt that stores the version has read its tags before the change, so the change must be
# sent separately.
def test_tags_of_a_refused_version_are_sent_after_it(penstock, tmp_path):
    there = OldStore()
    there.unknown = "/copy/k"
    path = write_targets(tmp_path / "r", target_of(there))
    here = Store(penstock, tmp_path / "here", options=["--replication", path, "--replication-retry", "50ms"])
    make_bucket(here, "bkt")
    set_rules(here, rule())
    here.client.put_object(Bucket="bkt", Key="k", Body=b"x")
    wait_for(lambda: status(here, "k") == "FAILED", 30)
    there.open.clear()
    # Wait for the next attempt at the version, or for the HEAD of the bucket after a refusal.
    wait_for(lambda: there.held, 30)
    here.client.put_object_tagging(Bucket="bkt", Key="k", Tagging={"TagSet": [{"Key": "n", "Value": "1"}]})
    there.unknown = None
    there.open.set()
    wait_for(lambda: ("PUT", "/copy/k", "tagging") in there.requests, 30)
    wait_for(lambda: status(here, "k") == "COMPLETED", 30)
    here.stop().ok()


# A change that the destination forbids is given up at once: it must not delay the versions behind it.
def test_tags_that_were_given_up_leave_the_version_as_it_is(here, there):
    policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Deny", "Principal": "*", "Action": "s3:PutObject*Tagging", "Resource": "arn:aws:s3:::copy/*"}]}
    there.client.put_bucket_policy(Bucket="copy", Policy=json.dumps(policy))
    set_rules(here, rule())
    here.stop()
    here.options[here.options.index("50ms")] = "60s"
    here.start()
    here.client.put_object(Bucket="bkt", Key="k", Body=b"x")
    wait_for(lambda: status(here, "k") == "COMPLETED", 30)
    here.client.put_object_tagging(Bucket="bkt", Key="k", Tagging={"TagSet": [{"Key": "n", "Value": "1"}]})
    wait_for(lambda: metric(here, "failed_total")["copy"] == 1 and metric(here, "pending_objects")["copy"] == 0, 30)
    assert status(here, "k") == "COMPLETED"

    there.client.delete_bucket_policy(Bucket="copy")
    here.client.put_object_tagging(Bucket="bkt", Key="k", Tagging={"TagSet": [{"Key": "n", "Value": "2"}]})
    wait_for(lambda: there.client.get_object_tagging(Bucket="copy", Key="k")["TagSet"] == [{"Key": "n", "Value": "2"}], 30)


# The destination would refuse a shorter retention, and later versions would wait.
def test_a_shorter_retention_is_not_sent(penstock, tmp_path):
    there = Store(penstock, tmp_path / "there")
    there.client.create_bucket(Bucket="copy", ObjectLockEnabledForBucket=True)
    here = Store(penstock, tmp_path / "here", options=["--replication", write_targets(tmp_path / "r", target_of(there)), "--replication-retry", "60s"])
    here.client.create_bucket(Bucket="bkt", ObjectLockEnabledForBucket=True)
    set_rules(here, rule())
    version = here.client.put_object(Bucket="bkt", Key="k", Body=b"1", ObjectLockMode="GOVERNANCE", ObjectLockRetainUntilDate="2090-01-01T00:00:00Z")["VersionId"]

    def retain(year, **more):
        until = {"Mode": "GOVERNANCE", "RetainUntilDate": f"{year}-01-01T00:00:00Z"}
        here.client.put_object_retention(Bucket="bkt", Key="k", VersionId=version, Retention=until, **more)

    def retained():
        return there.client.get_object_retention(Bucket="copy", Key="k", VersionId=version)["Retention"]["RetainUntilDate"].year

    wait_for(lambda: status(here, "k") == "COMPLETED", 30)
    retain(2080, BypassGovernanceRetention=True)
    here.client.put_object(Bucket="bkt", Key="k", Body=b"2")
    wait_for(lambda: status(here, "k") == "COMPLETED", 30)
    assert retained() == 2090 and "replication to 'copy'" not in here.process.err
    retain(2100)
    wait_for(lambda: retained() == 2100, 30)
    here.stop().ok()
    there.stop().ok()


# The destination has the version, so its state stays, and later changes are sent.
def test_a_change_is_discarded_without_its_rule_but_its_version_is_not(here, there):
    def tag(number):
        here.client.put_object_tagging(Bucket="bkt", Key="k", Tagging={"TagSet": [{"Key": "n", "Value": number}]})

    set_rules(here, rule())
    here.client.put_object(Bucket="bkt", Key="k", Body=b"x")
    wait_for(lambda: status(here, "k") == "COMPLETED", 30)
    address = there.address
    there.stop()
    tag("1")
    here.client.delete_bucket_replication(Bucket="bkt")
    wait_for(lambda: metric(here, "pending_objects")["copy"] == 0, 30)
    assert status(here, "k") == "COMPLETED"
    set_rules(here, rule())
    there.start(listen=address)
    tag("2")
    wait_for(lambda: there.client.get_object_tagging(Bucket="copy", Key="k")["TagSet"] == [{"Key": "n", "Value": "2"}], 30)


# While both stores have a version of the future, both name the next version after it. Whatever
# exists there under the name of another version must not count as that version.
def test_a_version_whose_name_is_taken_fails(here, there):
    future = f"{time.time_ns() + 10**15:016x}"

    def make(store, bucket, body, key):
        client = store.boto3()
        client.meta.events.register("before-call.s3.PutObject", lambda params, **_: params["headers"].update({"x-amz-penstock-replica": future}))
        client.put_object(Bucket=bucket, Key=key, Body=b"early")
        if body:
            return store.client.put_object(Bucket=bucket, Key=key, Body=body)["VersionId"]
        return store.client.delete_object(Bucket=bucket, Key=key)["VersionId"]

    here.stop()
    here.options[here.options.index("50ms")] = "1ms"
    here.start()
    set_rules(here, rule())
    for key, theirs, ours in (("put", b"t", b"o"), ("put-marker", None, b"o"), ("marker-put", b"t", None), ("same", b"o", b"o"), ("markers", None, None)):
        assert make(there, "copy", theirs, key) == make(here, "bkt", ours, key)
    wait_for(lambda: metric(here, "failed_total")["copy"] == 3 and metric(here, "pending_objects")["copy"] == 0, 60)
    assert metric(here, "sent_total")["copy"] == 2
    assert [status(here, key) for key in ("put", "put-marker", "same")] == ["FAILED", "FAILED", "COMPLETED"]
    wait_for(lambda: all(re.search(f"gave up .*'bkt/{key}'.*another version", here.process.err) for key in ("put", "put-marker", "marker-put")), 30)
    assert there.bytes("copy", "put") == b"t" and there.keys("copy") == ["marker-put", "put", "same"]


# AWS: lifecycle actions wait until a version is COMPLETED or FAILED.
def test_the_lifecycle_leaves_pending_versions_and_markers(penstock, tmp_path, there):
    path = write_targets(tmp_path / "r.json", target_of(there))
    here = Store(penstock, tmp_path / "here", options=["--replication", path, "--replication-retry", "50ms", "--lifecycle-day", "100ms"])
    make_bucket(here, "bkt")
    set_rules(here, rule(Filter={"Prefix": "sent/"}))
    here.client.put_object(Bucket="bkt", Key="sent/deleted", Body=b"1")
    wait_for(lambda: status(here, "sent/deleted") == "COMPLETED", 30)
    address = there.address
    there.stop()
    made = []
    for prefix in ("sent/", ""):
        made += [(f"{prefix}k", here.client.put_object(Bucket="bkt", Key=f"{prefix}k", Body=body)["VersionId"]) for body in (b"1", b"2")]
        made.append((f"{prefix}deleted", here.client.delete_object(Bucket="bkt", Key=f"{prefix}deleted")["VersionId"]))
    expiry = {"ID": "e", "Status": "Enabled", "Filter": {"Prefix": ""}, "NoncurrentVersionExpiration": {"NoncurrentDays": 1}, "Expiration": {"ExpiredObjectDeleteMarker": True}}
    here.client.put_bucket_lifecycle_configuration(Bucket="bkt", LifecycleConfiguration={"Rules": [expiry]})

    def left():
        return [version[:2] for version in versions(here, "bkt")]

    wait_for(lambda: len(left()) == 4, 30, what="versions that are not replicated have expired")
    assert left() == sorted(made[4:5] + made[:3])
    there.start(listen=address)
    wait_for(lambda: set(made[:3]) <= {version[:2] for version in versions(there, "copy")}, 30)
    assert there.keys("copy") == ["sent/k"]
    wait_for(lambda: left() == sorted([made[4], made[1]]), 30, what="sent versions have expired")
    here.stop().ok()


# If the queue cannot be written, a version that was sent is sent again, but only after a pause.
def test_a_full_disk_of_the_source_pauses_the_lane(penstock, tmp_path):
    there = OldStore()
    (tmp_path / "disk").mkdir()
    disk = Faults(penstock, tmp_path / "disk")
    path = write_targets(tmp_path / "r", target_of(there))
    here = Store(penstock, tmp_path / "disk" / "here", options=["--replication", path, "--replication-retry", "60s"])
    make_bucket(here, "bkt")
    set_rules(here, rule())
    there.open.clear()
    here.client.put_object(Bucket="bkt", Key="k", Body=b"x")
    wait_for(lambda: there.requests, 30)
    disk.set(WRITE, WAL, errno.ENOSPC)
    there.open.set()
    wait_for(lambda: "1 versions wait" in here.process.err, 30)
    assert here.process.err.count("will be sent again") == 1
    disk.clear()
    here.stop().ok()
    here.start()
    wait_for(lambda: status(here, "k") == "COMPLETED", 30)
    here.stop().ok()


# An object that the destination never accepts does not delay other objects. If the destination
# accepts no object, all wait.
def test_a_refused_object_is_given_up_and_a_missing_bucket_waits(here, there):
    make_bucket(there, "other")
    policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Deny", "Principal": "*", "Action": "s3:PutObject", "Resource": "arn:aws:s3:::copy/no/*"}]}
    there.client.put_bucket_policy(Bucket="copy", Policy=json.dumps(policy))
    set_rules(here, rule(), rule("second", 2))
    here.stop()
    here.options[here.options.index("50ms")] = "1ms"
    here.start()
    there.client.delete_bucket(Bucket="other")
    here.client.put_object(Bucket="bkt", Key="no/k", Body=b"x")
    for i in range(20):
        here.client.put_object(Bucket="bkt", Key=f"yes/{i}", Body=b"x")

    wait_for(lambda: metric(here, "failed_total")["copy"] == 1 and metric(here, "pending_objects")["copy"] == 0, 60)
    assert status(here, "no/k") == "FAILED" and "no/k" in here.process.err
    assert len(there.keys("copy")) == 20
    assert metric(here, "failed_total")["second"] == 0 and metric(here, "pending_objects")["second"] == 21
    make_bucket(there, "other")
    wait_for(lambda: metric(here, "pending_objects")["second"] == 0, 90)
    assert len(there.keys("other")) == 21


def test_versions_wait_for_a_target_that_left_the_file(here, there, tmp_path):
    path = tmp_path / "replication.json"
    right = path.read_text()
    set_rules(here, rule())
    address = there.address
    there.stop()
    here.client.put_object(Bucket="bkt", Key="waits", Body=b"x")
    here.stop()
    path.write_text("[]")
    here.start()
    here.process.wait_for_output("1 versions wait", 30)
    here.client.put_object(Bucket="bkt", Key="fails", Body=b"x")
    assert status(here, "fails") == "FAILED" and status(here, "waits") == "PENDING"
    here.stop()
    path.write_text(right)
    there.start(listen=address)
    here.start()
    wait_for(lambda: there.keys("copy") == ["waits"], 30)

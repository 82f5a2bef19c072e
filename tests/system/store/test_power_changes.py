"""Power loss after each kind of change: requests show each acknowledged change, and no change is partial.

test_power.py has the changes of objects and uploads by several clients at once. Here each change is
made alone. After a power loss, either all views (harness/power.py) show the state before a change,
or all views show the state after it.
"""
import json
import re
import urllib.parse
from datetime import datetime, timedelta, timezone

import pytest

from harness.power import Events, Recording, Request, Witness, body
from harness.program import TOP, Penstock
from harness.s3_wire import Wire, crc32
from harness.waiting import wait_for
from store.test_encryption import KEY, OTHER, SOURCE, key_headers
from store.test_headers import COMPLETE, CORS, ENCRYPTION, HOLD, LIFECYCLE, LOCK, OWNERSHIP, TAGGING
from store.test_iam import OTHER as ACCOUNT
from store.test_iam import policy
from store.test_notifications import ARN
from store.test_post import BOUNDARY, Form, encoded
from store.test_replication import write_targets

pytestmark = pytest.mark.preloads

SIZES = {"small": 3000, "large": 20_000}  # bytes: in the database, and in a file
SEALED = {"x-amz-server-side-encryption": "AES256"}
BLOCK = "<PublicAccessBlockConfiguration><RestrictPublicBuckets>true</RestrictPublicBuckets></PublicAccessBlockConfiguration>"
LOGGING = (
    "<BucketLoggingStatus><LoggingEnabled><TargetBucket>log</TargetBucket><TargetPrefix>l/</TargetPrefix></LoggingEnabled>"
    "</BucketLoggingStatus>"
)
PUBLIC = json.dumps({"Statement": {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::cfg/*"}})
LATER = (datetime.now(timezone.utc) + timedelta(days=9)).strftime("%Y-%m-%dT00:00:00Z")
RETENTION = f"<Retention><Mode>GOVERNANCE</Mode><RetainUntilDate>{LATER}</RetainUntilDate></Retention>"
DEFAULT_LOCK = LOCK.replace(
    "</ObjectLockEnabled>", "</ObjectLockEnabled><Rule><DefaultRetention><Mode>GOVERNANCE</Mode><Days>1</Days></DefaultRetention></Rule>"
)
NOTIFICATION = (
    f"<NotificationConfiguration><QueueConfiguration><Queue>{ARN}</Queue><Event>s3:ObjectCreated:*</Event><Event>s3:ObjectRemoved:*</Event>"
    "</QueueConfiguration></NotificationConfiguration>"
)
REPLICATION = (
    "<ReplicationConfiguration><Role>arn:aws:iam::000000000000:role/r</Role><Rule><ID>r</ID><Priority>1</Priority><Status>Enabled</Status>"
    "<Filter><Prefix></Prefix></Filter><DeleteMarkerReplication><Status>Enabled</Status></DeleteMarkerReplication>"
    "<Destination><Bucket>arn:aws:s3:::copy</Bucket></Destination></Rule></ReplicationConfiguration>"
)
# Drops the tables and columns that a store of the first format lacks.
DOWNGRADE = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1] + "/meta.db", isolation_level=None)
database.execute("PRAGMA synchronous=FULL")
database.executescript('''BEGIN; ALTER TABLE buckets DROP COLUMN versioning; DROP TABLE versions; DROP TABLE configs; DROP TABLE events;
    ALTER TABLE blobs DROP COLUMN seal; DROP TABLE keys;
    UPDATE objects SET body=(SELECT bytes FROM bodies WHERE id=body) WHERE typeof(body)='integer'; DROP TABLE bodies; PRAGMA user_version=1; COMMIT''')
"""
# Writes a file of the store, like an operator.
WRITE = """
import os, sys
path, text = sys.argv[1:]
with open(path + ".new", "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
    file.write(text)
    file.flush()
    os.fsync(file.fileno())
os.rename(path + ".new", path)
os.fsync(os.open(os.path.dirname(path), os.O_RDONLY))
"""


def get(path, query="", headers=None, **more):
    return Request("GET", path, query, headers, **more)


def versioning(status):
    return f"<VersioningConfiguration><Status>{status}</Status></VersioningConfiguration>".encode()


def version_of(reply):
    return f"versionId={reply.headers['x-amz-version-id']}"


def member(reply, name):
    return re.search(f"<{name}>([^<]*)</{name}>", reply.body.decode()).group(1)


def restart(w, kill, *options):
    w.recording.store.options += options
    w.recording.restart(kill)


# --- one function for each subject


def upgrade(w, _folder):
    """The first start of a newer version upgrades the store's format."""
    w.see(get("/old", "list-type=2"), *(get(f"/old/{key}") for key in (*SIZES, "parts")))
    w.do("PUT", "/old")
    for key, size in SIZES.items():
        w.do("PUT", f"/old/{key}", body=body(1, size))
    upload(w, "/old/parts")
    w.recording.store.stop().ok()
    w.recording.script(DOWNGRADE, w.recording.store.root)
    w.recording.store.start()
    w.do("PUT", "/old/small", body=body(2, 100))


def upload(w, path, seal=None, copied="/old/large", source=None):
    """One upload that is aborted, and one with a part that is sent and then replaced by a range of another object."""
    key = {name: value for name, value in (seal or {}).items() if "customer" in name}
    w.see(get("/" + path.split("/")[1], "uploads="))
    for ends in (False, True):
        which = "uploadId=" + member(w.do("POST", path, "uploads=", seal), "UploadId")
        w.see(get(path, which))
        w.do("PUT", path, f"partNumber=1&{which}", key, body(3, SIZES["large" if ends else "small"]))
        if not ends:
            w.do("DELETE", path, which)
    copy = {"x-amz-copy-source": copied, "x-amz-copy-source-range": "bytes=7-15000"}
    etag = member(w.do("PUT", path, f"partNumber=1&{which}", key | copy | (source or {})), "ETag")
    w.do("POST", path, which, key, COMPLETE.format(etag=etag).encode())


def configurations(w, _folder):
    documents = {"tagging": TAGGING, "cors": CORS, "encryption": ENCRYPTION, "policy": PUBLIC, "publicAccessBlock": BLOCK,
                 "ownershipControls": OWNERSHIP, "logging": LOGGING,
                 "lifecycle": f"<LifecycleConfiguration>{LIFECYCLE}</LifecycleConfiguration>"}  # fmt: skip
    w.see(*(get("/cfg", f"{name}=") for name in (*documents, "acl", "location")), get("/cfg", "list-type=2"))
    w.see(get("/log", "location="), get("/cfg/k"), get("/cfg/k", keys=()), get("/cfg/k", "acl="), get("/cfg/k", "tagging="))
    w.do("PUT", "/log")
    location = "<CreateBucketConfiguration><LocationConstraint>eu-west-1</LocationConstraint></CreateBucketConfiguration>"
    w.do("PUT", "/cfg", body=location.encode())
    w.do("PUT", "/cfg/k", headers={"x-amz-tagging": "a=b", "x-amz-meta-v": "1"}, body=b"text")
    w.do("PUT", "/cfg/k", "tagging=", body=TAGGING.replace("<Value>b", "<Value>c").encode())
    w.do("DELETE", "/cfg/k", "tagging=")
    w.do("PUT", "/cfg/k", "acl=", {"x-amz-acl": "public-read"})
    w.do("PUT", "/cfg", "acl=", {"x-amz-acl": "public-read"})
    for name, document in documents.items():
        w.do("PUT", "/cfg", f"{name}=", body=document.encode())
    w.do("PUT", "/cfg/k", body=body(5, SIZES["large"]))  # now encrypted by default
    for name in documents:
        if name != "logging":
            w.do("DELETE", "/cfg", f"{name}=")
    w.do("PUT", "/cfg", "logging=", body=b"<BucketLoggingStatus/>")


def versions(w, _folder):
    w.see(*(get("/ver", query) for query in ("versioning=", "versions=", "list-type=2")), get("/ver/a"), get("/ver/b"))
    w.do("PUT", "/ver")
    w.do("PUT", "/ver/a", body=body(6, SIZES["large"]))
    w.do("PUT", "/ver", "versioning=", body=versioning("Enabled"))
    kept = []
    for size in SIZES.values():
        kept.append(version_of(w.do("PUT", "/ver/a", body=body(7, size))))
        w.see(*(get("/ver/a", f"{name}{kept[-1]}") for name in ("", "tagging=&", "acl=&")))
    w.see(get("/ver/a", "versionId=null"))
    w.do("PUT", "/ver/a", f"tagging=&{kept[0]}", body=TAGGING.encode())
    w.do("PUT", "/ver/a", f"acl=&{kept[0]}", {"x-amz-acl": "public-read"})
    w.do("PUT", "/ver/b", headers={"x-amz-copy-source": f"/ver/a?{kept[0]}"})
    marker = version_of(w.do("DELETE", "/ver/a"))
    w.do("DELETE", "/ver/a", marker)
    w.do("DELETE", "/ver/a", kept[1])  # the previous version is the current one again
    w.do("DELETE", "/ver/a", "versionId=null")
    w.do("DELETE", "/ver/b")
    w.do("PUT", "/ver/b", headers={"x-amz-penstock-replica": "0123456789abcdef"}, body=body(8, SIZES["large"]))
    upload(w, "/ver/a")
    w.do("PUT", "/ver", "versioning=", body=versioning("Suspended"))
    for size in SIZES.values():
        w.do("PUT", "/ver/a", body=body(9, size))
    w.do("DELETE", "/ver/a")
    w.do("PUT", "/ver/a", body=body(10, SIZES["large"]))


def lock(w, _folder):
    w.see(*(get("/lck", f"{name}=") for name in ("object-lock", "versioning", "versions")))
    w.do("PUT", "/lck", headers={"x-amz-bucket-object-lock-enabled": "true"})
    w.do("PUT", "/lck", "object-lock=", body=DEFAULT_LOCK.encode())
    version = version_of(w.do("PUT", "/lck/k", body=body(11, SIZES["large"])))
    w.see(*(get("/lck/k", f"{name}{version}") for name in ("", "retention=&", "legal-hold=&")))
    w.do("PUT", "/lck/k", f"retention=&{version}", body=RETENTION.encode())
    for status in ("ON", "OFF"):
        w.do("PUT", "/lck/k", f"legal-hold=&{version}", body=HOLD.replace("OFF", status).encode())
    w.do("DELETE", "/lck/k")
    w.do("DELETE", "/lck/k", version, {"x-amz-bypass-governance-retention": "true"})
    held = {"x-amz-object-lock-mode": "COMPLIANCE", "x-amz-object-lock-retain-until-date": LATER, "x-amz-object-lock-legal-hold": "ON"}
    version = version_of(w.do("PUT", "/lck/h", "", held | {"x-amz-checksum-crc32": crc32(b"held")}, b"held"))
    w.see(*(get("/lck/h", f"{name}{version}") for name in ("", "retention=&", "legal-hold=&")))
    w.do("PUT", "/lck", "object-lock=", body=LOCK.encode())


def objects(w, _folder):
    """Forms, copies and encryption; the bucket is set up as in test_post.py."""
    mine, other = key_headers(KEY), key_headers(OTHER)
    w.see(get("/bkt", "list-type=2"), get("/bkt/empty"))
    w.do("PUT", "/bkt")
    w.do("PUT", "/bkt/empty", body=b"")
    for name, size in SIZES.items():
        w.see(*(get(f"/bkt/{kind}-{name}") for kind in ("form", "copy", "sealed")))
        w.see(*(get(f"/bkt/{kind}-{name}", "", key) for kind, key in (("mine", mine), ("other", other))))
        form = Form(Wire(w.recording.store), {"key": f"form-{name}", "x-amz-meta-v": "1"}).parts(body(12, size))
        w.do("POST", "/bkt", "", {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}, encoded(form), keys=())
        w.do("PUT", f"/bkt/copy-{name}", "", {"x-amz-copy-source": f"/bkt/form-{name}"})
        replace = {"x-amz-metadata-directive": "REPLACE", "x-amz-meta-v": "2"}
        w.do("PUT", f"/bkt/copy-{name}", "", replace | {"x-amz-copy-source": f"/bkt/copy-{name}"})
        w.do("PUT", f"/bkt/sealed-{name}", "", SEALED, body(13, size))
        w.do("PUT", f"/bkt/sealed-{name}", "", SEALED | {"x-amz-copy-source": f"/bkt/copy-{name}"})
        w.do("PUT", f"/bkt/mine-{name}", "", mine, body(14, size))
        w.do("PUT", f"/bkt/other-{name}", "", other | key_headers(KEY, SOURCE) | {"x-amz-copy-source": f"/bkt/mine-{name}"})
        w.do("DELETE", f"/bkt/form-{name}")
    w.see(get("/bkt/parts-sealed"), get("/bkt/parts-mine", "", mine))
    upload(w, "/bkt/parts-sealed", SEALED, "/bkt/mine-large", key_headers(KEY, SOURCE))
    upload(w, "/bkt/parts-mine", mine, "/bkt/sealed-large")
    keys = "".join(f"<Object><Key>{key}</Key></Object>" for key in ("copy-small", "copy-large", "sealed-large"))
    w.do("POST", "/bkt", "delete=", body=f"<Delete>{keys}</Delete>".encode())


def master_key(w, _folder):
    """The operator changes the master key, with which the store encrypts its keys."""
    path = w.recording.store.root / "master-key"
    w.see(get("/bkt/sealed-small"), get("/bkt/parts-sealed"))
    w.recording.store.stop().ok()
    w.recording.script(WRITE, path, "ab" * 32 + "\n" + path.read_text())
    w.recording.store.start()
    w.do("PUT", "/bkt/sealed-small", "", SEALED, b"with the other key")


def iam(action, keys=None, service="iam", **parameters):
    form = urllib.parse.urlencode({"Action": action, **parameters}).encode()
    return ("POST", "/", "", {"content-type": "application/x-www-form-urlencoded"}, form), {"keys": keys, "service": service}


def identities(w, _folder):
    def see(*names, **parameters):
        for name in names:
            request, more = iam(name, **parameters)
            w.see(Request(*request, **more))

    def do(name, **parameters):
        request, more = iam(name, **parameters)
        return w.do(*request, **more)

    def keys_of(reply, *names):
        return tuple(member(reply, name) for name in ("AccessKeyId", "SecretAccessKey", *names))

    read = policy("s3:GetObject")
    arn, builtin = "arn:aws:iam::000000000000:policy/own", "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"
    see("ListUsers", "ListGroups", "ListRoles", "ListPolicies", "GetAccountSummary")
    see("GetUser", "ListAccessKeys", "ListUserPolicies", "ListAttachedUserPolicies", "ListGroupsForUser", UserName="jo")
    see("GetUserPolicy", UserName="jo", PolicyName="p")
    see("GetGroup", "ListGroupPolicies", "ListAttachedGroupPolicies", GroupName="g")
    see("ListPolicyVersions", PolicyArn=arn)
    see("GetRole", "ListRolePolicies", "ListAttachedRolePolicies", RoleName="r")
    do("CreateUser", UserName="jo")
    jo = keys_of(do("CreateAccessKey", UserName="jo"))
    w.see(get("/bkt/empty", keys=jo))
    do("PutUserPolicy", UserName="jo", PolicyName="p", PolicyDocument=read)
    do("AttachUserPolicy", UserName="jo", PolicyArn=builtin)
    do("CreateGroup", GroupName="g")
    do("PutGroupPolicy", GroupName="g", PolicyName="p", PolicyDocument=read)
    do("AddUserToGroup", GroupName="g", UserName="jo")
    do("CreatePolicy", PolicyName="own", PolicyDocument=read)
    do("CreatePolicyVersion", PolicyArn=arn, PolicyDocument=policy("s3:ListBucket"), SetAsDefault="true")
    do("SetDefaultPolicyVersion", PolicyArn=arn, VersionId="v1")
    do("DeletePolicyVersion", PolicyArn=arn, VersionId="v2")
    do("AttachGroupPolicy", GroupName="g", PolicyArn=arn)
    trust = json.dumps({"Statement": {"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::000000000000:root"}, "Action": "sts:AssumeRole"}})
    do("CreateRole", RoleName="r", AssumeRolePolicyDocument=trust)
    do("PutRolePolicy", RoleName="r", PolicyName="p", PolicyDocument=read)
    do("AttachRolePolicy", RoleName="r", PolicyArn=builtin)
    session(w, jo)
    do("UpdateRole", RoleName="r", Description="d")
    do("UpdateAssumeRolePolicy", RoleName="r", PolicyDocument=trust.replace("Allow", "Deny"))
    do("DetachRolePolicy", RoleName="r", PolicyArn=builtin)
    do("DeleteRolePolicy", RoleName="r", PolicyName="p")
    do("DeleteRole", RoleName="r")
    do("UpdateAccessKey", UserName="jo", AccessKeyId=jo[0], Status="Inactive")
    do("UpdateAccessKey", UserName="jo", AccessKeyId=jo[0], Status="Active")
    do("DetachUserPolicy", UserName="jo", PolicyArn=builtin)
    do("DeleteUserPolicy", UserName="jo", PolicyName="p")
    do("RemoveUserFromGroup", GroupName="g", UserName="jo")
    do("DeleteGroupPolicy", GroupName="g", PolicyName="p")
    do("DetachGroupPolicy", GroupName="g", PolicyArn=arn)
    do("DeletePolicy", PolicyArn=arn)
    do("UpdateGroup", GroupName="g", NewGroupName="h")
    do("DeleteGroup", GroupName="h")
    do("DeleteAccessKey", UserName="jo", AccessKeyId=jo[0])
    do("UpdateUser", UserName="jo", NewUserName="joe")
    do("CreateUser", UserName="jim")
    do("DeleteUser", UserName="jim")


def session(w, jo):
    """The view that shows temporary keys is a request that uses the keys."""
    for keys, name, parameters in (
        (jo, "GetSessionToken", {}),
        (None, "AssumeRole", {"RoleArn": "arn:aws:iam::000000000000:role/r", "RoleSessionName": "work"}),
    ):
        request, more = iam(name, keys, "sts", **parameters)
        reply = Request(*request, **more).send(w.recording.store).decode()
        found = [re.search(f"<{name}>([^<]*)<", reply).group(1) for name in ("AccessKeyId", "SecretAccessKey", "SessionToken")]
        w.last = re.search("(?i)x-amz-request-id: (.*)\r", reply).group(1)
        w.see(get("/bkt/empty", keys=tuple(found)))


def accounts(w, folder):
    """The accounts come from the file of the operator, which is read at the start."""
    path = folder / "accounts.json"
    path.write_text(json.dumps([ACCOUNT]))
    theirs = ACCOUNT["access_key_id"], ACCOUNT["secret_access_key"]
    w.see(get("/", keys=theirs))
    restart(w, True, "--accounts", path)
    w.happened("-")
    w.do("PUT", "/theirs", keys=theirs)


def events(w, folder):
    """Events of webhooks and of replication; no destination replies."""
    store = w.recording.store
    w.see(Events(), *(get("/evt", f"{name}=") for name in ("versioning", "notification", "replication", "versions")), get("/evt/k"))
    w.do("PUT", "/evt")
    store.stop().ok()
    w.recording.script(WRITE, store.root / "webhooks", "ci http://127.0.0.1:1/ t0ken\n")
    nowhere = {"name": "copy", "endpoint": "http://127.0.0.1:1", "access_key_id": "a", "secret_access_key": "s"}
    store.options += ["--replication", write_targets(folder / "targets", nowhere)]
    store.start()
    w.do("PUT", "/evt", "versioning=", body=versioning("Enabled"))
    w.do("PUT", "/evt", "notification=", body=NOTIFICATION.encode(), steps=True)  # the test event, then the rules
    w.do("PUT", "/evt", "replication=", body=REPLICATION.encode())
    w.do("DELETE", "/evt", "replication=")  # before an event waits, because this request drops waiting events
    w.do("PUT", "/evt", "replication=", body=REPLICATION.encode())
    for size in SIZES.values():
        w.do("PUT", "/evt/k", body=body(15, size))
    w.do("PUT", "/evt/k", "tagging=", body=TAGGING.encode())
    w.do("DELETE", "/evt/k")
    w.do("PUT", "/evt", "notification=", body=b"<NotificationConfiguration/>")


def archive(w, folder):
    """`penstock store import` of a bucket and a user that were there before."""
    store, path, penstock = w.recording.store, folder / "archive.tar", w.recording.store.penstock
    w.see(*(get("/imp", f"{name}=") for name in ("versioning", "versions", "tagging")), get("/imp/small"), get("/imp/large"))
    request, more = iam("ListUsers")
    w.see(Request(*request, **more))
    w.do("PUT", "/imp")
    w.do("PUT", "/imp", "versioning=", body=versioning("Enabled"))
    w.do("PUT", "/imp", "tagging=", body=TAGGING.encode())
    made = [(name, w.do("PUT", f"/imp/{name}", "", SEALED, body(16, size))) for name, size in SIZES.items()]
    made += [("small", w.do("PUT", "/imp/small", body=body(17, 10))), ("large", w.do("DELETE", "/imp/large"))]
    penstock.run("store", "export", "--root", store.root, "--with-accounts", path, "imp", env={"LD_PRELOAD": None}).ok()
    gone = "".join(f"<Object><Key>{name}</Key><VersionId>{reply.headers['x-amz-version-id']}</VersionId></Object>" for name, reply in made)
    w.do("POST", "/imp", "delete=", body=f"<Delete>{gone}</Delete>".encode())
    w.do("DELETE", "/imp")
    request, more = iam("DeleteUser", UserName="joe")
    w.do(*request, **more)
    store.kill()
    process = penstock.popen("store", "import", "--root", store.root, "--with-accounts", path)
    process.wait().ok()
    store.start()
    w.happened(f"exit-{process.pid}", steps=True)
    w.do("PUT", "/imp/small", body=b"after the import")


def expiry(w, _folder):
    """Lifecycle rules delete objects, versions, a marker and an upload; a day is 100 ms. Each view
    changes once, and the views change one after the other."""
    w.see(*(get("/exp", query) for query in ("list-type=2&prefix=k", "list-type=2&prefix=g", "versioning=", "lifecycle=")))
    w.see(get("/exp", "list-type=2&prefix=c"), get("/exp", "uploads="))
    ends = w.recording.views[-2:]
    w.do("PUT", "/exp")
    w.do("PUT", "/exp/c", body=body(18, SIZES["large"]))
    w.do("PUT", "/exp", "versioning=", body=versioning("Enabled"))
    old = version_of(w.do("PUT", "/exp/k", body=body(19, SIZES["large"])))
    w.do("PUT", "/exp/k", body=body(19, SIZES["small"]))
    gone = version_of(w.do("PUT", "/exp/g", body=body(20, SIZES["small"])))
    marker = version_of(w.do("DELETE", "/exp/g"))
    which = "uploadId=" + member(w.do("POST", "/exp/u", "uploads="), "UploadId")
    Request("PUT", "/exp/u", f"partNumber=1&{which}", body=body(21, SIZES["large"])).send(w.recording.store)
    w.see(get("/exp/k", old), get("/exp/g", gone), get("/exp/g", marker))
    ends += w.recording.views[-3:]
    before = [view.digest(w.recording.store) for view in ends]
    restart(w, True, "--lifecycle-day", "100ms")
    rule = "<Rule><ID>{0}</ID><Status>Enabled</Status><Filter><Prefix>{0}</Prefix></Filter>{1}</Rule>"
    noncurrent = "<NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays></NoncurrentVersionExpiration>"
    markers = "<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>"
    unfinished = "<AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation></AbortIncompleteMultipartUpload>"
    ending = {"c": "<Expiration><Days>1</Days></Expiration>", "k": noncurrent, "g": noncurrent + markers, "u": unfinished}
    rules = "".join(rule.format(prefix, action) for prefix, action in ending.items())
    document = f"<LifecycleConfiguration>{rules}</LifecycleConfiguration>".encode()
    assert b" 200 OK" in Request("PUT", "/exp", "lifecycle=", body=document).send(w.recording.store)
    wait_for(lambda: all(view.digest(w.recording.store) != was for view, was in zip(ends, before)), 30, "the end of all that expires")
    w.happened("-", steps=True)
    w.do("DELETE", "/exp", "lifecycle=")


# --- the tests


def record(penstock, folder, durability=None):
    recording = Recording(penstock, folder, durability)
    w = Witness(recording)
    for make in (upgrade, configurations, versions, lock, objects, master_key, identities, accounts, events, archive, expiry):
        make(w, folder)
        w.subject()
        if make in (configurations, objects, events):
            recording.restart(kill=True)
    recording.finish()
    return recording


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("changes")
    penstock = Penstock(folder / "p")
    recording = record(penstock, folder)
    yield recording
    penstock.close()


def test_every_change_that_was_acknowledged_is_there_after_a_power_loss(recorded):
    """The replay loses, at each sync, all bytes that were not synced before."""
    code, output = recorded.replay("--short", "--upkeep", "--disk", recorded.disk)

    assert code == 0, output
    print(output)


def test_every_operation_that_changes_something_is_recorded(recorded):
    """A new operation that changes the store must be added to one of the functions above."""
    routes = re.findall(r'\{(BUCKET|OBJECT), "(PUT|POST|DELETE)", (?:"(.+?)"|NULL)', (TOP / "src/server/route.c").read_text())
    actions = re.findall(r'\{"((?!Get|List|AssumeRole)\w+)", \w+', (TOP / "src/server/iam/actions.c").read_text())

    done = set()
    for request in recorded.requests:
        query = re.sub(r"(versionId|partNumber)=\w+&?", "", request.query)
        done.add(("OBJECT" if request.path.count("/") > 1 else "BUCKET", request.method, query.partition("=")[0]))
        done |= set(re.findall(r"^Action=(\w+)", request.body.decode(errors="replace")))

    assert len(routes) > 30 and len(actions) > 30
    assert [name for name in routes + actions if name not in done] == []


@pytest.mark.parametrize("syncs", ["data", "wal"])
def test_the_replay_finds_changes_that_are_not_synced(recorded, syncs):
    code, output = recorded.replay("--short", "--ignore", syncs)

    assert code == 1 and "unsynced changes" in output, output


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_no_power_loss_leaves_a_change_by_half(recorded):
    """The replay loses unsynced changes in part and out of order, also at points between the
    syncs."""
    code, output = recorded.replay("--upkeep", "--draws", 4, "--every", 25)

    assert code == 0, output
    print(output)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_relaxed_durability_undoes_whole_changes(penstock, tmp_path):
    recording = record(penstock, tmp_path, "relaxed")

    code, output = recording.replay("--upkeep", "--relaxed", "--every", 25, "--disk", recording.disk)

    assert code == 0, output
    print(output)

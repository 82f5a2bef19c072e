"""A store that is killed again and again while clients change objects, versions, tags, locks and
uploads, and a lifecycle rule deletes objects.

Each client owns its keys, so it knows their contents. A change whose reply was lost has happened as a whole or not at all,
which the next read shows; every acknowledged change is present.
"""
import hashlib
import itertools
import random
import threading
import time
from collections import namedtuple
from datetime import datetime, timedelta, timezone

import pytest
import urllib3.exceptions
from botocore.exceptions import BotoCoreError, ClientError

from harness.program import Store
from harness.waiting import wait_for

MIB = 1024 * 1024
SIZES = [0, 3000, 20_000, 300_000]  # bytes; stored in the database, in a file, and in several pieces
OWNERS, KEYS, VERSIONS = 4, 3, 4
PATIENCE_S = 120
UNTIL = datetime.now(timezone.utc).replace(microsecond=0) + timedelta(days=2)
RULES = [
    {
        "ID": "old",
        "Status": "Enabled",
        "Filter": {"Prefix": "old/"},
        "Expiration": {"Days": 1},
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
    },
]

Content = namedtuple("Content", "digest tags")
# The digest is None for a delete marker; the id is None if the reply was lost.
Version = namedtuple("Version", "id digest tags held")


class Lost(Exception):
    """Raised if the reply to a request was lost."""


class World:
    """The store, its client, and the moments at which it is up."""

    def __init__(self, store):
        self.store = store
        self.s3 = store.boto3(retries={"total_max_attempts": 1}, max_pool_connections=2 * OWNERS, read_timeout=PATIENCE_S)
        self.up, self.done = threading.Event(), threading.Event()
        self.up.set()
        self.failures = []
        self.lost = itertools.count()

    def once(self, name, **arguments):
        """Sends a request once, and returns the reply. Raises Lost if the store was killed before
        the reply."""
        try:
            reply = getattr(self.s3, name)(**arguments)
            if "Body" in reply:
                reply["Body"] = reply["Body"].read()
            return reply
        except (BotoCoreError, urllib3.exceptions.HTTPError, OSError) as error:
            next(self.lost)
            raise Lost from error

    def sure(self, name, **arguments):
        """Repeats once() until there is a reply."""
        while True:
            assert self.up.wait(PATIENCE_S)
            try:
                return self.once(name, **arguments)
            except Lost:
                continue

    def kill(self):
        self.up.clear()
        address = self.store.address
        self.store.kill()
        self.store.start(address)
        self.up.set()


def code_of(call):
    """The error code of a request, or None."""
    try:
        call()
    except ClientError as error:
        return error.response["Error"]["Code"]
    return None


def tag_set(tags):
    return [{"Key": key, "Value": value} for key, value in tags]


def tags_of(reply):
    return tuple(sorted((tag["Key"], tag["Value"]) for tag in reply["TagSet"]))


class Owner:
    """A client with keys in both buckets."""

    def __init__(self, world, number):
        self.world, self.name, self.random = world, f"owner-{number}", random.Random(number)
        self.objects = {f"{self.name}/{i}": None for i in range(KEYS)}  # in "plain"
        self.versions = {f"{self.name}/{i}": [] for i in range(KEYS)}  # versions of the keys in "locked", oldest first
        self.old = {}  # {key of "plain" that the rule deletes: digest}
        self.count = 0

    def new_body(self, size=None):
        self.count += 1
        size = self.random.choice(SIZES) if size is None else size
        body = f"{self.name} {self.count}\n".encode().ljust(size, b"%c" % (65 + self.count % 26))
        return body, hashlib.md5(body).hexdigest()

    def new_tags(self):
        return tuple(sorted((f"k{i}", str(self.count)) for i in range(self.random.randrange(3))))

    # ---- objects ----

    def look(self, key, bucket="plain", **version):
        try:
            reply = self.world.sure("get_object", Bucket=bucket, Key=key, **version)
        except ClientError as error:
            assert error.response["Error"]["Code"] in ("NoSuchKey", "NoSuchVersion"), error
            return None
        digest = hashlib.md5(reply["Body"]).hexdigest()
        assert "-" in reply["ETag"] or reply["ETag"] == f'"{digest}"', (key, reply["ETag"], digest)
        return Content(digest, tags_of(self.world.sure("get_object_tagging", Bucket=bucket, Key=key, **version)))

    def change(self, key, after, name, **arguments):
        """Sends a change after which the key has the state `after`. Returns True if the change
        happened."""
        before = self.objects[key]
        try:
            self.world.once(name, Bucket="plain", Key=key, **arguments)
            self.objects[key] = after
        except Lost:
            seen = self.look(key)
            assert seen in (before, after), (key, name, before, after, seen)
            self.objects[key] = seen
        return self.objects[key] == after

    def put(self, key):
        body, digest = self.new_body()
        tags = self.new_tags()
        tagging = "&".join("=".join(tag) for tag in tags)
        self.change(key, Content(digest, tags), "put_object", Body=body, Tagging=tagging)

    def delete(self, key):
        self.change(key, None, "delete_object")

    def tag(self, key):
        tags = self.new_tags()
        if self.objects[key]:
            self.change(key, Content(self.objects[key].digest, tags), "put_object_tagging", Tagging={"TagSet": tag_set(tags)})

    def copy(self, key):
        source = self.random.choice(list(self.objects))
        if self.objects[source] and source != key:
            self.change(key, self.objects[source], "copy_object", CopySource={"Bucket": "plain", "Key": source})

    def send_parts(self, key):
        target = {"Bucket": "plain", "Key": key}
        parts, bodies = [], [self.new_body(5 * MIB)[0], self.new_body(1000)[0]][self.random.randrange(2) :]
        upload = self.world.sure("create_multipart_upload", **target)["UploadId"]
        for number, body in enumerate(bodies, 1):
            reply = self.world.sure("upload_part", **target, UploadId=upload, PartNumber=number, Body=body)
            parts.append({"PartNumber": number, "ETag": reply["ETag"]})
        after = Content(hashlib.md5(b"".join(bodies)).hexdigest(), ())
        complete = {"UploadId": upload, "MultipartUpload": {"Parts": parts}}
        if self.random.randrange(5) == 0:
            # An abort whose reply was lost is repeated, although the first attempt may have
            # succeeded.
            assert code_of(lambda: self.world.sure("abort_multipart_upload", **target, UploadId=upload)) in (None, "NoSuchUpload")
            assert code_of(lambda: self.world.sure("complete_multipart_upload", **target, **complete)) == "NoSuchUpload"
            return
        # An upload that was not completed still has its parts.
        while not self.change(key, after, "complete_multipart_upload", **complete):
            pass

    def put_old(self, _key):
        body, digest = self.new_body()
        key = f"old/{self.name}/{self.count}"
        self.old[key] = digest
        self.world.sure("put_object", Bucket="plain", Key=key, Body=body)
        seen = self.look_old(key)
        assert seen in (None, digest), (key, digest, seen)

    def look_old(self, key):
        try:
            return hashlib.md5(self.world.sure("get_object", Bucket="plain", Key=key)["Body"]).hexdigest()
        except ClientError as error:
            assert error.response["Error"]["Code"] == "NoSuchKey", error
            return None

    # ---- versions ----

    def look_at_versions(self, key):
        listing = self.world.sure("list_object_versions", Bucket="locked", Prefix=key)
        found = []
        for entry in listing.get("Versions", []):
            which = {"Bucket": "locked", "Key": key, "VersionId": entry["VersionId"]}
            content = self.look(key, "locked", VersionId=entry["VersionId"])
            held = False
            if code_of(lambda which=which: self.world.sure("get_object_legal_hold", **which)) is None:
                held = self.world.sure("get_object_legal_hold", **which)["LegalHold"]["Status"] == "ON"
            assert content and entry["ETag"] == f'"{content.digest}"', (key, entry, content)
            found.append((entry["LastModified"], Version(entry["VersionId"], content.digest, content.tags, held), entry["IsLatest"]))
        for entry in listing.get("DeleteMarkers", []):
            found.append((entry["LastModified"], Version(entry["VersionId"], None, (), False), entry["IsLatest"]))
        assert sum(latest for _, _, latest in found) == bool(found)
        return found

    @staticmethod
    def same(found, expected):
        """Returns True if the listed versions are the expected ones, and the last expected version
        is the latest."""
        by_id = {version.id: version for _, version, _ in found}
        latest = next((version.id for _, version, is_latest in found if is_latest), None)
        known = {version.id: version for version in expected if version.id}
        new = [version for key, version in by_id.items() if key not in known]
        unknown = [version for version in expected if not version.id]
        if len(by_id) != len(expected) or any(by_id.get(key) != version for key, version in known.items()):
            return False
        if [version._replace(id=None) for version in new] != unknown:
            return False
        return not expected or latest == (expected[-1].id or new[0].id)

    def change_versions(self, key, after, name, **arguments):
        """Changes the versions of a key, like change(). A new version is the last of `after`,
        without an id."""
        before = self.versions[key]
        try:
            reply = self.world.once(name, Bucket="locked", Key=key, **arguments)
            self.versions[key] = [version if version.id else version._replace(id=reply["VersionId"]) for version in after]
        except Lost:
            found = self.look_at_versions(key)
            happened = self.same(found, after)
            assert happened or self.same(found, before), (key, name, before, after, found)
            known = {version.id for version in before}
            new = [version.id for _, version, _ in found if version.id not in known]
            self.versions[key] = [version if version.id else version._replace(id=new[0]) for version in after] if happened else before

    def put_version(self, key):
        body, digest = self.new_body()
        if len(self.versions[key]) < VERSIONS:
            self.change_versions(key, [*self.versions[key], Version(None, digest, (), False)], "put_object", Body=body)

    def put_marker(self, key):
        if len(self.versions[key]) < VERSIONS:
            self.change_versions(key, [*self.versions[key], Version(None, None, (), False)], "delete_object")

    def delete_version(self, key):
        if not self.versions[key]:
            return
        version = self.random.choice(self.versions[key])
        if version.held:
            which = {"Bucket": "locked", "Key": key, "VersionId": version.id, "BypassGovernanceRetention": True}
            assert code_of(lambda: self.world.sure("delete_object", **which)) == "AccessDenied"
            return
        after = [other for other in self.versions[key] if other.id != version.id]
        self.change_versions(key, after, "delete_object", VersionId=version.id, BypassGovernanceRetention=True)

    def replace_version(self, key, name, make, **arguments):
        contents = [version for version in self.versions[key] if version.digest]
        if contents:
            version = self.random.choice(contents)
            after = [make(other) if other.id == version.id else other for other in self.versions[key]]
            self.change_versions(key, after, name, VersionId=version.id, **arguments)

    def hold(self, key):
        held = bool(self.random.randrange(2))
        legal = {"Status": "ON" if held else "OFF"}
        self.replace_version(key, "put_object_legal_hold", lambda version: version._replace(held=held), LegalHold=legal)

    def tag_version(self, key):
        tags = self.new_tags()
        tagging = {"TagSet": tag_set(tags)}
        self.replace_version(key, "put_object_tagging", lambda version: version._replace(tags=tags), Tagging=tagging)

    def retain(self, key):
        retention = {"Mode": "GOVERNANCE", "RetainUntilDate": UNTIL}
        self.replace_version(key, "put_object_retention", lambda version: version, Retention=retention)

    # ---- all ----

    def run(self):
        try:
            while not self.world.done.is_set() and not self.world.failures:
                number = self.random.randrange(KEYS)
                act = self.random.choice(
                    [self.put, self.put, self.delete, self.tag, self.copy, self.send_parts, self.put_old,
                     self.put_version, self.put_version, self.put_marker, self.delete_version, self.hold, self.tag_version, self.retain]
                )  # fmt: skip
                act(f"{self.name}/{number}")
        except BaseException as error:  # noqa: B902
            self.world.failures.append(error)

    def check(self):
        for key, content in self.objects.items():
            assert self.look(key) == content, key
        for key, versions in self.versions.items():
            found = self.look_at_versions(key)
            assert self.same(found, versions), (key, versions, found)
        wait_for(lambda: not any(self.look_old(key) for key in self.old), what="the rule deletes all of old/")


def campaign(penstock, root, kills):
    store = Store(penstock, root, options=["--lifecycle-day", "300ms"])
    world = World(store)
    world.sure("create_bucket", Bucket="plain")
    world.sure("create_bucket", Bucket="locked", ObjectLockEnabledForBucket=True)
    world.sure("put_bucket_lifecycle_configuration", Bucket="plain", LifecycleConfiguration={"Rules": RULES})
    owners = [Owner(world, number) for number in range(OWNERS)]
    threads = [threading.Thread(target=owner.run) for owner in owners]
    moments = random.Random(1)
    for thread in threads:
        thread.start()
    for _ in range(kills):
        # A random moment is intended here: the test waits for no condition.
        time.sleep(moments.uniform(0.05, 0.9))
        if world.failures:
            break
        world.kill()
    world.done.set()
    for thread in threads:
        thread.join()
    if world.failures:
        raise world.failures[0]
    for owner in owners:
        owner.check()
    store.stop().ok()
    penstock.run("store", "check", "--root", root).ok()
    penstock.run("store", "scrub", "--root", root).ok()
    changes, lost = sum(owner.count for owner in owners), next(world.lost)
    print(f"{kills} kills, {changes} bodies written, {lost} replies lost")
    assert lost >= kills / 2, "too few kills came during a request"


@pytest.mark.long
def test_no_kill_loses_a_change_or_leaves_a_half(penstock, tmp_path):
    campaign(penstock, tmp_path / "store", kills=60)


@pytest.mark.soak
def test_a_thousand_kills_lose_no_change_and_leave_no_half(penstock, tmp_path):
    campaign(penstock, tmp_path / "store", kills=1000)

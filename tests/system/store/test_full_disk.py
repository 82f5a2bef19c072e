"""A full disk at every place where the store writes: the reply is 507, the old object stays whole,
and the store continues once there is room.

The recorder of tests/support/power makes the writes, syncs and creations of one kind of file fail inside the running store.
"""
import contextlib
import errno
import os
import re
import subprocess

import pytest

from harness.power import CREATE, DATA, DATABASE, DIRECTORY, SYNC, WAL, WRITE, Faults, body
from harness.program import Store
from harness.s3_wire import Wire
from harness.waiting import wait_for

INLINE, FILE = 3000, 150_000
PLACES = {
    "body at once": (WRITE, DATA, 0),
    "body half way": (WRITE, DATA, 70_001),
    "new file": (CREATE, DIRECTORY, 0),
    "sync of the body": (SYNC, DATA, 0),
    "sync of the directory": (SYNC, DIRECTORY, 0),
    "database at once": (WRITE, WAL, 0),
    "database half way": (WRITE, WAL, 4100),
    "sync of the database": (SYNC, WAL, 0),
}
IN_DATABASE = [name for name in PLACES if "database" in name]


@pytest.fixture
def disk(penstock, tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    return Faults(penstock, folder)


@pytest.fixture
def wire(disk, penstock, tmp_path):
    store = Store(penstock, tmp_path / "disk" / "store")
    wire = Wire(store)
    wire.store = store
    assert wire.send("PUT", "/bkt").status == 200
    assert wire.send("PUT", "/bkt/small", body=body(1, INLINE)).status == 200
    assert wire.send("PUT", "/bkt/large", body=body(2, FILE)).status == 200
    wire.upload = re.search(rb"<UploadId>(\w+)<", wire.send("POST", "/bkt/parts", "uploads=").body).group(1).decode()
    assert part(wire, 1, body(3, FILE)).status == 200
    yield wire
    disk.clear()
    store.stop().ok()


def part(wire, number, data):
    return wire.send("PUT", "/bkt/parts", f"partNumber={number}&uploadId={wire.upload}", body=data)


def complete(wire):
    etag = re.search(rb"<ETag>(?:&quot;|\")?([^&\"<]+)", wire.send("GET", "/bkt/parts", f"uploadId={wire.upload}").body).group(1)
    xml = b"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>%s</ETag></Part></CompleteMultipartUpload>" % etag
    return wire.send("POST", "/bkt/parts", f"uploadId={wire.upload}", body=xml)


def contents(wire):
    """Returns the objects of a listing: every name with its bytes."""
    keys = re.findall(rb"<Key>([^<]+)</Key>", wire.send("GET", "/bkt").body)
    return {key.decode(): wire.send("GET", "/bkt/" + key.decode()).body for key in keys}


def restart(wire):
    wire.store.stop().ok()
    wire.store.start()
    wire.port = int(wire.store.address.rsplit(":", 1)[1])


def data_files(wire):
    return sorted(path.name for path in (wire.store.root / "data").glob("*/*"))


def changes(wire):
    """Yields ("file", change) for changes that write a file, and ("row", change) for changes that
    write only the database."""
    yield "file", lambda: wire.send("PUT", "/bkt/large", body=body(10, FILE + 1))
    yield "file", lambda: wire.send("PUT", "/bkt/new", body=body(11, FILE))
    yield "file", lambda: part(wire, 1, body(12, FILE))
    yield "row", lambda: wire.send("PUT", "/bkt/small", body=body(13, INLINE))
    yield "row", lambda: wire.send("PUT", "/bkt/copy", headers={"x-amz-copy-source": "bkt/large"})
    yield "row", lambda: wire.send("POST", "/bkt/other", "uploads=")
    yield "row", lambda: wire.send("PUT", "/another")
    yield "row", lambda: wire.send("DELETE", "/bkt/small")
    yield "row", lambda: wire.send("POST", "/bkt", "delete=", body=b"<Delete><Object><Key>large</Key></Object></Delete>")
    yield "row", lambda: complete(wire)


FULL = [(place, errno.ENOSPC) for place in PLACES]
QUOTA = [(place, errno.EDQUOT) for place in ("body half way", "database half way", "sync of the database")]


@pytest.mark.parametrize("place, error", FULL + QUOTA)
def test_a_full_disk_is_said_and_changes_nothing(wire, disk, place, error):
    ops, classes, allowed = PLACES[place]
    before, files = contents(wire), data_files(wire)

    for kind, change in changes(wire):
        if kind == "row" and place not in IN_DATABASE:
            continue
        disk.set(ops, classes, error, allowed)
        reply = change()
        assert disk.hits, kind
        assert (reply.status, reply.code) == (507, "StorageFull"), (reply.status, reply.body)
        disk.clear()
        assert contents(wire) == before
    # After a failed sync, the change may still reappear after a crash. Therefore its files stay
    # until the next change has been written.
    assert wire.send("PUT", "/bkt/small", body=body(1, INLINE)).status == 200
    wait_for(lambda: data_files(wire) == files, 60, "the files of refused bodies to be gone")

    replies = [change().status for _, change in changes(wire)]
    assert replies == [200, 200, 200, 200, 200, 200, 200, 204, 200, 200]
    after = {"copy": body(10, FILE + 1), "new": body(11, FILE), "parts": body(12, FILE)}
    assert contents(wire) == after
    restart(wire)
    assert contents(wire) == after


def test_a_disk_that_is_broken_is_an_internal_error_with_its_cause_in_the_log(wire, disk):
    before = contents(wire)

    for place in ("sync of the body", "sync of the database"):
        ops, classes, _ = PLACES[place]
        disk.set(ops, classes, errno.EIO)
        reply = wire.send("PUT", "/bkt/large", body=body(20, FILE))
        assert (reply.status, reply.code) == (500, "InternalError")
        disk.clear()
        assert contents(wire) == before
    for cause in ("Input/output error", "disk I/O error"):
        wait_for(lambda: cause in wire.store.process.err, 60, f"{cause} in the log")
    assert wire.send("PUT", "/bkt/large", body=body(20, FILE)).status == 200


def test_a_log_that_cannot_be_copied_into_the_database_stays(wire, disk):
    before = contents(wire)

    disk.set(WRITE | SYNC, DATABASE, errno.ENOSPC)
    wire.store.stop().ok()
    assert disk.hits
    disk.clear()
    wire.store.start()
    wire.port = int(wire.store.address.rsplit(":", 1)[1])

    assert contents(wire) == before


@pytest.fixture
def small(tmp_path):
    """A file system of 64 MiB, of which the store leaves 20 MiB to deletions."""
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("this user may not mount a file system")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.parametrize("durability", ["full", "relaxed"])
def test_a_client_may_write_what_it_has_just_deleted(penstock, small, durability):
    store = Store(penstock, small / "store", durability)
    wire = Wire(store)
    wire.send("PUT", "/bkt")
    for i in range(5):
        assert wire.send("PUT", "/bkt/large", body=bytes(40 << 20)).status == 200, i
        assert wire.send("DELETE", "/bkt/large").status == 204
    store.stop().ok()


@pytest.mark.parametrize("durability", ["full", "relaxed"])
def test_small_objects_that_fill_the_disk_can_be_deleted(penstock, small, durability):
    """Small bodies are in the database, whose log needs space for a deletion, too."""
    store = Store(penstock, small / "store", durability)
    wire = Wire(store)
    wire.send("PUT", "/bkt")
    assert wire.send("PUT", "/bkt/large", body=bytes(20 << 20)).status == 200
    wire.send("PUT", "/old")
    wire.send("PUT", "/old", "versioning=", body=b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>")
    version = wire.send("PUT", "/old/v", body=b"v").headers["x-amz-version-id"]
    number = 0
    while (reply := wire.send("PUT", f"/bkt/small-{number}", body=bytes(16_000))).status == 200:
        number += 1
    assert (reply.status, reply.code) == (507, "StorageFull") and number > 100
    assert wire.send("PUT", "/bkt/copy", headers={"x-amz-copy-source": "bkt/large"}).status == 507
    # A delete marker needs room.
    assert wire.send("DELETE", "/old/v").status == 507
    many = b"<Delete><Object><Key>v</Key></Object></Delete>"
    assert b"<Code>StorageFull</Code>" in wire.send("POST", "/old", "delete=", body=many).body
    assert wire.send("DELETE", "/old/v", f"versionId={version}").status == 204

    store.stop().ok()
    store.start()
    wire.port = int(store.address.rsplit(":", 1)[1])
    for i in range(number):
        assert wire.send("DELETE", f"/bkt/small-{i}").status == 204, i
    assert wire.send("DELETE", "/bkt/large").status == 204

    # The pages of the deleted bodies are used again.
    for i in range(number // 2):
        assert wire.send("PUT", f"/bkt/small-{i}", body=bytes(16_000)).status == 200, i
    store.stop().ok()


@pytest.mark.long
def test_a_full_disk_prevents_no_sync_point(penstock, small):
    """A relaxed store keeps the files of deleted objects until its next sync point, half a minute
    after a change. That sync point must need no space."""
    store = Store(penstock, small / "store", "relaxed")
    mark = store.root / "relaxed"
    wire = Wire(store)
    wire.send("PUT", "/bkt")
    assert wire.send("PUT", "/bkt/large", body=bytes(40 << 20)).status == 200
    for i in range(50):  # lets the database's log grow, so that it can be reused
        wire.send("PUT", f"/bkt/small-{i}", body=body(i, INLINE))
    before = mark.read_bytes()
    wait_for(lambda: mark.read_bytes() != before, 90)
    with open(small / "filler", "wb", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(bytes(4096))

    assert wire.send("DELETE", "/bkt/large").status == 204

    wait_for(lambda: os.statvfs(small).f_bavail * os.statvfs(small).f_frsize > 39 << 20, 90)
    assert wire.send("PUT", "/bkt/large", body=bytes(10 << 20)).status == 200
    store.stop().ok()

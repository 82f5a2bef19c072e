"""Continuous sync while files are written: which files are published, and when. There is one test
for each rule of the design."""
import os
import signal
import subprocess
import sys
import time

import pytest

from harness.sync_driver import Syncer
from harness.waiting import wait_for


@pytest.fixture
def syncs(penstock, store, tmp_path):
    """syncs(*options): starts one more sync of the same directory."""
    folder = tmp_path / "s"
    folder.mkdir()

    def make(*options, **keywords):
        return Syncer(penstock, store, folder, *options, **keywords)

    return make


def python(code, *arguments, **keywords):
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], **keywords)


# A closed file is soon published, whole, and the flush leaves nothing behind.
def test_a_closed_file_is_published(syncs):
    sync = syncs()

    (sync.out / "sub").mkdir()
    (sync.out / "sub" / "ckpt.pth").write_bytes(b"x" * 100_000)

    sync.wait_event("published", "sub/ckpt.pth")
    assert sync.object("sub/ckpt.pth") == b"x" * 100_000
    sync.flush()
    assert sync.status()["files_waiting"] == 0


# A file moved into place counts as closed; the temporary name is gone from the manifest.
def test_a_file_moved_into_place_is_published(syncs):
    sync = syncs()

    (sync.out / "ckpt.tmp").write_bytes(b"one")
    os.rename(sync.out / "ckpt.tmp", sync.out / "ckpt.pth")

    sync.wait_event("published", "ckpt.pth")
    sync.flush()
    assert sync.object("ckpt.pth") == b"one"
    assert list(sync.manifest()) == [b"ckpt.pth"]


# The kernel reports a close before it stops counting the writer. Here, a writer uses a link outside
# the output, whose close is not reported, so the file has a writer without any later event.
@pytest.mark.parametrize("fresh", [True, False])
def test_a_close_that_was_reported_too_early_is_not_missed(syncs, fresh):
    sync = syncs("--scan-ms", 600_000)
    late_s = 1
    while late_s > 0.3:  # the sync retries the lease for half a second
        aside, path = sync.folder / f"aside{time.monotonic()}", sync.out / f"ckpt{time.monotonic()}.pth"
        with open(aside, "wb") as writer:
            begun = time.monotonic()
            os.link(aside, path)
            if not fresh:
                path.write_bytes(b"first")
            writer.write(b"whole")
            time.sleep(0.1)
        late_s = time.monotonic() - begun

    sync.wait_event("published", path.name)
    assert sync.object(path.name) == b"whole"


# Half a file never appears under its name, even if the writer is slow.
def test_a_file_that_is_being_written_is_not_published(syncs):
    sync = syncs("--append-ms", 200)

    with open(sync.out / "ckpt.pth", "wb") as file:
        for _ in range(8):
            file.write(b"\0" * 65536)
            file.flush()
            time.sleep(0.15)
            assert not sync.has("ckpt.pth")

    sync.wait_event("published", "ckpt.pth")
    assert len(sync.object("ckpt.pth")) == 8 * 65536


# A log that is never closed appears under its name within seconds and grows. The records of a tracker are binary.
@pytest.mark.parametrize("name, line", [("train.log", b"one more step\n"), ("run-1.wandb", b"\0record"), ("events.out.tfevents.1.a", b"\0event")])
def test_a_log_that_stays_open_is_published_as_it_grows(syncs, name, line):
    sync = syncs("--append-ms", 300)

    with open(sync.out / name, "wb") as log:

        def grown_again():
            log.write(line)
            log.flush()
            return len(sync.events("grown", name)) >= 2

        wait_for(grown_again, 60, "the log to have grown twice", every_s=0.15)
        half = sync.object(name)
        log.write(b"the end\n")

    sync.wait_event("published", name)
    assert sync.object(name).startswith(half)
    assert sync.object(name).endswith(b"the end\n")


# If a file is rewritten in place and stays open, the last good object stays, and the current state
# goes to partial/.
def test_a_file_rewritten_in_place_goes_to_partial_until_it_is_closed(syncs):
    sync = syncs("--append-ms", 200)
    path = sync.out / "state.bin"
    path.write_bytes(b"\1" * 1000)
    sync.wait_event("published", "state.bin")

    with open(path, "r+b") as file:
        file.write(b"\2" * 500)
        file.flush()
        sync.wait_event("partial", "state.bin", deadline_s=60)
        assert sync.partial("state.bin") == b"\2" * 500 + b"\1" * 500
        assert sync.object("state.bin") == b"\1" * 1000

    sync.wait_event("published", "state.bin", count=2)
    assert sync.object("state.bin") == b"\2" * 500 + b"\1" * 500


KILLED = """
import sys, time
with open(sys.argv[1], "wb") as file:
    for _ in range(400):
        file.write(b"half" * 16384)
        file.flush()
        time.sleep(0.005)
"""


# If the writer is killed in the middle of a save, the kernel reports a close, but the last good
# object stays.
@pytest.mark.parametrize("reaped_at_once", [True, False])
def test_a_file_whose_writer_was_killed_is_suspect(syncs, reaped_at_once):
    sync = syncs()
    path = sync.out / "ckpt.pth"
    path.write_bytes(b"good" * 1000)
    sync.wait_event("published", "ckpt.pth")

    writer = python(KILLED, path)
    wait_for(lambda: path.stat().st_size > 200_000 and sync.watches(writer.pid), 60, "the save to be under way, and its writer seen")
    writer.kill()
    if reaped_at_once:
        writer.wait()
    sync.wait_event("partial", "ckpt.pth")
    writer.wait()
    sync.ended(True)
    sync.flush()

    assert sync.object("ckpt.pth") == b"good" * 1000
    assert sync.partial("ckpt.pth") == path.read_bytes()
    assert sync.status()["files_suspect"] == 1
    assert [entry["path"] for entry in sync.manifest_list("partial")] == ["ckpt.pth"]


# A process that a successful step leaves behind is killed. The sync has never seen this writer.
def test_a_file_whose_unseen_writer_is_killed_at_the_end_is_suspect(syncs):
    sync = syncs("--root-pid", 1 << 30)
    path = sync.out / "ckpt.pth"
    path.write_bytes(b"good" * 1000)
    sync.wait_event("published", "ckpt.pth")

    writer = python(KILLED, path)
    wait_for(lambda: path.stat().st_size > 200_000, 60, "the save to be under way")
    sync.ask("doomed")
    writer.kill()
    writer.wait()
    sync.ended(False)
    sync.flush()

    assert sync.object("ckpt.pth") == b"good" * 1000
    assert sync.partial("ckpt.pth") == path.read_bytes()
    path.write_bytes(b"again")
    sync.flush()
    assert sync.object("ckpt.pth") == b"again"


# Files that a task had closed before it was killed are good.
def test_a_file_closed_before_the_kill_is_published(syncs):
    sync = syncs()
    code = "import sys, time; open(sys.argv[1], 'wb').write(b'whole'); time.sleep(60)"

    writer = python(code, sync.out / "ckpt.pth")
    sync.wait_event("published", "ckpt.pth")
    writer.kill()
    writer.wait()
    sync.ended(True)
    sync.flush()

    assert sync.object("ckpt.pth") == b"whole"
    assert sync.status()["files_suspect"] == 0


# A writer that exits normally leaves complete files.
def test_a_file_closed_by_a_normal_exit_is_published(syncs):
    sync = syncs()
    code = "import os, sys, time; fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT); os.write(fd, b'done'); time.sleep(0.3); os._exit(0)"

    assert python(code, sync.out / "result").wait() == 0

    sync.wait_event("published", "result")
    assert sync.object("result") == b"done"


# A write through a mapping causes no event, and may not even change the file's time. The event is
# the close of the file when the mapping ends.
def test_a_file_changed_through_mmap_alone_is_published(syncs):
    sync = syncs("--scan-ms", 500)
    path = sync.out / "array.bin"
    path.write_bytes(b"\0" * 8192)
    sync.wait_event("published", "array.bin")
    code = """
import mmap, os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR)
m = mmap.mmap(fd, 8192)
os.close(fd)
m[100:104] = b"mmap"
sys.stdin.readline()
"""

    writer = python(code, path, stdin=subprocess.PIPE)
    wait_for(lambda: b"mmap" in path.read_bytes(), 60, "the store")
    time.sleep(1)
    assert b"mmap" not in sync.object("array.bin")
    writer.communicate(b"\n")

    wait_for(lambda: b"mmap" in sync.object("array.bin"), 60, "the change in the bucket")


# Within a directory the marker appears after its data, even if the data is large and the marker small.
def test_a_marker_appears_after_its_data(syncs):
    sync = syncs()

    for step in range(5):
        (sync.out / f"data{step}").write_bytes(os.urandom(8 << 20))
        (sync.out / f"done{step}").write_bytes(b"")
    sync.flush()

    order = [event["path"] for event in sync.events("published")]
    for step in range(5):
        assert order.index(f"data{step}") < order.index(f"done{step}")


# Every name that Linux allows arrives: unchanged if it is UTF-8, else percent-encoded.
def test_files_with_odd_names_are_published(syncs):
    sync = syncs()
    names = [b"new\nline", b"sp ace", b"%41", b"quote\"'", b"back\\slash", "Zürich 東京".encode(), b"-", b"bad\xff\xfe", b"tab\tname", b" "]

    for name in names:
        with open(os.path.join(os.fsencode(sync.out), name), "wb") as file:
            file.write(name)
    sync.flush()

    assert set(sync.manifest()) == set(names)
    for name in names:
        key = name.decode() if name != b"bad\xff\xfe" else "bad%FF%FE"
        assert sync.object(key) == name
    with open(os.path.join(os.fsencode(sync.out), b"bad\xff\xfe"), "ab") as file:
        file.write(b", again")
    sync.flush()
    assert sync.object("bad%FF%FE") == b"bad\xff\xfe, again"
    assert len(sync.events("warning", "bad%FF%FE")) == 1


# The manifest has links, empty directories, empty files, modes and times; pipes are named in a warning and left out.
def test_the_manifest_holds_what_objects_cannot(syncs):
    sync = syncs()
    (sync.out / "empty").mkdir(mode=0o700)
    (sync.out / "none").write_bytes(b"")
    (sync.out / "script").write_bytes(b"#!/bin/sh\n")
    os.chmod(sync.out / "script", 0o750)
    os.utime(sync.out / "script", ns=(5, 1234567890123456789))
    os.symlink("../elsewhere", sync.out / "link")
    os.mkfifo(sync.out / "pipe")

    sync.flush()

    manifest = sync.manifest()
    assert set(manifest) == {b"empty", b"none", b"script", b"link"}
    assert manifest[b"script"]["mode"] == 0o100750
    assert manifest[b"script"]["mtime_ns"] == 1234567890123456789
    assert manifest[b"link"]["link"] == "../elsewhere"
    assert manifest[b"empty"]["mode"] == 0o040700
    assert sync.paths() == ["none", "script"]
    assert any("pipe" in warning for warning in sync.warnings())


def test_a_renamed_directory_is_published_under_its_new_name(syncs):
    sync = syncs("--delete")
    (sync.out / "old" / "deep").mkdir(parents=True)
    (sync.out / "old" / "deep" / "file").write_bytes(b"content")
    sync.wait_event("published", "old/deep/file")

    os.rename(sync.out / "old", sync.out / "new")
    sync.wait_event("published", "new/deep/file")
    (sync.out / "new" / "deep" / "file").write_bytes(b"changed")
    sync.wait_event("published", "new/deep/file", count=2)
    sync.flush()

    assert sync.object("new/deep/file") == b"changed"
    assert sync.paths() == ["new/deep/file"]


# deleteSync deletes what this run published, and nothing else, least of all penstock's own state.
def test_delete_sync_deletes_only_what_this_run_published(syncs, store):
    store.client.create_bucket(Bucket=Syncer.BUCKET)
    store.client.put_object(Bucket=Syncer.BUCKET, Key="p/foreign", Body=b"theirs")
    store.client.put_object(Bucket=Syncer.BUCKET, Key="p/.penstock/runs/other/manifest.json", Body=b"{}")
    sync = syncs("--delete")
    (sync.out / "mine").write_bytes(b"1")
    (sync.out / "kept").write_bytes(b"2")
    sync.wait_event("published", "kept")
    sync.wait_event("published", "mine")

    (sync.out / "mine").unlink()
    sync.flush()

    assert sync.paths() == ["foreign", "kept"]
    assert "p/.penstock/runs/other/manifest.json" in store.keys(Syncer.BUCKET)
    assert sync.object("foreign") == b"theirs"


# Without deleteSync the object of a deleted file stays in the bucket, and the manifest marks it as deleted.
def test_without_delete_sync_nothing_is_deleted(syncs):
    sync = syncs()
    (sync.out / "old").write_bytes(b"1")
    sync.wait_event("published", "old")

    (sync.out / "old").unlink()
    sync.flush()

    assert sync.object("old") == b"1"
    assert sync.manifest()[b"old"]["deleted"]


# A foreign object is copied before its first overwrite, and only then.
def test_an_object_of_somebody_else_is_kept_before_it_is_overwritten(syncs, store):
    store.client.create_bucket(Bucket=Syncer.BUCKET)
    store.client.put_object(Bucket=Syncer.BUCKET, Key="p/ckpt.pth", Body=b"theirs")
    sync = syncs()

    for version in (b"one", b"two"):
        (sync.out / "ckpt.pth").write_bytes(version)
        wait_for(lambda: sync.object("ckpt.pth") == version, 60, "the version")
    sync.flush()

    kept = sync.manifest_list("replaced")
    assert [entry["path"] for entry in kept] == ["ckpt.pth"]
    assert store.bytes(Syncer.BUCKET, kept[0]["kept"]) == b"theirs"
    assert len(sync.events("kept")) == 1


# When another run takes over the output, the sync stops publishing and reports the loss.
def test_a_lost_ownership_stops_publishing(syncs, store):
    sync = syncs()
    (sync.out / "ckpt.pth").write_bytes(b"ours")
    sync.flush()

    store.client.put_object(Bucket=Syncer.BUCKET, Key=Syncer.STATE + "manifest.json", Body=b"theirs")
    store.client.put_object(Bucket=Syncer.BUCKET, Key="p/ckpt.pth", Body=b"theirs")
    (sync.out / "ckpt.pth").write_bytes(b"ours again")
    sync.wait_event("lost")

    assert sync.ask("flush 5000")["error"] == "precondition failed"
    assert sync.object("ckpt.pth") == b"theirs"
    assert sync.status()["lost"]


# Without continuous sync, nothing is uploaded before the flush.
def test_without_continuous_sync_only_the_flush_sends(syncs, store):
    sync = syncs("--no-continuous")
    (sync.out / "ckpt.pth").write_bytes(b"1")
    time.sleep(0.5)
    assert store.keys(Syncer.BUCKET) == []

    sync.flush()
    assert sync.object("ckpt.pth") == b"1"


# A file with a name of penstock's own state does not overwrite the state.
def test_the_name_of_the_state_is_not_published(syncs):
    sync = syncs()
    (sync.out / ".penstock" / "runs" / "run").mkdir(parents=True)
    (sync.out / ".penstock" / "runs" / "run" / "manifest.json").write_bytes(b"evil")
    (sync.out / "file").write_bytes(b"1")

    sync.flush()

    assert set(sync.manifest()) == {b"file"}
    assert any(".penstock" in warning for warning in sync.warnings())


# Files are found even if they are made faster than the kernel's event queue can hold.
@pytest.mark.parametrize("number", [6000, pytest.param(100_000, marks=pytest.mark.long)])
def test_an_overflow_of_events_loses_nothing(syncs, number):
    sync = syncs("--scan-ms", 60000)
    code = """
import sys
for i in range(int(sys.argv[2])):
    with open(f"{sys.argv[1]}/d{i % 50}/f{i}", "w") as file:
        file.write(str(i))
"""
    for folder in range(50):
        (sync.out / f"d{folder}").mkdir()
    sync.flush()
    sync.process.send(signal.SIGSTOP)  # events pile up
    writer = python(code, sync.out, number)
    writer.wait()
    sync.process.send(signal.SIGCONT)
    sync.flush(900000)

    assert sync.warnings()
    assert len(sync.paths()) == number
    sync.check_peak()


# A file that cannot be read makes the flush fail with its name, and delays no other file.
def test_an_unreadable_file_is_named_by_the_flush(syncs):
    # Root can read every file, unless it lacks these capabilities.
    sync = syncs(through=["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else [])
    (sync.out / "secret").write_bytes(b"1")
    os.chmod(sync.out / "secret", 0)
    (sync.out / "file").write_bytes(b"2")

    answer = sync.ask("flush 10000")

    assert "secret" in answer["message"]
    assert sync.object("file") == b"2"


# A key that S3 would refuse makes the flush fail with its name; the other files are sent.
def test_a_name_too_long_for_s3_is_named_by_the_flush(syncs):
    sync = syncs()
    deep = sync.out.joinpath(*["d" * 200] * 6)
    deep.mkdir(parents=True)
    (deep / "file").write_bytes(b"1")
    (sync.out / "file").write_bytes(b"2")

    answer = sync.ask("flush 10000")

    assert answer["result"] == "failed"
    assert "1 file" in answer["message"]
    assert sync.object("file") == b"2"


# An unavailable store stops nothing: files closed meanwhile are published soon after its return, and the status shows the lag.
def test_a_store_that_is_away_is_caught_up_with(syncs, store):
    sync = syncs()
    (sync.out / "before").write_bytes(b"1")
    sync.wait_event("published", "before")
    address = store.address

    store.kill()
    for number in range(5):
        (sync.out / f"meanwhile{number}").write_bytes(b"%d" % number)
    wait_for(lambda: sync.status()["files_waiting"] == 5 and sync.status()["lag_ms"] > 300, 60, "the lag")
    store.start(address)

    for number in range(5):
        sync.wait_event("published", f"meanwhile{number}", deadline_s=60)
    sync.flush()
    assert sync.object("meanwhile4") == b"4"


# A flush that cannot end in time names the missing files, loses nothing, and the next flush completes it.
def test_a_flush_without_a_store_fails_in_time_and_is_made_up_for(syncs, store):
    sync = syncs()
    (sync.out / "before").write_bytes(b"1")
    sync.wait_event("published", "before")
    address = store.address
    store.kill()
    (sync.out / "ckpt.pth").write_bytes(b"x" * 5000)

    begun = time.monotonic()
    answer = sync.ask("flush 1500")
    assert answer["result"] == "failed" and "1 file (5.0 kB)" in answer["message"], answer
    assert 1 < time.monotonic() - begun < 10
    assert (sync.out / "ckpt.pth").read_bytes() == b"x" * 5000

    store.start(address)
    sync.flush(60000)
    assert sync.object("ckpt.pth") == b"x" * 5000


# A store that refuses makes the flush fail at once with its reason, not after the patience for an unavailable store.
def test_a_refused_flush_says_why(syncs, store):
    sync = syncs("--no-continuous")
    (sync.out / "ckpt.pth").write_bytes(b"1")
    store.client.delete_bucket(Bucket=Syncer.BUCKET)

    answer = sync.ask("flush 60000")

    assert answer["result"] == "failed" and "NoSuchBucket" in answer["message"], answer

"""Restoring the output: after a kill of penstock, on the same machine and on another one."""
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time

import pytest

from harness.fault_proxy import s3_error
from harness.sync_driver import Syncer
from harness.waiting import wait_for


@pytest.fixture
def attempts(penstock, store, tmp_path):
    """attempts(n): attempt n on this machine; attempts(n, machine="b"): attempt n on another
    machine, which has no local files."""
    folder = tmp_path / "s"

    def make(number, *options, machine="a", **keywords):
        (folder / machine).mkdir(parents=True, exist_ok=True)
        return Syncer(penstock, store, folder / machine, *options, attempt=number, **keywords)

    return make


def fill(out):
    (out / "empty" / "deeper").mkdir(parents=True)
    (out / "ckpt").mkdir(mode=0o750)
    (out / "ckpt" / "model.pth").write_bytes(os.urandom(300_000))
    (out / "ckpt" / "new\nline").write_bytes(b"odd")
    with open(os.fsencode(out) + b"/bad\xff", "wb") as file:
        file.write(b"latin")
    (out / "none").write_bytes(b"")
    (out / "run.sh").write_bytes(b"#!/bin/sh\n")
    os.chmod(out / "run.sh", 0o755)
    os.utime(out / "run.sh", ns=(1, 1500000000123456789))
    os.symlink("ckpt/model.pth", out / "latest")
    os.symlink("/nowhere", out / "dangling")


def snapshot(out):
    """Returns everything about a tree that a restore recreates."""
    found = {}
    for folder, folders, files in os.walk(os.fsencode(out)):
        for name in folders + files:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            kind = stat.S_IFMT(status.st_mode)
            content = os.readlink(path) if kind == stat.S_IFLNK else open(path, "rb").read() if kind == stat.S_IFREG else None
            found[os.path.relpath(path, os.fsencode(out))] = (status.st_mode, kind == stat.S_IFREG and status.st_mtime_ns, content)
    return found


# On another machine, after a clean end: content, times, modes, links and empty directories are as they were.
def test_a_restore_elsewhere_brings_everything_back(attempts):
    first = attempts(1)
    fill(first.out)
    first.flush().quit()

    other = attempts(2, machine="b", start=False)
    restored = other.restore()

    assert restored["found"] and restored["files_fetched"] == 5
    assert snapshot(other.out) == snapshot(first.out)
    other.start()
    other.flush()
    assert other.status()["files_published"] == 0


# On the same machine nothing is fetched again and nothing sent again.
def test_a_restore_in_place_keeps_what_is_there(attempts):
    first = attempts(1)
    fill(first.out)
    first.flush().quit()
    before = snapshot(first.out)

    second = attempts(2, start=False)
    restored = second.restore()

    assert restored["files_fetched"] == 0 and restored["files_kept"] == 5
    assert snapshot(second.out) == before
    second.start()
    second.flush()
    assert second.status()["files_published"] == 0


# The journal is missing, but the files are not. Files with the right content stay.
def test_without_a_journal_files_are_compared_by_content(attempts):
    first = attempts(1)
    fill(first.out)
    first.flush().quit()
    first.journal.unlink()
    changed = first.out / "ckpt" / "model.pth"
    status = changed.stat()
    changed.write_bytes(b"\0" * status.st_size)
    os.utime(changed, ns=(status.st_atime_ns, status.st_mtime_ns))

    second = attempts(2, start=False)
    restored = second.restore()

    assert restored["files_fetched"] == 1 and restored["files_suspect"] == 1
    assert second.object("ckpt/model.pth") == changed.read_bytes()
    assert second.partial("ckpt/model.pth") == b"\0" * status.st_size


# The next attempt publishes a file that was closed before a kill -9 of penstock and has not changed
# since.
def test_what_was_closed_before_a_kill_is_published_after_it(attempts, store):
    first = attempts(1)
    (first.out / "before").write_bytes(b"1")
    first.wait_event("published", "before")
    store.kill()
    for number in range(20):
        (first.out / f"closed{number}").write_bytes(b"closed %d" % number)
    wait_for(lambda: len(set(re.findall(rb" C (closed\d+) ", first.journal.read_bytes()))) == 20, 60, "the journal")
    first.kill()
    store.start()

    second = attempts(2, start=False)
    restored = second.restore()
    second.start()
    second.flush()

    assert restored["files_unsent"] == 20 and restored["files_suspect"] == 0
    for number in range(20):
        assert second.object(f"closed{number}") == b"closed %d" % number


# A checkpoint that was being written when penstock was killed goes to partial/, and the last good
# version is restored.
def test_what_was_being_written_at_a_kill_is_suspect(attempts):
    first = attempts(1)
    path = first.out / "ckpt.pth"
    path.write_bytes(b"good" * 1000)
    first.wait_event("published", "ckpt.pth")
    with open(path, "wb") as file:
        file.write(b"half" * 500)
        file.flush()
        time.sleep(0.2)
        first.kill()

    second = attempts(2, start=False)
    restored = second.restore()

    assert restored["files_suspect"] == 1 and restored["files_fetched"] == 1
    assert path.read_bytes() == b"good" * 1000
    assert second.partial("ckpt.pth") == b"half" * 500
    assert not (second.private / "suspect" / "2" / "ckpt.pth").exists()
    second.start()
    second.flush()
    assert second.object("ckpt.pth") == b"good" * 1000


# The key of one suspect is too long, in every attempt.
def test_a_suspect_that_cannot_be_sent_does_not_hold_up_the_others(attempts):
    first = attempts(1)
    (first.out / "file").write_bytes(b"x")
    first.flush().quit()
    unsendable = first.private.joinpath("suspect", "1", *["d" * 200] * 5, "file")
    other = first.private / "suspect" / "2" / "other"
    for path in (unsendable, other):
        path.parent.mkdir(parents=True)
        path.write_bytes(b"half")

    third = attempts(3, start=False)
    third.restore()

    assert third.partial("other") == b"half"
    assert unsendable.exists() and not other.exists()


# If an older version of a suspect were sent later, it would replace the newer one.
def test_versions_of_a_suspect_are_sent_in_their_order(attempts, fault_proxy):
    first = attempts(1)
    (first.out / "file").write_bytes(b"x")
    first.flush().quit()
    older, newer = (first.private / "suspect" / str(number) / "ckpt.pth" for number in (1, 2))
    for path in (older, newer):
        path.parent.mkdir(parents=True)
        path.write_bytes(path.parent.name.encode())
    refused = fault_proxy.fault(method="PUT", path="partial/ckpt.pth", status=403, body=s3_error("AccessDenied"))

    third = attempts(3, start=False, endpoint=fault_proxy.url)
    third.restore()
    assert refused.hits == 1 and older.exists() and newer.exists()
    third.kill()
    fourth = attempts(4, start=False)
    fourth.restore()

    assert fourth.partial("ckpt.pth") == b"2"
    assert not older.exists() and not newer.exists()


# The task was killed and penstock survived: the next attempt starts from the last good version.
def test_a_suspect_of_the_last_attempt_is_replaced_by_the_good_one(attempts):
    first = attempts(1)
    path = first.out / "ckpt.pth"
    path.write_bytes(b"good" * 1000)
    first.wait_event("published", "ckpt.pth")
    code = "import sys, time; f = open(sys.argv[1], 'wb'); f.write(b'half' * 100000); f.flush(); time.sleep(60)"
    writer = subprocess.Popen([sys.executable, "-c", code, path])
    wait_for(lambda: path.stat().st_size == 400_000 and first.watches(writer.pid), 60, "half a save, and its writer seen")
    writer.kill()
    writer.wait()
    first.ended(True)
    first.flush().quit()

    second = attempts(2, start=False)
    second.restore()

    assert path.read_bytes() == b"good" * 1000


# A log keeps its last lines, including those that were not uploaded yet.
def test_a_log_that_was_open_at_a_kill_keeps_its_lines(attempts):
    first = attempts(1, "--append-ms", "200")
    path = first.out / "train.log"
    with open(path, "a") as log:
        log.write("line 1\n")
        log.flush()
        first.wait_event("grown", "train.log")
        first.kill()
        log.write("line 2\n")

    second = attempts(2, start=False)
    second.restore()
    assert path.read_text() == "line 1\nline 2\n"
    second.start()
    second.flush()

    assert second.object("train.log") == b"line 1\nline 2\n"


# An object that was published after the last manifest is newer than the manifest's entry, and is restored.
def test_an_object_newer_than_the_manifest_is_restored(attempts):
    first = attempts(1)
    (first.out / "ckpt.pth").write_bytes(b"one")
    first.flush()
    (first.out / "ckpt.pth").write_bytes(b"two, longer")
    (first.out / "fresh").write_bytes(b"new")
    first.wait_event("published", "ckpt.pth", count=2)
    first.wait_event("published", "fresh")
    first.kill()

    other = attempts(2, machine="b", start=False)
    other.restore()

    assert (other.out / "ckpt.pth").read_bytes() == b"two, longer"
    assert (other.out / "fresh").read_bytes() == b"new"


# Foreign objects below the prefix do not belong to the run: a restore does not touch them.
def test_a_restore_takes_only_what_the_run_published(attempts, store):
    first = attempts(1)
    store.client.put_object(Bucket=Syncer.BUCKET, Key="p/foreign", Body=b"theirs")
    (first.out / "mine").write_bytes(b"1")
    first.flush().quit()
    store.client.put_object(Bucket=Syncer.BUCKET, Key="p/later", Body=b"theirs")

    other = attempts(2, machine="b", start=False)
    other.restore()

    assert os.listdir(other.out) == ["mine"]


# A deleted file stays deleted, although its object still exists.
def test_a_restore_does_not_bring_deleted_files_back(attempts):
    first = attempts(1)
    (first.out / "old").write_bytes(b"1")
    (first.out / "new").write_bytes(b"2")
    first.flush()
    (first.out / "old").unlink()
    first.flush().quit()

    other = attempts(2, machine="b", start=False)
    other.restore()

    assert os.listdir(other.out) == ["new"]


# Without a restore, deleteSync deletes no objects of an earlier attempt. After a restore,
# deleteSync deletes the object of any file that is removed.
def test_delete_sync_waits_for_a_verified_restore(attempts):
    first = attempts(1, "--delete")
    (first.out / "one").write_bytes(b"1")
    (first.out / "two").write_bytes(b"2")
    first.flush().quit()

    blind = attempts(2, "--delete", machine="b")
    (blind.out / "three").write_bytes(b"3")
    blind.flush().quit()
    assert blind.paths() == ["one", "three", "two"]
    assert blind.warnings()

    seeing = attempts(3, "--delete", machine="c", start=False)
    seeing.restore()
    seeing.start()
    assert sorted(os.listdir(seeing.out)) == ["one", "three", "two"]
    (seeing.out / "one").unlink()
    seeing.flush()
    assert seeing.paths() == ["three", "two"]


# After a kill, the restore does not fetch a checkpoint of gigabytes from its start. If the file
# appears by other means, its partial download is not published.
def test_a_restore_that_is_killed_goes_on_within_a_large_file(attempts, fault_proxy):
    first = attempts(1)
    body = os.urandom(80 << 20)
    (first.out / "d").mkdir()
    (first.out / "d" / "large").write_bytes(body)
    (first.out / "d" / "small").write_bytes(b"small")
    first.flush().quit()
    fault_proxy.fault(method="GET", path="/large$", skip=6, hold="request", times=1000)
    second = attempts(2, machine="b", start=False, endpoint=fault_proxy.url)
    part, journal = second.out / "d/large.penstock-part", second.out / "d/large.journal.penstock-part"

    second.process.popen.stdin.write(b"restore\n")
    second.process.popen.stdin.flush()
    wait_for(lambda: journal.exists() and journal.read_bytes().count(b" B ") >= 12, 60, "twelve blocks of the file")
    second.process.kill()
    second.process.finish()
    fault_proxy.clear()
    before = len(fault_proxy.seen())
    assert part.exists()
    shutil.copy2(first.out / "d/small", second.out / "d/small")
    shutil.copy2(journal, second.out / "d/small.journal.penstock-part")
    third = attempts(3, machine="b", start=False, endpoint=fault_proxy.url)
    restored = third.restore()

    moved = sum(each.sent + each.received for each in fault_proxy.seen(path="/large$") if each.number >= before)
    assert (restored["files_fetched"], restored["files_kept"]) == (1, 1)
    assert moved < len(body) - (10 << 20), "the whole file was fetched again"
    assert snapshot(third.out) == snapshot(first.out)


# The journal may be lost, or a restore may be killed after it has fetched the file. For large
# files, neither the journal nor the manifest has a checksum.
def test_a_large_file_that_is_there_is_not_fetched_again(attempts, fault_proxy):
    first = attempts(1)
    large = first.out / "large"
    large.write_bytes(os.urandom(80 << 20))
    body, status = large.read_bytes(), large.stat()
    first.flush().quit()
    first.journal.unlink()

    second = attempts(2, start=False, endpoint=fault_proxy.url)
    restored = second.restore()
    second.kill()

    assert (restored["files_fetched"], restored["files_kept"], restored["files_suspect"]) == (0, 1, 0)
    assert not fault_proxy.seen("GET", path="/large$")
    with open(large, "r+b") as file:
        file.seek(70 << 20)
        file.write(bytes([255 - body[70 << 20]]))
    os.utime(large, ns=(status.st_atime_ns, status.st_mtime_ns))
    second.journal.unlink()

    third = attempts(3, start=False)
    restored = third.restore()

    assert (restored["files_fetched"], restored["files_kept"], restored["files_suspect"]) == (1, 0, 1)
    assert large.read_bytes() == body


# A manifest cannot make a restore write outside of its directory.
def test_a_restore_does_not_follow_links_out_of_its_directory(attempts, store, tmp_path):
    first = attempts(1)
    (first.out / "sub").mkdir()
    (first.out / "sub" / "file").write_bytes(b"1")
    first.flush().quit()
    outside = tmp_path / "outside"
    outside.mkdir()

    other = attempts(2, machine="b", start=False)
    os.symlink(outside, other.out / "sub")
    other.restore()

    assert list(outside.iterdir()) == []
    assert (other.out / "sub" / "file").read_bytes() == b"1"
    assert not (other.out / "sub").is_symlink()


# The error names the missing object, and no local file is lost.
def test_a_restore_without_an_object_says_which(attempts, store):
    first = attempts(1)
    (first.out / "ckpt.pth").write_bytes(b"1")
    (first.out / "other").write_bytes(b"2")
    first.flush().quit()
    store.client.delete_object(Bucket=Syncer.BUCKET, Key="p/ckpt.pth")

    other = attempts(2, machine="b", start=False)
    answer = other.ask("restore")

    assert answer["result"] == "failed" and "ckpt.pth" in answer["message"]


# The sync is killed at random moments. Every file that was closed long before a kill is in the
# store after the next attempt, and no object is torn.
def test_kills_at_random_moments_lose_nothing(attempts):
    code = """
import os, sys, time
out, begin = sys.argv[1], int(sys.argv[2])
for version in range(begin, begin + 10000):
    with open(f"{out}/ckpt{version % 3}.tmp", "wb") as file:
        file.write(version.to_bytes(8, "little") * 20000)
    os.rename(f"{out}/ckpt{version % 3}.tmp", f"{out}/ckpt{version % 3}.pth")
    print(version, flush=True)
    time.sleep(0.02)
"""
    names = [f"ckpt{index}.pth" for index in range(3)]

    def version_of(body):
        assert len(body) == 160_000 and body == body[:8] * 20000
        return int.from_bytes(body[:8], "little")

    def on_record(sync):
        """Returns True if the journal has each file with its current size and time."""
        fields = [line.split(b" ") for line in sync.journal.read_bytes().split(b"\n")[:-1]]
        last = {line[2].decode(): (line[1] in (b"C", b"P"), int(line[4]), int(line[6])) for line in fields if len(line) == 11}
        here = {name: (sync.out / name).stat() for name in names}
        return all(last.get(name) == (True, st.st_mtime_ns, st.st_ino) for name, st in here.items())

    rounds = int(os.environ.get("PENSTOCK_TEST_KILLS", "9"))
    begin, closed = 1, None
    for number in range(1, rounds + 1):
        sync = attempts(number, start=False)
        if number > 1:
            sync.restore()
            there = [version_of((sync.out / name).read_bytes()) for name in names]
            assert there == (closed or there)
        sync.start()
        writer = subprocess.Popen([sys.executable, "-c", code, sync.out, str(begin)], stdout=subprocess.PIPE, text=True)
        seen = [int(writer.stdout.readline()) for _ in range(5 + number * 3)]
        time.sleep(0.007 * number)
        writer.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, writer.pid, os.WSTOPPED)
        if number % 2 or number == rounds:  # half of the kills come at once
            wait_for(lambda sync=sync: on_record(sync), 60, "the journal")
        closed = [version_of((sync.out / name).read_bytes()) for name in names] if on_record(sync) else None
        sync.kill()
        writer.kill()
        begin = max([int(line) for line in writer.communicate()[0].split()] + seen) + 1

    last = attempts(rounds + 1, start=False)
    last.restore()
    last.start()
    last.flush()
    assert [version_of(last.object(name)) for name in names] == closed


# A sync can start with a journal that is truncated at any byte.
def test_a_cut_journal_is_no_obstacle(attempts):
    first = attempts(1)
    for number in range(50):
        (first.out / f"file{number}").write_bytes(b"%d" % number)
    first.flush().quit()
    whole = first.journal.read_bytes()

    for cut in (0, 1, len(whole) // 2, len(whole) - 1):
        first.journal.write_bytes(whole[:cut])
        again = attempts(2, start=False)
        again.restore()
        again.start()
        again.flush().quit()
        assert len(again.paths()) == 50
        assert shutil.disk_usage(again.out)
        for number in range(50):
            assert again.object(f"file{number}") == b"%d" % number

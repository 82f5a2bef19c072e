"""A machine that stops loses everything that was not on its disk. The tests do not stop a machine,
but damage the files instead."""
import json
import os
import re
import signal
import urllib.parse
import zlib
from pathlib import Path

import pytest

from harness import progress
from harness.sync_driver import Syncer
from harness.waiting import wait_for
from harness.workflows import s3_place

PATIENT_S = 90  # only limits the time of a failing test

ANOTHER_BOOT = "00000000-0000-4000-8000-00000000dead"


def rewrite_journal(path, change):
    """Rewrites each record with change(fields), and corrects its checksum."""
    lines = []
    for line in path.read_bytes().splitlines():
        fields = line.split(b" ")
        assert len(fields) == 11 and int(fields[0], 16) == zlib.crc32(line[9:])
        rest = b" ".join(change(fields[1:]))
        lines.append(b"%08x %s\n" % (zlib.crc32(rest), rest))
    path.write_bytes(b"".join(lines))


def stop_the_machine(sync, boot=ANOTHER_BOOT.encode()):
    """Kills the sync, and makes its journal look like one of another boot."""
    sync.kill()
    boots = []

    def elsewhen(fields):
        if fields[0] == b"H":
            boots.append(fields[-1])
            fields[-1] = boot
        return fields

    rewrite_journal(sync.journal, elsewhen)
    assert boots == [Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()] * len(boots) and boots


def tear(path):
    """Replaces the file's bytes by zeros, and keeps its name, size, inode and times. XFS and ext4
    leave a file in this state if it was rewritten just before the stop."""
    before = path.stat()
    path.write_bytes(b"\0" * before.st_size)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def give_the_journal_the_times(sync):
    """Puts the current ctime into the journal, because tear() could not restore the old ctime."""

    def renew(fields):
        path = sync.out / os.fsdecode(urllib.parse.unquote_to_bytes(fields[1]))
        if fields[0] in (b"C", b"P", b"A") and path.exists():
            fields[4] = b"%d" % path.stat().st_ctime_ns
        return fields

    rewrite_journal(sync.journal, renew)


@pytest.fixture
def attempts(penstock, store, tmp_path):
    """attempts(n, *options): attempt n on this machine."""

    def make(number, *options, **keywords):
        return Syncer(penstock, store, tmp_path, *options, attempt=number, **keywords)

    return make


def lose_what_was_not_on_the_disk(sync):
    stop_the_machine(sync)
    for name in ("small", "large", "unsent"):
        tear(sync.out / name)
    give_the_journal_the_times(sync)


def write_and_stop(sync, store, large=50_000):
    """Publishes small, large, same and unsent. Then writes and closes a newer version of unsent,
    and new, which cannot be sent any more."""
    for name, size in (("small", 5000), ("large", large), ("same", 6000), ("unsent", 7000)):
        (sync.out / name).write_bytes(name.encode().ljust(size))
    sync.flush()
    store.kill()
    (sync.out / "unsent").write_bytes(b"newer".ljust(7000))
    (sync.out / "new").write_bytes(b"only here")
    for name in (b"unsent", b"new"):
        wait_for(lambda name=name: journal_has(sync, b"C", name), PATIENT_S, "the journal")


def journal_has(sync, kind, name):
    """Returns True if the journal's last line about the file is of this kind."""
    fields = [line.split(b" ") for line in sync.journal.read_bytes().split(b"\n")[:-1]]
    return ([line[1] for line in fields if len(line) == 11 and line[2] == name] or [b""])[-1] == kind


def test_a_restore_after_a_power_loss_believes_content_only(attempts, store):
    # The file has the size, the times and the inode that the journal records, but the bytes never
    # reached the disk.
    first = attempts(1)
    write_and_stop(first, store, large=65 << 20)  # uploaded in parts, without a checksum from penstock
    lose_what_was_not_on_the_disk(first)
    store.start()

    second = attempts(2, start=False)
    restored = second.restore()

    assert (second.out / "small").read_bytes() == b"small".ljust(5000)
    assert (second.out / "large").read_bytes() == b"large".ljust(65 << 20)
    assert (second.out / "unsent").read_bytes() == b"unsent".ljust(7000), "the last good one"
    assert restored["files_kept"] == 1 and restored["files_fetched"] == 3 and restored["files_suspect"] == 4
    assert second.partial("new") == b"only here" and not (second.out / "new").exists()
    assert second.warnings()
    second.start()
    second.flush()
    assert second.status()["files_published"] == 0
    # The restore has compared these files, so the next restore trusts them.
    third = attempts(3, start=False)
    assert third.restore()["files_kept"] == 4 and not any("stopped" in warning for warning in third.warnings())


@pytest.mark.parametrize("boot", [b"-", None])
def test_a_restore_in_the_same_boot_believes_the_journal(attempts, store, boot):
    # Older versions wrote journals without the id of a boot. penstock trusts these journals, too.
    first = attempts(1)
    write_and_stop(first, store)
    first.kill()
    if boot:
        stop_the_machine(first, boot)
    store.start()

    second = attempts(2, start=False)
    restored = second.restore()

    assert restored["files_unsent"] == 2 and restored["files_kept"] == 3 and restored["files_suspect"] == 0
    second.start()
    second.flush()
    assert second.object("unsent") == b"newer".ljust(7000) and second.object("new") == b"only here"


def test_what_was_brought_to_the_disk_survives_a_power_loss(attempts, store):
    # The flush failed, so the local file is the only copy. After a stop of the machine, a file that
    # was closed after the failure is as suspect as any other.
    first = attempts(1)
    write_and_stop(first, store)
    first.ask("settle")
    (first.out / "later").write_bytes(b"later")
    (first.out / "new").write_bytes(b"newer here")
    wait_for(lambda: journal_has(first, b"C", b"later"), PATIENT_S, "the journal")
    wait_for(lambda: first.journal.read_bytes().count(b" new 10 ") > 0, PATIENT_S, "the journal")
    stop_the_machine(first)
    store.start()

    second = attempts(2, start=False)
    restored = second.restore()
    second.start()
    second.flush()

    assert restored["files_unsent"] == 1 and restored["files_suspect"] == 2
    assert second.object("unsent") == b"newer".ljust(7000)
    assert second.partial("later") == b"later" and second.partial("new") == b"newer here"


def test_a_flush_after_a_power_loss_replaces_no_good_object(attempts, store):
    # `penstock flush` restores nothing: torn files go to partial/.
    first = attempts(1)
    write_and_stop(first, store, large=9 << 20)  # the ETag depends on the content
    lose_what_was_not_on_the_disk(first)
    store.start()

    second = attempts(1, "--no-continuous")
    second.flush()

    assert second.object("small") == b"small".ljust(5000) and second.object("unsent") == b"unsent".ljust(7000)
    assert not second.has("new")
    assert second.partial("small") == b"\0" * 5000 and second.partial("large") == b"\0" * (9 << 20)
    assert second.partial("unsent") == b"\0" * 7000 and second.partial("new") == b"only here"
    assert not second.events("published")


# ---- steps ----


@pytest.fixture
def begun(penstock, store, tmp_path):
    """begun(end): starts a run, and calls end(process) when the first step is finished and the
    second one runs. Returns the workflow and the record of steps."""
    s3 = s3_place(store)["s3"]
    work = 'if [ $PENSTOCK_ATTEMPT = 1 ]; then trap "exit 0" TERM; echo at work; sleep 1000 & wait; fi; cat "$DEEPSQUARE_OUTPUT/prepared"'
    workflow = {
        "name": "t", "resources": {"tasks": 1, "cpusPerTask": 1, "memPerCpu": 256, "gpus": 0}, "output": {"s3": s3},
        "continuousOutputSync": True,
        "steps": [
            {"name": "prepare", "run": {"command": 'echo preparing; echo data > "$DEEPSQUARE_OUTPUT/prepared"'}},
            {"name": "train", "run": {"command": work}},
        ],
    }  # fmt: skip
    path = tmp_path / "wf.json"
    path.write_text(json.dumps(workflow))

    def begin(end):
        run = penstock.popen("run", path)
        run.wait_for_output("at work", PATIENT_S)
        end(run)
        (state,) = penstock.home.glob("runs/*/state")
        return path, state / "steps"

    return begin


def of_another_boot(steps):
    text = steps.read_text()
    ours = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert text.startswith(f"b {ours}\nd "), text
    steps.write_text(text.replace(ours, ANOTHER_BOOT))


def test_after_a_power_loss_no_step_is_skipped(penstock, begun):
    # The end of the first step was recorded, but its files in the storage may be torn.
    path, steps = begun(lambda run: run.kill())
    of_another_boot(steps)

    ended = penstock.run("run", path).ok()

    assert "preparing" in ended.out and "data" in ended.out
    assert re.search(progress.FROM_FIRST_STEP, ended.err)


def test_in_the_same_boot_a_finished_step_is_skipped(penstock, begun):
    path, _ = begun(lambda run: run.kill())

    ended = penstock.run("run", path).ok()

    assert "preparing" not in ended.out and "data" in ended.out


def test_a_preempted_attempt_brings_what_its_steps_left_to_the_disk(penstock, begun):
    # A preempted attempt syncs the files of finished steps to the disk, so a machine that comes
    # back with its disk still has them.
    def preempt(run):
        run.popen.send_signal(signal.SIGTERM)
        run.wait().exits(75)

    path, steps = begun(preempt)
    of_another_boot(steps)

    ended = penstock.run("run", path).ok()

    assert "preparing" not in ended.out and "data" in ended.out


def test_output_that_was_not_sent_survives_a_stop_of_the_machine(penstock, store, tmp_path):
    # Exit code 73 promises that the output is kept, even if the user restarts the machine before
    # `penstock flush`.
    s3 = s3_place(store)["s3"]
    work = f'echo first > "$DEEPSQUARE_OUTPUT/result"; echo at work; until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo data > "$DEEPSQUARE_OUTPUT/result"'
    (tmp_path / "wf.json").write_text(json.dumps({
        "name": "t", "resources": {"tasks": 1, "cpusPerTask": 1, "memPerCpu": 256, "gpus": 0}, "output": {"s3": s3},
        "steps": [{"name": "only", "run": {"command": work}}],
    }))  # fmt: skip
    run = penstock.popen("run", tmp_path / "wf.json", env={"PENSTOCK_FLUSH_PATIENCE": "1"})
    run.wait_for_output("at work", PATIENT_S)
    store.kill()
    (tmp_path / "go").touch()
    run.wait().exits(73)
    (journal,) = penstock.home.glob("runs/*/state/sync")
    rewrite_journal(journal, lambda fields: fields[:-1] + [ANOTHER_BOOT.encode()] if fields[0] == b"H" else fields)
    store.start(store.address)  # the workflow has this address

    penstock.run("flush", "t").ok()

    assert store.bytes("out", "result") == b"data\n"

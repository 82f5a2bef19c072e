"""If neither events nor times show a change, a flush compares the content at its end."""
import os
import signal
from pathlib import Path

import pytest

from harness.fault_proxy import s3_error
from harness.sync_driver import Syncer, limited
from harness.waiting import wait_for

PATIENT_S = 90  # only limits the time of a failing test
SIZE = 8192


def state_of(thread):
    return (thread / "stat").read_text().rpartition(")")[2].split()[0]


def change(path):
    """Writes other bytes into the same file; the driver hides the change of its times (--traceless)."""
    with open(path, "r+b") as file:
        file.write(b"after")


def publish(sync):
    (sync.out / "array").write_bytes(b"first".ljust(SIZE))
    (sync.out / "other").write_bytes(b"the same all the time")
    sync.flush()
    assert sync.object("array").startswith(b"first")


def check_flush_finds_it(sync):
    published = len(sync.events("published"))
    sync.flush()

    assert sync.object("array") == b"after".ljust(SIZE)
    sent = [event["path"] for event in sync.events("published")[published:]]
    assert sent.count("array") == 1 and "other" not in sent, "an unchanged file was sent again"


def test_a_flush_without_events_finds_what_left_no_trace(penstock, store, tmp_path):
    sync = Syncer(penstock, store, tmp_path, "--traceless", through=limited(0, "max_inotify_instances"))
    publish(sync)

    change(sync.out / "array")

    assert sync.status()["polling"]
    check_flush_finds_it(sync)


def test_a_flush_after_an_overflow_of_events_finds_what_left_no_trace(penstock, store, tmp_path):
    # The event of the close is lost, because the queue is full.
    sync = Syncer(penstock, store, tmp_path, "--traceless")
    publish(sync)
    os.kill(sync.process.pid, signal.SIGSTOP)
    wait_for(lambda: all(state_of(thread) == "T" for thread in Path(f"/proc/{sync.process.pid}/task").iterdir()), PATIENT_S, "the stop")
    queued = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    with open(sync.out / "busy0", "wb", buffering=0) as even, open(sync.out / "busy1", "wb", buffering=0) as odd:
        # inotify merges equal events that follow each other, so write to two files in turn.
        for _ in range(queued // 2 + 1):
            even.write(b"x")
            odd.write(b"x")

    change(sync.out / "array")
    os.kill(sync.process.pid, signal.SIGCONT)
    wait_for(lambda: any("too many changes" in warning for warning in sync.warnings()), PATIENT_S, "the overflow")

    assert not sync.status()["polling"]
    check_flush_finds_it(sync)


@pytest.mark.parametrize("size", ["small", "in parts"])
def test_a_flush_on_a_network_file_system_finds_what_the_times_do_not_tell(penstock, store, tmp_path, size):
    # Another node has written to the file, and this node still caches the old attributes.
    sync = Syncer(penstock, store, tmp_path, "--network", "--traceless")
    publish(sync)
    if size == "in parts":
        os.truncate(sync.out / "array", 65 << 20)
        sync.flush()

    change(sync.out / "array")

    published = len(sync.events("published", "array"))
    sync.flush()
    assert len(sync.events("published", "array")) == published + 1
    assert sync.object("array")[:6] == b"after "
    sync.flush()
    assert len(sync.events("published", "array")) == published + 1


def test_a_flush_after_a_failed_one_compares_all_files_again(penstock, store, tmp_path, fault_proxy):
    # The first flush has compared all files, and then fails to list the bucket.
    sync = Syncer(penstock, store, tmp_path, "--network", "--traceless", endpoint=fault_proxy.url)
    publish(sync)
    refused = fault_proxy.fault(method="GET", query="list-type=2", status=400, body=s3_error("InvalidRequest"))
    assert sync.ask("flush 60000", PATIENT_S)["result"] == "failed" and refused.hits == 1

    change(sync.out / "array")

    check_flush_finds_it(sync)


def test_what_was_written_last_on_a_network_file_system_is_published_by_the_flush(penstock, store, tmp_path):
    # No scan has seen the file before, so the file could have a writer, but at the flush all tasks
    # have ended.
    sync = Syncer(penstock, store, tmp_path, "--network", "--scan-ms", 10**6)
    (sync.out / "last").write_bytes(b"\0" * SIZE)

    sync.flush()

    assert sync.object("last") == b"\0" * SIZE and not sync.events("partial")


def test_what_a_flush_finds_while_it_goes_to_partial_is_published(penstock, store, tmp_path, fault_proxy):
    # The flush's scan reaches the file while a worker uploads the file to partial/, or before that.
    sync = Syncer(penstock, store, tmp_path, "--network", "--append-ms", 10**6, endpoint=fault_proxy.url)
    (sync.out / "last").write_bytes(b"\0" * SIZE)
    wait_for(lambda: sync.status()["files_waiting"] == 1 or sync.has("last"), PATIENT_S, "the file")
    held = fault_proxy.fault(method="PUT", path="/partial/last$", hold="request")

    sync.process.popen.stdin.write(b"flush 60000\n")
    sync.process.popen.stdin.flush()
    wait_for(lambda: held.hits or sync.has("last"), PATIENT_S, "the flush")
    held.release()
    wait_for(lambda: any(line.get("answer") == "flush" for line in sync.lines()), PATIENT_S, "the end of the flush")

    assert sync.object("last") == b"\0" * SIZE


def test_a_flush_in_pieces_does_not_begin_its_look_at_all_files_anew(penstock, store, tmp_path):
    # A flush may be split into several calls, each with a time limit. One comparison of all files
    # may take longer than that limit, as with very many files or on a slow network. If each call
    # started over, the flush would never end.
    sync = Syncer(penstock, store, tmp_path)
    for n in range(2000):
        (sync.out / str(n)).mkdir()
    (sync.out / "file").write_bytes(b"x")

    first = sync.ask("flush 1", PATIENT_S)["result"]
    wait_for(lambda: first == "done" or sync.ask("flush-on 1", PATIENT_S)["result"] == "done", PATIENT_S, "the end of the flush")
    before = sync.status()["scans"]
    for _ in range(20):
        sync.ask("flush-on 1", PATIENT_S)

    assert sync.object("file") == b"x"
    assert sync.status()["scans"] < before + 10, "the pieces started too many scans"

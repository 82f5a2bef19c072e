"""Numbers of a loader: for an epoch, on a terminal, and in the output of a run."""
import fcntl
import itertools
import json
import os
import signal
import struct
import sys
import termios
import types

import numpy as np
import pytest

import penstock._meter
from penstock.data import Dataset, Loader, Mix
from python_child import Child
from test_skip import objects, spoil  # noqa: F401


@pytest.fixture
def rows(tmp_path_factory):
    """20 samples of 32 bytes."""
    folder = tmp_path_factory.mktemp("rows")
    np.save(folder / "0.npy", np.arange(80, dtype="f8").reshape(20, 4))
    return Dataset(folder)


@pytest.fixture
def clock(monkeypatch):
    """The clock of the loaders; only the test advances it."""
    clock = types.SimpleNamespace(now=100.0)
    monkeypatch.setattr(penstock._meter, "time", types.SimpleNamespace(monotonic=lambda: clock.now, time=lambda: 1.7e9))
    return clock


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Sets the environment of a step of a run; returns a function that reads the lines of a rank."""
    monkeypatch.setenv("DEEPSQUARE_OUTPUT", str(tmp_path / "output")), monkeypatch.setenv("PENSTOCK_RUN_ID", "run-7")
    monkeypatch.setenv("PENSTOCK_ATTEMPT", "2")

    def lines(rank=0):
        return [json.loads(line) for line in (tmp_path / "output" / "datasets" / "run-7" / f"loader-{rank}.jsonl").read_text().splitlines()]

    return lines


def test_samples_bytes_and_rates_are_of_the_epoch(rows, clock):
    def collate(batch):
        clock.now += 3
        return batch

    loader = Loader(rows, 8, collate=collate)
    for _ in range(2):
        for _ in loader:
            clock.now += 1
        stats = loader.stats()

    assert stats == {
        "samples": 20, "bytes": 640, "skipped": 0, "seconds": 12, "samples_per_s": 20 / 12, "bytes_per_s": 640 / 12, "waiting": 0.75,
        "total_samples": 40, "total_bytes": 1280, "total_skipped": 0,
    }  # fmt: skip


def test_a_loader_that_has_not_begun_has_numbers(rows):
    stats = Loader(rows, 8).stats()

    assert stats["samples"] == stats["waiting"] == stats["bytes_per_s"] == 0


@pytest.mark.parametrize("count", [0, 2])
def test_numbers_in_the_middle_are_of_what_was_delivered(rows, count):
    loader = Loader(rows, 8)

    got = [(loader.stats()["samples"], loader.stats()["bytes"]) for _ in loader.dataloader(num_workers=count)]

    assert got == [(8, 256), (16, 512), (20, 640)]


def test_a_mix_and_skipped_samples_are_counted(tmp_path, rows, objects):  # noqa: F811
    spoil(tmp_path)
    loader = Loader(Mix([(rows, 1), (objects, 2)]), 8, on_error="skip")

    with pytest.warns(RuntimeWarning):
        list(loader)

    assert (loader.stats()["samples"], loader.stats()["bytes"], loader.stats()["skipped"]) == (58, 20 * 32 + 38, 2)


def test_the_numbers_are_metrics_of_a_checkpoint(rows, place):
    loader = Loader(rows, 8)
    list(loader)

    penstock.checkpoint.save({}, 1, metrics=loader.stats())

    assert penstock.checkpoint.latest().metrics["samples"] == 20


# --- the line ---


@pytest.fixture(params=[80, 0])
def terminal(request, monkeypatch):
    """Replaces standard error by a terminal of 80 columns or without a size; returns a function that returns the written text."""
    outer, inner = os.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, request.param, 0, 0))
    stderr = open(inner, "w")
    monkeypatch.setattr(penstock._meter, "sys", types.SimpleNamespace(stderr=stderr, is_finalizing=sys.is_finalizing))

    def written():
        stderr.close()
        text = b""
        while True:
            try:
                text += os.read(outer, 1 << 16)
            except OSError:  # everything was read
                return text.decode()

    yield written
    os.close(outer)


def test_a_terminal_shows_one_line_for_an_epoch(rows, terminal):
    list(Loader(rows, 8, progress=True))

    written = terminal()
    assert written.endswith("\n") and written.count("\n") == 1 and all(len(text) < 80 for text in written.split("\r"))
    assert "epoch 0: 3/3 batches" in written and "waiting" in written


@pytest.mark.parametrize("options", [{}, {"progress": True, "rank": 1, "world_size": 2}])
def test_other_ranks_and_loaders_without_progress_show_nothing(rows, terminal, options):
    list(Loader(rows, 8, **options))

    assert terminal() == ""


def test_nothing_is_shown_elsewhere_than_on_a_terminal(rows, capfd):
    list(Loader(rows, 8, progress=True))

    assert capfd.readouterr() == ("", "")


def test_a_line_ends_where_the_epoch_is_left(rows, terminal):
    batches = iter(Loader(rows, 8, progress=True))
    next(batches)
    batches.close()

    written = terminal()
    assert "1/3 batches" in written and written.endswith("\n") and written.count("\n") == 1


# --- the output of a run ---


def test_each_epoch_is_a_line_in_the_output_of_a_run(rows, run, clock):
    loader = Loader(rows, 8)
    list(loader)
    for _ in itertools.islice(loader, 1):
        clock.now += 1

    whole, left = run()
    assert whole == {"time": 1.7e9, "attempt": 2, "rank": 0, "data": rows.url, "epoch": 0, "ended": True} | whole
    assert (whole["samples"], left["samples"], left["epoch"], left["ended"], left["attempt"]) == (20, 8, 1, False, 2)


def test_a_long_epoch_has_a_line_for_each_minute(rows, run, clock):
    for _ in Loader(rows, 2):
        clock.now += 25

    assert [(line["samples"], line["ended"]) for line in run()] == [(8, False), (14, False), (20, True)]


STOPPED = """
import os, signal, sys
from penstock.data import Dataset, Loader

data = Dataset(sys.argv[1], "records", record_size=4)
for i, batch in enumerate(Loader(data, 8)):
    if i == 1:
        if sys.argv[2] == "child" and os.fork() != 0:
            sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
        os.kill(os.getpid(), signal.SIGTERM)
        print("still here")
"""


# penstock sends SIGTERM when a run is stopped and when the machine is preempted.
@pytest.mark.parametrize("where", ["here", "child"])
def test_a_training_that_sigterm_ends_leaves_a_line(tmp_path, run, where):
    (tmp_path / "rows.bin").write_bytes(bytes(80))

    out, _ = Child(STOPPED, [tmp_path / "rows.bin", where], {}).finished(-signal.SIGTERM if where == "here" else 256 - signal.SIGTERM)

    assert out == "" and [(line["samples"], line["ended"]) for line in run()] == [(16, False)]


# The loader replaces only the default handler, and restores it after the epoch.
def test_handlers_of_the_training_stay(rows, run):
    found = []
    for handler in (lambda *_: None, signal.SIG_IGN, signal.SIG_DFL):
        signal.signal(signal.SIGTERM, handler)
        for _ in Loader(rows, 8):
            during = signal.getsignal(signal.SIGTERM)
        found.append((during == handler, signal.getsignal(signal.SIGTERM) == handler))

    assert found == [(True, True), (True, True), (False, True)]


# The generator of the first epoch still exists when the next epoch begins.
def test_an_epoch_that_is_not_asked_for_more_is_written_before_the_next(rows, run):
    loader = Loader(rows, 8)
    first = iter(loader)
    for _ in range(3):
        next(first)
    list(loader)
    del first

    assert [(line["epoch"], line["samples"], line["ended"]) for line in run()] == [(0, 20, True), (1, 20, True)]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_ranks_have_files_of_their_own_and_workers_have_none(rows, run):
    for rank in range(2):
        list(Loader(rows, 4, rank=rank, world_size=2).dataloader(num_workers=2))

    assert [(line["rank"], line["samples"]) for line in run(0) + run(1)] == [(0, 10), (1, 10)]


def test_nothing_is_written_outside_of_a_run(rows, run, tmp_path, monkeypatch):
    monkeypatch.delenv("PENSTOCK_RUN_ID")

    list(Loader(rows, 8))

    assert not (tmp_path / "output").exists()


def test_an_output_that_cannot_be_written_is_a_warning(rows, run, tmp_path):
    (tmp_path / "output").write_text("")

    with pytest.warns(RuntimeWarning, match="output"):
        assert len(list(Loader(rows, 8))) == 3

"""Asynchronous saves: the training continues after the copy, and every error is reported."""
import os
import signal
import threading
import traceback

import numpy as np
import pytest
import torch

import penstock
from penstock import _native, checkpoint
from penstock._saver import saver
from penstock._torchfile import TorchState
from states import bits


@pytest.fixture
def gate(monkeypatch):
    """Saves wait before their first byte until the test calls gate.set()."""
    event, write = threading.Event(), TorchState.write

    def wait_and_write(self, saving, name):
        assert event.wait(120)
        write(self, saving, name)

    monkeypatch.setattr(TorchState, "write", wait_and_write)
    yield event
    event.set()
    try:
        checkpoint.wait()
    except penstock.CheckpointError:
        pass


@pytest.fixture
def broken():
    """broken() makes all saves fail; broken.mend() makes them succeed again."""

    def fail(self, saving, name):
        raise OSError("the disk is on fire")

    with pytest.MonkeyPatch.context() as patch:

        def begin():
            patch.setattr(TorchState, "write", fail)

        begin.mend = patch.undo
        yield begin


def test_the_training_goes_on_and_what_it_changes_is_not_saved(place, gate):
    model = {"w": torch.arange(100_000.0), "n": [1], "tied": None, "a": np.arange(5)}
    model["tied"] = model["w"]
    before = bits(model)

    pending = checkpoint.save(model, 1, asynchronous=True)
    model["w"].zero_(), model["n"].append(2), model["a"].fill(7)
    under_way = pending.done()
    gate.set()
    path = pending.wait()

    assert not under_way and bits(checkpoint.load()) == before
    assert path == checkpoint.latest().path == str(place / "step-000000000001-1")


def test_the_next_save_waits_for_the_one_before_and_uses_its_memory(place, gate):
    first = checkpoint.save({"x": torch.zeros(1000)}, 1, asynchronous=True)
    address = checkpoint._buffer.address
    threading.Timer(0.05, gate.set).start()
    checkpoint.save({"x": torch.ones(1000)}, 2, asynchronous=True)
    there = first.done()
    checkpoint.wait()

    assert there and checkpoint._buffer.address == address != 0
    assert [found.step for found in checkpoint.list_all()] == [2, 1]
    assert bits(checkpoint.load(place / "step-000000000001-1")) == bits({"x": torch.zeros(1000)})


def test_a_larger_state_gets_a_larger_buffer(place):
    for step, count in ((1, 10), (2, 3_000_000), (3, 20)):
        checkpoint.save({"x": torch.full((count,), float(step))}, step, asynchronous=True)
    checkpoint.wait()

    assert checkpoint._buffer.size >= 12_000_000
    for step, count in ((1, 10), (2, 3_000_000), (3, 20)):
        assert bits(checkpoint.load(place / f"step-{step:012d}-1")) == bits({"x": torch.full((count,), float(step))})


@pytest.mark.parametrize("ask", ["save", "wait", "latest"])
def test_an_error_reaches_the_training_at_its_next_call_and_once(place, broken, ask):
    checkpoint.save({"x": 1}, 1)
    broken()
    checkpoint.save({"x": 2}, 2, asynchronous=True)

    with pytest.raises(penstock.CheckpointError, match="step 2 .*on fire"):
        {"save": lambda: checkpoint.save({"x": 3}, 3), "wait": checkpoint.wait, "latest": checkpoint.latest}[ask]()
    broken.mend()
    checkpoint.wait()
    after = checkpoint.load()
    checkpoint.save({"x": 3}, 3)

    assert after == {"x": 1} and checkpoint.load() == {"x": 3}
    assert sorted(path.name for path in place.iterdir()) == ["step-000000000001-1", "step-000000000003-1"]


def test_whoever_waited_for_the_save_itself_has_seen_its_error(place, broken):
    broken()
    pending = checkpoint.save({"x": 2}, 2, asynchronous=True)

    with pytest.raises(OSError, match="on fire"):
        pending.wait()
    checkpoint.wait()

    assert saver.pending is None and checkpoint.latest() is None


# The script ends directly after the save.
def test_the_interpreter_waits_for_the_save_before_it_ends(place, child):
    script = """
import time
from penstock import _safetensors, checkpoint
write = _safetensors.SafetensorsState.write
def late(self, saving, name):
    time.sleep(0.5)
    write(self, saving, name)
_safetensors.SafetensorsState.write = late
checkpoint.save({"x": 1}, 1, format="safetensors", asynchronous=True)
"""
    child(script).finished()

    assert checkpoint.load() == {"x": 1}


def test_an_error_that_nobody_asked_for_is_said_at_the_end(place, child):
    script = """
from penstock import checkpoint
checkpoint.save({"x": 1}, 1, dir="/dev/null/there", format="safetensors", asynchronous=True)
"""
    _, err = child(script).finished()

    assert err.startswith("penstock: saving step 1 in /dev/null/there failed: ") and err.count("\n") == 1


def test_a_child_of_fork_has_nothing_to_do_with_the_save(place, gate):
    checkpoint.save({"x": 1}, 1, asynchronous=True)

    pid = os.fork()
    if pid == 0:
        signal.alarm(60)  # ends the child if wait() hangs
        checkpoint.wait()
        os._exit(7 if saver.pending is None else 8)
    _, status = os.waitpid(pid, 0)
    gate.set()
    checkpoint.wait()

    assert os.waitstatus_to_exitcode(status) == 7 and checkpoint.load() == {"x": 1}


def in_child(function):
    """Calls the function in a forked child; returns the child's exit status."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)  # ends the child if the function hangs
        try:
            function()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_child_of_fork_is_told_that_the_save_is_not_its_own(place, gate):
    pending = checkpoint.save({"x": 1}, 1, asynchronous=True)

    def ask():
        with pytest.raises(penstock.CheckpointError, match="step 1 "):
            pending.wait()

    status = in_child(ask)
    gate.set()

    assert status == 0 and checkpoint.load(pending.wait()) == {"x": 1}


# A forked child gets zeros in place of the memory that asynchronous saves copy into, and must still
# be able to save.
def test_a_child_of_fork_saves_for_itself(place, tmp_path, gate):
    state = {"x": torch.arange(100_000.0)}
    pending = checkpoint.save(state, 1, asynchronous=True)

    def save():
        gate.set()
        checkpoint.save({"x": state["x"] + 1}, 2, dir=tmp_path / "child", asynchronous=True)
        checkpoint.wait()

    status = in_child(save)
    gate.set()
    pending.wait()

    assert status == 0 and bits(checkpoint.load()) == bits(state)
    assert bits(checkpoint.load(dir=tmp_path / "child")) == bits({"x": state["x"] + 1})


# A worker that a DataLoader starts while torch.distributed.checkpoint saves inherits the handle of
# the save. The worker can neither write to the checkpoint nor remove its files.
def test_what_a_child_of_fork_lets_go_of_stays_with_the_parent(place):
    held = [_native.Saving(os.fsencode(place), 1, 0, 1, {}, 10.0)]
    held[0].write("a", b"first")

    def let_go():
        with pytest.raises(penstock.CheckpointError, match="process"):
            held[0].write("a", b"child")
        held.clear()

    status = in_child(let_go)
    held[0].write("a", b" second")
    held[0].commit()

    assert status == 0 and (place / "step-000000000001-1" / "a").read_bytes() == b"first second"


@pytest.fixture
def on_signal():
    """on_signal(function): calls the function when SIGUSR1 arrives."""
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda function: signal.signal(signal.SIGUSR1, lambda *_: function())
    signal.signal(signal.SIGUSR1, before)


def is_at_it():
    """Returns true while the main thread is inside of save()."""
    free = saver.lock.acquire(blocking=False)
    if free:
        saver.lock.release()
    return not free


# A training may save in its SIGTERM handler, which can interrupt any code: here a save that waits
# while the previous save is still being written.
def test_a_handler_that_saves_in_the_middle_of_a_save_leaves_the_one_under_way_as_it_was(place, gate, on_signal, wait_for):
    returned = threading.Event()
    on_signal(lambda: (checkpoint.save({"x": torch.full((1000,), 3.0)}, 3, asynchronous=True), returned.set()))
    main = threading.main_thread().ident

    def interrupt():
        wait_for(is_at_it, "the second save")
        signal.pthread_kill(main, signal.SIGUSR1)
        returned.wait(0.5)  # ends early only if the save in the handler does not wait for the first save
        gate.set()

    thread = threading.Thread(target=interrupt)
    checkpoint.save({"x": torch.full((1000,), 1.0)}, 1, asynchronous=True)
    thread.start()
    checkpoint.save({"x": torch.full((1000,), 2.0)}, 2, asynchronous=True)
    thread.join()
    checkpoint.wait()

    assert [found.step for found in checkpoint.list_all()] == [3, 2, 1]
    for step in (1, 2, 3):
        assert bits(checkpoint.load(place / f"step-{step:012d}-1")) == bits({"x": torch.full((1000,), float(step))})


def test_a_handler_that_saves_the_same_step_waits_for_it(place, on_signal, monkeypatch):
    write, entered, paths = TorchState.write, threading.Event(), []

    def save_again():
        entered.set()
        paths.append(checkpoint.save({"x": 1}, 1))

    def interrupted(self, saving, name):
        if not entered.is_set():
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
            assert entered.wait(120)
            paths or threading.Event().wait(0.2)  # gives a handler that does not wait the time to write to the same directory
        write(self, saving, name)

    on_signal(save_again)
    monkeypatch.setattr(TorchState, "write", interrupted)

    paths.append(checkpoint.save({"x": 1}, 1))

    assert paths == [str(place / "step-000000000001-1")] * 2 and checkpoint.load() == {"x": 1}


# From Python 3.12 on, no thread can be started once the interpreter shuts down, so saves in atexit
# functions run without a thread.
@pytest.mark.parametrize("asynchronous", [False, True])
def test_where_no_thread_can_be_started_it_is_saved_without(place, monkeypatch, asynchronous):
    def fail(self):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", fail)

    checkpoint.save({"x": 1}, 1, asynchronous=asynchronous)

    assert [found.step for found in checkpoint.list_all()] == [1] and checkpoint.load() == {"x": 1}


def test_an_asynchronous_save_of_what_is_saved_has_ended(place):
    path = checkpoint.save({"x": 1}, 1)

    pending = checkpoint.save({"x": 1}, 1, asynchronous=True)

    assert pending.done() and pending.wait() == path


@pytest.fixture
def interruptible():
    """Makes Ctrl-C raise KeyboardInterrupt, even if the caller ignores SIGINT, as shells do for background jobs."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


# The tensors belong to the caller: after save() has raised an exception, no thread may read them.
def test_an_interrupted_save_has_ended_when_the_interruption_comes_out(place, interruptible, monkeypatch):
    events = []

    def interrupt(self, saving, name):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        for _ in range(200):
            saving.write(name, bytes(100_000))
        events.append("written")

    monkeypatch.setattr(TorchState, "write", interrupt)

    with pytest.raises(KeyboardInterrupt):
        checkpoint.save({"x": torch.zeros(10)}, 1)
    events.append("raised")

    assert events == ["written", "raised"] and saver.pending is None


def test_an_interrupted_save_waits_for_other_ranks_no_more(place, interruptible, monkeypatch):
    monkeypatch.setenv("RANK", "0"), monkeypatch.setenv("WORLD_SIZE", "2")
    write = TorchState.write

    def interrupt(self, saving, name):
        write(self, saving, name)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    monkeypatch.setattr(TorchState, "write", interrupt)

    with pytest.raises(KeyboardInterrupt):
        checkpoint.save({"x": torch.zeros(10)}, 1, timeout=100_000)

    assert saver.pending is None and checkpoint.list_all() == []

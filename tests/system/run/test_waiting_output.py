"""Output that only this machine has must survive all later attempts."""
import functools
import shutil
import signal

import pytest

from harness import progress
from harness.program import Penstock
from harness.workflows import s3_place, write_workflow



@pytest.fixture
def workflow(tmp_path):
    """workflow(*steps, **fields): the path of a workflow file."""
    return functools.partial(write_workflow, tmp_path)


def test_an_attempt_that_cannot_begin_keeps_what_a_lost_one_left(penstock, workflow, store):
    # The run is killed while the store is unavailable. The store is still unavailable for the next attempt, and the output must not be lost.
    path = workflow(
        "echo ready; while [ ! -e $STORAGE_PATH/go ]; do sleep 0.02; done; echo 7 > $DEEPSQUARE_OUTPUT/ckpt; sleep 0.5; echo saved; sleep 1000",
        output=s3_place(store), continuousOutputSync=True, name="w",
    )  # fmt: skip
    run = penstock.popen("run", path)
    run.wait_for_output("ready")
    store.kill()
    (storage,) = penstock.home.glob("runs/*/storage")
    (storage / "go").touch()
    run.wait_for_output("saved")
    run.kill()

    failed = penstock.popen("run", path)
    failed.wait_for_output(progress.CONTINUES, 30)
    failed.send(signal.SIGINT)  # without the signal the retries would take minutes
    assert failed.wait(60).code in (69, 130)
    refused = penstock.run("run", path, env={"PENSTOCK_NETWORK_PATIENCE": "0"}).exits(69)

    assert "penstock flush" in refused.err
    assert (storage / "output" / "ckpt").read_text() == "7\n"
    store.start(store.address)
    penstock.run("flush", "w").ok()
    assert store.bytes("out", "ckpt") == b"7\n"


def test_a_preempted_run_that_goes_on_in_vain_sends_no_half_output(penstock, workflow, http_server):
    # HTTP output is sent when the steps have ended, so an attempt that ends before its steps must
    # not send it.
    path = workflow(
        "echo half > $DEEPSQUARE_OUTPUT/a; echo started; exec sleep 1000", name="h",
        output={"http": {"url": http_server.url + "/up/result"}}, input={"http": {"url": http_server.add("/data", b"x")}},
    )  # fmt: skip
    run = penstock.popen("run", path, env={"PENSTOCK_STOP_GRACE": "0"})
    run.wait_for_output("started")
    run.send(signal.SIGTERM)
    run.wait().exits(75)

    (storage,) = penstock.home.glob("runs/*/storage")
    shutil.rmtree(storage / "input")
    shutil.rmtree(storage.parent / "state", ignore_errors=True)
    del http_server.contents["/data"]
    penstock.run("run", path).exits(66)

    # The run continues again, and fails.
    assert "penstock flush" in penstock.run("run", path).exits(66).err
    assert http_server.seen(method="PUT") == []
    assert (storage / "output" / "a").read_text() == "half\n"


def test_the_same_workflow_of_another_home_is_left_alone(penstock, workflow, tmp_path):
    # Without an output both runs have the same id. Only the leftover processes of the lost run are
    # ended, not those of the run that is live in the other home.
    path = workflow("echo started; exec sleep 1000")
    other = Penstock(tmp_path / "other")
    lives = other.popen("run", path)
    lives.wait_for_output("started")
    lost = penstock.popen("run", path)
    lost.wait_for_output("started")
    lost.kill()

    again = penstock.popen("run", path)
    again.wait_for_output("started")

    assert lives.running() and other.ps()[0]["state"] == "running"
    for run in (again, lives):
        run.send(signal.SIGINT)
        run.wait().exits(130)
    other.close()


def test_flush_completes_a_lost_run(penstock, workflow, store):
    path = workflow("echo 7 > $DEEPSQUARE_OUTPUT/ckpt; (setsid sleep 1000 &); sleep 0.5; echo saved; sleep 1000",
                    output=s3_place(store), continuousOutputSync=True, name="l")  # fmt: skip
    run = penstock.popen("run", path)
    run.wait_for_output("saved")
    run.kill()

    penstock.run("flush", "l").ok()

    assert store.bytes("out", "ckpt") == b"7\n" and penstock.ps()[0]["state"] == "lost"

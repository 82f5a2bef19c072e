"""One run on several machines. Each machine has its own home and its own PENSTOCK_MACHINE; the
machines share only a store."""
import json
import os
import random
import re
import signal
import threading
import time

import pytest

from harness import progress
from harness.fault_proxy import FaultProxy
from harness.program import Penstock, preloading
from harness.slow_link import SlowLink
from harness.small_store import SmallStore
from harness.workflows import RESOURCES, s3_place, write_workflow

STATE = ".penstock/runs/{}/state.json"
TERM_S = 1
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"


@pytest.fixture
def machine(tmp_path):
    """machine(name): the program on that machine; a second call with the same name returns the same
    program."""
    made = {}

    def get(name, term_s=TERM_S):
        if name not in made:
            made[name] = Penstock(tmp_path / f"machine-{name}")
            made[name].env |= {"PENSTOCK_MACHINE": name, "PENSTOCK_LEASE_TERM": str(term_s), "AT": str(tmp_path)}
        return made[name]

    yield get
    for program in made.values():
        program.close()


@pytest.fixture
def job(store, tmp_path):
    """job(*steps, **more): the path of a workflow whose output is s3://out/res/; a step is a command or (name, command)."""

    def write(*steps, file="wf.json", endpoint=None, secret=None, s3=None, **more):
        output = s3_place(store, "/res", endpoint=endpoint, **({"secretAccessKey": secret} if secret else {}) | (s3 or {}))
        named = [(f"s{i}", step) if isinstance(step, str) else step for i, step in enumerate(steps)]
        made = [{"name": name, "run": {"command": command, "shell": "/bin/bash"}} for name, command in named]
        env = [{"key": "AT", "value": str(tmp_path)}]
        return write_workflow(tmp_path, *made, file=file, **{"env": env, "enableLogging": True, "output": output, "continuousOutputSync": True} | more)

    return write


def state_of(store, identity):
    return json.loads(store.bytes("out", "res/" + STATE.format(identity)))


def identity_of(penstock):
    (run,) = penstock.ps()
    return run["id"]


def attempts(penstock):
    return [(a["attempt"], a["state"]) for a in penstock.run("show", "--json", identity_of(penstock)).json()["attempts"]]


def objects(store):
    """Returns the run's objects in the bucket, except logs and the objects that a live owner rewrites again and again."""
    pages = store.client.get_paginator("list_objects_v2").paginate(Bucket="out", Prefix="res/")
    all_of_them = {entry["Key"]: entry["ETag"] for page in pages for entry in page.get("Contents", [])}
    return {key: etag for key, etag in all_of_them.items() if not re.search(r"/log/\d+$|/(state|manifest)\.json$", key)}


def published(store, *keys):
    """Returns a condition for wait_for(), which is true once the manifest, which is written after
    the objects, has these names."""

    def look():
        there = store.keys("out", "res/") if any(b["Name"] == "out" for b in store.client.list_buckets()["Buckets"]) else []
        manifests = [key for key in there if key.endswith("/manifest.json")]
        return manifests and all(f'"{key}"'.encode() in store.bytes("out", manifests[0]) for key in keys)

    return look


# The first attempt writes one file of each kind; a later one prints the files that it finds.
MIXED = """trap 'exit 0' TERM; cd $DEEPSQUARE_OUTPUT
if [ -e ckpt ]; then
    echo "attempt $PENSTOCK_ATTEMPT: $(cat ckpt) $(cat sub/deep/file) $(readlink link) $(stat -c '%a %Y' sub/deep/file) $(find . -type d -empty)"
    [ -z "$STAY" ] && exit 0
fi
mkdir -p empty/inner sub/deep; ln -sf ckpt link; echo 7 > ckpt; echo deep > sub/deep/file
chmod 0754 sub/deep/file; touch -d @1000000000 sub/deep/file; echo saved
while :; do sleep 0.05; done"""
FOUND = "7 deep ckpt 754 1000000000 ./empty/inner"


def test_a_preempted_run_goes_on_elsewhere_at_once(machine, store, job, wait_for):
    # The state says that the run has no owner, so penstock need not watch the lease. The whole
    # output is restored, and the numbers of attempts continue.
    path = job("echo first $PENSTOCK_ATTEMPT", MIXED)
    first = machine("a").popen("run", path)
    first.wait_for_output("saved")
    wait_for(published(store, "ckpt", "link", "empty/inner", "sub/deep/file"))
    first.send(signal.SIGTERM)
    first.wait().exits(75)

    taken = machine("b").run("run", path).ok()

    assert not re.search(progress.WATCHING, taken.err) and "attempt 2" in taken.err
    assert taken.out == f"first 2\nattempt 2: {FOUND}\n"
    assert attempts(machine("b")) == [(2, "succeeded")] and state_of(store, identity_of(machine("b")))["attempt"] == 2
    # A run that has succeeded starts over, even if this machine's records only show the preemption.
    again = machine("a").popen("run", path)
    again.wait_for_output("saved")
    again.send(signal.SIGTERM)
    again = again.wait().exits(75)
    assert again.out == "first 3\nsaved\n"
    assert attempts(machine("a")) == [(1, "preempted"), (3, "preempted")]


def test_what_is_never_to_be_resumed_begins_anew_elsewhere(machine, store, job, wait_for):
    path = job("trap 'exit 0' TERM; ls $DEEPSQUARE_OUTPUT; echo 1 > $DEEPSQUARE_OUTPUT/x; echo attempt $PENSTOCK_ATTEMPT; "
               "while [ $PENSTOCK_ATTEMPT = 1 ]; do sleep 0.05; done", resume="never")  # fmt: skip
    first = machine("a").popen("run", path)
    first.wait_for_output("^attempt 1$")
    first.send(signal.SIGTERM)
    first.wait().exits(75)

    anew = machine("b").run("run", path).ok()

    assert anew.out == "attempt 2\n"


def test_a_lost_run_goes_on_elsewhere_after_one_term(machine, store, job, wait_for):
    path = job(MIXED)
    first = machine("a").popen("run", path)
    first.wait_for_output("saved")
    wait_for(published(store, "ckpt", "link", "empty/inner", "sub/deep/file"))
    first.kill()

    taken = machine("b").run("run", path).ok()

    assert re.search(f"{progress.WATCHING} {TERM_S} s", taken.err) and taken.seconds > TERM_S
    assert taken.out == f"attempt 2: {FOUND}\n"


def test_the_logs_of_all_attempts_are_whole_on_every_machine(machine, store, job, wait_for):
    path = job("trap 'exit 0' TERM; echo said by $PENSTOCK_ATTEMPT; [ $PENSTOCK_ATTEMPT -ge 3 ] || { echo now; while :; do sleep 0.05; done; }", name="talk")
    for name in ("a", "b"):
        run = machine(name).popen("run", path)
        run.wait_for_output("^now")
        run.send(signal.SIGTERM)
        run.wait().exits(75)
    machine("c").run("run", path).ok()

    logs = machine("c").run("logs", "--all", "talk").ok()
    first = machine("c").run("logs", "--attempt", "1", "talk").ok()
    store.stop()  # the machine has fetched the log, and keeps it
    kept = machine("c").run("logs", "--all", "talk").ok()

    assert [line for line in logs.out.splitlines() if line.startswith("said by")] == ["said by 1", "said by 2", "said by 3"]
    assert "said by 1" in first.out and "said by 2" not in first.out
    assert kept.out == logs.out
    store.start(store.address)
    remote = machine("d").run("logs", "--all", "s3://out/res", env=store.env).ok()
    assert remote.out == logs.out


def test_finished_steps_count_only_where_what_they_left_is(machine, store, job, wait_for):
    # On a new machine the first step runs again. The machine that has the storage of that step does
    # not repeat it.
    path = job(
        ("make", "echo making $PENSTOCK_ATTEMPT; echo made > $STORAGE_PATH/made"),
        ("use", "trap 'exit 0' TERM; cat $STORAGE_PATH/made; echo $PENSTOCK_ATTEMPT >> $DEEPSQUARE_OUTPUT/used; echo saved; "
                "[ $PENSTOCK_ATTEMPT = 3 ] && { cat $DEEPSQUARE_OUTPUT/used; exit 0; }; while :; do sleep 0.05; done"),
    )  # fmt: skip
    for name in ("a", "b"):
        run = machine(name).popen("run", path)
        run.wait_for_output("^saved")
        wait_for(lambda: published(store, "used")() and store.bytes("out", "res/used") == (b"1\n" if name == "a" else b"1\n2\n"))
        run.send(signal.SIGTERM)
        assert run.wait().exits(75).out == f"making {'ab'.index(name) + 1}\nmade\nsaved\n"

    back = machine("a").run("run", path).ok()

    assert back.out == "made\nsaved\n1\n2\n3\n"
    assert attempts(machine("a")) == [(1, "preempted"), (3, "succeeded")]


def test_storage_of_before_a_new_beginning_elsewhere_is_not_gone_on_with(machine, store, job, wait_for):
    path = job(
        ("make", "echo making $PENSTOCK_ATTEMPT; echo $PENSTOCK_ATTEMPT > $STORAGE_PATH/made"),
        ("use", "trap 'exit 0' TERM; cat $STORAGE_PATH/made; echo $PENSTOCK_ATTEMPT >> $DEEPSQUARE_OUTPUT/used; echo saved; "
                "[ $PENSTOCK_ATTEMPT = 3 ] && { cat $DEEPSQUARE_OUTPUT/used; exit 0; }; while :; do sleep 0.05; done"),
    )  # fmt: skip
    for name, options in (("a", ()), ("b", ("--fresh",))):
        run = machine(name).popen("run", path, *options)
        run.wait_for_output("^saved")
        wait_for(lambda: published(store, "used")() and store.bytes("out", "res/used") == (b"1\n" if name == "a" else b"2\n"))
        run.send(signal.SIGTERM)
        run.wait().exits(75)

    back = machine("a").run("run", path).ok()

    assert back.out == "making 3\n3\nsaved\n2\n3\n"


def test_what_failed_elsewhere_is_continued(machine, store, job, wait_for):
    path = job("echo $PENSTOCK_ATTEMPT >> $DEEPSQUARE_OUTPUT/x; cat $DEEPSQUARE_OUTPUT/x; exit 3", name="fails")
    machine("a").run("run", path).exits(3)

    resumed = machine("b").run("resume", "s3://out/res/fails", "--credentials-from", path, env=store.env).exits(3)
    again = machine("c").run("run", path).exits(3)
    anew = machine("c").run("run", "--fresh", path).exits(3)

    assert resumed.out == "1\n2\n" and again.out == "1\n2\n3\n" and anew.out == "4\n"


def test_what_went_on_elsewhere_is_not_flushed_over(machine, store, job, wait_for):
    # The output of the killed attempt is older than that of the other machine.
    path = job("echo $PENSTOCK_ATTEMPT > $DEEPSQUARE_OUTPUT/x; echo saved; [ $PENSTOCK_ATTEMPT = 2 ] && exit 0; while :; do sleep 0.05; done")
    first = machine("a").popen("run", path)
    first.wait_for_output("saved")
    wait_for(published(store, "x"))
    first.kill()
    machine("b").run("run", path).ok()

    refused = machine("a").run("flush", identity_of(machine("a")))

    assert refused.code != 0 and "attempt 2" in refused.err
    assert store.bytes("out", "res/x") == b"2\n"
    # After a `resume` on machine a, a flush still refuses, and state.json stays the same.
    before = store.bytes("out", f"res/.penstock/runs/{identity_of(machine('a'))}/state.json")
    for _ in range(2):
        machine("a").run("resume", identity_of(machine("a"))).ok()  # there is nothing to do
        again = machine("a").run("flush", identity_of(machine("a")))
        assert again.code == refused.code and "attempt 2" in again.err
    assert "'penstock flush" not in again.err and "'penstock rm --force" in again.err
    assert store.bytes("out", "res/x") == b"2\n"
    assert store.bytes("out", f"res/.penstock/runs/{identity_of(machine('a'))}/state.json") == before


def leave_unsent(penstock, path, wait_for):
    """Kills the first attempt once its step has written."""
    first = penstock.popen("run", path)
    wait_for(lambda: (path.parent / "began-1").exists(), 60, "the step to begin")
    first.kill()


@pytest.fixture
def superseded(machine, store, job, wait_for):
    """Machine a has output that was never uploaded, and that is older than machine b's. Returns the
    workflow, and the run's identity."""
    step = ("echo $PENSTOCK_ATTEMPT > $DEEPSQUARE_OUTPUT/x; touch $AT/began-$PENSTOCK_ATTEMPT; [ $PENSTOCK_ATTEMPT = 1 ] || exit 0; while :; do sleep 0.05; done")
    path = job(step, continuousOutputSync=False, name="first")
    leave_unsent(machine("a"), path, wait_for)
    machine("b").run("run", path).ok()
    assert store.bytes("out", "res/x") == b"2\n"
    return path, identity_of(machine("a"))


def is_refused_by_flush(penstock, store, identity):
    before = {key: store.bytes("out", key) for key in store.keys("out", "res/")}
    refused = penstock.run("flush", identity)
    return refused.code == 69 and "attempt 2 on" in refused.err and before == {key: store.bytes("out", key) for key in before}


def test_an_attempt_that_ends_before_it_restored_makes_nothing_here_newer(machine, store, job, wait_for):
    # The refused attempts owned the run for a while, but the machine's storage still has the old
    # files.
    step = ("echo $PENSTOCK_ATTEMPT > $DEEPSQUARE_OUTPUT/x; touch $AT/began-$PENSTOCK_ATTEMPT; trap 'exit 0' TERM; while :; do sleep 0.05; done")
    path = job(step, continuousOutputSync=False, name="first")
    leave_unsent(machine("a"), path, wait_for)
    second = machine("b").popen("run", path)
    wait_for(lambda: (path.parent / "began-2").exists(), 60, "the step to continue")
    second.send(signal.SIGTERM)
    second.wait().exits(75)
    assert store.bytes("out", "res/x") == b"2\n"
    identity = identity_of(machine("a"))

    for _ in range(2):
        machine("a").run("run", path, "--set", "input.local.path=/not-here").exits(66)
        assert is_refused_by_flush(machine("a"), store, identity)
    third = machine("a").popen("run", path)
    wait_for(lambda: any(path.parent.glob("began-[3-9]")), 60, "the step to continue here")
    third.send(signal.SIGTERM)
    third.wait().exits(75)

    assert int(store.bytes("out", "res/x")) > 2
    machine("a").run("flush", identity).ok()


def test_a_run_that_is_refused_its_output_leaves_the_state_whose_it_was(machine, store, job, wait_for, superseded):
    path, identity = superseded
    before = state_of(store, identity)
    log = store.bytes("out", f"res/.penstock/runs/{identity}/log/2")
    other = machine("c").popen("run", job("touch $AT/other; trap 'exit 0' TERM; while :; do sleep 0.05; done", file="other.json", name="other"))
    wait_for(lambda: (path.parent / "other").exists(), 60, "the other run to begin")

    machine("a").run("run", path).exits(69)
    assert state_of(store, identity) == before
    other.send(signal.SIGTERM)
    other.wait().exits(75)

    assert is_refused_by_flush(machine("a"), store, identity)
    assert store.bytes("out", f"res/.penstock/runs/{identity}/log/2") == log
    machine("a").run("run", path).ok()
    assert [store.bytes("out", key) for key in store.keys("out", "res/") if "/replaced/" in key] == [b"2\n"]
    # penstock sets aside files that only this machine has; only an explicit option removes them.
    refused = machine("a").run("rm", identity).exits(73)
    assert "output.before-" in refused.err and list(machine("a").home.glob("runs/*/output.before-*/x"))
    machine("a").run("rm", "--force", identity).ok()


def test_a_flush_that_fails_leaves_the_end_as_it_was(machine, store, job):
    deep = "cd $DEEPSQUARE_OUTPUT; for i in 1 2 3 4 5 6; do d=$(printf 'd%.0s' {1..200}); mkdir $d; cd $d; done; echo y > y"
    path = job(deep, name="deep")
    machine("a").run("run", path).exits(73)
    identity = identity_of(machine("a"))
    before = state_of(store, identity)

    machine("a").run("flush", identity).exits(73)

    after = state_of(store, identity)
    assert [after[key] for key in ("state", "class", "exit_code")] == [before[key] for key in ("state", "class", "exit_code")] == ["failed", "output", 73]


def test_what_a_fenced_owner_wrote_goes_by_force_only(machine, store, job, wait_for):
    path = job("touch $AT/began; while [ ! -e $AT/go ]; do sleep 0.05; done; echo only > $DEEPSQUARE_OUTPUT/only", name="fenced", continuousOutputSync=False)
    first = machine("a").popen("run", path)
    wait_for(lambda: (path.parent / "began").exists(), 60, "the step to begin")
    first.send(signal.SIGSTOP)
    (path.parent / "go").touch()
    machine("b").run("run", path).ok()
    first.send(signal.SIGCONT)
    first.wait().exits(69)
    identity = identity_of(machine("a"))

    refused = machine("a").run("rm", identity).exits(73)

    assert "--force" in refused.err and list(machine("a").home.glob("runs/*/storage/output/only"))
    machine("a").run("rm", "--force", identity).ok()


# --- fencing


STALE = """cd $DEEPSQUARE_OUTPUT
if [ $PENSTOCK_ATTEMPT = 1 ]; then
    echo 1 > x; echo 1 > y; echo 1 > gone; echo saved
    while [ ! -e $AT/stopped ]; do sleep 0.02; done
    echo stale > y; echo stale > new; rm gone; touch $AT/stale
    while :; do sleep 0.05; done
fi
echo $PENSTOCK_ATTEMPT > x; echo went on; while [ ! -e $AT/enough ]; do sleep 0.02; done"""


@pytest.fixture
def suspended(machine, store, job, tmp_path, wait_for):
    """An owner that is suspended while its step continues, and a second owner that has taken over.
    Returns both processes."""
    path = job(STALE, s3={"deleteSync": True})
    first = machine("a").popen("run", path)
    first.wait_for_output("saved")
    wait_for(published(store, "x", "y", "gone"))
    os.kill(first.pid, signal.SIGSTOP)
    (tmp_path / "stopped").touch()
    wait_for(lambda: (tmp_path / "stale").exists())
    second = machine("b").popen("run", path)
    second.wait_for_output("went on")
    wait_for(lambda: store.bytes("out", "res/x") == b"2\n")
    return first, second


def test_a_suspended_owner_that_wakes_up_changes_nothing(machine, store, suspended, tmp_path, wait_for):
    # The old owner neither overwrites, adds nor deletes objects, and its message names the new
    # owner.
    first, second = suspended
    before = objects(store)

    os.kill(first.pid, signal.SIGCONT)
    ended = first.wait().exits(69)
    after = objects(store)
    (tmp_path / "enough").touch()
    second.wait().ok()

    assert after == before and "res/new" not in after
    (manifest,) = [key for key in store.keys("out", "res/") if key.endswith("/manifest.json")]
    assert b'"new"' not in store.bytes("out", manifest) and b'"gone"' in store.bytes("out", manifest)
    assert re.search(rf"attempt 2 on \S+ .*\b{second.pid}, running, since 20", ended.err)

    assert store.bytes("out", "res/y") == b"1\n"
    (storage,) = machine("a").home.glob("runs/*/storage/output")
    assert (storage / "new").read_text() == "stale\n"
    assert state_of(store, identity_of(machine("b")))["state"] == "succeeded"
    # After the run has ended on machine b, the same command on machine a starts over without losing
    # the local files.
    anew = machine("a").popen("run", tmp_path / "wf.json")
    anew.wait_for_output("went on")
    assert [path.read_text() for path in machine("a").home.glob("runs/*/output.before-*/new")] == ["stale\n"]
    anew.wait().ok()


def test_the_steps_of_a_lost_run_end_although_a_notice_is_withdrawn(machine, store, job, tmp_path, wait_for):
    evict = tmp_path / "evict"
    path = job("""[ $PENSTOCK_ATTEMPT = 1 ] || exit 0
        trap 'touch $AT/asked' TERM; echo up; while :; do sleep 0.02; done""", preemption={"sources": [{"file": str(evict)}]})  # fmt: skip
    first = machine("a").popen("run", path, env={"PENSTOCK_STOP_GRACE": "5s"})
    first.wait_for_output("up")
    os.kill(first.pid, signal.SIGSTOP)
    machine("b").run("run", path).ok()
    os.kill(first.pid, signal.SIGCONT)
    wait_for(lambda: (tmp_path / "asked").exists(), 60, "the lost lease to be noticed")

    evict.touch()
    first.wait_for_output(progress.NOTICE_OF)
    evict.unlink()
    first.wait_for_output(progress.WITHDRAWN)

    first.wait(60).exits(69)


def test_an_upload_that_was_under_way_when_its_owner_stood_still_never_appears(machine, store, job, tmp_path, wait_for):
    link = SlowLink(store.endpoint)
    path = job("""cd $DEEPSQUARE_OUTPUT
        if [ $PENSTOCK_ATTEMPT = 1 ]; then
            echo 1 > x; echo saved; while [ ! -e $AT/go ]; do sleep 0.02; done
            head -c 15000000 /dev/urandom > big; echo wrote; while :; do sleep 0.05; done
        fi
        echo $PENSTOCK_ATTEMPT > x; echo went on; while [ ! -e $AT/enough ]; do sleep 0.02; done""", endpoint=link.url)  # fmt: skip
    first = machine("a").popen("run", path)
    first.wait_for_output("saved")
    wait_for(published(store, "x"))
    identity = identity_of(machine("a"))
    link.open(rate=2_000_000)
    carried = link.carried
    (tmp_path / "go").touch()
    wait_for(lambda: link.carried - carried > 1_000_000)
    os.kill(first.pid, signal.SIGSTOP)
    assert "res/big" not in store.keys("out")

    second = machine("b").popen("resume", f"s3://out/res/{identity}", "--set", f"output.s3.endpointUrl={store.endpoint}",
                                "--credentials-from", path, env=store.env)  # fmt: skip
    second.wait_for_output("went on")
    os.kill(first.pid, signal.SIGCONT)
    link.open()
    first.wait().exits(69)
    (tmp_path / "enough").touch()
    second.wait().ok()

    assert "res/big" not in store.keys("out")
    link.close()


def stays(condition, seconds=2):
    """Checks that the condition is true and stays true."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert condition()
        time.sleep(0.05)


def stand_still(run, tmp_path, wait_for):
    """Suspends the owner, whose step continues to write."""
    os.kill(run.pid, signal.SIGSTOP)
    (tmp_path / "stopped").touch()
    wait_for(lambda: (tmp_path / "stale").exists())


def test_who_wakes_up_changes_nothing_before_it_knows_whose_the_run_is(machine, store, job, tmp_path, wait_for):
    # The owner that wakes up has a file to upload, and the reply to its renewal is late. The gate
    # stops the upload, and so does the manifest's condition.
    with FaultProxy(store.endpoint) as proxy:
        path = job(STALE, endpoint=proxy.url)
        first = machine("a").popen("run", path)
        first.wait_for_output("saved")
        wait_for(published(store, "x", "y", "gone"))
        stand_still(first, tmp_path, wait_for)
        second = machine("b").popen("resume", f"s3://out/res/{identity_of(machine('a'))}", "--set", f"output.s3.endpointUrl={store.endpoint}",
                                    "--credentials-from", path, env=store.env)  # fmt: skip
        second.wait_for_output("went on")
        wait_for(lambda: store.bytes("out", "res/x") == b"2\n")
        before = objects(store)

        asked = proxy.fault(method="GET|PUT", path=r"/state\.json$", hold="request", times=1000)
        os.kill(first.pid, signal.SIGCONT)
        asked.wait()
        stays(lambda: objects(store) == before)
        asked.stop()
        asked.release()

        first.wait().exits(69)
        (tmp_path / "enough").touch()
        second.wait().ok()
    assert "res/new" not in store.keys("out", "res/")


def test_who_wakes_up_changes_nothing_before_it_knows_whose_the_output_is(machine, store, job, tmp_path, wait_for):
    # The owner that wakes up still has the lease of its run, and renews it at once, but the output
    # belongs to another run now. Only the gate prevents an upload.
    with FaultProxy(store.endpoint) as proxy:
        first = machine("a").popen("run", job(STALE, endpoint=proxy.url, name="first"))
        first.wait_for_output("saved")
        wait_for(published(store, "x", "y", "gone"))
        stand_still(first, tmp_path, wait_for)
        second = machine("b").popen("run", job("echo 2 > $DEEPSQUARE_OUTPUT/x; echo went on; while [ ! -e $AT/enough ]; do sleep 0.02; done", file="second.json", name="second"))
        second.wait_for_output("went on")
        wait_for(lambda: store.bytes("out", "res/x") == b"2\n")
        before = objects(store)

        asked = proxy.fault(method="GET", path=r"/owner\.json$", hold="request", times=1000)
        os.kill(first.pid, signal.SIGCONT)
        asked.wait()
        stays(lambda: objects(store) == before)
        asked.stop()
        asked.release()

        first.wait().exits(69)
        (tmp_path / "enough").touch()
        second.wait().ok()
    assert "res/new" not in store.keys("out", "res/")


def test_who_stood_still_while_it_took_the_run_does_not_begin(machine, store, job, tmp_path):
    with FaultProxy(store.endpoint) as proxy:
        step = "echo ran on $ON; while [ ! -e $AT/enough ]; do sleep 0.02; done"
        asked = proxy.fault(method="GET", path=r"/owner\.json$", hold="request")
        first = machine("a").popen("run", job(step, endpoint=proxy.url, name="t"), "--env", "ON=a")
        asked.wait()
        second = machine("b").popen("run", job(step, endpoint=proxy.url, name="t"), "--env", "ON=b")
        second.wait_for_output("ran on b")
        asked.release()

        refused = first.wait().exits(69)
        (tmp_path / "enough").touch()
        second.wait().ok()

    assert refused.out == "" and identity_of(machine("b")) in refused.err


def test_a_run_that_ends_while_another_machine_waits_for_that_is_not_begun_anew(machine, store, job, tmp_path):
    # Both commands asked for the same execution of the run, so the run must not start over after
    # the first command's success.
    path = job("echo ran; while [ ! -e $AT/enough ]; do sleep 0.02; done; date +%N > $DEEPSQUARE_OUTPUT/x", name="t")
    first = machine("a", term_s=30).popen("run", path)
    first.wait_for_output("ran")
    second = machine("b", term_s=30).popen("run", path)
    second.wait_for_output(f"{progress.WATCHING} 30 s")
    (tmp_path / "enough").touch()
    first.wait().ok()
    there = store.bytes("out", "res/x")

    refused = second.wait().exits(69)

    assert refused.out == "" and identity_of(machine("a")) in refused.err
    assert store.bytes("out", "res/x") == there


def test_where_conditions_are_ignored_an_owner_looks_before_it_writes(machine, tmp_path, wait_for):
    # This store would accept the old owner's renewals, which would overwrite the new owner's state
    # again and again.
    with SmallStore(conditions=False) as small:
        s3 = {"region": "us-east-1", "bucketUrl": "s3://out", "path": "/", "accessKeyId": "K" * 16, "secretAccessKey": "S" * 30, "endpointUrl": small.endpoint}
        path = tmp_path / "wf.json"
        path.write_text(json.dumps({"name": "t", "resources": RESOURCES, "output": {"s3": s3}, "steps": [{"name": "s", "run": {"command": "echo ran; while :; do sleep 0.05; done"}}]}))
        first = machine("a").popen("run", path)
        first.wait_for_output("ran")
        key = "out/" + STATE.format(identity_of(machine("a")))
        state = json.loads(small.objects[key][-1].body)
        theirs = json.dumps(state | {"attempt": 2, "owner": state["owner"] | {"boot_id": "another", "host": "node7"}}).encode()

        small.put(key, theirs)

        ended = first.wait().exits(69)
        assert "attempt 2 on node7" in ended.err and small.objects[key][-1].body == theirs


@pytest.mark.parametrize("killed", [False, True])
def test_a_run_that_begins_again_while_its_output_is_taken_keeps_it(machine, store, job, tmp_path, wait_for, killed):
    # The other run has seen that the first run has ended. A moment later, the other run writes
    # itself into owner.json as the owner of the output.
    wait = "echo ran; echo $NAME > $DEEPSQUARE_OUTPUT/x; while [ ! -e $AT/enough ]; do sleep 0.02; done"
    first, second = (job(wait, file=f"{name}.json", name=name, env=[{"key": "NAME", "value": name}, {"key": "AT", "value": str(tmp_path)}]) for name in ("first", "second"))
    (tmp_path / "enough").touch()
    machine("a").run("run", first).ok()
    (tmp_path / "enough").unlink()
    with FaultProxy(store.endpoint) as proxy:
        taking = proxy.fault(method="PUT", path=r"/owner\.json$", hold="request")
        other = machine("b").popen("run", second, "--set", f"output.s3.endpointUrl={proxy.url}")
        taking.wait()
        again = machine("a").popen("run", first)
        again.wait_for_output("ran")
        looking = proxy.fault(method="GET", path=rf"/{identity_of(machine('a'))}/state\.json$", hold="request")
        taking.release()
        looking.wait()
        # Wait for two renewals of the owner. By then, the owner has read the name of the other run
        # in owner.json.
        beat = state_of(store, identity_of(machine("a")))["lease"]["beat"]
        wait_for(lambda: state_of(store, identity_of(machine("a")))["lease"]["beat"] >= beat + 2)
        if killed:
            other.send(signal.SIGKILL)
        looking.release()

        refused = other.wait()

        assert refused.code == (-signal.SIGKILL if killed else 69) and refused.out == ""
        assert killed or "s3://out/res/" in refused.err
        wait_for(lambda: json.loads(store.bytes("out", "res/.penstock/owner.json"))["run"] == identity_of(machine("a")))
        wait_for(lambda: store.bytes("out", "res/x") == b"first\n")
        (tmp_path / "enough").touch()
        again.wait().ok()


# --- all together, with wrong clocks and broken connections


@pytest.mark.parametrize("before", ["nothing", "preempted"])
def test_of_machines_that_begin_at_one_moment_one_runs(machine, store, job, tmp_path, before):
    alone = "mkdir $AT/alone || exit 99; echo ran; while [ ! -e $AT/enough ]; do sleep 0.02; done; rmdir $AT/alone"
    path = job(f"[ -e $AT/first ] || {{ touch $AT/first; {'exit 0' if before == 'nothing' else 'trap exit TERM; echo saved; while :; do sleep 0.05; done'}; }}; {alone}")
    if before == "preempted":
        run = machine("0").popen("run", path)
        run.wait_for_output("saved")
        run.send(signal.SIGTERM)
        run.wait().exits(75)
    (tmp_path / "first").touch()

    runs = [machine(str(i), term_s=6).popen("run", path) for i in range(1, 6)]
    ends = {}

    def collect(run):
        ends[run] = run.wait()

    threads = [threading.Thread(target=collect, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    while len(ends) < 4 and all(end.code == 69 for end in list(ends.values())):
        time.sleep(0.05)
        assert any(thread.is_alive() for thread in threads)
    (tmp_path / "enough").touch()
    for thread in threads:
        thread.join()

    assert sorted(end.code for end in ends.values()) == [0, 69, 69, 69, 69], [end.err for end in ends.values()]
    assert all(end.out == "" for end in ends.values() if end.code == 69)


@pytest.mark.preloads
@pytest.mark.parametrize("offset", ["-3d", "+400d"])
def test_a_wrong_clock_changes_nothing(machine, store, job, wait_for, offset):
    # The clock of one machine is wrong: ownership uses monotonic clocks, and requests are signed with the store's time.
    path = job(MIXED)
    assert os.path.exists(FAKETIME), "Debian's package faketime is missing; see make deps"
    fake = preloading(FAKETIME) | {"FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    first = machine("a").popen("run", path, env=fake if offset == "+400d" else {})
    first.wait_for_output("saved")
    wait_for(published(store, "ckpt", "link", "empty/inner", "sub/deep/file"))
    first.kill()

    taken = machine("b").run("run", path, env={} if offset == "+400d" else fake).ok()

    assert re.search(f"{progress.WATCHING} {TERM_S} s", taken.err) and taken.seconds > TERM_S
    assert taken.out == f"attempt 2: {FOUND}\n"


def test_a_store_that_goes_away_during_the_flush_and_comes_back(machine, store, job, wait_for):
    # The store is unreachable for longer than a term. When it is back, the owner renews its lease
    # before it sends anything else, and the run ends as without the outage.
    path = job("echo 1 > $DEEPSQUARE_OUTPUT/a; echo saved; trap 'echo 2 > $DEEPSQUARE_OUTPUT/b; exit 0' TERM; "
               "[ $PENSTOCK_ATTEMPT = 2 ] && { cat $DEEPSQUARE_OUTPUT/b; exit 0; }; while :; do sleep 0.05; done")  # fmt: skip
    first = machine("a").popen("run", path, "--quiet")
    first.wait_for_output("saved")
    wait_for(published(store, "a"))
    address = store.address
    store.stop()
    first.send(signal.SIGTERM)
    gone = time.monotonic()
    wait_for(lambda: machine("a").ps()[0]["state"] == "flushing")
    wait_for(lambda: time.monotonic() - gone > TERM_S + 1)
    store.start(address)

    first.wait().exits(75)
    taken = machine("b").run("run", path).ok()

    assert taken.out == "saved\n2\n" and "watching" not in taken.err


@pytest.mark.parametrize("rounds", [2, pytest.param(40, marks=pytest.mark.long)])
def test_killed_at_any_moment_on_one_machine_after_the_other(machine, store, job, tmp_path, wait_for, rounds):
    # All files are in one directory, because `count` must not be published before the files that it
    # counts, and that order holds only within a directory.
    path = job("""cd $DEEPSQUARE_OUTPUT
        n=$(cat count 2>/dev/null || echo 0)
        for i in $(seq $n); do [ -s v$i.sum ] && [ "$(sha256sum < v$i)" = "$(cat v$i.sum)" ] || { echo torn v$i; exit 9; }; done
        echo found $n; [ -e $AT/last ] && exit 0
        while :; do
            n=$((n + 1)); head -c 50000 /dev/urandom > v$n; sha256sum < v$n > v$n.sum; sync -d v$n.sum
            echo $n > .count; mv .count count; sleep 0.05
        done""")  # fmt: skip
    seed = random.Random(os.environ.get("PENSTOCK_KILL_SEED", "takeover"))
    found = []
    for i in range(rounds):
        run = machine(f"m{i}").popen("run", path)
        time.sleep(seed.random() * 2.5)  # at any point of the run
        run.kill()
        found += [int(n) for n in re.findall(r"^found (\d+)$", run.out, re.M)]
    (tmp_path / "last").touch()
    last = machine("last").run("run", path).ok()
    found += [int(n) for n in re.findall(r"^found (\d+)$", last.out, re.M)]

    assert "torn" not in last.out and found == sorted(found)
    numbers = [a["attempt"] for a in machine("last").run("show", "--json", identity_of(machine("last"))).json()["attempts"]]
    assert numbers == [state_of(store, identity_of(machine("last")))["attempt"]]


# --- resuming from the state alone


def test_resume_needs_only_the_place_of_the_output(machine, store, job, wait_for, tmp_path):
    # penstock takes the workflow from the state, and credentials from their sources. The error
    # names a missing source.
    path = job(MIXED, name="train", secret="${{ secrets.STORE_KEY }}", s3={"accessKeyId": "${{ env.AWS_ACCESS_KEY_ID }}"})
    secret = {"PENSTOCK_SECRET_STORE_KEY": store.secret_key, "AWS_ACCESS_KEY_ID": store.access_key}
    first = machine("a").popen("run", path, env=secret)
    first.wait_for_output("saved")
    identity = identity_of(machine("a"))
    wait_for(published(store, "ckpt", "link", "empty/inner", "sub/deep/file"))
    first.send(signal.SIGTERM)
    first.wait().exits(75)
    path.unlink()

    assert store.secret_key.encode() not in store.bytes("out", f"res/.penstock/runs/{identity}/workflow")
    gone = machine("b").run("resume", "s3://out/res/train", env=store.env)
    none = machine("b").run("resume", "s3://out/res/other", env=store.env)
    by_name = machine("b").popen("resume", "s3://out/res/train", env=store.env | secret | {"STAY": "1"})
    by_name.wait_for_output("saved")
    by_name.send(signal.SIGTERM)
    by_name = by_name.wait().exits(75)
    by_id = machine("c").run("resume", f"s3://out/res/{identity[:6]}", env=store.env | secret).ok()

    assert gone.code != 0 and "STORE_KEY" in gone.err and gone.out == ""
    assert none.exits(66) and "other" in none.err
    assert f"attempt 2: {FOUND}" in by_name.out and by_id.out == f"attempt 3: {FOUND}\n"
    # The run belongs to this machine from now on.
    assert machine("c").ps()[0]["name"] == "train"
    ended = machine("d").run("resume", "s3://out/res/train", env=store.env | secret).ok()
    assert "succeeded" in ended.err


def test_resume_takes_keys_that_stood_in_the_file_from_another(machine, store, job, wait_for):
    path = job(MIXED)
    first = machine("a").popen("run", path)
    first.wait_for_output("saved")
    identity = identity_of(machine("a"))
    wait_for(published(store, "ckpt", "link", "empty/inner", "sub/deep/file"))
    first.send(signal.SIGTERM)
    first.wait().exits(75)
    keys = path.rename(path.with_name("keys.json"))

    gone = machine("b").run("resume", f"s3://out/res/{identity}", env=store.env)
    resumed = machine("b").run("resume", f"s3://out/res/{identity}", "--credentials-from", keys, env=store.env).ok()

    assert gone.code != 0 and "output.s3." in gone.err and "--credentials-from" in gone.err
    assert resumed.out == f"attempt 2: {FOUND}\n"

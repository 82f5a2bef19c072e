"""The life of a run: steps, exit codes, interrupts, kills, resuming, flushing. Each rule of the design has its test."""
import functools
import json
import os
import re
import signal
import subprocess

import pytest
from harness import progress
from harness.program import binary
from harness.slow_link import SlowLink
from harness.terminal import Terminal
from harness.workflows import RESOURCES, s3_place, write_workflow



@pytest.fixture
def workflow(tmp_path):
    """workflow(*steps, **fields): the path of a workflow file."""
    return functools.partial(write_workflow, tmp_path)


@pytest.fixture
def to_store(store):
    """to_store(): the `output` of a workflow, and continuous sync, with a bucket of the test's own store."""

    def fields(path="/", **more):
        return {"output": s3_place(store, path), "continuousOutputSync": True} | more

    return fields


# A mistyped bucketUrl must not leave a bucket in an account. penstock reports the mistake before a
# step runs.
@pytest.mark.parametrize("create", [True, False])
def test_a_bucket_is_made_only_if_the_workflow_asks_for_it(penstock, workflow, store, tmp_path, create):
    path = workflow(f"touch {tmp_path}/ran; echo 1 > $DEEPSQUARE_OUTPUT/x", output=s3_place(store, bucket="teem", createBucket=create))

    ended = penstock.run("run", path).exits(0 if create else 66)

    assert [bucket["Name"] for bucket in store.client.list_buckets()["Buckets"]] == ["teem"] * create
    assert (tmp_path / "ran").exists() == create
    assert create or ("s3://teem" in ended.err and "penstock mb" in ended.err and "createBucket" in ended.err)


def test_variables_follow_their_precedence(penstock, workflow):
    # Each of these overrides the ones before: the job's env, $DEEPSQUARE_ENV of earlier steps,
    # DeepSquare's variables, the step's env. Other steps do not get a step's env.
    path = workflow(
        'echo "FROM_STEP=a,b \\"c\\"" >> "$DEEPSQUARE_ENV"; echo STORAGE_PATH=/wrong >> "$DEEPSQUARE_ENV"',
        {"run": {"command": 'echo "[$JOB][$FROM_STEP][$OWN]"; test -d "$STORAGE_PATH" && echo intact',
                 "env": [{"key": "JOB", "value": "step"}, {"key": "OWN", "value": "1"}]}},
        'echo "[$JOB][$OWN] $NTASKS $CPUS $MEM $GPUS"; pwd; test "$PWD" = "$STORAGE_PATH" && ls',
        env=[{"key": "JOB", "value": "job"}, {"key": "NTASKS", "value": "wrong"}],
    )  # fmt: skip

    out = penstock.run("run", path).ok().out

    assert '[step][a,b "c"][1]\nintact\n[job][] 1 1 512 0\n' in out
    assert out.endswith("env\ninput\noutput\n")


@pytest.mark.parametrize("command, code", [("exit 3", 3), ("exit 70", 79), ("kill -9 $$", 137), ("kill -TERM $$", 143), ("exit 130", 130)])
def test_a_steps_exit_code_is_penstocks(penstock, workflow, command, code):
    # Codes 64 to 78 are those of penstock, so a step's code in this range is shown as 79, and the
    # original is recorded.
    result = penstock.run("run", workflow("true", command, "echo never")).exits(code)

    assert "never" not in result.out
    run = penstock.ps()[0]
    assert (run["state"], run["class"], run["exit_code"]) == ("failed", "user", code)
    assert (run["step_exit_code"] or code) == (70 if code == 79 else code)


def test_a_work_dir_that_is_not_there_is_a_mistake_of_the_workflow(penstock, tmp_path):
    # The error names the option that corrects the mistake. For the first step, the error comes
    # before anything is staged; a later step may use a directory that an earlier step has made.
    def job(*steps):
        path = tmp_path / "wf.json"
        path.write_text(json.dumps({"name": "w", "resources": RESOURCES, "steps": [{"name": "s", "run": step} for step in steps]}))
        return path

    there = tmp_path / "made"
    missing = penstock.run("run", job({"command": "echo ran", "workDir": str(there)})).exits(65)
    later = penstock.run("run", job({"command": "echo ran"}, {"command": "true", "workDir": str(there)})).exits(65)

    assert "steps[0].run.workDir" in missing.err and "--set steps.0.run.workDir=" in missing.err and "ran" not in missing.out
    assert "steps[1].run.workDir" in later.err and "ran" in later.out
    penstock.run("run", job({"command": f"mkdir {there}"}, {"command": "true", "workDir": str(there)})).ok()


def test_what_a_failing_step_wrote_last_is_published(penstock, workflow, store, to_store):
    # DeepSquare's own runner loses this file, because its final sync never runs.
    path = workflow("echo v1 > $DEEPSQUARE_OUTPUT/ckpt; echo v2 > $DEEPSQUARE_OUTPUT/ckpt; exit 1", **to_store())

    penstock.run("run", path).exits(1)

    assert store.bytes("out", "ckpt") == b"v2\n"


def test_what_steps_leave_behind_is_ended(penstock, workflow):
    # The fixture nothing_survives finds children, grandchildren and detached processes.
    path = workflow("sleep 1000 & (setsid sleep 1000 &) ; (setsid sh -c 'sleep 1000 & sleep 1000' &); echo ok")

    result = penstock.run("run", path).ok()

    assert result.out == "ok\n"


def test_ctrl_c_asks_and_the_output_is_complete(penstock, workflow, store, to_store):
    # The step gets SIGTERM and saves, and the saved file is published; `resume` continues with that step.
    step = """
        if [ -e $DEEPSQUARE_OUTPUT/saved ]; then echo resumed with $(cat $DEEPSQUARE_OUTPUT/saved); exit 0; fi
        trap 'echo state > $DEEPSQUARE_OUTPUT/saved; exit 0' TERM
        echo started; while :; do sleep 0.05; done"""
    path = workflow("echo first", step, name="c", **to_store())
    run = penstock.popen("run", path)
    run.wait_for_output("started")

    run.send(signal.SIGINT)
    run.wait().exits(130)

    assert penstock.ps()[0]["state"] == "stopped"
    assert store.bytes("out", "saved") == b"state\n"
    resumed = penstock.run("resume", "c").ok()
    assert resumed.out == "resumed with state\n"
    assert penstock.ps()[0]["attempt"] == 2


def test_nohup_protects_from_a_hangup(penstock, tmp_path, wait_for):
    ready, go = tmp_path / "ready", tmp_path / "go"
    path = write_workflow(tmp_path, f"touch {ready}; while [ ! -e {go} ]; do sleep 0.02; done")
    penstock.prefix = ["nohup"]
    run = penstock.popen("run", path)
    wait_for(ready.exists)
    run.send(signal.SIGHUP)
    go.touch()

    run.wait().ok()


WHO_WAS_HERE = """
    [ -e $DEEPSQUARE_OUTPUT/saved ] && echo found $(cat $DEEPSQUARE_OUTPUT/saved)
    trap 'echo $PENSTOCK_ATTEMPT > $DEEPSQUARE_OUTPUT/saved; exit 0' TERM
    echo attempt $PENSTOCK_ATTEMPT; while [ $PENSTOCK_ATTEMPT = 1 ]; do sleep 0.05; done"""


@pytest.mark.parametrize(
    "ended_by, code, more",
    [(signal.SIGINT, 130, {}), (signal.SIGTERM, 75, {"resume": "never"})],
    ids=["stopped", "preempted_and_never_to_be_resumed"],
)
def test_what_is_not_to_go_on_begins_anew_by_the_same_command(penstock, workflow, store, to_store, ended_by, code, more):
    # The run was stopped by the user, or its file says `resume: never`. The output stays in the
    # bucket.
    path = workflow("echo first", WHO_WAS_HERE, **more, **to_store())
    run = penstock.popen("run", path)
    run.wait_for_output("^attempt 1$")
    run.send(ended_by)
    run.wait().exits(code)

    again = penstock.run("run", path).ok()

    assert again.out == "first\nattempt 2\n"
    assert store.bytes("out", "saved") == b"1\n"


def test_a_log_that_is_never_closed_is_published_while_it_is_written(penstock, workflow, store, to_store, wait_for):
    # The sync uploads an open log after an interval of some seconds.
    write = "exec 3>> $DEEPSQUARE_OUTPUT/train.log; echo one >&3; echo wrote; while [ ! -e $STORAGE_PATH/go ]; do sleep 0.05; done; echo two >&3"
    run = penstock.popen("run", workflow(write, **to_store()))
    run.wait_for_output("wrote")

    wait_for(lambda: "train.log" in store.keys("out"))

    assert store.bytes("out", "train.log") == b"one\n" and run.running()
    (storage,) = penstock.home.glob("runs/*/storage")
    (storage / "go").touch()
    run.wait().ok()
    assert store.bytes("out", "train.log") == b"one\ntwo\n"


def test_a_parent_that_ignores_how_its_children_end_changes_nothing(penstock, workflow):
    # penstock inherits an ignored SIGCHLD. If SIGCHLD stayed ignored, the kernel would not report
    # how a step ended.
    path = workflow("exit 3")
    ended = subprocess.run(
        [binary(), "run", path], env=penstock.env, stdin=subprocess.DEVNULL, capture_output=True, timeout=60,
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
    )  # fmt: skip

    assert ended.returncode == 3, ended.stderr


def test_a_second_ctrl_c_kills(penstock, workflow):
    run = penstock.popen("run", workflow("trap '' TERM INT; echo started; while :; do sleep 0.05; done"))
    run.wait_for_output("started")

    run.send(signal.SIGINT)
    run.wait_for_output(progress.KILLS_NEXT)
    run.send(signal.SIGINT)

    assert run.wait(20).exits(130).seconds < 20


def test_sigterm_preempts_and_the_same_command_continues(penstock, workflow):
    # A machine that is about to be preempted sends SIGTERM: the run can be continued, and finished
    # steps are not repeated.
    path = workflow("echo one", "if [ -e $STORAGE_PATH/again ]; then echo two; exit; fi; touch $STORAGE_PATH/again; echo started; sleep 1000")
    run = penstock.popen("run", path, env={"PENSTOCK_STOP_GRACE": "0"})
    run.wait_for_output("started")

    run.send(signal.SIGTERM)
    run.wait().exits(75)

    assert penstock.ps()[0]["state"] == "preempted"
    assert penstock.run("run", path).ok().out == "two\n"


def test_after_kill_9_the_same_command_continues(penstock, workflow, store, to_store, wait_for):
    # Files that were closed before the kill are in the store afterwards; surviving processes are
    # ended; finished steps are skipped.
    step = """
        cd $DEEPSQUARE_OUTPUT
        if [ -e ckpt ]; then echo resumed at $(cat ckpt); exit 0; fi
        echo 7 > ckpt; (setsid sleep 1000 &); echo saved; sleep 1000"""
    path = workflow("echo one", step, **to_store("/run"))
    run = penstock.popen("run", path)
    run.wait_for_output("saved")
    wait_for(lambda: "run/ckpt" in store.keys("out"), what="the checkpoint in the store")

    run.kill()
    assert penstock.ps()[0]["state"] == "lost"
    again = penstock.run("run", path).ok()

    assert again.out == "resumed at 7\n"
    assert re.search(progress.ENDED_STRAYS, again.err)
    assert store.bytes("out", "run/ckpt") == b"7\n"


def test_stop_ends_what_a_killed_penstock_left(penstock, workflow, to_store):
    # A trainer without a supervisor would keep its GPU. The run itself can still be continued.
    path = workflow("(setsid sleep 1000 &); echo started; sleep 1000", name="gone", **to_store())
    run = penstock.popen("run", path)
    run.wait_for_output("started")
    run.kill()

    stopped = penstock.run("stop", "gone").ok()

    assert re.search(progress.ENDED_STRAYS, stopped.err)
    assert not re.search(progress.ENDED_STRAYS, penstock.run("stop", "gone").ok().err)
    assert penstock.ps()[0]["state"] == "lost"


def test_fresh_begins_anew(penstock, workflow, to_store):
    path = workflow("echo one", "test -e $DEEPSQUARE_OUTPUT/x && echo found; touch $DEEPSQUARE_OUTPUT/x; echo started; sleep 1000", **to_store())
    run = penstock.popen("run", path)
    run.wait_for_output("started")
    run.kill()

    fresh = penstock.popen("run", path, "--fresh")
    fresh.wait_for_output("started")
    fresh.send(signal.SIGINT)

    assert fresh.wait().exits(130).out == "one\nstarted\n"


def test_output_without_a_transport_is_never_removed(penstock, workflow):
    path = workflow("echo $PENSTOCK_ATTEMPT > $DEEPSQUARE_OUTPUT/result")

    first = penstock.run("run", path).ok()
    second = penstock.run("run", path).ok()

    (run,) = penstock.home.glob("runs/*")
    assert str(run / "storage" / "output") in first.err and "output.before-2" in second.err
    assert (run / "output.before-2" / "result").read_text() == "1\n"
    assert (run / "storage" / "output" / "result").read_text() == "2\n"


def test_a_live_run_is_refused_and_its_owner_named(penstock, workflow):
    path = workflow("echo started; sleep 1000")
    run = penstock.popen("run", path)
    run.wait_for_output("started")

    refused = penstock.run("run", path).exits(69)
    other = penstock.popen("run", path, "--name", "other")
    other.wait_for_output("started")

    assert str(run.pid) in refused.err and "--name" in refused.err
    assert {entry["name"] for entry in penstock.ps()} == {None, "other"}
    for process in (run, other):
        process.send(signal.SIGINT)
        process.wait().exits(130)


# There is one line at the start of the outage and one at its end.
def test_a_store_that_is_away_during_a_step_is_reported_once(penstock, workflow, store, to_store):
    path = workflow("echo ready; while [ ! -e $STORAGE_PATH/go ]; do sleep 0.02; done; echo a > $DEEPSQUARE_OUTPUT/a; "
                    "while [ ! -e $STORAGE_PATH/end ]; do sleep 0.02; done", **to_store())  # fmt: skip
    run = penstock.popen("run", path)
    run.wait_for_output("ready")
    store.kill()
    (storage,) = penstock.home.glob("runs/*/storage")
    (storage / "go").touch()

    run.wait_for_output(r"the store has been unavailable since \d\d:\d\d:\d\d")
    store.start(store.address)
    run.wait_for_output("the store is available again")
    (storage / "end").touch()

    assert run.wait().ok().err.count("the store has been unavailable") == 1
    assert store.bytes("out", "a") == b"a\n"


# The sync uploads nothing before it has read the manifest, so here no failed upload can reveal the
# outage.
def test_a_store_that_goes_away_before_the_first_upload_is_reported(penstock, workflow, store, fault_proxy):
    gone = fault_proxy.fault(method="HEAD", path=r"manifest\.json$", drop=True, times=1000)
    path = workflow("echo a > $DEEPSQUARE_OUTPUT/a; while [ ! -e $STORAGE_PATH/end ]; do sleep 0.02; done",
                    output=s3_place(store, endpoint=fault_proxy.url), continuousOutputSync=True)  # fmt: skip
    # The first requests of the sync may still have the patience of staging, so set the patience to
    # 0.
    run = penstock.popen("run", path, env={"PENSTOCK_NETWORK_PATIENCE": "0"})

    run.wait_for_output(r"the store has been unavailable since \d\d:\d\d:\d\d")
    gone.stop()
    run.wait_for_output("the store is available again")
    (storage,) = penstock.home.glob("runs/*/storage")
    (storage / "end").touch()

    run.wait().ok()


def test_a_long_end_says_what_it_does(penstock, workflow, store, fault_proxy):
    path = workflow("echo ready; while [ ! -e $STORAGE_PATH/go ]; do sleep 0.02; done; echo a > $DEEPSQUARE_OUTPUT/a",
                    output=s3_place(store, endpoint=fault_proxy.url))  # fmt: skip
    run = penstock.popen("run", path)
    run.wait_for_output("ready")
    held = fault_proxy.fault(method="PUT", path=r"/a$", hold="request")
    (storage,) = penstock.home.glob("runs/*/storage")
    (storage / "go").touch()

    run.wait_for_output("^penstock: uploading the output, and comparing")
    held.release()

    run.wait().ok()


# The progress bar must move during the upload of a large file, not only at its end.
def test_a_large_file_moves_the_bar_while_it_is_sent(penstock, workflow, store):
    link = SlowLink(store.endpoint)
    link.hold(after=12 << 20)
    try:
        path = workflow("head -c 40000000 /dev/urandom > $DEEPSQUARE_OUTPUT/a", output=s3_place(store, endpoint=link.url))
        run = Terminal(penstock, "run", path)
        run.wait_for_output(r"\[#+ +\] 1\d\.\d MB of 40\.0 MB")
        link.open()

        run.wait().ok()
    finally:
        link.close()
    assert store.client.head_object(Bucket="out", Key="a")["ContentLength"] == 40_000_000


def test_a_line_of_penstocks_own_does_not_continue_one_of_a_step(penstock, workflow):
    path = workflow("printf out", "printf err >&2", name="half")

    shown = Terminal(penstock, "run", path, env={"NO_COLOR": "1"}).wait().ok()

    # The log, unlike the terminal, has no line of penstock between the two steps.
    for text, halves in ((shown.out, {"out", "err"}), (penstock.run("logs", "half").ok().out, {"outerr"})):
        lines = text.splitlines()
        own = [line for line in lines if "penstock:" in line]
        assert halves <= set(lines) and all(line.startswith("penstock:") for line in own) and own


def test_a_store_that_goes_away_during_the_flush(penstock, workflow, store, to_store):
    # The exit code is 73, and nothing local is lost. `flush` completes the output later, and the
    # run keeps its end state.
    path = workflow("echo a > $DEEPSQUARE_OUTPUT/a; echo ready; while [ ! -e $STORAGE_PATH/go ]; do sleep 0.02; done; "
                    "echo b > $DEEPSQUARE_OUTPUT/b; exit 4", name="f", **to_store(enableLogging=True))  # fmt: skip
    run = penstock.popen("run", path, "--set", "storePatience=1s")
    run.wait_for_output("ready")
    store.kill()
    (storage,) = penstock.home.glob("runs/*/storage")
    (storage / "go").touch()

    result = run.wait().exits(73)

    assert "penstock flush" in result.err
    assert result.seconds < 60
    assert (storage / "output" / "b").read_text() == "b\n"
    penstock.run("run", path).exits(69)  # starting over would delete the only copy of the output
    store.start(store.address)
    penstock.run("flush", "f").ok()
    assert store.bytes("out", "b") == b"b\n"
    penstock.run("flush", "f").ok()
    ended = penstock.ps()[0]
    assert (ended["state"], ended["class"], ended["exit_code"]) == ("failed", "user", 4)
    state = json.loads(store.bytes("out", f".penstock/runs/{ended['id']}/state.json"))
    assert state["state"] == "failed"
    assert b"ready" in store.bytes("out", f".penstock/runs/{ended['id']}/log/1")


def test_ctrl_c_in_every_stage_before_the_steps(penstock, workflow, http_server):
    # A run that waits for resources, or stages its inputs, ends at once, and no step has run.
    holder = penstock.popen("run", workflow("echo started; sleep 1000", file="holder.json", resources=RESOURCES | {"cpusPerTask": os.cpu_count()}))
    holder.wait_for_output("started")
    waiting = penstock.popen("run", workflow("echo never"))
    waiting.wait_for_output(progress.WAITING)

    waiting.send(signal.SIGINT)

    assert waiting.wait(20).exits(130).out == ""
    holder.send(signal.SIGINT)
    holder.wait().exits(130)


def test_waiting_runs_get_their_turn(penstock, workflow):
    path = workflow("echo started; while [ ! -e $STORAGE_PATH/go ]; do sleep 0.02; done", file="holder.json", resources=RESOURCES | {"cpusPerTask": os.cpu_count()})
    holder = penstock.popen("run", path)
    holder.wait_for_output("started")
    (storage,) = penstock.home.glob("runs/*/storage")
    waiting = penstock.popen("run", workflow("echo mine"))
    waiting.wait_for_output(progress.WAITING)
    queued = penstock.ps()[0]
    assert {run["state"] for run in penstock.ps()} == {"queued", "running"}

    (storage / "go").touch()

    assert waiting.wait().ok().out == "mine\n"
    ended = penstock.ps()[0]
    assert ended["id"] == queued["id"] and ended["started"] > queued["started"] >= queued["created"]
    holder.wait().ok()


def test_what_never_fits_names_the_override(penstock, workflow):
    path = workflow("true", resources=RESOURCES | {"cpusPerTask": 4096})

    refused = penstock.run("run", path).exits(65)

    assert "--set resources.cpusPerTask=" in refused.err and f"{path}:1:" in refused.err
    assert penstock.ps() == []
    penstock.run("run", path, "--set", "resources.cpusPerTask=1").ok()


def test_secrets_are_in_no_file_and_no_output(penstock, workflow, store, to_store):
    path = workflow("env; echo $AWS_SECRET_ACCESS_KEY | cut -c1-20; ps -o args= -p $PPID", **to_store(enableLogging=True))

    result = penstock.run("run", path, "--log-level", "debug").ok()

    secret = store.secret_key
    assert "AWS_SECRET_ACCESS_KEY=***" in result.out
    assert secret not in result.text
    for root, _, files in os.walk(penstock.home):
        for name in files:
            assert secret.encode() not in open(os.path.join(root, name), "rb").read(), name
    for key in store.keys("out"):
        assert secret.encode() not in store.bytes("out", key), key
    assert all(not stat.st_mode & 0o077 for stat in (os.stat(penstock.home / "runs.db"), os.stat(penstock.home)))


def test_a_detached_run_goes_on_alone(penstock, workflow):
    path = workflow("echo working; while [ ! -e $STORAGE_PATH/go ]; do sleep 0.02; done; echo finished", name="d")

    started = penstock.run("run", "--detach", path).ok()

    run = penstock.ps()[0]
    assert started.out == run["id"] + "\n"
    follower = penstock.popen("logs", "-f", "d")
    follower.wait_for_output("working")
    (penstock.home / "runs" / run["id"] / "storage" / "go").touch()
    assert follower.wait().ok().out.endswith(f"finished\npenstock: run {run['id']} succeeded\n")
    assert penstock.ps()[0]["state"] == "succeeded"


def test_several_that_are_detached_run_in_a_row_and_each_once(penstock, workflow, wait_for, tmp_path):
    go, trace = tmp_path / "go", tmp_path / "trace"
    one = workflow(f"echo one >> {trace}; while [ ! -e {go} ]; do sleep 0.02; done; echo end >> {trace}", file="one.json", name="one")
    two = workflow(f"echo two >> {trace}", file="two.json", name="two")
    three = workflow(f"echo three >> {trace}; exit 3", file="three.json", name="three")
    four = workflow(f"echo four >> {trace}", file="four.json", name="four")

    started = penstock.run("run", "-d", one, two, three, four).ok()
    wait_for(trace.exists)
    begun = penstock.ps()
    go.touch()
    wait_for(lambda: [run["state"] for run in penstock.ps() if run["name"] == "three"] == ["failed"])

    assert [run["name"] for run in begun] == ["one"]
    runs = {run["name"]: run for run in penstock.ps()}
    assert started.out.split()[:3] == [runs[name]["id"] for name in ("one", "two", "three")] and len(started.out.split()) == 4
    assert "four" not in runs and trace.read_text() == "one\nend\ntwo\nthree\n"
    logs = [os.listdir(penstock.home / "runs" / run["id"] / "log") for run in runs.values()]
    assert [[name for name in names if not name.endswith(".times")] for names in logs] == [["1"], ["1"], ["1"]]


def test_a_row_is_read_before_its_first_begins(penstock, workflow):
    good = workflow("true", file="good.json")
    wrong = workflow("true", file="wrong.json", stepz=[])
    large = workflow("true", file="large.json", resources=RESOURCES | {"gpus": 64})

    for option in ((), ("--detach",)):
        missing = penstock.run("run", *option, good, "nofile.json").exits(66)
        mistaken = penstock.run("run", *option, good, wrong).exits(65)
        unfit = penstock.run("run", *option, good, large).exits(65)
        assert "nofile.json" in missing.err and "stepz" in mistaken.err and "resources.gpus=" in unfit.err
        assert missing.out == mistaken.out == unfit.out == ""
    # With --detach, no process would be left to submit the second run.
    assert "--detach" in penstock.run("run", "--on", "slurm", "--detach", good, good).exits(64).err
    assert penstock.ps() == []
    assert penstock.run("run", "--dry-run", good, large).exits(65).out == ""


def test_detach_reports_what_keeps_it_from_beginning(penstock, workflow):
    refused = penstock.run("run", "--detach", workflow("true", resources=RESOURCES | {"gpus": 64})).exits(65)

    assert "resources.gpus=" in refused.err and refused.out == ""


def test_a_dry_run_leaves_no_trace(penstock, workflow):
    path = workflow("touch /tmp/never-penstock", name="dry", env=[{"key": "A", "value": "b"}])

    shown = penstock.run("run", "--dry-run", path, "--env", "C=d").ok()

    assert {"key": "C", "value": "d"} in json.loads(shown.out)["env"]
    assert not os.path.exists("/tmp/never-penstock") and penstock.ps() == []


def test_a_workflow_comes_from_standard_input_and_from_s3(penstock, workflow, store):
    text = workflow("echo here").read_bytes()
    store.client.create_bucket(Bucket="flows")
    store.client.put_object(Bucket="flows", Key="a/wf.json", Body=text)

    assert penstock.run("run", "-", input=text).ok().out == "here\n"
    assert penstock.run("run", "s3://flows/a/wf.json", env=store.env).ok().out == "here\n"


def test_a_suspect_file_does_not_replace_the_last_good_one(penstock, workflow, store, to_store, wait_for):
    # The kernel reports the close of a killed writer like any other.
    step = """
        cd $DEEPSQUARE_OUTPUT; echo good > ckpt
        exec /usr/bin/python3 -c '
import os, sys, time
while os.path.exists("../wait"): time.sleep(0.01)
f = open("ckpt", "wb"); f.write(b"half"); f.flush(); print("writing", flush=True); time.sleep(1000)'"""
    path = workflow("touch $STORAGE_PATH/wait", step, **to_store())
    run = penstock.popen("run", path)
    run.wait_for_output(r"\b2 of 2\b")
    wait_for(lambda: "ckpt" in store.keys("out"), what="the good one in the store")
    (storage,) = penstock.home.glob("runs/*/storage")
    (storage / "wait").unlink()
    run.wait_for_output("writing")

    run.send(signal.SIGINT)  # Python exits at SIGTERM by default, in the middle of its file
    run.wait().exits(130)

    assert store.bytes("out", "ckpt") == b"good\n"
    identity = penstock.ps()[0]["id"]
    assert store.bytes("out", f".penstock/runs/{identity}/partial/ckpt") == b"half"


def test_the_endpoint_of_another_store_does_not_reach_a_step(penstock, store, tmp_path):
    """If a step inherited the user's endpoint, SDKs would send requests with the output's keys to
    that endpoint. An endpoint that the workflow names reaches the step."""
    penstock.env["AWS_ENDPOINT_URL_S3"] = "http://127.0.0.1:1"
    command = 'echo "[${AWS_ENDPOINT_URL_S3-none}] $AWS_ENDPOINT_URL"'
    done = penstock.run("run", write_workflow(tmp_path, command, output=s3_place(store))).ok()
    assert f"[none] {store.endpoint}\n" in done.out
    named = write_workflow(tmp_path, command, output=s3_place(store), env=[{"key": "AWS_ENDPOINT_URL_S3", "value": "http://other"}])
    assert f"[http://other] {store.endpoint}\n" in penstock.run("run", named).ok().out


def test_the_embedded_store_is_there_by_name_and_goes_when_idle(penstock, workflow):
    # The fixture nothing_survives waits until the store's owner process has ended.
    s3 = {"region": "r", "bucketUrl": "s3://mine", "path": "/", "endpointUrl": "embedded"}
    path = workflow("echo hi > $DEEPSQUARE_OUTPUT/a; echo $AWS_ENDPOINT_URL", name="e", output={"s3": s3})

    result = penstock.run("run", path).ok()

    assert result.out.startswith("http://127.0.0.1:")
    assert "store" in result.err
    assert "s3://mine/a" in penstock.run("show", "e").ok().out

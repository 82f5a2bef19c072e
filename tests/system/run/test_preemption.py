"""Preemption notices: their sources, the processes that are signalled, the time available, and the result of the run."""
import functools
import json
import os
import signal
import time

import pytest

from harness import processes, progress
from harness.fault_proxy import FaultProxy, s3_error
from harness.metadata import Aws, Azure, Gcp
from harness.registry import BUSYBOX, busybox, image, write_layout
from harness.terminal import Terminal
from harness.waiting import wait_for
from harness.workflows import s3_place, write_workflow

CTRL_S = b"\x13"


# Two data loader workers exit at SIGTERM, as torch's workers do; if one of them exits, the training
# fails. After a notice, by the signal or by the file, the training saves and ends.
TRAINER = """
import json, os, signal, sys, time
how, save_s, code = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
told = {}

def handler(number, frame):
    told.setdefault("by", signal.Signals(number).name)

def worker():
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    signal.signal(signal.SIGUSR1, lambda *_: os._exit(0))
    os.write(ready[1], b"w")
    while True:
        time.sleep(0.05)

ready = os.pipe()
workers = []
for _ in range(2):
    pid = os.fork()
    if pid == 0:
        worker()
    workers.append(pid)
if how != "file":
    signal.signal(getattr(signal, how), handler)
os.read(ready[0], 1), os.read(ready[0], 1)
preempt = os.environ["PENSTOCK_PREEMPT_FILE"]

def check():
    for pid in workers:
        if os.waitpid(pid, os.WNOHANG)[0]:
            print("a worker died", flush=True)
            os._exit(99)

print("up", flush=True)
while not told:
    check()
    if how == "file" and os.path.exists(preempt):
        told["by"] = "file"
    time.sleep(0.01)
told["at"] = time.time()
told["notice"] = json.load(open(preempt))
until = time.monotonic() + save_s
while time.monotonic() < until:
    check()
    time.sleep(0.01)
out = os.environ["DEEPSQUARE_OUTPUT"]
with open(out + "/ckpt.new", "w") as file:
    json.dump(told, file)
os.rename(out + "/ckpt.new", out + "/ckpt")
check()
for pid in workers:
    os.kill(pid, signal.SIGKILL)
if how == "done" or os.environ.get("DONE"):
    open(os.environ["PENSTOCK_DONE_FILE"], "w").close()
print("saved", flush=True)
os._exit(code)
"""


@pytest.fixture
def workflow(tmp_path):
    """workflow(*steps, **fields): the path of a workflow file."""
    return functools.partial(write_workflow, tmp_path, name="p")


@pytest.fixture
def trainer(tmp_path):
    """trainer(how="file", save_s=0.1, code=0): the command of a training program, whose parent is
    the step's shell."""

    def command(how="file", save_s=0.1, code=0, env=""):
        path = tmp_path / "trainer.py"
        path.write_text(TRAINER)
        return f"{env} /usr/bin/python3 {path} {how} {save_s} {code}; exit $?"

    return command


@pytest.fixture
def clouds():
    """clouds(service): returns the service, and closes it at the end of the test."""
    made = []

    def keep(service):
        made.append(service)
        return service

    yield keep
    for service in made:
        service.close()


def folder(penstock):
    return penstock.home / "runs" / penstock.ps()[0]["id"]


def saved(penstock):
    return json.loads((folder(penstock) / "storage" / "output" / "ckpt").read_text())


# --- sources


def by_sigterm(run, *_):
    run.send(signal.SIGTERM)


def by_sigusr1(run, *_):
    run.send(signal.SIGUSR1)


@pytest.mark.parametrize("source, how", [("SIGTERM", "SIGTERM"), ("SIGTERM", "file"), ("SIGUSR1", "file"),
                                         pytest.param("SIGUSR1", "SIGTERM", marks=pytest.mark.long)])  # fmt: skip
def test_a_signal_is_a_notice(penstock, workflow, trainer, source, how):
    # penstock writes the preempt file, and then signals only the leader of the task, so that the
    # workers do not exit. The run is preempted with any exit code of the task.
    run = penstock.popen("run", workflow(trainer(how), "echo never"))
    run.wait_for_output("^up")

    run.send(getattr(signal, source))
    result = run.wait().exits(75)

    told = saved(penstock)
    assert "a worker died" not in result.out and "never" not in result.out and told["by"] == how
    assert told["notice"]["source"] == "signal" and told["notice"]["reason"] == source
    assert 0 < told["notice"]["grace_s"] <= 25 and told["notice"]["deadline"] - told["at"] <= 25.5
    shown = penstock.ps()[0]
    assert (shown["state"], shown["class"], shown["exit_code"]) == ("preempted", "preempted", 75)
    assert (shown["notice"]["source"], shown["notice"]["reason"]) == ("signal", source)
    assert f"signal: {source}" in result.err
    assert f"signal: {source}" in penstock.run("show", "p").ok().out


def test_a_preemption_can_be_simulated(penstock, workflow, trainer):
    # `penstock preempt`, in another process, preempts the run, waits for its end and prints the
    # result.
    run = penstock.popen("run", workflow(trainer("SIGUSR2", code=3), preemption={"signal": "USR2"}))
    run.wait_for_output("^up")

    told = penstock.run("preempt", "p", "--grace", "20s", "--json").json()

    assert (told["state"], told["exit_code"], told["name"]) == ("preempted", 75, "p")
    run.wait().exits(75)
    notice = saved(penstock)["notice"]
    assert notice["source"] == "preempt" and 0 < notice["grace_s"] <= 17
    penstock.run("preempt", "p").exits(66)
    assert "soon" in penstock.run("preempt", "p", "--grace", "soon").exits(64).err


def test_a_file_is_a_notice(penstock, workflow, trainer, tmp_path):
    made = tmp_path / "evict"
    run = penstock.popen("run", workflow(trainer(), preemption={"sources": [{"file": str(made)}], "grace": "12s", "reserve": "4s"}))
    run.wait_for_output("^up")

    made.write_text("the queue wants it back\nmore")
    run.wait().exits(75)

    notice = saved(penstock)["notice"]
    assert (notice["source"], notice["reason"]) == ("file", "the queue wants it back") and 0 < notice["grace_s"] <= 8


@pytest.mark.long
def test_a_command_is_a_notice(penstock, workflow, trainer, tmp_path):
    # The command is run at once, and again five seconds after each end; a failure of the command
    # causes no message.
    asked, made = tmp_path / "asked", tmp_path / "evict"
    ask = f"echo >> {asked}; cat {made} 2>/dev/null"
    run = penstock.popen("run", workflow(trainer(), preemption={"sources": [{"command": ask}]}))
    run.wait_for_output("^up")
    wait_for(asked.exists)

    made.write_text("told by a command\n")
    run.wait().exits(75)

    assert saved(penstock)["notice"]["reason"]


@pytest.mark.parametrize("key, value", [("preempted", "TRUE"),
                                        pytest.param("maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE", marks=pytest.mark.long)])  # fmt: skip
def test_gcp_tells_it_by_a_request_that_hangs(penstock, workflow, trainer, clouds, key, value):
    gcp = clouds(Gcp())
    gcp.unavailable = 3  # like a cloud while it migrates a machine
    run = penstock.popen("run", workflow(trainer("SIGTERM")), env={"PENSTOCK_METADATA_GCP": gcp.url, "PENSTOCK_PREEMPTION_SOURCES": None})
    run.wait_for_output("^up")
    wait_for(lambda: any("wait_for_change=true" in path for _, path, *_ in gcp.asked(gcp.ROOT + key)), what="a request that hangs")
    count = len(gcp.asked(gcp.ROOT + key))

    at = time.time()
    gcp.set(key, value)
    run.wait().exits(75)

    told = saved(penstock)
    assert value in told["notice"]["reason"] and told["notice"]["source"].startswith("gcp") and told["at"] >= at
    assert count <= 2 + 3  # one request for the current value, and one that waits
    assert all(headers["Metadata-Flavor"] == "Google" for *_, headers, _ in gcp.seen)


def test_gcp_was_preempted_before_the_run_began(penstock, workflow, clouds):
    # A first request that waits for a change would never get a reply.
    gcp = clouds(Gcp(preempted="TRUE"))

    result = penstock.run("run", workflow("echo up; sleep 1000", preemption={"grace": "2s"}),
                          env={"PENSTOCK_METADATA_GCP": gcp.url, "PENSTOCK_PREEMPTION_SOURCES": None}).exits(75)  # fmt: skip

    assert "instance/preempted" in result.err


def test_aws_tells_it_with_a_token(penstock, workflow, trainer, clouds):
    # The time left is computed by the clock of the service, from which this machine's clock differs
    # by an hour. A recommendation only asks for a save, by $PENSTOCK_SAVE_FILE, and does not end a
    # step that waits for $PENSTOCK_PREEMPT_FILE. A refused token is renewed.
    aws = clouds(Aws())
    aws.rebalance()
    soon = ('while [ ! -e $PENSTOCK_SAVE_FILE ]; do sleep 0.02; done; [ ! -e $PENSTOCK_PREEMPT_FILE ] || exit 9; '
            'cat $PENSTOCK_SAVE_FILE; echo " seen"')
    run = penstock.popen("run", workflow(soon, trainer()), env={"PENSTOCK_METADATA_AWS": aws.url, "PENSTOCK_PREEMPTION_SOURCES": None})
    recommended = json.loads(run.wait_for_output(r"^(\{.*\}) seen").group(1))
    aws.tokens.clear()

    aws.action("terminate", lead_s=120, skew_s=3600)
    result = run.wait()

    assert recommended == {"source": "aws", "reason": "rebalance recommendation"}
    assert result.code == 75 and "aws: rebalance recommendation" in result.err
    notice = saved(penstock)["notice"]
    assert notice["reason"] == "spot/instance-action: terminate" and 0 < notice["grace_s"] <= 100
    assert len(aws.asked("/latest/api/token", "PUT")) == 2
    asked = [at for *_, at in aws.asked("/latest/meta-data/spot/instance-action")]
    assert len(asked) <= 3 + (asked[-1] - asked[0]) / 4.9


# After Ctrl-S, or on a connection that hangs, the terminal does not read the output of the run. The
# run still ends in time, with all of its output in the store.
def test_a_terminal_that_does_not_read_does_not_keep_the_run(penstock, workflow, store):
    step = "trap 'echo saved > $DEEPSQUARE_OUTPUT/saved; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    run = Terminal(penstock, "run", workflow(step, output=s3_place(store), continuousOutputSync=False))
    run.wait_for_output("^up")
    run.press(CTRL_S)

    os.kill(run.pid, signal.SIGTERM)

    run.wait(60).exits(75)
    assert store.bytes("out", "saved") == b"saved\n"
    assert penstock.ps()[0]["state"] == "preempted"


@pytest.mark.long
def test_what_aws_has_announced_is_withdrawn(penstock, workflow, clouds, tmp_path):
    # An action, or a recommendation, that the service no longer reports is withdrawn; a missing reply withdraws nothing.
    aws, go = clouds(Aws()), tmp_path / "go"
    aws.rebalance()
    step = f"while [ ! -e $PENSTOCK_PREEMPT_FILE ]; do sleep 0.02; done; echo told; while [ ! -e {go} ]; do sleep 0.02; done"
    run = penstock.popen("run", workflow(step), env={"PENSTOCK_METADATA_AWS": aws.url, "PENSTOCK_PREEMPTION_SOURCES": None})
    run.wait_for_output("aws: rebalance recommendation")
    aws.action("terminate", lead_s=18)
    run.wait_for_output("^told")
    preempt = folder(penstock) / "storage" / ".penstock" / "preempt"
    assert (preempt.parent / "save").exists()

    aws.documents.clear()

    run.wait_for_output(progress.STAYS)
    run.wait_for_output(f"aws {progress.WITHDRAWN}.*spot/instance-action")
    wait_for(lambda: not preempt.exists() and not (preempt.parent / "save").exists())
    run.wait_for_output(progress.RUN_CONTINUES)
    go.touch()
    run.wait().ok()


def test_gcp_asks_for_a_save_each_time_a_machine_moves(penstock, workflow, clouds):
    gcp = clouds(Gcp())
    step = ("for i in 1 2; do while [ ! -e $PENSTOCK_SAVE_FILE ]; do sleep 0.02; done; echo saving $i; "
            "while [ -e $PENSTOCK_SAVE_FILE ]; do sleep 0.02; done; echo over $i; done; [ ! -e $PENSTOCK_PREEMPT_FILE ]")
    run = penstock.popen("run", workflow(step), env={"PENSTOCK_METADATA_GCP": gcp.url, "PENSTOCK_PREEMPTION_SOURCES": None})
    for i in (1, 2):
        gcp.set("maintenance-event", "MIGRATE_ON_HOST_MAINTENANCE")
        run.wait_for_output(f"^saving {i}")
        gcp.set("maintenance-event", "NONE")
        run.wait_for_output(f"^over {i}")

    run.wait().ok()


def test_a_source_that_is_named_twice_is_watched_once(penstock, workflow, clouds):
    gcp = clouds(Gcp())
    run = penstock.popen("run", workflow("echo up; sleep 1000", preemption={"sources": ["gcp", "auto", "gcp"], "grace": "2s"}),
                         env={"PENSTOCK_METADATA_GCP": gcp.url})  # fmt: skip
    run.wait_for_output("^up")
    wait_for(lambda: gcp.asked(gcp.ROOT + "preempted") and gcp.asked(gcp.ROOT + "maintenance-event"))

    gcp.set("preempted", "TRUE")
    run.wait().exits(75)

    assert len(gcp.asked(gcp.ROOT + "id")) == 2  # for each of the two values


def test_azure_tells_it_and_is_told_when_the_run_is_done(penstock, workflow, trainer, clouds, store):
    # Events for other machines or of another kind are ignored; an event is acknowledged once the state is written.
    azure = clouds(Azure("vm-7", first_s=0.3))
    s3 = s3_place(store)["s3"]
    azure.event("Preempt", ["vm-6"])
    azure.event("Reboot", ["vm-7"])
    run = penstock.popen("run", workflow(trainer(save_s=0.5), output={"s3": s3}),
                         env={"PENSTOCK_METADATA_AZURE": azure.url + "/", "PENSTOCK_PREEMPTION_SOURCES": None})  # fmt: skip
    run.wait_for_output("^up")
    wait_for(lambda: len(azure.asked(azure.EVENTS)) >= 2)
    assert azure.started == [] and penstock.ps()[0]["notice"] is None

    event = azure.event("Preempt", ["vm-7"], lead_s=30)
    run.wait().exits(75)

    assert event in saved(penstock)["notice"]["reason"] and 0 < saved(penstock)["notice"]["grace_s"] <= 26
    assert azure.started == [event]
    assert store.bytes("out", "ckpt")


def test_azure_is_not_told_while_another_run_is_at_it(penstock, workflow, trainer, clouds):
    # The first run that ends must not release the machine while another still saves.
    azure = clouds(Azure("vm-7"))
    env = {"PENSTOCK_METADATA_AZURE": azure.url, "PENSTOCK_PREEMPTION_SOURCES": None}
    small = {"tasks": 1, "cpusPerTask": 1, "memPerCpu": 64, "gpus": 0}
    saves = "trap '' TERM; echo up; while [ ! -e $DEEPSQUARE_OUTPUT/go ]; do sleep 0.02; done"
    slow = penstock.popen("run", workflow(saves, name="slow", resources=small, preemption={"grace": "300s"}), env=env)
    slow.wait_for_output("^up")
    quick = penstock.popen("run", workflow(trainer(), resources=small), env=env)
    quick.wait_for_output("^up")

    event = azure.event("Preempt", ["vm-7"], lead_s=300)
    slow.wait_for_output(progress.ASKED_TO_SAVE)
    quick.wait().exits(75)
    told_early = list(azure.started)
    (output,) = [path for path in penstock.home.glob("runs/*/storage/output") if not (path / "ckpt").exists()]
    (output / "go").touch()
    slow.wait().exits(75)

    assert told_early == [] and azure.started == [event]


def test_azure_does_not_acknowledge_for_others(penstock, workflow, trainer, clouds):
    # The other machine in the event may still be saving.
    azure = clouds(Azure("vm-7"))
    run = penstock.popen("run", workflow(trainer()), env={"PENSTOCK_METADATA_AZURE": azure.url, "PENSTOCK_PREEMPTION_SOURCES": None})
    run.wait_for_output("^up")

    azure.event("Preempt", ["vm-6", "vm-7"])
    run.wait().exits(75)

    assert azure.started == []


def test_a_service_that_is_not_there_is_silent(penstock, workflow, clouds):
    # There is no message, and neither the start nor the end of the run waits for the service.
    gone = Gcp()
    gone.close()

    result = penstock.run("run", workflow("echo done"), env={name: gone.url for name in ("PENSTOCK_METADATA_GCP", "PENSTOCK_METADATA_AWS", "PENSTOCK_METADATA_AZURE")}
                          | {"PENSTOCK_PREEMPTION_SOURCES": None}).ok()  # fmt: skip

    assert result.out == "done\n" and "metadata" not in result.err and "preempt" not in result.err and result.seconds < 20


def test_defaults_stand_in_the_configuration(penstock, workflow, trainer, tmp_path):
    # Each key of the workflow overrides that of the configuration. An error names the place of a
    # mistake before anything runs.
    made, config = tmp_path / "evict", tmp_path / "config.yaml"
    config.write_text(f"preemption:\n  sources: [{{file: {made}}}]\n  grace: 20s\n  signal: USR1\n")
    env = {"PENSTOCK_CONFIG": str(config), "PENSTOCK_SYSTEM_CONFIG": str(tmp_path / "none")}
    run = penstock.popen("run", workflow(trainer("SIGUSR1"), preemption={"grace": "9s", "reserve": "3s"}), env=env)
    run.wait_for_output("^up")
    made.touch()
    run.wait().exits(75)
    assert saved(penstock)["by"] == "SIGUSR1" and 0 < saved(penstock)["notice"]["grace_s"] <= 6

    config.write_text("preemption:\n  grace: soon\n")
    refused = penstock.run("run", workflow("true"), env=env)

    assert refused.code == 78 and f"{config}:2:10: " in refused.err and "preemption.grace" in refused.err


# --- the end of a task after a notice


@pytest.mark.parametrize("code", [0, 3])
def test_however_it_ends_the_run_is_preempted(penstock, workflow, trainer, code):
    # After a notice, exit code 0 is not a success: the same command runs the step again, but not
    # the step before it.
    again = "[ -e $DEEPSQUARE_OUTPUT/ckpt ] && { echo goes on; exit 0; }; "
    path = workflow("echo first", again + trainer("SIGTERM", code=code))
    run = penstock.popen("run", path)
    run.wait_for_output("^up")

    run.send(signal.SIGTERM)
    run.wait().exits(75)

    assert penstock.ps()[0]["state"] == "preempted" and penstock.ps()[0]["steps_done"] == 1
    assert penstock.run("run", path).ok().out == "goes on\n"


def test_a_task_that_is_through_says_so(penstock, workflow, trainer):
    # If the last step creates $PENSTOCK_DONE_FILE, the run has succeeded. If an earlier step
    # creates it, that step is finished.
    last = penstock.popen("run", workflow(trainer("SIGTERM", env="DONE=1")))
    last.wait_for_output("^up")
    last.send(signal.SIGTERM)
    last.wait().ok()
    assert penstock.ps()[0]["state"] == "succeeded"

    path = workflow(trainer("SIGTERM", env="DONE=1"), "echo second", name="q")
    first = penstock.popen("run", path)
    first.wait_for_output("^up")
    first.send(signal.SIGTERM)
    first.wait().exits(75)

    assert penstock.ps()[0]["steps_done"] == 1
    assert penstock.run("run", path).ok().out == "second\n"


# A step that got no signal may have finished, or may have saved because it found the preempt file;
# so the message names $PENSTOCK_DONE_FILE. A step that was signalled has saved.
@pytest.mark.parametrize("handles", [False, True])
def test_a_step_that_ends_with_0_and_had_no_signal_is_named(penstock, workflow, handles):
    step = "echo up; while [ ! -e $STORAGE_PATH/go ]; do sleep 0.02; done"
    path = workflow(("trap 'exit 0' TERM; " if handles else "") + step, "echo second", preemption={"grace": "300s"})
    run = penstock.popen("run", path)
    run.wait_for_output("^up")

    run.send(signal.SIGTERM)
    if not handles:
        run.wait_for_output(progress.ASKED_TO_SAVE)
        (folder(penstock) / "storage" / "go").touch()

    named = [line for line in run.wait().exits(75).err.splitlines() if "PENSTOCK_DONE_FILE" in line]
    assert [line for line in named if "'s1'" in line] == named and len(named) == (0 if handles else 1)
    assert penstock.ps()[0]["steps_done"] == 0


def test_a_failure_with_the_mark_is_one(penstock, workflow, trainer):
    run = penstock.popen("run", workflow(trainer("SIGTERM", code=5, env="DONE=1")))
    run.wait_for_output("^up")

    run.send(signal.SIGTERM)

    run.wait().exits(5)


def test_a_failure_before_the_notice_stays_one(penstock, workflow):
    tidy = {"run": {"command": "echo tidying; while [ ! -e $STORAGE_PATH/go ]; do sleep 0.02; done"}}
    run = penstock.popen("run", workflow({"name": "bad", "run": {"command": "exit 4"}, "finally": [tidy]}))
    run.wait_for_output("^tidying")

    run.send(signal.SIGTERM)
    run.wait_for_output(f"{progress.NOTICE_OF} signal")
    (folder(penstock) / "storage" / "go").touch()

    assert "'bad'" in run.wait().exits(4).err
    assert penstock.ps()[0]["state"] == "failed"


def test_who_hears_nothing_is_ended_at_the_deadline(penstock, workflow, store):
    # The step reacts neither to the signal nor to the file; the file that it was writing does not replace the last good object, and the time limit
    # holds.
    s3 = s3_place(store)["s3"]
    step = ("cd $DEEPSQUARE_OUTPUT; trap '' TERM; echo good > half; while [ ! -e $STORAGE_PATH/go ]; do sleep 0.02; done; "
            "exec 3> half; echo ha >&3; echo up; while :; do sleep 0.05; done")
    before = set(processes.descendants())
    run = penstock.popen("run", workflow(step, output={"s3": s3}, continuousOutputSync=True))
    wait_for(lambda: penstock.ps() and "out" in [b["Name"] for b in store.client.list_buckets()["Buckets"]] and "half" in store.keys("out"))
    (folder(penstock) / "storage" / "go").touch()
    run.wait_for_output("^up")

    began = time.monotonic()
    penstock.run("preempt", "p", "--grace", "3s").ok()
    took = time.monotonic() - began
    result = run.wait().exits(75)

    assert "'s1'" in result.err and took >= 1.5
    assert store.bytes("out", "half") == b"good\n"
    assert set(processes.descendants()) <= before
    assert json.loads(store.bytes("out", f".penstock/runs/{folder(penstock).name}/state.json"))["state"] == "preempted"


# The kernel shows whether a task has a handler for the signal. If there is no handler, the message
# about the kill names the signal and the preempt file.
@pytest.mark.parametrize("handles", [False, True])
def test_who_has_no_handler_is_named(penstock, workflow, handles):
    program = "import signal, time; %sprint('up', flush=True); time.sleep(600)" % ("signal.signal(15, lambda *_: time.sleep(600)); " if handles else "")
    run = penstock.popen("run", workflow(f'exec python3 -c "{program}"'))
    run.wait_for_output("^up")

    penstock.run("preempt", "p", "--grace", "2s").ok()
    killed = [line for line in run.wait().exits(75).err.splitlines() if "killed" in line]

    assert len(killed) == 1
    assert ("SIGTERM" in killed[0] and "PENSTOCK_PREEMPT_FILE" in killed[0] and "'s1'" in killed[0]) != handles


# --- times of a notice


def test_a_notice_while_staging(penstock, workflow, http_server):
    url = http_server.add("/data", b"x" * 100000)
    http_server.fault("/data", times=100, stall_after=10)
    run = penstock.popen("run", workflow("echo never", input={"http": {"url": url}}))
    wait_for(lambda: http_server.seen("/data"))
    wait_for(lambda: penstock.ps() and penstock.ps()[0]["state"] == "staging")

    penstock.run("preempt", "p").ok()

    result = run.wait().exits(75)
    assert "never" not in result.out and penstock.ps()[0]["state"] == "preempted"


def test_a_second_notice_does_not_end_a_save(penstock, workflow, trainer, clouds):
    # The cloud sends the notice, and then the shutdown of the machine signals every process.
    gcp = clouds(Gcp())
    run = penstock.popen("run", workflow(trainer("SIGTERM", save_s=1.5)), env={"PENSTOCK_METADATA_GCP": gcp.url, "PENSTOCK_PREEMPTION_SOURCES": None})
    run.wait_for_output("^up")
    gcp.set("preempted", "TRUE")
    run.wait_for_output(progress.ASKED_TO_SAVE)

    run.send(signal.SIGTERM)
    run.send(signal.SIGTERM)

    assert "saved\n" in run.wait().exits(75).out
    assert saved(penstock)["notice"]["source"] == "gcp"


@pytest.mark.parametrize("again", [False, pytest.param(True, marks=pytest.mark.long)], ids=["for good", "and comes again"])
def test_a_notice_that_is_withdrawn(penstock, workflow, tmp_path, again):
    # penstock removes the preempt file, and does not end a task that got the notice and continues,
    # so the run succeeds.
    made, go = tmp_path / "evict", tmp_path / "go"
    step = f"while [ ! -e $PENSTOCK_PREEMPT_FILE ]; do sleep 0.02; done; echo told; while [ ! -e {go} ]; do sleep 0.02; done"
    path = workflow(step, "echo second", preemption={"sources": [{"file": str(made)}], "grace": "3s", "reserve": "1s"})
    run = penstock.popen("run", path)
    wait_for(lambda: penstock.ps() and penstock.ps()[0]["state"] == "running")
    made.touch()
    run.wait_for_output("^told")
    made.unlink()

    run.wait_for_output(progress.WITHDRAWN)
    wait_for(lambda: not (folder(penstock) / "storage" / ".penstock" / "preempt").exists())
    if again:
        made.touch()
        run.wait().exits(75)
        return
    run.wait_for_output(progress.RUN_CONTINUES)
    go.touch()

    assert run.wait().ok().out == "told\nsecond\n"
    assert penstock.ps()[0]["notice"]["withdrawn"] is True


def test_who_was_told_of_a_withdrawn_notice_is_told_of_the_next(penstock, workflow, tmp_path):
    # The step gets the signal of each notice, and the whole time of the second.
    made = tmp_path / "evict"
    step = ("trap 'n=$((n + 1)); echo told $n; [ $n = 1 ] || exit 0' TERM; echo up; while :; do sleep 0.02; done")
    path = workflow(step, preemption={"sources": [{"file": str(made)}], "grace": "3s", "reserve": "1s"})
    run = penstock.popen("run", path)
    run.wait_for_output("^up")
    made.touch()
    run.wait_for_output("^told 1")
    made.unlink()
    run.wait_for_output(progress.RUN_CONTINUES)

    made.touch()

    assert "told 2\n" in run.wait().exits(75).out


def test_a_notice_stands_while_one_source_does(penstock, workflow, tmp_path):
    # If one source withdraws its notice, the notice of another source stays.
    made, go = tmp_path / "evict", tmp_path / "go"
    step = f"while [ ! -e $PENSTOCK_PREEMPT_FILE ]; do sleep 0.02; done; echo told; while [ ! -e {go} ]; do sleep 0.02; done; [ -e $PENSTOCK_PREEMPT_FILE ]"
    path = workflow(step, preemption={"sources": [{"file": str(made)}], "grace": "200s"})
    run = penstock.popen("run", path)
    wait_for(lambda: penstock.ps() and penstock.ps()[0]["state"] == "running")
    made.touch()
    run.wait_for_output("^told")
    penstock.run("preempt", "p", "--grace", "100s", "--no-wait").ok()
    run.wait_for_output(f"{progress.NOTICE_OF} preempt")

    made.unlink()

    run.wait_for_output(progress.WITHDRAWN)
    run.wait_for_output(progress.OTHER_NOTICE_REMAINS)
    go.touch()
    run.wait().exits(75)
    assert (penstock.ps()[0]["notice"]["source"], penstock.ps()[0]["notice"]["withdrawn"]) == ("preempt", False)


@pytest.mark.parametrize("what", ["no text", "a FIFO"])
def test_a_notice_whose_file_says_nothing_is_one_all_the_same(penstock, workflow, trainer, tmp_path, what):
    # The file has bytes that JSON cannot contain, and too many of them, or is a FIFO, which a
    # reader would wait for.
    made = tmp_path / "evict"
    run = penstock.popen("run", workflow(trainer(), preemption={"sources": [{"file": str(made)}]}))
    run.wait_for_output("^up")

    if what == "a FIFO":
        os.mkfifo(made)
    else:
        (tmp_path / "new").write_bytes(b"\xff" + "é".encode() * 3000)
        (tmp_path / "new").rename(made)
    run.wait().exits(75)

    assert saved(penstock)["notice"]["reason"].startswith(str(made) if what == "a FIFO" else "?éé")


def test_a_notice_follows_no_link_that_a_task_has_made(penstock, workflow, tmp_path):
    # penstock writes nothing through the link; the only effect is that the task gets no notice.
    outside = tmp_path / "outside"
    outside.mkdir()
    run = penstock.popen("run", workflow(f"cd $STORAGE_PATH; rm -rf .penstock; ln -s {outside} .penstock; echo up; sleep 1000",
                                         preemption={"grace": "2s"}))  # fmt: skip
    run.wait_for_output("^up")

    run.send(signal.SIGTERM)

    assert ".penstock" in run.wait().exits(75).err and list(outside.iterdir()) == []


@pytest.mark.long
def test_azures_event_is_withdrawn(penstock, workflow, clouds, tmp_path):
    azure, go = clouds(Azure("vm-7")), tmp_path / "go"
    step = f"while [ ! -e $PENSTOCK_PREEMPT_FILE ]; do sleep 0.02; done; echo told; while [ ! -e {go} ]; do sleep 0.02; done"
    run = penstock.popen("run", workflow(step), env={"PENSTOCK_METADATA_AZURE": azure.url, "PENSTOCK_PREEMPTION_SOURCES": None})
    azure.event("Preempt", ["vm-7"], lead_s=6)
    run.wait_for_output("^told")

    azure.withdraw()
    run.wait_for_output(progress.RUN_CONTINUES)
    go.touch()

    run.wait().ok()
    assert azure.started == []


@pytest.mark.parametrize("ends", [pytest.param(0, marks=pytest.mark.long), 75])
def test_a_notice_during_the_flush(penstock, workflow, store, fault_proxy, ends):
    # The sync uploads the files for which there is time. A message names the other files, and the
    # state next to the output says that the run can be resumed.
    s3 = s3_place(store, endpoint=fault_proxy.url)["s3"]
    fault_proxy.fault("PUT", "^/out/data$", times=100000 if ends else 1, hold="request")
    run = penstock.popen("run", workflow("echo 1 > $DEEPSQUARE_OUTPUT/data", output={"s3": s3}),
                         env={"PENSTOCK_NETWORK_STALL": "600" if ends else "2"})  # fmt: skip
    wait_for(lambda: penstock.ps() and penstock.ps()[0]["state"] == "flushing")
    if ends:  # the last state has to be sent twice
        key = f".penstock/runs/{folder(penstock).name}/state.json"
        wait_for(lambda: json.loads(store.bytes("out", key))["state"] == "flushing")
        fault_proxy.fault("PUT", r"/state\.json$", status=503, body=s3_error("SlowDown", "Later"))

    penstock.run("preempt", "p", "--grace", "4s" if ends else "60s", "--no-wait").ok()
    result = run.wait().exits(ends)

    if ends:
        assert penstock.ps()[0]["state"] == "preempted" and penstock.ps()[0]["unflushed"]
        assert "penstock flush" in result.err
        state = json.loads(store.bytes("out", f".penstock/runs/{folder(penstock).name}/state.json"))
        assert state["state"] == "preempted"
        fault_proxy.clear()
        penstock.run("flush", "p").ok()
    assert store.bytes("out", "data") == b"1\n"


def test_an_http_output_gets_what_is_left_of_the_time(penstock, workflow, http_server):
    # The server never replies; the output is sent later, by `penstock flush`.
    proxy = FaultProxy(http_server.url)
    try:
        proxy.fault("PUT", times=100000, hold="request")
        path = workflow("echo 1 > $DEEPSQUARE_OUTPUT/data", output={"http": {"url": proxy.url + "/up/result"}})
        run = penstock.popen("run", path, env={"PENSTOCK_NETWORK_STALL": "600"})
        wait_for(lambda: proxy.seen("PUT"))

        penstock.run("preempt", "p", "--grace", "2s", "--no-wait").ok()
        result = run.wait().exits(75)

        assert penstock.ps()[0]["state"] == "preempted" and penstock.ps()[0]["unflushed"]
        assert "penstock flush" in result.err
        proxy.clear()
        penstock.run("flush", "p").ok()
        assert http_server.received["/up/result"] == b"1\n"
    finally:
        proxy.close()


def test_a_store_that_says_nothing_any_more_does_not_hold_up_the_end(penstock, workflow, store, fault_proxy):
    # Neither the output nor the state can be uploaded. The run still ends in time, and the next
    # attempt uploads both.
    s3 = s3_place(store, endpoint=fault_proxy.url)["s3"]
    step = "trap 'echo 1 > $DEEPSQUARE_OUTPUT/data; exit 0' TERM; [ -e $DEEPSQUARE_OUTPUT/data ] && exit 0; echo up; while :; do sleep 0.02; done"
    path = workflow(step, output={"s3": s3}, continuousOutputSync=True, enableLogging=True, checkpoints={"keep": {"latest": 1}})
    run = penstock.popen("run", path, env={"PENSTOCK_NETWORK_STALL": "600"})
    run.wait_for_output("^up")
    for method in ("GET", "HEAD", "PUT", "POST", "DELETE"):
        fault_proxy.fault(method, times=100000, hold="request")

    penstock.run("preempt", "p", "--grace", "2s", "--no-wait").ok()
    run.wait(120).exits(75)

    assert penstock.ps()[0]["state"] == "preempted"
    fault_proxy.clear()
    penstock.run("run", path).ok()
    assert store.bytes("out", "data") == b"1\n"


def test_a_program_that_is_still_starting_is_told_later(penstock, workflow):
    # The program has no handler yet when the notice arrives, and gets the signal once it has one.
    step = "echo up; while [ ! -e $STORAGE_PATH/go ]; do sleep 0.02; done; trap 'echo told; exit 1' TERM; while :; do sleep 0.02; done"
    run = penstock.popen("run", workflow(step))
    run.wait_for_output("^up")

    run.send(signal.SIGTERM)
    run.wait_for_output(progress.ASKED_TO_SAVE)
    (folder(penstock) / "storage" / "go").touch()

    assert "told\n" in run.wait().exits(75).out


# --- variables and files of steps


def test_steps_know_their_deadline(penstock, workflow):
    ask = 'echo "[$PENSTOCK_DEADLINE]"; [ ! -e "$PENSTOCK_PREEMPT_FILE" ] && [ ! -e "$PENSTOCK_DONE_FILE" ] && echo none'
    before = time.time()

    plain = penstock.run("run", workflow(ask)).ok().out
    limited = penstock.run("run", workflow({"run": {"command": ask, "timeout": "100s"}}, timeout="1h", name="q")).ok().out
    slurm = penstock.run("run", workflow(ask, timeout="1h", name="r"), env={"SLURM_JOB_END_TIME": "1700000000"}).ok().out

    assert plain == "[]\nnone\n"
    assert before + 99 < float(limited.split("]")[0][1:]) < time.time() + 101
    assert slurm.startswith("[1700000000.000]")


@pytest.mark.skipif(not os.path.exists(BUSYBOX), reason="busybox-static is not installed")
def test_a_task_in_a_container_is_told(penstock, workflow, tmp_path):
    # The step in the container sees the file and gets the signal; its done file counts.
    where = write_layout(tmp_path / "image", image([busybox()]))
    step = ("trap 'cat $PENSTOCK_PREEMPT_FILE; echo; touch $PENSTOCK_DONE_FILE; exit 0' TERM; echo up; while :; do sleep 0.02; done")
    path = workflow({"name": "c", "run": {"command": step, "container": {"image": str(where)}}}, "echo second")
    run = penstock.popen("run", path)
    run.wait_for_output("^up")

    run.send(signal.SIGTERM)
    result = run.wait().exits(75)

    assert json.loads(result.out.splitlines()[1])["reason"] == "SIGTERM"
    assert penstock.ps()[0]["steps_done"] == 1

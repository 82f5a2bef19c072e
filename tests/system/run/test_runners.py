"""The resources of a machine and the claims on them; commands next to a step; the ports and the webhook of a run."""
import http.server
import json
import os
import pty
import pwd
import re
import socket
import threading

import pytest

from harness import progress

CPUS = len(os.sched_getaffinity(0))
USER = pwd.getpwuid(os.geteuid()).pw_name


@pytest.fixture
def limited(tmp_path):
    """limited(text): the environment with the text as the system's configuration, which has
    limits."""

    def write(text, variable="PENSTOCK_SYSTEM_CONFIG"):
        path = tmp_path / f"{variable}.yaml"
        path.write_text(text)
        return {variable: str(path)}

    return write


@pytest.fixture
def running(penstock, workflow):
    """running(command, **run): starts a run, and waits until its step has printed that it is up."""

    def start(command="echo up; while :; do sleep 0.1; done", **fields):
        process = penstock.popen("run", workflow(command, **fields))
        process.wait_for_output("up")
        return process

    return start


def waits(pid):
    """Returns true if the process sleeps in poll()."""
    try:
        with open(f"/proc/{pid}/syscall") as call:
            return call.read().split()[0] in ("7", "73", "271")  # poll of x86_64; ppoll of aarch64 and x86_64
    except (OSError, IndexError):
        return True  # the file cannot be seen here


# ---- limits ----


def test_runners_tells_what_there_is_what_is_claimed_and_what_is_allowed(penstock, running, limited):
    running(resources={"tasks": 1, "cpusPerTask": 1, "memPerCpu": 256})

    machine = penstock.run("runners", "--json", env=limited(f"limits: {{{USER}: {{memory: 1GiB, runs: 3}}}}")).json()[0]
    table = penstock.run("runners").ok().out

    assert machine["capacity"]["cpus"] == CPUS
    assert (machine["used"]["cpus"], machine["used"]["memory"], machine["used"]["runs"]) == (1, 256 << 20, 1)
    assert machine["own"] == machine["used"]
    assert machine["limits"] == {"cpus": None, "memory": 1 << 30, "gpus": None, "runs": 3}
    nothing = {"cpus": 0, "memory": 0, "gpus": 0, "runs": 0}
    assert machine["users"] == [{"user": USER, "used": machine["used"], "asked": nothing, "limits": machine["limits"]}]
    assert machine["name"] == socket.gethostname() and machine["name"] in table


def test_runners_tells_apart_what_is_held_what_is_waited_for_and_what_holds_it(penstock, workflow, running, limited):
    limits = limited("limits: {'*': {runs: 7}}")
    running(resources={"cpusPerTask": CPUS, "memPerCpu": 64})
    second = penstock.popen("run", workflow("true", file="second.json", name="second", resources={"memPerCpu": 32}))
    second.wait_for_output(f"{progress.WAITING} 1 CPU")

    machine = penstock.run("runners", "--json", env=limits).json()[0]
    lines = penstock.run("runners", env=limits).ok().out.splitlines()

    assert (machine["status"], machine["used"]["runs"], machine["waiting"], machine["asked"]["runs"]) == ("busy", 1, 1, 1)
    assert (machine["used"]["memory"], machine["asked"]["memory"]) == (CPUS * 64 << 20, 32 << 20)
    assert "1 run, 1 waiting" in lines[0]
    table = [re.split(r"  +", line.strip()) for line in lines[1:]]
    assert table[0] == ["WHAT", "CLAIMED", "WAITED FOR", "CAPACITY", "YOURS", "YOUR LIMIT", "HELD BY"]
    rows = {row[0]: dict(zip(table[0], row)) for row in table[1:]}
    assert (rows["memory"]["WAITED FOR"], rows["CPUs"]["CLAIMED"], rows["CPUs"]["WAITED FOR"]) == ("33.6 MB", str(CPUS), "1")
    assert rows["runs"] == {"WHAT": "runs", "CLAIMED": "1", "WAITED FOR": "1", "CAPACITY": "-", "YOURS": "1", "YOUR LIMIT": "7", "HELD BY": "-"}
    assert rows["GPUs"]["HELD BY"] == ("control group" if machine["enforced"]["gpus"] else "CUDA_VISIBLE_DEVICES")


@pytest.mark.parametrize(
    "limits, asked, override",
    [
        ("{cpus: 1}", {"cpusPerTask": 2}, "--set resources.cpusPerTask=1"),
        ("{memory: 100MiB}", {"memPerCpu": 200}, "--set resources.memPerCpu=100"),
        ("{gpus: 0}", {"gpus": 1}, "--set resources.gpus=0"),
    ],
    ids=["cpus", "memory", "gpus"],
)
@pytest.mark.skipif(CPUS < 2, reason="a machine with one CPU refuses two CPUs even without a limit")
def test_what_the_limits_of_a_user_never_allow_is_refused_with_the_override(penstock, workflow, limited, limits, asked, override):
    env = limited(f"limits: {{'*': {limits}}}") | {"PENSTOCK_GPUS": "1"}

    result = penstock.run("run", workflow("true", resources=asked), env=env).exits(65)

    assert override in result.err
    penstock.run("run", workflow("true", resources=asked), *override.split(), env=env).ok()


@pytest.mark.parametrize("limits", ["{runs: 1}", "{memory: 300MiB}"], ids=["runs", "memory"])
def test_a_run_over_the_limits_of_its_user_waits_for_others_of_that_user(penstock, workflow, running, limited, limits):
    resources = {"memPerCpu": 200} | ({"cpusPerTask": 1} if CPUS > 1 else {})
    first = running("echo up; while [ ! -e go ]; do sleep 0.05; done", resources=resources)
    second = penstock.popen("run", workflow("echo second", file="second.json", name="second", resources=resources), env=limited(f"limits: {{'*': {limits}}}"))
    second.wait_for_output(progress.WAITING)

    next(penstock.home.glob("runs/*/storage")).joinpath("go").touch()

    first.wait().ok()
    assert "second" in second.wait().ok().out


@pytest.mark.skipif(CPUS < 2, reason="on one CPU, all runs would wait for the CPU")
def test_runs_over_the_limits_of_their_user_go_on_in_their_order(penstock, workflow, running, limited, tmp_path):
    # Small runs do not overtake a large one again and again, except those that need none of the resources that it waits for.
    env = limited("limits: {'*': {memory: 300MiB}}")
    order = tmp_path / "order"
    first = running(f"echo up; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done", resources={"memPerCpu": 200}, name="first")
    waiting = {}
    for name, memory, said in [("large", 300, "300 MB .* run [0-9a-f]+ .first.$"), ("small", 50, "run [0-9a-f]+ .large.$")]:
        path = workflow(f"echo {name} >> {order}", file=f"{name}.json", name=name, resources={"memPerCpu": memory})
        waiting[name] = penstock.popen("run", path, env=env)
        waiting[name].wait_for_output(f"{progress.WAITING} .*{said}")
    machine = penstock.run("runners", "--json", env=env).json()[0]
    passed = penstock.run("run", workflow("echo passed", file="none.json", name="none", resources={}), env=env)

    (tmp_path / "go").touch()

    first.wait().ok()
    for process in waiting.values():
        process.wait().ok()
    assert order.read_text() == "large\nsmall\n" and "passed" in passed.ok().out
    assert (machine["used"]["runs"], machine["waiting"]) == (1, 2)


def test_the_lower_of_both_limits_counts_and_names_win_over_the_star(penstock, limited):
    env = limited(f"limits: {{'*': {{cpus: 1}}, {USER}: {{cpus: 8, gpus: 2}}}}") | limited("limits: {'*': {cpus: 4, gpus: 3}}", "PENSTOCK_CONFIG")

    limits = penstock.run("runners", "--json", env=env).json()[0]["limits"]

    assert limits == {"cpus": 4, "memory": None, "gpus": 2, "runs": None}


@pytest.mark.parametrize(
    "text, message",
    [
        ("limits: {ann: {cpu: 1}}", ":1:21: unknown key `cpu`: limits are cpus, memory, gpus and runs"),
        ("limits: {ann: {memory: much}}", ":1:24: `memory` must be a size such as 32GiB"),
        ("limits: {ann: {runs: -1}}", ":1:22: `runs` must be a whole number"),
        ("limits: [ann]", ":1:9: `limits` must be a map of users"),
        ("limits: {ann: 4}", ":1:15: the limits of `ann` must be a map of cpus, memory, gpus and runs"),
        ("limit: {ann: {cpus: 1}}", ":1:1: unknown key `limit`: a configuration has images, limits, on, output, preemption and slurm"),
        ("[1]", ": a configuration must be a map"),
        ("{limits", ":1:"),
    ],
)
def test_a_wrong_configuration_is_told_where_it_is_wrong(penstock, workflow, limited, text, message):
    env = limited(text)

    told = penstock.run("runners", env=env).exits(78).err
    refused = [penstock.run("run", *options, workflow("true"), env=env).exits(78) for options in ([], ["--dry-run"], ["--detach"])]

    assert env["PENSTOCK_SYSTEM_CONFIG"] + message in told
    assert all(message in each.err for each in refused) and penstock.ps() == []


# ---- exec ----


def test_exec_runs_where_the_step_runs(penstock, running):
    # The command runs in the step's directory, environment and control group; `exec` passes on
    # standard input and the exit code.
    run = running("cd input; export LATER=1; echo up; while :; do sleep 0.1; done", env=[{"key": "GIVEN", "value": "by the workflow"}])

    out = penstock.run("exec", "t", "sh", "-c", "echo [$GIVEN][$LATER]; pwd; cat; exit 5", input="from here\n").exits(5).out

    assert out.splitlines()[0] == "[by the workflow][]"
    assert out.splitlines()[1].endswith("/storage/input")
    assert out.splitlines()[2] == "from here"
    groups = penstock.run("exec", "t", "cat", "/proc/self/cgroup").ok().out
    tasks = next(penstock.home.glob("runs/*/live/*")).read_text().splitlines()[1]
    [task] = json.loads(tasks.partition(" ")[2])["tasks"]
    with open(f"/proc/{task['pid']}/cgroup") as own:
        assert groups == own.read()
    assert run.running()


def test_exec_hands_arguments_on_as_they_are(penstock, running):
    running(env=[{"key": "OWN", "value": "1"}])
    words = ["A=b", "--lr=0.1", "https://user:word@h/x?X-Amz-Signature=abc", "https://h/x?y"]

    assert penstock.run("exec", "t", "--", "printf", "%s\\n", *words).ok().out.splitlines() == words
    assert penstock.run("exec", "t", "sh", "-c", "echo r=$OWN $*", "--set=x", *words[:2]).ok().out == "r=1 A=b --lr=0.1\n"
    line, missing = (penstock.run("exec", "t", *command).exits(66).err for command in (["echo $OWN"], ["no-such-command", "a b"]))
    assert "echo $OWN" in line and "No such file" in line and "sh -c 'echo $OWN'" in line
    assert "no-such-command" in missing and "No such file" in missing and "sh -c" not in missing


def test_exec_waits_for_a_step_that_is_about_to_start(penstock, running, wait_for):
    # A step can print before its tasks are recorded: here the tasks are removed from the record, as
    # if recording them took long.
    running()
    penstock.run("exec", "t", "true").ok()
    record = next(penstock.home.glob("runs/*/live/[0-9]*"))
    whole = record.read_text()
    record.with_name("half").write_text(whole.splitlines(keepends=True)[0])
    record.with_name("half").rename(record)

    beside = penstock.popen("exec", "t", "echo", "there")
    wait_for(lambda: not beside.running() or waits(beside.pid), 60, "exec to wait, or to give up")
    record.with_name("half").write_text(whole)
    record.with_name("half").rename(record)

    assert beside.wait().ok().out == "there\n"


def test_exec_enters_an_iteration_with_a_long_item(penstock, running):
    # The name of an iteration has the first 40 bytes of its item. Here the last of these bytes is
    # half a character.
    step = {"run": {"command": "echo up; while :; do sleep 0.1; done"}}
    running({"for": {"parallel": False, "items": ["x" + "\u00e9" * 30], "steps": [step]}})

    penstock.run("exec", "t", "true").ok()


@pytest.mark.skipif(CPUS < 2, reason="two tasks cannot share one CPU")
def test_exec_enters_the_task_of_a_rank(penstock, running):
    running({"command": "echo up; while :; do sleep 0.1; done", "resources": {"tasks": 2}}, resources={"tasks": 2})

    assert penstock.run("exec", "t", "--rank", "1", "sh", "-c", "echo $RANK").ok().out == "1\n"
    assert " 2" in penstock.run("exec", "t", "--rank", "2", "true").exits(65).err


def test_what_exec_started_ends_with_the_step(penstock, running, wait_for):
    run = running("echo up; while [ ! -e go ]; do sleep 0.05; done")
    beside = penstock.popen("exec", "t", "sh", "-c", "echo there; exec sleep 1000")
    beside.wait_for_output("there")
    with open(f"/proc/{beside.pid}/cgroup") as groups:
        if "penstock-" not in groups.read():
            pytest.skip("cannot create control groups here")

    next(penstock.home.glob("runs/*/storage")).joinpath("go").touch()

    run.wait().ok()
    assert beside.wait().code == -9


def test_exec_has_a_terminal_where_there_is_one(penstock, running):
    running()
    master, slave = pty.openpty()

    process = penstock.popen("exec", "t", "sh", "-c", "test -t 0 && read line && echo got $line", stdin=slave)
    os.close(slave)
    os.write(master, b"hello\n")

    assert process.wait().ok().out == "got hello\n"
    os.close(master)


def test_exec_without_a_running_step_says_so(penstock, workflow):
    penstock.run("run", workflow("true")).ok()

    penstock.run("exec", "t", "true").exits(66)
    penstock.run("exec", "nobody", "true").exits(66)


# ---- ports ----


def test_steps_are_given_free_ports_which_ps_shows(penstock, running):
    run = running("echo up $PORT_0 $PORT_1; while :; do sleep 0.1; done", ports=2)

    given = [int(port) for port in run.wait_for_output(r"up (\d+) (\d+)").groups()]

    assert len(set(given)) == 2
    assert penstock.ps()[0]["ports"] == given
    assert f"ports {given[0]} {given[1]}" in penstock.run("ps").ok().out
    for port in given:
        with socket.socket() as free:
            free.bind(("127.0.0.1", port))


# ---- notify ----


@pytest.fixture
def hook():
    """A receiver of webhook requests: `bodies` has their bodies, `statuses` those of the first
    replies; with `hang` it never replies."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            server = self.server
            server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            if server.hang:
                server.over.wait()
            self.send_response(server.statuses.pop(0) if server.statuses else 204)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.bodies, server.statuses, server.hang, server.over = [], [], False, threading.Event()
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield server
    server.over.set()
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("command, told", [("true", ["start", "end"]), ("exit 3", ["start", "end", "failure"])])
def test_a_webhook_is_told_of_the_beginning_the_end_and_the_failure(penstock, workflow, hook, command, told):
    path = workflow(command, notify={"url": hook.url + "/hook-secret-place"})

    result = penstock.run("run", path)

    found = [json.loads(body) for body in hook.bodies]
    assert [each["event"] for each in found] == told
    assert found[0]["state"] == "running" and found[0]["exit_code"] is None
    last = found[-1]
    assert (last["run"], last["name"], last["attempt"]) == (penstock.ps()[0]["id"], "t", 1)
    assert (last["state"], last["class"], last["exit_code"]) == (("succeeded", None, 0) if command == "true" else ("failed", "user", 3))
    assert "hook-secret-place" not in result.text
    for file in penstock.home.rglob("*"):
        assert not file.is_file() or b"hook-secret-place" not in file.read_bytes()


def test_a_webhook_is_told_only_what_was_asked_for_and_again_if_it_failed(penstock, workflow, hook):
    hook.statuses = [500, 503]
    path = workflow("exit 3", notify={"url": hook.url + "/x", "events": ["failure"]})

    penstock.run("run", path).exits(3)

    assert [json.loads(body)["event"] for body in hook.bodies] == ["failure"] * 3


def test_a_webhook_that_is_not_there_changes_nothing_but_a_warning(penstock, workflow):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening, so connections are refused
        path = workflow("true", notify={"url": f"http://127.0.0.1:{taken.getsockname()[1]}/hook-secret-place"})

        result = penstock.run("run", path).ok()

    assert "notify" in result.err
    assert "hook-secret-place" not in result.text


@pytest.mark.long
def test_a_webhook_that_never_answers_does_not_keep_the_run(penstock, workflow, hook):
    hook.hang = True
    path = workflow("true", notify={"url": hook.url + "/x"})

    result = penstock.run("run", path).ok()

    assert "notify" in result.err
    assert len(hook.bodies) == 1

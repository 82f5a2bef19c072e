"""`retry` of a workflow, and `penstock watch`: runs that continue by themselves."""
import contextlib
import functools
import json
import os
import re
import resource
import signal
import socket
import sqlite3
import subprocess
import time

import pytest

from harness import progress
from harness.metadata import Aws
from harness.program import binary
from harness.workflows import write_workflow

BUILD = binary().parent


@pytest.fixture
def job(tmp_path):
    """job(*commands, **more): the path of a workflow without an output; its steps share $AT, a directory of the test."""
    return functools.partial(write_workflow, tmp_path, env=[{"key": "AT", "value": str(tmp_path)}])


def attempts(penstock, run):
    return [(a["attempt"], a["state"], a["exit_code"]) for a in penstock.run("show", "--json", run).json()["attempts"]]


# --- retry


def test_a_failure_that_is_retried_is_an_attempt_and_goes_on_where_it_failed(penstock, job):
    # Finished steps are not repeated, and the exit code is that of the last attempt.
    path = job("echo once", "echo try $PENSTOCK_ATTEMPT; [ $PENSTOCK_ATTEMPT = 3 ] || exit 7", name="again", retry={"max": 5, "backoff": "10ms"})

    done = penstock.run("run", path).ok()

    assert done.out == "once\ntry 1\ntry 2\ntry 3\n"
    assert attempts(penstock, "again") == [(1, "failed", 7), (2, "failed", 7), (3, "succeeded", 0)]
    assert re.findall(r"(\d) of 5\b", done.err) == ["1", "2"]


def test_retries_end(penstock, job):
    path = job("echo try; exit 7", name="again", retry={"max": 2, "backoff": "10ms"})

    done = penstock.run("run", path).exits(7)

    assert done.out == "try\n" * 3 and "2 retries" in done.err
    # If a user continues the run, or starts it over, the run gets the same number of retries again.
    assert penstock.run("resume", "again").exits(7).out == "try\n" * 3
    assert penstock.run("run", path).exits(7).out == "try\n" * 3


RETRIED = {
    "a code of the list": ({"codes": [7]}, "exit 7", True),
    "a code that is shown as another": ({"codes": [70]}, "exit 70", True),
    "no code of the list": ({"codes": [8]}, "exit 7", False),
    "a class of the list": ({"classes": ["user"]}, "exit 7", True),
    "no class of the list": ({"classes": ["node", "input"]}, "exit 7", False),
    "either": ({"classes": ["node"], "codes": [7]}, "exit 7", True),
    "time": ({"classes": ["timeout"]}, "sleep 1000", True),
}


@pytest.mark.parametrize("what", RETRIED)
def test_codes_and_classes_say_what_is_retried(penstock, job, what):
    retry, ends, expected = RETRIED[what]
    path = job(f"echo try; [ $PENSTOCK_ATTEMPT = 2 ] || {ends}", timeout="300ms" if what == "time" else "1h", retry={"max": 1, "backoff": "1ms"} | retry)

    done = penstock.run("run", path)

    assert (done.code == 0) == expected and done.out == "try\n" * (2 if expected else 1)


def test_an_input_that_cannot_be_had_is_asked_for_again(penstock, job, tmp_path, wait_for):
    path = job("cat $DEEPSQUARE_INPUT/data", input={"local": {"path": str(tmp_path / "data")}}, retry={"max": 100, "classes": ["input"], "backoff": "200ms"})
    run = penstock.popen("run", path)
    run.wait_for_output(r"\b1 of 100\b")

    (tmp_path / "data").write_text("here now\n")

    assert run.wait().ok().out == "here now\n"


# A recommendation of a cloud does not end the run, so the recommendation is still pending during
# the pause.
def test_a_pause_costs_no_cpu_after_a_notice(penstock, job):
    aws = Aws()

    def retried():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = penstock.run("run", "--fresh", job("exit 7", name="again", retry={"max": 1, "backoff": "4s"}),
                            env={"PENSTOCK_METADATA_AWS": aws.url, "PENSTOCK_PREEMPTION_SOURCES": "aws"}).exits(7)  # fmt: skip
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return "aws: rebalance recommendation" in done.err, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    without = retried()
    aws.rebalance()
    noticed = retried()
    aws.close()

    assert (without[0], noticed[0]) == (False, True)
    assert noticed[1] < without[1] + 0.5


# For a moment, the first run's record has the state failed. A run that waits for its output waits
# for the next attempt.
def test_a_run_that_is_retried_has_not_failed_for_those_that_wait_for_it(penstock, job, tmp_path, wait_for):
    step = "[ $PENSTOCK_ATTEMPT = 1 ] || { echo second > $DEEPSQUARE_OUTPUT/data; exit 0; }; until [ -e $AT/go ]; do sleep 0.05; done; exit 7"
    with socket.socket() as silent:  # the server delays the end of the first attempt, which has failed by then
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        hook = {"url": f"http://127.0.0.1:{silent.getsockname()[1]}/x", "events": ["start"]}
        penstock.run("run", "-d", job(step, name="prep", notify=hook, retry={"max": 1, "backoff": "1ms"})).ok()
        train = penstock.popen("run", job("cat $DEEPSQUARE_INPUT/data", name="train", input={"artifacts": {"run": "prep"}}))
        train.wait_for_output(progress.WAITING)
        (tmp_path / "go").touch()

        train.wait().exits(0)

    assert train.out == "second\n"
    assert attempts(penstock, "prep") == [(1, "failed", 7), (2, "succeeded", 0)]


def test_a_retry_that_is_awaited_survives_a_kill(penstock, job, wait_for):
    # During the pause, other commands see a run that can be continued, not a failed run. Retries
    # before the kill still count.
    path = job("echo once", "echo try $PENSTOCK_ATTEMPT; exit 7", name="again", retry={"max": 1, "backoff": "1h"})
    run = penstock.popen("run", path)
    run.wait_for_output(r"\b1 of 1\b")
    wait_for(lambda: len(attempts(penstock, "again")) == 2)
    run.kill()

    done = penstock.run("run", path).exits(7)

    assert done.out == "try 3\n" and "1 retry" in done.err


@pytest.mark.parametrize("number, code, state", [(signal.SIGTERM, 75, "preempted"), (signal.SIGINT, 130, "stopped")])
def test_a_retry_that_is_awaited_can_be_ended(penstock, job, wait_for, number, code, state):
    path = job("echo once", "echo try $PENSTOCK_ATTEMPT; exit 7", name="again", retry={"max": 1, "backoff": "1h"})
    run = penstock.popen("run", path)
    run.wait_for_output(r"\b1 of 1\b")
    wait_for(lambda: len(attempts(penstock, "again")) == 2)

    run.send(number)

    run.wait().exits(code)
    assert attempts(penstock, "again")[-1] == (2, state, code)
    if state == "preempted":
        assert penstock.run("run", path).exits(7).out == "try 3\n"


def test_a_restart_goes_on_from_what_the_step_has_saved(penstock, job):
    # The step must not get the checkpoint that the attempt began with, which is older or missing.
    save = f"{BUILD}/tests/unit/checkpoint-tool save $PENSTOCK_CHECKPOINT_DIR"
    steps = [{"name": "train", "run": {"restarts": 2, "command": f"echo from $(basename ${{PENSTOCK_CHECKPOINT:-nothing}}); {save} 1${{PENSTOCK_RESTART:-0}} 10 >/dev/null; exit ${{PENSTOCK_RESTART:-5}}"}},
             {"name": "next", "run": {"command": "true"}}]  # fmt: skip

    done = penstock.run("run", job(steps=steps)).exits(2)

    assert re.findall(r"^from (?:step-0*)?([^-\n]*)", done.out, re.M) == ["nothing", "10", "11"]


def test_a_request_to_end_is_not_retried(penstock, job):
    path = job("echo began; trap 'exit 7' TERM; while :; do sleep 0.05; done", retry={"max": 9, "backoff": "1ms"})
    run = penstock.popen("run", path)
    run.wait_for_output("began")

    run.send(signal.SIGTERM)

    assert run.wait().exits(75).out == "began\n"


def test_exit_codes_that_recover_do_not_count_as_restarts(penstock, tmp_path):
    # As in SkyPilot, exit code 33 always leads to a new attempt; other codes restart the step at
    # most once, within the attempt.
    path = tmp_path / "task.yaml"
    path.write_text(f"""name: sky
run: |
  echo a >> {tmp_path}/n
  case $(wc -l < {tmp_path}/n) in 1|2) exit 33;; 3) exit 5;; esac
resources:
  job_recovery: {{max_restarts_on_errors: 1, recover_on_exit_codes: [33]}}
""")

    penstock.run("run", path, "--set", "retry.backoff=1ms").ok()

    assert (tmp_path / "n").read_text() == "a\n" * 4
    assert attempts(penstock, "sky") == [(1, "failed", 33), (2, "failed", 33), (3, "succeeded", 0)]


# --- watch


STAYS = "trap 'exit 0' TERM; echo n >> $AT/%s; [ $PENSTOCK_ATTEMPT = 1 ] || exit 0; echo began; while :; do sleep 0.05; done"


def left_over(penstock, job, name, number):
    """Leaves a run that ended by this signal while its step was live."""
    run = penstock.popen("run", job(STAYS % name, file=f"{name}.json", name=name))
    run.wait_for_output("began")
    run.send(number)
    run.wait()


def states(penstock):
    return {run["name"]: run["state"] for run in penstock.run("ps", "--json", "--all").json()}


@pytest.fixture
def after_reboot(penstock, job, tmp_path):
    """Leaves a home with a run in every state; the live run ends once $AT/go exists. Returns the
    states."""
    left_over(penstock, job, "preempted", signal.SIGTERM)
    left_over(penstock, job, "lost", signal.SIGKILL)
    left_over(penstock, job, "stopped", signal.SIGINT)
    penstock.run("run", job("exit 1", file="failed.json", name="failed")).exits(1)
    penstock.run("run", job("true", file="succeeded.json", name="succeeded")).ok()
    live = penstock.popen("run", job("echo n >> $AT/live; echo began; while [ ! -e $AT/go ]; do sleep 0.05; done", file="live.json", name="live"))
    live.wait_for_output("began")
    before = states(penstock)
    yield before
    (tmp_path / "go").touch()
    live.wait().ok()
    assert (tmp_path / "live").read_text() == "n\n"


AFTER = {"preempted": "succeeded", "lost": "succeeded", "stopped": "stopped", "failed": "failed", "succeeded": "succeeded", "live": "running"}


def test_watch_once_continues_what_is_due_and_nothing_else(penstock, after_reboot, tmp_path, wait_for):
    assert after_reboot == AFTER | {"preempted": "preempted", "lost": "lost"}

    started = penstock.run("watch", "--once", "--json").json()
    wait_for(lambda: states(penstock) == AFTER)
    nothing = penstock.run("watch", "--once").ok()

    assert sorted((event["event"], event["name"], event["after_attempt"]) for event in started) == [("started", "lost", 1), ("started", "preempted", 1)]
    assert (tmp_path / "lost").read_text() == (tmp_path / "preempted").read_text() == "n\nn\n"
    assert nothing.out == ""


def test_watch_has_a_supervisor_for_each_run(penstock, after_reboot, wait_for):
    watch = penstock.popen("watch", "--json", "--every", "100ms")
    wait_for(lambda: states(penstock) == AFTER)
    wait_for(lambda: watch.out.count('"ended"') == 2)

    watch.send(signal.SIGTERM)
    events = [json.loads(line) for line in watch.wait().ok().out.splitlines()]

    assert sorted((e["event"], e["name"], e.get("exit_code")) for e in events) == [
        ("ended", "lost", 0), ("ended", "preempted", 0), ("started", "lost", None), ("started", "preempted", None),
    ]  # fmt: skip


@pytest.mark.parametrize("once", [True, False])
def test_a_run_that_watch_continues_has_the_secrets_of_its_environment(penstock, tmp_path, wait_for, once):
    # The workflow refers to a secret of the environment; helper programs get no secrets, and a supervisor is not a helper.
    path = tmp_path / "secret.json"
    step = 'echo "$MINE" >> $AT/seen; echo began; [ $PENSTOCK_ATTEMPT = 2 ] || exec sleep 1000'
    path.write_text(json.dumps({
        "name": "mine", "resources": {"tasks": 1, "cpusPerTask": 1, "memPerCpu": 16, "gpus": 0}, "steps": [{"name": "s", "run": {"command": step}}],
        "env": [{"key": "AT", "value": str(tmp_path)}, {"key": "MINE", "value": "${{ secrets.MINE }}"}],
    }))  # fmt: skip
    environment = {"PENSTOCK_SECRET_MINE": "of-the-environment"}
    run = penstock.popen("run", path, env=environment)
    run.wait_for_output("began")
    run.kill()

    if once:
        penstock.run("watch", "--once", env=environment).ok()
    else:
        watch = penstock.popen("watch", "--every", "50ms", env=environment)
    wait_for(lambda: states(penstock) == {"mine": "succeeded"})
    if not once:
        watch.send(signal.SIGTERM)
        watch.wait().ok()

    assert (tmp_path / "seen").read_text() == "of-the-environment\n" * 2


def test_watch_tells_its_runs_to_end_and_waits_for_them(penstock, job, tmp_path, wait_for):
    step = "echo n >> $AT/n; echo began; trap 'echo saved >> $AT/n; exit 0' TERM; while :; do sleep 0.05; done"
    run = penstock.popen("run", job(step, name="long"))
    run.wait_for_output("began")
    run.kill()
    watch = penstock.popen("watch", "--every", "100ms")
    wait_for(lambda: (tmp_path / "n").read_text().endswith("n\n" * 2) or (tmp_path / "n").read_text().count("n\n") == 2)
    wait_for(lambda: states(penstock) == {"long": "running"})

    watch.send(signal.SIGTERM)

    ended = watch.wait().ok()
    assert re.search(r"\brun long\b.*\b75\b", ended.err)
    assert states(penstock) == {"long": "preempted"}


def test_a_preemption_before_its_eyes_waits_and_a_loss_does_not(penstock, job, tmp_path, wait_for):
    # `watch` restarts a run only an hour after a preemption that it has seen, because the machine
    # is about to go away. A lost run is due at once.
    watch = penstock.popen("watch", "--every", "100ms", "--after", "1h")
    wait_for(lambda: watch.running())
    left_over(penstock, job, "preempted", signal.SIGTERM)
    left_over(penstock, job, "lost", signal.SIGKILL)

    wait_for(lambda: states(penstock) == {"lost": "succeeded", "preempted": "preempted"})
    watch.send(signal.SIGTERM)
    ended = watch.wait().ok()

    assert "run lost" in ended.err and "run preempted" not in ended.err


def test_watch_backs_off_from_a_run_that_ends_at_once(penstock, job, tmp_path, wait_for):
    # The second attempt kills its own supervisor, so the run is lost again, and must not be
    # restarted at once.
    run = penstock.popen("run", job("echo n >> $AT/n; [ $PENSTOCK_ATTEMPT = 1 ] || kill -9 $PPID; echo began; exec sleep 1000", name="bad"))
    run.wait_for_output("began")
    run.kill()
    watch = penstock.popen("watch", "--every", "50ms")
    watch.wait_for_output(r"\brun bad\b.*\b137\b")
    time.sleep(1)  # long enough for twenty scans; the pause before a restart is at least 8 s

    watch.send(signal.SIGTERM)
    watch.wait().ok()

    assert (tmp_path / "n").read_text() == "n\nn\n"
    penstock.run("stop", "bad").ok()


def test_due_is_only_what_was_interrupted(penstock, job):
    penstock.run("run", job("exit 3", name="failed")).exits(3)

    passed = penstock.run("resume", "--due", "failed").ok()

    assert "failed" in passed.err and attempts(penstock, "failed") == [(1, "failed", 3)]


def test_what_was_stopped_after_its_preemption_is_not_continued_by_itself(penstock, job):
    # A user who stops a waiting run wants it to stay stopped; `run` and `resume` continue it as usual.
    for name, number in (("preempted", signal.SIGTERM), ("lost", signal.SIGKILL)):
        left_over(penstock, job, name, number)
        penstock.run("stop", name).ok()

    nothing = penstock.run("watch", "--once").ok()
    not_due = penstock.run("resume", "--due", "lost").ok()

    assert nothing.out == "" and "stopped" in not_due.err
    assert states(penstock) == {"preempted": "preempted", "lost": "lost"}
    # A manual start that fails leaves the run stopped.
    with contextlib.closing(sqlite3.connect(penstock.home / "runs.db", isolation_level=None)) as records:
        records.execute("CREATE TRIGGER full BEFORE INSERT ON attempts BEGIN SELECT RAISE(ABORT, 'full'); END")
        refused = penstock.run("resume", "lost")
        records.execute("DROP TRIGGER full")
    assert refused.code != 0 and "stopped" in penstock.run("resume", "--due", "lost").ok().err
    penstock.run("resume", "preempted").ok()
    assert states(penstock)["preempted"] == "succeeded"
    penstock.run("resume", "lost").ok()
    assert states(penstock)["lost"] == "succeeded"


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a directory to another user needs root")
@pytest.mark.parametrize("what", ["the home", "a run"])
def test_watch_runs_nothing_of_another_user(penstock, job, what):
    left_over(penstock, job, "lost", signal.SIGKILL)
    (run,) = penstock.home.glob("runs/*")
    os.chown(penstock.home if what == "the home" else run, 4711, -1)

    done = penstock.run("watch", "--once")

    assert done.code == (77 if what == "the home" else 0), done.err
    assert done.out == ""
    os.chown(penstock.home, 0, -1)
    assert states(penstock) == {"lost": "lost"}
    penstock.run("stop", "lost").ok()


def test_retries_count_on_where_watch_goes_on(penstock, job, wait_for):
    # The machine dies during the pause before a retry. penstock must not take its death for a
    # request of the user to stop.
    path = job("echo n >> $AT/n; exit 7", name="again", retry={"max": 1, "backoff": "1h"})
    run = penstock.popen("run", path)
    wait_for(lambda: penstock.ps() and penstock.ps()[0]["attempt"] == 2)
    run.kill()
    run.wait()

    ended = penstock.run("resume", "--due", "again").exits(7)

    assert "1 retry" in ended.err


# --- the units


@pytest.mark.parametrize("unit, kind", [("penstock-watch.service", "user"), ("penstock-watch@.service", "system")])
def test_the_units_are_installed_and_valid(tmp_path, unit, kind):
    subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", tmp_path], check=True, stdout=subprocess.DEVNULL)
    (installed,) = tmp_path.rglob(f"lib/systemd/{kind}/{unit}")
    text = installed.read_text()
    (program,) = re.findall(r"^ExecStart=(\S+) watch$", text, re.M)
    assert (tmp_path / program.lstrip("/")).exists()

    if not os.access("/usr/bin/systemd-analyze", os.X_OK):
        pytest.skip("systemd-analyze is not installed")
    checked = tmp_path / unit.replace("@", "@root")
    checked.write_text(text.replace(program, str(binary())).replace("Documentation=man:penstock-watch(1)\n", ""))
    done = subprocess.run(["systemd-analyze", f"--{kind}", "verify", checked], capture_output=True, text=True, env=os.environ | {"XDG_RUNTIME_DIR": str(tmp_path)})
    about_ours = [line for line in (done.stdout + done.stderr).splitlines() if "penstock" in line]

    assert not about_ours and (done.returncode == 0 or "penstock" not in done.stderr), done.stderr
    wrong = tmp_path / "wrong.service"
    wrong.write_text(checked.read_text().replace("Type=exec", "Type=sometimes"))
    assert "wrong.service" in subprocess.run(["systemd-analyze", f"--{kind}", "verify", wrong], capture_output=True, text=True, env=os.environ | {"XDG_RUNTIME_DIR": str(tmp_path)}).stderr

"""The verbs that inspect runs and end them: ps, show, logs, stop, rm."""
import ctypes
import fcntl
import hashlib
import json
import os
import re
import signal
import sqlite3
import struct
import time
from datetime import datetime
from pathlib import Path

import pytest

from harness.program import Penstock
from harness.terminal import Terminal
from harness.waiting import wait_for
from harness.workflows import s3_place, step, write_workflow


@pytest.fixture
def job(tmp_path):
    """job(command...): path of a workflow with these steps; other keys by name."""

    def write(*commands, **extra):
        return write_workflow(tmp_path, *commands, file=f"{extra.get('name', 'job')}.json", named="step {}", **extra)

    return write


def output_of(store, path="/"):
    keys = {"accessKeyId": store.access_key, "secretAccessKey": store.secret_key, "endpointUrl": store.endpoint, "createBucket": True}
    return {"s3": {"region": "us-east-1", "bucketUrl": "s3://results", "path": path} | keys}


def state_of(penstock, run):
    return penstock.run("show", "--json", run).json()["state"]


def opens_of(path):
    """Returns a function that counts the opens of the file since this call."""
    libc, counts = ctypes.CDLL(None), [0]
    fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    # inotify merges equal events that follow each other; the closes keep the opens apart.
    opened, closed = 0x20, 0x18  # IN_OPEN, IN_CLOSE
    assert libc.inotify_add_watch(fd, os.fsencode(path), opened | closed) > 0

    def count():
        try:
            events = os.read(fd, 65536)
            counts[0] += sum(bool(mask & opened) for _, mask, _, _ in struct.iter_unpack("iIII", events))
        except BlockingIOError:
            pass
        return counts[0]

    return count


def begin(penstock, path, text):
    """Starts a run in the background, and returns once its step has printed the line `text`."""
    process = penstock.popen("run", path)
    process.wait_for_output(f"^{text}$")
    return process


def test_ps_lists_newest_first_with_all_fields(penstock, job):
    penstock.run("run", job("echo one", name="first")).ok()
    penstock.run("run", job("exit 5", name="second")).exits(5)

    runs = penstock.ps()

    assert [run["name"] for run in runs] == ["second", "first"]
    wanted = "id name state attempt class started sync_lag_bytes sync_lag_ms exit_code message workflow output"
    assert set(wanted.split()) <= set(runs[0])
    second, first = runs
    assert (second["state"], second["class"], second["exit_code"], second["attempt"]) == ("failed", "user", 5, 1)
    assert (first["state"], first["class"], first["exit_code"], first["output"]) == ("succeeded", None, 0, None)
    assert re.fullmatch(r"[0-9a-f]{12}", first["id"]) and first["started"] < second["started"]
    table = penstock.run("ps").ok().out.splitlines()
    assert [line.split()[0] for line in table] == ["NAME", "second", "first"]


# All times of one page are in the same time zone.
def test_show_prints_all_times_in_the_time_zone_of_the_user(penstock, job, store):
    path = job("echo x > $DEEPSQUARE_OUTPUT/x", "exit 3", name="zones", output=output_of(store))
    penstock.run("run", path).exits(3)
    penstock.run("run", path).exits(3)

    page = penstock.run("show", "zones", env={"TZ": "Asia/Tokyo"}).ok().out

    started = {run["name"]: run["started"] for run in penstock.ps()}["zones"]
    assert "attempts" in page and "steps" in page and "published" in page and not re.search(r"\dT\d\d:", page)
    assert "cpusPerTask 1" in page
    assert str((int(started[11:13]) + 9) % 24).zfill(2) + started[13:16] in page


# The second step prints more than a second later than the first. Then the test makes the recorded
# times of the first step an hour older.
def test_logs_have_times_and_a_beginning(penstock, job):
    began = time.time()
    penstock.run("run", job("echo old", "sleep 1.1; echo new; echo newer", name="timed")).ok()
    plain = penstock.run("logs", "timed").ok().out

    stamped = [re.fullmatch(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)  (.*)", line) for line in penstock.run("logs", "-t", "timed").ok().out.splitlines()]
    assert [each[2] for each in stamped] == plain.splitlines()
    clocks = [time.mktime(time.strptime(each[1], "%Y-%m-%d %H:%M:%S")) for each in stamped]
    assert clocks == sorted(clocks) and clocks[0] < clocks[-1] and int(began) <= clocks[0] <= time.time()

    times = next(penstock.home.glob("runs/*/log/1.times"))
    entries = [line.split() for line in times.read_text().splitlines()]
    late = next(offset for offset, _ in entries if int(offset) > plain.index("old"))
    times.write_text("".join(f"{offset} {int(ms) - (3_600_000 if int(offset) < int(late) else 0)}\n" for offset, ms in entries))
    since = penstock.run("logs", "--since", "10m", "timed").ok().out
    assert since == plain[int(late):] and "new\nnewer\n" in since and "old\n" not in since
    assert penstock.run("logs", "--since", "2h", "timed").ok().out == plain
    assert penstock.run("logs", "--since", "2001-01-01T00:00:00Z", "-n", "1", "timed").ok().out == plain.splitlines(True)[-1]
    assert "since" in penstock.run("logs", "--since", "yesterday", "timed").exits(64).err


# Users know the names of their runs. An age saves them from subtracting a time of day.
def test_ps_has_ages_and_filters(penstock, job):
    penstock.run("run", job("true", name="sweep-1")).ok()
    penstock.run("run", job("exit 5", name="sweep-2")).exits(5)
    penstock.run("run", job("exit 5", name="other")).exits(5)

    title, *rows = penstock.run("ps", "--state", "failed", "--name", "sweep-*").ok().out.splitlines()

    assert title.split()[:6] == ["NAME", "ID", "STATE", "ATTEMPT", "AGE", "TIME"]
    assert len(rows) == 1 and re.match(r"sweep-2 +[0-9a-f]{12} +failed +1 +\d+ (s|min) +\d+ s ", rows[0])
    assert [run["name"] for run in penstock.run("ps", "--json", "--state", "succeeded").json()] == ["sweep-1"]
    penstock.run("ps", "--state", "broken").exits(64)


def test_a_table_fits_any_terminal(penstock, job):
    path = job("true", name="a-name-that-is-longer-than-a-column-is-wide", input={"local": {"path": "/not/there" + "/at-all" * 12}})
    penstock.run("run", path).exits(66)

    for columns in (20, 60, 100):
        lines = Terminal(penstock, "ps", columns=columns, env={"NO_COLOR": "1"}).wait().ok().out.splitlines()
        assert len(lines) == 2 and all(len(line) <= columns for line in lines), lines
        assert "…" in lines[1]


# A run is found by its id, a prefix of its id, or its name.
def test_show_tells_attempts_steps_and_provenance(penstock, job):
    path = job("true", "test -e $DEEPSQUARE_OUTPUT/again || { touch $DEEPSQUARE_OUTPUT/again; exit 7; }", name="twice")
    penstock.run("run", path).exits(7)
    penstock.run("resume", "twice").ok()

    run = penstock.run("show", "twice", "--json").json()

    assert penstock.run("show", run["id"][:6], "--json").json() == run
    assert [(a["attempt"], a["state"], a["exit_code"]) for a in run["attempts"]] == [(1, "failed", 7), (2, "succeeded", 0)]
    assert [(s["attempt"], s["step"], s["name"]) for s in run["steps"]] == [(1, 1, "step 1"), (2, 2, "step 2")]
    assert run["attempts"][1]["provenance"]["penstock"]
    assert run["resources"]["cpusPerTask"] == 1
    assert Path(run["log"]).exists() and run["workflow"] == str(path)
    text = penstock.run("show", "twice").ok().out
    for part in ("(twice)", "succeeded", "attempts", "done", run["log"], str(path)):
        assert part in text


def test_a_step_knows_its_run_by_the_name_that_others_use(penstock, job):
    # The variables are right in every attempt, even if penstock was started by a step of another run.
    path = job("echo id=$PENSTOCK_RUN_ID=$PENSTOCK_ATTEMPT=; exit 7")
    outer = {"PENSTOCK_RUN_ID": "ffffffffffff", "PENSTOCK_ATTEMPT": "9"}

    first = penstock.run("run", path, env=outer).exits(7).out
    run = penstock.ps()[0]["id"]
    second = penstock.run("resume", run, env=outer).exits(7).out

    assert (first, second) == (f"id={run}=1=\n", f"id={run}=2=\n")


def test_ps_tells_how_far_the_output_of_a_live_run_is_behind(penstock, job, store, fault_proxy):
    wait = "while [ ! -e $STORAGE_PATH/%s ]; do sleep 0.02; done; "
    output = output_of(store, "/late")
    output["s3"]["endpointUrl"] = fault_proxy.url
    path = job("echo begun; " + wait % "go" + "printf 12345 > $DEEPSQUARE_OUTPUT/a; " + wait % "end", name="late", output=output, continuousOutputSync=True)
    run = begin(penstock, path, "begun")
    (storage,) = penstock.home.glob("runs/*/storage")
    fault_proxy.down()
    (storage / "go").touch()

    behind = wait_for(lambda: [r for r in penstock.ps() if r["sync_lag_ms"] > 300 and r["sync_lag_bytes"] == 5])
    table = penstock.run("ps").ok().out
    fault_proxy.up()
    caught_up = wait_for(lambda: [r for r in penstock.ps() if r["sync_lag_ms"] == r["sync_lag_bytes"] == 0])
    (storage / "end").touch()
    run.wait().ok()

    assert behind[0]["state"] == caught_up[0]["state"] == "running"
    assert re.search(r"late .* 5 B", table)
    assert store.bytes("results", "late/a") == b"12345"


def test_show_lists_what_was_published(penstock, job, store):
    penstock.run("run", job("echo hello > $DEEPSQUARE_OUTPUT/a.txt; mkdir -p $DEEPSQUARE_OUTPUT/d; echo > $DEEPSQUARE_OUTPUT/d/b",
                            name="published", output=output_of(store, "/x"))).ok()  # fmt: skip

    run = penstock.run("show", "published", "--json").json()

    etag = hashlib.md5(b"hello\n").hexdigest()
    assert [(o["url"], o["size"]) for o in run["outputs"]] == [("s3://results/x/a.txt", 6), ("s3://results/x/d/b", 1)]
    assert run["outputs"][0]["etag"] == etag
    assert re.search(rf"s3://results/x/a\.txt .*{etag}", penstock.run("show", "published").ok().out)
    assert store.secret_key not in penstock.run("show", "published", "--json").text


def test_logs_show_lines_and_attempts(penstock, job):
    path = job("for i in $(seq 50); do echo line $i; done", name="talk")
    penstock.run("run", path).ok()
    penstock.run("run", job("echo other", name="talk"), "--fresh").ok()

    assert "other\n" in penstock.run("logs", "talk").ok().out
    first = penstock.run("logs", "talk", "--attempt", "1").ok().out
    assert [line for line in first.splitlines() if line.startswith("line")] == [f"line {i}" for i in range(1, 51)]
    assert penstock.run("logs", "talk", "--attempt", "1", "-n", "5").ok().out == "".join(first.splitlines(True)[-5:])
    assert penstock.run("logs", "talk", "--attempt", "1", "-n", "5000").ok().out == first
    assert penstock.run("logs", "talk", "-n", "0").ok().out == ""
    assert "2" in penstock.run("logs", "talk", "--attempt", "3").exits(64).err
    everything = penstock.run("logs", "talk", "--all").ok().out
    one, two = (everything.index(line) for line in ("==> attempt 1 <==\n", "\n==> attempt 2 <==\n"))
    assert one < everything.index("line 50") < two < everything.index("other\n")


# `logs` prints the output of a live run so far, and does not wait for more.
def test_logs_of_a_live_run_show_the_lines_until_now(penstock, job):
    run = begin(penstock, job("echo first; echo second; sleep 1000", name="live"), "second")

    log = wait_for(lambda: "second\n" in (out := penstock.run("logs", "live").ok().out) and out)
    last = penstock.run("logs", "live", "-n", "1").ok().out
    everything = penstock.run("logs", "live", "--all").ok().out  # the run has one attempt

    assert log == everything == "first\nsecond\n" and last == "second\n"
    run.send(signal.SIGINT)
    run.wait().exits(130)


# `logs -f` prints each new line of a growing log, until the run ends by itself.
def test_logs_follow_until_the_end(penstock, job, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    run = begin(penstock, job(f"echo early; read word < {gate}; echo got $word", name="slow"), "early")

    follower = penstock.popen("logs", "-f", "slow")
    follower.wait_for_output("early")
    assert follower.running()
    gate.write_text("it\n")

    assert "got it\n" in follower.wait(30).ok().out
    run.wait(30).ok()
    assert penstock.run("logs", "-f", "slow").ok().out == penstock.run("logs", "slow").ok().out


# Only `run` can start another run, so only its refusal mentions --name.
def test_a_live_run_is_refused_with_fitting_advice(penstock, job):
    run = begin(penstock, job("echo up; sleep 1000", name="busy"), "up")

    for verb in "rm", "resume", "flush":
        refused = penstock.run(verb, "busy").exits(69)
        assert "penstock stop" in refused.err and "--name" not in refused.err

    run.send(signal.SIGINT)
    ended = run.wait().exits(130)
    assert "'step 1'" in ended.err


# A flush of a run without unpublished output does nothing, after any end of the run.
@pytest.mark.parametrize("command, code", [("true", 0), ("exit 3", 3)])
def test_a_flush_that_is_not_needed_succeeds(penstock, job, command, code):
    output = {"s3": {"bucketUrl": "s3://out", "path": "/", "endpointUrl": "embedded"}}
    penstock.run("run", job(f"echo a > $DEEPSQUARE_OUTPUT/a; {command}", name="done", output=output)).exits(code)

    for _ in range(2):
        penstock.run("flush", "done").ok()


# flush uploads the output of a killed penstock without running a step; the run stays lost, and can be removed or resumed.
def test_a_flush_of_a_lost_run(penstock, job):
    output = {"s3": {"bucketUrl": "s3://out", "path": "/", "endpointUrl": "embedded"}}
    step = "echo $PENSTOCK_ATTEMPT >> $DEEPSQUARE_OUTPUT/a; echo up; [ $PENSTOCK_ATTEMPT = 2 ] || exec sleep 1000"
    path = job(step, name="gone", output=output)
    run = begin(penstock, path, "up")
    # A file whose close was not seen would be suspect, and sent to partial/.
    (journal,) = penstock.home.glob("runs/*/state/sync")
    wait_for(lambda: re.search(r"^\w+ [CP] a ", journal.read_text(), re.M))
    run.send(signal.SIGKILL)
    run.wait()
    assert "penstock flush" in penstock.run("rm", "gone").exits(73).err

    for _ in range(2):
        assert "lost" in penstock.run("flush", "gone").ok().err

    assert state_of(penstock, "gone") == "lost"
    assert [file["path"] for file in json.loads(penstock.run("show", "--json", "gone").ok().out)["outputs"]] == ["a"]
    penstock.run("run", path).ok()
    assert state_of(penstock, "gone") == "succeeded"


def test_a_flushed_lost_run_can_be_removed(penstock, job):
    output = {"s3": {"bucketUrl": "s3://out", "path": "/", "endpointUrl": "embedded"}}
    run = begin(penstock, job("echo a > $DEEPSQUARE_OUTPUT/a; echo up; exec sleep 1000", name="gone", output=output), "up")
    run.send(signal.SIGKILL)
    run.wait()

    penstock.run("flush", "gone").ok()

    assert "s3://out/" in penstock.run("rm", "gone").ok().out


def test_stop_ends_a_run_and_waits(penstock, job):
    run = begin(penstock, job("trap 'echo bye; exit 0' TERM INT; echo up; while :; do sleep 0.05; done", name="endless"), "up")

    result = penstock.run("stop", "endless").ok()

    assert re.fullmatch(r"run [0-9a-f]{12}: stopped .*'step 1'.*\n", result.out), result.out
    assert run.wait(10).code == 130
    assert state_of(penstock, "endless") == "stopped"
    again = penstock.run("stop", "endless").ok()
    assert "stopped" in again.out


# A step that ignores the request to stop is killed after the grace.
def test_stop_insists_after_the_grace(penstock, job):
    run = begin(penstock, job("trap '' TERM INT; echo up; while :; do sleep 0.05; done", name="deaf"), "up")

    result = penstock.run("stop", "deaf", "--grace", "300ms").ok()

    assert result.seconds < 15
    assert ": stopped" in result.out
    assert run.wait(10).code in (130, 137)


# kill -9 leaves a run that is shown as lost, and does not look live.
def test_a_killed_run_is_lost(penstock, job):
    run = begin(penstock, job("echo up; exec sleep 1000", name="doomed"), "up")
    assert state_of(penstock, "doomed") == "running"
    refused = penstock.run("rm", "doomed").exits(69)
    assert "penstock stop" in refused.err

    run.kill()

    (seen,) = penstock.ps()
    assert seen["state"] == "lost"
    for verb in (["ps"], ["show", "doomed"]):
        assert f"penstock resume {seen['id']}" in penstock.run(*verb).ok().out
    penstock.run("stop", "doomed").ok()
    penstock.run("rm", "doomed").ok()  # ends the step that was left running, too
    assert penstock.ps() == []


def test_rm_forgets_runs_and_their_directories(penstock, job):
    for name in ("one", "two", "three"):
        penstock.run("run", job("echo x > $DEEPSQUARE_OUTPUT/x", name=name)).ok()
    run = penstock.run("show", "one", "--json").json()

    removed = penstock.run("rm", "one", "nobody", "two")

    removed.exits(66)
    assert "nobody" in removed.err and removed.out.count("removed run") == 2
    assert [left["name"] for left in penstock.ps()] == ["three"]
    assert not Path(run["directory"]).exists()
    penstock.run("run", job("true", name="one")).ok()
    assert penstock.ps()[0]["attempt"] == 1


# Output that only this machine has is not removed by mistake.
def test_rm_keeps_what_is_not_uploaded(penstock, job, store):
    run = begin(penstock, job("echo x > $DEEPSQUARE_OUTPUT/x; echo up; exec sleep 1000", name="kept", output=output_of(store)), "up")
    run.kill()

    refused = penstock.run("rm", "kept").exits(73)

    assert "--force" in refused.err and refused.out == ""
    directory = Path(penstock.run("show", "kept", "--json").json()["directory"])
    assert directory.exists()
    penstock.run("rm", "--force", "kept").ok()
    assert not directory.exists()


# The kernel may take a while to end a killed process, which holds its lock until the end.
def test_rm_waits_for_the_end_of_a_killed_run(penstock, job, store):
    run = begin(penstock, job("echo x > $DEEPSQUARE_OUTPUT/x; echo up; exec sleep 1000", name="kept", output=output_of(store)), "up")
    directory = Path(penstock.run("show", "kept", "--json").json()["directory"])
    run.kill()

    with open(directory / "lock", "r+b") as lock:
        fcntl.fcntl(lock, fcntl.F_OFD_SETLKW, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        opened = opens_of(directory / "lock")
        rm = penstock.popen("rm", "kept")
        wait_for(lambda: opened() > 10)  # the command opens the lock again and again while it waits
    refused = rm.wait().exits(73)

    assert "--force" in refused.err and (directory / "storage/output/x").exists()
    penstock.run("rm", "--force", "kept").ok()


# All users see the claims of a run, which end with the run.
def test_claims_are_listed(penstock, job):
    run = begin(penstock, job("echo up; exec sleep 1000", name="holder"), "up")

    holders = json.loads(penstock.run("ps", "--claims", "--json").ok().out)
    assert [(h["name"], h["cpus"], h["waiting"]) for h in holders] == [("holder", 1, False)]
    assert re.search(r"^holds +\S+ +1 .*holder$", penstock.run("ps", "--claims").ok().out, re.M)
    run.send(signal.SIGINT)
    run.wait(30)

    assert json.loads(penstock.run("ps", "--claims", "--json").ok().out) == []


def test_ps_shows_what_a_queued_run_waits_for(penstock, tmp_path):
    one = {"tasks": 1, "cpusPerTask": 1, "memPerCpu": 64, "gpus": 1}
    env = {"PENSTOCK_GPUS": "1"}
    holds = penstock.popen("run", write_workflow(tmp_path, "echo up; exec sleep 1000", resources=one), env=env)
    holds.wait_for_output("up")
    waits = penstock.popen("run", write_workflow(tmp_path, "true", file="w.json", resources=one), env=env)
    waits.wait_for_output("waiting for")

    shown = penstock.run("ps").ok().out

    assert re.search(r"queued .* 1 CPU, 67.1 MB, 1 GPU; .*--claims", shown), shown
    assert "1 CPU" not in next(line for line in shown.splitlines() if "running" in line)
    for run in (waits, holds):
        run.send(signal.SIGINT)
        run.wait(30)


# Commands that inspect a run never delay its next attempt.
def test_looking_does_not_disturb(penstock, job, tmp_path):
    path = job("true", name="watched")
    penstock.run("run", path).ok()
    watcher = penstock.popen("ps", "--json")  # at least one while the runs are live
    for _ in range(10):
        watchers = [penstock.popen("ps", "--json") for _ in range(3)]
        penstock.run("run", path).ok()
        for one in watchers:
            one.wait(30).ok()
    watcher.wait(30).ok()
    assert wait_for(lambda: penstock.ps()[0]["attempt"] == 11)


def test_ps_in_a_pipe_keeps_messages_short(penstock, job):
    # ps has one line for each run; show has the whole message.
    penstock.run("run", job("true", name="long", input={"local": {"path": "/not/there" + "/at-all" * 12}})).exits(66)

    whole = penstock.ps()[0]["message"]
    row = penstock.run("ps").ok().out.splitlines()[1]
    assert len(whole) > 72 and row.endswith("…") and whole not in row
    assert whole[:60] in row and whole in penstock.run("show", "long").ok().out


# The clock was an hour ahead and was corrected: a later run has an earlier start.
def test_ps_and_names_go_by_the_order_of_attempts_and_not_by_the_clock(penstock, tmp_path):
    for name in ("first", "second"):
        penstock.run("run", write_workflow(tmp_path, f"echo {name}", file=f"{name}.json", name=name)).ok()
    with sqlite3.connect(penstock.home / "runs.db") as records:
        records.execute("UPDATE attempts SET started = started + 3600000000000 WHERE run = (SELECT id FROM runs WHERE name = 'first')")

    assert [run["name"] for run in penstock.ps()] == ["second", "first"]


def test_runs_of_all_machines_are_listed_by_the_states_in_a_store(penstock, store, tmp_path):
    other = Penstock(tmp_path / "other")
    for program, name, command in ((penstock, "one", "true"), (other, "two", "exit 3")):
        path = write_workflow(tmp_path, command, name=name, output=s3_place(store, f"/exp/{name}"))
        program.run("run", path)
    store.client.put_object(Bucket="out", Key="exp/three/.penstock/runs/0123456789ab/state.json", Body=b"{")
    store.client.put_object(Bucket="out", Key="exp/four/file", Body=b"x")

    def listed(*options):
        return penstock.run("ps", "--json", *options, env=store.env)

    both = listed("s3://out/exp/")
    assert [(run["name"], run["state"], run["exit_code"], run["output"]) for run in both.json()] == [
        ("two", "failed", 3, "s3://out/exp/two/"), ("one", "succeeded", 0, "s3://out/exp/one/")
    ]  # fmt: skip
    assert "exp/three/.penstock/runs/0123456789ab/state.json" in both.err
    assert {run["id"] for run in both.json()} == {program.ps()[0]["id"] for program in (penstock, other)}
    assert [run["name"] for run in listed("s3://out/exp/one").json()] == ["one"]
    assert [run["name"] for run in listed("--state", "failed", "s3://out/exp/one/", "s3://out/exp/two/").json()] == ["two"]
    assert "failed on" in penstock.run("ps", "s3://out/exp/", env=store.env).ok().out
    assert listed("s3://out/nothing/").json() == []
    listed("s3://no-such-bucket/").exits(66)


def test_a_run_of_another_machine_is_shown_by_its_state(penstock, store, tmp_path):
    other, go = Penstock(tmp_path / "other"), tmp_path / "go"
    path = write_workflow(tmp_path, "true", f"until test -e {go}; do sleep 0.05; done; exit 3", "true", name="far", price=3.5,
                          output=s3_place(store, "/far"), resources={"tasks": 1, "cpusPerTask": 1, "memPerCpu": 128, "gpus": 0})  # fmt: skip
    process = other.popen("run", path, env={"PENSTOCK_LEASE_TERM": "3"})

    def shown(run, *words, place="s3://out/far/"):
        return penstock.run("show", *words, run, place, env=store.env)

    def steps():
        return [(step["name"], step["state"]) for step in shown(run, "--json").ok().json()["steps"]]

    run = wait_for(lambda: other.ps() and other.ps()[0]["id"])
    wait_for(lambda: shown(run, "--json").code == 0)
    wait_for(lambda: steps() == [("s1", "done"), ("s2", "running"), ("s3", "to do")])
    go.touch()
    process.wait()
    assert steps() == [("s1", "done"), ("s2", "failed"), ("s3", "to do")]
    seen = shown(run, "--json").json()
    assert (seen["name"], seen["state"], seen["exit_code"], seen["output"]) == ("far", "failed", 3, "s3://out/far/")
    assert seen["resources"]["memPerCpu"] == 128
    assert [attempt["attempt"] for attempt in seen["attempts"]] == [1]
    (listed,) = penstock.run("ps", "--json", "s3://out/far/", env=store.env).json()
    for known in (seen, seen["attempts"][0], listed):  # the state in the store has none of these keys
        assert not known.keys() & {"created", "workflow", "unflushed", "pid", "step_exit_code", "ports", "notice"}
        assert (known["sync_lag_bytes"], known["sync_files_published"]) == (0, 0) and known["sync_at"]
        assert known["message"] == other.ps()[0]["message"]
    assert "s2" in shown(run).ok().out
    shown("0" * 12).exits(66)
    shown(run, place="s3://no-such-bucket/").exits(66)
    shown(run[:4]).exits(64)
    shown(run, place="far").exits(64)
    other.close()

    penstock.run("run", path).exits(3)  # in another home
    both = shown(run, "--json").json()["attempts"]
    assert [(one["attempt"], one["state"], one["exit_code"]) for one in both] == [(1, "failed", 3), (2, "failed", 3)]
    assert both[0]["started"] < both[0]["ended"] <= both[1]["started"] and both[0]["cost"] > 0
    assert both[0]["provenance"] == both[1]["provenance"] == {"host": os.uname().nodename, "price": "3.5"}


def test_a_log_of_another_machine_is_printed_and_followed(penstock, store, tmp_path):
    other, go = Penstock(tmp_path / "other"), tmp_path / "go"

    def path(command, file):
        return write_workflow(tmp_path, command, file=file, enableLogging=True, output=s3_place(store, "/far"))

    def logs(*words):
        return penstock.run("logs", *words, env=store.env)

    other.run("run", path("echo the first", "first.json")).ok()
    store.client.put_object(Bucket="out", Key=f"far/.penstock/runs/{'0' * 12}/log/1.usage", Body=b"")  # a run without a log
    assert "the first\n" in logs("s3://out/far").ok().out
    process = other.popen("run", path(f"echo the second; until test -e {go}; do sleep 0.05; done; echo its end", "second.json"))
    process.wait_for_output("^the second")
    second, first = [run["id"] for run in other.ps()]
    follower = penstock.popen("logs", "-f", second, "s3://out/far/", env=store.env)
    follower.wait_for_output("^the second")
    go.touch()
    process.wait().ok()
    assert "its end\n" in follower.wait(60).ok().out
    for words in ((first, "s3://out/far"), ("s3://out/far", first)):
        found = logs(*words).ok().out
        assert "the first\n" in found and "the second" not in found
    assert "its end\n" in logs(second, "s3://out/far/", "--attempt", "1").ok().out
    assert re.search(f"run {second} succeeded", logs(second, "s3://out/far/").out.splitlines()[-1])
    logs("s3://out/far").exits(64)  # both runs log there
    logs("0" * 12, "s3://out/far").exits(66)
    logs(second, "s3://no-such-bucket/").exits(66)
    logs(second[:4], "s3://out/far").exits(64)
    logs(second, "far").exits(64)
    other.close()


def test_a_run_killed_with_its_machine_is_lost_after_a_term(penstock, store, tmp_path):
    other, go = Penstock(tmp_path / "other"), tmp_path / "go"
    path = write_workflow(tmp_path, f"echo begun; until test -e {go}; do sleep 0.05; done", name="far", enableLogging=True, output=s3_place(store, "/far"))
    process = other.popen("run", path, env={"PENSTOCK_LEASE_TERM": "2"})
    process.wait_for_output("^begun")

    def listed():
        (run,) = penstock.run("ps", "--json", "s3://out/far/", env=store.env).ok().json()
        return run

    live = listed()
    follower = penstock.popen("logs", "-f", live["id"], "s3://out/far/", env=store.env)
    follower.wait_for_output("^begun")
    assert live["state"] == "running" and live["heard"] and not live["ended"]
    process.kill()
    wait_for(lambda: listed()["state"] == "lost")
    lost = penstock.run("show", "--json", live["id"], "s3://out/far/", env=store.env).ok().json()
    assert lost["state"] == lost["attempts"][0]["state"] == "lost" and lost["heard"] > live["started"] and not lost["ended"]
    follower.wait_for_output(f"attempt 1 of run {live['id']} is lost")  # the command waits for the next attempt, and says so
    follower.kill()
    go.touch()
    other.close()


@pytest.mark.parametrize("hours", [-1, 1])
def test_the_times_of_a_machine_with_a_wrong_clock_are_corrected(penstock, store, hours):
    def at(seconds):
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600 * hours + seconds))

    run = "0123456789ab"
    state = {"run": run, "name": "far", "attempt": 1, "state": "running", "owner": {"host": "gpu7", "since": at(-100)}, "updated": at(0)}
    store.client.create_bucket(Bucket="out")
    store.client.put_object(Bucket="out", Key=f"far/.penstock/runs/{run}/state.json", Body=json.dumps(state).encode())

    listed = penstock.run("ps", "--json", "s3://out/far/", env=store.env).ok()

    assert "'gpu7'" in listed.err and run in listed.err
    (seen,) = listed.json()
    assert 98 <= time.time() - datetime.fromisoformat(seen["started"]).timestamp() <= 160


# Another program may have written the state.
def test_a_state_with_odd_values_is_shown_without_them(penstock, store):
    run, place = "0123456789ab", "s3://out/odd/"
    state = {
        "run": run, "name": "\x1b[2Jodd", "attempt": "one", "steps_done": -5, "state": ["running"], "class": 7, "exit_code": 1 << 40,
        "owner": {"host": None, "since": "1700-01-01T00:00:00Z"}, "updated": {},
    }  # fmt: skip
    workflow = {"resources": "none", "steps": [{"name": 5}, [], {"name": "last"}]}
    store.client.create_bucket(Bucket="out")
    for name, value in (("state.json", state), ("workflow", workflow)):
        store.client.put_object(Bucket="out", Key=f"odd/.penstock/runs/{run}/{name}", Body=json.dumps(value).encode())

    shown = penstock.run("show", run, place, env=store.env).ok().out
    seen = penstock.run("show", "--json", run, place, env=store.env).json()

    assert "odd" in shown and "\x1b" not in shown
    assert (seen["state"], seen["attempt"], seen["started"]) == ("lost", 0, None)
    assert [step["state"] for step in seen["steps"]] == ["to do"] * 3
    assert seen["steps"][2]["name"] == "last"
    penstock.run("ps", place, env=store.env).ok()


def test_a_run_that_is_recorded_has_its_steps(penstock, tmp_path):
    penstock.home.mkdir(parents=True, exist_ok=True)
    (penstock.home / "tmp").touch()  # the run ends before it makes its directories

    penstock.run("run", write_workflow(tmp_path, "true", name="held")).exits(70)

    assert [step["name"] for step in penstock.run("show", "--json", "held").json()["steps"]] == ["s1"]


def test_steps_within_steps_have_their_states(penstock, tmp_path):
    go, until = tmp_path / "go", "until test -e {}; do sleep 0.05; done"
    loop = {"name": "loop", "for": {"items": ["x", "y", "z"], "parallel": False, "steps": [
        step("true", "first"), step(f"test $item = x || {until.format(go)}", "second")]}}  # fmt: skip
    server = {"name": "server", "launch": {"handleName": "SERVER", "steps": [step(until.format(go), "serve")]}}
    rescued = {"name": "rescued", "run": {"command": "false"}, "dependsOn": ["SERVER"], "catch": [step("true", "rescue")]}
    process = penstock.popen("run", write_workflow(tmp_path, server, loop, rescued, name="nested"))

    def steps(rows):
        return [(row["name"], row["state"], *steps(row.get("steps", []))) for row in rows]

    def shown():
        shown = penstock.run("show", "--json", "nested")
        return shown.json()["steps"] if shown.code == 0 else []

    wait_for(lambda: steps(shown()) == [
        ("server", "running", ("serve", "running")), ("loop", "running", ("first", "done"), ("second", "running")),
        ("rescued", "to do")])  # fmt: skip
    assert (shown()[1]["iterations_done"], shown()[1]["iterations"]) == (1, 3)
    assert "1 of 3" in penstock.run("show", "nested").ok().out
    go.touch()
    process.wait().exits(0)
    assert steps(shown()) == [
        ("server", "done", ("serve", "done")), ("loop", "done", ("first", "done"), ("second", "done")), ("rescued", "done")]  # fmt: skip
    assert [(row["name"], row["state"]) for row in shown()[2]["catch"]] == [("rescue", None)]

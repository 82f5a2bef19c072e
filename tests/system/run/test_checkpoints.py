"""Checkpoints of a run: published with the commit as the last file, kept by a policy, and used to
resume, after any damage or kill."""
import functools
import json
import os
import random
import re
import signal
import subprocess

import pytest
from harness.kills import Round
from harness.program import binary
from harness.registry import BUSYBOX, busybox, image, write_layout
from harness.waiting import wait_for
from harness.workflows import RESOURCES, s3_place, write_workflow

TOOL = binary().parent / "tests" / "unit" / "checkpoint-tool"
WAIT = "trap 'exit 0' TERM; while :; do sleep 0.05; done"  # catches SIGTERM, and then ends at once


def tool(*arguments, **env):
    return subprocess.run([TOOL, *map(str, arguments)], env=os.environ | env, capture_output=True, text=True, timeout=120)


@pytest.fixture
def workflow(tmp_path, store):
    """workflow(*commands, **fields): a file whose steps are these; its output goes to s3://out/run
    and is synced continuously."""
    return functools.partial(write_workflow, tmp_path, name="run", output=s3_place(store, "/run"), continuousOutputSync=True)


def save(*arguments):
    return f"{TOOL} save $PENSTOCK_CHECKPOINT_DIR {' '.join(map(str, arguments))}"


def steps_in(store):
    """Returns (step, attempt) of the checkpoints that have a commit in the store."""
    found = [key.split("/")[-2] for key in store.keys("out", "run/checkpoints/") if key.endswith("/COMMIT.json")]
    return sorted((int(name.split("-")[1]), int(name.split("-")[2])) for name in found)


# The step gets the directory for checkpoints, and no checkpoint to resume from. The files of the
# saved checkpoint are in the store, without hidden files.
def test_a_saved_checkpoint_is_in_the_store_with_its_commit(penstock, workflow, store):
    path = workflow('echo "[$PENSTOCK_CHECKPOINT][${PENSTOCK_CHECKPOINT_DIR#$DEEPSQUARE_OUTPUT}]"', save(10, 100000, "loss=0.5"))

    out = penstock.run("run", path, env={"PENSTOCK_CHECKPOINT": "/of/another/run"}).ok().out

    assert out.startswith("[][/checkpoints]\n")
    assert {key.removeprefix("run/checkpoints/step-000000000010-1/") for key in store.keys("out", "run/checkpoints/")} == {
        "COMMIT.json", "model-0.bin", "optimizer/0.bin"}  # fmt: skip
    commit = json.loads(store.bytes("out", "run/checkpoints/step-000000000010-1/COMMIT.json"))
    assert (commit["format"], commit["step"], commit["attempt"], commit["world_size"]) == ("penstock.checkpoint/1", 10, 1, 1)
    assert commit["metrics"] == {"loss": 0.5} and commit["run"]
    assert [(f["path"], f["size"]) for f in commit["files"]] == [("model-0.bin", 100000), ("optimizer/0.bin", 50000)]


# The next attempt gets the checkpoint to resume from, even in a subdirectory or in the output itself.
@pytest.mark.parametrize("path", ["checkpoints", "deep/er", "."])
def test_the_next_attempt_goes_on_from_the_newest(penstock, workflow, path):
    step = f"""
        if [ -n "$PENSTOCK_CHECKPOINT" ]; then echo "from ${{PENSTOCK_CHECKPOINT#$DEEPSQUARE_OUTPUT/}}"; {TOOL} check $PENSTOCK_CHECKPOINT_DIR; exit; fi
        {save(1, 5000)} && {save(2, 5000)} && echo saved; {WAIT}"""
    file = workflow(step, checkpoints={"path": path})
    run = penstock.popen("run", file)
    run.wait_for_output("saved")
    run.send(signal.SIGTERM)
    run.wait().exits(75)

    again = penstock.run("run", file).ok()

    name = "step-000000000002-1"
    assert f"from {name if path == '.' else f'{path}/{name}'}\n2\n" in again.out
    assert name in again.err


def interrupted(penstock, file):
    run = penstock.popen("run", file)
    run.wait_for_output("saved")
    run.send(signal.SIGTERM)
    run.wait().exits(75)


RESUMES = """if [ -n "$PENSTOCK_CHECKPOINT" ]; then echo "from $(basename $PENSTOCK_CHECKPOINT)"; exit; fi; """


# A checkpoint is valid even if its step, or penstock itself, is killed right after the commit.
@pytest.mark.parametrize("who", ["step", "penstock"])
def test_what_was_committed_right_before_a_kill_counts(penstock, workflow, store, who):
    step = RESUMES + f"{save(1, 50000)} && {save(2, 50000)} && kill -9 " + ("$$" if who == "step" else "$PPID; exec sleep 1000")
    file = workflow(step)
    run = penstock.popen("run", file).wait()

    assert run.code == (137 if who == "step" else -9), run.text
    again = penstock.run("resume" if who == "step" else "run", "run" if who == "step" else file).ok()

    assert "from step-000000000002-1\n" in again.out
    assert [step for step, _ in steps_in(store)] == [1, 2]


# Text is published while it grows, because it is usually a log. Half of a checkpoint would count, and a run would resume from it.
@pytest.mark.parametrize("who", ["step", "penstock"])
def test_half_a_checkpoint_of_text_does_not_count(penstock, workflow, store, who):
    step = RESUMES + """
        cd $DEEPSQUARE_OUTPUT; mkdir -p checkpoints; printf whole > checkpoints/1.json
        exec 3> checkpoints/2.json; printf half >&3
        exec 4> log.json; echo line >&4
        echo "pid $$"; exec sleep 1000"""
    file = workflow(step, checkpoints={"pattern": "*.json"})
    run = penstock.popen("run", file)
    pid = int(run.wait_for_output(r"^pid (\d+)$").group(1))
    wait_for(lambda: {"run/log.json", "run/checkpoints/1.json.COMMIT.json"} <= set(store.keys("out", "run/")), what="the log and the checkpoint")

    os.kill(pid if who == "step" else run.pid, signal.SIGKILL)
    run.wait()
    again = penstock.run("run", file).ok()

    assert "from 1.json\n" in again.out
    keys = store.keys("out", "run/")
    assert [key for key in keys if "2.json" in key and "/partial/" not in key] == [] and any(key.endswith("/partial/checkpoints/2.json") for key in keys)


# The newest checkpoint on this machine is damaged. The run resumes from the previous checkpoint,
# and a message names the damaged one.
@pytest.mark.parametrize("damage", ["flipped", "missing", "cut"])
def test_a_checkpoint_damaged_here_is_passed_over_and_said(penstock, workflow, damage):
    file = workflow(RESUMES + f"{save(1, 5000)} && {save(2, 5000)} && echo saved; {WAIT}", output=None, continuousOutputSync=None)
    interrupted(penstock, file)
    (newest,) = penstock.home.glob("runs/*/storage/output/checkpoints/step-000000000002-1")
    spoil(newest, damage)

    again = penstock.run("run", file).ok()

    assert "from step-000000000001-1\n" in again.out
    assert "step-000000000002-1" in again.err


def spoil(folder, damage):
    model, commit = folder / "model-0.bin", folder / "COMMIT.json"
    if damage == "flipped":
        content = bytearray(model.read_bytes())
        content[77] ^= 1
        model.write_bytes(content)
    elif damage == "missing":
        model.unlink()
    else:
        commit.write_bytes(commit.read_bytes()[:100])


# A checkpoint is damaged in the store, and the run resumes on another machine: penstock restores
# all output except that checkpoint.
@pytest.mark.parametrize("damage", ["flipped", "missing", "cut"])
def test_a_checkpoint_damaged_in_the_store_is_passed_over_and_said(penstock, workflow, store, damage, tmp_path):
    file = workflow(RESUMES + f"{save(1, 5000)} && {save(2, 5000)} && echo saved; {WAIT}")
    interrupted(penstock, file)
    prefix = "run/checkpoints/step-000000000002-1/"
    if damage == "missing":
        store.client.delete_object(Bucket="out", Key=prefix + "model-0.bin")
    else:
        key = prefix + ("model-0.bin" if damage == "flipped" else "COMMIT.json")
        content = bytearray(store.bytes("out", key))
        content[77] ^= 1
        store.client.put_object(Bucket="out", Key=key, Body=bytes(content if damage == "flipped" else content[:100]))

    again = penstock.run("run", file, env={"PENSTOCK_HOME": str(tmp_path / "elsewhere")}).ok()

    assert "from step-000000000001-1\n" in again.out
    assert "step-000000000002-1" in again.err


# While the steps run, retention keeps, in the store and on this machine, the checkpoints that any
# of the rules keeps, and always the newest.
def test_what_the_workflow_does_not_keep_goes_here_and_in_the_store(penstock, workflow, store):
    saves = " && ".join(save(step, 2000, f"loss={loss}") for step, loss in enumerate([5, 1, 4, 3, 2, 9], 1))
    file = workflow(
        saves + " && echo saved; while [ ! -e $STORAGE_PATH/go ]; do sleep 0.05; done; ls $PENSTOCK_CHECKPOINT_DIR",
        checkpoints={"keep": {"best": {"metric": "loss", "mode": "min", "n": 2}, "every": 4}},
    )
    run = penstock.popen("run", file)
    run.wait_for_output("saved")
    wait_for(lambda: [step for step, _ in steps_in(store)] == [2, 4, 5, 6], 60, "the other checkpoints to be removed")
    (storage,) = penstock.home.glob("runs/*/storage")
    wait_for(lambda: len(list(storage.glob("output/checkpoints/*"))) == 4, 60, "the other checkpoints to be removed here")
    (storage / "go").touch()
    run.wait().ok()

    assert {key.split("/")[2] for key in store.keys("out", "run/checkpoints/")} == {f"step-{n:012}-1" for n in (2, 4, 5, 6)}
    assert run.out.count("step-") == 4
    assert sum(int(n) for n in re.findall(r"(\d+) checkpoint", run.err)) == 2


# If saves are faster than uploads, the newest checkpoint is never published. Nevertheless,
# retention must remove earlier checkpoints.
def test_retention_does_not_wait_for_the_newest_to_be_published(penstock, workflow, store, fault_proxy):
    newest = fault_proxy.fault("PUT", r"step-000000000006-1/COMMIT\.json$", hold="request", times=1000)
    file = workflow(
        " && ".join(save(step, 2000) for step in range(1, 7)) + " && while [ ! -e $STORAGE_PATH/go ]; do sleep 0.05; done",
        checkpoints={"keep": {"latest": 2}},
    )
    spec = json.loads(file.read_text())
    spec["output"]["s3"]["endpointUrl"] = fault_proxy.url
    file.write_text(json.dumps(spec))
    run = penstock.popen("run", file)
    newest.wait()

    wait_for(lambda: [step for step, _ in steps_in(store)] == [4, 5], 60, "the other checkpoints to be removed")
    (storage,) = penstock.home.glob("runs/*/storage")
    wait_for(lambda: {path.name for path in storage.glob("output/checkpoints/*")} == {f"step-{n:012}-1" for n in (4, 5, 6)}, 60, "the other checkpoints to be removed here")
    newest.stop()
    (storage / "go").touch()
    run.wait().ok()

    assert steps_in(store) == [(5, 1), (6, 1)]
    assert sum(int(n) for n in re.findall(r"(\d+) checkpoint", run.err)) == 4


# Without continuous sync retention acts at the end; without a store it acts on this machine.
@pytest.mark.parametrize("fields", [{"continuousOutputSync": False}, {"output": None, "continuousOutputSync": None}])
def test_retention_at_the_end(penstock, workflow, store, fields):
    file = workflow(" && ".join(save(step, 2000) for step in range(1, 6)), checkpoints={"keep": {"latest": 2}}, **fields)

    penstock.run("run", file).ok()

    if "output" in fields:
        (storage,) = penstock.home.glob("runs/*/storage")
        left = sorted(path.name for path in storage.glob("output/checkpoints/*"))
    else:
        left = sorted({key.split("/")[2] for key in store.keys("out", "run/checkpoints/")})
    assert left == ["step-000000000004-1", "step-000000000005-1"]


# A run does not delete the objects of another run.
def test_retention_leaves_what_others_have_published(penstock, workflow, store):
    store.client.create_bucket(Bucket="out")
    store.client.put_object(Bucket="out", Key="run/checkpoints/step-000000000001-1/mine", Body=b"mine")
    file = workflow(" && ".join(save(step, 2000) for step in range(1, 4)), checkpoints={"keep": {"latest": 1}})

    penstock.run("run", file).ok()

    assert store.keys("out", "run/checkpoints/step-000000000001-1/") == ["run/checkpoints/step-000000000001-1/mine"]
    assert [step for step, _ in steps_in(store)] == [3]


# A fresh attempt restores nothing. Its checkpoints and those of earlier attempts count together,
# and are removed without a copy.
@pytest.mark.parametrize("fields", [{}, {"continuousOutputSync": False}])
def test_retention_where_a_finished_run_begins_anew(penstock, workflow, store, fields):
    file = workflow(" && ".join(save(step, 2000) for step in range(1, 6)), checkpoints={"keep": {"latest": 2}}, **fields)

    penstock.run("run", file).ok()
    penstock.run("run", file).ok()
    last = penstock.run("run", "--fresh", file).ok()

    assert steps_in(store) == [(4, 3), (5, 3)]
    assert {key.split("/")[2] for key in store.keys("out", "run/checkpoints/")} == {"step-000000000004-3", "step-000000000005-3"}
    assert not [key for key in store.keys("out", "run/.penstock/") if "/replaced/" in key]
    assert sum(int(n) for n in re.findall(r"(\d+) checkpoint", last.err)) == 5


# If a finished training run is started again by mistake, its checkpoints stay until the new attempt
# has finished, too.
def test_retention_leaves_a_finished_run_until_the_next_has_succeeded(penstock, workflow, store, tmp_path):
    keep = {"keep": {"latest": 2}}
    saves = " && ".join(save(step, 2000) for step in range(1, 5))
    penstock.run("run", workflow(saves, checkpoints=keep)).ok()
    file = workflow(f"{saves} && test -e {tmp_path}/go", checkpoints=keep)

    penstock.run("run", "--fresh", file).exits(1)
    penstock.run("flush", "run").ok()
    assert steps_in(store) == [(3, 1), (3, 2), (4, 1), (4, 2)]
    (tmp_path / "go").touch()
    penstock.run("run", "--fresh", file).ok()

    assert steps_in(store) == [(3, 3), (4, 3)]


# The best checkpoint of an earlier attempt is still the best, and stays. A file that is a
# checkpoint by itself is counted the same way.
def test_retention_keeps_the_best_of_all_attempts(penstock, workflow, store):
    keep = {"keep": {"latest": 1, "best": {"metric": "loss", "mode": "min", "n": 1}}}
    for losses in ([3, 1, 2], [5, 4, 6]):
        penstock.run("run", "--fresh", workflow(" && ".join(save(i, 2000, f"loss={loss}") for i, loss in enumerate(losses, 1)), checkpoints=keep)).ok()

    assert steps_in(store) == [(2, 1), (3, 2)]


def test_retention_of_single_files_counts_all_attempts(penstock, workflow, store):
    for attempt in (1, 2):
        step = f"for i in 1 2 3; do echo $i > $DEEPSQUARE_OUTPUT/{attempt}-$i.pth; sleep 0.2; done; echo $i > $DEEPSQUARE_OUTPUT/same.pth"
        penstock.run("run", "--fresh", workflow(step, checkpoints={"path": ".", "pattern": "*.pth", "keep": {"latest": 1}})).ok()

    keys = [key for key in store.keys("out", "run/") if not key.startswith("run/.penstock/")]
    assert keys == ["run/same.pth", "run/same.pth.COMMIT.json"]


# A program writes a file whose name an earlier attempt has used: retention removes the object of
# the earlier attempt, not the half-written file.
def test_retention_leaves_a_file_that_is_being_written_again(penstock, workflow, store):
    checkpoints = {"path": ".", "pattern": "*.pth"}
    penstock.run("run", workflow("for i in 1 2 3; do echo $i > $DEEPSQUARE_OUTPUT/$i.pth; sleep 0.05; done", checkpoints=checkpoints)).ok()
    step = """
        trap 'exit 1' TERM
        exec 3> $DEEPSQUARE_OUTPUT/2.pth; echo half >&3
        echo again > $DEEPSQUARE_OUTPUT/1.pth; echo started
        while [ ! -e $STORAGE_PATH/go ]; do sleep 0.05; done
        echo whole >&3; exec 3>&-; cat $DEEPSQUARE_OUTPUT/2.pth"""
    run = penstock.popen("run", "--fresh", workflow(step, checkpoints=checkpoints | {"keep": {"latest": 1}}))
    run.wait_for_output("started")
    wait_for(lambda: store.bytes("out", "run/1.pth") == b"again\n", 60, "a newer checkpoint")
    assert "run/3.pth" in store.keys("out", "run/")
    (storage,) = penstock.home.glob("runs/*/storage")
    (storage / "go").touch()

    run.wait().exits(0)

    assert "half\nwhole\n" in run.out
    keys = [key for key in store.keys("out", "run/") if not key.startswith("run/.penstock/")]
    assert keys == ["run/2.pth", "run/2.pth.COMMIT.json"]


# The program writes no commits. penstock writes one next to each file that was closed, stayed
# unchanged and was published.
def test_files_of_programs_that_know_no_commits_are_committed(penstock, workflow, store, tmp_path):
    step = """
        if [ -n "$PENSTOCK_CHECKPOINT" ]; then echo "from $(cat $PENSTOCK_CHECKPOINT)"; exit; fi
        trap 'exit 0' TERM
        echo one > $DEEPSQUARE_OUTPUT/a.pth; echo log > $DEEPSQUARE_OUTPUT/log.txt; echo started
        while [ ! -e $STORAGE_PATH/go ]; do sleep 0.05; done
        echo two > $DEEPSQUARE_OUTPUT/b.pth; echo saved; while :; do sleep 0.05; done"""
    file = workflow(step, checkpoints={"path": ".", "pattern": "*.pth", "keep": {"latest": 1}})
    run = penstock.popen("run", file)
    run.wait_for_output("started")
    wait_for(lambda: "run/a.pth.COMMIT.json" in store.keys("out", "run/"), 60, "the commit of the first")
    (storage,) = penstock.home.glob("runs/*/storage")
    (storage / "go").touch()
    run.wait_for_output("saved")
    run.send(signal.SIGTERM)
    run.wait().exits(75)

    assert "run/b.pth.COMMIT.json" in store.keys("out", "run/")
    again = penstock.run("run", file, env={"PENSTOCK_HOME": str(tmp_path / "elsewhere")}).ok()

    assert "from two\n" in again.out
    keys = [key for key in store.keys("out", "run/") if not key.startswith("run/.penstock/")]
    assert keys == ["run/b.pth", "run/b.pth.COMMIT.json", "run/log.txt"]


# The verbs work on the store, even from a machine that never had the run, and on local files.
def test_checkpoints_are_listed_brought_verified_and_removed(penstock, workflow, store, tmp_path):
    penstock.run("run", workflow(f"{save(1, 5000, 'loss=0.5')} && {save(2, 70000)} && {save(3, 10)}")).ok()
    elsewhere = store.env | {"PENSTOCK_HOME": str(tmp_path / "elsewhere")}
    address = ["s3://out/run", "--endpoint-url", store.endpoint]

    listed = penstock.run("checkpoints", "list", "run", "--json").json()
    assert [(c["name"], c["step"], c["bytes"], c["metrics"]) for c in listed] == [
        ("step-000000000003-1", 3, 15, {}), ("step-000000000002-1", 2, 105000, {}), ("step-000000000001-1", 1, 7500, {"loss": 0.5})]  # fmt: skip
    assert penstock.run("checkpoints", "list", *address, "--json", env=elsewhere).json() == listed
    assert "step-000000000001-1  1     1        7.5 kB" in penstock.run("checkpoints", "list", "run").ok().out

    brought = penstock.run("checkpoints", "get", *address, "step-000000000002-1", "-o", tmp_path / "got", env=elsewhere).ok()
    assert brought.out == f"{tmp_path}/got/step-000000000002-1\n" and tool("check", tmp_path / "got").stdout == "2\n"

    key = "run/checkpoints/step-000000000003-1/model-0.bin"
    store.client.put_object(Bucket="out", Key=key, Body=b"x" * 10)
    verified = penstock.run("checkpoints", "verify", *address, env=elsewhere)
    assert verified.code != 0 and re.search("^step-000000000003-1: .*model-0.bin", verified.out, re.M)
    assert "step-000000000001-1: whole\n" in verified.out and "1 of 3 " in verified.err
    # A failed download leaves no damaged files, and keeps the files that were there before.
    kept = tmp_path / "bad" / "step-000000000003-1" / "notes"
    kept.parent.mkdir(parents=True)
    kept.touch()
    for place in ("bad", "worse"):
        assert "model-0.bin" in penstock.run("checkpoints", "get", "run", "step-000000000003-1", "-o", tmp_path / place).exits(69).err
    assert list(kept.parent.iterdir()) == [kept] and list((tmp_path / "worse").iterdir()) == []
    newest = penstock.run("checkpoints", "get", "run", "-o", tmp_path / "newest").ok()
    assert newest.out.endswith("/step-000000000002-1\n") and "step-000000000003-1" in newest.err

    penstock.run("checkpoints", "rm", "run", "step-000000000003-1").exits(64)
    penstock.run("checkpoints", "rm", "run", "step-000000000003-1", "--force").ok()
    penstock.run("checkpoints", "rm", "run", "step-000000000001-1").ok()
    penstock.run("checkpoints", "rm", "run", "step-000000000009-1").exits(66)
    assert {key.split("/")[2] for key in store.keys("out", "run/checkpoints/")} == {"step-000000000002-1"}


# A training program that saves its own files resumes from its output, so the list shows those
# files: in the store, on this machine, and from elsewhere.
def test_files_of_a_training_without_commits_are_listed(penstock, workflow, store, tmp_path):
    save_own = "cd $DEEPSQUARE_OUTPUT; mkdir deep; printf 12345 > deep/ckpt.pth; for i in $(seq %d); do printf 1 > log$i; touch -d @$i log$i; done"
    penstock.run("run", workflow(save_own % 10)).ok()
    penstock.run("run", workflow(save_own % 30, file="here.json", name="here", output=None, continuousOutputSync=None)).ok()
    address = ["s3://out/run", "--endpoint-url", store.endpoint]

    for place in (["run"], ["here"], address):
        listed = penstock.run("checkpoints", "list", *place, "--json", env=store.env)
        assert ("deep/ckpt.pth", 5) in [(f["file"], f["bytes"]) for f in listed.json()]
        assert ("31 files, 35 B" if place == ["here"] else "11 files, 15 B") in listed.err
        assert re.search(r"^deep/ckpt\.pth +5 B +20", penstock.run("checkpoints", "list", *place, env=store.env).ok().out, re.M)
    newest = [f["file"] for f in penstock.run("checkpoints", "list", "here", "--json").json()]
    assert newest == ["deep/ckpt.pth"] + [f"log{i}" for i in range(30, 11, -1)]


def test_checkpoints_on_this_machine_are_looked_at_without_a_store(penstock, workflow):
    penstock.run("run", workflow(f"{save(1, 5000)} && {save(2, 5000)}; exit 1", output=None, continuousOutputSync=None)).exits(1)

    assert [c["step"] for c in penstock.run("checkpoints", "list", "run", "--json").json()] == [2, 1]
    assert penstock.run("checkpoints", "verify", "run").ok().out.count(": whole\n") == 2
    penstock.run("checkpoints", "rm", "run", "step-000000000001-1").ok()
    assert [c["step"] for c in penstock.run("checkpoints", "list", "run", "--json").json()] == [2]


# Ranks save one checkpoint together. The error names a rank that hangs, and the previous checkpoint
# stays the newest.
def test_ranks_save_together_and_one_that_hangs_is_named(tmp_path):
    ranks = [subprocess.Popen([TOOL, "rank", tmp_path, "1", "70000", str(rank), "3", "60"]) for rank in range(3)]
    assert [process.wait(120) for process in ranks] == [0, 0, 0]

    hung = [subprocess.Popen([TOOL, "rank", tmp_path, "2", "70000", str(rank), "3", "1"], stderr=subprocess.PIPE, text=True) for rank in range(2)]
    errors = [process.communicate(timeout=120)[1] for process in hung]

    assert {"1", "2", "3"} <= set(re.findall(r"\b\d\b", errors[0]))
    assert [process.returncode for process in hung] == [1, 1]
    assert tool("latest", tmp_path).stdout == "1\n"


def kills(tmp_path, n, seed):
    """Kills saves at random moments, again and again. Checks that every valid checkpoint is whole,
    and that no checkpoint is lost whose save was reported."""
    rng = random.Random(seed)
    folder, told, done = tmp_path / "c", 0, 0
    for attempt in range(1, n + 1):
        process = subprocess.Popen(
            [TOOL, "loop", folder, str(told + 1), str(told + 1000), str(rng.choice([0, 1, 4096, 200000]))],
            env=os.environ | {"PENSTOCK_ATTEMPT": str(attempt)}, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        out = [process.stdout.readline().strip() for _ in range(rng.randrange(3))]
        try:
            process.wait(rng.random() * 0.02)
        except subprocess.TimeoutExpired:
            process.kill()
        out += process.communicate(timeout=60)[0].splitlines()
        done += len(out)
        told = max([told, *map(int, out)])
        found = tool("check", folder)
        assert found.returncode == 0, found.stderr
        newest = 0 if found.stdout == "none\n" else int(found.stdout)
        assert newest >= told, f"attempt {attempt}: step {told} was reported as committed, but {newest} is the newest"
        told = newest
        if attempt % 50 == 0:
            for old in sorted(folder.iterdir())[:-3]:
                subprocess.run(["rm", "-rf", old], check=True)
    assert done > 0
    # Apart from valid checkpoints, only the last save may have left files without a commit.
    assert len([path for path in folder.iterdir() if not (path / "COMMIT.json").exists()]) <= 1


def test_a_kill_at_any_moment_leaves_what_counts_whole(tmp_path):
    kills(tmp_path, 40, 1)


@pytest.mark.long
def test_a_thousand_kills(tmp_path):
    kills(tmp_path, 1000, int(os.environ.get("PENSTOCK_KILL_SEED", "1")))


# Each of the two tasks is a rank. The ranks save one checkpoint, whose commit names the files of
# both ranks, and the next attempt resumes from it.
def test_tasks_of_a_step_commit_one_checkpoint(penstock, workflow, store):
    ranks = f"{TOOL} rank $PENSTOCK_CHECKPOINT_DIR 7 70000 $RANK $WORLD_SIZE 60 && touch $DEEPSQUARE_OUTPUT/through-$RANK"
    step = {"name": "train", "run": {"command": RESUMES + f"{ranks} && {WAIT}", "resources": {"tasks": 2}}}
    file = workflow(resources=RESOURCES | {"tasks": 2}, steps=[step])
    run = penstock.popen("run", file)
    wait_for(lambda: "out" in [b["Name"] for b in store.client.list_buckets()["Buckets"]] and steps_in(store) == [(7, 1)], 60, "the commit")
    wait_for(lambda: {"run/through-0", "run/through-1"} <= set(store.keys("out", "run/")), 60, "both tasks to end")
    run.send(signal.SIGTERM)
    run.wait().exits(75)

    commit = json.loads(store.bytes("out", "run/checkpoints/step-000000000007-1/COMMIT.json"))
    assert commit["world_size"] == 2
    assert [f["path"] for f in commit["files"]] == ["model-0.bin", "model-1.bin", "optimizer/0.bin", "optimizer/1.bin"]
    assert not [key for key in store.keys("out", "run/") if ".penstock-" in key]
    again = penstock.run("run", file).ok()
    assert again.out.count("from step-000000000007-1\n") == 2


# In a container, $PENSTOCK_CHECKPOINT is a path within the container.
@pytest.mark.skipif(not os.path.exists(BUSYBOX), reason="busybox-static is not installed")
def test_a_container_is_told_what_it_goes_on_from(penstock, workflow, tmp_path):
    where = write_layout(tmp_path / "image", image([busybox()]))
    saves = {"name": "save", "run": {"command": save(3, 5000)}}
    reads = {"name": "train", "run": {"container": {"image": str(where)}, "command":
             '[ -z "$PENSTOCK_CHECKPOINT" ] && exit 3; echo "$PENSTOCK_CHECKPOINT $PENSTOCK_CHECKPOINT_DIR"; cat "$PENSTOCK_CHECKPOINT/COMMIT.json"'}}  # fmt: skip
    file = workflow(output=None, continuousOutputSync=None, steps=[saves, reads])
    penstock.run("run", file).exits(3)

    out = penstock.run("resume", "run").ok().out.splitlines()

    checkpoint, folder = out[0].split()
    assert checkpoint == f"{folder}/step-000000000003-1" and not checkpoint.startswith(str(penstock.home))
    assert '"step":3' in out[1]


# The message names a commit of another run; neither the commit nor its files are overwritten.
@pytest.mark.parametrize("by", ["another run", "an unknown client"])
def test_a_commit_of_somebody_else_is_not_overwritten(penstock, workflow, store, by):
    file = workflow(save(1, 5000))
    if by == "another run":
        other = workflow(save(1, 3000), file="other.json", name="other")
        penstock.run("run", other).ok()
    else:
        store.client.create_bucket(Bucket="out")
        store.client.put_object(Bucket="out", Key="run/checkpoints/step-000000000001-1/COMMIT.json", Body=b"theirs")
    before = {key: store.bytes("out", key) for key in store.keys("out", "run/checkpoints/")}

    refused = penstock.run("run", file).exits(73)

    assert {key: store.bytes("out", key) for key in before} == before
    assert "run/checkpoints/step-000000000001-1/COMMIT.json" in refused.err
    if by == "another run":
        assert penstock.run("show", "other", "--json").json()["id"] in refused.err
    penstock.run("mv", "-r", "s3://out/run/checkpoints/step-000000000001-1/", "s3://out/theirs/", env=store.env).ok()
    penstock.run("flush", "run").ok()
    assert {store.bytes("out", key.replace("run/checkpoints/step-000000000001-1/", "theirs/")) for key in before} == set(before.values())
    assert steps_in(store) == [(1, 1)] and "step-000000000001-1: whole" in penstock.run("checkpoints", "verify", "run").ok().out


# A run that starts over replaces its own published files.
def test_a_run_that_begins_anew_replaces_its_own_commits(penstock, workflow, store):
    for size in (5000, 7000):
        file = workflow(f"head -c {size} /dev/zero > $DEEPSQUARE_OUTPUT/a.pth", checkpoints={"path": ".", "pattern": "*.pth"})
        penstock.run("run", "--fresh", file).ok()

        assert json.loads(store.bytes("out", "run/a.pth.COMMIT.json"))["files"][0]["size"] == size


# A step has replaced the directory by a link, whose target does not belong to the run.
def test_retention_follows_no_link(penstock, workflow, tmp_path):
    for step in (1, 2):
        assert tool("save", tmp_path / "others", step, 2000).returncode == 0
    file = workflow(f"ln -s {tmp_path}/others $PENSTOCK_CHECKPOINT_DIR && {save(3, 2000)}",
                    checkpoints={"keep": {"latest": 1}}, output=None, continuousOutputSync=None)  # fmt: skip

    result = penstock.run("run", file).ok()

    assert "checkpoints" in result.err
    assert len(list((tmp_path / "others").iterdir())) == 3


# A commit cannot contain a name with a control character, or a name that is not UTF-8. One message
# reports all of these names, and the other files are committed.
def test_a_file_with_an_odd_name_is_no_checkpoint(penstock, workflow, store):
    step = "cd $DEEPSQUARE_OUTPUT; printf 'a\\nb.pth\\0c\\377.pth' | xargs -0 touch; echo one > d.pth"
    result = penstock.run("run", workflow(step, checkpoints={"path": ".", "pattern": "*.pth"})).ok()

    assert result.err.count("control character") == 1
    assert [key for key in store.keys("out", "run/") if key.endswith(".COMMIT.json")] == ["run/d.pth.COMMIT.json"]


# Without --force, `rm` refuses to remove the checkpoint from which the run would resume, even if a
# newer but damaged one exists.
def test_removing_never_takes_the_last_that_is_whole_by_itself(penstock, workflow, store):
    penstock.run("run", workflow(" && ".join(save(step, 5000) for step in (1, 2, 3)))).ok()
    store.client.delete_object(Bucket="out", Key="run/checkpoints/step-000000000003-1/model-0.bin")
    store.client.put_object(Bucket="out", Key="run/checkpoints/mine/COMMIT.json", Body=b"{}")
    store.client.put_object(Bucket="out", Key="run/checkpoints/mine/data", Body=b"data")

    assert "step-000000000002-1" in penstock.run("checkpoints", "rm", "run", "step-000000000002-1").exits(64).err
    penstock.run("checkpoints", "rm", "run", "mine", "--force").ok()
    penstock.run("checkpoints", "rm", "run", "step-000000000001-1").ok()

    assert {key.split("/")[2] for key in store.keys("out", "run/checkpoints/")} == {"step-000000000002-1", "step-000000000003-1"}


# penstock is killed between any two steps of a removal: no removed checkpoint looks whole, and the
# next attempt removes the rest.
REMOVING = {
    "before it is noted": "rename:before:1:*/retired", "noted": "rename:after:1:*/retired",
    "before the commit goes": "unlink:before:1:*/step-*/COMMIT.json", "its commit is gone": "unlink:after:1:*/step-*/COMMIT.json",
    "in the middle": "unlink:after:1:*model-0.bin", "all but the note": "unlink:before:1:*/retired",
}  # fmt: skip


@pytest.mark.parametrize("at", [name if name == "its commit is gone" else pytest.param(name, marks=pytest.mark.long) for name in REMOVING])
@pytest.mark.parametrize("where", ["here", pytest.param("in a store", marks=pytest.mark.long)])
def test_a_kill_while_checkpoints_are_removed(penstock, workflow, store, at, where):
    fields = {} if where == "in a store" else {"output": None, "continuousOutputSync": None}
    step = RESUMES + " && ".join(save(step, 3000) for step in (1, 2, 3)) + f" && echo saved; {WAIT}"
    file = workflow(step, checkpoints={"keep": {"latest": 1}}, **fields)
    run = penstock.popen("run", file, env=Round.preloaded("run", REMOVING[at]))
    killed = run.wait()
    assert killed.code == -9, killed.text
    (folder,) = penstock.home.glob("runs/*/storage/output/checkpoints")
    listed = tool("check", folder)
    assert listed.returncode == 0 and int(listed.stdout) >= 1, listed.stderr

    again = penstock.run("run", file).ok()

    newest = int(re.search(r"from step-0*(\d+)-1\n", again.out).group(1))
    assert int(listed.stdout) <= newest <= 3  # the step still runs, and may have saved one more
    if where == "here":
        assert [path.name for path in folder.iterdir()] == [f"step-{newest:012}-1"]
    else:
        assert {key.split("/")[2] for key in store.keys("out", "run/checkpoints/")} == {f"step-{newest:012}-1"}


# penstock is killed while the store deletes: the next attempt, here or on a machine without local
# files, deletes the rest.
@pytest.mark.parametrize("where", ["here", "elsewhere"])
@pytest.mark.parametrize("held", ["COMMIT.json", "model-0.bin"])
def test_a_kill_while_the_store_removes_checkpoints(penstock, workflow, store, fault_proxy, tmp_path, held, where):
    deletion = fault_proxy.fault("DELETE", rf"step-000000000001-1/{held}$", hold="request", times=1000)
    file = workflow(RESUMES + f"{save(1, 3000)} && {save(2, 3000)} && echo saved; exec sleep 1000", checkpoints={"keep": {"latest": 1}})
    spec = json.loads(file.read_text())
    spec["output"]["s3"]["endpointUrl"] = fault_proxy.url
    file.write_text(json.dumps(spec))
    run = penstock.popen("run", file)
    run.wait_for_output("saved")
    deletion.wait()
    run.send(signal.SIGKILL)
    run.wait()
    deletion.stop()

    again = penstock.run("run", file, env={} if where == "here" else {"PENSTOCK_HOME": str(tmp_path / "elsewhere")}).ok()

    assert "from step-000000000002-1\n" in again.out
    assert {key.split("/")[2] for key in store.keys("out", "run/checkpoints/")} == {"step-000000000002-1"}
    assert not [key for key in store.keys("out", "run/.penstock/") if key.endswith("/retired")]


# The whole run is on a full disk: the step that cannot save fails with a message, earlier
# checkpoints are valid, and once there is free space, the same run resumes.
def test_a_full_disk_below_a_run_that_saves(penstock, workflow, tmp_path):
    step = RESUMES + f"{save(1, 100000)} && {save(2, 40000000)}"
    file = workflow(step, output=None, continuousOutputSync=None)
    penstock.home.mkdir(parents=True, exist_ok=True)
    script = f"""mount -t tmpfs -o size=24m,mode=700 none {penstock.home} || exit 99
        {binary()} run {file} > {tmp_path}/first 2>&1; echo $?
        mount -o remount,size=200m {penstock.home}; {binary()} resume run 2>&1; echo $?"""
    done = subprocess.run(["unshare", "--mount", "--map-root-user", "sh", "-c", script], env=penstock.env, cwd=penstock.cwd,
                          capture_output=True, text=True, timeout=200)  # fmt: skip
    if done.returncode == 99 or "unshare" in done.stderr:
        pytest.skip("no mount namespace here")

    said = (tmp_path / "first").read_text()
    assert "No space left on device" in said and "'s1'" in said
    lines = done.stdout.splitlines()
    assert lines[0] == "1" and lines[-1] == "0" and "from step-000000000001-1" in lines, done.stdout


# The disk gets full during a save: the previous checkpoint is valid, and the space of the failed
# one is freed.
def test_a_full_disk_while_saving_keeps_the_one_before(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    script = f"""mount -t tmpfs -o size=1m none {disk} || exit 99
        {TOOL} save {disk}/c 1 100000 || exit 1
        {TOOL} save {disk}/c 2 2000000 2> {tmp_path}/error && exit 2
        {TOOL} check {disk}/c; ls {disk}/c; {TOOL} save {disk}/c 3 100000 && {TOOL} check {disk}/c"""
    done = subprocess.run(["unshare", "--mount", "--map-root-user", "sh", "-c", script], capture_output=True, text=True, timeout=120)
    if done.returncode == 99 or "unshare" in done.stderr:
        pytest.skip("no mount namespace here")

    assert done.stdout == "1\nstep-000000000001-1\n3\n", done.stderr
    assert "No space left on device" in (tmp_path / "error").read_text()

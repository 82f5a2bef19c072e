"""Runs on Slurm that are asked to end: partition preemption, time limit, requeue and resubmission."""
import json
import re

import pytest

COUNTS = """
n=$(cat "$DEEPSQUARE_OUTPUT/n" 2>/dev/null || echo 0)
echo "attempt $PENSTOCK_ATTEMPT from $n job $SLURM_JOB_ID deadline $PENSTOCK_DEADLINE"
trap 'echo "$n" > "$DEEPSQUARE_OUTPUT/n.tmp"; mv "$DEEPSQUARE_OUTPUT/n.tmp" "$DEEPSQUARE_OUTPUT/n"; echo "saved $n"; exit 0' TERM
until [ -e "$GO" ]; do n=$((n + 1)); sleep 0.1; done
echo "$n" > "$DEEPSQUARE_OUTPUT/n"; echo "done at $n"
"""


@pytest.fixture
def counting(tmp_path, cluster_store):
    """A workflow that counts until the file `go` exists, and saves its count when it is asked to end."""
    path = tmp_path / "wf.json"
    env = [{"key": "GO", "value": str(tmp_path / "go")}]
    step = {"name": "train", "run": {"command": COUNTS, "env": env}}
    path.write_text(json.dumps({"name": "t", "steps": [step], "output": cluster_store.workflow_output("results", "/a"), "continuousOutputSync": True}))
    return path


def rows(text):
    """Returns [(attempt, from, job)] from the lines that the step printed at its starts."""
    return [tuple(map(int, found)) for found in re.findall(r"attempt (\d+) from (\d+) job (\d+)", text)]


@pytest.mark.parametrize("requeued", [False, pytest.param(True, marks=pytest.mark.long)], ids=["submitted-anew", "requeued"])
def test_a_run_that_is_preempted_goes_on_and_loses_nothing(login, counting, slurm, tmp_path, cluster_store, requeued):
    env = {} if requeued else {"PENSTOCK_SLURM_REQUEUES": "0"}
    process = login.on_slurm(counting, "--partition=low", "--sbatch=--nodes=1", "--sbatch=--time=30", env=env)
    process.wait_for_output("attempt 1")
    urgent = slurm.run("sbatch", "--parsable", "--partition=high", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap", f"until [ -e {tmp_path}/on ]; do sleep 0.1; done").strip()

    process.wait_for_output(r"saved \d+")
    (tmp_path / "on").touch()
    process.wait_for_output("attempt 2")
    (tmp_path / "go").touch()

    done = process.wait().exits(0)
    (saved,) = map(int, re.findall(r"saved (\d+)", done.out))
    (first, second) = rows(done.out)
    assert (first[2] == second[2]) == requeued and int(urgent) not in (first[2], second[2])
    assert (first[:2], second[:2]) == ((1, 0), (2, saved))
    assert re.search(r"deadline \d{10}", done.out)
    assert [run["attempt"] for run in login.ps()] == [2]
    assert int(cluster_store.text("results", "a/n")) >= saved


@pytest.mark.long
def test_a_run_that_comes_to_its_time_limit_is_requeued(login, counting, tmp_path):
    process = login.on_slurm(counting, "--sbatch=--time=1", "--sbatch=--signal=B:USR1@10")

    process.wait_for_output("attempt 2", 300)
    (tmp_path / "go").touch()

    done = process.wait().exits(0)
    (saved,) = map(int, re.findall(r"saved (\d+)", done.out))
    assert rows(done.out)[1][:2] == (2, saved)


@pytest.mark.long
def test_a_run_goes_on_where_preemption_cancels_jobs(login, counting, slurm, tmp_path):
    # Slurm does not requeue a job that PreemptMode=CANCEL ends. Without a grace time, the kill
    # follows the notice at once.
    process = login.on_slurm(counting, "--partition=cheap", "--sbatch=--nodes=1", "--sbatch=--time=30")
    process.wait_for_output("attempt 1")
    slurm.run("sbatch", "--partition=high", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap", f"until [ -e {tmp_path}/on ]; do sleep 0.1; done")

    process.wait_for_output(r"saved \d+")
    (tmp_path / "on").touch()
    process.wait_for_output("attempt 2")
    (tmp_path / "go").touch()

    done = process.wait().exits(0)
    (saved,) = map(int, re.findall(r"saved (\d+)", done.out))
    (first, second) = rows(done.out)
    assert (first[:2], second[:2]) == ((1, 0), (2, saved)) and first[2] != second[2]

"""Slurm's commands that fail, return wrong data, are slow, or list other jobs. These commands are scripts of the test."""
import fcntl
import json
import os
import re
import signal
import stat
from pathlib import Path

import pytest

from harness.program import TOP
from harness.workflows import write_workflow

SCRIPT = """#!/bin/sh
# A fake of each Slurm command: records its arguments and its environment, and replies from files.
cd "$FAKE"
name=$(basename "$0")
echo "$name $*" >> calls
env > "env.$name"
[ -e "$name.fails" ] && { cat "$name.fails" >&2; exit 1; }
case $name in
sbatch)
    echo >> entered
    while [ -e sbatch.waits ]; do sleep 0.02; done
    number=$(($(cat number) + 1)); echo $number > number
    [ -e "answer.$number" ] || echo 'PENDING|Priority||N/A|RUN' > "answer.$number"
    echo "$number$(cat suffix 2>/dev/null)" ;;
srun) while [ -e srun.waits ]; do sleep 0.02; done ;;
squeue)
    while [ $# -gt 0 ]; do case $1 in --jobs=*) job=${1#--jobs=} ;; esac; shift; done
    if [ -z "$job" ]; then
        for one in answer.*; do sed "s:^:${one#answer.}|:; s:RUN$:$(ls -d "$HOME_OF_RUNS"/runs/*)/slurm.sh:" "$one"; done
        exit 0
    fi
    [ -e "answer.$job" ] || { echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1; }
    sed "s:RUN$:$(ls -d "$HOME_OF_RUNS"/runs/*)/slurm.sh:" "answer.$job" ;;
esac
"""


class Fake:
    def __init__(self, folder, penstock):
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        for name in ("sbatch", "squeue", "scancel", "scontrol", "srun"):
            (self.bin / name).write_text(SCRIPT)
            (self.bin / name).chmod(0o755)
        self.write("number", "0")
        penstock.env |= {"PATH": f"{self.bin}:/usr/bin:/bin", "FAKE": str(folder), "HOME_OF_RUNS": str(penstock.home)}

    def write(self, name, text):
        (self.folder / name).write_text(text + "\n")

    def remove(self, name):
        (self.folder / name).unlink()

    def calls(self, name=""):
        path = self.folder / "calls"
        return [line for line in path.read_text().splitlines() if line.startswith(name)] if path.exists() else []

    def environment(self, name):
        return dict(line.split("=", 1) for line in (self.folder / f"env.{name}").read_text().splitlines() if "=" in line)


@pytest.fixture
def fake(penstock, tmp_path):
    return Fake(tmp_path / "slurm", penstock)


@pytest.fixture
def workflow(tmp_path):
    return write_workflow(tmp_path, "true", name="t", resources=None)


def submit(penstock, workflow, *more, **options):
    return penstock.run("run", "--on", "slurm", "-d", workflow, *more, **options)


# ---- one run, one job


@pytest.mark.parametrize("what", ["fails", "prints nonsense"])
def test_nothing_is_submitted_beside_a_job_of_which_slurm_does_not_tell(penstock, fake, workflow, what):
    submit(penstock, workflow).ok()
    if what == "fails":
        fake.write("squeue.fails", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
    else:
        fake.write("answer.1", "Welcome to the cluster of the year")

    refused = submit(penstock, workflow).exits(69)

    assert ("connect failure" in refused.err or "Welcome to" in refused.err)
    assert len(fake.calls("sbatch")) == 1


def test_two_submissions_at_one_moment_are_one(penstock, fake, workflow, wait_for):
    fake.write("sbatch.waits", "")
    first = penstock.popen("run", "--on", "slurm", "-d", workflow)
    wait_for(lambda: (fake.folder / "entered").exists())
    second = penstock.popen("run", "--on", "slurm", "-d", workflow)
    fake.remove("sbatch.waits")

    first.wait().ok()
    refused = second.wait().exits(69)

    assert "Slurm job 1, PENDING: Priority" in refused.err and len(fake.calls("sbatch")) == 1


def test_a_job_of_an_earlier_submission_begins_nothing(penstock, fake, workflow):
    # The first submitter was killed before it knew the job's number, and the run was submitted
    # again.
    fake.write("answer.2", "RUNNING|None|n1|N/A|RUN")
    submit(penstock, workflow).ok()
    (run,) = penstock.home.glob("runs/*")
    script = (run / "slurm.sh").read_text()
    fake.remove("answer.1")
    submit(penstock, workflow).ok()

    stale = penstock.run("resume", "--in-allocation", run.name, env={"SLURM_JOB_ID": "1", "PENSTOCK_SLURM_SUBMISSION": "1"}).exits(69)

    assert "PENSTOCK_SLURM_SUBMISSION=1\n" in script and "PENSTOCK_SLURM_SUBMISSION=2\n" in (run / "slurm.sh").read_text()
    assert "job 2" in stale.err
    assert json.loads((run / "slurm").read_text())["job"] == "2" and penstock.ps()[0]["state"] == "queued"


def test_a_submission_that_sbatch_refuses_is_none(penstock, fake, workflow):
    submit(penstock, workflow).ok()
    fake.write("answer.1", "COMPLETED|None|n1|N/A|RUN")
    fake.write("sbatch.fails", "sbatch: error: Batch job submission failed: Job limit reached")
    submit(penstock, workflow).exits(69)

    (run,) = penstock.home.glob("runs/*")
    assert json.loads((run / "slurm").read_text())["submissions"] == 1


def test_of_those_who_follow_a_held_job_one_submits_it_anew_and_only_then_cancels_it(penstock, fake, workflow, wait_for):
    submit(penstock, workflow).ok()
    fake.write("answer.2", "PENDING|Resources||N/A|RUN")
    followers = [penstock.popen("logs", "-f", "t") for _ in range(3)]
    for follower in followers:
        follower.wait_for_output(r"\(Priority\)")

    fake.write("answer.1", "PENDING|JobHoldMaxRequeue||N/A|RUN")
    wait_for(lambda: fake.calls("scancel"))
    for follower in followers:
        follower.wait_for_output(r"job 2 .*\(Resources\)")
        follower.send(2)
        follower.wait()

    assert [call.split()[0] for call in fake.calls() if not call.startswith("squeue")] == ["sbatch", "sbatch", "scancel"]
    assert fake.calls("scancel") == ["scancel 1"]


def test_a_job_that_somebody_holds_waits_for_him(penstock, fake, workflow, wait_for):
    submit(penstock, workflow).ok()
    fake.write("answer.1", "PENDING|job requeued in held state||N/A|RUN")

    follower = penstock.popen("logs", "-f", "t")
    follower.wait_for_output(r"\(job requeued in held state\).*'scontrol release")
    asked = len(fake.calls("squeue"))
    wait_for(lambda: len(fake.calls("squeue")) >= asked + 2)
    follower.send(2)
    follower.wait()

    assert len(fake.calls("sbatch")) == 1 and fake.calls("scancel") == []


def test_a_run_that_was_removed_is_not_followed_any_longer(penstock, fake, workflow):
    submit(penstock, workflow).ok()
    follower = penstock.popen("logs", "-f", "t")
    follower.wait_for_output(r"\(Priority\)")
    fake.write("squeue.fails", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)")

    assert "connect failure" in penstock.run("rm", "t").exits(69).err
    penstock.run("rm", "--force", "t").ok()

    follower.wait().exits(66)


def test_a_run_is_followed_while_another_process_has_its_lock(penstock, fake, workflow, wait_for):
    # `penstock rm` has the lock until the record is removed.
    submit(penstock, workflow).ok()
    follower = penstock.popen("logs", "-f", "t")
    follower.wait_for_output(r"\(Priority\)")
    (run,) = (penstock.home / "runs").iterdir()

    with open(run / "lock", "a") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        waits = lambda: int(re.search(r"\nvoluntary_ctxt_switches:\s*(\d+)", Path(f"/proc/{follower.pid}/status").read_text())[1])
        enough = waits() + 10
        wait_for(lambda: waits() >= enough, 20)
    follower.send(2)

    follower.wait().exits(130)


# If the run were removed, its job would start later and find no run.
@pytest.mark.parametrize("answer", ["PENDING|Priority||N/A|RUN", "RUNNING|None|n1|N/A|RUN"], ids=["pending", "running"])
def test_a_run_with_a_live_job_is_not_removed(penstock, fake, workflow, answer):
    submit(penstock, workflow).ok()
    fake.write("answer.1", answer)

    refused = penstock.run("rm", "--force", "t").exits(69)

    assert "Slurm job 1" in refused.err and len(penstock.ps()) == 1
    fake.write("answer.1", "CANCELLED|None||N/A|RUN")
    penstock.run("rm", "t").ok()
    assert penstock.ps() == []


def test_a_run_that_has_ended_here_is_removed_once_its_job_does_not_wait(penstock, fake, workflow):
    submit(penstock, workflow).ok()
    penstock.run("run", "--on", "local", workflow).ok()

    penstock.run("rm", "t").exits(69)
    penstock.run("stop", "t").ok()
    fake.write("answer.1", "CANCELLED|None||N/A|RUN")
    penstock.run("rm", "t").ok()


def test_slurm_is_not_asked_for_a_run_that_was_stopped(penstock, fake, workflow):
    submit(penstock, workflow).ok()
    penstock.run("stop", "t").ok()
    asked = fake.calls("squeue")

    penstock.run("rm", "t").ok()

    assert fake.calls("squeue") == asked


# ---- the owner of a job


def test_a_job_that_got_the_number_of_a_forgotten_one_is_left_alone(penstock, fake, workflow):
    submit(penstock, workflow).ok()
    fake.write("answer.1", "RUNNING|None|n7|N/A|/home/me/thesis.sh")

    penstock.run("stop", "t")
    submit(penstock, workflow).ok()

    assert fake.calls("scancel") == [] and len(fake.calls("sbatch")) == 2


def test_a_job_of_another_cluster_is_asked_for_there(penstock, fake, workflow):
    fake.write("suffix", ";west")
    submit(penstock, workflow, "--sbatch=--clusters=west").ok()

    submit(penstock, workflow).exits(69)
    penstock.run("stop", "t").ok()

    assert fake.calls("squeue")[0].endswith(" --clusters=west") and fake.calls("scancel") == ["scancel 1 --clusters=west"]


# If the job kept waiting, the run could not be submitted again, and the job would execute the run
# once more.
def test_a_stop_of_a_run_that_went_on_here_cancels_the_job_that_waits(penstock, fake, workflow):
    submit(penstock, workflow).ok()
    penstock.run("run", "--on", "local", workflow).ok()

    penstock.run("stop", "t").ok()

    assert fake.calls("scancel") == ["scancel 1"]
    fake.write("answer.1", "CANCELLED|None|n1|N/A|RUN")
    submit(penstock, workflow).ok()


def test_a_run_whose_submission_did_not_end_can_be_stopped(penstock, fake, workflow, wait_for):
    fake.write("sbatch.waits", "")
    first = penstock.popen("run", "--on", "slurm", "-d", workflow)
    wait_for(lambda: (fake.folder / "entered").exists())
    first.kill()
    first.wait()
    fake.remove("sbatch.waits")

    stopped = penstock.run("stop", "t").ok()

    assert "stopped" in stopped.out and fake.calls("scancel") == fake.calls("squeue") == []
    assert penstock.ps()[0]["state"] == "stopped"


# ---- a run that waits to be continued


@pytest.fixture
def running(penstock, fake, workflow, wait_for):
    """A run whose job is in its step. Returns the run's directory and the job's penstock
    process."""
    submit(penstock, workflow).ok()
    (run,) = penstock.home.glob("runs/*")
    fake.write("srun.waits", "")
    job = penstock.popen("resume", "--in-allocation", run.name, env={"SLURM_JOB_ID": "1", "SLURM_JOB_NUM_NODES": "1", "PENSTOCK_SLURM_SUBMISSION": "1"})
    wait_for(lambda: fake.calls("srun"))
    return run, job


@pytest.fixture
def requeued(running, fake, wait_for):
    """The id of a run whose first attempt was preempted, and whose job waits for nodes again."""
    run, job = running
    job.send(signal.SIGUSR1)
    wait_for(lambda: (run / "notice").exists())
    fake.remove("srun.waits")
    job.wait().exits(75)
    fake.write("answer.1", "PENDING|BeginTime||N/A|RUN")
    return run.name


def test_of_a_run_that_was_preempted_and_waits_it_is_said_why_it_waits(penstock, fake, requeued):
    (run,) = penstock.ps()
    shown = penstock.run("show", requeued, "--json").json()

    for seen in (run, shown):
        assert (seen["state"], seen["attempt"], seen["message"], seen["notice"]) == ("queued", 1, "Slurm job 1: PENDING (BeginTime)", None)
    assert "Slurm job 1: PENDING (BeginTime)" in penstock.run("ps").ok().out
    # Once the job is gone from the queue, the notice is the last known event.
    fake.remove("answer.1")
    (run,) = penstock.ps()
    assert run["state"] == "preempted" and run["notice"]["source"] == "slurm"


def test_a_run_that_was_preempted_and_waits_is_stopped(penstock, fake, requeued):
    follower = penstock.popen("logs", "-f", requeued)
    follower.wait_for_output(r"\(BeginTime\)")

    stopped = penstock.run("stop", requeued).ok()

    assert re.search(f"run {requeued}: stopped: Slurm job 1 ", stopped.out)
    assert fake.calls("scancel") == ["scancel 1"]
    (run,) = penstock.ps()
    assert (run["state"], run["class"], run["exit_code"]) == ("stopped", "user", 130)
    assert "stopped: Slurm job 1 " in follower.wait().exits(130).err


@pytest.mark.parametrize("answer, said", [("FAILED|NonZeroExitCode|n1|N/A|RUN", "FAILED) on n1"), (None, "Slurm")], ids=["failed", "forgotten"])
def test_of_a_run_that_was_lost_while_nobody_followed_it_is_said_how_its_job_ended(penstock, fake, running, answer, said):
    run, job = running
    job.kill()
    job.wait()
    fake.remove("srun.waits")
    if answer:
        fake.write("answer.1", answer)
    else:
        fake.remove("answer.1")

    for seen in (penstock.ps()[0], penstock.run("show", run.name, "--json").json()):
        assert (seen["state"], seen["class"]) == ("lost", "node")
        assert seen["message"].startswith("Slurm job 1 ") and said in seen["message"]
    # If squeue fails, penstock does not report an end of the job, and `watch` does not continue the
    # run on this machine.
    fake.write("squeue.fails", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
    assert penstock.ps()[0]["message"] is None
    penstock.run("watch", "--once").ok()


# ---- arguments and environment of the commands


def test_what_a_user_sets_for_his_own_looks_does_not_hide_the_job(penstock, fake, workflow):
    env = {"SQUEUE_USERS": "somebody", "SQUEUE_PARTITION": "gpu", "SLURM_TIME_FORMAT": "relative", "SCANCEL_STATE": "RUNNING"}
    submit(penstock, workflow, env=env).ok()

    penstock.run("stop", "t", env=env).ok()

    for name in ("squeue", "scancel"):
        assert not set(env) & set(fake.environment(name))


def test_a_submission_out_of_a_job_is_not_taken_for_its_going_on(penstock, fake, workflow):
    env = {"SLURM_RESTART_COUNT": "3", "SLURM_JOB_ID": "77", "SLURM_MEM_PER_NODE": "100", "SLURM_CONF": "/etc/slurm/slurm.conf", "SBATCH_ACCOUNT": "lab"}

    submit(penstock, workflow, env=env).ok()

    told = fake.environment("sbatch")
    assert told["SBATCH_ACCOUNT"] == "lab" and told["SLURM_CONF"] == env["SLURM_CONF"]
    assert {name for name in told if name.startswith("SLURM_")} == {"SLURM_CONF"}


def test_the_job_gets_the_secrets_of_its_submission_and_no_other_command_does(penstock, fake, workflow):
    # penstock in the job resolves the workflow's references to secrets; squeue and scancel do not
    # need the secrets.
    env = {"PENSTOCK_SECRET_MINE": "of-the-environment", "PENSTOCK_SECRET_ACCESS_KEY": "of-the-store", "FOR_ALL": "for all"}
    submit(penstock, workflow, env=env).ok()

    penstock.run("stop", "t", env=env).ok()

    assert env.items() <= fake.environment("sbatch").items()
    for name in ("squeue", "scancel"):
        assert set(env) & set(fake.environment(name)) == {"FOR_ALL"}


@pytest.mark.parametrize("option", ["--array=0-3", "--arr=0-3", "-a0-3", "--wait", "-W", "--wrap=date", "--test-only", "--", "-"])
def test_options_with_which_a_run_is_no_single_job_are_refused(penstock, fake, workflow, option):
    submit(penstock, workflow, f"--sbatch={option}").exits(65)

    assert fake.calls() == [] and penstock.ps() == []


def test_other_options_are_handed_over_word_by_word(penstock, fake, workflow):
    submit(penstock, workflow, "--sbatch=--wait-all-nodes=1", "--sbatch=-A lab 7", "--sbatch=--comment=it's $HOME; `date`").ok()

    (call,) = fake.calls("sbatch")
    assert " --wait-all-nodes=1 -A lab 7 --comment=it's $HOME; `date` /" in call


def test_what_is_written_for_the_job_is_for_its_owner_alone(penstock, fake, tmp_path):
    secret = "s3cr3t-of-the-file-xyz"
    path = tmp_path / "wf.json"
    output = {"s3": {"region": "us-east-1", "bucketUrl": "s3://out", "path": "/", "endpointUrl": "http://127.0.0.1:9", "accessKeyId": "AKIDEXAMPLE", "secretAccessKey": secret}}
    path.write_text(json.dumps({"name": "t", "output": output, "steps": [{"name": "s", "run": {"command": "true"}}]}))
    old = os.umask(0)
    try:
        submit(penstock, path).ok()
    finally:
        os.umask(old)

    (run,) = penstock.home.glob("runs/*")
    assert stat.S_IMODE(run.stat().st_mode) == 0o700
    for name in ("slurm", "slurm.sh", "slurm.lock", "workflow"):
        assert stat.S_IMODE((run / name).stat().st_mode) & 0o077 == 0 and secret not in (run / name).read_text()
    assert secret not in "\n".join(fake.calls()) and secret not in str(fake.environment("sbatch"))


def test_what_stands_in_the_name_of_the_home_is_no_pattern(penstock, fake, workflow, tmp_path):
    home = tmp_path / "100%j of 'it'"

    submit(penstock, workflow, env={"PENSTOCK_HOME": str(home), "HOME_OF_RUNS": str(home)}).ok()

    (call,) = fake.calls("sbatch")
    assert f" --output={str(home).replace('%', '%%')}/runs/" in call and "/slurm-%j.out " in call


def test_each_option_that_slurm_is_given_is_in_the_table_with_its_release():
    # 20.11 is the oldest supported version: penstock must not use an option of a later version
    # without a check that the option exists.
    sources = [*(TOP / "src/run/cluster").glob("*.[ch]"), TOP / "src/cli/runs/exec.c", TOP / "src/cli/cluster/cluster.c"]
    given = set(re.findall(r'"(--[A-Za-z][A-Za-z-]*)', "".join(path.read_text() for path in sources)))
    given |= {f"--{name}" for name in re.findall(r'add_number\(options, "([a-z-]+)"', (TOP / "src/run/cluster/submit.c").read_text())}
    # The sources also contain penstock's own options, and options that only messages name.
    ours = {"--in-allocation", "--mpi-task", "--on", "--sbatch", "--slurm-sweep", "--slurm-task", "--test-only", "--wrap"}

    rows = re.findall(r"^\| (?:sbatch|srun|squeue|scancel|sinfo)[^|]*\| (.*) \| (\d\d\.\d\d) \|$", (TOP / "docs/slurm.md").read_text(), re.M)
    since = {option: release for options, release in rows for option in re.findall(r"`(--[A-Za-z-]+)`", options)}

    assert {"--overlap", "--gpus", "--parsable"} <= given
    assert given - ours == set(since)
    assert max(since.values()) == "20.11"


def test_a_task_of_another_runner_has_the_processors_of_a_node(penstock, fake, tmp_path):
    # Other runners do not share machines between tasks, so a task gets all processors of a node if
    # its file has no number of processors.
    (tmp_path / "task.yaml").write_text("num_nodes: 2\nrun: x\n")
    (tmp_path / "own.yaml").write_text("num_nodes: 2\nresources: {cpus: 3}\nrun: x\n")
    (fake.bin / "sinfo").write_text("#!/bin/sh\nprintf 'big|99|(null)\\nmain*|16|gpu:2\\nmain*|12|gpu:a100:4\\n'\n")
    (fake.bin / "sinfo").chmod(0o755)

    task = penstock.run("run", "--dry-run", "--on", "slurm", tmp_path / "task.yaml").ok()
    own = penstock.run("run", "--dry-run", "--on", "slurm", tmp_path / "own.yaml").ok()

    assert task.json()["resources"] == {"tasks": 2, "cpusPerTask": 12, "memPerCpu": None, "gpus": 0, "tasksPerNode": 1}
    assert own.json()["resources"]["cpusPerTask"] == 3
    assert "cpusPerTask" not in task.err

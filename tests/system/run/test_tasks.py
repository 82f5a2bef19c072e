"""Several tasks of one step, and the limits of a step on this machine: each limit has a test that exceeds it."""
import glob
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile

import pytest

from harness import progress
from harness.program import binary

NOBODY = 65534
OWN_GROUP = re.compile(r"penstock-([0-9a-f]{12})-(\d+)-\d+$")
CPUS = len(os.sched_getaffinity(0))
# A separate /dev on top of the machine's, with the files of two GPUs; no driver is needed to test access.
WITH_GPUS = """mkdir "$0" && mount -t tmpfs tmpfs "$0" && mkdir "$0/up" "$0/work" && mount -t overlay -o "lowerdir=/dev,upperdir=$0/up,workdir=$0/work" overlay /dev \
&& rm -f /dev/nvidia[0-9]* && mknod /dev/nvidia0 c 195 0 && mknod /dev/nvidia1 c 195 1 && exec "$@\""""
LOOK_AT_GPUS = """import errno, os
def closed(act, *more):
    try:
        act(*more)
    except OSError as error:
        return error.errno == errno.EPERM
    return False
gpus = [closed(os.open, f"/dev/nvidia{n}", os.O_RDWR) for n in (0, 1)]
made = [closed(os.mknod, f"gpu{n}-{os.getpid()}", 0o20600, os.makedev(195, n)) for n in (0, 1)]
print(os.environ["CUDA_VISIBLE_DEVICES"], *map(int, gpus), *map(int, made), flush=True)
"""
EAT = "import sys, time\nx = []\nfor i in range({mb}):\n    x.append(bytearray(b'x' * (1 << 20)))\n    time.sleep({pause})\nprint('had it all', flush=True)\n"

needs_two_cpus = pytest.mark.skipif(CPUS < 2, reason="two tasks cannot share one CPU")


@pytest.fixture
def no_groups_left(penstock):
    """Checks that no control group of this test's runs is left. Other homes may have runs with the
    same ids, so the supervisor's pid must match, too."""
    yield
    mine = {run.name for run in penstock.home.glob("runs/*")}
    pids = {str(process.pid) for process in penstock.started}
    found = [own for depth in range(1, 6) for path in glob.glob("/sys/fs/cgroup" + depth * "/*") if (own := OWN_GROUP.search(path))]
    assert not [each[0] for each in found if each[1] in mine and each[2] in pids]


@pytest.fixture
def kernel_holds(penstock):
    """kernel_holds(what): skips the test if no control group of this machine limits `what`."""

    def check(what):
        if not penstock.run("runners", "--json").json()[0]["enforced"][what]:
            pytest.skip(f"no control group limits {what} here")

    return check


def lives(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def several(tasks, command, **run):
    return {"command": command, "resources": {"tasks": tasks, "cpusPerTask": 1}} | run


@needs_two_cpus
def test_each_task_knows_its_rank(penstock, workflow, no_groups_left):
    # Tasks get the variables of torch.distributed and a free port, and each line of output shows
    # its task's rank.
    path = workflow(
        several(CPUS, "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $NODE_RANK $MASTER_ADDR $MASTER_PORT $NTASKS"),
        resources={"tasks": CPUS},
    )

    out = penstock.run("run", path).ok().out

    lines = sorted(out.splitlines(), key=lambda line: int(line[1:].split("]")[0]))
    port = int(lines[0].split()[-2])
    assert lines == [f"[{r}] {r}/{CPUS} {r}/{CPUS} 0 127.0.0.1 {port} {CPUS}" for r in range(CPUS)]
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", port))


def test_one_task_alone_has_no_rank(penstock, workflow):
    # A program that finds LOCAL_RANK assumes that other ranks were started.
    out = penstock.run("run", workflow("echo [$RANK][$LOCAL_RANK][$MASTER_PORT]")).ok().out

    assert out == "[][][]\n"


@needs_two_cpus
def test_what_the_workflow_says_of_ranks_stays(penstock, workflow):
    path = workflow(
        several(2, "echo $MASTER_PORT $MASTER_ADDR $WORLD_SIZE", env=[{"key": "MASTER_PORT", "value": "7777"}]),
        resources={"tasks": 2}, env=[{"key": "MASTER_ADDR", "value": "node-7"}],
    )  # fmt: skip

    out = penstock.run("run", path).ok().out

    assert sorted(out.splitlines()) == ["[0] 7777 node-7 2", "[1] 7777 node-7 2"]


@needs_two_cpus
def test_a_task_that_fails_ends_the_others_and_is_named(penstock, workflow, no_groups_left):
    path = workflow(
        several(2, 'if [ $RANK = 1 ]; then while [ ! -e ready ]; do sleep 0.01; done; exit 7; fi\n'
                   "trap 'echo told; exit 0' TERM; touch ready; while :; do sleep 0.05; done"),
        resources={"tasks": 2},
    )  # fmt: skip

    result = penstock.run("run", path).exits(7)

    assert "[0] told\n" in result.out
    assert re.search(r"\b1 .*'train'.* 7\b", result.err)


@needs_two_cpus
def test_a_peer_that_does_not_end_is_killed_after_the_grace(penstock, workflow, no_groups_left):
    path = workflow(
        several(2, 'if [ $RANK = 1 ]; then while [ ! -e ready ]; do sleep 0.01; done; kill -SEGV $$; fi\n'
                   "trap '' TERM; touch ready; while :; do sleep 0.05; done"),
        resources={"tasks": 2},
    )  # fmt: skip

    result = penstock.run("run", path, env={"PENSTOCK_STOP_GRACE": "0"}).exits(128 + signal.SIGSEGV)

    assert re.search(r"\b1 .*'train'.* 11\b", result.err)


@needs_two_cpus
def test_each_task_has_cpus_of_its_own(penstock, workflow):
    show = "python3 -c 'import os; print(*sorted(os.sched_getaffinity(0)))'"
    bound = penstock.run("run", workflow(several(2, show), resources={"tasks": 2})).ok().out
    shared = penstock.run("run", workflow(several(2, show, disableCpuBinding=True), resources={"tasks": 2})).ok().out

    own = {line.split("] ")[1] for line in bound.splitlines()}
    both = {line.split("] ")[1] for line in shared.splitlines()}
    assert len(own) == 2 and all(len(cpus.split()) == 1 for cpus in own)
    assert both == {" ".join(sorted(own, key=int))}


@needs_two_cpus
def test_each_task_has_gpus_of_its_own(penstock, workflow):
    # Tasks see only the GPUs of the run's claim, and a run without GPUs sees none.
    path = workflow(
        {"command": "echo gpus=$CUDA_VISIBLE_DEVICES", "resources": {"tasks": 2, "gpusPerTask": 2}}, resources={"tasks": 2, "gpus": 4}
    )
    none = workflow("echo gpus=${CUDA_VISIBLE_DEVICES-unset}", file="none.json")

    out = penstock.run("run", path, env={"PENSTOCK_GPUS": "4"}).ok().out
    hidden = penstock.run("run", "--name", "none", none, env={"PENSTOCK_GPUS": "4"}).ok().out
    without = penstock.run("run", "--name", "none", none, env={"PENSTOCK_GPUS": "0"}).ok().out

    assert sorted(out.splitlines()) == ["[0] gpus=0,1", "[1] gpus=2,3"]
    assert (hidden, without) == ("gpus=\n", "gpus=unset\n")


# A variable hides a GPU only from programs that read the variable, so access is limited, too. CUDA
# numbers the GPUs that it can open from 0.
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make device files")
def test_a_step_can_open_only_its_own_gpus(penstock, workflow, kernel_holds, no_groups_left, tmp_path):
    kernel_holds("gpus")
    penstock.prefix = ["unshare", "--mount", "sh", "-c", WITH_GPUS, tmp_path / "dev"]
    (tmp_path / "look.py").write_text(LOOK_AT_GPUS)
    meet = "touch $item.ready; until [ -e a.ready ] && [ -e b.ready ]; do sleep 0.01; done; "
    look = f"/usr/bin/python3 {tmp_path}/look.py"
    one = {"command": meet + look, "resources": {"gpusPerTask": 1}}
    path = workflow(
        "true",
        steps=[
            {"run": {"command": look, "resources": {"gpusPerTask": 0}}},
            {"run": {"command": look, "resources": {"gpusPerTask": 2}}},
            {"for": {"parallel": True, "items": ["a", "b"], "steps": [{"run": one}]}},
        ],
        resources={"gpus": 2},
    )

    none, both, *each = penstock.run("run", path).ok().out.splitlines()

    assert (none, both) == (" 1 1 1 1", "0,1 0 0 0 0")
    assert sorted(each) == ["0 0 1 0 1", "0 1 0 1 0"]


def test_a_step_that_wants_more_memory_than_its_limit_is_out_of_memory(penstock, workflow, no_groups_left):
    # The step uses 400 MB with a limit of 128 MB. The pause gives penstock's own check enough time,
    # which a control group does not need.
    path = workflow({"command": "cat > eat.py <<'END'\n" + EAT.format(mb=400, pause=0.005) + "END\nexec python3 eat.py"},
                    resources={"memPerCpu": 128})  # fmt: skip

    result = penstock.run("run", path).exits(137)

    assert "had it all" not in result.out
    found = re.search(r"'train'.* 128 MB.* (\d+) MB", result.err)
    assert found and int(found[1]) >= 120
    run = penstock.ps()[0]
    assert (run["state"], run["class"], run["exit_code"]) == ("failed", "oom", 137)


def test_a_step_within_its_limit_is_left_alone(penstock, workflow):
    path = workflow({"command": "cat > eat.py <<'END'\n" + EAT.format(mb=40, pause=0) + "END\nexec python3 eat.py"}, resources={"memPerCpu": 256})

    assert "had it all" in penstock.run("run", path).ok().out


def test_parallel_iterations_together_get_no_more_memory_than_the_run_has(penstock, workflow, kernel_holds, no_groups_left):
    # Each iteration needs less than 128 MB, but three times 60 MB exceed the run's limit. The
    # survivors do not wait for the killed iteration.
    kernel_holds("memory")
    eat = "x = b'x' * (60 << 20)\nimport glob, sys, time\nopen(sys.argv[1] + '.ready', 'w')\n" \
          "while len(glob.glob('*.ready')) < 3 and not glob.glob('failed'): time.sleep(0.01)\n"  # fmt: skip
    command = f"cat > $item.py <<'END'\n{eat}END\npython3 $item.py $item || {{ touch failed; exit 1; }}"
    loop = {"parallel": True, "items": ["a", "b", "c"], "steps": [{"run": {"command": command}}]}
    path = workflow("true", steps=[{"for": loop}], resources={"memPerCpu": 128})

    result = penstock.run("run", path).exits(137)

    assert re.search(r"\b\d+ of .*128 MB.*128 MB", result.err)
    assert penstock.ps()[0]["class"] == "oom"


# The advice names the place where the step's memory is set.
def test_more_memory_is_asked_for_where_the_step_has_its_own(penstock, workflow, no_groups_left, tmp_path):
    eat = "cat > eat.py <<'END'\n" + EAT.format(mb=400, pause=0.005) + "END\nexec python3 eat.py"
    own = {"command": eat, "resources": {"memPerCpu": 64}}
    (tmp_path / "module").mkdir()
    (tmp_path / "module" / "module.yaml").write_text(json.dumps({"name": "m", "steps": [{"run": own}]}))

    told = penstock.run("run", workflow(own)).exits(137)
    helped = penstock.run("run", "--fresh", workflow(own), "--set", "steps[0].run.resources.memPerCpu=1024")
    module = penstock.run("run", workflow("true", steps=[{"use": {"source": str(tmp_path / "module")}}])).exits(137)
    whole = penstock.run("run", workflow(eat, resources={"memPerCpu": 64})).exits(137)

    assert "--set steps[0].run.resources.memPerCpu=MB" in told.err
    assert helped.ok().out.endswith("had it all\n")
    assert "resources.memPerCpu" in module.err and "--set" not in module.err
    assert "--set resources.memPerCpu=MB" in whole.err


def test_a_step_gets_no_more_processes_than_its_limit(penstock, workflow, kernel_holds, no_groups_left):
    kernel_holds("processes")
    path = workflow({"command": "for i in $(seq 60); do sleep 1000 & done; echo had them all", "resources": {"maxProcesses": 30}})

    result = penstock.run("run", path)

    assert result.code != 0 and "had them all" not in result.out
    assert re.search(r"'train'.* 30 ", result.err) and "--set" in result.err
    assert "--set steps[0].run.resources.maxProcesses=N" in result.err
    assert "had them all" in penstock.run("run", path, "--set", "steps[0].run.resources.maxProcesses=100").ok().out


def test_a_fork_bomb_stays_within_its_limit_and_ends_with_its_step(penstock, workflow, kernel_holds, no_groups_left):
    kernel_holds("processes")
    bomb = "import os, time\nwhile True:\n    try:\n        os.fork()\n    except BlockingIOError:\n        open('full', 'w').close()\n        time.sleep(1)"
    path = workflow({"command": f"python3 -c \"{bomb}\" & while [ ! -e full ]; do sleep 0.01; done; exit 3"}, resources={"maxProcesses": 40})

    result = penstock.run("run", path).exits(3)

    assert " 40 " in result.err
    assert "--set resources.maxProcesses=N" in result.err


@needs_two_cpus
def test_a_step_cannot_widen_its_cpus(penstock, workflow, kernel_holds, no_groups_left):
    kernel_holds("cpus")
    every = ",".join(map(str, sorted(os.sched_getaffinity(0))))

    assert penstock.run("run", workflow(f"taskset -c {every} nproc", resources={"cpusPerTask": 1})).ok().out == "1\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run the program as a user without control groups")
def test_where_no_control_group_can_be_made_memory_is_watched(workflow):
    # The step uses 100 MB more each second; penstock checks the memory four times a second.
    with tempfile.TemporaryDirectory(prefix="penstock-test-nobody-") as folder:
        os.chown(folder, NOBODY, NOBODY)
        path = os.path.join(folder, "wf.json")
        with open(path, "w") as file:
            file.write(workflow({"command": "cat > eat.py <<'END'\n" + EAT.format(mb=4000, pause=0.01) + "END\nexec /usr/bin/python3 eat.py"},
                                resources={"memPerCpu": 100}).read_text())  # fmt: skip
        env = {"HOME": folder, "PENSTOCK_HOME": folder + "/home", "PENSTOCK_CLAIMS_DIR": folder + "/claims", "PATH": os.environ["PATH"]}
        as_nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        if subprocess.run([*as_nobody, "test", "-x", binary()]).returncode:
            pytest.skip("other users may not run the program in its directory")

        result = subprocess.run([*as_nobody, binary(), "run", path], env=env, capture_output=True, text=True, timeout=120)

    if "no control group" not in result.stderr:
        pytest.skip("all users may create control groups here")
    assert result.returncode == 137 and "had it all" not in result.stdout
    assert " 100 MB" in result.stderr


def test_what_runs_longer_than_its_timeout_is_told_to_end(penstock, workflow, no_groups_left):
    # The step gets SIGTERM first, so that it can save its work.
    run = {"command": "trap 'echo saved; exit 0' TERM; while :; do sleep 0.05; done", "timeout": "2s"}

    result = penstock.run("run", workflow(run)).exits(124)

    assert result.out == "saved\n"
    assert re.search(r"'train'.*\b2 s\b", result.err)
    run = penstock.ps()[0]
    assert (run["state"], run["class"], run["exit_code"]) == ("failed", "timeout", 124)


def test_the_steps_together_have_the_runs_timeout(penstock, workflow, no_groups_left):
    path = workflow("true", timeout="700ms", steps=[{"name": f"s{i}", "run": {"command": "sleep 0.3"}} for i in range(90)])

    result = penstock.run("run", path).exits(124)

    assert "0.7 s" in result.err and "step 90" not in result.err
    assert penstock.ps()[0]["class"] == "timeout"


def test_what_ignores_its_timeout_is_killed(penstock, workflow, no_groups_left):
    path = workflow({"command": "trap '' TERM; setsid sleep 1000 & while :; do sleep 0.05; done", "timeout": "300ms"})

    result = penstock.run("run", path, env={"PENSTOCK_STOP_GRACE": "0"}).exits(124)

    assert " 0 s" in result.err


def test_a_step_that_hangs_is_ended(penstock, workflow, no_groups_left):
    # The step prints for longer than the timeout, and then sleeps. Only a silent step counts as
    # hung.
    path = workflow({"command": "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.3; done; sleep 1000", "hangTimeout": "2s"})

    result = penstock.run("run", path).exits(124)

    assert result.out == "1\n2\n3\n4\n5\n6\n7\n8\n"
    assert " 2 s" in result.err
    assert penstock.ps()[0]["class"] == "timeout"


@pytest.mark.long
def test_a_silent_step_that_works_does_not_hang(penstock, workflow):
    path = workflow(
        {"command": "python3 -c 'import time; t = time.monotonic()\nwhile time.monotonic() < t + 3: pass'", "hangTimeout": "1500ms"}
    )

    penstock.run("run", path).ok()


def test_what_hides_from_a_takeover_is_found_by_its_control_group(penstock, workflow, wait_for, no_groups_left):
    # The process has no environment and a session of its own, so nothing else shows which run it belongs to.
    path = workflow("env -i setsid sh -c 'echo $$ > hidden; exec sleep 1000' & sleep 1000")
    first = penstock.popen("run", path)
    hidden = wait_for(lambda: next(iter(penstock.home.glob("runs/*/storage/hidden")), None), 60, "the hidden process")
    pid = int(wait_for(hidden.read_text, 60, "its number"))
    if "penstock-" not in open(f"/proc/{pid}/cgroup").read():
        os.kill(pid, signal.SIGKILL)
        pytest.skip("cannot create control groups here")
    first.kill()

    second = penstock.run("run", path, "--set", "steps[0].run.command=true").ok()

    assert re.search(progress.ENDED_STRAYS, second.err)
    wait_for(lambda: not lives(pid), 60, "its end")


def test_mpi_without_a_launcher_is_an_error_that_says_so(penstock, workflow, tmp_path):
    path = workflow({"command": "true", "mpi": "pmix_v4", "resources": {"tasks": 2}}, resources={"tasks": 2})
    tools = tmp_path / "bin"
    tools.mkdir()

    result = penstock.run("run", path, env={"PATH": str(tools)})

    assert result.code != 0 and "mpirun" in result.err and "mpiexec" in result.err


@needs_two_cpus
@pytest.mark.skipif(not shutil.which("mpirun"), reason="no MPI launcher is installed (openmpi-bin)")
def test_mpi_tasks_run_under_the_machines_own_launcher(penstock, workflow, no_groups_left):
    path = workflow({"command": "echo rank $RANK of $WORLD_SIZE; exit $RANK", "mpi": "pmix_v4", "resources": {"tasks": 2}}, resources={"tasks": 2})

    result = penstock.run("run", path).exits(1)

    assert sorted(line for line in result.out.splitlines() if "rank" in line) == ["[0] rank 0 of 2", "[1] rank 1 of 2"]


@needs_two_cpus
def test_mpi_tasks_are_started_by_the_launcher_on_path(penstock, workflow, tmp_path):
    # A fake launcher that behaves like Hydra: it takes -n N, sets PMI_RANK for each rank, and puts
    # the rank in front of each line.
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "mpirun").write_text(
        """#!/usr/bin/python3
import os, subprocess, sys
if sys.argv[1] == "--version":
    print("HYDRA build details:"); sys.exit()
words = sys.argv[1:]
n = int(words[words.index("-n") + 1])
command = words[words.index("-n") + 2:]
for rank in range(n):
    print(f"[{rank}] " + subprocess.check_output(command, text=True, env=dict(os.environ, PMI_RANK=str(rank))), end="")
"""
    )
    (tools / "mpirun").chmod(0o755)
    path = workflow(
        {"command": "echo $RANK $LOCAL_RANK $WORLD_SIZE $CUDA_VISIBLE_DEVICES", "mpi": "pmi2", "resources": {"tasks": 2, "gpusPerTask": 1}},
        resources={"tasks": 2, "gpus": 2},
    )

    out = penstock.run("run", path, env={"PATH": f"{tools}:{os.environ['PATH']}", "PENSTOCK_GPUS": "2"}).ok().out

    assert out == "[0] 0 0 2 0\n[1] 1 1 2 1\n"


@pytest.mark.parametrize("how", [{"mapUid": 0, "mapGid": 0}, {"network": "slirp4netns"}])
def test_who_may_mount_has_mounts_of_its_own(penstock, tmp_path, how):
    # Without a mount namespace, the mount would be refused, or would appear on the machine.
    command = "mkdir a b && touch a/x && mount --bind a b && ls b"
    (tmp_path / "wf.json").write_text(json.dumps({"steps": [{"run": {"command": command, "workDir": str(tmp_path), **how}}]}))

    result = penstock.run("run", tmp_path / "wf.json").ok()

    assert result.out.endswith("x\n")
    assert os.listdir(tmp_path / "b") == []

"""Runs as batch jobs, on a real Slurm of two nodes."""
import json
import os
import re
import signal

import pytest

from harness.program import Process, binary
from harness.registry import BUSYBOX, busybox, image, layer, write_layout
from harness.slurm import Cluster, ClusterPenstock
from harness.waiting import wait_for
from harness.workflows import write_workflow


@pytest.fixture
def workflow(tmp_path):
    """workflow(command, **fields): the path of a workflow of one step, `train`."""

    def write(command, file="wf.json", run=None, **fields):
        return write_workflow(tmp_path, {"command": command} | (run or {}), file=file, **{"named": "train", "name": "t", "resources": None} | fields)

    return write


# ---- submitting and following ----


def test_a_run_on_slurm_shows_its_log_and_ends_with_the_code_of_its_step(login, workflow):
    done = login.on_slurm(workflow("echo on $(hostname) as $PENSTOCK_ATTEMPT; exit 7")).wait()

    done.exits(7)
    assert re.search(r"on pt\d+n\d as 1\n", done.out)
    assert re.search(r"run \w{12} .*Slurm job \d+", done.err)
    run = login.ps()[0]
    assert (run["state"], run["class"], run["attempt"]) == ("failed", "user", 1)


@pytest.mark.long
def test_a_run_on_slurm_keeps_its_output_in_the_store(login, cluster_store, workflow):
    output = cluster_store.workflow_output("results", "/a")

    login.on_slurm(workflow('echo model > "$DEEPSQUARE_OUTPUT/m.bin"', output=output)).wait().exits(0)

    assert cluster_store.text("results", "a/m.bin") == "model\n"


def test_a_run_goes_on_in_the_background_and_is_seen_as_any_other(login, workflow, tmp_path, slurm):
    go = tmp_path / "go"
    started = login.run("run", "--on", "slurm", "-d", workflow(f"echo begun; while [ ! -e {go} ]; do sleep 0.1; done; echo done")).ok()
    run = started.out.strip()
    follower = login.popen("logs", "-f", "t")
    follower.wait_for_output("begun")

    assert login.ps()[0]["state"] == "running"
    assert "running" in login.run("show", run).ok().out
    nodes = login.run("runners", "--on", "slurm", "--json").json()
    assert [node["name"] for node in nodes if node["partition"] == "low"] == slurm.nodes
    assert {node["capacity"]["cpus"] for node in nodes} == {2}
    refused = login.on_slurm(workflow("true")).wait().exits(69)
    assert "penstock stop" in refused.err
    go.touch()

    assert "done" in follower.wait().ok().out
    assert login.ps()[0]["state"] == "succeeded"


@pytest.mark.long
def test_ctrl_c_ends_the_following_and_not_the_run(login, workflow, tmp_path):
    go = tmp_path / "go"
    process = login.on_slurm(workflow(f"echo begun; while [ ! -e {go} ]; do sleep 0.1; done"))
    process.wait_for_output("begun")

    process.send(2)

    assert "penstock stop" in process.wait().exits(130).err
    assert login.ps()[0]["state"] == "running"
    go.touch()
    login.run("logs", "-f", "t").ok()
    assert login.ps()[0]["state"] == "succeeded"


def test_nohup_protects_the_following_from_a_hangup(login, workflow, tmp_path):
    go = tmp_path / "go"
    login.prefix = ["nohup"]
    process = login.on_slurm(workflow(f"echo begun; while [ ! -e {go} ]; do sleep 0.1; done; echo done"))
    process.wait_for_output("begun")

    process.send(signal.SIGHUP)
    go.touch()

    assert "done" in process.wait().ok().out


# ---- stopping ----


def test_a_run_that_waits_says_why_and_is_stopped_before_it_begins(login, workflow, slurm):
    process = login.on_slurm(workflow("echo never"), "--sbatch=--hold")
    process.wait_for_output(r"\(JobHeldUser\)")
    waiting = login.ps()[0]

    stopped = login.run("stop", "t").ok()

    assert waiting["state"] == "queued" and "JobHeldUser" in waiting["message"]
    assert "stopped" in stopped.out
    process.wait().exits(130)
    assert login.ps()[0]["state"] == "stopped"


def test_a_run_that_runs_is_stopped_with_its_output_complete_and_resumed_on_slurm(login, cluster_store, workflow):
    command = 'trap "echo asked; exit 1" TERM; echo $PENSTOCK_ATTEMPT >> "$DEEPSQUARE_OUTPUT/n"; echo begun; [ $PENSTOCK_ATTEMPT = 2 ] && exit 0; while :; do sleep 0.1; done'
    process = login.on_slurm(workflow(command, output=cluster_store.workflow_output("results", "/a")))
    process.wait_for_output("begun")

    stopped = login.run("stop", "t").ok()

    assert "stopped" in stopped.out and "'train'" in stopped.out
    assert "asked" in process.wait().exits(130).out
    resumed = login.run("resume", "t").ok()
    assert "Slurm job" in resumed.err
    assert cluster_store.text("results", "a/n") == "1\n2\n"


def test_a_run_that_went_on_here_is_resumed_here(login, workflow):
    path = workflow("echo on ${SLURM_JOB_ID:-none}; exit 7")
    login.on_slurm(path).wait().exits(7)
    login.run("run", "--on", "local", path).exits(7)

    here = login.run("resume", "t").exits(7)
    login.on_slurm(path).wait().exits(7)
    there = login.run("resume", "t").exits(7)

    assert "on none\n" in here.out
    assert re.search(r"on \d+\n", there.out)


@pytest.mark.long
def test_a_job_that_is_cancelled_saves_and_is_not_requeued(login, workflow, slurm):
    command = 'trap "echo saved; exit 0" TERM; echo begun; while :; do sleep 0.1; done'
    process = login.on_slurm(workflow(command))
    job = process.wait_for_output(r"Slurm job (\d+)").group(1)
    process.wait_for_output("begun")

    slurm.run("scancel", job)

    assert "saved" in process.wait().exits(75).out
    assert slurm.jobs("pending,running") == {}
    assert login.ps()[0]["state"] == "preempted"


# ---- several nodes ----


def test_two_tasks_on_two_nodes_know_their_ranks_and_find_each_other(login, workflow, slurm):
    command = (
        'echo "$RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE on $NODE_RANK, $(hostname), $MASTER_ADDR:$MASTER_PORT"; '
        'getent hosts "$MASTER_ADDR"; echo "$RANK" > "$DEEPSQUARE_OUTPUT/$RANK"'
    )
    path = workflow(command, run={"resources": {"tasks": 2, "cpusPerTask": 1}}, resources={"tasks": 2, "cpusPerTask": 1})

    done = login.on_slurm(path, "--sbatch=--nodes=2").wait().exits(0)

    told = dict(re.findall(r"^([01]): ([01] of 2, .*)$", done.out, re.M))
    first, second = (re.fullmatch(r"(\d) of 2, 0 of 1 on (\d), (\S+), (\S+):(\d+)", told[rank]).groups() for rank in "01")
    assert (first[:2], second[:2]) == (("0", "0"), ("1", "1"))
    assert [first[2], second[2]] == slurm.nodes
    assert first[3:] == second[3:] and first[3] == slurm.nodes[0]
    assert f"{slurm.net}.11" in done.out


def test_the_usage_on_all_nodes_is_sampled(login, workflow, tmp_path):
    go = tmp_path / "go"
    command = f"(head -c 60000000 /dev/zero; until [ -e {go} ]; do :; done) | tail -n 1 | wc -c"
    two = {"tasks": 2, "cpusPerTask": 1}
    process = login.on_slurm(workflow(command, run={"resources": two}, resources=two), "--sbatch=--nodes=2")

    def samples():
        runs = login.ps()
        path = login.home / "runs" / runs[0]["id"] / "log" / "1.usage" if runs else None
        rows = [line.split(",") for line in path.read_text().splitlines()[1:]] if path and path.exists() else []
        return [(row[1], float(row[2]), int(row[3])) for row in rows]

    # tail keeps in memory all bytes that head writes: 60 MB on each of two nodes.
    wait_for(lambda: any(name == '"train"' and cpu > 0.2 and memory > 115_000_000 for name, cpu, memory in samples()))
    go.touch()
    process.wait().exits(0)


def test_a_task_of_skypilot_with_two_nodes_has_one_task_on_each(login, tmp_path, slurm):
    path = tmp_path / "task.yaml"
    path.write_text("""
        num_nodes: 2
        resources: {cpus: 1}
        run: echo "$SKYPILOT_NODE_RANK of $SKYPILOT_NUM_NODES on $(hostname)," $SKYPILOT_NODE_IPS
        """)  # fmt: skip

    out = login.on_slurm(path).wait().exits(0).out

    told = sorted(re.findall(r"^[01]: ([01]) of 2 on (\S+), (\S+) (\S+)$", out, re.M))
    assert [(rank, node) for rank, node, _, _ in told] == list(zip("01", slurm.nodes))
    assert told[0][2:] == told[1][2:] and all(ip.startswith(slurm.net) for ip in told[0][2:])


def test_the_nodes_of_a_dstack_task_end_with_the_first_one(login, tmp_path, slurm):
    path = tmp_path / "cluster.dstack.yml"
    other = tmp_path / "other"
    path.write_text(f"""
        type: task
        nodes: 2
        stop_criteria: master-done
        resources: {{cpu: 1}}
        commands:
          - echo "$DSTACK_NODE_RANK of $DSTACK_NODES_NUM with $DSTACK_MASTER_NODE_IP," $DSTACK_NODES_IPS
          - if [ $DSTACK_NODE_RANK != 0 ]; then touch {other}; sleep infinity; fi
          - while [ ! -e {other} ]; do sleep 0.1; done
        """)  # fmt: skip

    out = login.on_slurm(path).wait().exits(0).out

    told = sorted(re.findall(r"^[01]: ([01]) of 2 with (\S+), (\S+) (\S+)$", out, re.M))
    assert [rank for rank, *_ in told] == ["0", "1"] and told[0][1:] == told[1][1:] and told[0][1] == told[0][2]


@pytest.mark.long
def test_the_first_task_that_fails_ends_the_others_and_is_named(login, workflow):
    command = 'if [ "$RANK" = 1 ]; then exit 9; fi; while :; do sleep 0.1; done'
    path = workflow(command, run={"resources": {"tasks": 2, "cpusPerTask": 1}}, resources={"tasks": 2, "cpusPerTask": 1})

    login.on_slurm(path, "--sbatch=--nodes=2").wait().exits(9)

    run = login.ps()[0]
    assert run["state"] == "failed" and re.search(r"\b1 .*'train'.* 9\b", run["message"])


@pytest.mark.long
@pytest.mark.skipif(not os.path.exists(BUSYBOX), reason="busybox-static is not installed")
def test_two_tasks_on_two_nodes_run_in_containers_with_the_runs_storage(login, workflow, tmp_path, slurm):
    layout = write_layout(tmp_path / "image", image([busybox(), layer({"etc/motd": "hello\n"})]))
    two = {"tasks": 2, "cpusPerTask": 1}
    command = 'echo "$(cat /etc/motd) $RANK of $WORLD_SIZE on $(cat /proc/sys/kernel/hostname) in $STORAGE_PATH"; test ! -e /usr/bin/python3; echo "$RANK" > "$STORAGE_PATH/$RANK"'
    path = workflow(command, run={"container": {"image": str(layout)}, "resources": two}, resources=two)

    out = login.on_slurm(path, "--sbatch=--nodes=2").wait().exits(0).out

    for rank in "01":
        assert re.search(rf"^{rank}: hello {rank} of 2 on {slurm.nodes[int(rank)]} in /deepsquare$", out, re.M)
    assert list(login.home.glob("runs/*/tmp/container-*")) == []


# ---- commands next to a step ----


def begin_two(login, workflow, **run):
    """Starts a run of two tasks on two nodes. The tasks run until the storage has the file `go`;
    the job runs until the storage has `end`. Returns the process and the storage."""
    two = {"tasks": 2, "cpusPerTask": 1}
    mine = 'echo > "$STORAGE_PATH/$RANK.there"; while [ ! -e "$STORAGE_PATH/go" ]; do sleep 0.1; done'
    steps = [{"name": "train", "run": {"command": mine, "resources": two} | run}, {"name": "after", "run": {"command": 'while [ ! -e "$STORAGE_PATH/end" ]; do sleep 0.1; done'}}]
    process = login.on_slurm(workflow("", resources=two, steps=steps), "--sbatch=--nodes=2")
    wait_for(lambda: len(list(login.home.glob("runs/*/storage/*.there"))) == 2 and len(list(login.home.glob("runs/*/tmp/step-*/live/?"))) == 2, 60, "both tasks")
    return process, next(login.home.glob("runs/*/storage"))


def test_a_command_beside_a_task_runs_on_its_node_and_ends_with_it(login, workflow, slurm, tmp_path):
    process, storage = begin_two(login, workflow)

    beside = login.run("exec", "t", "--rank", "1", "sh", "-c", 'echo "$RANK on $(hostname) in $PWD: $(cat) $*"; exit 7', "sh", "A=b", "--lr=0.1", input="given\n").exits(7)
    refused = login.run("exec", "t", "--rank", "2", "true").exits(65)
    long = login.popen("exec", "t", "sh", "-c", f'echo "$(hostname)" > {tmp_path}/beside; exec sleep 1000')
    wait_for(lambda: (tmp_path / "beside").exists() and (tmp_path / "beside").read_text() == slurm.nodes[0] + "\n", 60, "the command on the first node")
    (storage / "go").touch()
    ended = long.wait()
    (storage / "end").touch()

    process.wait().exits(0)
    assert beside.out == f"1 on {slurm.nodes[1]} in {storage}: given A=b --lr=0.1\n"
    assert "1" in refused.err
    assert ended.code == 143
    login.run("exec", "t", "true").exits(66)


@pytest.mark.long
@pytest.mark.skipif(not os.path.exists(BUSYBOX), reason="busybox-static is not installed")
def test_a_command_beside_a_task_in_a_container_is_in_that_and_has_the_terminal(login, workflow, slurm, tmp_path):
    layout = write_layout(tmp_path / "image", image([busybox(), layer({"etc/motd": "hello\n"})]))
    process, storage = begin_two(login, workflow, container={"image": str(layout)})

    beside = login.run("exec", "t", "--rank", "1", "sh", "-c", 'echo "$RANK $(cat /etc/motd) $(cat /proc/sys/kernel/hostname) $PWD $*"; exit 3', "sh", "A=b", "--lr=0.1").exits(3)
    words = ["script", "-qec", f"{binary()} exec t sh -c 'test -t 0 && test -t 1 && echo at a terminal'", "/dev/null"]
    seen = Process(slurm.inside(slurm.control, words), login.env | {"TERM": "xterm"}, login.cwd).wait()
    (storage / "go").touch()
    (storage / "end").touch()

    process.wait().exits(0)
    assert beside.out == f"1 hello {slurm.nodes[1]} / A=b --lr=0.1\n"
    assert "at a terminal" in seen.out


# ---- inputs on the nodes ----


@pytest.fixture
def scratch(tmp_path, slurm):
    """A directory on each node's own disk, named by the node's configuration."""
    for node in slurm.nodes:
        (tmp_path / "scratch" / node).mkdir(parents=True)
    return f"{tmp_path}/scratch/$SLURMD_NODENAME"


def input_of(login, cluster_store, tmp_path):
    (tmp_path / "in.txt").write_text("an input\n")
    login.run("mb", "s3://data", env=cluster_store.env).ok()
    login.run("cp", tmp_path / "in.txt", "s3://data/d/in.txt", env=cluster_store.env).ok()
    return cluster_store.workflow_output("data", "/d")


LOOKS = 'echo "$RANK $SLURMD_NODENAME $DEEPSQUARE_INPUT $(stat -c %i "$DEEPSQUARE_INPUT/in.txt") $(cat "$DEEPSQUARE_INPUT/in.txt") end"'


def seen_inputs(text):
    """Returns [(rank, node, directory, inode)] from the lines that LOOKS has printed, of every step."""
    return re.findall(r"^\d: (\d) (\S+) (\S+) (\d+) an input end$", text, re.M)


def test_inputs_are_copied_once_to_each_node_and_shared_by_its_tasks(login, cluster_store, slurm, scratch, tmp_path):
    four = {"tasks": 4, "cpusPerTask": 1}
    steps = [{"name": name, "run": {"command": LOOKS, "resources": four}} for name in ("one", "two")]
    path = tmp_path / "wf.json"
    path.write_text(json.dumps({"name": "t", "resources": four, "input": input_of(login, cluster_store, tmp_path), "steps": steps}))

    done = login.on_slurm(path, "--sbatch=--nodes=2", env={"PENSTOCK_SLURM_NODE_DIR": scratch}).wait().exits(0)

    seen = seen_inputs(done.out)
    assert sorted(rank for rank, *_ in seen) == sorted("00112233")
    assert {(node, inode) for _, node, _, inode in seen} == {(node, [s[3] for s in seen if s[1] == node][0]) for node in slurm.nodes}
    assert all(directory.startswith(f"{tmp_path}/scratch/{node}/penstock-{os.geteuid()}/") for _, node, directory, _ in seen)
    wait_for(lambda: not any(list((tmp_path / "scratch" / node).iterdir()) for node in slurm.nodes), 60, "the copies to be removed")


@pytest.mark.long
def test_where_a_node_has_no_such_directory_the_inputs_are_read_from_the_home(login, cluster_store, slurm, tmp_path):
    two = {"tasks": 2, "cpusPerTask": 1}
    path = tmp_path / "wf.json"
    path.write_text(json.dumps({"name": "t", "resources": two, "input": input_of(login, cluster_store, tmp_path), "steps": [{"name": "one", "run": {"command": LOOKS, "resources": two}}]}))
    config = tmp_path / "config.yaml"
    config.write_text("slurm:\n  nodeDir: $NO_SUCH_VARIABLE\n")

    done = login.on_slurm(path, "--sbatch=--nodes=2", env={"PENSTOCK_CONFIG": str(config)}).wait().exits(0)

    seen = seen_inputs(done.out)
    assert len(seen) == 2 and all(re.fullmatch(rf"{re.escape(str(login.home))}/runs/\w+/storage/input", directory) for _, _, directory, _ in seen)
    assert "$NO_SUCH_VARIABLE" in done.text


@pytest.mark.long
@pytest.mark.skipif(not os.path.exists(BUSYBOX), reason="busybox-static is not installed")
def test_a_container_sees_the_inputs_of_its_node_where_they_always_are(login, cluster_store, slurm, scratch, tmp_path):
    layout = write_layout(tmp_path / "image", image([busybox()]))
    two = {"tasks": 2, "cpusPerTask": 1}
    path = tmp_path / "wf.json"
    step = {"name": "one", "run": {"command": LOOKS, "container": {"image": str(layout)}, "resources": two}}
    path.write_text(json.dumps({"name": "t", "resources": two, "input": input_of(login, cluster_store, tmp_path), "steps": [step]}))

    done = login.on_slurm(path, "--sbatch=--nodes=2", env={"PENSTOCK_SLURM_NODE_DIR": scratch}).wait().exits(0)

    seen = seen_inputs(done.out)
    assert {directory for _, _, directory, _ in seen} == {"/deepsquare/input"} and len({inode for *_, inode in seen}) == 2


# ---- failures ----


def test_without_slurm_it_is_said_what_to_do(penstock, workflow):
    refused = penstock.run("run", "--on", "slurm", workflow("true"), env={"PATH": "/nonexistent"}).exits(69)

    assert "sbatch" in refused.err
    assert penstock.ps() == []


def test_what_sbatch_refuses_is_passed_on(login, workflow):
    refused = login.on_slurm(workflow("true"), "--partition", "nowhere").wait().exits(69)

    assert "invalid partition specified: nowhere" in refused.err
    run = login.ps()[0]
    assert (run["state"], run["class"]) == ("failed", "node") and "nowhere" in run["message"]


@pytest.mark.long
def test_a_step_with_too_little_memory_is_said_to_be_that_with_its_limit(keep_process, tmp_path, workflow):
    # Slurm checks a job's memory every second, and kills all processes of a job that exceeds its
    # limit. Only Slurm's message shows the reason.
    cluster = Cluster(keep_process, settings=["SelectTypeParameters=CR_Core_Memory", "JobAcctGatherType=jobacct_gather/linux", "JobAcctGatherFrequency=task=1", "JobAcctGatherParams=OverMemoryKill"])
    login = ClusterPenstock(tmp_path / "p", cluster)
    try:
        command = "/usr/bin/python3 -c 'import time; kept = bytearray(200 << 20); time.sleep(1000)'"
        path = workflow(command, run={"resources": {"tasks": 1, "cpusPerTask": 1, "memPerCpu": 100}}, resources={"tasks": 1, "cpusPerTask": 1, "memPerCpu": 300})

        login.on_slurm(path).wait().exits(137)

        run = login.ps()[0]
        assert (run["state"], run["class"]) == ("failed", "oom")
        peak = re.search(r"'train'.* 100 MB.* (\d+) MB", run["message"])
        assert peak and 100 <= int(peak.group(1)) < 300
    finally:
        login.close()
        cluster.stop()


@pytest.mark.long
def test_a_job_that_ends_without_a_word_is_lost_and_said(login, workflow):
    process = login.on_slurm(workflow("echo begun; while :; do sleep 0.1; done"))
    job = process.wait_for_output(r"Slurm job (\d+)").group(1)
    process.wait_for_output("begun")

    os.kill(login.supervisor(), signal.SIGKILL)

    process.wait().exits(69)
    run = login.ps()[0]
    assert (run["state"], run["class"]) == ("lost", "node") and f"Slurm job {job}" in run["message"]


def test_a_credential_that_would_be_gone_on_the_node_is_refused(login, cluster_store, workflow):
    output = cluster_store.workflow_output("results", "/a")
    path = workflow("true", output=output)

    refused = login.run("run", "--on", "slurm", path, "--set", f"output.s3.secretAccessKey={cluster_store.secret_key}").exits(65)

    assert refused.code != 0 and cluster_store.secret_key not in refused.text
    assert login.ps() == []


@pytest.mark.long
def test_slurm_can_be_the_default_with_options_of_its_own(login, workflow, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("on: slurm\nslurm:\n  options: [--comment=by-default, --partition=high]\n")
    env = {"PENSTOCK_CONFIG": str(config)}

    done = login.run("run", workflow("echo $SLURM_JOB_PARTITION"), env=env).ok()
    here = login.run("run", "--on", "local", workflow("echo on ${SLURM_JOB_ID:-none}"), env=env).ok()

    assert "high\n" in done.out and "on none\n" in here.out
    config.write_text("on: moon\n")
    assert ":1:5: " in login.run("run", workflow("true"), env=env).exits(78).err

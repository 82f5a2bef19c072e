"""The main features for a user without privileges: not root, no other groups, no capabilities.

If the tests run as root, the program is started as a user that owns only its own directory, else as the user of the tests.
"""
import functools
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from harness import processes, workflows
from harness.program import TOP, Penstock, binary
from harness.registry import BUSYBOX, Registry, busybox, image, layer, write_layout
from harness.workflows import write_workflow

USER = 4712  # without a name on this machine
AS_USER = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
NOBODY = AS_USER if os.geteuid() == 0 else []
RESOURCES = workflows.RESOURCES | {"memPerCpu": 256}
EMBEDDED = {"bucketUrl": "s3://mine", "path": "/run", "endpointUrl": "embedded"}
SMALL_TRAINER = TOP / "tests" / "system" / "harness" / "small_trainer.py"


def can(*words):
    return subprocess.run([*NOBODY, *words], capture_output=True).returncode == 0


contained_only = pytest.mark.skipif(not os.path.exists(BUSYBOX) or not can("unshare", "-Urm", "true"), reason="this user may make no namespaces, or busybox-static is not installed")


def give(folder):
    if NOBODY:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, USER, USER, follow_symlinks=False)


@pytest.fixture
def tmp_path():
    """A directory that the user owns, and that every user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-user-"))
    folder.chmod(0o755)
    give(folder)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def penstock(tmp_path, monkeypatch):
    if not can("test", "-x", binary()):
        shutil.copy(binary(), tmp_path / "program")
        monkeypatch.setenv("PENSTOCK", str(tmp_path / "program"))
    program = Penstock(tmp_path / "p")
    program.prefix = NOBODY
    program.env |= {"TMPDIR": str(tmp_path)}
    give(tmp_path)
    yield program
    program.close()


@pytest.fixture
def workflow(tmp_path):
    """workflow(command or run, ..., **fields): the path of a workflow with these steps."""
    return functools.partial(write_workflow, tmp_path, resources=RESOURCES)


@pytest.fixture
def contained(tmp_path):
    """Keys of a `run` that executes it in an image of busybox with another USER."""
    layout = write_layout(tmp_path / "image", image([busybox(), layer({"gone": "x"}), layer({".wh.gone": "", "etc/motd": "hello\n"})], User="user"))
    give(tmp_path)
    return {"container": {"image": str(layout)}}


def weights(text):
    return re.findall(r"weights sha256 ([0-9a-f]{64})", text)[-1]


def test_nothing_of_it_runs_as_root(penstock, workflow):
    out = penstock.run("run", workflow("id -u; id -G; grep -E '^Cap(Eff|Bnd)' /proc/self/status")).ok().out.split()

    if NOBODY:
        assert out == [str(USER), str(USER), "CapEff:", "0" * 16, "CapBnd:", "0" * 16]
    owners = {path.lstat().st_uid for path in penstock.folder.rglob("*")}
    assert owners == {USER if NOBODY else os.geteuid()}


def test_the_main_job_with_the_embedded_store(penstock, workflow, http_server, cifar_archive, tmp_path, wait_for):
    # The run fetches and unpacks an archive, trains, publishes while it trains, and is stopped.
    # `resume` continues the run to the same weights.
    url = http_server.add("/cifar-10-python.tar.gz", cifar_archive)
    trainer = shutil.copy(SMALL_TRAINER, tmp_path)
    train = f"exec /usr/bin/python3 {trainer} --dataset=$DEEPSQUARE_INPUT --checkpoint_out=$DEEPSQUARE_OUTPUT/ckpt.pth"
    path = workflow(train, input={"http": {"url": url}}, output={"s3": EMBEDDED}, continuousOutputSync=True, enableLogging=True)
    hold = penstock.home / "tmp" / "hold-2"
    hold.parent.mkdir(parents=True)
    hold.touch()
    give(penstock.home)

    running = penstock.popen("run", path)
    running.wait_for_output("^epoch 2 ")
    wait_for(lambda: penstock.run("stat", "s3://mine/run/ckpt.pth", "--endpoint-url", "embedded").code == 0)
    name = penstock.ps()[0]["id"]
    penstock.run("stop", name).ok()
    stopped = running.wait()
    hold.unlink()
    resumed = penstock.run("resume", name).ok()
    unbroken = subprocess.run(["/usr/bin/python3", trainer, f"--dataset={unpacked(cifar_archive, tmp_path)}", f"--checkpoint_out={tmp_path}/unbroken"],
                              check=True, capture_output=True, text=True)  # fmt: skip

    assert "stopping: saved epoch 2" in stopped.out and "resumed at epoch 2 from" in resumed.out
    assert weights(resumed.out) == weights(unbroken.stdout)
    assert [(run["state"], run["attempt"]) for run in penstock.ps()] == [("succeeded", 2)]
    penstock.run("cp", "s3://mine/run/ckpt.pth", tmp_path / "p/cwd/fetched", "--endpoint-url", "embedded").ok()
    assert pickle.loads((tmp_path / "p/cwd/fetched").read_bytes())["epoch"] == 4
    assert weights(penstock.run("logs", name).ok().out) == weights(resumed.out)
    stores = {pid for pid, line in processes.descendants().items() if "--embedded" in line and str(penstock.home) in line}
    for pid in stores:  # the store exits by itself only after some seconds
        os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not stores & processes.descendants().keys())


def unpacked(archive, folder):
    (folder / "pictures").mkdir()
    subprocess.run(["tar", "-C", folder / "pictures", "-xzf", archive], check=True)
    return folder / "pictures"


def test_after_kill_9_the_same_command_goes_on(penstock, workflow, store, wait_for):
    first = "echo $PENSTOCK_ATTEMPT >> $DEEPSQUARE_OUTPUT/attempts; [ $PENSTOCK_ATTEMPT -gt 1 ] || { echo begun; exec sleep 600; }; cat $DEEPSQUARE_OUTPUT/attempts"
    store.client.create_bucket(Bucket="mine")
    penstock.env |= {name: value for name, value in store.env.items() if "KEY" in name}
    s3 = {"region": "us-east-1", "bucketUrl": "s3://mine", "path": "/", "endpointUrl": store.endpoint}
    path = workflow(first, output={"s3": s3}, continuousOutputSync=True)

    running = penstock.popen("run", path)
    running.wait_for_output("^begun")
    wait_for(lambda: "attempts" in store.keys("mine"))
    running.kill()
    again = penstock.run("run", path).ok()

    assert again.out == "1\n2\n" and store.bytes("mine", "attempts") == b"1\n2\n"


def test_memory_has_a_limit_where_no_control_group_can_be_made(penstock, workflow):
    hungry = "/usr/bin/python3 -c 'import time; kept = bytearray(400 << 20); kept[::4096] = b\"x\" * len(kept[::4096]); time.sleep(600)'"

    told = penstock.run("run", workflow(hungry)).exits(137)

    assert " 256 MB" in told.err
    assert json.loads(penstock.run("show", penstock.ps()[0]["id"], "--json").out)["class"] == "oom"


def test_cpus_claims_and_limits_hold(penstock, workflow, tmp_path):
    config = tmp_path / "limits.yaml"
    config.write_text("limits: {'*': {runs: 1, cpus: 1}}\n")

    bound = penstock.run("run", workflow("nproc")).ok()
    refused = penstock.run("run", workflow("true", resources={"tasks": 2, "cpusPerTask": 1}), env={"PENSTOCK_SYSTEM_CONFIG": str(config)})

    assert bound.out == "1\n"
    assert refused.code == 65 and "--set resources" in refused.err


def test_a_command_beside_a_step_and_a_stop(penstock, workflow):
    running = penstock.popen("run", workflow({"command": "echo begun; sleep 600 & wait", "env": [{"key": "OWN", "value": "1"}]}))
    running.wait_for_output("^begun")

    seen = penstock.run("exec", penstock.ps()[0]["id"], "sh", "-c", "echo $OWN; id -u").ok()
    penstock.run("stop", penstock.ps()[0]["id"]).ok()
    running.wait()

    assert seen.out == f"1\n{USER if NOBODY else os.geteuid()}\n"
    assert penstock.ps()[0]["state"] == "stopped"


@contained_only
def test_a_container_writes_the_users_storage(penstock, workflow, contained):
    path = workflow(
        contained | {"command": "id -u; cat /etc/motd; test ! -e /gone && echo removed; touch $STORAGE_PATH/mine $DEEPSQUARE_OUTPUT/out; echo K=v >> $DEEPSQUARE_ENV"},
        contained | {"command": "echo $K; ls $STORAGE_PATH/mine; exit 5"})  # fmt: skip

    result = penstock.run("run", path).exits(5)

    assert result.out.split() == ["0", "hello", "removed", "v", "/deepsquare/mine"]
    assert list(penstock.home.glob("runs/*/storage/output/out"))
    written = list(penstock.home.glob("runs/*/storage/mine"))
    assert written and written[0].stat().st_uid == (USER if NOBODY else os.geteuid())
    assert not list(penstock.home.glob("runs/*/tmp/container-*"))


@contained_only
def test_an_image_comes_from_a_registry(penstock, workflow, tmp_path):
    registry = Registry(tmp_path / "registry", login=("ann", "s3cret-pass"))
    registry.push("job/tool:v1", image([busybox()]))
    give(tmp_path / "p")
    container = {"image": "job/tool:v1", "registry": registry.host, "username": "ann", "password": "${{ env.PASS }}"}
    try:
        result = penstock.run("run", workflow({"command": "echo in it", "container": container}), env={"PASS": "s3cret-pass"}).ok()
    finally:
        registry.close()

    assert result.out == "in it\n"


@contained_only
def test_a_command_beside_a_container_and_a_stop(penstock, workflow, contained, wait_for):
    path = workflow(contained | {"command": "echo begun > $STORAGE_PATH/begun; sleep 4331", "env": [{"key": "OWN", "value": "1"}]})
    running = penstock.popen("run", path)
    wait_for(lambda: [file for file in penstock.home.glob("runs/*/storage/begun") if file.read_text()])

    seen = penstock.run("exec", penstock.ps()[0]["id"], "sh", "-c", "echo $OWN $STORAGE_PATH; cat /etc/motd").ok()
    penstock.run("stop", penstock.ps()[0]["id"]).ok()
    running.wait()

    assert seen.out == "1 /deepsquare\nhello\n" and penstock.ps()[0]["state"] == "stopped"
    assert not [line for line in processes.descendants().values() if "sleep 4331" in line]
    assert not list(penstock.home.glob("runs/*/tmp/container-*"))


@contained_only
def test_a_killed_penstock_takes_its_containers_with_it(penstock, workflow, contained, wait_for):
    path = workflow(contained | {"command": "[ -e $DEEPSQUARE_TMP/second ] || { touch $DEEPSQUARE_TMP/second; exec sleep 4332; }; echo again"})
    running = penstock.popen("run", path)
    wait_for(lambda: (penstock.home / "tmp" / "second").exists())

    running.send(signal.SIGKILL)
    running.wait()
    wait_for(lambda: not [line for line in processes.descendants().values() if "sleep 4332" in line])
    again = penstock.run("run", path).ok()

    assert again.out == "again\n"


@contained_only
def test_memory_of_a_container_has_a_limit(penstock, workflow, contained):
    hungry = "kept=$(head -c 120000000 /dev/zero | tr '\\0' x); sleep 600; echo $kept"

    told = penstock.run("run", workflow(contained | {"command": hungry}, resources=RESOURCES | {"memPerCpu": 64})).exits(137)

    assert " 64 MB" in told.err and not list(penstock.home.glob("runs/*/tmp/container-*"))

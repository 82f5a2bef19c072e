"""Ctrl-C, pressed once and twice at every stage of a run, on a pseudo terminal.

After one Ctrl-C, the run ends in order, closed files are published, and the records have the end.
After two, penstock exits at once, even if the store does not reply; nothing local is lost, and
`resume` or `flush` completes the run. No process, lock, claim or temporary file survives.
The function of each stage returns once the run has reached the stage.
"""
import bz2
import fcntl
import io
import json
import os
import random
import shutil
import signal
import sqlite3
import stat
import tarfile
import zipfile

import pytest

from harness import processes, progress
from harness.fault_proxy import FaultProxy
from harness.registry import BUSYBOX, busybox, image, serve
from harness.terminal import Terminal
from harness.waiting import wait_for
from harness.workflows import RESOURCES, s3_place, write_workflow
from workflow.test_modules import git
from workflow.test_modules import write as write_module

FIRST = "echo 1 > $DEEPSQUARE_OUTPUT/one; echo first ended"
SECOND = "echo 2 > $DEEPSQUARE_OUTPUT/two; echo second ended"
SIGINT_BIT = 1 << 1
QUICKLY_S = 60  # limit for a failing test; without Ctrl-C the end would take minutes


class Scene:
    """A run `x` of two steps on a terminal, whose store and input can be made to stall."""

    def __init__(self, penstock, store, proxy, http_server, folder):
        self.penstock, self.store, self.proxy, self.http, self.folder = penstock, store, proxy, http_server, folder
        self.sink = FaultProxy(http_server.url)  # in front of the web server
        self.run = None
        self.output_kept_here = False  # without a store
        self.output_sent_to = None  # a path of the web server
        self.before_resume = lambda: None
        self.beside = []  # other runs, which end with the test

    def s3(self, bucket):
        return s3_place(self.store, bucket=bucket, endpoint=self.proxy.url)["s3"]

    def write(self, *steps, output=True, **fields):
        """Writes the workflow. `output` is True for the store, None, or the value of the key."""
        place = {"s3": self.s3("out")} if output is True else output
        self.output_kept_here = not output
        return write_workflow(self.folder, *(steps or (FIRST, SECOND)), **{"name": "x", "output": place or None} | fields)

    def start(self, path, **env):
        self.before = set(processes.descendants())
        self.run = Terminal(self.penstock, "run", path, env=env)

    def state(self):
        return next((run["state"] for run in self.penstock.ps() if run["name"] == "x"), None)

    def folder_of_run(self):
        (row,) = [run for run in self.penstock.ps() if run["name"] == "x"]
        return self.penstock.home / "runs" / row["id"]

    def held(self, method, path):
        """Waits until the proxy holds a request with this method and path."""
        wait_for(lambda: any(not seen.ended and seen.rule for seen in self.proxy.seen(method, path)), 60, f"{method} {path} held")

    def let_go(self):
        self.proxy.clear()
        self.sink.clear()

    def heal(self):
        self.let_go()
        self.http.faults.clear()
        for run in self.beside:
            if run.running():
                run.send(signal.SIGINT)
                run.wait()

    def signal_was_taken(self, pressed):
        """Waits until the terminal has sent `pressed` signals, and penstock's signal thread has
        read them and waits for more."""
        wait_for(lambda: self.run.raw.count("^C") >= pressed, 60, "the echo of Ctrl-C")

        def pending():
            for line in open(f"/proc/{self.run.pid}/status"):
                if line.startswith(("ShdPnd", "SigPnd")) and int(line.split()[1], 16) & SIGINT_BIT:
                    return True
            return False

        wait_for(lambda: not pending(), 60, "the signal to be read")
        for task in os.listdir(f"/proc/{self.run.pid}/task"):
            wait_for(lambda: asleep(self.run.pid, task), 60, "the threads to wait")

    def assert_nothing_survives(self):
        left = processes.survivors(self.before, 60)
        assert not left, left
        assert self.penstock.run("ps", "--claims", "--json").json() == []
        folder = self.folder_of_run()
        with open(folder / "lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for root, folders, files in os.walk(self.penstock.folder):
            for name in folders + files:
                mode = os.lstat(os.path.join(root, name)).st_mode
                assert not stat.S_ISSOCK(mode) and not stat.S_ISFIFO(mode), os.path.join(root, name)
                assert "XXXXXX" not in name and not name.startswith((".tmp", "room-", "output.zip")), name
                assert not name.endswith(".part"), name  # a partial layer
        assert not (folder / "tmp").exists() or os.listdir(folder / "tmp") == []

    def assert_output_complete(self):
        if self.output_kept_here:
            output = self.folder_of_run() / "storage" / "output"
            assert (output / "one").read_bytes() == b"1\n" and (output / "two").read_bytes() == b"2\n"
        elif self.output_sent_to:
            sent = zipfile.ZipFile(io.BytesIO(self.http.received[self.output_sent_to]))
            assert sent.read("one") == b"1\n" and sent.read("two") == b"2\n"
        else:
            assert self.store.bytes("out", "one") == b"1\n" and self.store.bytes("out", "two") == b"2\n"


def asleep(pid, task):
    try:
        return open(f"/proc/{pid}/task/{task}/stat").read().rpartition(")")[2].split()[0] == "S"
    except OSError:
        return True


@pytest.fixture
def scene(penstock, store, fault_proxy, http_server, tmp_path):
    made = Scene(penstock, store, fault_proxy, http_server, tmp_path)
    yield made
    made.heal()
    made.sink.close()


def staged(scene, name):
    """Returns the input files of that name. penstock may be replacing the input directory at this
    moment."""
    try:
        return [found for found in scene.penstock.home.glob(f"runs/*/storage/input/**/{name}") if found.exists()]
    except FileNotFoundError:
        return []


def tar_of(**members):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return made.getvalue()


# --- stages


def waiting_in_line(scene):
    everything = RESOURCES | {"cpusPerTask": os.cpu_count()}
    step = {"run": {"command": "echo started; sleep 1000"}}
    path = scene.folder / "holder.json"
    path.write_text(json.dumps({"name": "holder", "resources": everything, "steps": [step]}))
    holder = scene.penstock.popen("run", path)
    scene.beside.append(holder)
    holder.wait_for_output("started")
    scene.start(scene.write())
    scene.run.wait_for_output(progress.WAITING)
    assert scene.state() == "queued"


def opening_the_output(scene):
    scene.proxy.fault("HEAD", "^/out/?$", times=1000, hold="request")
    scene.start(scene.write())
    scene.held("HEAD", "^/out/?$")


def taking_the_lease(scene):
    scene.proxy.fault("GET", "state.json$", times=1000, hold="request")
    scene.start(scene.write())
    scene.held("GET", "state.json$")


def watching_for_a_term(scene):
    # The output belongs to another run, whose machine seems to be silent.
    path = scene.folder / "other.json"
    path.write_text(json.dumps({"name": "other", "resources": RESOURCES, "output": {"s3": scene.s3("out")}, "steps": [{"run": {"command": "true"}}]}))
    scene.penstock.run("run", path).ok()
    (key,) = [key for key in scene.store.keys("out") if key.endswith("/state.json")]
    ended = scene.store.bytes("out", key)
    live = json.loads(ended)
    live |= {"state": "running", "owner": live["owner"] | {"boot_id": "another", "host": "node7"}, "lease": live["lease"] | {"term_ms": 60_000}}
    scene.store.client.put_object(Bucket="out", Key=key, Body=json.dumps(live).encode())
    scene.start(scene.write())
    scene.run.wait_for_output(progress.WATCHING)

    def before_resume():
        assert json.loads(scene.store.bytes("out", key)) == live
        scene.store.client.put_object(Bucket="out", Key=key, Body=ended)

    scene.before_resume = before_resume


def pulling_an_image(scene):
    name, (packed,) = serve(scene.http, "job/tool:v1", image([busybox()]))
    scene.http.fault(packed, times=1000, stall_after=100_000)
    steps = [{"name": f"s{i}", "run": {"command": step, "container": {"image": name}}} for i, step in enumerate((FIRST, SECOND), 1)]
    scene.start(scene.write(steps=steps))
    wait_for(lambda: any(request.sent >= 100_000 for request in scene.http.seen(packed)), 60, "the first half of the layer")
    wait_for(lambda: list(scene.penstock.home.glob("images/layers/*.part")), 60, "the layer being unpacked")
    assert scene.state() == "staging"


# A fake Python: its virtual environments are links, and its pip waits, as if the package index did
# not reply.
PYTHON = """#!/bin/sh
for last; do :; done
case "$2" in
venv) mkdir -p "$last/bin"; ln -s /usr/bin/python3 "$last/bin/python3" ;;
pip) touch {0}/installing; [ -e {0}/index ] || {{ sleep 1000 & wait; }} ;;
esac
"""


def installing_packages(scene):
    project = scene.folder / "project"
    project.mkdir()
    (project / "requirements.txt").write_text("some\n")
    python = scene.folder / "python3"
    python.write_text(PYTHON.format(scene.folder))
    python.chmod(0o755)
    scene.penstock.env |= {"PENSTOCK_PYTHON": str(python)}
    scene.start(scene.write(context="project", python={"requirements": "requirements.txt"}))
    wait_for((scene.folder / "installing").exists, 60, "the installation")
    assert scene.state() == "staging"

    def before_resume():
        assert not [path for path in scene.penstock.home.glob("venvs/*") if path.suffix != ".lock"]
        (scene.folder / "index").touch()

    scene.before_resume = before_resume


def staging_from_http(scene):
    url = scene.http.add("/data.bin", random.Random(1).randbytes(300_000))
    scene.http.fault("/data.bin", times=1000, stall_after=100_000)
    scene.start(scene.write(input={"http": {"url": url}}))
    wait_for(lambda: any(request.sent >= 100_000 for request in scene.http.seen("/data.bin")), 60, "the first half")
    assert scene.state() == "staging"


def unpacking_while_it_arrives(scene):
    data = random.Random(2).randbytes(2_000_000)
    url = scene.http.add("/data.tar", tar_of(a=data[:200_000], b=data))
    scene.http.ranges = False  # so that it is unpacked while it arrives, and not in whole ranges
    scene.http.fault("/data.tar", times=1000, stall_after=1_000_000)
    scene.start(scene.write(input={"http": {"url": url}}))
    wait_for(lambda: staged(scene, "a"), 60, "the first member")
    assert scene.state() == "staging" and not staged(scene, "c")


def unpacking_what_has_arrived(scene):
    # The archive holds 4 GiB of zeros, 64 MiB in each 3 kB, so that it is fetched quickly and
    # unpacked slowly.
    block, times = bytes(64 << 20), 64
    info = tarfile.TarInfo("zeros")
    info.size = len(block) * times
    packed = bz2.compress(info.tobuf(tarfile.GNU_FORMAT)) + bz2.compress(block, 1) * times + bz2.compress(bytes(1024))
    scene.http.add("/data.tar.bz2", packed)
    scene.start(scene.write(input={"http": {"url": scene.http.url + "/data.tar.bz2"}}), PENSTOCK_UNPACK_RATIO="1000000000")

    def growing():
        return [f for f in staged(scene, "zeros") if 0 < f.stat().st_size < info.size]

    wait_for(growing, 60, "the member to grow")
    assert scene.state() == "staging" and sum(request.sent for request in scene.http.seen("/data.tar.bz2")) >= len(packed)
    # To save time, the resumed attempt has to fetch the input again, and finds a small one.
    scene.http.add("/data.tar.bz2", bz2.compress(tar_of(zeros=b"few")))
    scene.before_resume = lambda: [shutil.rmtree(path) for path in scene.penstock.home.glob("runs/*/state/stage-*")]


def staging_from_s3(scene):
    scene.store.client.create_bucket(Bucket="given")
    scene.store.client.put_object(Bucket="given", Key="data", Body=random.Random(3).randbytes(300_000))
    scene.proxy.fault("GET", "^/given/data$", times=1000, hold=1000)
    scene.start(scene.write(input={"s3": scene.s3("given")}))
    scene.held("GET", "^/given/data$")
    assert scene.state() == "staging"


def restoring(scene):
    path = scene.write("test -e $DEEPSQUARE_OUTPUT/two || echo 1 > $DEEPSQUARE_OUTPUT/one",
                       "if [ $PENSTOCK_ATTEMPT = 1 ]; then echo started; sleep 1000; fi; " + SECOND, continuousOutputSync=True)  # fmt: skip
    lost = scene.penstock.popen("run", path)
    lost.wait_for_output("started")
    wait_for(lambda: b'"one"' in manifest(scene), 60, "one in the manifest")
    lost.kill()
    shutil.rmtree(scene.folder_of_run() / "storage")
    shutil.rmtree(scene.folder_of_run() / "state")
    scene.proxy.fault("GET", "^/out/one$", times=1000, hold="request")
    scene.start(path)
    scene.held("GET", "^/out/one$")


def manifest(scene):
    keys = [key for key in scene.store.keys("out") if key.endswith("/manifest.json")]
    return scene.store.bytes("out", keys[0]) if keys else b""


def between_steps(scene):
    # The next step starts once the end of the first is recorded. The lock on the database delays
    # that record.
    wait = "while [ ! -e $STORAGE_PATH/go ]; do sleep 0.02; done; "
    scene.start(scene.write("echo pid $$; " + wait + FIRST, SECOND, output=False))
    pid = int(scene.run.wait_for_output(r"pid (\d+)").group(1))
    database = sqlite3.connect(scene.penstock.home / "runs.db", isolation_level=None)
    database.execute("BEGIN IMMEDIATE")
    (scene.folder_of_run() / "storage" / "go").touch()
    wait_for(lambda: not os.path.exists(f"/proc/{pid}"), 60, "the first step's end")
    return database


def in_a_step(scene):
    # The step saves its work when it is asked to end.
    save = "trap 'echo asked; sleep 0.1; echo 1 > $DEEPSQUARE_OUTPUT/saved; exit 0' TERM"
    step = "if [ $PENSTOCK_ATTEMPT = 1 ]; then " + save + "; echo started; while :; do sleep 0.05; done; fi; " + SECOND
    scene.start(scene.write(FIRST, step))
    scene.run.wait_for_output("^started")


def in_a_deaf_step(scene):
    step = "if [ $PENSTOCK_ATTEMPT = 1 ]; then trap '' TERM INT; echo started; while :; do sleep 0.05; done; fi; " + SECOND
    scene.start(scene.write(FIRST, step))
    scene.run.wait_for_output("^started")


def flushing(scene):
    scene.proxy.fault("PUT", "^/out/two$", times=1000, hold="request")
    scene.start(scene.write())
    scene.held("PUT", "^/out/two$")
    assert scene.state() == "flushing"


def sending_over_http(scene):
    scene.output_sent_to = "/up/result"
    scene.sink.fault("PUT", "^/up/", times=1000, hold="request")
    scene.start(scene.write(output={"http": {"url": scene.sink.url + scene.output_sent_to}}))
    wait_for(lambda: any(not seen.ended for seen in scene.sink.seen("PUT", "^/up/")), 60, "the output held")
    assert scene.state() == "flushing"


def uploading_the_log(scene):
    scene.proxy.fault("PUT", "/log/1$", times=1000, hold="request")
    scene.start(scene.write(enableLogging=True))
    wait_for(lambda: scene.state() == "flushing" and "two" in scene.store.keys("out"), 60, "the output in the store")
    scene.held("PUT", "/log/1$")


def saying_the_last_words(scene):
    # The state next to the output is written last.
    wait = "echo started; while [ $PENSTOCK_ATTEMPT = 1 ] && [ ! -e $STORAGE_PATH/go ]; do sleep 0.02; done; "
    scene.start(scene.write(FIRST, wait + SECOND))
    scene.run.wait_for_output("^started")
    scene.proxy.fault("PUT", "state.json$", times=1000, hold="request")
    (scene.folder_of_run() / "storage" / "go").touch()
    wait_for(lambda: scene.state() == "flushing" and "two" in scene.store.keys("out") and b'"two"' in manifest(scene), 60, "the output")
    scene.held("PUT", "state.json$")


contained_only = pytest.mark.skipif(not os.path.exists(BUSYBOX), reason="busybox-static is not installed")
BEFORE_THE_STEPS = [
    waiting_in_line, opening_the_output, taking_the_lease, watching_for_a_term, pytest.param(pulling_an_image, marks=contained_only),
    staging_from_http, unpacking_while_it_arrives, unpacking_what_has_arrived, staging_from_s3, restoring, installing_packages,
]  # fmt: skip
AT_THE_END = [flushing, sending_over_http, uploading_the_log, saying_the_last_words]


# --- before there is a run: penstock itself ends, and has recorded nothing


def fetching_the_workflow(scene):
    scene.store.client.create_bucket(Bucket="given")
    scene.store.client.put_object(Bucket="given", Key="wf.json", Body=scene.write().read_bytes())
    scene.penstock.env |= scene.store.env | {"AWS_ENDPOINT_URL": scene.proxy.url}
    scene.proxy.fault("GET", "^/given/wf.json$", times=1000, hold="request")
    scene.start("s3://given/wf.json")
    scene.held("GET", "^/given/wf.json$")
    return "s3://given/wf.json", {}


def fetching_a_module(scene):
    url = scene.http.url + "/owner/name"
    scene.http.add("/owner/name/info/refs", bytes(1000))
    scene.http.fault("/owner/name/info/refs", times=1000, stall_after=100)
    path = scene.write(steps=[{"use": {"source": url}}, *({"run": {"command": step}} for step in (FIRST, SECOND))])
    scene.start(path)
    wait_for(lambda: any(request.sent for request in scene.http.seen("/owner/name/info/refs")), 60, "the first bytes")
    repository = scene.folder / "name"
    write_module(repository)
    git(repository, "init", "--quiet")
    git(repository, "add", "-A")
    git(repository, "commit", "--quiet", "-m", "one")
    return path, {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": f"url.file://{repository}.insteadOf", "GIT_CONFIG_VALUE_0": url}


@pytest.mark.parametrize("stage", [fetching_the_workflow, fetching_a_module], ids=lambda stage: stage.__name__)
def test_before_there_is_a_run(scene, stage):
    given, healed = stage(scene)

    scene.run.press()

    scene.run.wait(QUICKLY_S).exits(130)
    left = processes.survivors(scene.before, 60)
    assert not left and scene.penstock.ps() == []
    scene.heal()
    scene.penstock.run("run", given, env=healed).ok()
    scene.assert_output_complete()


# --- before the steps


def press(scene, times, between):
    """Presses Ctrl-C, and a second time once the message about the first appears."""
    scene.run.press()
    if times == 2:
        scene.run.wait_for_output(between)
        scene.run.press()


def assert_stopped_and_resumed(scene):
    scene.run.wait(QUICKLY_S).exits(130)
    ended = scene.penstock.ps()[0] if not scene.beside else next(run for run in scene.penstock.ps() if run["name"] == "x")
    assert (ended["state"], ended["class"], ended["exit_code"]) == ("stopped", "user", 130)
    scene.heal()
    scene.assert_nothing_survives()
    scene.before_resume()
    scene.penstock.run("resume", "x").ok()
    scene.assert_output_complete()


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.long)], ids=["once", "twice"])
@pytest.mark.parametrize("stage", BEFORE_THE_STEPS, ids=lambda stage: stage.__name__)
def test_before_the_steps(scene, stage, times):
    stage(scene)

    if times == 1:
        scene.run.press()
    else:  # the second Ctrl-C may arrive at any later time, even after the end of the run
        scene.run.press(b"\x03\x03")

    assert_stopped_and_resumed(scene)


def test_a_second_one_does_not_wait_for_the_last_words(scene):
    # Staging ends at once, but the store does not reply when the run records that it has stopped.
    staging_from_http(scene)
    scene.proxy.fault("PUT", "state.json$", times=1000, hold="request")

    press(scene, 1, None)
    scene.run.wait_for_output(progress.STOPPING)
    scene.held("PUT", "state.json$")
    scene.run.press()

    assert_stopped_and_resumed(scene)


@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
def test_between_steps(scene, times):
    database = between_steps(scene)

    for pressed in range(1, times + 1):
        scene.run.press()
        scene.signal_was_taken(pressed)
    database.execute("ROLLBACK")
    database.close()
    scene.run.wait_for_output(progress.STOPPED_BETWEEN_STEPS)

    assert_stopped_and_resumed(scene)


def test_once_in_a_step(scene):
    in_a_step(scene)

    press(scene, 1, None)

    scene.run.wait_for_output("^asked")
    assert_stopped_and_resumed(scene)
    assert scene.store.bytes("out", "saved") == b"1\n"


def test_twice_in_a_step(scene):
    in_a_deaf_step(scene)

    press(scene, 2, progress.KILLS_NEXT)

    assert_stopped_and_resumed(scene)


@pytest.mark.parametrize("stage", AT_THE_END, ids=lambda stage: stage.__name__)
def test_once_at_the_end(scene, stage):
    # The steps have ended, so penstock reports that it is uploading the output, and completes the
    # upload.
    stage(scene)

    scene.run.press()
    scene.run.wait_for_output(progress.UPLOADING)
    scene.let_go()

    scene.run.wait(QUICKLY_S).ok()
    assert scene.state() == "succeeded"
    scene.assert_nothing_survives()
    scene.assert_output_complete()


@pytest.mark.parametrize("stage", [flushing, sending_over_http, uploading_the_log], ids=lambda stage: stage.__name__)
def test_twice_in_the_flush(scene, stage):
    stage(scene)

    press(scene, 2, progress.UPLOADING)

    result = scene.run.wait(QUICKLY_S).exits(73)
    assert "'penstock flush" in result.out and scene.state() == "failed"
    output = scene.folder_of_run() / "storage" / "output"
    assert (output / "one").read_bytes() == b"1\n" and (output / "two").read_bytes() == b"2\n"
    scene.heal()
    scene.assert_nothing_survives()
    scene.penstock.run("flush", "x").ok()
    assert scene.state() == "succeeded"
    scene.assert_output_complete()


def test_once_in_penstock_flush(scene):
    # The state next to the output has the end of the run: a live state would make other machines wait.
    flushing(scene)
    press(scene, 2, progress.UPLOADING)
    scene.run.wait(QUICKLY_S).exits(73)
    before = len(scene.proxy.seen("PUT", "^/out/two$"))
    flush = scene.penstock.popen("flush", "x")
    wait_for(lambda: len(scene.proxy.seen("PUT", "^/out/two$")) > before, 60, "the upload of the flush")

    flush.send(signal.SIGINT)

    assert flush.wait(QUICKLY_S).code != 0
    (key,) = [key for key in scene.store.keys("out") if key.endswith("/state.json")]
    assert json.loads(scene.store.bytes("out", key))["state"] == "failed"


def test_twice_at_the_last_words(scene):
    # The whole output was uploaded, so the run has succeeded, even if the store never gets the last
    # state.
    saying_the_last_words(scene)

    press(scene, 2, progress.UPLOADING)

    scene.run.wait(QUICKLY_S).ok()
    assert scene.state() == "succeeded"
    scene.assert_nothing_survives()
    scene.assert_output_complete()
    scene.heal()
    scene.penstock.run("run", scene.folder / "wf.json", "--fresh").ok()

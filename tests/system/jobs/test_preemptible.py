"""examples/preemptible: after any interruption at any point the weights are the same."""
import os
import pickle
import re
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from harness.http_server import Server
from harness.jobs import weights
from harness.program import TOP, Penstock, environment
from harness.waiting import wait_for

EXAMPLE = TOP / "examples" / "preemptible"
PACKAGE = TOP / "build" / "python"
PYTHON = "/usr/bin/python3"
CIFAR = ["--limit", "320", "--batch-size", "8", "--epochs", "2", "--every", "7", "--threads", "1", "--device", "cpu"]
RESNET = ["--width", "0.07", "--side", "32", "--batch-size", "4", "--epochs", "2", "--every", "3", "--threads", "1", "--device", "cpu"]
# Pauses before the step HOLD_AT until the file that HOLD names is gone, so that a test can act
# meanwhile.
HELD = """
import os, sys, time
sys.path.insert(0, os.environ["EXAMPLE"])
sys.argv = sys.argv[1:]
import training
train_batch = training.Training.train_batch
def held(self):
    if self.step == int(os.environ["HOLD_AT"]):
        open(os.environ["HOLD"] + ".reached", "w").close()
        while os.path.exists(os.environ["HOLD"]):
            time.sleep(0.005)
    train_batch(self)
training.Training.train_batch = held
exec(compile(open(sys.argv[0]).read(), sys.argv[0], "exec"))
"""


@pytest.fixture(scope="session")
def folders(pictures, tmp_path_factory):
    """Some of the pictures as PNG files, in one folder for each of two classes."""
    root = tmp_path_factory.mktemp("folders")
    with open(pictures / "cifar-10-batches-py" / "data_batch_1", "rb") as file:
        batch = pickle.load(file, encoding="bytes")
    pixels, labels = np.asarray(batch[b"data"]).reshape(-1, 3, 32, 32), np.asarray(batch[b"labels"])
    for label in (0, 1):
        (root / f"class-{label}").mkdir()
        for at in np.flatnonzero(labels == label)[:10]:
            Image.fromarray(pixels[at].transpose(1, 2, 0)).save(root / f"class-{label}" / f"{at:04d}.png")
    return root


class Trainer:
    """One of the two programs of examples/preemptible, held before the batch after step
    `hold_at`."""

    def __init__(self, program, dataset, output, log, options, hold_at=None, env=None):
        self.hold, self.log, self.output = Path(f"{log}.hold"), log, output
        held = [PYTHON, "-c", HELD] if hold_at is not None else [PYTHON]
        if hold_at is not None:
            self.hold.touch()
        output.mkdir(exist_ok=True)
        with open(log, "wb") as out:
            self.process = subprocess.Popen(
                [*held, EXAMPLE / program, "--dataset", dataset, *options], stdout=out, stderr=subprocess.STDOUT, cwd=output,
                env=environment() | {"PYTHONPATH": str(PACKAGE), "EXAMPLE": str(EXAMPLE), "HOLD": str(self.hold), "HOLD_AT": str(hold_at),
                                  "DEEPSQUARE_OUTPUT": str(output)} | (env or {}),
            )  # fmt: skip

    def reached(self):
        wait_for(lambda: Path(f"{self.hold}.reached").exists() or self.process.poll() is not None, 120)
        return self

    def let_go(self):
        self.hold.unlink(missing_ok=True)
        return self

    def ended(self, code=0):
        assert self.process.wait(120) == code, self.text()
        return self.text()

    def text(self):
        return self.log.read_text()


@pytest.fixture
def start(tmp_path):
    """start(program, dataset, options, …): starts a Trainer. All trainers of a test have the same
    output directory, one after the other."""
    started = []

    def begin(program, dataset, options, **more):
        started.append(Trainer(program, dataset, tmp_path / "output", tmp_path / f"log-{len(started)}", options, **more))
        return started[-1]

    yield begin
    for one in started:
        one.process.kill()
        one.process.wait()


def resumed_at(text):
    return int(re.search(r"^resumed after batch \d+ of epoch \d+ \(step (\d+)\)$", text, re.M).group(1))


@pytest.fixture(scope="session")
def unbroken(cifar_archive, folders, tmp_path_factory):
    """The output of the example's uninterrupted workflows, by program."""
    program, server = Penstock(tmp_path_factory.mktemp("unbroken")), Server()
    url = server.add("/cifar-10-python.tar.gz", cifar_archive.read_bytes())
    common = ["--set", "resources.cpusPerTask=1", "--set", "resources.memPerCpu=1024", "--env", f"EXAMPLE={EXAMPLE}", "--env", f"PYTHONPATH={PACKAGE}"]
    try:
        program.run("mb", "s3://pictures", "--endpoint-url", "embedded").ok()
        program.run("sync", f"{folders}/", "s3://pictures/train/", "--endpoint-url", "embedded").ok()
        cifar10 = program.run("run", EXAMPLE / "cifar10.yaml", *common, "--set", f"input.http.url={url}", "--env", f"TRAIN_OPTIONS={' '.join(CIFAR)}").ok().out
        resnet50 = program.run("run", EXAMPLE / "resnet50.yaml", *common, "--env", f"TRAIN_OPTIONS={' '.join(RESNET)}").ok().out
        kept = program.run("ls", "-r", "s3://preemptible/", "--endpoint-url", "embedded").ok().out
    finally:
        program.close()
        server.close()
    return {"cifar10.py": cifar10, "resnet50.py": resnet50, "kept": kept}


# The training is killed in the first epoch, and gets a notice in the second; each epoch has 40
# batches.
def test_the_cnn_goes_on_after_a_kill_and_after_a_notice(start, pictures, tmp_path, unbroken):
    notice = tmp_path / "preempt"

    killed = start("cifar10.py", pictures, CIFAR, hold_at=17).reached()
    wait_for(lambda: list((tmp_path / "output" / "checkpoints").glob("step-000000000014-1/COMMIT.json")), 60)
    killed.process.kill()
    killed.ended(-signal.SIGKILL)
    noticed = start("cifar10.py", pictures, CIFAR, hold_at=52, env={"PENSTOCK_PREEMPT_FILE": str(notice)}).reached()
    notice.write_text("{}")
    by_notice = noticed.let_go().ended(143)
    last = start("cifar10.py", pictures, CIFAR, env={"PENSTOCK_DONE_FILE": str(tmp_path / "done")}).ended()

    assert resumed_at(by_notice) == 14 and "stopped after batch 13 of epoch 2; saved step 53" in by_notice
    assert resumed_at(last) == 53 and weights(last) == weights(unbroken["cifar10.py"])
    assert (tmp_path / "output" / "cifar_net.pth").exists() and (tmp_path / "done").exists()


# A run may resume on a machine with more processors, and a step may get fewer of them than the
# shell has. For the chosen type of core, OpenBLAS rounds differently with one thread and with two.
def test_the_number_of_processors_changes_no_bit_of_the_weights(start, pictures, tmp_path):
    processors = os.sched_getaffinity(0)

    def trained(allowed):
        os.sched_setaffinity(0, allowed)
        try:
            text = start("cifar10.py", pictures, CIFAR, env={"OPENBLAS_CORETYPE": "Haswell"}).ended()
        finally:
            os.sched_setaffinity(0, processors)
        shutil.rmtree(tmp_path / "output")
        assert "resumed" not in text
        return weights(text)

    assert trained({min(processors)}) == trained(processors)


def test_resnet50_goes_on_with_nothing_but_files_and_the_environment(start, folders, tmp_path, unbroken):
    told = start("resnet50.py", folders, RESNET, hold_at=7).reached()
    told.process.send_signal(signal.SIGTERM)
    by_signal = told.let_go().ended(143)
    last = start("resnet50.py", folders, RESNET, env={"PENSTOCK_DONE_FILE": str(tmp_path / "done")}).ended()

    assert "starting with random" in by_signal and "stopped after batch 3 of epoch 2; saved step 8" in by_signal
    assert resumed_at(last) == 8 and weights(last) == weights(unbroken["resnet50.py"])
    assert (tmp_path / "done").exists() and "starting with random" not in last


def test_the_output_has_the_weights_and_the_newest_checkpoints(unbroken):
    names = re.findall(r"\S+$", unbroken["kept"], re.M)

    commits = sorted(name for name in names if name.endswith("COMMIT.json"))
    assert any(name.endswith("cifar10/cifar_net.pth") for name in names) and any(name.endswith("resnet50/resnet50.pth") for name in names)
    assert any("/step-000000000080-1/COMMIT.json" in name for name in commits) and any("step-000000000010.pth.COMMIT.json" in name for name in commits)


def test_mistakes_are_said_in_one_line(start, tmp_path):
    (tmp_path / "bad.pth").write_bytes(b"no weights")
    (tmp_path / "class").mkdir()
    Image.new("RGB", (32, 32)).save(tmp_path / "class" / "a.png")

    for program, dataset, options, said in (
        ("cifar10.py", tmp_path, [], f"cifar10.py: {tmp_path}: no cifar-10-batches-py/data_batch_1 there"),
        ("resnet50.py", tmp_path, ["--weights", tmp_path / "bad.pth", "--width", "0.02"], f"resnet50.py: {tmp_path}/bad.pth: not the weights"),
    ):
        text = start(program, dataset, options).ended(1)
        assert said in text and "Traceback" not in text, text

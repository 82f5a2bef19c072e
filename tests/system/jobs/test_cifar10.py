"""examples/cifar10 by itself: the data set that its draw.py makes, and a training run that resumes
exactly where it stopped."""
import json
import pickle
import re
import signal
import subprocess
import tarfile
import time

import pytest

from harness.jobs import EXAMPLE, SMALL, unbroken, weights
from harness.program import TOP, environment
from harness.waiting import wait_for

PYTHON = "/usr/bin/python3"


@pytest.fixture
def train(pictures, tmp_path):
    """train(*options): starts a trainer, whose output is `text()`. The trainer ends with the
    test."""
    started = []

    def start(*options, env=None):
        log = open(tmp_path / f"log-{len(started)}", "w+b")
        command = [PYTHON, EXAMPLE / "main.py", "--dataset", pictures, *SMALL.split(), *options]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment() | (env or {}))
        process.text = lambda: (tmp_path / log.name).read_text()
        process.log = log
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.log.close()


def finished(process):
    assert process.wait(120) == 0, process.text()
    return process.text()


@pytest.fixture(scope="module")
def unbroken_weights(pictures):
    return unbroken(pictures)


# All resuming depends on this property: an interruption without warning does not change the final
# weights.
def test_killed_and_resumed_training_ends_with_the_same_weights(train, tmp_path, unbroken_weights):
    out = tmp_path / "ckpt.pth"

    broken = train("--checkpoint_out", out, "--step-delay", "0.2")
    wait_for(lambda: "checkpoint at step 6" in broken.text() or broken.poll() is not None, 60)
    broken.kill()
    assert broken.wait() == -signal.SIGKILL
    resumed = finished(train("--checkpoint_out", out))

    assert int(re.search(r"resumed at step (\d+) from", resumed).group(1)) >= 6
    assert weights(resumed) == unbroken_weights


def test_told_to_stop_it_saves_and_says_it_is_not_finished(train, tmp_path, unbroken_weights):
    out, later = tmp_path / "ckpt.pth", tmp_path / "later.pth"

    told = train("--checkpoint_out", out, "--step-delay", "0.2", "--steps-per-checkpoint", "1000")
    wait_for(lambda: "step 5/" in told.text() or told.poll() is not None, 60)
    told.send_signal(signal.SIGTERM)
    assert told.wait(30) == 143, told.text()
    saved = int(re.search(r"stopping: SIGTERM; saved step (\d+)", told.text()).group(1))
    resumed = finished(train("--checkpoint_in", out, "--checkpoint_out", later))

    assert f"resumed at step {saved} from {out}" in resumed
    assert weights(resumed) == unbroken_weights


def test_stops_on_the_preempt_file(train, tmp_path):
    notice = tmp_path / "preempt"

    told = train("--checkpoint_out", tmp_path / "ckpt.pth", "--step-delay", "0.1", env={"PENSTOCK_PREEMPT_FILE": str(notice)})
    wait_for(lambda: "step 5/" in told.text() or told.poll() is not None, 60)
    notice.write_text('{"deadline": 1}')

    assert told.wait(30) == 143, told.text()
    assert "stopping: preemption notice; saved step" in told.text()


@pytest.mark.parametrize("content", [b"half a checkpo", b""], ids=["cut", "empty"])
def test_refuses_a_broken_checkpoint_and_leaves_it(train, tmp_path, content):
    out = tmp_path / "ckpt.pth"
    out.write_bytes(content)

    process = train("--checkpoint_out", out)

    assert process.wait(60) == 1
    assert re.search(rf"^main.py: {re.escape(str(out))}: ", process.text(), re.M), process.text()
    assert out.read_bytes() == content


def test_drawn_set_has_the_layout_of_the_original(tmp_path):
    begin = time.monotonic()
    subprocess.run([PYTHON, EXAMPLE / "draw.py", tmp_path, "--train", "500", "--test", "100"], check=True)
    seconds = time.monotonic() - begin

    with tarfile.open(tmp_path / "cifar-10-python.tar.gz") as tar:
        names = tar.getnames()
        batches = {name: pickle.load(tar.extractfile(name), encoding="bytes") for name in names}
    folder = "cifar-10-batches-py/"
    assert sorted(names) == sorted(folder + n for n in ["batches.meta", "test_batch"] + [f"data_batch_{i}" for i in range(1, 6)])
    assert len(batches[folder + "batches.meta"][b"label_names"]) == 10
    for name, count in ((f"{folder}data_batch_3", 100), (f"{folder}test_batch", 100)):
        assert batches[name][b"data"].shape == (count, 3072)
        assert sorted(set(batches[name][b"labels"])) == list(range(10))
        assert len(batches[name][b"filenames"]) == count
    assert seconds < 20


def without(workflow, *names):
    """The keys of the workflow and their nesting, without `names`."""
    if isinstance(workflow, dict):
        return {key: without(value, *names) for key, value in workflow.items() if key not in names}
    if isinstance(workflow, list):
        return [without(entry, *names) for entry in workflow]
    return type(workflow).__name__


# A reader of the published page finds the same keys here, except those that a laptop lacks or does not need.
@pytest.mark.parametrize("ours, published", [("workflow.json", "seed-1-workflow.json"), ("workflow-resume.json", "seed-1-workflow-resume.json")])
def test_example_workflows_have_the_shape_of_the_published_ones(ours, published):
    example = json.loads((EXAMPLE / ours).read_text())
    original = json.loads((TOP / "tests" / "system" / "data" / published).read_text())

    assert without(example) == without(original, "container", "accessKeyId", "secretAccessKey")

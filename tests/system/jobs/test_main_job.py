"""The main job: the two CIFAR-10 workflows of a published page (harness/jobs.py), from HTTP input
to S3 output, killed and resumed."""
import hashlib
import re
import signal
import subprocess

import pytest

from harness.jobs import EXAMPLE, SMALL, localise, published, published_text, unbroken, weights, write
from harness.waiting import wait_for

SLOWLY = SMALL + " --step-delay 0.25"


@pytest.fixture
def dataset_url(http_server, cifar_archive):
    return http_server.add("/kriz/cifar-10-python.tar.gz", cifar_archive)


@pytest.fixture
def first(store, dataset_url, tmp_path):
    """first(options): the path of the page's first workflow, adapted to this machine."""
    return lambda options=SMALL, **extra: write(
        localise(published("first"), store, dataset_url, options) | extra, tmp_path / "workflow.json"
    )


@pytest.fixture(scope="module")
def unbroken_weights(pictures):
    return unbroken(pictures)


def checkpoint_weights(content, folder):
    """The hash of the weights in a checkpoint's bytes."""
    path = folder / "fetched.pth"
    path.write_bytes(content)
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import checkpoint\n"
        "class Saved:\n"
        "    def __init__(self, state): self.state_dict = lambda: state\n"
        "print(checkpoint.weights_digest(Saved(checkpoint.load(sys.argv[2])['model'])))"
    )
    command = ["/usr/bin/python3", "-c", script, EXAMPLE, path]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def has_key(store, bucket, key):
    try:
        return key in store.keys(bucket)
    except store.client.exceptions.NoSuchBucket:
        return False


# The published workflow fetches an archive, trains, and uploads the checkpoint and the log
# (enableLogging); penstock records the run. After a success the same command starts from the
# beginning, so a second call trains again.
def test_first_workflow_from_http_to_s3(penstock, store, first, unbroken_weights, tmp_path):
    workflow = first()
    result = penstock.run("run", workflow).ok()

    assert weights(result.text) == unbroken_weights
    assert checkpoint_weights(store.bytes("cifar10", "ckpt.pth"), tmp_path) == unbroken_weights
    run = penstock.ps()[0]
    assert (run["state"], run["attempt"]) == ("succeeded", 1)
    shown = penstock.run("show", run["id"]).ok().out
    etag = hashlib.md5(store.bytes("cifar10", "ckpt.pth")).hexdigest()
    assert re.search(rf"s3://cifar10/ckpt\.pth.*{etag}", shown), shown
    assert weights(penstock.run("logs", run["id"]).ok().out) == unbroken_weights
    logs = [key for key in store.keys("cifar10") if "log" in key and key != "ckpt.pth"]
    assert any(unbroken_weights in store.bytes("cifar10", key).decode() for key in logs), store.keys("cifar10")

    again = penstock.run("run", workflow).ok()

    assert "resumed at step" not in again.text
    assert weights(again.text) == unbroken_weights


# DeepSquare keeps the archive next to its contents; the step finds both in $DEEPSQUARE_INPUT.
def test_archive_is_unpacked_and_stays(penstock, store, dataset_url, tmp_path, cifar_archive):
    workflow = localise(published("first"), store, dataset_url)
    workflow["steps"] = [{"name": "look", "run": {"command": "cd $DEEPSQUARE_INPUT && sha256sum *.gz && ls cifar-10-batches-py"}}]

    result = penstock.run("run", write(workflow, tmp_path / "wf.json")).ok()

    assert hashlib.sha256(cifar_archive.read_bytes()).hexdigest() in result.out
    for name in ("batches.meta", "data_batch_1", "data_batch_5", "test_batch"):
        assert name in result.out.split()


# The page's second workflow fetches the output of the first, and trains further epochs.
def test_second_workflow_resumes_from_the_bucket(penstock, store, first, dataset_url, tmp_path):
    before = penstock.run("run", first()).ok()
    more = SMALL.replace("--epochs 2", "--epochs 3")

    resume = localise(published("resume"), store, dataset_url, more)
    result = penstock.run("run", write(resume, tmp_path / "resume.json")).ok()

    last = int(re.findall(r"checkpoint at step (\d+)", before.text)[-1])
    assert re.search(rf"resumed at step {last} from \S+/input/ckpt\.pth", result.text), result.text
    assert re.search(rf"^step {last * 3 // 2}/{last * 3 // 2} ", result.out, re.M)
    assert checkpoint_weights(store.bytes("cifar10", "ckpt.pth"), tmp_path) == weights(result.text)


# The checkpoint is in the bucket while the training runs. After kill -9 of penstock itself, the
# next run of the same file continues, and ends with the same weights.
def test_killed_run_is_taken_up_by_the_same_command(penstock, store, first, unbroken_weights, tmp_path):
    workflow = first(SLOWLY)
    killed = penstock.popen("run", workflow)
    killed.wait_for_output("checkpoint at step 3")
    wait_for(lambda: has_key(store, "cifar10", "ckpt.pth"), 60)
    assert killed.running(), killed.out
    killed.kill()

    again = penstock.run("run", workflow).ok()

    assert int(re.search(r"resumed at step (\d+)", again.text).group(1)) >= 3
    assert weights(again.text) == unbroken_weights
    assert checkpoint_weights(store.bytes("cifar10", "ckpt.pth"), tmp_path) == unbroken_weights
    run = penstock.ps()[0]
    assert (run["state"], run["attempt"]) == ("succeeded", 2)


# A machine that is about to be preempted sends SIGTERM. The training saves; penstock publishes the
# checkpoint and exits with 75, and the run can be resumed.
def test_preempted_run_saves_publishes_and_resumes(penstock, store, first, unbroken_weights):
    workflow = first(SLOWLY + " --steps-per-checkpoint 1000")
    running = penstock.popen("run", workflow)
    running.wait_for_output("step 5/")

    running.send(signal.SIGTERM)
    told = running.wait(60).exits(75)
    assert penstock.ps()[0]["state"] == "preempted"
    saved = re.search(r"saved step (\d+)", told.text).group(1)
    assert has_key(store, "cifar10", "ckpt.pth")
    again = penstock.run("run", workflow).ok()

    assert f"resumed at step {saved} " in again.text
    assert weights(again.text) == unbroken_weights


# The page's files are used byte for byte. --set replaces values that do not fit this machine.
@pytest.mark.parametrize("name", ["first", "resume"])
def test_published_file_runs_unchanged_with_overrides(penstock, store, dataset_url, tmp_path, unbroken_weights, name):
    path = tmp_path / "workflow.json"
    path.write_text(published_text(name))
    wanted = localise(published(name), store, dataset_url)
    sets = {"resources.gpusPerTask": 0, "resources.cpusPerTask": 1}
    for side in ("input", "output"):
        if "http" in wanted[side]:
            sets[f"{side}.http.url"] = dataset_url
        for key in ("endpointUrl", "accessKeyId", "secretAccessKey") if "s3" in wanted[side] else ():
            sets[f"{side}.s3.{key}"] = wanted[side]["s3"][key]
    for number, step in enumerate(wanted["steps"]):
        sets[f"steps.{number}.run.container"] = "null"
        sets[f"steps.{number}.run.command"] = step["run"]["command"]
        if "workDir" in step["run"]:
            sets[f"steps.{number}.run.workDir"] = EXAMPLE
    store.client.create_bucket(Bucket="cifar10")
    if name == "resume":  # the input must exist, even without a checkpoint to resume from
        store.client.put_object(Bucket="cifar10", Key="notes.txt", Body=b"nothing was trained yet\n")

    result = penstock.run("run", path, *[word for key, value in sets.items() for word in ("--set", f"{key}={value}")]).ok()

    assert weights(result.text) == unbroken_weights
    assert checkpoint_weights(store.bytes("cifar10", "ckpt.pth"), tmp_path) == unbroken_weights
    assert path.read_text() == published_text(name)


# A user starts the example in this way: the changes are options, and the file itself names the
# embedded store.
def test_example_runs_with_the_embedded_store(penstock, dataset_url, unbroken_weights):
    result = penstock.run(
        "run", EXAMPLE / "workflow.json", "--set", f"input.http.url={dataset_url}", "--set", "resources.cpusPerTask=1",
        "--set", f"steps.0.run.workDir={EXAMPLE}", "--env", f"TRAIN_OPTIONS={SMALL}",
    ).ok()  # fmt: skip

    assert weights(result.text) == unbroken_weights
    shown = penstock.run("show", penstock.ps()[0]["id"]).ok().out
    assert re.search(r"s3://cifar10/ckpt\.pth.*[0-9a-f]{32}", shown), shown


def test_example_resume_runs_with_the_embedded_store(penstock, dataset_url):
    common = ["--set", "resources.cpusPerTask=1", "--env", f"DATASET_URL={dataset_url}"]
    first = ["--set", f"input.http.url={dataset_url}", "--set", f"steps.0.run.workDir={EXAMPLE}"]
    penstock.run("run", EXAMPLE / "workflow.json", *common, *first, "--env", f"TRAIN_OPTIONS={SMALL}").ok()
    more = SMALL.replace("--epochs 2", "--epochs 3")

    result = penstock.run(
        "run", EXAMPLE / "workflow-resume.json", *common, "--set", f"steps.1.run.workDir={EXAMPLE}", "--env", f"TRAIN_OPTIONS={more}"
    ).ok()

    assert re.search(r"resumed at step [1-9]\d* from \S+/input/ckpt\.pth", result.text), result.text


# Readers of the page first try its file unchanged. The error names at once what this machine lacks,
# and an alternative.
def test_published_workflow_as_it_is_names_what_this_machine_lacks(penstock, tmp_path):
    workflow = published("first")
    for step in workflow["steps"]:
        del step["run"]["container"]

    result = penstock.run("run", write(workflow, tmp_path / "wf.json"))

    assert result.code == 65, result.text
    assert re.search(r"gpusPerTask|GPU", result.err) and "--set" in result.err, result.err
    assert penstock.ps() == []

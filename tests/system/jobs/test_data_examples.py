"""Training programs that read their samples from the store: examples/mnist, examples/streaming, and
examples/cifar10 with a URL."""
import gzip
import io
import pickle
import re
import signal
import struct
import subprocess

import numpy as np
import pytest

from harness.jobs import EXAMPLE, SMALL as CIFAR10, unbroken, weights as trained_weights
from harness.program import TOP, environment
from harness.waiting import wait_for

PYTHON = "/usr/bin/python3"
PACKAGE = TOP / "build" / "python"
DIGITS = TOP.parent / "shared" / "data" / "t10k-images-idx3-ubyte.gz"
SMALL = "--epochs 2 --save-every 5"
PICTURES, BATCH = 640, 32


# MNIST's own pictures if the machine has them, else random ones.
@pytest.fixture
def digits(store):
    if DIGITS.exists():
        pictures = np.frombuffer(gzip.decompress(DIGITS.read_bytes()), "uint8", offset=16).reshape(-1, 28, 28)[:PICTURES]
    else:
        pictures = np.random.default_rng(7).integers(0, 256, (PICTURES, 28, 28), dtype="uint8")
    store.client.create_bucket(Bucket="mnist")
    content = struct.pack(">4B3I", 0, 0, 8, 3, *pictures.shape) + pictures.tobytes()
    store.client.put_object(Bucket="mnist", Key="data/train-images-idx3-ubyte.gz", Body=gzip.compress(content))


@pytest.fixture
def train(penstock, store, digits):
    """train(path, *options): a run of examples/mnist with its output below `path` of the bucket."""

    def start(path, *options, **how):
        to = [f"output.s3.endpointUrl={store.endpoint}", f"output.s3.accessKeyId={store.access_key}", f"output.s3.secretAccessKey={store.secret_key}"]
        to += [f"output.s3.path=/{path}", f"name={path}"]
        settings = [word for setting in to for word in ("--set", setting)]
        return penstock.popen(
            "run", TOP / "examples" / "mnist" / "workflow.yaml", *settings, "--env", f"PYTHONPATH={PACKAGE}", "--env", f"TRAIN_OPTIONS={SMALL}", *options, **how
        )

    return start


def finished(process):
    return process.wait().ok().out


def losses(text):
    return dict(re.findall(r"step (\d+) loss (\S+)", text))


def weights(text):
    return re.search(r"^(?:\[0\] )?sum of the weights (\S+)$", text, re.M).group(1)


def test_a_killed_autoencoder_continues_in_mid_epoch_with_the_same_losses(train):
    whole = finished(train("whole"))
    killed = train("killed", "--env", f"TRAIN_OPTIONS={SMALL} --step-delay 0.1")
    killed.wait_for_output(r"step 30 loss")
    killed.kill()
    killed.finish()
    resumed = finished(train("killed"))

    step, epoch = re.search(r"resumed at step (\d+), epoch (\d+)", resumed).groups()
    assert int(step) >= 5 and int(step) % (PICTURES // BATCH) != 0, resumed
    assert losses(resumed).items() <= losses(whole).items() and weights(resumed) == weights(whole)


# An active venv puts its python3 first on PATH.
def test_the_autoencoder_is_trained_by_the_python_of_the_path(train, tmp_path):
    (tmp_path / "python3").write_text(f'#!/bin/sh\necho "python of the venv"\nexec {PYTHON} "$@"\n')
    (tmp_path / "python3").chmod(0o755)

    text = finished(train("venv", "--env", "TRAIN_OPTIONS=--epochs 1", env={"PATH": f"{tmp_path}:{environment()['PATH']}"}))

    assert "python of the venv" in text and weights(text)


def test_two_tasks_train_the_autoencoder_on_all_samples(train):
    text = finished(train("two", "--set", "resources.tasks=2", "--set", "steps.train.run.resources.tasks=2"))

    assert f"step {2 * PICTURES // BATCH} loss" in text and weights(text)


@pytest.fixture(scope="module")
def frameworks():
    python = subprocess.run([TOP / "tools" / "bench-python", "--find"], check=True, capture_output=True, text=True).stdout.strip()
    if not python:
        pytest.skip("Lightning and TensorFlow are not installed; run tools/bench-python")
    return python


@pytest.mark.long
def test_lightning_trains_the_autoencoder_and_continues_after_a_kill(store, digits, frameworks, tmp_path):
    command = [frameworks, TOP / "examples" / "mnist" / "lightning_train.py", "s3://mnist/data/train-images-idx3-ubyte.gz"]
    env = environment() | store.env | {"PYTHONPATH": str(PACKAGE), "DEEPSQUARE_OUTPUT": str(tmp_path)}
    killed = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: (tmp_path / "last.ckpt").exists() or killed.poll() is not None, 120)
    killed.kill()
    killed.wait()

    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    assert f"trained {2 * PICTURES // BATCH} steps" in done.stdout and "Restoring states" in done.stdout + done.stderr, done.stderr


def sha256(done):
    return re.search(r"^weights sha256 (\w+)$", done.stdout, re.M).group(1)


def in_store(store, pictures):
    """Stores the pictures of an unpacked archive as s3://cifar10/data/, in the layout of the binary version."""
    store.client.create_bucket(Bucket="cifar10")
    for path in sorted((pictures / "cifar-10-batches-py").glob("*_batch*")):
        batch = pickle.loads(path.read_bytes(), encoding="bytes")
        records = np.concatenate([np.array(batch[b"labels"], "uint8")[:, None], batch[b"data"]], 1)
        folder = "test" if path.name == "test_batch" else "train"
        store.client.put_object(Bucket="cifar10", Key=f"data/{folder}/{path.name}.bin", Body=records.tobytes())


def test_the_training_on_cifar10_ends_with_the_same_weights_from_the_store(store, pictures, tmp_path):
    in_store(store, pictures)
    command = [PYTHON, EXAMPLE / "main.py", "--dataset", "s3://cifar10/data", f"--checkpoint_out={tmp_path}/ckpt.pth", *CIFAR10.split()]
    env = environment() | store.env | {"PYTHONPATH": str(PACKAGE)}

    broken = subprocess.Popen([*command, "--step-delay", "0.2"], env=env, stdout=subprocess.PIPE, text=True)
    for line in broken.stdout:
        if "checkpoint at step 6" in line:
            broken.kill()
    broken.wait()
    resumed = subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    assert "resumed at step 6 from" in resumed.stdout and trained_weights(resumed.stdout) == unbroken(pictures), resumed.stderr


def test_the_preemptible_cnn_continues_in_mid_epoch_from_the_store_with_the_same_weights(store, pictures, tmp_path):
    in_store(store, pictures)
    options = "--limit 320 --batch-size 8 --epochs 2 --every 7 --threads 1 --device cpu"

    def run(where, dataset, notice=""):
        env = environment() | store.env | {"PYTHONPATH": str(PACKAGE), "DEEPSQUARE_OUTPUT": str(tmp_path / where), "PENSTOCK_CHECKPOINT_DIR": str(tmp_path / where)}
        command = [PYTHON, TOP / "examples" / "preemptible" / "cifar10.py", "--dataset", dataset, *options.split()]
        return subprocess.run(command, env=env | {"PENSTOCK_PREEMPT_FILE": notice}, capture_output=True, text=True, check=False)

    stopped = run("streamed", "s3://cifar10/data/train/", notice=PYTHON)
    resumed = run("streamed", "s3://cifar10/data/train/")
    whole = run("files", pictures)

    assert "stopped after batch 1 of epoch 1" in stopped.stdout and stopped.returncode == 128 + signal.SIGTERM, stopped.stderr
    assert "resumed after batch 1 of epoch 1" in resumed.stdout, resumed.stderr
    assert sha256(resumed) == sha256(whole)


@pytest.fixture
def records(store):
    """Records of a label and a picture, as one object and as an object for each batch."""
    records = np.random.default_rng(7).integers(0, 10, (1000, 3073), dtype="uint8")
    store.client.create_bucket(Bucket="cifar10")
    store.client.put_object(Bucket="cifar10", Key="train.bin", Body=records.tobytes())
    for first in range(0, 1000, 256):
        batch = io.BytesIO()
        np.save(batch, records[first : first + 256])
        store.client.put_object(Bucket="cifar10", Key=f"batches/{first}.npy", Body=batch.getvalue())
    return records


@pytest.mark.long
def test_tensorflow_reads_each_picture_once(store, records, frameworks):
    program = TOP / "examples" / "streaming" / "tensorflow_records.py"
    done = subprocess.run([frameworks, program, "s3://cifar10/train.bin"], env=environment() | store.env | {"PYTHONPATH": str(PACKAGE)}, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert sum(int(n) for n in re.findall(r"^(\d+) pictures, mean [\d.]+", done.stdout, re.M)) == len(records)


@pytest.mark.parametrize("program, url", [("records.py", "s3://cifar10/train.bin"), ("batches.py", "s3://cifar10/batches/")])
def test_streaming_programs_read_each_picture_once(store, records, program, url):
    env = environment() | store.env | {"PYTHONPATH": str(PACKAGE)}
    done = subprocess.run([PYTHON, TOP / "examples" / "streaming" / program, url], env=env, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    found = [(int(n), float(mean)) for n, mean in re.findall(r"^(\d+) pictures, mean ([\d.]+)", done.stdout, re.M)]
    assert sum(n for n, _ in found) == len(records)
    assert abs(sum(n * mean for n, mean in found) / len(records) - records[:, 1:].mean()) < 0.001

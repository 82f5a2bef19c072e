"""The main job killed again and again at moments nobody chose; the weights tell whether anything was lost or torn."""
import os
import random
import re
import subprocess
import time

import pytest

from harness.jobs import EXAMPLE, SMALL, localise, published, weights, write

MANY_STEPS = SMALL.replace("--epochs 2", "--epochs 8") + " --step-delay 0.05"


@pytest.fixture(scope="module")
def unbroken_weights(cifar_archive, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    subprocess.run(["tar", "-C", folder, "-xzf", cifar_archive], check=True)
    options = MANY_STEPS.replace("--step-delay 0.05", "").split()
    command = ["/usr/bin/python3", EXAMPLE / "main.py", "--dataset", folder, "--checkpoint_out", folder / "c.pth", *options]
    return weights(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def train_through_kills(penstock, workflow, rng, longest_s):
    """Runs it, killing penstock after random times that grow, until one run gets to its end; (kills, its Result)."""
    kills, longest = 0, 2.0
    while True:
        running = penstock.popen("run", workflow)
        deadline = time.monotonic() + rng.uniform(0, longest)
        while running.running() and time.monotonic() < deadline:
            time.sleep(0.01)
        if not running.running():
            return kills, running.wait().ok()
        running.kill()
        kills += 1
        longest = min(longest * 1.15, longest_s)


def killed_training_ends_like_an_unbroken_one(penstock, store, dataset_url, folder, seed, unbroken_weights):
    job = localise(published("first"), store, dataset_url, MANY_STEPS) | {"name": f"job-{seed}"}
    workflow = write(job, folder / f"workflow-{seed}.json")

    kills, last = train_through_kills(penstock, workflow, random.Random(seed), longest_s=60)

    assert weights(last.text) == unbroken_weights, f"seed {seed}, {kills} kills\n{last.text}"
    run = next(run for run in penstock.ps() if run["name"] == f"job-{seed}")
    assert run["state"] == "succeeded"
    steps = [int(step) for step in re.findall(r"resumed at step (\d+)", last.text)]
    return kills, steps


@pytest.fixture
def dataset_url(http_server, cifar_archive):
    return http_server.add("/kriz/cifar-10-python.tar.gz", cifar_archive)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_training_survives_kills_at_random_moments(penstock, store, dataset_url, tmp_path, unbroken_weights, seed):
    kills, _ = killed_training_ends_like_an_unbroken_one(penstock, store, dataset_url, tmp_path, seed, unbroken_weights)

    assert kills >= 3, "nothing was shown: the training ended before it was killed"


# PENSTOCK_SOAK_S: for how long; every training has another seed, printed when it fails.
@pytest.mark.soak
def test_trainings_survive_kills_for_hours(penstock, store, dataset_url, tmp_path, unbroken_weights):
    end = time.monotonic() + float(os.environ.get("PENSTOCK_SOAK_S", 2 * 3600))
    seed = int(time.time())
    kills = trainings = 0

    while time.monotonic() < end or trainings == 0:
        more, _ = killed_training_ends_like_an_unbroken_one(penstock, store, dataset_url, tmp_path, seed, unbroken_weights)
        kills, trainings, seed = kills + more, trainings + 1, seed + 1

    print(f"{trainings} trainings, {kills} kills")
    assert kills > trainings

"""The examples that --help prints for the verbs of objects work as they stand there."""
import json
import os
import re
import subprocess

import pytest

from harness.program import binary

VERBS = ["cp", "mv", "sync", "ls", "cat", "put", "rm", "rb", "mb", "stat", "du", "presign", "batch"]
OBJECTS = {
    "data": ["train/1.tar", "train/2.tar", "new/a.csv", "train.tar.gz"], "old": ["big.tar", "x/1"], "new": ["x/2"], "models": ["old"],
    "cifar10": ["log.txt", "ckpt.pth", "epoch-1.pth", "tmp/1", "runs/1.pth", "runs/1.txt"],
}  # fmt: skip
FILES = ["model.pth", "runs/1", "results/1", "data/1", "id", "shards/0"]


@pytest.fixture
def shell(penstock, store, tmp_path):
    """Runs a line as a shell does, in a directory with what the examples name, and with their buckets."""
    for bucket, keys in OBJECTS.items():
        store.client.create_bucket(Bucket=bucket)
        for key in keys:
            store.client.put_object(Bucket=bucket, Key=key, Body=b"x")
    for name in FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "names").write_text("train/1.tar\n")
    (tmp_path / "jobs.txt").write_text("cp id s3://data/\nls s3://data/\n")
    archive = subprocess.run(["tar", "cz", "-C", tmp_path, "id"], stdout=subprocess.PIPE, check=True).stdout
    store.client.put_object(Bucket="data", Key="train.tar.gz", Body=archive)
    (tmp_path / "config").write_text(
        f"[profile lab]\naws_access_key_id = {store.access_key}\naws_secret_access_key = {store.secret_key}\nendpoint_url = {store.endpoint}\n"
    )
    env = penstock.env | store.env | {"PATH": f"{binary().parent}:{os.environ['PATH']}", "AWS_CONFIG_FILE": str(tmp_path / "config")}

    def run(line):
        return subprocess.run(["bash", "-o", "pipefail", "-c", line], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120)

    run.store = store
    return run


@pytest.mark.parametrize("verb", VERBS)
def test_the_examples_of(shell, penstock, verb):
    text = penstock.run(verb, "--help").ok().out.partition("\nExamples:\n")[2].partition("\n\n")[0]
    examples = [line.strip() for line in text.splitlines() if re.match(r"  \S", line)]
    assert examples and all("penstock" in line for line in examples)
    if verb in ("mb", "rb"):
        for key in OBJECTS["cifar10"]:
            shell.store.client.delete_object(Bucket="cifar10", Key=key)
    if verb == "mb":
        shell.store.client.delete_bucket(Bucket="cifar10")

    for line in examples:
        if line == "penstock rm cifar10":  # a run, not a bucket
            continue
        done = shell(line)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        if "--json" in line:
            json.loads(done.stdout)

"""The examples that --help prints for the verbs of objects work unchanged."""
import json
import os
import re
import subprocess

import pytest

from harness.program import binary

VERBS = ["cp", "mv", "sync", "ls", "cat", "put", "stat", "du", "presign", "batch", "rm", "rb", "mb"]
OBJECTS = {
    "data": ["train/1.tar", "train/2.tar", "new/a.csv", "train.tar.gz"], "old": ["big.tar", "x/1"], "new": ["x/2"], "models": ["old"],
    "cifar10": ["log.txt", "ckpt.pth", "epoch-1.pth", "tmp/1", "runs/1.pth", "runs/1.txt"],
}  # fmt: skip
FILES = ["model.pth", "runs/1", "results/1", "data/1", "id", "shards/0"]


@pytest.fixture
def shell(penstock, store, tmp_path):
    """Runs a line as a shell does, in a directory with the files of the examples; shell.prepare() makes these files, and the buckets, again."""
    archive = subprocess.run(["tar", "cz", "-C", "/usr/share/doc", "bash"], stdout=subprocess.PIPE, check=True).stdout
    (tmp_path / "config").write_text(
        f"[profile lab]\naws_access_key_id = {store.access_key}\naws_secret_access_key = {store.secret_key}\nendpoint_url = {store.endpoint}\n"
    )
    env = penstock.env | store.env | {"PATH": f"{binary().parent}:{os.environ['PATH']}", "AWS_CONFIG_FILE": str(tmp_path / "config")}
    for bucket in OBJECTS:
        store.client.create_bucket(Bucket=bucket)

    def prepare():
        for bucket, keys in OBJECTS.items():
            for key in set(keys) - set(store.keys(bucket)):
                store.client.put_object(Bucket=bucket, Key=key, Body=archive if key.endswith("gz") else b"x")
        for name in FILES:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(name)
        (tmp_path / "names").write_text("train/1.tar\n")
        (tmp_path / "jobs.txt").write_text("cp id s3://data/\nls s3://data/\n")

    def run(line):
        return subprocess.run(["bash", "-o", "pipefail", "-c", line], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120)

    run.prepare, run.client = prepare, store.client
    return run


def test_the_examples_work(shell, penstock):
    for verb in VERBS:
        text = penstock.run(verb, "--help").ok().out.partition("\nExamples:\n")[2].partition("\n\n")[0]
        examples = [line.strip() for line in text.splitlines() if re.match(r"  \S", line)]
        assert examples and all("penstock" in line for line in examples)
        if verb != "mb":  # rb has just removed the bucket
            shell.prepare()
        if verb == "rb":
            for key in shell.client.list_objects_v2(Bucket="cifar10")["Contents"]:
                shell.client.delete_object(Bucket="cifar10", Key=key["Key"])
        for line in examples:
            if line == "penstock rm cifar10":  # a run, not a bucket
                continue
            done = shell(line)
            assert done.returncode == 0, (line, done.stdout, done.stderr)
            if "--json" in line:
                json.loads(done.stdout)

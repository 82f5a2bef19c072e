"""penstock metrics: files of real writers of metrics, the usage of steps, and files that are
damaged or still being written."""
import json
import math
import re
import subprocess

import pytest
from harness.fault_proxy import s3_error
from harness.program import TOP, Penstock
from harness.waiting import wait_for
from harness.workflows import s3_place, write_workflow

WRITERS = """
import sys
import numpy
from tensorboardX import SummaryWriter
from torch.utils.tensorboard import SummaryWriter as TorchWriter

out = sys.argv[1]
for first, last in ((0, 120), (100, 200)):  # killed at 120, resumed at 100
    writer = SummaryWriter(out + "/logs/x", filename_suffix=f".{first}")  # files of one second have one name
    for step in range(first, last):
        writer.add_scalar("train/loss", step + first / 1000, step)
    writer.add_histogram("weights", numpy.arange(1000.0), last)
    writer.add_image("picture", numpy.random.rand(3, 800, 800), last)
    writer.add_text("note", "text", last)
    writer.close()
writer = TorchWriter(out + "/logs/torch")
for step, value in enumerate((1.0, float("nan"), float("inf"))):
    writer.add_scalar("tensor", value, step, new_style=True)
    writer.add_scalar("simple", value, step)
writer.add_hparams({"lr": 0.1}, {"best": 0.5}, run_name="h")
writer.close()
"""
# Training without an MLflow server: MLflow's client writes a directory of files or an SQLite database.
MLFLOW = """
import os, sys, mlflow

mlflow.set_tracking_uri(sys.argv[1])
with mlflow.start_run() as run:
    for step in range(3):
        mlflow.log_metric("val/acc", step / 2, step=step)
    mlflow.log_metric("broken", float("nan"))
    print(run.info.experiment_id, run.info.run_id, sep="/")
"""
# A fake NVML with two GPUs, whose minor numbers are not in the order of their indexes.
NVML = """
static int minors[] = {1, 0};
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device) { *device = &minors[i]; return 0; }
int nvmlDeviceGetMinorNumber(void *device, unsigned *minor) { *minor = *(int *)device; return 0; }
int nvmlDeviceGetUtilizationRates(void *device, unsigned out[2]) { out[0] = *(int *)device ? 25 : 90; return 0; }
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long out[3]) { out[2] = *(int *)device ? 1000 : 7000; return 0; }
"""


@pytest.fixture(scope="module")
def written(determined_venv, tmp_path_factory):
    """A directory with the event files of TensorBoard's writers."""
    folder = tmp_path_factory.mktemp("written")
    subprocess.run([determined_venv / "bin" / "python", "-c", WRITERS, folder], check=True, capture_output=True, timeout=120)
    return folder


def series(penstock, *words, **options):
    return {found["name"]: found["points"] for found in penstock.run("metrics", *words, "--json", **options).ok().json()}


# The training uses no server. The sync uploads MLflow's database to the bucket once the database is
# closed.
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["mlruns", "mlflow.db"])
def test_the_stores_of_mlflow_itself(penstock, tracking_venv, store, tmp_path, name):
    (tmp_path / "trainer.py").write_text(MLFLOW)
    uri = "file://$STORAGE_PATH/output/mlruns" if name == "mlruns" else "sqlite:///$STORAGE_PATH/output/mlflow.db"
    env = {"PYTHONDONTWRITEBYTECODE": "", "MLFLOW_DISABLE_TELEMETRY": "true", "GIT_PYTHON_REFRESH": "quiet", "MLFLOW_ALLOW_FILE_STORE": "true"}
    path = write_workflow(
        tmp_path, f"{tracking_venv}/bin/python {tmp_path}/trainer.py {uri}", name="t", output=s3_place(store, "/run"),
        resources={"tasks": 1, "cpusPerTask": 1, "memPerCpu": 2048, "gpus": 0}, env=[{"key": key, "value": value} for key, value in env.items()],
    )  # fmt: skip
    store.client.create_bucket(Bucket="out")

    run = penstock.run("run", path, deadline_s=300).ok()

    tracked = re.search(r"^(\w+/\w{32})$", run.out, re.M)[1]
    for words in (["t"], ["s3://out/run"]):
        found = series(penstock, *words, env=store.env)
        assert [point[::2] for point in found[f"{name}/{tracked}/val/acc"]] == [[0, 0], [1, 0.5], [2, 1]], found
        assert [point[::2] for point in found[f"{name}/{tracked}/broken"]] == [[0, "NaN"]]


# The retention removes a checkpoint between the listing and the request for its commit.
def test_a_commit_that_was_removed_is_not_a_problem(penstock, store, fault_proxy):
    store.client.create_bucket(Bucket="out")
    store.client.put_object(Bucket="out", Key="a/metrics.jsonl", Body=b'{"step": 1, "loss": 2}\n')
    store.client.put_object(Bucket="out", Key="a/checkpoints/step-1.pt.COMMIT.json", Body=b"{}")
    fault_proxy.fault(method="GET", path="COMMIT.json", status=404, body=s3_error("NoSuchKey"))

    run = penstock.run("metrics", "s3://out/a", "--json", env=store.env | {"AWS_ENDPOINT_URL": fault_proxy.url}).ok()

    assert [one["name"] for one in run.json()] == ["loss"], run.json()
    assert fault_proxy.seen(path="COMMIT.json") and "COMMIT.json" not in run.err


# A database beyond the limit would otherwise be fetched and dropped at each poll.
def test_a_database_that_is_too_large_is_not_fetched(penstock, store, fault_proxy):
    store.client.create_bucket(Bucket="out")
    store.client.put_object(Bucket="out", Key="a/mlflow.db", Body=bytes(63 << 20))
    store.client.put_object(Bucket="out", Key="a/metrics.jsonl", Body=b'{"step": 1, "loss": 2}\n')

    run = penstock.run("metrics", "s3://out/a", "--json", env=store.env | {"AWS_ENDPOINT_URL": fault_proxy.url}).ok()

    assert [one["name"] for one in run.json()] == ["loss"], run.json()
    assert "mlflow.db" in run.err and "62 MiB" in run.err
    assert fault_proxy.seen(path="metrics.jsonl") and not fault_proxy.seen(path="mlflow.db")


def test_event_files_of_real_writers(penstock, written):
    found = series(penstock, written)
    loss = found["logs/x/train/loss"]
    assert [point[0] for point in loss] == list(range(200))
    assert loss[99][2] == 99 and math.isclose(loss[100][2], 100.1, rel_tol=1e-6)
    assert all(1.6e12 < point[1] < 1e13 for point in loss)
    repeated = next(one["repeated"] for one in penstock.run("metrics", written, "train/loss", "--json").ok().json())
    assert [(first, last) for first, last, time in repeated if 1.6e12 < time < 1e13] == [(100, 119)]
    for tag in ("simple", "tensor"):
        assert [point[2] for point in found[f"logs/torch/{tag}"]] == [1.0, "NaN", "Infinity"]
    assert any(name.endswith("/best") for name in found)
    assert not any(word in name for name in found for word in ("weights", "picture", "note"))


def test_names_select_and_the_forms_agree(penstock, written):
    table = penstock.run("metrics", written, env={"LC_ALL": "C"}).ok().out
    assert "logs/x/train/loss" in table and "▁" not in table
    assert "▁" in penstock.run("metrics", written, env={"LC_ALL": "C.UTF-8"}).ok().out
    plot = penstock.run("metrics", written, "train/loss", env={"LC_ALL": "C.UTF-8"}).ok().out
    assert plot.startswith("logs/x/train/loss: 199.1 at step 199\n") and any(0x2800 < ord(c) < 0x2900 for c in plot)
    assert "*" in penstock.run("metrics", written, "*loss", env={"LC_ALL": "C"}).ok().out
    assert "2 of 3 points are not finite" in penstock.run("metrics", written, "simple").ok().out
    lines = penstock.run("metrics", written, "*loss", "--csv").ok().out.splitlines()
    assert lines[0] == "name,step,time_ms,value" and len(lines) == 201 and lines[1].startswith("logs/x/train/loss,0,")
    few = penstock.run("metrics", written, "*loss", "--csv", "--points", "7").ok().out.splitlines()[1:]
    assert len(few) == 7 and few[-1] == lines[-1] and set(few) < set(lines)
    one, = penstock.run("metrics", written, "*loss", "--json", "--points", "1").ok().json()
    assert one["every"] == 200 and [point[0] for point in one["points"]] == [199]
    penstock.run("metrics", written, "--json", "--points", "0").exits(64)
    penstock.run("metrics", written, "--points", "7").exits(64)
    assert "'logs/torch/simple'" in penstock.run("metrics", written, "logs/torch/simpel").exits(66).err
    penstock.run("metrics", written, "--json", "--csv").exits(64)


def test_a_damaged_file_is_read_as_far_as_it_goes(penstock, written, tmp_path):
    whole = next((written / "logs" / "torch").glob("events*")).read_bytes()
    for name, content in (("cut", whole[:-5]), ("flipped", whole[:9] + b"\xff" + whole[10:]), ("empty", b"")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "events.out.tfevents.1.node").write_bytes(content)
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2}\n{"step": 2, "lo')
    done = penstock.run("metrics", tmp_path, "--json").ok()
    names = {found["name"] for found in done.json()}
    assert "loss" in names and "cut/tensor" in names and not any(name.startswith("flipped") for name in names)
    assert "'cut/events.out.tfevents.1.node': byte" in done.err and "'flipped/events.out.tfevents.1.node': byte 0" in done.err
    assert "'metrics.jsonl': byte 23" in done.err and "empty" not in done.err
    (tmp_path / "hidden.jsonl").write_text("")
    assert {found["name"] for found in penstock.run("metrics", f"{tmp_path}//", "--json").ok().json()} == names
    (tmp_path / "nothing").mkdir()
    penstock.run("metrics", tmp_path / "nothing").exits(66)
    assert penstock.run("metrics", tmp_path / "nothing", "--json").ok().json() == []


def test_a_run_has_its_metrics_and_the_usage_of_its_steps(penstock, store, tmp_path, wait_for):
    """Metrics and usage are read from the home, from the store, and from the home of the second
    attempt."""
    step = """python3 -c '
import json, os, time
from pathlib import Path
out = Path(os.environ["DEEPSQUARE_OUTPUT"])
block = bytearray(os.urandom(1)) * 60_000_000
with open(out / "metrics.jsonl", "a") as log:
    print(json.dumps({"step": 1, "loss": 0.5}), file=log)
print("begun", flush=True)
end = time.monotonic() + 60
while os.environ["PENSTOCK_ATTEMPT"] == "1" and not (out / "go").exists() and time.monotonic() < end:
    sum(range(1000))
'"""
    path = write_workflow(tmp_path, step, name="fit", named='a, "b"', output=s3_place(store))
    run = penstock.popen("run", path)
    run.wait_for_output("begun")
    identity = penstock.ps()[0]["id"]
    usage = penstock.home / "runs" / identity / "log" / "1.usage"
    busy = lambda: [line for line in usage.read_text().splitlines()[2:] if float(line.rsplit(",", 6)[1]) > 0]  # noqa: E731
    wait_for(lambda: usage.exists() and busy(), what="a sample while the step computes, after the first one")
    live = series(penstock, "fit", "usage/*")
    cpu = live['usage/a, "b"/cpu']
    assert 0 < max(point[2] for point in cpu) < 4 and cpu[0][0] is None
    assert live['usage/a, "b"/memory'][-1][2] > 60e6
    (penstock.home / "runs" / identity / "storage" / "output" / "go").touch()
    run.wait(60).ok()
    assert series(penstock, "fit", "loss") == {"loss": [[1, None, 0.5]]}
    place = series(penstock, "s3://out", env=store.env)
    assert place["loss"] and place['usage/a, "b"/cpu'][0] == cpu[0]
    usage.unlink()
    assert series(penstock, "fit")['usage/a, "b"/cpu'][0] == cpu[0]
    other = Penstock(tmp_path / "other")
    other.run("run", path).ok()
    assert other.ps()[0]["attempt"] == 2 and series(other, "fit")['usage/a, "b"/cpu'][0] == cpu[0]
    other.close()
    penstock.run("metrics", "s3://missing", env=store.env).exits(66)


def test_the_use_of_gpus_is_that_of_the_claimed_ones(penstock, tmp_path, wait_for):
    source = tmp_path / "nvml.c"
    source.write_text(NVML)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "libnvidia-ml.so.1", source], check=True)
    path = write_workflow(tmp_path, "touch began; while [ ! -e go ]; do sleep 0.05; done", resources={"tasks": 1, "gpusPerTask": 1}, name="g")
    run = penstock.popen("run", path, env={"PENSTOCK_GPUS": "2", "LD_LIBRARY_PATH": str(tmp_path)})
    wait_for(lambda: list((penstock.home / "runs").glob("*/storage/began")), what="the step")
    identity = penstock.ps()[0]["id"]
    usage = penstock.home / "runs" / identity / "log" / "1.usage"
    wait_for(lambda: usage.exists() and usage.read_text().count("\n") >= 2, what="a sample")
    (penstock.home / "runs" / identity / "storage" / "go").touch()
    run.wait(60).ok()
    found = series(penstock, "g")
    assert (found["usage/s1/gpu"][0][2], found["usage/s1/gpu_memory"][0][2]) == (0.9, 7000)

"""Runs of experiment trackers: one tracked run for all attempts of a run, with the run's end state,
and with a link in `show`."""
import functools
import hashlib
import json
import re
import shutil
import signal

import pytest

from harness.mlflow import FakeMlflow, Mlflow
from harness.program import TOP, Penstock
from harness.workflows import s3_place, write_workflow

WAIT = "trap 'exit 0' TERM; while :; do sleep 0.05; done"  # catches SIGTERM, and then ends at once
# The modules of an environment are compiled once, because that takes longer than a test.
CLIENT = {"PYTHONDONTWRITEBYTECODE": "", "MLFLOW_DISABLE_TELEMETRY": "true", "GIT_PYTHON_REFRESH": "quiet"}
PART = 5 << 20  # bytes; the least that S3 allows

# Logs three steps in each attempt, and an artifact. An attempt begins where the last attempt ended.
TRAINER = """
import os, signal, sys, mlflow
from pathlib import Path

signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
output = Path(os.environ["DEEPSQUARE_OUTPUT"])
state = output / "step"
begin = int(state.read_text()) if state.exists() else 0
with mlflow.start_run() as run:
    print("tracked", run.info.run_id, flush=True)
    for step in range(begin, begin + 3):
        mlflow.log_metric("loss", 1 / (step + 1), step=step)
    model = Path(f"model-{begin}.bin")
    model.write_bytes(os.urandom(int(os.environ["SIZE"])))
    mlflow.log_artifact(str(model))
    state.write_text(str(begin + 3))
    if begin == 0:
        print("saved", flush=True)
        while True:
            signal.pause()
"""


@pytest.fixture
def fake():
    server = FakeMlflow()
    yield server
    server.close()


@pytest.fixture
def tracked(tmp_path, fake):
    """tracked(*commands, **fields): a workflow whose steps report to the fake server."""
    return functools.partial(write_workflow, tmp_path, name="t", tracking={"mlflow": {"uri": fake.uri, "experiment": "my runs"}})


def shown(penstock, name="t"):
    return penstock.run("show", "--json", name).json()["tracking"]


def attempt_until_saved(penstock, path, how=signal.SIGTERM):
    run = penstock.popen("run", path)
    run.wait_for_output("^saved", 300)
    run.send(how)
    return run.wait(120)


# ---- with a fake server ----


# The steps find the run by the variables that MLflow's client reads.
def test_steps_get_the_run_and_show_has_its_link(penstock, tracked, fake):
    run = penstock.run("run", tracked('echo "$MLFLOW_TRACKING_URI|$MLFLOW_EXPERIMENT_NAME|$MLFLOW_RUN_ID"')).ok()

    (tracked_run,) = fake.runs
    assert f"{fake.uri}|my runs|{tracked_run}\n" in run.out
    assert fake.runs[tracked_run]["name"] == "t"
    assert fake.runs[tracked_run]["tags"]["penstock.run"] == penstock.run("show", "--json", "t").json()["id"]
    assert fake.runs[tracked_run]["tags"]["penstock.began"] == "1"
    assert fake.runs[tracked_run]["statuses"] == ["RUNNING", "FINISHED"] and fake.runs[tracked_run]["end_time"]
    (one,) = shown(penstock)
    assert (one["tracker"], one["run"]) == ("mlflow", tracked_run)
    assert one["url"] == f"{fake.uri}/#/experiments/1/runs/{tracked_run}"
    assert one["url"] in penstock.run("show", "t").ok().out


# An attempt that resumes continues the tracked run; an attempt that starts from scratch gets a new
# one.
def test_a_resumed_attempt_has_the_same_run(penstock, tracked, fake):
    path = tracked(f'echo "id $MLFLOW_RUN_ID"; [ $PENSTOCK_ATTEMPT != 1 ] && exit; echo saved; {WAIT}')

    first = attempt_until_saved(penstock, path).exits(75)
    between = dict(next(iter(fake.runs.values())), statuses=list(next(iter(fake.runs.values()))["statuses"]))
    second = penstock.run("run", path).ok()
    third = penstock.run("run", path).ok()

    old, new = fake.runs
    assert between["statuses"] == ["RUNNING", "SCHEDULED"] and between["end_time"] is None
    assert f"id {old}\n" in first.out and f"id {old}\n" in second.out and f"id {new}\n" in third.out
    assert fake.runs[old]["statuses"] == ["RUNNING", "SCHEDULED", "RUNNING", "FINISHED"]
    assert [fake.runs[run]["tags"]["penstock.began"] for run in (old, new)] == ["1", "3"]


# A machine that never had the run continues the tracked run: the machines share only the bucket.
def test_another_machine_continues_the_tracked_run(penstock, tracked, fake, store, tmp_path):
    path = tracked(
        f'echo "id $MLFLOW_RUN_ID"; [ $PENSTOCK_ATTEMPT != 1 ] && exit; echo saved; {WAIT}', output=s3_place(store, "/run")
    )
    other = Penstock(tmp_path / "other")

    attempt_until_saved(penstock, path).exits(75)
    second = other.run("run", path).ok()

    (only,) = fake.runs
    assert f"id {only}\n" in second.out
    assert fake.runs[only]["statuses"][-1] == "FINISHED"


# Without an output, runs of the same name have the same id in all homes, but they are different
# runs.
def test_runs_of_one_name_in_two_homes_are_two(penstock, tracked, fake, tmp_path):
    path = tracked("true")
    other = Penstock(tmp_path / "other")

    penstock.run("run", path).ok()
    other.run("run", path).ok()

    first, second = fake.runs.values()
    assert first["tags"]["penstock.run"] == second["tags"]["penstock.run"]
    assert first["tags"]["penstock.tracked"] != second["tags"]["penstock.tracked"]


# Each end state of a run has its status in MLflow.
@pytest.mark.parametrize("how, code, status", [("fail", 3, "FAILED"), ("stop", 130, "KILLED"), ("retry", 3, "FAILED")])
def test_an_end_sets_the_status(penstock, tracked, fake, how, code, status):
    fields = {"retry": {"max": 1, "backoff": "1s"}} if how == "retry" else {}
    path = tracked("exit 3" if how != "stop" else f"echo saved; {WAIT}", **fields)

    run = attempt_until_saved(penstock, path, signal.SIGINT) if how == "stop" else penstock.run("run", path)

    run.exits(code)
    (only,) = fake.runs.values()
    assert only["statuses"] == (["RUNNING", "SCHEDULED", "RUNNING", "FAILED"] if how == "retry" else ["RUNNING", status])


# A training run is worth more than its metrics: it also runs without the server, and one
# line reports the failure.
@pytest.mark.parametrize("how", ["refused", "error", "denied"])
def test_a_server_that_is_away_stops_nothing(penstock, tracked, fake, how):
    path = tracked('echo "[$MLFLOW_RUN_ID][$MLFLOW_TRACKING_URI][$MLFLOW_RUN_CONTEXT]"')
    fake.refuses = {"error": 500, "denied": 403}.get(how)
    if how == "refused":
        fake.close()

    run = penstock.run("run", path, env={"MLFLOW_RUN_ID": "of-another-training"}).ok()

    assert f"[][{fake.uri}]" in run.out and '"penstock.tracked":' in run.out
    (line,) = [line for line in run.err.splitlines() if "MLFLOW_RUN_ID" in line]
    assert fake.address in line
    assert shown(penstock)[0]["url"] is None
    if how == "refused":
        fake.close = lambda: None


# The password reaches the server and the client in the steps, and no other place.
@pytest.mark.parametrize("literal", [True, False])
def test_a_password_is_in_no_text(penstock, tracked, fake, tmp_path, literal):
    login = "trainer:the-pass-word" if literal else "${{ secrets.MLFLOW_LOGIN }}"
    path = tracked(
        'env; echo "user $MLFLOW_TRACKING_USERNAME"; printf %s "$MLFLOW_TRACKING_PASSWORD" | sha256sum',
        tracking={"mlflow": {"uri": f"http://{login}@{fake.address}"}},
    )

    run = penstock.run("run", path, env={"PENSTOCK_LOG": "debug", "PENSTOCK_SECRET_MLFLOW_LOGIN": "trainer:the-pass-word"}).ok()

    assert hashlib.sha256(b"the-pass-word").hexdigest() in run.out
    assert all(headers["Authorization"] == "Basic dHJhaW5lcjp0aGUtcGFzcy13b3Jk" for _, _, headers in fake.requests)
    fake.log("loss", 0, 0.5)
    env = {"PENSTOCK_LOG": "debug", "PENSTOCK_SECRET_MLFLOW_LOGIN": "trainer:the-pass-word"}
    good = penstock.run("metrics", "t", "mlflow/loss", env=env).ok()
    fake.refuses = 403
    fake.log("loss", 1, 0.25)
    bad = penstock.run("metrics", "t", "mlflow/loss", env=env).ok()
    assert fake.requests[-1][2]["Authorization"] == "Basic dHJhaW5lcjp0aGUtcGFzcy13b3Jk"
    texts = [good.text, bad.text, repr(fake.runs), run.out, run.err, penstock.run("show", "t").out, penstock.run("show", "--json", "t").out]
    texts += [path.read_text(errors="replace") for path in penstock.home.rglob("*") if path.is_file()]
    assert not any("the-pass-word" in text or "dHJhaW5lcjp0aGUtcGFzcy13b3Jk" in text for text in texts)
    assert shown(penstock)[0]["url"].startswith(f"http://{fake.address}/#/")


def metrics(penstock, *words, **options):
    return {one["name"]: [point[::2] for point in one["points"]] for one in penstock.run("metrics", *words, "--json", **options).ok().json()}


# A training program may write its metrics only to the server; the page polls the server.
def test_metrics_are_read_from_the_server(penstock, tracked, fake):
    penstock.run("run", tracked('echo \'{"step": 1, "acc": 0.9}\' > $STORAGE_PATH/output/metrics.jsonl')).ok()
    for step in range(3):
        fake.log("train/loss", step, 1 / (step + 1))
    fake.log("n", 0, "NaN")

    found = metrics(penstock, "t")
    lines = penstock.run("metrics", "t", "loss", "--csv").ok().out.splitlines()
    table = penstock.run("metrics", "t", "mlflow/*").ok().out
    asked = len(fake.asked("metrics/get-history"))
    fake.log("train/loss", 3, 0.25)
    later = metrics(penstock, "t")

    assert found["mlflow/train/loss"] == [[0, 1], [1, 0.5], [2, 1 / 3]] and found["mlflow/n"] == [[0, "NaN"]]
    assert found["acc"] == [[1, 0.9]]
    assert lines == ["name,step,time_ms,value"] + [f"mlflow/train/loss,{step},{1700000000000 + step},{1 / (step + 1):.17g}" for step in range(3)]
    assert "mlflow/train/loss: " in table
    assert asked == 2 and len(fake.asked("runs/get")) == 4
    assert later["mlflow/train/loss"][-1] == [3, 0.25]
    assert len(fake.asked("metrics/get-history")) == 3


# `penstock metrics` still shows the metrics in the run's output, the usage, and the metrics of the
# last read.
def test_metrics_of_a_server_that_is_away_are_those_of_the_last_read(penstock, tracked, fake):
    penstock.run("run", tracked('echo \'{"step": 1, "acc": 0.9}\' > $STORAGE_PATH/output/metrics.jsonl')).ok()
    fake.log("loss", 0, 0.5)
    before = metrics(penstock, "t")
    fake.refuses = 500

    first = penstock.run("metrics", "t", "--json").ok()
    asked = len(fake.requests)
    second = penstock.run("metrics", "t", "--json").ok()

    (line,) = first.err.splitlines()
    assert fake.address in line and second.err == first.err
    assert len(fake.requests) == asked  # the server is not asked again at once
    assert metrics(penstock, "t") == before and before["mlflow/loss"] == [[0, 0.5]] and before["acc"]


# Another person may have written the state, and could make this machine send requests to any address.
def test_the_state_of_a_run_in_a_bucket_names_no_server(penstock, tracked, fake, store, tmp_path):
    penstock.run("run", tracked("echo x > $STORAGE_PATH/output/x", output=s3_place(store, "/run"))).ok()
    fake.log("loss", 0, 0.5)
    asked = len(fake.requests)
    named = {"tracking": [{"tracker": "mlflow", "run": "0a", "url": f"{fake.uri}/#/experiments/1/runs/0a"}]}
    (key,) = [key for key in store.keys("out", "run/.penstock/") if key.endswith("/state.json")]
    state = json.loads(store.client.get_object(Bucket="out", Key=key)["Body"].read())
    store.client.put_object(Bucket="out", Key=key, Body=json.dumps(state | named | {"provenance": named}).encode())
    other = Penstock(tmp_path / "other")

    place = metrics(other, "s3://out/run", env=store.env)

    assert "mlflow/loss" not in place and len(fake.requests) == asked
    assert metrics(penstock, "t", env=store.env)["mlflow/loss"] == [[0, 0.5]]


# ---- with the real MLflow ----


@pytest.fixture
def server(tracking_venv, tmp_path, store):
    """server(*options): a server of MLflow with the keys of the store."""
    started = []
    store.client.create_bucket(Bucket="artifacts")

    def start(*options):
        env = store.env | {"MLFLOW_S3_ENDPOINT_URL": store.endpoint, "MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD": "true"}
        started.append(Mlflow(tracking_venv, tmp_path / "mlflow", *options, env=env))
        return started[-1]

    yield start
    for one in started:
        one.stop()


@pytest.fixture
def training(tracking_venv, tmp_path, store):
    """training(server, size, **env): a workflow that trains with the real client, and writes artifacts of that size."""

    def make(server, size, **env):
        trainer = tmp_path / "trainer.py"
        trainer.write_text(TRAINER)
        variables = CLIENT | {"SIZE": size} | env
        return write_workflow(
            tmp_path, f"exec {tracking_venv}/bin/python {trainer}", name="t", output=s3_place(store, "/run"),
            resources={"tasks": 1, "cpusPerTask": 1, "memPerCpu": 2048, "gpus": 0},
            env=[{"key": key, "value": str(value)} for key, value in variables.items()],
            tracking={"mlflow": {"uri": server.uri, "experiment": "two-attempts"}},
        )  # fmt: skip

    return make


def check_two_attempts(server, penstock, other, path):
    """Interrupts and resumes a training run; both attempts are one run of MLflow, whose id is
    returned."""
    attempt_until_saved(penstock, path).exits(75)
    (between,) = server.runs("two-attempts")
    other.run("run", path, deadline_s=300).ok()

    (run,) = server.runs("two-attempts")
    info = run["info"]
    assert between["info"]["status"] == "SCHEDULED"
    assert (info["status"], info["run_name"]) == ("FINISHED", "t") and info["end_time"] > between["info"]["end_time"]
    assert [step for step, _ in sorted(server.history(info["run_id"], "loss"))] == [0, 1, 2, 3, 4, 5]
    assert shown(other)[0]["url"] == f"{server.uri}/#/experiments/{info['experiment_id']}/runs/{info['run_id']}"
    return info["run_id"]


# MLflow's client itself writes to the bucket, with the keys and the endpoint of the output.
@pytest.mark.timeout(900)
def test_the_example_is_one_run_of_mlflow_with_its_artifact_in_s3(penstock, server, tracking_venv, tmp_path):
    real = server("--default-artifact-root", "s3://lines/artifacts", "--no-serve-artifacts")
    folder = shutil.copytree(TOP / "examples" / "tracking", tmp_path / "example")
    env = {"MLFLOW_TRACKING_URI": real.uri, "PATH": f"{tracking_venv}/bin:{penstock.env['PATH']}"} | CLIENT
    first = penstock.popen("run", "workflow.yaml", cwd=folder, env=env)
    first.wait_for_output(r"^step 3 ", 300)
    first.send(signal.SIGTERM)
    first.wait(120).exits(75)

    penstock.run("run", "workflow.yaml", "--env", "DELAY=0", cwd=folder, env=env, deadline_s=300).ok()

    (run,) = real.runs("lines")
    assert (run["info"]["status"], run["info"]["run_name"]) == ("FINISHED", "lines")
    assert {step for step, _ in real.history(run["info"]["run_id"], "loss")} == set(range(40))
    listed = penstock.run("ls", "--recursive", "s3://lines/artifacts/", "--endpoint-url", "embedded").ok().out
    assert re.search(rf"{run['info']['run_id']}/artifacts/state\.json$", listed, re.M), listed
    assert shown(penstock, "lines")[0]["url"].startswith(real.uri)
    # Both attempts are read; the second one repeats steps.
    assert dict(metrics(penstock, "lines")["mlflow/loss"]) == dict(sorted(real.history(run["info"]["run_id"], "loss")))
    (penstock.home / "runs" / penstock.ps()[0]["id"] / "tracked" / "index.json").unlink()
    again = metrics(penstock, "lines")["mlflow/loss"]
    assert [step for step, _ in again] == list(range(40))


# The server returns the signed URLs of the parts, and the client sends the parts to the store.
@pytest.mark.long
@pytest.mark.timeout(900)
def test_artifacts_go_through_the_proxy_of_mlflow_in_parts(penstock, server, training, store, tmp_path):
    real = server("--artifacts-destination", "s3://artifacts/proxied")
    path = training(
        real, 2 * PART + 1, MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD="true", MLFLOW_MULTIPART_UPLOAD_MINIMUM_FILE_SIZE=PART,
        MLFLOW_MULTIPART_UPLOAD_CHUNK_SIZE=PART,
    )  # fmt: skip

    run = check_two_attempts(real, penstock, Penstock(tmp_path / "other"), path)

    keys = [key for key in store.keys("artifacts", "proxied/") if run in key]
    assert sorted(key.rpartition("/")[2] for key in keys) == ["model-0.bin", "model-3.bin"]
    heads = [store.client.head_object(Bucket="artifacts", Key=key) for key in keys]
    assert all(head["ContentLength"] == 2 * PART + 1 and head["ETag"].endswith('-3"') for head in heads)


# ---- Weights & Biases ----

WANDB_TRAINER = """
import os, signal, sys, wandb
from pathlib import Path

signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
state = Path(os.environ["DEEPSQUARE_OUTPUT"], "step")
begin = int(state.read_text()) if state.exists() else 0
run = wandb.init()
print(f"tracked {run.id} {run.project}", flush=True)
for step in range(begin, begin + 3):
    run.log({"loss": 1 / (step + 1)}, step=step)
state.write_text(str(begin + 3))
if begin == 0:
    print("saved", flush=True)
    while True:
        signal.pause()
"""


# The test needs no account: the files for `wandb sync` are in the bucket, in one directory for each
# attempt, with the same id.
def test_runs_of_wandb_are_kept_in_the_output(penstock, tracking_venv, store, tmp_path):
    (tmp_path / "trainer.py").write_text(WANDB_TRAINER)
    path = write_workflow(
        tmp_path, f"exec {tracking_venv}/bin/python {tmp_path}/trainer.py", name="t", output=s3_place(store, "/run"),
        resources={"tasks": 1, "cpusPerTask": 1, "memPerCpu": 2048, "gpus": 0},
        env=[{"key": key, "value": value} for key, value in CLIENT.items()], tracking={"wandb": {"project": "pictures"}},
    )  # fmt: skip
    other = Penstock(tmp_path / "other")

    attempt_until_saved(penstock, path).exits(75)
    second = other.run("run", path, deadline_s=300).ok()

    (one,) = shown(other)
    assert (one["tracker"], one["project"], one["url"]) == ("wandb", "pictures", None) and one["place"]
    assert f"tracked {one['run']} pictures\n" in second.out
    files = [key for key in store.keys("out", "run/wandb/") if key.endswith(f"-{one['run']}.wandb")]
    assert len(files) == 2 and all(re.search(rf"/offline-run-\d+_\d+-{one['run']}/run-{one['run']}\.wandb$", key) for key in files)


# ---- Aim ----

AIM_TRAINER = """
import os, sys, aim
from pathlib import Path

output = Path(os.environ["DEEPSQUARE_OUTPUT"])
kept = output / "aim-run"
run = aim.Run(
    kept.read_text() if kept.exists() else None, repo=os.environ["AIM_REPO"], system_tracking_interval=None, capture_terminal_logs=False
)
begin = 3 if kept.exists() else 0
kept.write_text(run.hash)
print("tracked", run.hash, flush=True)
for step in range(begin, begin + 3):
    run.track(1 / (step + 1), name="loss", step=step)
print("points", [len(metric.values.sparse_list()[0]) for metric in run.metrics()], flush=True)
run.close()
sys.exit(0 if begin else 33)
"""


# Aim chooses the ids of its runs, so the training keeps the id in the output, next to the repository; a resume restores both.
@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_run_of_aim_continues_on_another_machine(penstock, aim_venv, store, tmp_path):
    (tmp_path / "trainer.py").write_text(AIM_TRAINER)
    path = write_workflow(
        tmp_path, f"exec {aim_venv}/bin/python {tmp_path}/trainer.py", name="t", output=s3_place(store, "/run"),
        resources={"tasks": 1, "cpusPerTask": 1, "memPerCpu": 2048, "gpus": 0},
        env=[{"key": "PYTHONDONTWRITEBYTECODE", "value": ""}], tracking={"aim": {}},
    )  # fmt: skip
    other = Penstock(tmp_path / "other")

    first = penstock.run("run", path, deadline_s=300).exits(33)
    second = other.run("run", path, deadline_s=300).ok()

    tracked_run = re.search(r"^tracked (\w+)$", first.out, re.M).group(1)
    assert f"tracked {tracked_run}\n" in second.out and "points [6]\n" in second.out
    assert shown(other) == [{"tracker": "aim", "run": None, "place": ".aim of the output", "url": None}]
    assert ".aim of the output" in other.run("show", "t").ok().out

"""penstock tensorboard: the real TensorBoard on logs in a store and on this machine, while tensorboardX writes them."""
import json
import subprocess
import urllib.parse
import urllib.request

import pytest
from harness.waiting import wait_for
from harness.workflows import s3_place, write_workflow

WRITER = """
import sys, time
from pathlib import Path
from tensorboardX import SummaryWriter

writer = SummaryWriter(sys.argv[1], flush_secs=1)
for step in range(10):
    writer.add_scalar("loss", 1 / (step + 1), step)
print("half", flush=True)
sys.stdin.readline()
for step in range(10, 20):
    writer.add_scalar("loss", 1 / (step + 1), step)
writer.close()
sys.stdin.readline()
"""


@pytest.fixture
def tensorboard(penstock, determined_venv):
    """tensorboard(words…): a function that gets a page of its API as JSON."""
    started = []

    def start(*words, **env):
        board = penstock.popen(
            "tensorboard", *words, "--port", "0", "--", "--reload_interval", "1",
            env={"PATH": f"{determined_venv}/bin:{penstock.env['PATH']}"} | env,
        )  # fmt: skip
        started.append(board)
        url = board.wait_for_output(r"at (http://\S+)/")[1]

        def get(page, **query):
            with urllib.request.urlopen(f"{url}/data/plugin/scalars/{page}?{urllib.parse.urlencode(query)}", timeout=30) as reply:
                return json.load(reply)

        return get

    yield start
    for board in started:
        board.send(2)
        board.wait(60).exits(130)


def writer(python, place, env):
    return subprocess.Popen([python, "-c", WRITER, place], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_logs_in_a_store_while_they_are_written(penstock, store, tensorboard, determined_venv):
    store.client.create_bucket(Bucket="logs")
    env = penstock.env | store.env | {"S3_ENDPOINT": store.endpoint}
    with writer(determined_venv / "bin" / "python", "s3://logs/fit/x", env) as process:
        assert process.stdout.readline() == "half\n"
        get = tensorboard("s3://logs/fit", **store.env)
        wait_for(lambda: "fit/x" in get("tags") and len(get("scalars", run="fit/x", tag="loss")) == 10, 60, "the first half")
        process.communicate("go\n", timeout=60)
        wait_for(lambda: len(get("scalars", run="fit/x", tag="loss")) == 20, 60, "the rest")
    # What the writer left in the store is read by the program, too.
    found = penstock.run("metrics", "s3://logs/fit", "--json", env=store.env).ok().json()
    assert [series["name"] for series in found] == ["x/loss"] and len(found[0]["points"]) == 20


@pytest.mark.long
def test_a_live_run_and_one_that_has_ended(penstock, store, tensorboard, determined_venv, tmp_path):
    """The first is read where it is written; the output of the other is in the embedded store alone."""
    step = f"{determined_venv}/bin/python -c '{WRITER}' $DEEPSQUARE_OUTPUT/logs <"
    ended = write_workflow(tmp_path, step + " /dev/null", name="ended", file="a.json",
                           output={"s3": {"bucketUrl": "s3://kept", "path": "/a:b", "endpointUrl": "embedded"}})  # fmt: skip
    penstock.run("run", ended).ok()
    (tmp_path / "fifo").unlink(missing_ok=True)
    subprocess.run(["mkfifo", tmp_path / "fifo"], check=True)
    live = penstock.popen("run", write_workflow(tmp_path, step + f"> {tmp_path}/fifo", name="live", output=s3_place(store)))
    live.wait_for_output("half")
    get = tensorboard("ended", "live")
    wait_for(lambda: {"ended/logs", "live/logs"} <= set(get("tags")), 60, "both runs")
    assert len(get("scalars", run="ended/logs", tag="loss")) == 20
    wait_for(lambda: len(get("scalars", run="live/logs", tag="loss")) == 10, 60, "the first half")
    with open(tmp_path / "fifo", "w") as fifo:
        print("go", file=fifo, flush=True)
        wait_for(lambda: len(get("scalars", run="live/logs", tag="loss")) == 20, 60, "the rest")
        print("end", file=fifo)
    live.wait(60).ok()


def test_what_cannot_be_opened_is_said(penstock, tmp_path):
    assert "pip install tensorboard" in penstock.run("tensorboard", f"{tmp_path}/", env={"PATH": "/nothing"}).exits(69).err
    penstock.run("tensorboard", "missing").exits(66)
    penstock.run("tensorboard", "--", "--help").exits(64)
    penstock.run("tensorboard", f"{tmp_path}/", "--port", "x").exits(64)
    assert "penstock sync" in penstock.run("tensorboard", "gs://bucket/k", env={"STORAGE_EMULATOR_HOST": "http://127.0.0.1:9"}).exits(69).err


def test_the_endpoint_of_the_option_is_that_of_boto3(penstock, store, tmp_path):
    store.client.create_bucket(Bucket="logs")
    program = tmp_path / "bin" / "tensorboard"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$AWS_ENDPOINT_URL_S3 $AWS_ENDPOINT_URL"\n')
    program.chmod(0o755)
    env = store.env | {"PATH": f"{program.parent}:/usr/bin:/bin", "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1"}
    result = penstock.run("tensorboard", "s3://logs/fit", "--endpoint-url", store.endpoint, env=env)
    assert result.ok().out.split() == [store.endpoint, store.endpoint]

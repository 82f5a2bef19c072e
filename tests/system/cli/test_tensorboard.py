"""penstock tensorboard: the real TensorBoard on logs in a store and on this machine, while tensorboardX writes them."""
import json
import os
import re
import subprocess
import urllib.parse
import urllib.request

import pytest
from harness.waiting import wait_for
from harness.workflows import s3_place, write_workflow

EMBEDDED = {"s3": {"bucketUrl": "s3://kept", "path": "/a:b", "endpointUrl": "embedded"}}

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
    """tensorboard(words…): starts `penstock tensorboard`; returns a function that gets a page of
    TensorBoard's API as JSON."""
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

        get.board = board
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
    # `penstock metrics` can also read the writer's files in the store.
    found = penstock.run("metrics", "s3://logs/fit", "--json", env=store.env).ok().json()
    assert [series["name"] for series in found] == ["x/loss"] and len(found[0]["points"]) == 20


def points(get, run):
    """The number of the run's points, 0 while TensorBoard starts or has not read the run."""
    try:
        return len(get("scalars", run=run, tag="loss"))
    except OSError:
        return 0


@pytest.mark.long
def test_a_live_run_and_one_that_has_ended(penstock, tensorboard, determined_venv, tmp_path):
    """The live run is read from its directory, and after its end from the embedded store, like the run that has ended."""
    step = f"{determined_venv}/bin/python -c '{WRITER}' $DEEPSQUARE_OUTPUT/logs <"
    penstock.run("run", write_workflow(tmp_path, step + " /dev/null", name="ended", file="a.json", output=EMBEDDED)).ok()
    (tmp_path / "fifo").unlink(missing_ok=True)
    subprocess.run(["mkfifo", tmp_path / "fifo"], check=True)
    place = {"s3": EMBEDDED["s3"] | {"path": "/live"}}
    live = penstock.popen("run", write_workflow(tmp_path, step + f"> {tmp_path}/fifo", name="live", output=place))
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

    def starts():
        found = re.findall(r"at (http://\S+)/", get.board.out + get.board.err)
        return found if len(found) > 1 else None

    assert len(set(wait_for(starts, 60, "the restart"))) == 1
    wait_for(lambda: points(get, "live/logs") == points(get, "ended/logs") == 20, 60, "both runs from their store")


@pytest.fixture
def words(penstock, tmp_path):
    """words(RUN…): starts `penstock tensorboard` with a fake TensorBoard, which prints its
    arguments and waits until the test ends."""
    program = tmp_path / "bin" / "tensorboard"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@" "$AWS_ENDPOINT_URL_S3"\nexec sleep 1000\n')
    program.chmod(0o755)
    started = []

    def start(*runs):
        board = penstock.popen("tensorboard", *runs, "--port", "0", env={"PATH": f"{program.parent}:/usr/bin:/bin"})
        started.append(board)
        board.wait_for_output(r"--port=\d+")
        return board

    yield start
    for board in started:
        board.send(2)
        board.wait(60).exits(130)


@pytest.fixture
def live(penstock, store, tmp_path):
    """live(): starts a run with the name "live", and returns a function that ends the run."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    def start():
        run = penstock.popen("run", write_workflow(tmp_path, f"echo begun; cat {gate}", name="live", output=s3_place(store)))
        run.wait_for_output("begun")

        def end():
            gate.write_text("go")
            run.wait(60).ok()

        return end

    return start


def test_a_run_that_ends_is_read_from_its_store(penstock, store, words, live):
    end = live()
    board = words("live")
    assert f"--logdir_spec=live:{penstock.home}/" in board.out
    end()
    board.wait_for_output("--logdir_spec=live:s3://out/")
    board.wait_for_output(store.endpoint)
    ports = re.findall(r"--port=(\d+)", board.out)
    assert len(ports) == 2 and len(set(ports)) == 1


def test_a_run_that_ends_in_another_store_does_not_end_tensorboard(penstock, words, live, tmp_path):
    penstock.run("run", write_workflow(tmp_path, "true", name="ended", file="ended.json", output=EMBEDDED)).ok()
    end = live()
    board = words("ended", "live")
    end()
    board.wait_for_output("cannot open 'live'")
    assert board.running() and board.out.count("--port=") == 1


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

"""cp, mv and sync on a terminal, and after Ctrl-C: the progress that is kept, and the way to
resume."""
import os
import re
import signal

import pytest

from harness.terminal import CTRL_C, Terminal
from harness.verbs import Fixture


@pytest.fixture
def ours(penstock, store, tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    return Fixture(penstock, store.env, store.client, folder, "penstock")


def test_progress_on_a_terminal(ours, fault_proxy):
    ours.write("a", "b")
    held = fault_proxy.fault(method="PUT", path="/b$", hold="reply")

    terminal = Terminal(ours.penstock, "cp", ours.folder / "a", ours.folder / "b", "s3://bucket/",
                        env=ours.env | {"AWS_ENDPOINT_URL": fault_proxy.url})  # fmt: skip
    held.wait()
    terminal.wait_for_output(r"1 of 2 +\[#+ +\] 1 B of 2 B")
    terminal.wait_for_output(r"1 B of 2 B, no data since \d\d:\d\d:\d\d")  # without an estimate of the time left
    held.release()
    result = terminal.wait()

    assert result.code == 0 and "2 copied, 2 B" in result.out
    assert "[#" not in result.out.rpartition("\x1b[K")[2], "a bar is left on the screen"


# --- Ctrl-C


@pytest.mark.parametrize("way", ["up", "down", "copy"])
def test_ctrl_c_leaves_nothing_half(ours, fault_proxy, way, wait_for):
    body = os.urandom(70 << 20)
    env = ours.env | {"AWS_ENDPOINT_URL": fault_proxy.url}
    if way == "up":
        (ours.folder / "big").write_bytes(body)
        held = fault_proxy.fault(method="PUT", query="partNumber=2", hold="request", times=100)
        arguments = ["cp", ours.folder / "big", "s3://bucket/big"]
    elif way == "down":
        ours.put("big", body=body)
        held = fault_proxy.fault(method="GET", path="/big$", hold=1_000_000, times=100)
        arguments = ["cp", "s3://bucket/big", ours.folder / "out"]
    else:
        ours.put("big", body=body[:1000])
        held = fault_proxy.fault(method="PUT", path="/copy$", hold="request", times=100)
        arguments = ["cp", "s3://bucket/big", "s3://bucket/copy"]

    process = ours.penstock.popen(*arguments, "--no-resume", env=env)
    held.wait()
    process.send(signal.SIGINT)
    result = process.wait()
    held.release()

    result.exits(130)
    assert "0 copied" in result.err
    assert "Uploads" not in ours.client.list_multipart_uploads(Bucket="bucket")
    assert [key for key in ours.keys() if key != "big"] == [] and (way != "up" or ours.keys() == [])
    assert not (ours.folder / "out").exists()


# A large transfer keeps its progress without an option, and reports that; the next sync does not
# take the progress for a file of the user.
@pytest.mark.parametrize("verb", ["cp", "mv", "sync"])
@pytest.mark.parametrize("way", ["up", "down"])
def test_ctrl_c_keeps_the_progress_of_a_large_transfer(ours, fault_proxy, verb, way, wait_for):
    body = os.urandom(80 << 20)
    env = ours.env | {"AWS_ENDPOINT_URL": fault_proxy.url}
    here = ours.folder / "d"
    here.mkdir()
    if way == "up":
        (here / "big").write_bytes(body)
        held = fault_proxy.fault(method="PUT", query="partNumber=[6-9]&", hold="request", times=1000)
        places = ["d/", "s3://bucket/"]
    else:
        ours.put("big", body=body)
        held = fault_proxy.fault(method="GET", path="/big$", skip=3, hold="request", times=1000)
        places = ["s3://bucket/", "d/"]
    options = {"cp": ["-r"], "mv": ["-r"], "sync": ["--delete"]}[verb]

    def moved(since=0):
        return sum(each.received + each.sent for each in fault_proxy.seen(path="/big$") if each.ended and each.number >= since)

    process = ours.penstock.popen(verb, *options, *places, env=env, cwd=ours.folder)
    wait_for(lambda: held.hits and moved() >= 24 << 20, 60, "a part of the object")
    process.send(signal.SIGINT)
    interrupted = process.wait().exits(130)
    fault_proxy.clear()
    before = len(fault_proxy.seen())
    again = ours(verb, *options, *places, env={"AWS_ENDPOINT_URL": fault_proxy.url}).ok()

    kept = re.search(r"kept ([0-9.]+) MB of an unfinished item: the same command resumes", interrupted.err)
    # The proxy has passed on 24 MiB, but the program may not have read all of them.
    assert kept and float(kept[1]) >= 8, interrupted.err
    assert moved(before) <= len(body) - (8 << 20), "the whole object was moved again"
    assert "kept" not in again.err
    assert (ours.bytes("big") if way == "up" else (here / "big").read_bytes()) == body
    assert "Uploads" not in ours.client.list_multipart_uploads(Bucket="bucket")
    assert sorted(os.listdir(here)) == ([] if way == "up" and verb == "mv" else ["big"])


def test_ctrl_c_of_a_copy_names_the_option_that_skips_what_exists(ours, fault_proxy):
    ours.write(*(f"d/{number}" for number in range(60)))
    held = fault_proxy.fault(method="PUT", skip=20, hold="request", times=1000)

    process = ours.penstock.popen("cp", "-r", "d/", "s3://bucket/", env=ours.env | {"AWS_ENDPOINT_URL": fault_proxy.url}, cwd=ours.folder)
    held.wait()
    process.send(signal.SIGINT)
    result = process.wait().exits(130)
    fault_proxy.clear()

    assert "interrupted: " in result.err and "--no-clobber" in result.err


# Ctrl-C on a terminal, while many small files are in flight.
def test_ctrl_c_on_a_terminal(ours, fault_proxy):
    ours.write(*(f"d/{number}" for number in range(200)))
    held = fault_proxy.fault(method="PUT", skip=20, hold="request", times=1000)

    terminal = Terminal(ours.penstock, "sync", ours.folder / "d", "s3://bucket/", env=ours.env | {"AWS_ENDPOINT_URL": fault_proxy.url})
    held.wait()
    terminal.press(CTRL_C)
    result = terminal.wait()
    fault_proxy.clear()

    assert result.code == 130 and "interrupted: " in result.out
    assert all(ours.bytes(key) == b"d/" + key.encode() for key in ours.keys())

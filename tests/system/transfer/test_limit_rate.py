"""--limit-rate of cp, mv, sync and batch: bytes per second of everything that a command moves."""
import os
import re
import signal

import pytest

from harness.verbs import Fixture
from harness.waiting import wait_for

RATE = 1_000_000


@pytest.fixture
def ours(penstock, store, tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    return Fixture(penstock, store.env, store.client, folder, "penstock")


def seconds(result):
    return result.ok().seconds


def test_a_large_object_moves_no_faster_both_ways(ours):
    (ours.folder / "big").write_bytes(os.urandom(3 * RATE))

    up = seconds(ours("cp", "--limit-rate", "1000000", "big", "s3://bucket/"))
    down = seconds(ours("cp", "--limit-rate", "1000000", "s3://bucket/big", "back"))

    assert up > 2.5 and down > 2.5
    assert ours.read("back") == ours.read("big")


# Two engines move small objects, and share the limit.
def test_many_small_objects_move_no_faster(ours):
    body = os.urandom(20_000)
    (ours.folder / "d").mkdir()
    for number in range(100):
        (ours.folder / f"d/{number}").write_bytes(body)

    up = seconds(ours("sync", "--limit-rate", "1000000", "d", "s3://bucket/"))
    down = seconds(ours("mv", "-r", "--limit-rate", "1000000", "s3://bucket/", "back/"))

    assert up > 1.5 and down > 1.5
    assert ours.files("back") == ours.files("d") and ours.keys() == []


def test_the_lines_of_a_batch_share_it(ours):
    (ours.folder / "a").write_bytes(os.urandom(RATE))
    (ours.folder / "jobs").write_text("".join(f"cp a s3://bucket/{number}\n" for number in range(3)))

    assert seconds(ours("batch", "--limit-rate", "1M", "jobs")) > 2.2
    (ours.folder / "jobs").write_text("cp --limit-rate 1M a s3://bucket/x\n")
    assert "--limit-rate" in ours("batch", "jobs").exits(64).err


@pytest.mark.parametrize("wrong", ["0", "much", "-5", "100"])
def test_a_rate_that_is_none_is_refused(ours, wrong):
    assert "--limit-rate" in ours("cp", "--limit-rate=" + wrong, "a", "s3://bucket/").exits(64).err


# Without the limit the rest of the bodies would be sent at once.
def test_an_interrupt_sends_nothing_more(ours, penstock, store, fault_proxy):
    (ours.folder / "d").mkdir()
    for number in range(4):
        (ours.folder / f"d/{number}").write_bytes(os.urandom(RATE))

    process = penstock.popen("sync", "--limit-rate", "500000", "d", "s3://bucket/", env=store.env | {"AWS_ENDPOINT_URL": fault_proxy.url}, cwd=ours.folder)
    wait_for(lambda: fault_proxy.seen("PUT"))
    process.send(signal.SIGINT)
    result = process.wait().exits(130)

    assert re.search(r"interrupted: 0 copied", result.err) and ours.keys() == []

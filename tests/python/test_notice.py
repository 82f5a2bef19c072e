"""The functions that tell a training program about preemption notices, deadlines and requests to save."""
import json
import time

import pytest

from penstock import checkpoint


@pytest.fixture
def told(tmp_path, monkeypatch):
    path = tmp_path / "preempt"
    monkeypatch.setenv("PENSTOCK_PREEMPT_FILE", str(path))
    return path


def test_without_a_run_nobody_stops_and_there_is_no_deadline():
    assert (checkpoint.should_stop(), checkpoint.should_stop(everywhere=True)) == (False, False)
    assert (checkpoint.notice(), checkpoint.deadline(), checkpoint.done()) == (None, None, None)


def test_the_preempt_file_says_to_stop_and_until_when(told):
    before = (checkpoint.should_stop(), checkpoint.notice(), checkpoint.deadline())
    told.write_text(json.dumps({"source": "gcp", "reason": "the machine is taken away", "deadline": 1795251600.5, "grace_s": 25}))

    assert before == (False, None, None)
    assert checkpoint.should_stop() is True
    assert checkpoint.notice() == ("gcp", "the machine is taken away", 1795251600.5)
    assert checkpoint.deadline() == 1795251600.5


@pytest.mark.parametrize("content", ["", "{", "[]", '{"deadline": "soon", "source": null}', '{"deadline": true}', "\x00\xff"])
def test_a_notice_that_says_nothing_is_one_all_the_same(told, content):
    told.write_text(content)

    assert checkpoint.should_stop() and checkpoint.notice() == ("", "", None) and checkpoint.deadline() is None


# A rebalance recommendation, for example, asks for a save: the training saves once for each
# request, and continues.
def test_a_notice_that_it_may_happen_soon_asks_for_a_save(told, tmp_path, monkeypatch):
    ask = tmp_path / "save"
    unset = checkpoint.should_save()
    monkeypatch.setenv("PENSTOCK_SAVE_FILE", str(ask))
    before = checkpoint.should_save()
    ask.write_text('{"source": "aws", "reason": "rebalance recommendation"}')
    soon = [checkpoint.should_stop(), checkpoint.should_save(), checkpoint.should_save(), checkpoint.should_stop(), checkpoint.notice()]
    other = tmp_path / "other"
    other.write_text('{"source": "aws"}')
    other.replace(ask)
    again = [checkpoint.should_save(everywhere=True), checkpoint.should_save()]
    told.write_text('{"source": "aws", "deadline": 900}')

    assert (unset, before) == (False, False) and soon == [False, True, False, False, None] and again == [True, False]
    assert (checkpoint.should_stop(), checkpoint.should_save()) == (True, False)


def test_the_earlier_of_two_deadlines_counts(told, monkeypatch):
    monkeypatch.setenv("PENSTOCK_DEADLINE", "1000.25")
    alone = checkpoint.deadline()
    told.write_text('{"deadline": 900}')
    both = checkpoint.deadline()
    monkeypatch.setenv("PENSTOCK_DEADLINE", "800")

    assert (alone, both, checkpoint.deadline()) == (1000.25, 900.0, 800.0)
    monkeypatch.setenv("PENSTOCK_DEADLINE", "")
    assert checkpoint.deadline() == 900.0


def test_done_waits_for_the_save_and_leaves_the_marker(place, tmp_path, monkeypatch):
    marker = tmp_path / "done"
    monkeypatch.setenv("PENSTOCK_DONE_FILE", str(marker))

    pending = checkpoint.save({"x": 1}, 1, format="safetensors", asynchronous=True)
    checkpoint.done()

    assert marker.exists() and pending.done() and checkpoint.latest().step == 1


# The check is cheap enough for every batch: it takes less than 100 µs of CPU time.
def test_asking_costs_next_to_nothing(told):
    begin = time.process_time()
    for _ in range(10_000):
        checkpoint.should_stop()

    assert time.process_time() - begin < 10_000 * 100e-6

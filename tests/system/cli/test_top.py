"""penstock top, ps --watch and the metrics of watch: on a terminal with its keys, and without one."""
import re
import urllib.request

import pytest
from harness.terminal import Terminal
from harness.workflows import write_workflow

BUSY = "echo begun; while [ ! -e go ]; do :; done"


@pytest.fixture
def busy(penstock, tmp_path):
    """A run whose step keeps a processor busy until the file `go` is in its storage."""
    run = penstock.popen("run", write_workflow(tmp_path, BUSY, name="busy", named="spin <b>"))
    run.wait_for_output("^begun$")
    run.id = penstock.ps()[0]["id"]
    yield run
    (penstock.home / "runs" / run.id / "storage" / "go").touch()


def test_one_reading_without_a_terminal(penstock, busy):
    [row] = penstock.run("top", "--json").ok().json()
    assert (row["name"], row["id"], row["state"], row["attempt"], row["steps"]) == ("busy", busy.id, "running", 1, "spin <b>")
    assert 0.01 < row["cpu"] < 2 and row["memory"] > 100_000 and row["gpu"] is None
    table = penstock.run("top").ok().out.splitlines()
    assert table[0].split()[0] == "NAME" and table[1].split()[:3] == ["busy", busy.id, "running"]
    penstock.run("top", "--every", "1ms").exits(64)


def test_keys_of_top(penstock, busy, wait_for):
    top = Terminal(penstock, "top", "--every", "200ms")
    top.wait_for_new_output(r"> +busy")
    assert "\x1b[?1049h" in top.raw and "1 live run" in top.raw
    top.press(b"s")
    top.wait_for_new_output("Stop.*y or n")
    top.press(b"n")
    top.press(b"l")
    top.wait_for_new_output("begun")
    top.press(b"\x03")  # ends only the log
    top.wait_for_new_output(r"> +busy")
    assert top.running()
    top.press(b"s")
    top.wait_for_new_output("Stop.*y or n")
    top.press(b"y")
    wait_for(lambda: penstock.ps()[0]["state"] == "stopped", 60, "the end of the run")
    top.wait_for_new_output("0 live runs")
    top.press(b"q")
    top.wait().exits(0)
    assert top.raw.rstrip().endswith("\x1b[?1049l")


@pytest.mark.parametrize("verb", [("top",), ("ps", "--watch")])
def test_a_signal_restores_the_terminal(penstock, busy, verb):
    shown = Terminal(penstock, *verb)
    shown.wait_for_new_output("busy")
    shown.press(b"\x1a\x1c")  # keys that must not end penstock before it restores the terminal
    shown.wait_for_new_output("busy")
    shown.press()
    shown.wait().exits(130)
    assert re.search(r"\x1b\[\?25h\x1b\[\?1049l\s*$", shown.raw)


def test_ps_watch_needs_a_terminal_and_no_json(penstock):
    penstock.run("ps", "--watch").exits(64)
    penstock.run("ps", "--watch", "--json").exits(64)


def test_watch_serves_metrics_of_the_runs(penstock, busy, tmp_path):
    penstock.run("run", write_workflow(tmp_path, "exit 3", name="fails", file="f.json")).exits(3)
    watch = penstock.popen("watch", "--metrics", "0")
    url = watch.wait_for_output(r"metrics at (http://127\.0\.0\.1:\d+/metrics)")[1]
    with urllib.request.urlopen(url, timeout=30) as reply:
        text = reply.read().decode()
        assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert values['penstock_runs{state="running"}'] == "1" and values['penstock_runs{state="failed"}'] == "1"
    labels = f'{{id="{busy.id}",name="busy"}}'
    assert values[f"penstock_run_attempt{labels}"] == "1" and float(values[f"penstock_run_memory_bytes{labels}"]) > 100_000
    assert 0 < float(values[f"penstock_run_age_seconds{labels}"]) < 300 and values["penstock_watch_restarts_total"] == "0"
    assert all(f"# TYPE {name.split('{')[0]} " in text for name in values)
    watch.send(2)
    watch.wait().ok()
    penstock.run("watch", "--metrics", "x").exits(64)
    penstock.run("watch", "--once", "--metrics", "0").exits(64)

"""Tests of the scripts of `make check`: they must not report success for tests that failed or did not run."""
import json
import os
import subprocess

import pytest

from harness.program import TOP

OK = {"result": "OK", "duration": 0.1}
CMOCKA = "[==========] Running 2 test(s).\n[ RUN      ] one\n[       OK ] one\n[ RUN      ] two\n[  {} ] two\n"


@pytest.fixture
def meson_test(tmp_path):
    """meson_test(status, *entries): runs tools/meson-test with a meson that exits with `status` and writes this log."""

    def run(status, *entries):
        log = tmp_path / "build" / "meson-logs" / "testlog.json"
        log.parent.mkdir(parents=True, exist_ok=True)
        prepared = tmp_path / "prepared.json"
        prepared.write_text("".join(json.dumps({"name": f"t{i}"} | entry) + "\n" for i, entry in enumerate(entries)))
        fake = tmp_path / "bin" / "meson"
        fake.parent.mkdir(exist_ok=True)
        fake.write_text(f"#!/bin/sh\n[ -s {prepared} ] && cp {prepared} {log}\nexit {status}\n")
        fake.chmod(0o755)
        env = os.environ | {"PATH": f"{fake.parent}:{os.environ['PATH']}"}
        command = [TOP / "tools" / "meson-test", tmp_path / "build"]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    return run


def test_counts_single_tests_of_every_program(meson_test):
    result = meson_test(0, OK | {"stdout": CMOCKA.format("     OK")}, OK)

    assert (result.returncode, result.stdout.splitlines()[-1]) == (0, "3 passed, 0 failed")


@pytest.mark.parametrize(
    "status, entries, last",
    [
        (1, [OK, OK | {"result": "FAIL", "stdout": CMOCKA.format("FAILED")}], "2 passed, 1 failed"),
        (1, [OK, OK | {"result": "TIMEOUT"}], "1 passed, 1 failed"),
        (1, [OK | {"result": "ERROR", "stdout": CMOCKA.format("     OK")}], "2 passed, 1 failed"),
        (0, [], "0 passed, 0 failed"),
        (0, [OK | {"result": "SKIP"}], "0 passed, 0 failed, 1 skipped"),
        (2, [OK], "1 passed, 0 failed"),
    ],
    ids=["failed", "timeout", "crashed after its tests", "nothing ran", "all skipped", "meson failed"],
)
def test_fails_with_its_tests_and_when_none_ran(meson_test, status, entries, last):
    result = meson_test(status, *entries)

    assert (result.returncode, result.stdout.splitlines()[-1]) == (1, last)


# The log of an earlier run must not count.
def test_does_not_take_an_old_log_for_this_run(meson_test):
    assert meson_test(0, OK).returncode == 0

    assert meson_test(0).returncode == 1


def test_installer_refuses_a_group_it_does_not_know():
    result = subprocess.run([TOP / "tools" / "install-deps", "biuld"], capture_output=True, text=True, check=False)

    assert result.returncode == 64
    assert "'biuld'" in result.stderr


@pytest.fixture
def fuzz(tmp_path):
    """fuzz(*arguments): runs tools/fuzz in a copy of the tree with two targets, and with the ledger in `tmp_path`/state."""
    for path in ("tools/fuzz", "tests/fuzz/date.c", "tests/fuzz/range.c"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes((TOP / path).read_bytes())
    (tmp_path / "state").mkdir()

    def run(*arguments):
        command = ["/usr/bin/python3", tmp_path / "tools/fuzz", "--state", tmp_path / "state", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True)

    return run


def fuzz_result(**what):
    usual = {"target": "date", "seconds": 9.0, "user": 3.0, "system": 1.0, "executions": 100, "coverage": 20,
             "features": 30, "corpus": 40, "crashed": False}
    return json.dumps(usual | what) + "\n"


# No run may count twice or be lost, and a crash stays in the record.
def test_the_fuzzing_record_sums_up_what_was_done_since(fuzz, tmp_path):
    ledger = tmp_path / "state" / "record.jsonl"

    ledger.write_text(fuzz_result() + fuzz_result(crashed=True, coverage=0) + fuzz_result(target="range"))
    fuzz("--record")
    fuzz("--record")
    ledger.write_text(fuzz_result(coverage=25, features=35, corpus=45))
    fuzz("--record")

    rows = [line for line in (tmp_path / "tests/fuzz/RECORD.md").read_text().splitlines() if line.startswith("| `")]
    assert rows == [
        "| `date` | 12 | 9 | 300 | 25 | 35 | 45 | 1 |",
        "| `range` | 4 | 3 | 100 | 20 | 30 | 40 | 0 |",
    ]
    assert not ledger.exists()


FAILS_ONCE = """
import pathlib
import pytest

@pytest.mark.parametrize("name", ["a b", "c"])
def test_flaky(name):
    mark = pathlib.Path("mark-" + name)
    if not mark.exists():
        mark.touch()
        assert name == "c"
"""


@pytest.fixture
def system_tests(tmp_path):
    """system_tests(code): runs tools/test-system in a tree with one file of tests."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tests" / "system").mkdir(parents=True)
    (tmp_path / "tools" / "test-system").write_bytes((TOP / "tools" / "test-system").read_bytes())
    (tmp_path / "tests" / "system" / "pytest.ini").write_text("[pytest]\ncache_dir = ../../build/pytest-cache\n")

    def run(code):
        (tmp_path / "tests" / "system" / "test_it.py").write_text(code)
        command = ["/usr/bin/python3", tmp_path / "tools" / "test-system", "-n", "1"]
        env = os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")}
        return subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


# A test that fails, and passes when it is repeated, is named in the output. The second
# time, the test fails the run.
def test_a_test_that_failed_once_is_named_recorded_and_fails_the_run_the_second_time(system_tests, tmp_path):
    name = "test_it.py::test_flaky[a b]"

    first = system_tests(FAILS_ONCE)
    (tmp_path / "mark-a b").unlink()
    second = system_tests(FAILS_ONCE)
    passes = system_tests(FAILS_ONCE)

    assert first.returncode == 0 and name in first.stdout.splitlines()[-2], first.stdout
    assert second.returncode == 1 and name in second.stdout.splitlines()[-2], second.stdout
    assert passes.returncode == 0 and name not in passes.stdout
    assert [line.split(" ", 2)[2] for line in (tmp_path / "state" / "penstock-tests" / "flaky").read_text().splitlines()] == [name, name]


def test_a_test_that_fails_twice_fails_the_run_and_is_not_taken_for_a_race(system_tests, tmp_path):
    result = system_tests("def test_broken():\n    assert False\n")

    assert result.returncode == 1 and "1 failed" in result.stdout
    assert not (tmp_path / "state").exists()

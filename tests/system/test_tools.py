"""The scripts that stand between `make check` and the truth: they must not pass what failed, or what never ran."""
import json
import os
import subprocess

import pytest

from harness.program import TOP

OK = {"result": "OK", "duration": 0.1}
CMOCKA = "[==========] Running 2 test(s).\n[ RUN      ] one\n[       OK ] one\n[ RUN      ] two\n[  {} ] two\n"


@pytest.fixture
def meson_test(tmp_path):
    """meson_test(status, *entries): tools/meson-test's result where meson exits so and leaves this log."""

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


# A log of yesterday's run must not speak for today's.
def test_does_not_take_an_old_log_for_this_run(meson_test):
    assert meson_test(0, OK).returncode == 0

    assert meson_test(0).returncode == 1


def test_installer_refuses_a_group_it_does_not_know():
    result = subprocess.run([TOP / "tools" / "install-deps", "biuld"], capture_output=True, text=True, check=False)

    assert result.returncode == 64
    assert "no group 'biuld'" in result.stderr

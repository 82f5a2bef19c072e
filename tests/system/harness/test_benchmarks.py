"""Each benchmark runs to its end; its figures do not matter here."""
import re
import subprocess

import pytest

from harness.program import TOP, binary, environment

NAMES = sorted(path.stem for path in (TOP / "bench").glob("*.py") if re.search(r"^def main\(report\)", path.read_text(), re.M))


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_runs(name):
    command = ["/usr/bin/python3", TOP / "bench" / "run", "--quick", "--no-save", name]
    done = subprocess.run(command, env=environment() | {"PENSTOCK": str(binary())}, capture_output=True, text=True, check=False)

    assert re.search(r"^\d+ figures, .* 0 benchmarks broken$", done.stdout, re.M), done.stdout + done.stderr

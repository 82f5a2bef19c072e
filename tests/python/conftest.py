"""The Python package as it was built (build/python, or where PENSTOCK_PYTHON says), away from whatever this shell has set."""
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
PACKAGE = Path(os.environ.get("PENSTOCK_PYTHON", TOP / "build" / "python")).resolve()
PATIENCE_S = 120

for name in list(os.environ):
    if name.startswith(("PENSTOCK_", "DEEPSQUARE_", "OMPI_", "PMI_", "SLURM_")) or name in ("RANK", "WORLD_SIZE"):
        del os.environ[name]
os.environ["OMP_NUM_THREADS"] = "1"  # torch's threads of several processes get into each other's way
if not (PACKAGE / "penstock" / "_native.abi3.so").exists():
    raise pytest.UsageError(f"{PACKAGE} has no Python package; `make` builds it where the headers of Python are (make deps)")
sys.path.insert(0, str(PACKAGE))
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Where checkpoints of the test go; `save()` and the others know it."""
    folder = tmp_path / "checkpoints"
    monkeypatch.setenv("PENSTOCK_CHECKPOINT_DIR", str(folder))
    return folder


class Child:
    def __init__(self, script, arguments, env):
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, *map(str, arguments)] if "\n" in script else [sys.executable, script, *map(str, arguments)],
            env=os.environ | {"PYTHONPATH": str(PACKAGE)} | env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def finished(self, code=0):
        """(what it printed, what it said on stderr)"""
        out, err = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == code, out + err
        return out, err


@pytest.fixture
def child():
    """child(script, *arguments, **env): a Python with the package; `script` is its text, or the path of a file."""
    started = []

    def start(script, *arguments, **env):
        started.append(Child(script, arguments, env))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.communicate()


@pytest.fixture
def wait_for():
    def wait(condition, what):
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, f"waited in vain for {what}"
            time.sleep(0.01)

    return wait

"""Fixtures for the built Python package (build/python, or $PENSTOCK_PYTHON), without the variables of the caller's shell."""
import os
import signal
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from python_child import PACKAGE, PATIENCE_S, Child  # noqa: E402

for name in list(os.environ):
    if name.startswith(("PENSTOCK_", "DEEPSQUARE_", "OMPI_", "PMI_", "SLURM_")) or name in ("RANK", "WORLD_SIZE"):
        del os.environ[name]
# A shell makes its background jobs ignore SIGINT, and children of such a job ignore SIGINT, too.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["OMP_NUM_THREADS"] = "1"  # torch's threads in several processes slow each other down
if not (PACKAGE / "penstock" / "_native.abi3.so").exists():
    raise pytest.UsageError(f"'{PACKAGE}' has no Python package; run `make deps`, which installs the headers of Python, and `make`")
sys.path.insert(0, str(PACKAGE))


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The checkpoint directory of the test; `save()` and the other functions use it."""
    folder = tmp_path / "checkpoints"
    monkeypatch.setenv("PENSTOCK_CHECKPOINT_DIR", str(folder))
    return folder


@pytest.fixture
def child():
    """child(script, *arguments, **env): starts Python with the package; `script` is the text of a program or the path of a file."""
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
            assert time.monotonic() < end, f"timeout: {what}"
            time.sleep(0.01)

    return wait

"""Runs the other tests with the current torch, if tools/bench-python has installed it: Debian's is too old for asynchronous distributed checkpoints."""
import os
import subprocess

import pytest

from python_child import PACKAGE, TOP


@pytest.fixture(scope="module")
def current():
    python = subprocess.run([TOP / "tools" / "bench-python", "--find"], check=True, capture_output=True, text=True).stdout.strip()
    if not python:
        pytest.skip("torch 2.15 is not installed; tools/bench-python installs it (4 GB)")
    return python


@pytest.mark.long
def test_everything_works_with_the_current_torch(current):
    names = sorted(str(path) for path in (TOP / "tests" / "python").glob("test_*.py"))
    subprocess.run([current, "-m", "pytest", "-q", "-p", "no:cacheprovider", *names], env=os.environ | {"PENSTOCK_PYTHON": str(PACKAGE)}, check=True)


# A thread of torch saves a copy of the state while the training changes the state. Damage is
# detected as in any other checkpoint.
@pytest.mark.long
def test_an_asynchronous_distributed_checkpoint_is_committed_and_checked(current, tmp_path):
    script = """
import sys, torch
import torch.distributed.checkpoint as dcp
from penstock import checkpoint, dcp as storage

state = {"w": torch.arange(1000.0), "n": {"step": 3}}
for step in (1, 2):
    saved = dcp.async_save(state, storage_writer=storage.Writer(step, metrics={"loss": step}))
    state["w"] += 1
    saved.result()
again = {"w": torch.zeros(1000), "n": {"step": 0}}
dcp.load(again, storage_reader=storage.Reader())
print(again["w"][0].item(), again["n"]["step"], [(found.step, found.metrics) for found in checkpoint.list_all()])
"""
    env = os.environ | {"PYTHONPATH": str(PACKAGE), "PENSTOCK_CHECKPOINT_DIR": str(tmp_path / "checkpoints")}

    out = subprocess.run([current, "-W", "ignore", "-c", script], env=env, check=True, capture_output=True, text=True).stdout
    (data,) = (tmp_path / "checkpoints" / "step-000000000002-1").glob("*.distcp")
    data.write_bytes(data.read_bytes().replace(b"\0\0\x80\x3f", b"\0\0\x80\x40"))
    found = subprocess.run([current, "-W", "ignore", "-c", "from penstock import dcp; print(dcp.Reader().checkpoint.step)"], env=env, capture_output=True, text=True)

    assert out.split(None, 2) == ["1.0", "3", "[(2, {'loss': 2.0}), (1, {'loss': 1.0})]\n"]
    assert found.stdout == "1\n", found.stderr

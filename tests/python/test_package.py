"""The package as a user installs it: pip into an environment of its own."""
import os
import subprocess
import sys

import pytest

from python_child import TOP


@pytest.mark.long
def test_pip_installs_it_and_it_saves_and_loads(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", TOP / "python"], check=True)

    script = "from penstock import checkpoint as c\nc.save({'x': [1, 2.5]}, 3, format='safetensors')\nprint(c.load(), c.latest().step, c.__file__)"
    env = os.environ | {"PENSTOCK_CHECKPOINT_DIR": str(tmp_path / "checkpoints")}
    env.pop("PYTHONPATH", None)
    out = subprocess.run([python, "-c", script], env=env, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    shown = subprocess.run([python, "-m", "pip", "show", "--files", "penstock"], check=True, capture_output=True, text=True).stdout

    assert out.startswith("{'x': [1, 2.5]} 3 ") and str(tmp_path / "venv") in out
    assert "Version: " in shown and "penstock/py.typed" in shown and "penstock/_native.abi3.so" in shown

"""The package as a user installs it: with pip, into a virtual environment."""
import os
import subprocess
import sys

import pytest

from python_child import TOP


def made_sdist(folder):
    script = "import sys; sys.path.insert(0, sys.argv[1]); import build_with_meson as b; print(b.build_sdist(sys.argv[2]))"
    made = subprocess.run([sys.executable, "-c", script, TOP / "python", folder], check=True, capture_output=True, text=True)
    return folder / made.stdout.strip()


# pip installs from the source tree, or from an archive of the files that the build needs.
@pytest.mark.long
@pytest.mark.parametrize("what", ["tree", "archive"])
def test_pip_installs_it_and_it_saves_and_loads(tmp_path, what):
    source = TOP / "python" if what == "tree" else made_sdist(tmp_path)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", source], check=True)

    found = "from importlib.metadata import entry_points as e\nprint([each.value for each in e(group='fsspec.specs')])"
    script = "from penstock import checkpoint as c\nc.save({'x': [1, 2.5]}, 3, format='safetensors')\nprint(c.load(), c.latest().step, c.__file__)"
    env = os.environ | {"PENSTOCK_CHECKPOINT_DIR": str(tmp_path / "checkpoints")}
    env.pop("PYTHONPATH", None)
    out = subprocess.run([python, "-c", script], env=env, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    protocols = subprocess.run([python, "-c", found], env=env, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    shown = subprocess.run([python, "-m", "pip", "show", "--files", "penstock"], check=True, capture_output=True, text=True).stdout
    program = subprocess.run([tmp_path / "venv" / "bin" / "penstock", "--version"], env=env, check=True, capture_output=True, text=True).stdout

    assert out.startswith("{'x': [1, 2.5]} 3 ") and str(tmp_path / "venv") in out
    assert protocols == "['penstock.fsspec:FileSystem']\n"
    assert "Version: " in shown and "penstock/py.typed" in shown and "penstock/_native.abi3.so" in shown
    assert program.split()[1] in shown

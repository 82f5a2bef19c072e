"""A separate Python process with the package under test."""
import os
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
PACKAGE = Path(os.environ.get("PENSTOCK_PYTHON", TOP / "build" / "python")).resolve()
PATIENCE_S = 120


class Child:
    def __init__(self, script, arguments, env):
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, *map(str, arguments)] if "\n" in script else [sys.executable, script, *map(str, arguments)],
            env=os.environ | {"PYTHONPATH": str(PACKAGE)} | env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def finished(self, code=0):
        """Waits for the end of the process; returns (standard output, standard error)."""
        out, err = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == code, out + err
        return out, err

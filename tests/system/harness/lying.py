"""Helpers for tests of faulty servers, stores and archives: a workflow whose step lists its input."""
import hashlib
import json
import re

import pytest

from . import workflows

LIST = """
import hashlib, json, os, stat, sys
top = os.fsencode(os.environ["DEEPSQUARE_INPUT"])
found = {}
for folder, folders, files in os.walk(top):
    for name in files + folders:
        path = os.path.join(folder, name)
        kind = os.lstat(path).st_mode
        shown = os.path.relpath(path, top).decode("utf-8", "backslashreplace")
        if stat.S_ISREG(kind):
            digest = hashlib.sha256(open(path, "rb").read()).hexdigest()
            found[shown] = [oct(kind & 0o7777), digest]
        elif stat.S_ISLNK(kind):
            found[shown] = ["link", os.fsdecode(os.readlink(path))]
        else:
            found[shown] = [oct(kind & 0o7777), None]
json.dump(found, open(sys.argv[1], "w"))
"""

# Short timeouts; tests of timeouts set their own.
ENV = {"PENSTOCK_NETWORK_PATIENCE": "2", "PENSTOCK_NETWORK_STALL": "2"}


def short(names, *chosen):
    """Returns the parameters of a test: `make check` runs the chosen ones, `make check-full` runs
    all."""
    assert set(chosen) <= set(names), set(chosen) - set(names)
    return [name if name in chosen else pytest.param(name, marks=pytest.mark.long) for name in names]


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def s3_place(store, path, endpoint, **more):
    return workflows.s3_place(store, path, bucket="bucket", endpoint=endpoint, createBucket=path.startswith("/out"), **more)


class Staging:
    """Runs workflows whose one step looks at its input directory."""

    def __init__(self, penstock, folder):
        self.penstock, self.folder = penstock, folder
        (folder / "list.py").write_text(LIST)
        self.seen = folder / "seen.json"

    def write(self, command=None, **job):
        command = command or f"/usr/bin/python3 {self.folder / 'list.py'} {self.seen}"
        return workflows.write_workflow(self.folder, command, named="look", **job)

    def run(self, *, env=None, **job):
        """Runs a workflow. Returns (Result, {name: (mode or "link", digest or target)} of the input, or None if no step began)."""
        self.seen.unlink(missing_ok=True)
        result = self.penstock.run("run", self.write(**job), env=ENV | (env or {}))
        return result, json.loads(self.seen.read_text()) if self.seen.exists() else None

    def fails(self, name, says, *, env=None, **job):
        """Checks that the run fails before its step, with one line that contains `name` and matches the regular expression `says`."""
        result, seen = self.run(env=env, **job)
        assert seen is None and result.code in (66, 69, 70, 77), f"exit code {result.code}, seen {seen}\n{result.text}"
        assert "Sanitizer" not in result.text, result.text
        lines = [line for line in result.err.splitlines() if re.match(r"penstock: run \w+ failed\b", line) and name in line and re.search(says, line)]
        assert len(lines) == 1, f"{len(lines)} lines with {name!r} and {says!r}\n{result.err}"
        assert not list(self.penstock.home.rglob(".penstock-unpack-*"))
        return result

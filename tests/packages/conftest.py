"""Fixtures that install the packages in bare Debian systems, as users do; `make check-packages` builds the packages first."""
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
BUILT = TOP / "build" / "packages"
TOOLS = TOP / "tools" / "package"
VERSION = re.search(r'PENSTOCK_VERSION "(.*)"', (TOP / "include" / "penstock" / "version.h").read_text()).group(1)
LONG_S = 3600


def pytest_sessionstart(session):
    if os.geteuid() != 0:
        pytest.exit("check-packages: only root can make Debian root directories; run this with sudo", 77)


class Root:
    """The root directory of a Debian system."""

    def __init__(self, path):
        self.path = path

    def run(self, *command, check=True, **env):
        """Runs a command; returns what it printed on both streams. `env` is added to a clean environment."""
        variables = ["env", *(f"{name}={value}" for name, value in env.items())] if env else []
        done = subprocess.run(
            [TOOLS / "in-root", self.path, *variables, *command],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LONG_S,
        )  # fmt: skip
        if check and done.returncode != 0:
            pytest.fail(f"{' '.join(map(str, command))} exited with {done.returncode} in {self.path.name}:\n{done.stdout[-6000:]}", False)
        return done.stdout

    def copy(self, source, name=None):
        """Copies a file to the top of the root; returns its path there."""
        name = "/" + (name or Path(source).name)
        shutil.copy(source, self.path / name[1:])
        return name

    def real_run(self, **env):
        return self.run("sh", self.copy(TOP / "tests" / "packages" / "real_run.sh"), **env)

    def files(self):
        """Returns all paths except those that apt, dpkg, the loader and users write while they work."""
        written = re.compile(r"/(var/(tmp|cache|log|lib/(apt|dpkg|systemd))|etc/ld\.so\.cache|etc/resolv\.conf|tmp|home|root|proc|sys|dev)(/|$)|/[^/]*\.(deb|sh)$")
        found = (f"/{path.relative_to(self.path)}" for path in self.path.rglob("*"))
        return {path for path in found if not written.match(path)}


@pytest.fixture(scope="session")
def make_root():
    """make_root(suite, *packages): a new Root."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-roots-"))

    def make(suite, *packages):
        path = Path(tempfile.mkdtemp(prefix=f"{suite}-", dir=folder)) / suite
        made = subprocess.run([TOOLS / "debian-root", suite, path, *packages], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if made.returncode != 0:
            pytest.exit(f"check-packages: {made.stdout.strip().splitlines()[-1]}", made.returncode)
        return Root(path)

    yield make
    shutil.rmtree(folder)


@pytest.fixture
def root(make_root):
    """root(suite, *packages): a Root that is removed after the test."""
    made = []

    def make(*arguments):
        made.append(make_root(*arguments))
        return made[-1]

    yield make
    for one in made:
        shutil.rmtree(one.path)


def built(pattern):
    """Returns the only package file that matches the pattern."""
    found = sorted(BUILT.glob(pattern))
    assert len(found) == 1, f"'{BUILT}' has {len(found)} files that match '{pattern}' instead of one; run `make packages`"
    return found[0]

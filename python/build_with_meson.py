"""What pip asks of a package to build it (PEP 517), by the build of the whole project.

The extension module is linked with the static libpenstock, so the wheel needs Debian's libcurl, OpenSSL, jansson, expat and
ISA-L, but no installation of penstock. Being abi3 it serves every Python from 3.9 on.
"""
import base64
import hashlib
import io
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parent
PACKAGE = HERE / "penstock"
MODULE = "_native.abi3.so"
# What the build reads, without its tests.
SOURCES = ("docs", "include", "meson.build", "meson_options.txt", "python", "src", "systemd", "tools")


def version():
    return re.search(r'#define PENSTOCK_VERSION "(.*)"', (TOP / "include" / "penstock" / "version.h").read_text()).group(1)


def metadata():
    summary = re.search(r'^description = "(.*)"$', (HERE / "pyproject.toml").read_text(), re.M).group(1)
    return f"Metadata-Version: 2.1\nName: penstock\nVersion: {version()}\nSummary: {summary}\nRequires-Python: >=3.9\n"


def tag():
    return "cp39-abi3-" + re.sub(r"[-.]", "_", sysconfig.get_platform())


def dist_info():
    return f"penstock-{version()}.dist-info"


def build_module(folder):
    """The path of the extension module, built below `folder`."""
    # pip hides the system's Python packages from what it starts, Meson's own among them.
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONNOUSERSITE", "PYTHONHOME")}
    program = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
    setup = ["meson", "setup", folder, TOP, "--buildtype", "release", "-Dtests=false", "-Dpython=enabled", f"-Dpython-program={program}"]
    for command in (setup, ["ninja", "-C", folder, f"python/penstock/{MODULE}"]):
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(map(str, command))} failed; `make deps` installs what it needs\n{done.stdout[-4000:]}")
    return Path(folder) / "python" / "penstock" / MODULE


def files(module):
    """What a wheel holds, but for the record of it: (name, content)."""
    for path in sorted(PACKAGE.iterdir()):
        if path.suffix in (".py", ".pyi", ".typed") or path.name == "py.typed":
            yield f"penstock/{path.name}", path.read_bytes()
    yield f"penstock/{MODULE}", module.read_bytes()
    yield f"{dist_info()}/METADATA", metadata().encode()
    yield f"{dist_info()}/WHEEL", f"Wheel-Version: 1.0\nGenerator: penstock\nRoot-Is-Purelib: false\nTag: {tag()}\n".encode()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name = f"penstock-{version()}-{tag()}.whl"
    record = []
    with tempfile.TemporaryDirectory(prefix="penstock-build-") as folder, zipfile.ZipFile(Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for file, content in files(build_module(folder)):
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{file},sha256={digest},{len(content)}\n")
            wheel.writestr(file, content)
        wheel.writestr(f"{dist_info()}/RECORD", "".join(record) + f"{dist_info()}/RECORD,,\n")
    return name


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    folder = Path(metadata_directory) / dist_info()
    folder.mkdir()
    (folder / "METADATA").write_text(metadata())
    return folder.name


def build_sdist(sdist_directory, config_settings=None):
    """The parts of the source tree that the package is built from, and at their top what pip looks for."""
    base = f"penstock-{version()}"
    tops = {"PKG-INFO": metadata(), "pyproject.toml": (HERE / "pyproject.toml").read_text().replace('backend-path = ["."]', 'backend-path = ["python"]')}
    with tarfile.open(Path(sdist_directory) / f"{base}.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as sdist:
        for name, text in tops.items():
            entry = tarfile.TarInfo(f"{base}/{name}")
            entry.size, entry.mtime = len(text.encode()), int(time.time())
            sdist.addfile(entry, io.BytesIO(text.encode()))
        for part in SOURCES:
            sdist.add(TOP / part, f"{base}/{part}", filter=lambda entry: None if "__pycache__" in entry.name or entry.name.endswith(".pyc") else entry)
    return f"{base}.tar.gz"

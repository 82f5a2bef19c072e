"""Builds the package for pip (PEP 517) with the build of the whole project.

A wheel contains the extension module and the program with its man pages and completion. A wheel contains no libraries: it needs
the libraries of the machine that built it. The module is abi3 and works with every Python from 3.9 on. tools/package/portable
makes the wheel for other machines; it calls `pack_wheel()` with its own build.
"""
import base64
import hashlib
import io
import os
import re
import stat
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
# The build reads SOURCES; tests are not among them.
LEFT_OUT = ("/__pycache__", "/node_modules", ".pyc")
SOURCES = ("LICENSE", "docs", "include", "meson.build", "meson_options.txt", "python", "src", "systemd", "tools", "web")


def version():
    return re.search(r'#define PENSTOCK_VERSION "(.*)"', (TOP / "include" / "penstock" / "version.h").read_text()).group(1)


def metadata():
    summary = re.search(r'^description = "(.*)"$', (HERE / "pyproject.toml").read_text(), re.M).group(1)
    return f"Metadata-Version: 2.1\nName: penstock\nVersion: {version()}\nSummary: {summary}\nLicense: Apache-2.0\nRequires-Python: >=3.9\n"


def dist_info():
    return f"penstock-{version()}.dist-info"


# fsspec finds the protocol "penstock" by this entry point.
ENTRY_POINTS = "[fsspec.specs]\npenstock = penstock.fsspec:FileSystem\n"


def build(folder):
    """Builds and installs everything below `folder`; returns the directory of the installation."""
    # pip hides the system's Python packages from the programs it starts, including Meson's own.
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONNOUSERSITE", "PYTHONHOME")}
    program = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
    compiled, installed = Path(folder) / "build", Path(folder) / "installed"
    setup = ["meson", "setup", compiled, TOP, "--buildtype", "release", "-Dtests=false", "-Dpython=enabled", f"-Dpython-program={program}"]
    for command in (setup, ["ninja", "-C", compiled], ["meson", "install", "-C", compiled, "--no-rebuild", "--destdir", installed]):
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(map(str, command))} failed; install its dependencies with `make deps`\n{done.stdout[-4000:]}")
    return installed


def name_in_wheel(path):
    """Returns the name of an installed file in a wheel; None if wheels do not contain it."""
    module = re.search(r"/(?:site|dist)-packages/(penstock/.*)", path)
    data = re.search(r"/(share/(?:man|bash-completion|zsh|fish|penstock)/.*)", path)
    if module:
        return module.group(1)
    if data:
        return f"penstock-{version()}.data/data/{data.group(1)}"
    return f"penstock-{version()}.data/scripts/penstock" if path.endswith("/bin/penstock") else None


def pack_wheel(wheel_directory, installed, platform, licenses=None):
    """Packs the files that `meson install` put below `installed` and the files of `licenses`; returns the name of the wheel."""
    tag = f"cp39-abi3-{platform}"
    name = f"penstock-{version()}-{tag}.whl"
    record = []
    with zipfile.ZipFile(Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:

        def add(file, content, mode=0o644):
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{file},sha256={digest},{len(content)}\n")
            info = zipfile.ZipInfo(file, time.gmtime()[:6])
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, (stat.S_IFREG | mode) << 16
            wheel.writestr(info, content)

        for path in sorted(Path(installed).rglob("*")):
            file = name_in_wheel(str(path)) if path.is_file() else None
            if file:
                add(file, path.read_bytes(), path.stat().st_mode & 0o777)
        for path in [TOP / "LICENSE", *(sorted(Path(licenses).iterdir()) if licenses else ())]:
            add(f"{dist_info()}/licenses/{path.name}", path.read_bytes())
        add(f"{dist_info()}/METADATA", metadata().encode())
        add(f"{dist_info()}/entry_points.txt", ENTRY_POINTS.encode())
        add(f"{dist_info()}/WHEEL", f"Wheel-Version: 1.0\nGenerator: penstock\nRoot-Is-Purelib: false\nTag: {tag}\n".encode())
        wheel.writestr(f"{dist_info()}/RECORD", "".join(record) + f"{dist_info()}/RECORD,,\n")
    return name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with tempfile.TemporaryDirectory(prefix="penstock-build-") as folder:
        return pack_wheel(wheel_directory, build(folder), re.sub(r"[-.]", "_", sysconfig.get_platform()))


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    folder = Path(metadata_directory) / dist_info()
    folder.mkdir()
    (folder / "METADATA").write_text(metadata())
    (folder / "entry_points.txt").write_text(ENTRY_POINTS)
    return folder.name


def build_sdist(sdist_directory, config_settings=None):
    """Packs the parts of the source tree that the build needs, with the files that pip requires at the top."""
    base = f"penstock-{version()}"
    tops = {"PKG-INFO": metadata(), "pyproject.toml": (HERE / "pyproject.toml").read_text().replace('backend-path = ["."]', 'backend-path = ["python"]')}
    with tarfile.open(Path(sdist_directory) / f"{base}.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as sdist:
        for name, text in tops.items():
            entry = tarfile.TarInfo(f"{base}/{name}")
            entry.size, entry.mtime = len(text.encode()), int(time.time())
            sdist.addfile(entry, io.BytesIO(text.encode()))
        for part in SOURCES:
            sdist.add(TOP / part, f"{base}/{part}", filter=lambda entry: None if entry.name.endswith(LEFT_OUT) else entry)
    return f"{base}.tar.gz"

"""Image layers made of installed packages of Debian.

    tar = layer(programs("/usr/bin/curl") | packages("python3-numpy"), {"app/main.py": b"..."})
"""
import io
import os
import re
import subprocess
import tarfile
from functools import lru_cache
from pathlib import Path

LEFT_OUT = re.compile(r"/usr/share/(doc|man|lintian|locale|bug)/|/(tests?|include|idlelib|lib2to3|ensurepip|pydoc_data)/|\.(a|pxd|pyi|h)$")


@lru_cache(maxsize=None)
def needed():
    """Returns {package: its dependencies} of the installed packages."""
    told = subprocess.run(["dpkg-query", "-W", "-f", "${Package}\t${Pre-Depends}, ${Depends}\n"], check=True, capture_output=True, text=True).stdout
    return {name: re.findall(r"(?:^|[,|] )([a-z0-9.+-]+)", depends) for name, _, depends in (line.partition("\t") for line in told.splitlines())}


def closure(names, pattern=r"(lib)?python3"):
    """Returns these packages and all their dependencies whose name matches the pattern. libraries()
    finds the shared libraries of other dependencies."""
    found, waiting = set(), list(names)
    while waiting:
        name = waiting.pop()
        if name in found or name not in needed():
            continue
        found.add(name)
        waiting += [other for other in needed()[name] if re.match(pattern, other)]
    return sorted(found)


def is_program(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def libraries(paths):
    """Returns the libraries that the loader finds for these programs and libraries, and the loader."""
    found = set()
    for begin in range(0, len(paths), 50):
        told = subprocess.run(["ldd", *paths[begin : begin + 50]], capture_output=True, text=True).stdout
        found |= set(re.findall(r"(/\S+) \(0x", told))
    return found


def compiled(path):
    """Returns the cached bytecode of a module, which is not part of the package."""
    return sorted((path.parent / "__pycache__").glob(f"{path.stem}.cpython-*.pyc")) if path.suffix == ".py" else []


def packages(*names):
    """Returns the files of these Python packages and of their dependencies."""
    listed = subprocess.run(["dpkg", "-L", *closure(names)], check=True, capture_output=True, text=True).stdout
    found = {line for line in listed.splitlines() if line.startswith("/") and not LEFT_OUT.search(line) and not os.path.isdir(line)}
    found = {path for path in found if os.path.isfile(path)}
    found |= {str(other) for path in found for other in compiled(Path(path))}
    return found | libraries([path for path in sorted(found) if re.search(r"\.so\b|/bin/", path) and is_program(path)])


def programs(*paths):
    return set(paths) | libraries(list(paths))


def layer(paths, more=None):
    """Returns an uncompressed layer with these files of the machine, and with `more`: {name: bytes, or a link's target as str}."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:

        def add(info, file=None):
            info.uid = info.gid = 0
            info.uname = info.gname = "root"
            tar.addfile(info, file)

        for path in sorted(paths):
            # A library is stored under the name that programs request, even if this name is a link here.
            real = os.path.realpath(path) if ".so" in path else path
            info = tar.gettarinfo(real, path.lstrip("/"))
            info.type = tarfile.REGTYPE if info.type == tarfile.LNKTYPE else info.type
            if not info.isreg():
                add(info)
                continue
            info.size = os.stat(real).st_size
            with open(real, "rb") as file:
                add(info, file)
        for name, content in (more or {}).items():
            info = tarfile.TarInfo(name)
            info.mode = 0o755
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                add(info)
            else:
                info.size = len(content)
                add(info, io.BytesIO(content))
    return out.getvalue()

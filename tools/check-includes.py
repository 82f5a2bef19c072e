#!/usr/bin/python3
"""Checks includes and the lengths of files against docs/HACKING.md.

    tools/check-includes.py [ROOT]        ROOT: the repository (default: this one)

Faults are:

- An include of a layer that is not below the file's own. BUILT_ON lists the layers directly below each layer; the layers
  below those are allowed, too.
- A public header (include/penstock/) that includes anything of src/, or that does not compile alone as C and C++.
- A source file or a test of more than 900 lines.

Prints one line per fault, `file:line: fault`, and exits 1 if there is any.
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

BUILT_ON = {
    "base": [],
    "s3": ["base"],
    "net": ["s3"],
    "transfer": ["net"],
    "copy": ["transfer"],
    "dataset": ["transfer"],
    "archive": ["base"],
    "image": ["archive", "net"],
    "checkpoint": ["s3"],
    "sync": ["archive", "checkpoint", "copy"],
    "library": ["checkpoint", "copy", "dataset"],
    "metrics": ["checkpoint", "dataset"],
    "store": ["s3"],
    "server": ["store", "transfer"],
    "workflow": ["base"],
    "records": ["base"],
    "run": ["workflow", "records", "sync", "image"],
    "ui": ["records", "server"],
    "deploy": ["checkpoint", "transfer"],
    "cli": ["deploy", "metrics", "run", "ui"],
}
MAX_LINES = 900
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<(penstock/[^>]+)>)')
SOURCES = (".c", ".h")


def reachable(layer):
    """Returns the layers whose headers `layer` may include, itself included."""
    seen, waiting = set(), [layer]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += BUILT_ON[name]
    return seen


def source_files(root, *folders):
    for folder in folders:
        yield from sorted(path for path in (root / folder).rglob("*") if path.suffix in SOURCES and path.is_file())


def includes(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if found := INCLUDE.match(line):
            yield number, found.group(1) or found.group(2)


def check_layers(root):
    for path in source_files(root, "src"):
        layer = path.relative_to(root / "src").parts[0]
        where = path.relative_to(root)
        if layer not in BUILT_ON:
            yield f"{where}:1: src/{layer} is not a known layer; add it to BUILT_ON of tools/check-includes.py and to docs/ARCHITECTURE.md"
            continue
        allowed = reachable(layer)
        build = root / "src" / layer / "meson.build"
        generated = set(re.findall(r"output: *\[?'([^']+\.h)'", build.read_text())) if build.exists() else set()
        for number, target in includes(path):
            head, slash, _ = target.partition("/")
            if head == "penstock":
                continue
            if not slash and target in generated:
                continue
            if not slash or head == "..":
                yield f'{where}:{number}: write "{target}" relative to src/, as "{layer}/{Path(target).name}"'
            elif head not in BUILT_ON:
                yield f'{where}:{number}: "{target}" belongs to no layer'
            elif head not in allowed:
                yield f'{where}:{number}: {layer} may not include "{target}"; {layer} is built on {", ".join(sorted(allowed - {layer})) or "nothing"}'


def check_public_headers(root):
    for path in source_files(root, "include"):
        where = path.relative_to(root)
        for number, target in includes(path):
            if not target.startswith("penstock/"):
                yield f'{where}:{number}: a public header may not include "{target}"'
        for language, suffix in (("c", ".c"), ("c++", ".cc")):
            with tempfile.NamedTemporaryFile("w", suffix=suffix) as alone:
                alone.write(f"#include <{path.relative_to(root / 'include')}>\n")
                alone.flush()
                command = ["cc", "-x", language, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{root / 'include'}", alone.name]
                result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode != 0:
                lines = result.stderr.strip().splitlines()
                reason = next((line for line in lines if "error" in line), lines[0] if lines else "no message")
                yield f"{where}:1: does not compile alone as {language}: {reason}"


def check_lengths(root):
    for path in [*source_files(root, "src", "include", "tests"), *sorted((root / "tests").rglob("*.py"))]:
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > MAX_LINES:
            yield f"{path.relative_to(root)}:{lines}: {lines} lines; the limit is {MAX_LINES}, split it by subject"


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    faults = [*check_layers(root), *check_public_headers(root), *check_lengths(root)]
    for fault in faults:
        print(fault)
    checked = sum(1 for _ in source_files(root, "src", "include"))
    if checked == 0:
        faults.append("nothing to check")
    print(f"includes: {checked} files, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

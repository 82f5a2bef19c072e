"""libpenstock as another program meets it: installed, found by pkg-config, compiled against, watched by AddressSanitizer."""
import os
import re
import shlex
import subprocess

import pytest

from harness.gcs import Gcs
from harness.program import TOP, binary

BUILD = binary().parent
EXAMPLE, EXERCISE = TOP / "examples" / "transfer" / "put_get.c", TOP / "tests" / "support" / "library_exercise.c"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """flags(*names): what pkg-config says of an installation below a directory of its own."""
    if not (BUILD / "src" / "library" / "libpenstock.a").exists():
        pytest.fail(f"there is no library in {BUILD}")
    root = tmp_path_factory.mktemp("installed")
    subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", root], check=True, stdout=subprocess.DEVNULL)
    (pc,) = root.rglob("penstock.pc")
    env = os.environ | {"PKG_CONFIG_PATH": str(pc.parent), "PKG_CONFIG_SYSROOT_DIR": str(root)}

    def flags(*arguments):
        return shlex.split(subprocess.run(["pkg-config", *arguments], env=env, check=True, capture_output=True, text=True).stdout)

    flags.root, flags.lib = root, pc.parent.parent
    return flags


def sanitizer():
    """A program is watched as its library is; beside one that is not watched, by AddressSanitizer."""
    needed = subprocess.run(["nm", "-D", BUILD / "src" / "library" / "libpenstock.so"], check=True, capture_output=True, text=True).stdout
    return ["-fsanitize=thread"] if "__tsan_init" in needed else ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]


def compiled(installed, source, to, *libraries):
    subprocess.run(
        ["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g", *sanitizer(), source, "-o", to, *installed("--cflags", "penstock"),
         *(libraries or installed("--libs", "penstock")), "-pthread"],
        check=True,
    )  # fmt: skip
    return to


def environment(installed, store):
    return os.environ | store.env | {"LD_LIBRARY_PATH": str(installed.lib), "ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1"}


# The program of twenty lines in the documentation.
def test_the_example_stores_a_file_and_reads_it_back(installed, store, tmp_path):
    program = compiled(installed, EXAMPLE, tmp_path / "put_get")
    store.client.create_bucket(Bucket="bucket")
    (tmp_path / "in").write_bytes(os.urandom(10_000_000))

    done = subprocess.run([program, tmp_path / "in", "s3://bucket/key", tmp_path / "out"], env=environment(installed, store), capture_output=True, text=True)
    refused = subprocess.run([program, tmp_path / "none", "s3://bucket/key", tmp_path / "out"], env=environment(installed, store), capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "") and re.fullmatch(r'10000000 bytes, ETag "\S+"\n', done.stdout)
    assert (tmp_path / "out").read_bytes() == (tmp_path / "in").read_bytes() == store.bytes("bucket", "key")
    assert refused.returncode == 1 and "cannot read" in refused.stderr and refused.stdout == ""
    assert len(EXAMPLE.read_text().splitlines()) <= 30


# Every function, in both stores, from many threads, with structs of other versions; nothing leaks, nothing is printed.
def test_every_function_does_what_the_header_says(installed, store, tmp_path):
    program = compiled(installed, EXERCISE, tmp_path / "exercise")
    with Gcs() as gcs:
        env = environment(installed, store) | gcs.env
        done = subprocess.run([program, "s3://exercise", "gs://exercise"], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_static_library_brings_no_name_but_its_own(installed, store, tmp_path):
    archive = installed.lib / "libpenstock.a"
    needs = installed("--libs", "libcurl", "libcrypto", "jansson", "expat", "libisal")
    program = compiled(installed, EXERCISE, tmp_path / "exercise", archive, *needs, "-lm")

    done = subprocess.run([program, "s3://static"], env=environment(installed, store), cwd=tmp_path, capture_output=True, text=True, timeout=300)

    assert (done.returncode, done.stderr) == (0, "")
    for file, options in ((archive, ["-g"]), (installed.lib / "libpenstock.so", ["-D"])):
        names = subprocess.run(["nm", *options, "--defined-only", "--format=posix", file], check=True, capture_output=True, text=True).stdout
        found = {line.split()[0].partition("@")[0] for line in names.splitlines() if len(line.split()) > 1 and line.split()[1] in "TDBRVW"}
        assert found and all(name.startswith("penstock_") for name in found), found
    dynamic = subprocess.run(["readelf", "-d", program], check=True, capture_output=True, text=True).stdout
    assert "libpenstock" not in dynamic


# What the header declares is what is exported, and no more is installed than the public headers.
def test_header_and_library_agree(installed):
    header = "".join((TOP / "include" / "penstock" / name).read_text() for name in ("checkpoint.h", "transfer.h", "error.h"))
    declared = set(re.findall(r"PENSTOCK_API[^;(]*?\b(penstock_\w+)\(", header))
    names = subprocess.run(["nm", "-D", "--defined-only", installed.lib / "libpenstock.so"], check=True, capture_output=True, text=True).stdout

    assert declared == set(re.findall(r" T (penstock_\w+)", names))
    assert {path.name for path in installed.root.rglob("*.h")} == {"checkpoint.h", "error.h", "transfer.h", "version.h"}


# The example of checkpoints: it goes on where the newest whole one is, and says which it passed over.
def test_the_example_of_checkpoints_goes_on_where_it_was(installed, tmp_path):
    program = compiled(installed, TOP / "examples" / "checkpoint" / "save_resume.c", tmp_path / "save_resume")

    def run(steps):
        env = os.environ | {"LD_LIBRARY_PATH": str(installed.lib), "ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1"}
        done = subprocess.run([program, tmp_path / "ckpt", str(steps)], env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines(), done.stderr

    first, second = run(25), run(30)
    newest = tmp_path / "ckpt" / "step-000000000030-1"
    (newest / "state.bin").write_bytes(b"damaged!")
    third = run(20)

    assert first == (["at step 25"], "")
    assert second == ([f"goes on from {tmp_path}/ckpt/step-000000000020-1", "at step 30"], "")
    assert third[0] == [f"goes on from {tmp_path}/ckpt/step-000000000020-1", "at step 20"]
    assert third[1].startswith("save_resume: passed over: the checkpoint ") and "state.bin has other bytes" in third[1]

"""libpenstock in another program: installed, found by pkg-config, compiled against, checked by AddressSanitizer."""
import os
import re
import shlex
import subprocess

import pytest

from harness.gcs import Gcs
from harness.program import TOP, binary

BUILD = binary().parent
EXAMPLE, EXERCISE = TOP / "examples" / "transfer" / "put_get.c", TOP / "tests" / "support" / "library_exercise.c"
DATA_SETS = EXERCISE.with_name("dataset_exercise.c")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """flags(*names): the output of pkg-config for an installation below its own directory."""
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


def compiler():
    """A program gets the sanitizer of its library, from the same compiler; with a library without a sanitizer it gets AddressSanitizer."""
    needed = subprocess.run(["ldd", BUILD / "src" / "library" / "libpenstock.so"], check=True, capture_output=True, text=True).stdout
    if "libtsan" in needed:
        return ["cc", "-fsanitize=thread"]
    watched = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    if "libclang_rt" not in needed:
        return ["cc", *watched]
    runtime = subprocess.run(["clang-14", "-print-runtime-dir"], check=True, capture_output=True, text=True).stdout.strip()
    return ["clang-14", *watched, "-shared-libasan", f"-Wl,-rpath,{runtime}"]


def compiled(installed, source, to, *libraries):
    subprocess.run(
        [*compiler(), "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g", source, "-o", to, *installed("--cflags", "penstock"),
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
    assert refused.returncode == 1 and refused.stderr.count("\n") == 1 and refused.stdout == ""
    assert len(EXAMPLE.read_text().splitlines()) <= 30


def test_the_example_copies_a_tree_there_and_back(installed, store, tmp_path):
    program = compiled(installed, TOP / "examples" / "transfer" / "copy_tree.c", tmp_path / "copy_tree")
    store.client.create_bucket(Bucket="bucket")
    source, back = tmp_path / "source", tmp_path / "back"
    names = ["a", "sub/b", "sub/deep/large"]
    for name in names:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(os.urandom(10_000_000 if name.endswith("large") else 1000))

    def run(*arguments):
        done = subprocess.run([program, *arguments], env=environment(installed, store), capture_output=True, text=True)
        return done.returncode, done.stdout.splitlines()[-1], done.stderr

    assert run(source, "s3://bucket/x") == (0, "3 copied, 0 unchanged, 0 failed", "")
    assert run(source, "s3://bucket/x/") == (0, "0 copied, 3 unchanged, 0 failed", "")
    assert store.keys("bucket") == [f"x/{name}" for name in names]
    assert run("s3://bucket/x", back) == (0, "3 copied, 0 unchanged, 0 failed", "")
    assert all((back / name).read_bytes() == (source / name).read_bytes() for name in names)
    # An object whose name is not a valid file name does not stop the download of the others.
    store.client.put_object(Bucket="bucket", Key="x/../evil", Body=b"1")
    store.client.put_object(Bucket="bucket", Key="x/new", Body=b"1")
    code, summary, errors = run("s3://bucket/x", back)
    assert (code, summary) == (1, "1 copied, 3 unchanged, 1 failed") and "x/../evil" in errors and (back / "new").read_bytes() == b"1"
    assert run(source, back)[0] == 1 and run(tmp_path / "none", "s3://bucket/x")[0] == 1


# The programs call every function for transfers, files and data sets, with an S3 store and Google's
# store, from many threads, and with structs of other versions. The programs must leak nothing and
# print nothing.
@pytest.mark.parametrize("source", [EXERCISE, DATA_SETS], ids=lambda source: source.stem)
def test_every_function_does_what_the_header_says(installed, store, tmp_path, source):
    program = compiled(installed, source, tmp_path / "exercise")
    with Gcs() as gcs:
        env = environment(installed, store) | gcs.env
        done = subprocess.run([program, "s3://exercise", "gs://exercise"], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_static_library_brings_no_name_but_its_own(installed, store, tmp_path):
    archive = installed.lib / "libpenstock.a"
    needs = installed("--libs", "libcurl", "libcrypto", "jansson", "expat", "libisal", "libjpeg", "libzstd")
    program = compiled(installed, EXERCISE, tmp_path / "exercise", archive, *needs, "-lm")

    done = subprocess.run([program, "s3://static"], env=environment(installed, store), cwd=tmp_path, capture_output=True, text=True, timeout=300)

    assert (done.returncode, done.stderr) == (0, "")
    for file, options in ((archive, ["-g"]), (installed.lib / "libpenstock.so", ["-D"])):
        names = subprocess.run(["nm", *options, "--defined-only", "--format=posix", file], check=True, capture_output=True, text=True).stdout
        found = {line.split()[0].partition("@")[0] for line in names.splitlines() if len(line.split()) > 1 and line.split()[1] in "TDBRVW"}
        assert found and all(name.startswith("penstock_") for name in found), found
    dynamic = subprocess.run(["readelf", "-d", program], check=True, capture_output=True, text=True).stdout
    assert "libpenstock" not in dynamic


# This program must use every function of the header, including a new one.
def test_every_function_of_data_sets_is_used():
    header = (TOP / "include" / "penstock" / "dataset.h").read_text()

    declared = set(re.findall(r"PENSTOCK_API[^;(]*?\b(penstock_\w+)\(", header))

    assert declared and declared <= set(re.findall(r"\b(penstock_\w+)\(", DATA_SETS.read_text()))


# The library exports exactly the functions of the header, and only the public headers are installed.
def test_header_and_library_agree(installed):
    header = "".join((TOP / "include" / "penstock" / name).read_text() for name in ("checkpoint.h", "dataset.h", "file.h", "transfer.h", "error.h"))
    declared = set(re.findall(r"PENSTOCK_API[^;(]*?\b(penstock_\w+)\(", header))
    names = subprocess.run(["nm", "-D", "--defined-only", installed.lib / "libpenstock.so"], check=True, capture_output=True, text=True).stdout

    assert declared == set(re.findall(r" T (penstock_\w+)", names))
    assert {path.name for path in installed.root.rglob("*.h")} == {"checkpoint.h", "dataset.h", "error.h", "file.h", "transfer.h", "version.h"}


# The example for checkpoints resumes from the newest complete checkpoint, and names the checkpoints that it skipped.
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
    assert second[0][0].endswith(f" {tmp_path}/ckpt/step-000000000020-1") and (second[0][1:], second[1]) == (["at step 30"], "")
    assert third[0][0] == second[0][0] and third[0][1:] == ["at step 20"]
    assert "state.bin" in third[1]

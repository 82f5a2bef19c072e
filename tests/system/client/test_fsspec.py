"""penstock.fsspec with the real fsspec, and with programs that use it, on `penstock serve`."""
import json
import signal
import subprocess
import sys

import pytest
from harness.gcs import Gcs
from harness.program import TOP, binary, environment

PACKAGE = next(path for path in (TOP / "build" / "python", binary().parent / "python") if (path / "penstock" / "_native.abi3.so").exists())

FILES = """
import json, sys
import fsspec, fsspec.implementations.local
import penstock.fsspec

before = fsspec.registry.get("s3")
scheme = sys.argv[1]
if scheme != "penstock":
    penstock.fsspec.register(scheme)
fs = fsspec.filesystem(scheme)
assert isinstance(fs, penstock.fsspec.FileSystem) and before is None
root = "data/top"
contents = {"a.txt": b"one", "b/c.bin": bytes(range(256)) * 1000, "b/d/e": b"", "b/f ü?#%20": b"odd"}
fs.pipe({f"{root}/{name}": content for name, content in contents.items()})

assert fs.cat(root, recursive=True) == {f"{root}/{name}": content for name, content in contents.items()}
assert sorted(fs.ls(root, detail=False)) == [f"{root}/a.txt", f"{root}/b"]
assert [(entry["name"], entry["size"], entry["type"]) for entry in fs.ls(f"{scheme}://{root}/b/")] == [
    (f"{root}/b/c.bin", 256000, "file"), (f"{root}/b/d", 0, "directory"), (f"{root}/b/f ü?#%20", 3, "file")]
assert fs.ls(f"{root}/a.txt", detail=False) == [f"{root}/a.txt"] and fs.find(f"{root}/a.txt") == [f"{root}/a.txt"]
assert fs.find(root) == fs.find("data") == sorted(f"{root}/{name}" for name in contents)
assert fs.find(root, withdirs=True, maxdepth=1) == [root, f"{root}/a.txt", f"{root}/b"]
assert fs.glob(f"{root}/*") == [f"{root}/a.txt", f"{root}/b"] and fs.glob(f"{root}/**/e") == [f"{root}/b/d/e"]
assert fs.info(f"{scheme}://{root}/a.txt")["size"] == 3 and fs.info(root)["type"] == fs.info("data")["type"] == "directory"
assert fs.exists(f"{root}/b") and fs.isdir(f"{root}/b") and fs.isfile(f"{root}/b/d/e") and not fs.exists(f"{root}/none") and not fs.exists("data/to")
assert [fs.isdir(f"{root}/{name}") for name in ("b", "a.txt")] == [True, False] and not fs.isfile(f"{root}/b")
assert [(at, sorted(dirs), sorted(files)) for at, dirs, files in fs.walk(root)][0] == (root, ["b"], ["a.txt"])
assert fs.du(root) == 256006 and fs.modified(f"{root}/a.txt").tzinfo and fs.checksum(f"{root}/a.txt") == fs.info(f"{root}/a.txt")["ETag"]
for wrong in (lambda: fs.info(f"{root}/none"), lambda: fs.ls(f"{root}/none"), lambda: fs.cat(f"{root}/none"), lambda: fs.open(f"{root}/none")):
    try:
        wrong()
        raise AssertionError("found")
    except FileNotFoundError:
        pass

path = f"{root}/b/c.bin"
whole = contents["b/c.bin"]
assert fs.cat_ranges([path, path, f"{root}/a.txt", path], [0, 5, -2, 100], [3, None, None, -100]) == [whole[:3], whole[5:], b"ne", whole[100:-100]]
assert fs.cat_ranges([path] * 2, 1, 4) == [whole[1:4]] * 2
missing, there = fs.cat_ranges([f"{root}/none", path], 0, 5)
assert isinstance(missing, FileNotFoundError) and there == whole[:5]
assert fs.cat_file(path, 10, 20) == whole[10:20] and fs.head(path, 4) == whole[:4] and fs.tail(path, 4) == whole[-4:]
with fs.open(path) as file:
    assert file.seek(255998) == 255998 and file.read(10) == whole[-2:] and isinstance(file, __import__("io").BufferedIOBase)
with fs.open(f"{root}/plain", "w", newline="\\r\\n") as text:
    text.write("ü\\n")
assert fs.cat(f"{root}/plain") == "ü\\r\\n".encode() and fs.read_text(f"{root}/plain", newline="") == "ü\\r\\n"
for mode in ("w", "wb"):
    try:
        with fs.open(f"{root}/plain", mode) as file:
            file.write("half" if mode == "w" else b"half")
            raise KeyError
    except KeyError:
        assert fs.cat(f"{root}/plain") == "ü\\r\\n".encode()
with fsspec.open(f"{scheme}://{root}/text.gz", "wt", compression="gzip") as text:
    text.write("lines\\n" * 1000)
with fsspec.open(f"{scheme}://{root}/text.gz", "rt", compression="gzip") as text:
    assert len(list(text)) == 1000
fs.get(root, sys.argv[2], recursive=True)
fs.put(sys.argv[2], f"{scheme}://data/again", recursive=True)
assert fs.cat("data/again/b/c.bin") == whole
fs.cp(path, f"{root}/copied")
fs.mv(f"{root}/copied", f"{root}/moved")
assert fs.cat(f"{root}/moved") == whole and not fs.exists(f"{root}/copied")
penstock.open(f"{'gs' if scheme == 'gs' else 's3'}://{root}/marked/", "wb").close()
assert fs.ls(f"{root}/marked") == [] and fs.isdir(f"{root}/marked")
fs.mkdir(f"{root}/new")
try:
    fs.rm(root)  # no object has this name: as with S3, nothing is removed
finally:
    assert fs.exists(f"{root}/a.txt")
fs.rm(root, recursive=True)
assert not fs.exists(root) and fs.exists("data/again/a.txt")
for refused in (lambda: fs.ls(""), lambda: fs.open(path, "wb", autocommit=False), lambda: fs.open(f"{path}.gz", "wb", compression="gzip")):
    try:
        refused()
        raise AssertionError("done")
    except NotImplementedError:
        pass
for unknown in ({"use_ssl": False}, {"client_kwargs": {"verify": False}}):
    try:
        fsspec.filesystem(scheme, **unknown)
        raise AssertionError("known")
    except TypeError:
        pass
again = fsspec.filesystem(scheme, endpoint_url="http://127.0.0.1:1", anon=True)
assert again is not fs and __import__("pickle").loads(__import__("pickle").dumps(fs)) == fs
print("good")
"""
SAFETENSORS = """
import sys
import numpy as np
import penstock, penstock.fsspec
import safetensors.numpy

fs = penstock.fsspec.FileSystem()
weights = {"w": np.arange(1_000_000, dtype="f4"), "b": np.ones(3, "i8")}
with fs.open("data/model.safetensors", "wb") as file:
    file.write(safetensors.numpy.save(weights))
loaded = [safetensors.numpy.load(fs.cat("data/model.safetensors")), safetensors.numpy.load(penstock.open("s3://data/model.safetensors").read())]
assert all((each[name] == weights[name]).all() for each in loaded for name in weights)
print("good")
"""
TABLES = """
import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import penstock, penstock.fsspec
import safetensors.numpy

penstock.fsspec.register()
fs = fsspec.filesystem("s3")
frame = pd.DataFrame({"a": np.arange(300_000), "b": np.random.default_rng(7).random(300_000), "c": [f"x{i}" for i in range(300_000)]})

frame.to_csv("s3://data/t.csv", index=False)
assert pd.read_csv("penstock://data/t.csv").equals(frame) and pd.read_csv("s3://data/t.csv").equals(frame) and pd.read_csv("s3://data/t.csv", nrows=3).equals(frame[:3])
frame.to_parquet("s3://data/t.parquet", filesystem=fs, row_group_size=50_000)
assert pd.read_parquet("s3://data/t.parquet", filesystem=fs).equals(frame)
assert pd.read_parquet("penstock://data/t.parquet").equals(frame)
assert pd.read_parquet("s3://data/t.parquet", storage_options={"anon": False}, columns=["a"])["a"].equals(frame["a"])
assert pd.read_parquet(penstock.open("s3://data/t.parquet"), columns=["b"])["b"].equals(frame["b"])
table = pa.Table.from_pandas(frame)
for path in ("data/t.parquet", "s3://data/t.parquet"):
    assert pa.parquet.ParquetFile(fs.open(path), pre_buffer=True).read_row_groups([2, 4], columns=["a"])["a"].to_pylist()[0] == 100_000
pa.dataset.write_dataset(table, "data/set", format="parquet", filesystem=fs, max_rows_per_file=60_000, max_rows_per_group=30_000)
found = pa.dataset.dataset("data/set", filesystem=fs, format="parquet")
assert len(found.files) == 5 and found.count_rows() == 300_000
assert found.to_table(filter=pa.dataset.field("a") >= 299_990).sort_by("a")["c"].to_pylist() == [f"x{i}" for i in range(299_990, 300_000)]
with fs.open("data/t.arrow", "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
    writer.write_table(table)
assert pa.ipc.open_file(fs.open("data/t.arrow")).read_all().equals(table)
fs.pipe("data/w.safetensors", safetensors.numpy.save({"w": np.arange(100_000)}))
assert (safetensors.numpy.load(fs.cat("data/w.safetensors"))["w"] == np.arange(100_000)).all()
print("good")
"""


def run(python, tmp_path, text, *arguments, **env):
    """Runs a script with a Python that can import the package; returns the script's output."""
    (tmp_path / "script.py").write_text(text)
    done = subprocess.run(
        [python, "-X", "dev", "-W", "error::ResourceWarning", tmp_path / "script.py", *arguments], env=environment() | {"PYTHONPATH": str(PACKAGE)} | env,
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0 and "ResourceWarning" not in done.stderr, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.fixture
def bucket(store):
    """Returns the environment of a program that uses the store. The bucket "data" exists."""
    store.client.create_bucket(Bucket="data")
    return store.env


# Installs the package's metadata as pip does: fsspec finds the protocol by the wheel's entry point.
def installed(folder):
    sys.path.insert(0, str(TOP / "python"))
    import build_with_meson

    info = folder / build_with_meson.dist_info()
    info.mkdir()
    (info / "METADATA").write_text(build_with_meson.metadata())
    (info / "entry_points.txt").write_text(build_with_meson.ENTRY_POINTS)
    return f"{PACKAGE}:{folder}"


@pytest.mark.parametrize("scheme", ["penstock", "s3"])
def test_fsspec_does_with_objects_what_it_does_with_files(bucket, venv, tmp_path, scheme):
    env = bucket | {"PYTHONPATH": installed(tmp_path)}

    assert run(venv / "bin" / "python", tmp_path, FILES, scheme, tmp_path / "local", **env) == "good"


def test_google_storage_is_another_protocol(venv, tmp_path):
    with Gcs() as gcs:
        gcs.buckets["data"] = {}
        assert run(venv / "bin" / "python", tmp_path, FILES, "gs", tmp_path / "local", **gcs.env) == "good"


def test_safetensors_load_from_an_object(bucket, venv, tmp_path):
    assert run(venv / "bin" / "python", tmp_path, SAFETENSORS, **bucket | {"PYTHONPATH": f"{PACKAGE}:/usr/lib/python3/dist-packages"}) == "good"


# The options have the names that s3fs uses; the environment has neither keys nor endpoint.
def test_the_options_of_storage_name_the_store(bucket, store, venv, tmp_path):
    text = """
import json, sys
import penstock.fsspec
fs = penstock.fsspec.FileSystem(**json.loads(sys.argv[1]))
fs.pipe("data/x", b"content")
print(fs.cat("data/x"), fs.ls("data", detail=False))
"""
    options = {"key": store.access_key, "secret": store.secret_key}

    for place in ({"endpoint_url": store.endpoint}, {"client_kwargs": {"endpoint_url": store.endpoint, "region_name": "us-east-1"}}):
        assert run(venv / "bin" / "python", tmp_path, text, json.dumps(options | place), AWS_REGION="us-east-1") == "b'content' ['data/x']"


def test_ctrl_c_ends_a_list_and_reads(bucket, venv, fault_proxy):
    script = "import penstock.fsspec as p\ntry:\n    p.FileSystem().{}\nexcept KeyboardInterrupt:\n    print('interrupted')\n"
    env = environment() | bucket | {"PYTHONPATH": str(PACKAGE), "AWS_ENDPOINT_URL": fault_proxy.url}
    for call in ("ls('data')", "cat_ranges(['data/a', 'data/b'], 0, 1)", "rm('data/a')"):
        held = fault_proxy.fault(times=10**6, hold="reply")
        running = subprocess.Popen(
            [venv / "bin" / "python", "-c", script.format(call)], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        held.wait()
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=30)
        fault_proxy.clear()

        assert (out, running.returncode) == ("interrupted\n", 0), err


def test_threads_that_still_read_do_not_end_the_exit(bucket, venv, fault_proxy):
    # on_exit() calls sleep() with the exit code, which is 1, so the threads still wait for replies
    # for a second after the interpreter has ended.
    script = (
        "import ctypes, sys, penstock.fsspec as p\nlibc = ctypes.CDLL(None)\n"
        "try:\n    p.FileSystem().cat_ranges(['data/a', 'data/b'], 0, 1)\n"
        "except KeyboardInterrupt:\n    libc.on_exit(libc.sleep, None)\n    sys.exit(1)\n"
    )
    env = environment() | bucket | {"PYTHONPATH": str(PACKAGE), "AWS_ENDPOINT_URL": fault_proxy.url}
    held = fault_proxy.fault(times=10**6, hold="reply")
    running = subprocess.Popen([venv / "bin" / "python", "-c", script], env=env, stderr=subprocess.PIPE, text=True)
    held.wait()
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=30)
    fault_proxy.clear()

    assert running.returncode == 1, err


@pytest.mark.long
def test_pandas_and_pyarrow_read_and_write_objects(bucket, tables_venv, tmp_path):
    env = bucket | {"PYTHONPATH": installed(tmp_path)}

    assert run(f"{tables_venv}/bin/python", tmp_path, TABLES, **env) == "good"

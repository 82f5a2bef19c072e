"""penstock.data reads data sets from web servers: every format from nginx, patterns, indexes,
changes, unsuitable servers."""
import gzip
import io
import json
import os
import shutil
import struct
import subprocess
import sys
import tarfile

import numpy as np
import pytest
from harness.program import TOP, binary, environment

# Python runs without sanitizers even if the program is built with them.
PACKAGE = next(path for path in (TOP / "build" / "python", binary().parent / "python") if (path / "penstock" / "_native.abi3.so").exists())
sys.path.insert(0, str(PACKAGE))
from penstock.data import Dataset, DatasetChanged, DatasetError, Loader  # noqa: E402

FIXTURES = TOP / "tests" / "unit" / "dataset"
ROWS = np.arange(400, dtype="i4").reshape(100, 4)
# Children of a process that has read a set get the same samples.
FORKS = """
import os, sys
from penstock.data import Dataset

data = Dataset(sys.argv[1])
expected = data.__getitems__(range(100)).tolist()
pids = []
for part in range(4):
    pids.append(os.fork())
    if pids[-1] == 0:
        os._exit(0 if data.__getitems__(range(100)).tolist() == expected else 1)
print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids])
"""


@pytest.fixture
def root(tmp_path):
    """The directory that is served."""
    made = tmp_path / "root"
    made.mkdir()
    return made


def plain(value):
    """Samples with lists in place of arrays and bytes in place of views."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return bytes(value) if isinstance(value, memoryview) else value.tolist() if isinstance(value, np.ndarray) else value


def all_of(data):
    return plain(data.__getitems__(range(len(data))))


def pack(source, target, *options):
    done = subprocess.run([binary(), "pack", source, target, *options], env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


# --- formats: each function makes shards in a directory, and returns the rest of the URL, and the options of the set ---


def make_npy(root):
    np.save(root / "rows.npy", ROWS)
    return "rows.npy", {}


def make_arrays(root):
    for i in range(12):
        np.save(root / f"rows {i}.npy", ROWS + 1000 * i)
    return "rows%20{0..11}.npy?token=secret#x", {}


def make_records(root):
    (root / "a.raw").write_bytes(bytes(range(200)))
    (root / "b.raw").write_bytes(bytes(100))
    return "{b,a}.raw", {"format": "records", "record_size": 10}


def make_idx(root):
    content = bytes([0, 0, 8, 3]) + struct.pack(">3I", 50, 4, 5) + bytes(i % 251 for i in range(1000))
    (root / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(content))
    return "t10k-images-idx3-ubyte.gz", {}


def make_cifar(root):
    for i in (1, 2):
        (root / f"data_batch_{i}.bin").write_bytes(b"".join(bytes([k % 10]) + bytes(3072) for k in range(20 * i)))
    return "data_batch_{1..2}.bin", {}


def make_tar(root):
    for shard in range(3):
        with tarfile.open(root / f"train-{shard:03}.tar", "w") as archive:
            for i in range(20):
                for name, content in ((f"{i:04}.txt", f"{shard} {i}".encode()), (f"{i:04}.cls", str(i % 10).encode())):
                    info = tarfile.TarInfo(name)
                    info.size = len(content)
                    archive.addfile(info, io.BytesIO(content))
    return "train-{000..002}.tar", {}


def make_tfrecord(root):
    (root / "tar").mkdir()
    make_tar(root / "tar")
    pack(root / "tar", root / "records", "--format", "tfrecord")
    (root / "records" / ".penstock-index").unlink()
    return "records/shard-000000.tfrecord", {}


def make_mds(root):
    (root / "tar").mkdir()
    make_tar(root / "tar")
    pack(root / "tar", root / "mds", "--format", "mds")
    (root / "mds" / ".penstock-index").unlink()
    return "mds/", {}


def make_litdata(root):
    shutil.copy(FIXTURES / "litdata.bin", root / "chunk-0-0.bin")
    shutil.copy(FIXTURES / "litdata.json", root / "index.json")
    return "index.json", {"format": "litdata"}


def make_indexed(root):
    make_arrays(root)
    done = subprocess.run([binary(), "dataset", "index", root], env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return "", {}


FORMATS = {
    "npy": make_npy, "arrays": make_arrays, "records": make_records, "idx": make_idx, "cifar": make_cifar, "tar": make_tar,
    "tfrecord": make_tfrecord, "mds": make_mds, "litdata": make_litdata, "indexed": make_indexed,
}  # fmt: skip


@pytest.mark.parametrize("format", FORMATS)
def test_samples_of_the_web_are_those_of_the_files(format, root, nginx):
    (root / "set").mkdir()
    url, options = FORMATS[format](root / "set")
    single = root / "set" / url
    local = Dataset(single if single.exists() and url != "index.json" else root / "set", **options)

    data = Dataset(f"{nginx(root)}/set/{url}", **options)

    assert data.format == local.format and len(data) == len(local) and all_of(data) == all_of(local)
    assert [data.place(i) for i in range(len(data))] == [
        (place[0].replace(" ", "%20") if format == "arrays" else place[0], *place[1:]) for place in map(local.place, range(len(data)))
    ]


def test_names_of_an_index_are_encoded(root, nginx):
    name = "a b%20#?+ü"
    (root / name).mkdir()
    shutil.copy(FIXTURES / "mosaicml.mds", root / name / "shard.00000.mds")
    index = json.loads((FIXTURES / "mosaicml.json").read_text())
    index["shards"][0]["raw_data"]["basename"] = f"{name}/shard.00000.mds"
    (root / "index.json").write_text(json.dumps(index))
    shutil.copytree(root, root.parent / "copy")

    assert all_of(Dataset(f"{nginx(root)}/")) == all_of(Dataset(root.parent / "copy"))


def test_forked_children_read_and_the_cache_keeps_what_was_read(root, nginx, tmp_path):
    make_npy(root)
    url = f"{nginx(root)}/rows.npy"
    (tmp_path / "script.py").write_text(FORKS)

    done = subprocess.run([sys.executable, tmp_path / "script.py", url], env=environment() | {"PYTHONPATH": str(PACKAGE)}, capture_output=True, text=True, timeout=60)

    assert done.stdout == "[0, 0, 0, 0]\n", done.stderr
    data = Dataset(url, cache=str(tmp_path / "cache"))
    assert all_of(data) == ROWS.tolist()
    (root / "rows.npy").unlink()
    assert all_of(data) == ROWS.tolist()


# --- trouble ---


# An index records the files' times, which change with the replacement.
@pytest.mark.parametrize("format", ["npy", "tar", "mds", "indexed"])
def test_a_shard_that_is_replaced_in_an_epoch_is_an_error(format, root, nginx):
    url, options = FORMATS[format](root)
    loader = Loader(Dataset(f"{nginx(root)}/{url}", **options), 10, shuffle=True, ahead=0)
    batches = iter(loader)
    next(batches)
    for path in [*root.rglob("*.npy"), *root.rglob("*.tar"), *root.rglob("*.mds")]:
        content = path.read_bytes()
        (root / "new").write_bytes(content)
        os.utime(root / "new", ns=(0, path.stat().st_mtime_ns + 5 * 10**9))
        os.replace(root / "new", path)

    with pytest.raises(DatasetChanged) as failure:
        list(batches)

    assert ("dataset index" in str(failure.value)) == (format == "indexed")


def test_a_server_without_ranges_is_an_error(root, nginx):
    make_npy(root)

    with pytest.raises(DatasetError, match="ranges") as failure:
        Dataset(f"{nginx(root, 'max_ranges 0;')}/rows.npy?token=secret")

    assert "/rows.npy" in str(failure.value) and "secret" not in str(failure.value)


@pytest.mark.parametrize("more", ["", "autoindex on;"])
def test_a_directory_without_an_index_is_an_error_with_the_ways_out(root, nginx, more):
    (root / "set").mkdir()
    make_tar(root / "set")
    url = nginx(root, more)

    with pytest.raises(DatasetError) as failure:
        Dataset(f"{url}/set/")
    with pytest.raises(DatasetError) as no_slash:
        Dataset(f"{url}/set")

    assert all(name in str(failure.value) for name in ("{000..099}", "index.json", ".penstock-index"))
    assert "'/'" in str(no_slash.value)


def test_a_file_that_is_missing_is_named(root, nginx):
    make_tar(root)
    url = nginx(root)

    for name, missing in (("train-{000..003}.tar", "train-003.tar"), ("none.npy", "none.npy")):
        with pytest.raises(DatasetError, match=f"/{missing}.*404"):
            Dataset(f"{url}/{name}")


@pytest.mark.parametrize("pattern", ["{", "}", "{}", "{a}", "{1..}", "{2..1}", "{a..c}", "{1,{2,3}}", "{1..2}}", "{0..999999}", "{0..999}{0..999}"])
def test_invalid_patterns_are_refused(pattern, root, nginx):
    with pytest.raises(DatasetError):
        Dataset(f"{nginx(root)}/x-{pattern}.tar")


def test_verbs_read_the_web_and_do_not_write_to_it(root, nginx, penstock, tmp_path):
    (root / "set").mkdir()
    make_indexed(root / "set")
    url = nginx(root)

    found = penstock.run("dataset", "inspect", f"{url}/set/", "--json").json()
    penstock.run("pack", f"{url}/set/", tmp_path / "out", "--format", "npy").ok()

    assert (found["samples"], found["shards"], found["format"]) == (1200, 12, "npy")
    assert len(Dataset(tmp_path / "out")) == 1200
    penstock.run("dataset", "index", f"{url}/set/").exits(66)
    penstock.run("pack", root / "set", f"{url}/new/", "--format", "npy").exits(64)

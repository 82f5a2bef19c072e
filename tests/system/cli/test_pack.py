"""`penstock pack`: shards of every format, from every format, with their index."""
import json
import os
import random
import signal
import subprocess
import tarfile
from pathlib import Path

import pytest

from harness.fault_proxy import s3_error
from harness.program import TOP
from harness.waiting import wait_for

INDEX = ".penstock-index"
FORMATS = ["tar", "mds", "tfrecord"]


def pictures(directory, n=40):
    """Two files for each sample, which pack joins: 7.jpg, 7.cls."""
    directory.mkdir()
    rng = random.Random(5)
    for i in range(n):
        (directory / f"{i:03}.jpg").write_bytes(b"\xff\xd8\xff" + rng.randbytes(500 + i))
        (directory / f"{i:03}.cls").write_text(str(i % 10))
    return directory


def rows(directory, n=10):
    directory.mkdir()
    for i in range(n):
        (directory / f"{i}.dat").write_bytes(bytes([i]) * 64)
    return directory


SAMPLES = """
import json, sys
sys.path.insert(0, sys.argv[1])
from penstock.data import Dataset
data = Dataset(sys.argv[2])
found = []
for sample in data.__getitems__(list(range(len(data)))):
    fields = sample if isinstance(sample, dict) else {"": sample}
    found.append({name: (value.encode() if isinstance(value, str) else bytes(value)).hex() for name, value in fields.items()})
print(json.dumps(found))
"""


def samples(url, env=None):
    """The fields of all samples, read by penstock.data."""
    done = subprocess.run(
        ["/usr/bin/python3", "-c", SAMPLES, TOP / "build" / "python", url], env=os.environ | (env or {}),
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def images(url, env=None):
    return sorted(sample["jpg"] for sample in samples(url, env))


@pytest.fixture
def source(tmp_path):
    return pictures(tmp_path / "pictures")


@pytest.mark.parametrize("name", FORMATS)
def test_samples_are_the_same_in_each_format(penstock, tmp_path, source, name):
    wanted = sorted(path.read_bytes().hex() for path in source.glob("*.jpg"))

    result = penstock.run("pack", source, tmp_path / "out", "--format", name, "--shard-size", "8K", "--json").json()

    files = sorted(os.listdir(tmp_path / "out"))
    assert result["samples"] == 40 and result["shards"] > 2
    assert INDEX in files and len([file for file in files if file.startswith("shard-")]) == result["shards"]
    assert images(tmp_path / "out") == wanted
    (tmp_path / "out" / INDEX).unlink()  # found again by a scan
    assert images(tmp_path / "out") == wanted


@pytest.mark.parametrize("first, second", [("tar", "mds"), ("mds", "tfrecord"), ("tfrecord", "tar"), ("mds", "tar"), ("tar", "tar")])
def test_packed_sets_are_packed_again(penstock, tmp_path, source, first, second):
    penstock.run("pack", source, tmp_path / "a", "--format", first).ok()

    penstock.run("pack", tmp_path / "a", tmp_path / "b", "--format", second, "--shuffle", "--seed", "3").ok()

    assert images(tmp_path / "b") == images(tmp_path / "a")


@pytest.mark.parametrize("name", FORMATS)
def test_labels_of_folders_are_a_field(penstock, tmp_path, name):
    for i in range(4):
        (tmp_path / "in" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / "ab"[i % 2] / f"{i}.jpg").write_bytes(b"\xff\xd8\xff%d" % i)
    pack = ("pack", tmp_path / "in", tmp_path / "out", "--labels", "folder")

    penstock.run(*pack, "--format", "records").exits(64)
    penstock.run(*pack, "--format", name).ok()

    fields = penstock.run("dataset", "inspect", tmp_path / "out", "--json").json()["fields"]
    assert {field["name"]: field["type"] for field in fields}["cls"] == {"tar": "text"}.get(name, "int64")
    (tmp_path / "in" / "a" / "0.cls").write_text("7")
    penstock.run(*pack, "--format", name, "--force").exits(64)


def test_a_label_and_a_key_have_room_next_to_the_fields_of_the_objects(penstock, tmp_path):
    (tmp_path / "many" / "cat").mkdir(parents=True)
    for i in range(254):
        (tmp_path / "many" / "cat" / f"x.e{i:03}").write_text(str(i))
    penstock.run("pack", tmp_path / "many", tmp_path / "mds", "--format", "mds", "--labels", "folder").ok()
    (sample,) = samples(str(tmp_path / "mds"))
    assert len(sample) == 256 and sample["e253"] == b"253".hex()

    (tmp_path / "many" / "cat" / "x.f").write_text("one more")
    done = penstock.run("pack", tmp_path / "many", tmp_path / "other", "--format", "mds", "--labels", "folder").exits(66)
    assert "more than 254 objects" in done.err


def test_rows_of_one_size_become_records_and_arrays(penstock, tmp_path):
    source = rows(tmp_path / "rows")

    penstock.run("pack", source, tmp_path / "records", "--format", "records").ok()
    penstock.run("pack", tmp_path / "records", tmp_path / "npy", "--format", "npy", "--shard-size", "256").ok()

    wanted = [{"": (bytes([i]) * 64).hex()} for i in range(10)]
    assert (tmp_path / "records" / "shard-000000.bin").stat().st_size == 640
    assert samples(tmp_path / "records") == wanted
    assert samples(tmp_path / "npy") == wanted


def test_a_seed_decides_the_order(penstock, tmp_path):
    source = rows(tmp_path / "rows")
    orders = []

    for name, seed in [("a", "1"), ("b", "1"), ("c", "2")]:
        penstock.run("pack", source, tmp_path / name, "--format", "records", "--shuffle", "--seed", seed, "--jobs", "3").ok()
        orders.append((tmp_path / name / "shard-000000.bin").read_bytes())

    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[2]) == sorted(orders[0])


def test_a_store_gets_the_index_last_and_keeps_what_is_there(penstock, tmp_path, store, source):
    store.client.create_bucket(Bucket="bucket")

    penstock.run("pack", source, "s3://bucket/d", "--format", "tar", "--shard-size", "8K", env=store.env).ok()

    keys = store.keys("bucket")
    when = {key: store.client.head_object(Bucket="bucket", Key=key)["LastModified"] for key in keys}
    assert f"d/{INDEX}" in keys and when[f"d/{INDEX}"] == max(when.values())
    penstock.run("pack", source, "s3://bucket/d", "--format", "mds", env=store.env).exits(69)
    store.client.put_object(Bucket="bucket", Key="d/notes.txt", Body=b"mine")
    penstock.run("pack", source, "s3://bucket/d", "--format", "mds", "--force", env=store.env).ok()
    assert sorted(store.keys("bucket")) == [f"d/{INDEX}", "d/index.json", "d/notes.txt", "d/shard-000000.mds"]
    back = penstock.run("pack", "s3://bucket/d/", tmp_path / "back", "--format", "tar", env=store.env).ok()
    assert "40 samples" in back.out
    assert images(tmp_path / "back") == sorted(path.read_bytes().hex() for path in source.glob("*.jpg"))


def test_a_failure_leaves_no_shards(penstock, tmp_path):
    source = rows(tmp_path / "rows")
    (source / "9.dat").write_bytes(b"short")

    result = penstock.run("pack", source, tmp_path / "out", "--format", "records", "--shard-size", "128").exits(64)

    assert "'--format" not in result.out and os.listdir(tmp_path / "out") == []


def test_an_interrupt_leaves_no_shards(penstock, tmp_path):
    source = tmp_path / "large"
    source.mkdir()
    for i in range(100):
        (source / f"{i}.bin").touch()
        os.truncate(source / f"{i}.bin", 4 << 20)

    process = penstock.popen("pack", source, tmp_path / "out", "--format", "tar", "--shard-size", "4M", "--jobs", "1")
    wait_for(lambda: (tmp_path / "out" / "shard-000001.tar").exists())
    process.popen.send_signal(signal.SIGINT)

    process.wait().exits(130)
    assert os.listdir(tmp_path / "out") == []


# After Ctrl-C has cancelled the request in flight, penstock needs new requests to remove the
# shards.
def test_an_interrupt_leaves_no_shards_in_a_store_and_says_so(penstock, tmp_path, store, fault_proxy):
    store.client.create_bucket(Bucket="bucket")
    source = rows(tmp_path / "rows", 40)

    hold = fault_proxy.fault(method="PUT", path="shard-000003", hold="request")
    pack = ("pack", source, "s3://bucket/d/", "--format", "records", "--shard-size", "128", "--jobs", "1")

    process = penstock.popen(*pack, env=store.env | {"AWS_ENDPOINT_URL": fault_proxy.url})
    hold.wait()
    assert len(store.keys("bucket")) == 3
    process.popen.send_signal(signal.SIGINT)
    result = process.wait().exits(130)

    assert store.keys("bucket") == [] and "s3://bucket/d/" in result.err
    penstock.run(*pack, env=store.env).ok()


# The store keeps the index, but its reply reports a failure.
def test_a_failure_at_the_index_leaves_no_index(penstock, tmp_path, store, fault_proxy, source):
    store.client.create_bucket(Bucket="bucket")
    refused = fault_proxy.fault(method="PUT", path=INDEX, status=403, body=s3_error("AccessDenied"), carry_out=True)

    penstock.run("pack", source, "s3://bucket/d", "--format", "tar", env=store.env | {"AWS_ENDPOINT_URL": fault_proxy.url}).exits(77)

    assert refused.hits == 1
    assert store.keys("bucket") == []


# In a directory of the source, the new shards would become samples of the source.
def test_a_target_in_the_source_is_refused_and_not_made(penstock, tmp_path, store, source):
    store.client.create_bucket(Bucket="bucket")
    penstock.run("cp", "-r", f"{source}/", "s3://bucket/d/", env=store.env).ok()
    keys = store.keys("bucket")

    for outer, inner in [(source, source / "new" / "packed"), ("s3://bucket/d/", "s3://bucket/d/packed/"), ("s3://bucket", "s3://bucket/new/")]:
        result = penstock.run("pack", outer, inner, "--format", "tar", env=store.env).exits(64)
        assert str(outer) in result.err and str(inner) in result.err
    penstock.run("pack", source, tmp_path / "pictures-packed", "--format", "tar").ok()

    assert not (source / "new").exists() and store.keys("bucket") == keys


# Only the checksums of the index cover the bytes of a tar's members. Size and time of the damaged
# shard are unchanged.
def test_damage_is_found_by_the_checksums_of_the_index(penstock, tmp_path, source):
    penstock.run("pack", source, tmp_path / "out", "--format", "tar").ok()
    shard, times = tmp_path / "out" / "shard-000000.tar", (tmp_path / "out" / "shard-000000.tar").stat()
    data = bytearray(shard.read_bytes())
    data[1600] ^= 1
    shard.write_bytes(data)
    os.utime(shard, ns=(times.st_atime_ns, times.st_mtime_ns))

    penstock.run("pack", tmp_path / "out", tmp_path / "again", "--format", "mds").exits(66)


# A copied shard has another time, another ETag (from parts of another size), or no version to
# compare with the index.
def test_a_packed_set_is_copied_with_its_index(penstock, tmp_path, store, source):
    store.client.create_bucket(Bucket="bucket")
    wanted = sorted(path.read_bytes().hex() for path in source.glob("*.jpg"))

    def copy(*words):
        penstock.run("cp", "-r", *words, env=store.env).ok()

    def state(url):
        return penstock.run("dataset", "inspect", url, "--json", env=store.env).json()["index"]

    penstock.run("pack", source, tmp_path / "a", "--format", "mds", "--shard-size", "8K").ok()
    subprocess.run(["cp", "-r", tmp_path / "a", tmp_path / "b"], check=True)
    copy(f"{tmp_path}/a/", "s3://bucket/a/")
    copy("s3://bucket/a/", f"{tmp_path}/c/")
    penstock.run("pack", source, "s3://bucket/b/", "--format", "mds", env=store.env).ok()
    body = store.client.get_object(Bucket="bucket", Key="b/shard-000000.mds")["Body"].read()
    upload = {"Bucket": "bucket", "Key": "b/shard-000000.mds"}
    upload["UploadId"] = store.client.create_multipart_upload(**upload)["UploadId"]
    etag = store.client.upload_part(**upload, PartNumber=1, Body=body)["ETag"]
    store.client.complete_multipart_upload(**upload, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etag}]})

    assert [images(tmp_path / "b"), images(tmp_path / "c")] == [wanted, wanted]
    assert [images("s3://bucket/a/", store.env), images("s3://bucket/b/", store.env)] == [wanted, wanted]
    assert [state(tmp_path / "a"), state(tmp_path / "b"), state("s3://bucket/a/"), state("s3://bucket/b/")] == ["current", *["copied"] * 3]


def test_a_copy_with_other_samples_has_changed(penstock, tmp_path, source):
    penstock.run("pack", source, tmp_path / "a", "--format", "tar").ok()
    shard = tmp_path / "a" / "shard-000000.tar"
    data = bytearray(shard.read_bytes())
    data[1600] ^= 1
    shard.write_bytes(data)

    result = penstock.run("pack", tmp_path / "a", tmp_path / "b", "--format", "mds").exits(66)

    assert "shard-000000.tar" in result.err and "dataset index" in result.err
    shard.write_bytes(data[:-1])
    assert "shard-000000.tar" in penstock.run("pack", tmp_path / "a", tmp_path / "b", "--format", "mds").exits(66).err


def test_tars_are_read_by_other_programs(penstock, tmp_path, source):
    long = "d" * 90 + "/" + "ä" * 60
    (source / ("d" * 90)).mkdir()
    (source / f"{long}.jpg").write_bytes(b"\xff\xd8\xff")
    penstock.run("pack", source, tmp_path / "out", "--format", "tar").ok()

    with tarfile.open(tmp_path / "out" / "shard-000000.tar") as archive:
        names = archive.getnames()
        assert archive.extractfile("007.cls").read() == b"7"

    assert f"{long}.jpg" in names and len(names) == 81


def test_compressed_shards_are_smaller_and_have_the_same_samples(penstock, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for i in range(40):
        (source / f"{i:03}.dat").write_bytes(bytes([i]) * 1000)
    pack = ("pack", source, tmp_path / "out", "--shard-size", "8K", "--compression")

    refused = [penstock.run(*pack, "zstd", "--format", "tar").exits(64), penstock.run(*pack, "gz", "--format", "mds").exits(64)]
    penstock.run(*pack, "zstd", "--format", "mds").ok()
    penstock.run("pack", source, tmp_path / "plain", "--shard-size", "8K", "--format", "mds").ok()

    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["index.json", *(f"shard-{i:06}.mds.zstd" for i in range(len(names) - 1))] and len(names) > 2
    assert samples(tmp_path / "out") == samples(tmp_path / "plain")
    assert all((tmp_path / "out" / name).stat().st_size < 1000 for name in names[1:]) and all("--compression" in result.err for result in refused)
    damaged = tmp_path / "out" / names[1]
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    assert names[1] in penstock.run("pack", tmp_path / "out", tmp_path / "again", "--format", "tar").exits(66).err


PEERS = """
import glob, json, sys
import webdataset
from streaming import StreamingDataset
found = {"tar": [], "mds": [], "zstd": []}
for sample in webdataset.WebDataset(sorted(glob.glob(sys.argv[1] + "/tar/*.tar")), shardshuffle=False):
    found["tar"].append([sample["__key__"], sample["cls"].decode()])
for name in ("mds", "zstd"):
    data = StreamingDataset(local=sys.argv[1] + "/" + name, shuffle=False, batch_size=1, validate_hash="sha1" if name == "zstd" else None)
    for i in range(len(data)):
        found[name].append([data[i]["__key__"], data[i]["cls"]])
print(json.dumps(found))
"""
WRITERS = """
import sys
import webdataset
from streaming import MDSWriter
with webdataset.TarWriter(sys.argv[1] + "/theirs.tar") as out:
    for i in range(9):
        out.write({"__key__": f"{i:03}", "txt": f"text {i}", "cls": i})
with MDSWriter(out=sys.argv[1] + "/theirs", columns={"text": "str", "n": "int"}) as out:
    for i in range(9):
        out.write({"text": f"text {i}", "n": i})
"""


# The formats of webdataset and mosaicml-streaming, in both directions.
@pytest.mark.long
def test_peers_read_what_pack_writes_and_the_other_way_round(penstock, tmp_path):
    made = subprocess.run([TOP / "tools" / "test-venv", "datasets"], stdout=subprocess.PIPE, text=True, check=True)
    python = Path(made.stdout.strip()) / "bin" / "python"
    source = tmp_path / "labels"
    source.mkdir()
    for i in range(40):
        (source / f"{i:03}.dat").write_bytes(bytes([i]) * 1000)
        (source / f"{i:03}.cls").write_text(str(i % 10))
    for name in ["tar", "mds"]:
        penstock.run("pack", source, tmp_path / name, "--format", name, "--shard-size", "8K").ok()
    penstock.run("pack", source, tmp_path / "zstd", "--format", "mds", "--shard-size", "8K", "--compression", "zstd:7").ok()

    read = subprocess.run([python, "-c", PEERS, tmp_path], stdout=subprocess.PIPE, text=True, check=True)
    subprocess.run([python, "-c", WRITERS, tmp_path], stdout=subprocess.DEVNULL, check=True)
    penstock.run("pack", tmp_path / "theirs.tar", tmp_path / "a", "--format", "mds").ok()
    penstock.run("pack", tmp_path / "theirs", tmp_path / "b", "--format", "tar").ok()

    wanted = [[f"{i:03}", str(i % 10)] for i in range(40)]
    assert json.loads(read.stdout.splitlines()[-1]) == {"tar": wanted, "mds": wanted, "zstd": wanted}
    assert [bytes.fromhex(sample["txt"]).decode() for sample in samples(tmp_path / "a")] == [f"text {i}" for i in range(9)]
    assert [bytes.fromhex(sample["n.cls"]).decode() for sample in samples(tmp_path / "b")] == [str(i) for i in range(9)]

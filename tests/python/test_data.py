"""Data sets: every format, the shapes of samples, and errors that name shard and offset."""
import gzip
import io
import json
import os
import pickle
import shutil
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

from penstock.data import Dataset, DatasetChanged, DatasetDamaged, DatasetError, Loader, Mix
from python_child import TOP

FIXTURES = TOP / "tests" / "unit" / "dataset"


@pytest.fixture
def folder(tmp_path):
    """An empty directory for shards."""
    made = tmp_path / "set"
    made.mkdir()
    return made


def plain(value):
    """Returns the value with bytes instead of views, and lists instead of arrays, to compare whole samples."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, memoryview):
        return bytes(value)
    return value.tolist() if isinstance(value, np.ndarray) else value


def cifar10(path, labels, seed=0):
    """Writes a shard of CIFAR-10; returns its images."""
    pictures = np.random.default_rng(seed).integers(0, 256, (len(labels), 3, 32, 32), dtype="uint8")
    path.write_bytes(b"".join(bytes([label]) + picture.tobytes() for label, picture in zip(labels, pictures)))
    return pictures


def idx(path, array):
    code = {"uint8": 8, "int8": 9, "int16": 0xB, "int32": 0xC, "float32": 0xD, "float64": 0xE}[array.dtype.name]
    dims = struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(bytes([0, 0, code, array.ndim]) + dims + array.astype(array.dtype.newbyteorder(">")).tobytes())


def tar(path, members):
    """Writes an archive of `members`, a list of (name, bytes)."""
    with tarfile.open(path, "w") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data):
    """Returns a record of a TFRecord file."""
    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


def field(number, data):
    """Returns a protobuf field of at most 127 bytes."""
    assert len(data) < 128
    return bytes([number << 3 | 2, len(data)]) + data


def example(**features):
    """Returns a tf.train.Example with features of bytes, floats or small integers."""
    made = b""
    for name, values in features.items():
        if isinstance(values[0], bytes):
            kind = field(1, b"".join(field(1, value) for value in values))
        elif isinstance(values[0], float):
            kind = field(2, field(1, struct.pack(f"<{len(values)}f", *values)))
        else:
            kind = field(3, field(1, bytes(values)))
        made += field(1, field(1, name.encode()) + field(2, kind))
    return field(1, made)


def npy(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


# --- samples ---


def test_each_object_is_a_sample(folder):
    contents = {"a/1.jpg": b"one", "a/2.jpg": b"", "b ü%.jpg": b"three" * 1000}
    for name, content in contents.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / ".hidden").write_bytes(b"x")

    data = Dataset(folder, "objects")

    assert len(data) == 3 and data.format == "objects"
    assert [bytes(data[i]) for i in range(3)] == list(contents.values()) == [bytes(sample) for sample in data]
    assert data.place(2) == ("b ü%.jpg", 0, 5000)


# "a-b/" comes before "a/" in the list of objects, and after it in the list of classes.
def test_folders_are_labels(folder):
    names = ["a-b/1.txt", "a/1.txt", "a/deep/2.txt", "b/1.txt"]
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)

    data = pickle.loads(pickle.dumps(Dataset(folder, labels="folder")))

    found = [(bytes(sample["data"]).decode(), sample["label"]) for sample in data.__getitems__(range(4))]
    assert data.classes == ["a", "a-b", "b"] and found == list(zip(names, [1, 0, 0, 2]))
    assert Dataset(folder).classes == []


def test_labels_need_objects_in_folders(folder, ten):
    mixed = folder / "mixed"
    (mixed / "c").mkdir(parents=True)
    (mixed / "c" / "1.txt").write_text("1"), (mixed / "2.txt").write_text("2")

    for data, options, message in [(mixed, {"labels": "folder"}, "2.txt"), (folder, {"labels": "folder"}, "npy"), (mixed, {"labels": "name"}, "name")]:
        with pytest.raises(DatasetError, match=message) as raised:
            Dataset(data, **options)
        assert raised.value.code == "invalid"


def test_a_single_file_is_a_set_of_one_sample(folder):
    (folder / "one").write_bytes(b"content")

    data = Dataset(str(folder / "one"), "objects")

    assert len(data) == 1 and bytes(data[0]) == b"content" and data.place(0) == ("one", 0, 7)


def test_records_are_between_a_header_and_a_trailer(folder):
    (folder / "0").write_bytes(b"HEADER" + b"aaaabbbb" + b"END")
    (folder / "1").write_bytes(b"header" + b"END")
    (folder / "2").write_bytes(b"header" + b"cccc" + b"end")

    data = Dataset(folder, "records", record_size=4, header=6, trailer=3)

    assert [data[i].tobytes() for i in range(len(data))] == [b"aaaa", b"bbbb", b"cccc"]
    assert data.place(2) == ("2", 6, 4) and data[0].dtype == np.uint8 and data[0].shape == (4,)


def test_cifar10_has_labels_and_pictures(folder):
    first = cifar10(folder / "data_batch_1.bin", [3, 9], seed=1)
    cifar10(folder / "data_batch_2.bin", [7], seed=2)
    (folder / "readme.html").write_text("no samples")

    data = Dataset(folder, "cifar10")
    samples = data.__getitems__([2, 0, 1])

    assert len(data) == 3 and [int(sample["label"]) for sample in samples] == [7, 3, 9]
    assert np.array_equal(samples[2]["image"], first[1]) and samples[0]["image"].shape == (3, 32, 32)


def test_cifar100_has_two_labels(folder):
    (folder / "train.bin").write_bytes(bytes([4, 99]) + bytes(3072) + bytes([5, 1]) + bytes([255]) * 3072)

    data = Dataset(folder, "cifar100")

    assert [(int(sample["coarse"]), int(sample["fine"])) for sample in data] == [(4, 99), (5, 1)] and data[1]["image"].min() == 255


@pytest.mark.parametrize("dtype", ["?", "u1", "i1", "<u2", ">u2", "<i4", ">i4", "<i8", ">u8", "<f2", ">f4", "<f8"])
@pytest.mark.parametrize("shape", [(7,), (7, 3), (7, 2, 1, 3)])
def test_rows_of_numpy_arrays_have_their_dtype_and_shape(folder, dtype, shape):
    array = (np.arange(np.prod(shape)) % 2 if dtype == "?" else np.arange(np.prod(shape))).astype(dtype).reshape(shape)
    np.save(folder / "array.npy", array)

    data = Dataset(folder, "npy")

    assert len(data) == 7 and data[0].shape == shape[1:]
    got = data.__getitems__([6, 0, 3, 3])
    assert got.dtype == array.dtype and np.array_equal(got, array[[6, 0, 3, 3]])


def test_arrays_in_several_files_are_one_set(folder):
    np.save(folder / "0.npy", np.arange(6, dtype="f4").reshape(3, 2))
    np.save(folder / "1.npy", np.zeros((0, 2), "f4"))
    np.save(folder / "2.npy", np.arange(6, 10, dtype="f4").reshape(2, 2))

    data = Dataset(folder)

    assert data.format == "npy" and np.array_equal(data.__getitems__(range(5)), np.arange(10).reshape(5, 2)) and data.place(3)[0] == "2.npy"


# Values of eight bytes have the size of a row of two floats; penstock once read them as such rows.
@pytest.mark.parametrize("other", [np.zeros(4, "i8"), np.zeros((4, 2), ">f4"), np.zeros((4, 1, 2), "f4")])
def test_arrays_of_different_types_are_no_set(folder, other):
    np.save(folder / "0.npy", np.zeros((3, 2), "f4"))
    np.save(folder / "1.npy", other)

    with pytest.raises(DatasetError, match="0.npy.*1.npy"):
        Dataset(folder, "npy")


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "float32", "float64"])
def test_idx_files_have_big_endian_values(folder, dtype):
    array = (np.arange(24) * 5).astype(dtype).reshape(4, 2, 3)
    idx(folder / "train-images-idx3-ubyte", array)

    data = Dataset(folder / "train-images-idx3-ubyte", "idx")

    assert len(data) == 4 and np.array_equal(data.__getitems__([3, 1]), array[[3, 1]]) and np.array_equal(data[0] * 2, array[0] * 2)


def test_labels_in_idx_files_are_numbers(folder):
    idx(folder / "labels-idx1-ubyte", np.array([5, 0, 9], "uint8"))

    assert Dataset(folder, "idx").__getitems__([2, 0, 1]).tolist() == [9, 5, 0]


def test_windows_of_tokens_may_overlap(folder):
    np.arange(0, 11, dtype="uint16").tofile(folder / "0.bin")
    np.arange(100, 104, dtype="uint16").tofile(folder / "1.bin")

    apart, overlapping = Dataset(folder, "tokens", window=4), Dataset(folder, "tokens", window=4, stride=2)

    assert apart.__getitems__(range(len(apart))).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [100, 101, 102, 103]]
    assert [row[0] for row in overlapping.__getitems__(range(len(overlapping)))] == [0, 2, 4, 6, 100]
    assert overlapping.__getitems__([2, 1, 2]).tolist() == [[4, 5, 6, 7], [2, 3, 4, 5], [4, 5, 6, 7]]


# Each option belongs to another format, "tokens" or "records". If the option were ignored, the
# samples would differ from those that the caller expects.
@pytest.mark.parametrize("format", [None, "objects", "npy"])
@pytest.mark.parametrize("option", [{"window": 4}, {"stride": 4}, {"dtype": "uint16"}, {"record_size": 4}, {"header": 4}, {"trailer": 4}])
def test_options_of_another_format_are_refused(folder, format, option):
    np.save(folder / "a.npy", np.arange(3))

    with pytest.raises(DatasetError, match=next(iter(option))):
        Dataset(folder, format, **option)


def test_tokens_have_no_header(folder):
    np.arange(2000, dtype="uint16").tofile(folder / "tokens.bin")

    with pytest.raises(DatasetError, match="header.*records"):
        Dataset(folder, "tokens", window=10, header=1024)


@pytest.mark.parametrize("format, needed", [("tokens", "window"), ("records", "record_size")])
def test_the_size_of_a_sample_is_needed(folder, format, needed):
    (folder / "x.bin").write_bytes(bytes(100))

    with pytest.raises(DatasetError, match=needed):
        Dataset(folder, format)


@pytest.mark.parametrize("options, error, message", [
    ({"decode": 64}, ValueError, "height, width"), ({"decode": (64,)}, ValueError, "height, width"), ({"decode": (0, 64)}, ValueError, "8192"),
    ({"column": "jpg"}, ValueError, "decode"), ({"dtype": "int8"}, ValueError, "uint16"),
])  # fmt: skip
def test_invalid_options_name_the_valid_ones(ten, options, error, message):
    with pytest.raises(error, match=message):
        Dataset(ten.url, **options)


def test_texts_of_sets_and_loaders(ten):
    loader = Loader(ten, 4)

    assert repr(ten) == f"Dataset({ten.url!r}, format={ten.format!r}, samples={len(ten)})" and repr(ten) in repr(loader)
    assert "samples=" in repr(Mix([(ten, 1)])) and DatasetError.__module__ == "penstock.data"
    for wrong in ("s3://bucket/", [1, 2]):
        with pytest.raises(TypeError, match="Dataset or a Mix"):
            Loader(wrong, 4)
    for wrong in ([ten], [("s3://bucket/", 1)]):
        with pytest.raises(TypeError, match="pairs"):
            Mix(wrong)
    with pytest.raises(TypeError, match="batch_size"):
        loader.dataloader(batch_size=4)


def test_tokens_of_four_bytes(folder):
    np.array([1, 2**31, 2**32 - 1, 7], "uint32").tofile(folder / "tokens")

    assert Dataset(folder / "tokens", "tokens", dtype="uint32", window=2)[1].tolist() == [2**32 - 1, 7]


# Megatron writes x.bin and x.idx, nanoGPT train.bin, val.bin and meta.pkl.
def test_files_next_to_tokens_are_no_tokens(folder):
    np.arange(8, dtype="int32").tofile(folder / "corpus.bin")
    (folder / "corpus.idx").write_bytes(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, 1, 2) + bytes(40))
    (folder / "meta.pkl").write_bytes(bytes(12))

    data = Dataset(folder, "tokens", dtype="uint32", window=4)

    assert data.__getitems__(range(len(data))).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(DatasetError, match="corpus.idx.*int32.*uint32"):
        Dataset(folder, "tokens", window=4)
    (folder / "corpus.bin").write_bytes(bytes(39))
    with pytest.raises(DatasetDamaged, match="corpus.bin.*39"):
        Dataset(folder, "tokens", dtype="uint32", window=4)


# TFDS puts its descriptions next to the shards, other publishers a licence; torchvision keeps the
# .gz files next to the unpacked files.
def test_files_of_another_kind_next_to_the_shards_are_left_out(tmp_path):
    for name in ("records", "arrays"):
        (tmp_path / name).mkdir()
    (tmp_path / "records" / "part.00000").write_bytes(bytes(range(100)))
    (tmp_path / "records" / "part.00001").write_bytes(bytes(range(100, 150)))
    (tmp_path / "records" / "README.md").write_bytes(bytes(20))
    (tmp_path / "records" / "x.r00").write_bytes(bytes(range(150, 160)))
    images = np.arange(60, dtype="uint8").reshape(5, 3, 4)
    idx(tmp_path / "arrays" / "train-images-idx3-ubyte", images)
    with gzip.open(tmp_path / "arrays" / "train-images-idx3-ubyte.gz", "wb") as zipped:
        zipped.write((tmp_path / "arrays" / "train-images-idx3-ubyte").read_bytes())
    (tmp_path / "arrays" / "readme.txt").write_text("x")

    records, arrays = Dataset(tmp_path / "records", "records", record_size=10), Dataset(tmp_path / "arrays")

    assert records.__getitems__(range(len(records)))[:, 0].tolist() == list(range(0, 160, 10))
    assert arrays.format == "idx" and np.array_equal(arrays.__getitems__(range(len(arrays))), images)


def test_an_idx_file_is_detected_by_its_name_or_its_bytes(folder):
    images = np.arange(60, dtype="uint8").reshape(5, 3, 4)
    idx(folder / "x.idx", images)
    (folder / "x.idx.gz").write_bytes(gzip.compress((folder / "x.idx").read_bytes()))

    for name in ("x.idx", "x.idx.gz"):
        assert Dataset(folder / name).format == "idx" and np.array_equal(Dataset(folder / name)[4], images[4])


def test_an_index_of_wids_does_not_hide_its_tars(folder):
    for shard in range(2):
        tar(folder / f"{shard}.tar", [(f"{shard}{i}.txt", b"x") for i in range(3)])
    (folder / "index.json").write_text(json.dumps({"wids_version": 1, "shardlist": [{"url": "0.tar", "nsamples": 3}, {"url": "1.tar", "nsamples": 3}]}))

    assert Dataset(folder).format == "tar" and len(Dataset(folder)) == 6


def test_an_error_of_a_shard_names_the_set(folder):
    (folder / "data.bin").write_bytes(bytes(25))

    with pytest.raises(DatasetError, match=f"{folder}.*data.bin.*20"):
        Dataset(folder, "records", record_size=10)


def test_members_of_a_tar_with_one_key_are_a_sample(folder):
    array = np.arange(6, dtype=">i4").reshape(2, 3)
    tar(
        folder / "0.tar",
        [("d/one.jpg", b"JPEG"), ("d/one.json", b'{"label": 3, "name": "\xc3\xbc"}'), ("d/one.txt", "grün".encode()), ("d/one.npy", npy(array))],
    )
    tar(folder / "1.tar", [("two.cls", b"42"), ("two.seg.PNG", b""), ("three.cls", b"-1")])

    data = Dataset(folder, "tar")

    assert len(data) == 3 and plain(data[0]) == {
        "jpg": b"JPEG", "json": {"label": 3, "name": "ü"}, "txt": "grün", "npy": array.tolist()
    }  # fmt: skip
    assert set(data[1]) == {"cls", "seg.png"} and bytes(data[1]["seg.png"]) == b"" and data.place(1)[:2] == ("1.tar", 0)
    assert data[0]["npy"].dtype == array.dtype


def test_records_of_tensorflow_have_features(folder):
    features = [{"image": [b"JPEG"], "label": [7], "box": [0.5, -1.5], "words": [b"a", b"bc"]}, {"label": [1, 2, 3]}]
    (folder / "train-00000-of-00002.tfrecord").write_bytes(b"".join(record(example(**one)) for one in features))
    (folder / "train-00001-of-00002.tfrecord").write_bytes(record(example(label=[9])))

    data = Dataset(folder)

    assert data.format == "tfrecord" and len(data) == 3
    first = plain(data[0])
    assert first["label"] == [7] and first["box"] == [0.5, -1.5] and [first["image"], first["words"]] in (
        [b"JPEG", [b"a", b"bc"]], [[b"JPEG"], [b"a", b"bc"]]
    )  # fmt: skip
    assert data[1]["label"].dtype == np.int64 and data[1]["label"].tolist() == [1, 2, 3] and data[2]["label"].tolist() == [9]


# The shard was written by mosaicml-streaming 0.13.0.
def test_shards_of_mosaicml_have_columns(folder):
    shutil.copy(FIXTURES / "mosaicml.mds", folder / "shard.00000.mds")
    shutil.copy(FIXTURES / "mosaicml.json", folder / "index.json")

    data = Dataset(folder, "mds")
    sample = plain(data[1])

    assert len(data) == 2 and sample["s"] == [[1, 2], [3, 4]] and sample["ja"][1] == b"jj2" and data[1]["n"].dtype == np.int16
    assert data[1]["p"].shape == (1, 2, 3) and isinstance(sample["i"], int) and sample["d"] == "1.25"


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"])
def test_numbers_of_mosaicml_keep_their_value(folder, dtype):
    limits = np.finfo(dtype) if dtype.startswith("float") else np.iinfo(dtype)
    values = np.array([limits.min, 0, 1, limits.max], dtype)
    begin = 4 + 5 * 4
    offsets = np.arange(5, dtype="<u4") * values.itemsize + begin
    shard = np.array([4], "<u4").tobytes() + offsets.astype("<u4").tobytes() + values.tobytes()
    (folder / "shard.00000.mds").write_bytes(shard)
    described = {
        "column_encodings": [dtype], "column_names": ["n"], "column_sizes": [values.itemsize], "compression": None, "format": "mds", "hashes": [],
        "raw_data": {"basename": "shard.00000.mds", "bytes": len(shard), "hashes": {}}, "samples": 4, "size_limit": 1 << 26, "version": 2, "zip_data": None,
    }  # fmt: skip
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": [described]}))

    got = [Dataset(folder, "mds")[i]["n"] for i in range(4)]

    assert got == values.tolist() and {type(value) for value in got} == {float if dtype.startswith("float") else int}


# The chunk was written by litData.
def test_chunks_of_litdata_have_fields(folder):
    shutil.copy(FIXTURES / "litdata.bin", folder / "chunk-0-0.bin")
    shutil.copy(FIXTURES / "litdata.json", folder / "index.json")

    data = Dataset(folder, "litdata")
    sample = plain(data[1])

    assert len(data) == 2 and (sample["i"], sample["s"], sample["b"]) == (1, "text", True) and sample["x"] == b"raw"
    assert data[1]["t2"].dtype == np.int64 and data[1]["n1"].dtype == np.float32 and data[0]["t2"].ndim == 2


# Writes chunks as litData's optimize() writes the arrays of a tokenizer: the offsets of the chunk's
# items, then their tokens.
def make_token_chunks(folder, loader="TokensLoader", serializer="no_header_tensor:16"):
    chunks, spec = [], json.dumps([1, {"type": None, "context": None, "children_spec": []}])
    for number, lengths in enumerate([(5, 4), (3,)]):
        offsets = 4 * (len(lengths) + 2 + np.concatenate([[0], np.cumsum(lengths)]))
        tokens = np.arange(sum(lengths), dtype="<i4") + 100 * number
        (folder / f"chunk-0-{number}.bin").write_bytes(np.array([len(lengths), *offsets], "<u4").tobytes() + tokens.tobytes())
        chunks.append({"chunk_bytes": 4 * sum(lengths), "chunk_size": len(lengths), "dim": sum(lengths), "filename": f"chunk-0-{number}.bin"})
    config = {"data_format": [serializer], "data_spec": spec, "item_loader": loader, "compression": None, "encryption": None}
    (folder / "index.json").write_text(json.dumps({"chunks": chunks, "config": config}))
    (folder / "chunk-1-0.bin").write_bytes(b"of a writer that was killed")


def test_chunks_of_litdata_are_tokens(folder):
    make_token_chunks(folder)

    data = Dataset(folder, "tokens", dtype="uint32", window=3)

    assert data.__getitems__(range(len(data))).tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [100, 101, 102]]


# The chunk was written by litData: item i has 7 + i % 5 tokens, which count from 10 * i.
def test_tokens_that_litdata_wrote_are_read(folder):
    shutil.copy(FIXTURES / "litdata-tokens.bin", folder / "chunk-0-0.bin")
    shutil.copy(FIXTURES / "litdata-tokens.json", folder / "index.json")

    data = Dataset(folder, "tokens", dtype="uint32", window=11)

    stream = np.concatenate([np.arange(7 + i % 5) + 10 * i for i in range(50)])
    assert data.__getitems__(range(len(data))).tolist() == stream[: len(stream) // 11 * 11].reshape(-1, 11).tolist()


def test_a_listed_chunk_may_have_any_name(folder):
    make_token_chunks(folder)
    (folder / "chunk-0-1.bin").rename(folder / "chunk.txt")
    (folder / "index.json").write_text((folder / "index.json").read_text().replace("chunk-0-1.bin", "chunk.txt"))

    assert len(Dataset(folder, "tokens", dtype="uint32", window=3)) == 4


@pytest.mark.parametrize("options, message", [
    ({}, "tokens.*uint32.*window"), ({"format": "litdata"}, "tokens.*uint32"), ({"format": "tokens", "window": 3}, "index.json.*int32.*uint32"),
])  # fmt: skip
def test_chunks_of_tokens_need_a_window_and_a_type(folder, options, message):
    make_token_chunks(folder)

    with pytest.raises(DatasetError, match=message):
        Dataset(folder, **options)


def test_chunks_of_tokens_are_verified(folder):
    make_token_chunks(folder, serializer="no_header_tensor:18")
    with pytest.raises(DatasetError, match="int64"):
        Dataset(folder, "tokens", dtype="uint32", window=3)
    make_token_chunks(folder, loader="PyTreeLoader")
    with pytest.raises(DatasetError, match="litdata"):
        Dataset(folder, "tokens", dtype="uint32", window=3)
    make_token_chunks(folder)
    (folder / "chunk-0-1.bin").write_bytes(np.array([1, 8, 24], "<u4").tobytes() + bytes(12))
    with pytest.raises(DatasetDamaged, match="chunk-0-1.bin.*byte 8"):
        Dataset(folder, "tokens", dtype="uint32", window=3)


def make_records(folder):
    cifar10(folder / "test_batch.bin", [1])


def make_array(folder):
    np.save(folder / "a.npy", np.arange(3))


def make_idx(folder):
    idx(folder / "labels-idx1-ubyte", np.zeros(9, "uint8"))


def make_tar(folder):
    tar(folder / "0.tar", [("a.txt", b"1"), ("b.txt", b"2")])


def make_tfrecord(folder):
    (folder / "x.tfrecord").write_bytes(record(example(a=[1])))


def make_mds(folder):
    shutil.copy(FIXTURES / "mosaicml.mds", folder / "shard.00000.mds")
    shutil.copy(FIXTURES / "mosaicml.json", folder / "index.json")


def make_litdata(folder):
    shutil.copy(FIXTURES / "litdata.bin", folder / "chunk-0-0.bin")
    shutil.copy(FIXTURES / "litdata.json", folder / "index.json")


def make_objects(folder):
    (folder / "cat.jpg").write_bytes(b"\xff\xd8\xff\xe0JPEG"), (folder / "dog.jpg").write_bytes(b"\xff\xd8\xff\xe0JP")


MADE = {
    "cifar10": (make_records, 1), "npy": (make_array, 3), "idx": (make_idx, 9), "tar": (make_tar, 2), "tfrecord": (make_tfrecord, 1),
    "mds": (make_mds, 2), "litdata": (make_litdata, 2), "objects": (make_objects, 2),
}  # fmt: skip


@pytest.mark.parametrize("format", MADE)
def test_the_format_is_detected(folder, format):
    make, count = MADE[format]
    make(folder)

    data = Dataset(folder)

    assert (data.format, len(data)) == (format, count)


# --- numbers ---


@pytest.fixture
def ten(folder):
    """Ten rows, 0 to 9."""
    np.save(folder / "0.npy", np.arange(10))
    return Dataset(folder)


def test_numbers_count_from_the_end_if_they_are_negative(ten):
    assert (ten[-1], ten[-10], ten[np.int64(3)], ten[torch.tensor(4)]) == (9, 0, 3, 4)


@pytest.mark.parametrize("number", [10, -11, 2**64, 2**200])
def test_a_number_out_of_range_is_an_index_error(ten, number):
    for read in (ten.__getitem__, ten.place, lambda i: ten.__getitems__([0, i])):
        with pytest.raises(IndexError, match="10"):
            read(number)


def test_samples_are_read_together_in_any_order_and_repeatedly(ten):
    assert ten.__getitems__([3, 3, 9, 0, 3, -1]).tolist() == [3, 3, 9, 0, 3, 9]
    assert ten.__getitems__(np.array([2, 1])).tolist() == [2, 1] == ten.__getitems__(range(2, 0, -1)).tolist()


@pytest.mark.parametrize("format", MADE)
def test_no_samples_are_an_empty_list(folder, format):
    MADE[format][0](folder)

    assert len(Dataset(folder).__getitems__([])) == 0


@pytest.mark.parametrize("format", MADE)
def test_a_set_can_be_pickled(folder, format):
    MADE[format][0](folder)
    data = Dataset(folder, threads=2)

    again = pickle.loads(pickle.dumps(data))

    assert again.format == format and plain(list(again.__getitems__(range(len(data))))) == plain(list(data.__getitems__(range(len(data)))))


# If a process opened the set with other samples, it would number the samples differently.
def test_a_set_that_has_other_samples_by_now_cannot_be_opened_again(folder, ten):
    sent = pickle.dumps(ten)
    np.save(folder / "1.npy", np.arange(3))

    with pytest.raises(DatasetChanged, match=str(folder)) as raised:
        pickle.loads(sent)

    assert raised.value.code == "changed"


def test_a_path_and_its_text_are_the_same(folder, ten):
    assert len(Dataset(Path(folder))) == len(Dataset(str(folder) + "/")) == 10


# --- errors ---


def test_a_set_that_is_missing_or_empty_is_not_found(folder):
    for path in (folder / "none", folder):
        with pytest.raises(DatasetError, match=str(path)) as raised:
            Dataset(path)
        assert raised.value.code == "not found"


def test_a_set_without_samples_is_refused(folder):
    np.save(folder / "0.npy", np.zeros((0, 3)))

    with pytest.raises(DatasetError, match=str(folder)):
        Dataset(folder, "npy")


@pytest.mark.parametrize("format", ["npy", "idx", "mds", "litdata", "tar"])
def test_an_empty_file_is_no_set(folder, format):
    (folder / f"0.{format}").write_bytes(b"")

    with pytest.raises(DatasetError, match=f"0.{format}|{folder}"):
        Dataset(folder, format)


@pytest.mark.parametrize(
    "arguments", [{"record_size": -1}, {"header": -1}, {"trailer": 2**64}, {"threads": -1}, {"threads": 2**32}, {"stride": 2**64 + 1}]
)
def test_numbers_that_are_too_large_or_negative_are_refused(ten, folder, arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        Dataset(folder, "npy", **arguments)


@pytest.mark.parametrize(
    "arguments", [{"format": "zip"}, {"format": "records"}, {"format": "tokens"}]
)
def test_arguments_that_make_no_format_are_invalid(ten, folder, arguments):
    with pytest.raises(DatasetError) as raised:
        Dataset(folder, **arguments)

    assert raised.value.code == "invalid"


@pytest.mark.parametrize(
    "format, name, cut",
    [("cifar10", "test_batch.bin", 100), ("npy", "a.npy", 3), ("idx", "labels-idx1-ubyte", 1), ("tar", "0.tar", 9700),
     ("tfrecord", "x.tfrecord", 1), ("mds", "shard.00000.mds", 10), ("litdata", "chunk-0-0.bin", 10)],
)  # fmt: skip
def test_a_shard_that_was_cut_is_damaged(folder, format, name, cut):
    MADE[format][0](folder)
    os.truncate(folder / name, (folder / name).stat().st_size - cut)

    for given in (format, None):
        with pytest.raises(DatasetDamaged, match=rf"{folder.name}.*{name}.*\d") as raised:
            Dataset(folder, given)
        assert raised.value.code == "corrupt"


def test_a_record_with_another_checksum_is_damaged_and_has_a_place(folder):
    good, bad = record(example(a=[1, 2, 3])), bytearray(record(example(a=[4, 5, 6])))
    bad[20] ^= 1
    (folder / "0.tfrecord").write_bytes(good + bad)
    data = Dataset(folder)

    with pytest.raises(DatasetDamaged, match=rf"sample 1 of '{folder}'.*0.tfrecord.*\b{len(good)}\b"):
        data.__getitems__([0, 1])

    assert data[0]["a"].tolist() == [1, 2, 3]


@pytest.mark.parametrize("format", ["mds", "litdata"])
def test_an_index_with_a_shard_that_is_missing_names_it(folder, format):
    MADE[format][0](folder)
    (shard,) = [path for path in folder.iterdir() if path.name != "index.json"]
    shard.rename(folder / "other")

    with pytest.raises(DatasetError, match=shard.name) as raised:
        Dataset(folder, format)

    assert raised.value.code == "not found"


def test_an_index_that_is_no_json_is_damaged(folder):
    make_mds(folder)
    (folder / "index.json").write_text(json.dumps({"shards": 5}) + "]")

    with pytest.raises(DatasetDamaged, match=f"'{folder}'.*index.json"):
        Dataset(folder, "mds")


@pytest.mark.parametrize("content", [b"\xff\xfe", b'{"a": ', b""])
def test_json_in_a_tar_that_is_invalid_names_shard_and_offset(folder, content):
    tar(folder / "0.tar", [("a.json", b"1"), ("b.json", content)])
    data = Dataset(folder)

    with pytest.raises(DatasetDamaged, match=r"0.tar.*\b1024\b.*json"):
        data[1]

    assert data[0]["json"] == 1


def test_text_in_a_tar_that_is_no_utf8_names_shard_and_offset(folder):
    tar(folder / "0.tar", [("a.txt", b"\xff\xfe")])

    with pytest.raises(DatasetDamaged, match=r"0.tar.*\b0\b.*txt"):
        Dataset(folder)[0]


# Readers keep files open, so the test also truncates a file that is already open.
@pytest.mark.parametrize("opened", [False, True])
def test_a_file_that_is_cut_later_has_changed(folder, ten, opened):
    size = (folder / "0.npy").stat().st_size
    if opened:
        assert ten[9] == 9
    os.truncate(folder / "0.npy", size - 8)

    with pytest.raises(DatasetChanged, match=r"0.npy.*\d") as raised:
        ten[9]

    assert raised.value.code == "changed"


def test_a_file_of_another_size_has_changed(folder):
    (folder / "a").write_bytes(b"before")
    data = Dataset(folder, "objects")
    (folder / "a").write_bytes(b"longer than before")

    with pytest.raises(DatasetChanged, match=f"{folder}/a"):
        data[0]


def test_a_file_that_is_removed_later_is_not_found(folder):
    (folder / "a").write_bytes(b"content")
    data = Dataset(folder, "objects")
    (folder / "a").unlink()

    with pytest.raises(DatasetError, match=f"{folder}/a") as raised:
        data[0]

    assert raised.value.code == "not found"


def test_a_set_goes_on_after_an_error(folder):
    for name in ("a", "b"):
        (folder / name).write_bytes(name.encode())
    data = Dataset(folder, "objects")
    (folder / "a").rename(folder / "gone")

    with pytest.raises(DatasetError):
        data.__getitems__([0, 1])
    (folder / "gone").rename(folder / "a")

    assert [bytes(sample) for sample in data.__getitems__([0, 1])] == [b"a", b"b"]


# --- torch's own DataLoader ---


@pytest.mark.parametrize("workers", [0, 2])
def test_torch_reads_a_set_by_number(folder, workers):
    np.save(folder / "0.npy", np.arange(100, dtype="f4").reshape(50, 2))
    loader = torch.utils.data.DataLoader(Dataset(folder), batch_size=32, shuffle=True, num_workers=workers)

    batches = list(loader)

    assert [tuple(batch.shape) for batch in batches] == [(32, 2), (18, 2)]
    assert sorted(torch.cat(batches)[:, 0].tolist()) == list(range(0, 100, 2))


@pytest.mark.parametrize("workers", [0, 2])
def test_torch_collates_columns(folder, workers):
    pictures = cifar10(folder / "data_batch_1.bin", range(10))

    (batch,) = torch.utils.data.DataLoader(Dataset(folder), batch_size=10, num_workers=workers)

    assert batch["label"].tolist() == list(range(10)) and np.array_equal(batch["image"], pictures)


# A memory view cannot be pickled, so a worker sends the bytes, and the parent makes a memory view.
def test_workers_send_bytes(folder):
    for i in range(5):
        (folder / str(i)).write_bytes(b"x" * i)

    got = list(torch.utils.data.DataLoader(Dataset(folder, "objects"), batch_size=2, num_workers=2, collate_fn=list))

    assert [[bytes(sample) for sample in batch] for batch in got] == [[b"", b"x"], [b"xx", b"xxx"], [b"xxxx"]]
    assert isinstance(got[0][0], memoryview)

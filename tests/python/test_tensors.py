"""Batches as tensors, and in page-locked memory."""
import collections

import numpy as np
import pytest
import torch

from penstock.data import Dataset, Loader, tensors
from test_data import cifar10, example, record, tar

Pair = collections.namedtuple("Pair", "x y")


@pytest.fixture
def one(tmp_path):
    """one(array): a data set of the rows of the array."""

    def make(array):
        np.save(tmp_path / "0.npy", array)
        return Dataset(tmp_path)

    return make


@pytest.mark.parametrize(
    "given, got",
    [("float32", torch.float32), ("int64", torch.int64), ("uint8", torch.uint8), (">i4", torch.int32), (">f8", torch.float64),
     ("uint16", torch.int32), ("uint32", torch.int64)],
)  # fmt: skip
def test_arrays_are_tensors_of_types_that_torch_computes_with(one, given, got):
    rows = np.arange(12).reshape(6, 2).astype(given)

    (batch,) = Loader(one(rows), 6, collate="torch")

    assert batch.dtype == got and batch.tolist() == rows.tolist()


# torch's own collate function fails for these tokens.
@pytest.mark.parametrize("workers", [0, 1])
def test_tokens_are_tensors_in_a_dataloader_of_torch(tmp_path, workers):
    np.arange(40, dtype="uint16").tofile(tmp_path / "train.bin")
    data = Dataset(tmp_path, "tokens", dtype="uint16", window=4)

    batches = list(torch.utils.data.DataLoader(data, batch_size=5, num_workers=workers, collate_fn=tensors))

    assert [batch.dtype for batch in batches] == [torch.int32] * 2 and torch.cat(batches).flatten().tolist() == list(range(40))


def test_a_batch_that_is_an_array_is_not_copied():
    batch = np.arange(6)

    assert tensors(batch).data_ptr() == batch.ctypes.data


@pytest.mark.parametrize("workers", [0, 2])
def test_columns_are_tensors_by_name(tmp_path, workers):
    pictures = cifar10(tmp_path / "data_batch_1.bin", range(10))

    (batch,) = Loader(Dataset(tmp_path), 10, collate="torch").dataloader(num_workers=workers)

    assert batch["label"].tolist() == list(range(10)) and np.array_equal(batch["image"].numpy(), pictures)


# torch's own collate refuses some of these values, and turns others into lists of numbers.
def test_bytes_text_and_other_values_stay_lists(tmp_path):
    members = {"txt": b"text", "jpg": b"JPEG", "json": b'{"a": [1], "b": 2}'}
    tar(tmp_path / "0.tar", [(f"{i}.{kind}", data) for i in range(2) for kind, data in members.items()])

    (batch,) = Loader(Dataset(tmp_path), 2, collate="torch")

    assert batch["txt"] == ["text"] * 2 and [bytes(data) for data in batch["jpg"]] == [b"JPEG"] * 2
    assert isinstance(batch["jpg"][0], memoryview) and batch["json"]["a"] == [[1], [1]] and batch["json"]["b"].tolist() == [2, 2]


def test_arrays_of_several_shapes_are_a_list_of_tensors(tmp_path):
    (tmp_path / "0.tfrecord").write_bytes(record(example(a=[1])) + record(example(a=[2, 3])))

    (batch,) = Loader(Dataset(tmp_path), 2, collate="torch")

    assert [row.tolist() for row in batch["a"]] == [[1], [2, 3]]


def test_samples_with_other_columns_stay_as_they_are(tmp_path):
    tar(tmp_path / "0.tar", [("a.cls", b"1"), ("b.txt", b"2")])

    assert list(Loader(Dataset(tmp_path), 2, collate="torch")) == [[{"cls": "1"}, {"txt": "2"}]]


@pytest.mark.parametrize(
    "transform, check",
    [(lambda x: (x * 1.5, int(x)), lambda got: isinstance(got, tuple) and [part.tolist() for part in got] == [[0, 1.5, 3], [0, 1, 2]]),
     (lambda x: torch.full((2,), int(x)), lambda got: got.tolist() == [[0, 0], [1, 1], [2, 2]]),
     (lambda x: torch.zeros(int(x)), lambda got: [len(part) for part in got] == [0, 1, 2]),
     (lambda x: bool(x), lambda got: got.dtype == torch.bool), (lambda x: None, lambda got: got == [None] * 3),
     (lambda x: Pair(x, x), lambda got: len(got) == 2)],
)  # fmt: skip
def test_values_of_a_transform_are_collated(one, transform, check):
    (batch,) = Loader(one(np.arange(3)), 3, transform=transform, collate="torch")

    assert check(batch)


def test_workers_make_tensors_unless_there_is_a_function(one):
    data = one(np.arange(4))

    (tensor,) = Loader(data, 4).dataloader()
    (array,) = Loader(data, 4, collate=list).dataloader()
    (other,) = Loader(data, 4).dataloader(collate_fn=list)

    assert isinstance(tensor, torch.Tensor) and array == other == list(range(4))


def test_other_words_for_collate_are_refused(one):
    with pytest.raises(ValueError, match="numpy"):
        Loader(one(np.arange(4)), 4, collate="numpy")


# --- page-locked memory ---


@pytest.fixture
def cuda(monkeypatch):
    """Simulates CUDA; returns the list of page-locked tensors."""
    locked = []

    def pin_memory(tensor):
        locked.append(tensor)
        return tensor.clone()

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    return locked


@pytest.mark.parametrize(
    "transform, count",
    [(None, 1), (lambda x: (x, x), 2), (lambda x: {"a": x, "b": "text"}, 1), (lambda x: {"a": (x, torch.zeros(int(x)))}, 4), (lambda x: "text", 0)],
)
def test_tensors_of_a_batch_are_locked(one, cuda, transform, count):
    (batch,) = Loader(one(np.arange(3)), 3, transform=transform, pin_memory=True)

    assert len(cuda) == count and all(tensor is not batch for tensor in cuda)


def test_a_named_tuple_keeps_its_type(one, cuda):
    (batch,) = Loader(one(np.arange(3)), 3, collate=lambda batch: Pair(torch.tensor(batch), 5), pin_memory=True)

    assert isinstance(batch, Pair) and batch.x.tolist() == [0, 1, 2] and len(cuda) == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_nothing_is_locked_without_cuda(one):
    with pytest.warns(RuntimeWarning, match="CUDA"):
        (batch,) = Loader(one(np.arange(3)), 3, pin_memory=True)

    assert batch.tolist() == [0, 1, 2] and not batch.is_pinned()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA")
@pytest.mark.parametrize("workers", [None, 0, 2])
def test_batches_are_in_locked_memory(one, workers):
    loader = Loader(one(np.arange(30)), 3, pin_memory=True)

    batches = list(loader if workers is None else loader.dataloader(num_workers=workers))

    assert len(batches) == 10 and all(batch.is_pinned() for batch in batches)

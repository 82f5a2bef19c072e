"""CIFAR-10: the pickled batches of `cifar-10-python.tar.gz` in memory, or the binary version in a store, read batch by batch."""
import pickle
from pathlib import Path

import numpy as np
import torch

FOLDER = "cifar-10-batches-py"
CHANNEL_MEAN = (0.4914, 0.4822, 0.4465)
CHANNEL_STD = (0.2470, 0.2435, 0.2616)


class DataError(Exception):
    """The data set is missing or does not match its layout."""


def find_folder(dataset):
    """The batches' directory: below `dataset`, or `dataset` itself."""
    for folder in (Path(dataset) / FOLDER, Path(dataset)):
        if (folder / "test_batch").is_file():
            return folder
    raise DataError(f"{dataset}: no {FOLDER}/test_batch there; --dataset names the directory the archive was unpacked in")


def read_batch(path):
    """One pickled batch: pictures as uint8 (n, 3, 32, 32) and labels as int64 (n)."""
    try:
        with open(path, "rb") as file:
            batch = pickle.load(file, encoding="bytes")
        pictures = np.asarray(batch[b"data"], dtype=np.uint8).reshape(-1, 3, 32, 32)
        labels = np.asarray(batch[b"labels"], dtype=np.int64)
    except (OSError, EOFError, KeyError, ValueError, pickle.UnpicklingError) as error:
        raise DataError(f"{path}: not a CIFAR-10 batch: {error}") from error
    if len(pictures) != len(labels) or len(labels) == 0 or labels.min() < 0 or labels.max() > 9:
        raise DataError(f"{path}: {len(pictures)} pictures, {len(labels)} labels; expected as many labels of 0 to 9")
    return pictures, labels


class Pictures:
    """Pictures in memory. `batch(numbers)` is (pictures as uint8 (n, 3, 32, 32), labels as int64 (n))."""

    def __init__(self, batches, limit):
        self.pictures = torch.from_numpy(np.concatenate([pictures for pictures, _ in batches])[:limit])
        self.labels = torch.from_numpy(np.concatenate([labels for _, labels in batches])[:limit])

    def __len__(self):
        return len(self.labels)

    def batch(self, numbers):
        return self.pictures[numbers], self.labels[numbers]


class StoredPictures:
    """The same pictures in a store, from which each batch is read when it is needed: *.bin files of a label and a picture per record."""

    def __init__(self, url, limit):
        from penstock.data import Dataset, DatasetError

        try:
            self.records = Dataset(url, "records", record_size=1 + 3 * 32 * 32)
        except DatasetError as error:
            raise DataError(str(error)) from error
        self.count = min(len(self.records), limit or len(self.records))

    def __len__(self):
        return self.count

    def batch(self, numbers):
        records = torch.from_numpy(self.records.__getitems__(numbers.tolist()))
        return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].long()


def load(dataset, limit_train=None, limit_test=None):
    """Returns the pictures for training and those for testing, the first `limit` of each."""
    if "://" in dataset:
        return StoredPictures(f"{dataset.rstrip('/')}/train/", limit_train), StoredPictures(f"{dataset.rstrip('/')}/test/", limit_test)
    folder = find_folder(dataset)
    train = [read_batch(folder / f"data_batch_{number}") for number in range(1, 6)]
    return Pictures(train, limit_train), Pictures([read_batch(folder / "test_batch")], limit_test)


def normalise(pictures, device):
    """uint8 pictures as the floats that the network needs."""
    mean = torch.tensor(CHANNEL_MEAN, device=device).view(1, 3, 1, 1)
    std = torch.tensor(CHANNEL_STD, device=device).view(1, 3, 1, 1)
    return (pictures.to(device).float() / 255 - mean) / std


def augment(pictures):
    """Each picture moved by up to four pixels and mirrored half of the time; draws from torch's random state."""
    count = len(pictures)
    padded = torch.nn.functional.pad(pictures, (4, 4, 4, 4))
    down, right = torch.randint(0, 9, (2, count))
    mirrored = torch.rand(count) < 0.5
    rows = down.view(-1, 1) + torch.arange(32)
    columns = right.view(-1, 1) + torch.where(mirrored.view(-1, 1), torch.arange(31, -1, -1), torch.arange(32))
    index = torch.arange(count)
    moved = padded[index.view(-1, 1, 1), :, rows.view(count, 32, 1), columns.view(count, 1, 32)]
    return moved.permute(0, 3, 1, 2).contiguous()

"""CIFAR-10 in the layout of the original `cifar-10-python.tar.gz`: pickled batches in cifar-10-batches-py/."""
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


def load(dataset, limit_train=None, limit_test=None):
    """((pictures, labels) for training, the same for testing) as tensors, the first `limit` of each."""
    folder = find_folder(dataset)
    train = [read_batch(folder / f"data_batch_{number}") for number in range(1, 6)]
    test = read_batch(folder / "test_batch")
    pictures = np.concatenate([pictures for pictures, _ in train])[:limit_train]
    labels = np.concatenate([labels for _, labels in train])[:limit_train]
    return (
        (torch.from_numpy(pictures), torch.from_numpy(labels)),
        (torch.from_numpy(test[0][:limit_test]), torch.from_numpy(test[1][:limit_test])),
    )


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

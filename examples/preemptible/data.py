"""Pictures: the batches of CIFAR-10 as they are published, and folders of JPEGs, one for each class, like ImageNet's."""
import pickle
from pathlib import Path

import numpy as np
import torch


class DataError(Exception):
    """The data set is missing or invalid."""


class Cifar10:
    """The training pictures below `folder`, all in memory. `batch()` gives them as floats from -1 to 1."""

    def __init__(self, folder, limit=None):
        found = [path for path in (Path(folder) / "cifar-10-batches-py", Path(folder)) if (path / "data_batch_1").is_file()]
        if not found:
            raise DataError(f"{folder}: no cifar-10-batches-py/data_batch_1 there; --dataset names the directory with the unpacked archive")
        pictures, labels = [], []
        for number in range(1, 6):
            with open(found[0] / f"data_batch_{number}", "rb") as file:
                batch = pickle.load(file, encoding="bytes")
            pictures.append(np.asarray(batch[b"data"], np.uint8).reshape(-1, 3, 32, 32))
            labels.append(np.asarray(batch[b"labels"], np.int64))
        self.pictures = torch.from_numpy(np.concatenate(pictures)[:limit])
        self.labels = torch.from_numpy(np.concatenate(labels)[:limit])
        self.classes = 10

    def __len__(self):
        return len(self.labels)

    def batch(self, chosen):
        return self.pictures[chosen].float() / 127.5 - 1, self.labels[chosen]


class StoredCifar10:
    """The same pictures in a store, from which each batch is read when it is needed: the *.bin files of the binary version."""

    classes = 10

    def __init__(self, url, limit=None):
        from penstock.data import Dataset, DatasetError

        try:
            self.records = Dataset(url, "records", record_size=1 + 3 * 32 * 32)
        except DatasetError as error:
            raise DataError(str(error)) from error
        self.count = min(len(self.records), limit or len(self.records))

    def __len__(self):
        return self.count

    def batch(self, chosen):
        records = torch.from_numpy(self.records.__getitems__(chosen.tolist()))
        return records[:, 1:].reshape(-1, 3, 32, 32).float() / 127.5 - 1, records[:, 0].long()


class ImageFolder:
    """Pictures in `folder`/CLASS/*, decoded on demand: the middle square, `side` pixels wide, normalised."""

    MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    SUFFIXES = (".jpeg", ".jpg", ".png")

    def __init__(self, folder, side, limit=None):
        folders = sorted(path for path in Path(folder).glob("*") if path.is_dir()) if Path(folder).is_dir() else []
        self.files = [
            (file, label)
            for label, path in enumerate(folders)
            for file in sorted(path.iterdir())
            if file.suffix.lower() in self.SUFFIXES
        ]
        if not self.files:
            raise DataError(f"{folder}: no CLASS/*.jpeg there; --dataset names the directory with a folder for each class")
        if limit:  # the same share of every class
            self.files = self.files[:: max(1, len(self.files) // limit)][:limit]
        self.side, self.classes = side, len(folders)

    def __len__(self):
        return len(self.files)

    def picture(self, path):
        from PIL import Image

        with Image.open(path) as image:
            image = image.convert("RGB")
            edge = min(image.size)
            left, top = (image.width - edge) // 2, (image.height - edge) // 2
            image = image.resize((self.side, self.side), Image.BILINEAR, (left, top, left + edge, top + edge))
            return torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1).float() / 255

    def batch(self, chosen):
        files = [self.files[index] for index in chosen.tolist()]
        pictures = torch.stack([self.picture(path) for path, _ in files])
        mean, std = torch.tensor(self.MEAN).view(3, 1, 1), torch.tensor(self.STD).view(3, 1, 1)
        return (pictures - mean) / std, torch.tensor([label for _, label in files])

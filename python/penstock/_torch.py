"""Loaders in torch's own classes."""
import copy
from typing import Any, Dict, Iterator

import torch


def _unchanged(batch: Any) -> Any:
    return batch


def dataloader(loader: Any, options: Dict[str, Any]) -> Any:
    """Returns a torch DataLoader of the batches of a loader, which counts what is delivered."""
    place = torch.zeros(3, dtype=torch.int64).share_memory_()

    class Workers(torch.utils.data.DataLoader):  # type: ignore[misc]
        def __iter__(self) -> Iterator[Any]:
            place.copy_(torch.tensor([loader.seed, loader.epoch, loader._start]))
            got: Iterator[Any] = super().__iter__()
            return loader._count(got) if self.num_workers else got

    return Workers(batches(loader, place), batch_size=None, **{"collate_fn": _unchanged, **options})


def batches(loader: Any, place: Any) -> Any:
    """Returns an IterableDataset. ``place`` is a shared tensor with the seed, the epoch and the start for workers that stay."""

    class Batches(torch.utils.data.IterableDataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return len(loader)

        def __iter__(self) -> Iterator[Any]:
            if place is not None and torch.utils.data.get_worker_info() is not None:
                loader.seed, loader.epoch, loader._start = place.tolist()
            return iter(loader)

        def __reduce__(self) -> Any:
            sent = copy.copy(loader)
            sent._given = loader._ranks()  # a spawned worker is in no process group
            return batches, (sent, place)

    return Batches()

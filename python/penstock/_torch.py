"""Loaders in torch's own classes."""
import copy
from typing import Any, Dict, Iterator

import torch


class _Collate:
    """Collates a batch that comes with its numbers; one without samples stays as it is."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __call__(self, got: Any) -> Any:
        batch, report = got
        return (self._function(batch) if report.samples and self._function is not None else batch), report


def dataloader(loader: Any, options: Dict[str, Any]) -> Any:
    """Returns a torch DataLoader of the batches of a loader, which counts what is delivered."""
    place = torch.zeros(3, dtype=torch.int64).share_memory_()

    class Workers(torch.utils.data.DataLoader):  # type: ignore[misc]
        def __iter__(self) -> Iterator[Any]:
            place.copy_(torch.tensor([loader.seed, loader.epoch, loader._start]))
            return loader._deliver(super().__iter__())  # type: ignore[no-any-return]

        def state_dict(self) -> Dict[str, int]:
            return loader.state_dict()  # type: ignore[no-any-return]

        def load_state_dict(self, state: Dict[str, int]) -> None:
            loader.load_state_dict(state)

    collate = _Collate(options.pop("collate_fn", None))
    return Workers(batches(loader, place), batch_size=None, collate_fn=collate, **options)


def batches(loader: Any, place: Any) -> Any:
    """Returns an IterableDataset. ``place`` is a shared tensor with the seed, the epoch and the start for workers that stay.

    With a ``place`` batches come with their numbers.
    """

    class Batches(torch.utils.data.IterableDataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return len(loader)

        def __iter__(self) -> Iterator[Any]:
            info = torch.utils.data.get_worker_info()
            if place is None:
                return iter(loader)
            if info is not None:
                loader.seed, loader.epoch, loader._start = place.tolist()
            return loader._batches((info.id, info.num_workers) if info is not None else (0, 1))  # type: ignore[no-any-return]

        def __reduce__(self) -> Any:
            sent = copy.copy(loader)
            sent._given = loader._ranks()  # a spawned worker is in no process group
            return batches, (sent, place)

    return Batches()

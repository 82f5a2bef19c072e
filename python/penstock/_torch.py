"""Loaders as torch's own classes, and batches as tensors."""
import copy
import warnings
from typing import Any, Dict, Iterator

import numpy
import torch

from penstock._loader import _worker

_WIDER = {"uint16": "int32", "uint32": "int64"}  # types that torch does not have, or has without arithmetic


def _tensor(array: Any) -> Any:
    dtype = array.dtype.newbyteorder("=")
    return torch.from_numpy(numpy.require(array, _WIDER.get(dtype.name, dtype), ["A", "C", "W"]))


def tensors(samples: Any) -> Any:
    """Returns a batch as tensors: one for arrays or numbers of one shape, one for each column of dicts or tuples. All else stays a list."""
    if isinstance(samples, numpy.ndarray):
        return _tensor(samples)
    first = samples[0]
    if isinstance(first, dict) and all(isinstance(sample, dict) and sample.keys() == first.keys() for sample in samples):
        return {name: tensors([sample[name] for sample in samples]) for name in first}
    if isinstance(first, tuple) and all(isinstance(sample, tuple) and len(sample) == len(first) for sample in samples):
        return tuple(map(tensors, map(list, zip(*samples))))
    if all(isinstance(sample, (numpy.ndarray, numpy.generic)) for sample in samples):
        if len({(sample.dtype, sample.shape) for sample in samples}) == 1:
            return _tensor(numpy.stack(samples))
        return [_tensor(numpy.asarray(sample)) for sample in samples]
    if all(isinstance(sample, torch.Tensor) for sample in samples):
        return torch.stack(samples) if len({(sample.dtype, sample.shape) for sample in samples}) == 1 else samples
    return torch.tensor(samples) if all(isinstance(sample, (bool, int, float)) for sample in samples) else samples


def _pin(batch: Any) -> Any:
    if hasattr(batch, "pin_memory"):  # tensors, and classes with such a method
        return batch.pin_memory()
    if isinstance(batch, dict):
        return {name: _pin(column) for name, column in batch.items()}
    if isinstance(batch, (list, tuple)):
        parts = [_pin(part) for part in batch]
        return parts if isinstance(batch, list) else type(batch)(*parts) if hasattr(batch, "_fields") else tuple(parts)
    return batch


def pinned(batches: Iterator[Any]) -> Iterator[Any]:
    """Yields batches, each with its Report, in page-locked memory; unchanged if CUDA is not available."""
    there = torch.cuda.is_available()
    if not there:
        warnings.warn("pin_memory=True has no effect: there is no CUDA", RuntimeWarning, stacklevel=4)
    for batch, report in batches:
        if there:
            batch = _pin(batch)
        yield batch, report
        del batch

class _Collate:
    """Collates a batch that comes with its Report; a batch without samples stays unchanged."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __call__(self, got: Any) -> Any:
        batch, report = got
        return (self._function(batch) if report.samples and self._function is not None else batch), report


def dataloader(loader: Any, options: Dict[str, Any]) -> Any:
    """Returns a torch DataLoader of the batches of a loader; the loader counts the delivered batches."""
    for name in ("batch_size", "shuffle", "sampler", "batch_sampler", "drop_last"):
        if name in options:
            raise TypeError(f"invalid option {name!r}: the Loader determines the batches and their order")
    place = torch.zeros(3, dtype=torch.int64).share_memory_()

    class Workers(torch.utils.data.DataLoader):  # type: ignore[misc]
        def __iter__(self) -> Iterator[Any]:
            loader._advance()
            place.copy_(torch.tensor([loader.seed, loader.epoch, loader._start]))
            return loader._deliver(super().__iter__())  # type: ignore[no-any-return]

        def state_dict(self) -> Dict[str, int]:
            return loader.state_dict()  # type: ignore[no-any-return]

        def load_state_dict(self, state: Dict[str, int]) -> None:
            loader.load_state_dict(state)
            loader._whole = loader._delivered == loader._samples  # if so, the next loop is in the next epoch

    options = {"pin_memory": loader._pin, "collate_fn": None if loader._collate is not None else tensors, **options}
    options["collate_fn"] = _Collate(options["collate_fn"])
    return Workers(batches(loader, place), batch_size=None, **options)


def batches(loader: Any, place: Any) -> Any:
    """Returns an IterableDataset. ``place`` is a shared tensor with the seed, the epoch and the start, for persistent workers.

    With ``place`` each batch comes with its Report.
    """

    class Batches(torch.utils.data.IterableDataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return len(loader)

        def __iter__(self) -> Iterator[Any]:
            if place is None:
                return iter(loader)
            if torch.utils.data.get_worker_info() is not None:  # the worker may have started in another epoch
                loader.seed, loader.epoch, loader._start = place.tolist()
            return loader._batches(_worker())  # type: ignore[no-any-return]

        # The state of a worker, for torchdata: the position at which its epoch started, and the number of batches yielded since.
        def state_dict(self) -> Dict[str, Any]:
            return {"loader": {**loader.state_dict(), "delivered": loader._start}, "yielded": loader._yielded}

        def load_state_dict(self, state: Dict[str, Any]) -> None:
            loader.load_state_dict(state["loader"])
            loader._passed = loader._yielded = state["yielded"]

        def __reduce__(self) -> Any:
            sent = copy.copy(loader)
            sent._given = loader._ranks()  # a spawned worker is in no process group
            return batches, (sent, place)

    return Batches()

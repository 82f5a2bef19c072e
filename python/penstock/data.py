"""Samples of a training, straight from object storage or from files.

    from penstock.data import Dataset, Loader

    data = Dataset("s3://cifar10/train/", format="cifar10")
    loader = Loader(data, batch_size=256, shuffle=True, seed=7)
    if saved:
        loader.load_state_dict(saved["loader"])
    for epoch in range(loader.epoch, 90):
        loader.set_epoch(epoch)
        for batch in loader:
            train(batch)                                # loader.state_dict() goes into the checkpoint

Samples are read in threads of libpenstock, which never hold Python's lock. The order is a function of the seed, the epoch and the
position alone: ranks and workers get each sample once between them, and an epoch resumes at any sample with any number of ranks.

A sample is a memoryview of an object, an array of a record (``records``, ``npy``, ``idx``, ``tokens``), or a dict of columns (``cifar10``,
``cifar100``, ``tar``, ``tfrecord``, ``mds``, ``litdata``). Arrays need NumPy; they refer to the memory of their batch without a copy.
"""
import array
import collections
import copy
import json
import operator
import os
import sys
from multiprocessing.reduction import ForkingPickler
from typing import Any, Callable, Deque, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

from penstock import _native
from penstock._errors import DatasetChanged, DatasetDamaged, DatasetError, data_error
from penstock._memory import torch_if_loaded
from penstock._ranks import ranks

__all__ = ["Dataset", "DatasetChanged", "DatasetDamaged", "DatasetError", "Loader"]

_STATE_VERSION = 1
_STATE = ("version", "seed", "epoch", "delivered", "samples", "order")
_JOIN = 8 << 20  # bytes of samples in a row that are read together
_READS = 8  # in flight at most
_LARGE = 1 << 20  # bytes; smaller memory comes from pages that are there
_Read = Tuple[bytearray, bytes]
_SHUFFLES: Dict[Any, str] = {False: "none", True: "full", None: "none"}
_INT64_MAX = 2**63 - 1
_BATCH = 1 << 24  # samples of a batch
_RANKS = 1 << 20
_UINT32_MAX = 2**32 - 1


def _pickled_view(view: memoryview) -> Any:
    if view.format != "B" or view.ndim != 1:
        raise TypeError("cannot pickle 'memoryview' object")
    return memoryview, (bytearray(view),)


ForkingPickler.register(memoryview, _pickled_view)  # workers of a DataLoader send samples to their parent


def _check(name: str, value: int, least: int, most: int = _INT64_MAX) -> int:
    if not least <= operator.index(value) <= most:
        raise ValueError(f"invalid {name} {value}: expected {least} to {most}")
    return operator.index(value)


def _numpy() -> Any:
    import numpy

    return numpy


def _dtype(name: str, big_endian: bool) -> Any:
    if name == "bfloat16":
        name = "uint16"  # its bits; NumPy has no such type
    return _numpy().dtype(name).newbyteorder(">" if big_endian else "<")


class _Column:
    """A field of a format whose samples all have it at the same place."""

    def __init__(self, field: Any) -> None:
        self.name, _, dtype, big, dims, _, _, _, self.at, self.size = field
        self.dtype = _dtype(dtype or "uint8", big)
        self.dims = tuple(dims) if dtype else (self.size,)

    def of(self, rows: Any) -> Any:
        """Returns the column of these samples, an array (n, bytes of a sample) of uint8."""
        return rows[:, self.at : self.at + self.size].view(self.dtype).reshape((len(rows), *self.dims))


class Dataset:
    """The samples of a data set by number: ``data[17]``, ``data.__getitems__([3, 1, 4])``, ``len(data)``.

    ``url`` is ``s3://BUCKET/PREFIX``, ``gs://BUCKET/PREFIX`` or a path. ``format`` is one of

    - ``objects``: each object or file is one sample
    - ``records``: samples of ``record_size`` bytes, between ``header`` and ``trailer`` bytes of each shard
    - ``cifar10``, ``cifar100``, ``npy``, ``idx`` (MNIST)
    - ``tokens``: windows of ``window`` tokens of ``dtype`` (uint16 or uint32), each ``stride`` tokens after the last one
    - ``tar`` (WebDataset), ``tfrecord``, ``mds`` (MosaicML Streaming), ``litdata``

    and detected by an index, or the name and the first bytes of a large shard, if it is None. Keys, region and endpoint come from the
    environment and the profile, as for ``penstock cp``, unless they are given. A data set may be used after fork(), and may be pickled:
    it is opened again then, and has to have as many samples.

    ``cache`` is a directory of this machine that keeps what is read from a store, at most ``cache_size`` bytes (0: half of its file
    system). All processes of a user share it, and fetch each byte once.

    Raises DatasetError, with the shard and the offset of a failure.
    """

    def __init__(
        self,
        url: str,
        format: Optional[str] = None,
        *,
        record_size: int = 0,
        header: int = 0,
        trailer: int = 0,
        dtype: Optional[str] = None,
        window: int = 0,
        stride: int = 0,
        endpoint_url: Optional[str] = None,
        region: Optional[str] = None,
        profile: Optional[str] = None,
        anonymous: bool = False,
        threads: int = 0,
        cache: Union[str, "os.PathLike[str]", None] = None,
        cache_size: int = 0,
    ) -> None:
        for name, number in (("record_size", record_size), ("header", header), ("trailer", trailer), ("window", window), ("stride", stride)):
            _check(name, number, 0)
        _check("cache_size", cache_size, 0)
        _check("threads", threads, 0, _UINT32_MAX)
        store = (endpoint_url, region, profile, anonymous)
        place = (None if cache is None else os.fsdecode(cache), cache_size)
        self._arguments = (str(url), format, dtype, (record_size, header, trailer, window, stride), store, threads, place)
        self._remote = self._arguments[0].startswith(("s3://", "gs://"))
        self._set = _native.Dataset(*self._arguments)
        self.format = self._set.format()
        self._size = self._set.sample_size()
        self._columns: Optional[List[_Column]] = None

    def __reduce__(self) -> Any:
        return _reopen, (self._arguments, len(self), self._size)

    def __len__(self) -> int:
        return self._set.count()

    def __getitem__(self, sample: int) -> Any:
        return self.__getitems__([sample])[0]

    def __getitems__(self, samples: Sequence[int]) -> Any:
        """Reads samples together: a list, or one array of records if a sample is one array."""
        ids = self._pack(samples)
        if not ids:
            return []
        read = self._set.start(ids).wait() if self._remote else self._set.read(ids)  # signals interrupt a wait for a store
        return self._samples(ids, read, 0, len(samples))

    def place(self, sample: int) -> Tuple[str, int, int]:
        """Returns the name of the shard of a sample, below the URL, and the offset and size of the sample in it."""
        return self._set.place(self._number(sample))

    def _number(self, sample: int) -> int:
        number = operator.index(sample)
        if not -len(self) <= number < len(self):
            raise IndexError(f"no sample {number} in {self._arguments[0]}: it has {len(self)}")
        return number % len(self)

    def _pack(self, samples: Sequence[int]) -> bytes:
        return array.array("Q", map(self._number, samples)).tobytes()

    def _start(self, ids: bytes, memory: Optional[bytearray]) -> "_native.Batch":
        return self._set.start(ids) if memory is None else self._set.start(ids, memory)

    def _samples(self, ids: bytes, read: _Read, first: int, last: int) -> Any:
        """Returns those of a read, from the first-th to before the last-th."""
        data, offsets = read
        numbers, at = memoryview(ids).cast("Q"), memoryview(offsets).cast("Q")
        if self._size:
            return self._records(numbers[first], data, first, last)
        if self.format == "objects":
            view = memoryview(data)
            return [view[at[i] : at[i + 1]] for i in range(first, last)]
        return [self._split(numbers[i], data, at[i], at[i + 1] - at[i]) for i in range(first, last)]

    def _records(self, sample: int, data: bytearray, first: int, last: int) -> Any:
        rows = _numpy().frombuffer(data, dtype="uint8", count=(last - first) * self._size, offset=first * self._size).reshape(-1, self._size)
        if self._columns is None:
            self._columns = [_Column(field) for field in self._set.split(sample, data, first * self._size, self._size)]
        if len(self._columns) == 1:
            return self._columns[0].of(rows)
        columns = {column.name: column.of(rows) for column in self._columns}
        return [{name: column[i] for name, column in columns.items()} for i in range(len(rows))]

    def _split(self, sample: int, data: bytearray, at: int, size: int) -> Dict[str, Any]:
        columns: Dict[str, Any] = {}
        for name, kind, dtype, big, dims, _, count, _, value, length in self._set.split(sample, data, at, size):
            whole = memoryview(value) if isinstance(value, bytes) else memoryview(data)[at + value : at + value + length]
            try:
                item = _value(whole, kind, dtype, big, dims)
            except (ValueError, RecursionError) as reason:  # of text and JSON
                shard, offset, _ = self._set.place(sample)
                message = f"cannot read '{shard}' of '{self._arguments[0]}' at byte {offset}: field '{name}' is no {kind}: {reason}"
                raise data_error("corrupt", message.encode("utf-8", "backslashreplace")) from None
            if count:
                columns.setdefault(name, []).append(item)
            else:
                columns[name] = item
        return columns


def _reopen(arguments: Any, count: int, size: int) -> Dataset:
    url, format, dtype, (record_size, header, trailer, window, stride), (endpoint_url, region, profile, anonymous), threads, (cache, cache_size) = arguments
    data = Dataset(
        url, format, record_size=record_size, header=header, trailer=trailer, dtype=dtype, window=window, stride=stride,
        endpoint_url=endpoint_url, region=region, profile=profile, anonymous=anonymous, threads=threads, cache=cache, cache_size=cache_size,
    )  # fmt: skip
    if (len(data), data._size) != (count, size):
        raise data_error("changed", f"cannot open '{url}' again: it has {len(data)} samples now, and had {count} before".encode())
    return data


def _value(data: memoryview, kind: str, dtype: Optional[str], big_endian: bool, dims: Iterable[int]) -> Any:
    if kind == "text":
        return str(data, "utf-8")
    if kind == "json":
        return json.loads(bytes(data))
    if kind == "bytes" or dtype is None:
        return data
    values = _numpy().frombuffer(data, dtype=_dtype(dtype, big_endian))
    return values[0].item() if kind == "number" else values.reshape(tuple(dims))


def _worker() -> Tuple[int, int]:
    """Returns (number, workers) of this process of a torch DataLoader, else (0, 1)."""
    torch = torch_if_loaded()
    info = torch.utils.data.get_worker_info() if torch is not None else None
    return (info.id, info.num_workers) if info is not None else (0, 1)


class _Memory:
    """Memory of large reads, used again once no batch refers to it: new pages cost more than what is read into them."""

    def __init__(self) -> None:
        self._all: List[bytearray] = []

    def give(self, memory: bytearray) -> None:
        if len(memory) >= _LARGE and not any(memory is known for known in self._all):
            self._all.append(memory)
            del self._all[: -2 * _READS]

    def take(self) -> Optional[bytearray]:
        for memory in self._all:
            if sys.getrefcount(memory) == 3:  # of the list, of `memory`, and of the call
                return memory
        return None


def _block(data: Dataset) -> int:
    """Returns the samples of a block that is a large range: of at most 1 MiB, and 1,024 samples.

    It is a power of two, as most sizes of batches are, so that windows begin with a batch.
    """
    return int(2 ** (min(1024, max(1, (1 << 20) // (data._size or 4096))).bit_length() - 1))


class Loader:
    """Batches of a data set, epoch by epoch, read ahead in the background: ``for batch in loader``.

    ``shuffle`` is False, True (any sample anywhere), ``"block"`` (blocks of ``block`` samples in a random order, shuffled within) or
    ``"window"`` (shuffled within each ``window`` blocks of such an order): those read large ranges. A block has at most 1 MiB unless it is
    given. Without ``rank`` and ``world_size``
    they come from torch.distributed or the environment. ``batch_size`` is that of one rank.

    At the end of an epoch all ranks differ by at most one sample; ``drop_last`` drops the last step if it is not whole, ``pad`` fills it
    with the first samples of the epoch. A batch is what ``collate`` makes of the list of samples, else the list, or one array of
    records; ``transform`` is called with each sample before. At most ``ahead`` bytes are read in advance, but two reads in any case.

    ``for`` after a ``break`` starts the epoch again: at its first sample, or at the place of the state that was loaded for it. At the end
    of an epoch the loader goes to the next one. ``dataloader(num_workers=4)`` transforms and collates in processes of torch.
    """

    def __init__(
        self,
        data: Dataset,
        batch_size: int,
        shuffle: Union[bool, str] = False,
        seed: int = 0,
        *,
        block: Optional[int] = None,
        window: int = 16,
        rank: Optional[int] = None,
        world_size: Optional[int] = None,
        drop_last: bool = False,
        pad: bool = False,
        transform: Optional[Callable[[Any], Any]] = None,
        collate: Optional[Callable[[Any], Any]] = None,
        ahead: int = 128 << 20,
    ) -> None:
        if (rank is None) != (world_size is None):
            raise ValueError("rank and world_size must be given together")
        self._given: Optional[Tuple[int, int]] = None
        if world_size is not None and rank is not None:
            self._given = (_check("rank", rank, 0, _check("world_size", world_size, 1, _RANKS) - 1), world_size)
        if drop_last and pad:
            raise ValueError("drop_last and pad exclude each other")
        self.data = data
        self.batch_size = _check("batch_size", batch_size, 1, _BATCH)
        self.shuffle = str(_SHUFFLES.get(shuffle, shuffle))
        if self.shuffle not in ("none", "full", "block", "window"):
            raise ValueError(f"invalid shuffle {shuffle!r}: expected False, True, 'block' or 'window'")
        self.seed = _check("seed", seed, 0)
        self.epoch = 0
        self._blocks = (_check("block", _block(data) if block is None else block, 1), _check("window", window, 1))
        self._rest = "drop" if drop_last else "pad" if pad else "keep"
        self._transform, self._collate = transform, collate
        self._ahead = ahead
        self._start = 0
        self._delivered = 0
        self._plan(0, (0, 1))  # refuses what is invalid now

    def _ranks(self) -> Tuple[int, int]:
        return self._given or ranks()

    def _plan(self, start: int, worker: Tuple[int, int]) -> "_native.Plan":
        rank, world = self._ranks()
        deal = (world, rank, self.batch_size, worker[1], worker[0])
        return _native.Plan(len(self.data), self.shuffle, self._rest, (*self._blocks, self.seed, self.epoch, start), deal)

    def __len__(self) -> int:
        """Batches of a whole epoch of this rank."""
        return self._plan(0, (0, 1)).rank_batches()

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch. The epoch that a state was loaded for continues where it was."""
        if _check("epoch", epoch, 0) != self.epoch:
            self._begin(epoch)

    def _begin(self, epoch: int) -> None:
        self.epoch, self._start, self._delivered = epoch, 0, 0

    def _joined(self) -> Tuple[int, int]:
        """Returns how many batches are read together: in the first read, and in each other one.

        They are those of a window or of some blocks, which are large ranges. A place in the middle is at their end after the first read.
        """
        block, window = self._blocks
        step = self.batch_size * self._ranks()[1]
        samples = {"window": block * window, "full": 0}.get(self.shuffle, _JOIN // (self.data._size or _JOIN))
        if self.shuffle == "block":
            samples = max(1, samples // block) * block
        first = samples - self._start % samples if samples else 0
        return max(1, first // step), max(1, samples // step)

    def _reads(self, plan: "_native.Plan", memory: "_Memory") -> Iterator[Tuple[int, List[int], bytes, "_native.Batch"]]:
        """Starts all reads of the plan in their order. Each has its first batch, and where its batches begin and end in it."""
        n, (join, then) = plan.batches(), self._joined()
        first = 0
        while first < n:
            parts = [plan.batch(i)[0] for i in range(first, min(first + join, n))]
            ends = [0]
            for part in parts:
                ends.append(ends[-1] + len(part) // 8)
            ids = b"".join(parts)
            yield first, ends, ids, self.data._start(ids, memory.take())
            first, join = first + join, then

    def __iter__(self) -> Iterator[Any]:
        worker = _worker()
        epoch, plan = self.epoch, self._plan(self._start, worker)
        memory = _Memory()
        reads = self._reads(plan, memory)
        waiting: Deque[Any] = collections.deque()
        size = 0
        while True:
            while len(waiting) < 2 or (size and (len(waiting) + 1) * size <= self._ahead and len(waiting) < _READS):
                started = next(reads, None)
                if started is None:
                    break
                waiting.append(started)
            if not waiting:
                break
            first, ends, ids, batch = waiting.popleft()
            read = batch.wait()
            size = max(size, len(read[0]), 1)
            memory.give(read[0])
            for i in range(len(ends) - 1):
                samples = self.data._samples(ids, read, ends[i], ends[i + 1])
                if self._transform is not None:
                    samples = [self._transform(sample) for sample in samples]
                if self._collate is not None:
                    samples = self._collate(samples)
                self._deliver(epoch, plan.delivered((first + i) * worker[1] + worker[0] + 1))
                yield samples
        self._end(epoch)

    def _deliver(self, epoch: int, samples: int) -> None:
        if epoch == self.epoch:  # not if set_epoch() was called in the loop
            self._delivered = samples

    def _end(self, epoch: int) -> None:
        if epoch == self.epoch:
            self._begin(epoch + 1)

    def _count(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Passes on the batches of workers, and counts what is delivered."""
        epoch, plan = self.epoch, self._plan(self._start, (0, 1))
        for i, batch in enumerate(batches):
            self._deliver(epoch, plan.delivered(i + 1))
            yield batch
        self._end(epoch)

    def state_dict(self) -> Dict[str, int]:
        """Returns the place in the epoch: a few integers, which count delivered batches and not those that were read ahead."""
        numbers = (_STATE_VERSION, self.seed, self.epoch, self._delivered, len(self.data), self._plan(0, (0, 1)).id())
        return dict(zip(_STATE, numbers))

    def load_state_dict(self, state: Dict[str, int]) -> None:
        """Continues at a place of state_dict(), also of a training with another number of ranks. Takes the seed of the state.

        Raises ValueError if the samples or their order are other ones: some would be repeated and others skipped.
        """
        try:
            version, seed, epoch, delivered, samples, order = (operator.index(state[name]) for name in _STATE)
        except (KeyError, TypeError):
            raise ValueError(f"invalid state {state!r}: expected integers {', '.join(_STATE)}") from None
        if version != _STATE_VERSION:
            raise ValueError(f"the state has version {version}; this penstock knows {_STATE_VERSION}")
        if samples != len(self.data):
            raise ValueError(f"the state is of a data set of {samples} samples, and this one has {len(self.data)}")
        if order != self._plan(0, (0, 1)).id():
            raise ValueError("the state is of another shuffle, block or window")
        _check("number of delivered samples", delivered, 0, len(self.data))
        self.seed, self.epoch = _check("seed", seed, 0), _check("epoch", epoch, 0)
        self._start = self._delivered = delivered

    def dataloader(self, **options: Any) -> Any:
        """Returns a torch DataLoader of the batches: ``for batch in loader.dataloader(num_workers=4, pin_memory=True)``.

        Its workers read, transform and collate; the batches are the same in the same order for any number of them. set_epoch(),
        state_dict() and load_state_dict() of this loader apply to it.
        """
        import torch

        loader, place = self, torch.zeros(3, dtype=torch.int64).share_memory_()

        class Workers(torch.utils.data.DataLoader):  # type: ignore[misc]
            def __iter__(self) -> Iterator[Any]:
                place.copy_(torch.tensor([loader.seed, loader.epoch, loader._start]))
                batches: Iterator[Any] = super().__iter__()
                return loader._count(batches) if self.num_workers else batches

        return Workers(_batches(self, place), batch_size=None, **{"collate_fn": _unchanged, **options})

    def iterable(self) -> Any:
        """Returns a torch IterableDataset of the batches, for a DataLoader of your own with ``batch_size=None``.

        Each worker gets its part of the batches. This loader does not see what workers deliver; use dataloader() if you call its
        state_dict(), and call set_epoch() before each epoch. Without a ``collate_fn`` torch makes tensors of arrays, and lists of numbers
        of memoryviews.
        """
        return _batches(self, None)


def _unchanged(batch: Any) -> Any:
    return batch


def _batches(loader: Loader, place: Any) -> Any:
    """Returns an IterableDataset. ``place`` is a shared tensor with the seed, the epoch and the start for workers that stay."""
    import torch

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
            return _batches, (sent, place)

    return Batches()

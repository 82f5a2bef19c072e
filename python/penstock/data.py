"""Samples for training, read directly from object storage or from files.

    from penstock.data import Dataset, Loader

    data = Dataset("s3://cifar10/train/", format="cifar10")
    loader = Loader(data, batch_size=256, shuffle=True, seed=7)
    if saved:
        loader.load_state_dict(saved["loader"])
    for epoch in range(loader.epoch, 90):
        loader.set_epoch(epoch)
        for batch in loader:
            train(batch)                                # loader.state_dict() goes into the checkpoint

Threads of libpenstock read the samples; these threads never hold Python's lock. The order is a function of the seed, the epoch and the
position alone. Together, ranks and workers get each sample once, and an epoch resumes at any sample with any number of ranks.

A sample is a memoryview of an object, an array of a record (``records``, ``npy``, ``idx``, ``tokens``), or a dict of columns (``cifar10``,
``cifar100``, ``tar``, ``tfrecord``, ``mds``, ``litdata``). Arrays need NumPy; they refer to the memory of their batch without a copy.
"""
import array
import json
import operator
import os
from multiprocessing.reduction import ForkingPickler
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple, Union

from penstock import _native
from penstock._errors import DatasetChanged, DatasetDamaged, DatasetError, data_error
from penstock._files import REMOTE, interruptible, shown
from penstock._loader import Loader, tensors
from penstock._mix import Mix
from penstock._numbers import UINT32_MAX, check_number
from penstock._reads import Memory, Read

__all__ = ["Dataset", "DatasetChanged", "DatasetDamaged", "DatasetError", "Loader", "Mix", "tensors"]

_SIDE = 8192  # maximum width and height of a decoded image

for _public in (DatasetChanged, DatasetDamaged, DatasetError, Loader, Mix, tensors):
    _public.__module__ = __name__  # the public module, for messages


def _pickled_view(view: memoryview) -> Any:
    if view.format != "B" or view.ndim != 1:
        raise TypeError("cannot pickle 'memoryview' object")
    return memoryview, (bytearray(view),)


ForkingPickler.register(memoryview, _pickled_view)  # workers of a DataLoader send samples to their parent


def _numpy() -> Any:
    import numpy

    return numpy


def _dtype(name: str, big_endian: bool) -> Any:
    if name == "bfloat16":
        name = "uint16"  # the same bits; NumPy has no such type
    return _numpy().dtype(name).newbyteorder(">" if big_endian else "<")


class _Column:
    """A field of a format in which every sample has the field at the same place."""

    def __init__(self, field: Any) -> None:
        self.name, dtype, big, dims, self.at, self.size = field
        self.dtype = _dtype(dtype or "uint8", big)
        self.dims = tuple(dims) if dtype else (self.size,)

    def of(self, rows: Any) -> Any:
        """Returns the column of ``rows``, an array (n, bytes of a sample) of uint8."""
        return rows[:, self.at : self.at + self.size].view(self.dtype).reshape((len(rows), *self.dims))


class Dataset:
    """The samples of a data set by number: ``data[17]``, ``data.__getitems__([3, 1, 4])``, ``len(data)``.

    ``url`` is ``s3://BUCKET/PREFIX``, ``gs://BUCKET/PREFIX``, ``https://…`` or a path. ``format`` is one of

    - ``objects``: each object or file is one sample
    - ``records``: samples of ``record_size`` bytes, between ``header`` and ``trailer`` bytes of each shard
    - ``cifar10``, ``cifar100``, ``npy``, ``idx`` (MNIST)
    - ``tokens``: windows of ``window`` tokens of ``dtype`` (uint16 or uint32), each ``stride`` tokens after the previous one
    - ``tar`` (WebDataset), ``tfrecord``, ``mds`` (MosaicML Streaming), ``litdata``

    If ``format`` is None, it is taken from an index, or detected by the name and the first bytes of a large shard. Keys, region and
    endpoint come from the environment and the profile, as for ``penstock cp``, unless they are given. A data set may be used after fork(). The
    set may also be pickled: unpickling opens the set again, and fails if the number of samples has changed.

    ``cache`` is a directory of this machine that keeps the bytes read from a store, at most ``cache_size`` bytes (half of its file
    system if 0). All processes of a user share the cache, and fetch each byte once.

    ``decode=(height, width)`` decodes the JPEG images of ``objects``, ``tar``, ``mds`` and ``litdata`` when they are read, to arrays
    (height, width, 3) of uint8, RGB: the largest centred rectangle of this shape, scaled. ``column`` is the field with the image,
    by default the first field with an image. Samples of ``objects`` are then arrays themselves.

    ``labels="folder"`` makes a dict of each sample of ``objects``, ``{"data": …, "label": 3}``. The label is the index in ``classes`` of
    the first folder of the sample below ``url`` (``cat`` for ``cat/1.jpg``).

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
        decode: Optional[Tuple[int, int]] = None,
        column: Optional[str] = None,
        labels: Optional[str] = None,
    ) -> None:
        for name, number in (("record_size", record_size), ("header", header), ("trailer", trailer), ("window", window), ("stride", stride)):
            check_number(name, number, 0)
        check_number("cache_size", cache_size, 0)
        check_number("threads", threads, 0, UINT32_MAX)
        store = (endpoint_url, region, profile, anonymous)
        place = (None if cache is None else os.fsdecode(cache), cache_size)
        if decode is not None and (not isinstance(decode, (tuple, list)) or len(decode) != 2):
            raise ValueError(f"invalid decode {decode!r}: expected (height, width)")
        if dtype is not None and dtype not in ("uint16", "uint32"):
            raise ValueError(f"invalid dtype {dtype!r}: expected 'uint16' or 'uint32'")
        if column is not None and decode is None:
            raise ValueError(f"column {column!r} needs decode=(height, width)")
        height, width = (0, 0) if decode is None else (check_number("decode", side, 1, _SIDE) for side in decode)
        image = (height, width, column, labels)
        self._arguments = (str(url), format, dtype, (record_size, header, trailer, window, stride), store, threads, place, image)
        self.url = shown(self._arguments[0])
        self._remote = self.url.startswith(REMOTE)
        self._set = interruptible(lambda cancel: _native.Dataset(*self._arguments, cancel))
        self.format = self._set.format()
        self.classes: List[str] = self._set.classes()  # by label
        self._size = self._set.sample_size()
        self._columns: Optional[List[_Column]] = None

    def __repr__(self) -> str:
        return f"Dataset({self.url!r}, format={self.format!r}, samples={len(self)})"

    def __reduce__(self) -> Any:
        return _reopen, (self._arguments, len(self), self._size)

    def __len__(self) -> int:
        return self._set.count()

    def __getitem__(self, sample: int) -> Any:
        return self.__getitems__([sample])[0]

    def __getitems__(self, samples: Sequence[int]) -> Any:
        """Reads samples together. Returns a list, or one array if each sample is an array."""
        ids = self._pack(samples)
        if not ids:
            return []
        read = self._set.start(ids).wait() if self._remote else self._set.read(ids)  # signals interrupt a wait for a store
        return self._samples(ids, read, 0, len(samples))

    def place(self, sample: int) -> Tuple[str, int, int]:
        """Returns the name of the shard of a sample, below the URL, and the offset and size of the sample in the shard."""
        return self._set.place(self._number(sample))

    def _number(self, sample: int) -> int:
        number = operator.index(sample)
        if not -len(self) <= number < len(self):
            raise IndexError(f"invalid sample {number} of '{self.url}': the number of samples is {len(self)}")
        return number % len(self)

    def _pack(self, samples: Sequence[int]) -> bytes:
        return array.array("Q", map(self._number, samples)).tobytes()

    def _name(self, sample: int) -> str:
        shard, offset, _ = self.place(sample)
        return f"'{shard}' of '{self.url}' at byte {offset}"

    def _epoch(self) -> Tuple[int, bytes, bytes, bool]:
        """Returns the arguments of _native.Plan: the samples of an epoch, and no mix."""
        return len(self), b"", b"", False

    def _share(self) -> float:
        return 1

    def _array(self) -> Optional[Tuple[Any, Tuple[int, ...]]]:
        """Returns the type and the shape of the samples if each is one array."""
        if not self._size:
            return None
        columns = self._columns_of(0, bytearray(self._size), 0)
        return (columns[0].dtype, columns[0].dims) if len(columns) == 1 else None

    def _start(self, ids: bytes, memory: Optional[bytearray]) -> "_native.Batch":
        return self._set.start(ids) if memory is None else self._set.start(ids, memory)

    def _begin(self, ids: bytes, memory: Memory, skip: bool) -> Read:
        return Read(self, ids, memory, skip)

    def _samples(self, ids: bytes, read: Tuple[bytearray, bytes], first: int, last: int) -> Any:
        """Returns the samples of a read from ``first`` to ``last``, without ``last``."""
        data, offsets = read
        numbers, at = memoryview(ids).cast("Q"), memoryview(offsets).cast("Q")
        if self._size:
            return self._records(numbers[first], data, first, last)
        if self.format == "objects" and not self.classes:
            view = memoryview(data)
            return [view[at[i] : at[i + 1]] for i in range(first, last)]
        return self._set.samples(ids, read, first, last, self._value)

    def _records(self, sample: int, data: bytearray, first: int, last: int) -> Any:
        rows = _numpy().frombuffer(data, dtype="uint8", count=(last - first) * self._size, offset=first * self._size).reshape(-1, self._size)
        fields = self._columns_of(sample, data, first)
        if len(fields) == 1:
            return fields[0].of(rows)
        columns = {column.name: column.of(rows) for column in fields}
        return [{name: column[i] for name, column in columns.items()} for i in range(len(rows))]

    def _columns_of(self, sample: int, data: bytearray, place: int) -> List[_Column]:
        """Returns the columns of samples of one size, all at the same offset. ``place`` is the index of ``sample`` in ``data``."""
        if self._columns is None:
            self._columns = [_Column(field) for field in self._set.split(sample, data, place * self._size, self._size)]
        return self._columns

    def _value(self, sample: int, name: str, data: memoryview, kind: str, dtype: Optional[str], big_endian: bool, dims: Tuple[int, ...]) -> Any:
        try:
            if kind == "text":
                return str(data, "utf-8")
            if kind == "json":
                return json.loads(bytes(data))
        except (ValueError, RecursionError) as reason:
            message = f"cannot read {self._name(sample)}: field '{name}' is not valid {kind}: {reason}"
            raise data_error("corrupt", message.encode("utf-8", "backslashreplace")) from None
        if dtype is None:
            return data
        values = _numpy().frombuffer(data, dtype=_dtype(dtype, big_endian))
        return values[0].item() if kind == "number" else values.reshape(dims)


def _reopen(arguments: Any, count: int, size: int) -> Dataset:
    url, format, dtype, (record_size, header, trailer, window, stride), (endpoint_url, region, profile, anonymous), threads, (cache, cache_size), image = arguments
    height, width, column, labels = image
    data = Dataset(
        url, format, record_size=record_size, header=header, trailer=trailer, dtype=dtype, window=window, stride=stride,
        endpoint_url=endpoint_url, region=region, profile=profile, anonymous=anonymous, threads=threads, cache=cache, cache_size=cache_size,
        decode=(height, width) if height else None, column=column, labels=labels,
    )  # fmt: skip
    if (len(data), data._size) != (count, size):
        raise data_error("changed", f"cannot open '{data.url}' again: it has {len(data)} samples now, and had {count} before".encode())
    return data

"""Reads of samples in the background, their memory, and the samples that are skipped because they are damaged."""
import sys
from typing import Any, Dict, List, Optional, Set, Tuple, Union

from penstock._errors import DatasetDamaged, DatasetError

AT_A_TIME = 8  # reads in flight at most
CAUSES = {"corrupt": "damaged", "changed": "changed", "not found": "missing"}  # causes of skipped samples, by the code of the error
_PARTS = 8  # a shard without a readable part is split into at most this number of parts
_LARGE = 1 << 20  # bytes; smaller memory comes from pages that the process already has


def _unused() -> int:
    for memory in [bytearray()]:
        return sys.getrefcount(memory)
    return 0


# The number of references that Memory.take() counts for memory that no batch refers to; the number
# depends on the version of Python.
_UNUSED = _unused()


class Memory:
    """Memory of large reads, which is reused once no batch refers to it: new pages take longer than the reads into them."""

    def __init__(self) -> None:
        self._all: List[bytearray] = []

    def give(self, memory: bytearray) -> None:
        if len(memory) >= _LARGE and not any(memory is known for known in self._all):
            self._all.append(memory)
            del self._all[: -2 * AT_A_TIME]

    def take(self) -> Optional[bytearray]:
        for memory in self._all:
            if sys.getrefcount(memory) == _UNUSED:
                return memory
        return None


class Report:
    """Numbers of a batch: its samples and their bytes, and the skipped samples as (cause, shard, message)."""

    def __init__(self) -> None:
        self.samples = self.size = 0
        self.skipped: List[Tuple[str, str, str]] = []


class Read:
    """Samples of one set that are read together; ``ids`` are their packed indexes. ``skip`` leaves out samples that cannot be read."""

    def __init__(self, data: Any, ids: bytes, memory: Memory, skip: bool) -> None:
        self._data, self._ids, self._memory, self._skip = data, ids, memory, skip
        self._batch = data._start(ids, memory.take())
        self._read: Any = None
        # Set if the read has failed. For each index in this read: the error, or (packed indexes,
        # read, index in that read) of a later read that has the sample.
        self._found: Dict[int, Union[DatasetError, Tuple[bytes, Any, int]]] = {}
        self.skipped: Set[int] = set()  # indexes in this read

    def wait(self) -> int:
        """Waits for the samples and returns their total size in bytes."""
        try:
            self._read = self._batch.wait()
        except DatasetError as error:
            self._check(error)
            self._read_again()
            return 0
        self._memory.give(self._read[0])
        return len(self._read[0])

    def samples(self, first: int, last: int, report: Report) -> Any:
        """Returns the samples from ``first`` to ``last``, without ``last``: one array, or a list."""
        if not self._found:
            try:
                samples = self._data._samples(self._ids, self._read, first, last)
            except DatasetDamaged as error:  # text, JSON and the like can be damaged
                self._check(error)
            else:
                at = memoryview(self._read[1]).cast("Q")
                report.samples += last - first
                report.size += at[last] - at[first]
                return samples
        return _joined([self._one(i, report) for i in range(first, last)])

    def _check(self, error: DatasetError) -> None:
        if not self._skip or error.code not in CAUSES:
            raise error

    def _one(self, i: int, report: Report) -> Any:
        """Returns an array or list with this one sample, or an empty list if the sample is skipped."""
        found = self._found.get(i, (self._ids, self._read, i))
        try:
            if isinstance(found, DatasetError):
                raise found
            ids, read, k = found
            samples = self._data._samples(ids, read, k, k + 1)
        except DatasetError as error:
            self._check(error)
            self.skipped.add(i)
            shard = self._data.place(memoryview(self._ids).cast("Q")[i])[0]
            report.skipped.append((CAUSES[error.code], f"'{shard}' of '{self._data.url}'", str(error)))
            return []
        at = memoryview(read[1]).cast("Q")
        report.samples += 1
        report.size += at[k + 1] - at[k]
        return samples

    def _read_again(self) -> None:
        """Reads the samples of each shard again, and finds damaged samples by bisection.

        A shard that is missing or has changed is skipped as a whole. So is a shard
        if no eighth of its samples can be read, such as a damaged compressed shard.
        """
        shards: Dict[str, List[int]] = {}
        for i, number in enumerate(memoryview(self._ids).cast("Q")):
            shards.setdefault(self._data.place(number)[0], []).append(i)
        groups = list(shards.items())
        good: Set[str] = set()
        while groups:
            packed = [b"".join(self._ids[8 * i : 8 * i + 8] for i in places) for _, places in groups]
            started = [self._data._start(ids, None) for ids in packed]
            left: Dict[str, List[List[int]]] = {}
            for (shard, places), ids, batch in zip(groups, packed, started):
                try:
                    read = batch.wait()
                except DatasetError as error:
                    self._check(error)
                    self._found.update(dict.fromkeys(places, error))
                    if error.code == "corrupt" and len(places) > 1:
                        left.setdefault(shard, []).extend((places[: len(places) // 2], places[len(places) // 2 :]))
                else:
                    good.add(shard)
                    self._found.update((i, (ids, read, k)) for k, i in enumerate(places))
            groups = [(shard, places) for shard, halves in left.items() if shard in good or len(halves) <= _PARTS for places in halves]


def _joined(parts: List[Any]) -> Any:
    """Joins parts of one sample each, and skips empty parts: one array, or a list."""
    parts = [part for part in parts if len(part)]
    if parts and not isinstance(parts[0], list):
        import numpy

        return numpy.concatenate(parts)
    return [sample for part in parts for sample in part]

"""Reads of samples in the background, and their memory."""
import sys
from typing import Any, List, Optional

AT_A_TIME = 8  # reads in flight at most
_LARGE = 1 << 20  # bytes; smaller memory comes from pages that are there


class Memory:
    """Memory of large reads, used again once no batch refers to it: new pages cost more than what is read into them."""

    def __init__(self) -> None:
        self._all: List[bytearray] = []

    def give(self, memory: bytearray) -> None:
        if len(memory) >= _LARGE and not any(memory is known for known in self._all):
            self._all.append(memory)
            del self._all[: -2 * AT_A_TIME]

    def take(self) -> Optional[bytearray]:
        for memory in self._all:
            if sys.getrefcount(memory) == 3:  # of the list, of `memory`, and of the call
                return memory
        return None


class Read:
    """Samples of one set that are read together; ``ids`` are their packed numbers."""

    def __init__(self, data: Any, ids: bytes, memory: Memory) -> None:
        self._data, self._ids, self._memory = data, ids, memory
        self._batch = data._start(ids, memory.take())
        self._read: Any = None

    def wait(self) -> int:
        """Waits for the samples and returns their bytes."""
        self._read = self._batch.wait()
        self._memory.give(self._read[0])
        return len(self._read[0])

    def samples(self, first: int, last: int) -> Any:
        """Returns those from the first-th to before the last-th: one array, or a list."""
        return self._data._samples(self._ids, self._read, first, last)

"""Several data sets as one, by weights."""
import bisect
import itertools
import math
from array import array
from fractions import Fraction
from typing import Any, Dict, Iterable, List, Sequence, Tuple

from penstock._numbers import check_number
from penstock._reads import Memory, Read, Report

_SUM = 1 << 32  # maximum sum of the weights


def _whole(weights: Sequence[Any]) -> List[int]:
    """Returns whole numbers in the exact ratio of the decimal weights. Rounds the ratio if the sum
    of the numbers would be above _SUM."""
    try:
        exact = [Fraction(str(weight)) for weight in weights]
    except (ValueError, ZeroDivisionError):
        exact = [Fraction(0)]
    if min(exact, default=0) <= 0:
        raise ValueError(f"invalid weights {list(weights)}: expected numbers above 0")
    scale = math.lcm(*(weight.denominator for weight in exact))
    whole = [int(weight * scale) for weight in exact]
    divisor, total = math.gcd(*whole), sum(whole)
    if total // divisor <= _SUM:
        return [weight // divisor for weight in whole]
    return [max(1, weight * (_SUM - len(whole)) // total) for weight in whole]


class Mix:
    """Data sets mixed by weights, for a Loader: ``Loader(Mix([(books, 0.7), (code, 0.3)]), batch_size=256, shuffle=True)``.

    After any number of samples each set has had its share of them, with an error below two samples. Each set has its own order, which the
    ``shuffle`` of the loader decides. An epoch ends before a sample of a set would come twice. With ``repeat`` the epoch ends after every
    sample of every set has been read: smaller sets are repeated in another order, and the next epoch continues each set. ``samples`` sets
    the length of an epoch instead.

    A batch is one array if the samples of all sets are arrays of one type and shape, else a list. The sample numbers of a set follow
    those of the previous set; ``place()`` takes these numbers.
    """

    def __init__(self, sets: Iterable[Tuple[Any, Any]], *, repeat: bool = False, samples: int = 0) -> None:
        pairs = list(sets)
        if not all(isinstance(pair, (tuple, list)) and len(pair) == 2 and hasattr(pair[0], "_epoch") for pair in pairs):
            raise TypeError("invalid sets: expected pairs (Dataset, weight)")
        self._sets, weights = [data for data, _ in pairs], [weight for _, weight in pairs]
        self._whole, self._repeat, self._samples = _whole(weights), repeat, check_number("samples", samples, 0)
        self.url = ", ".join(data.url for data in self._sets)
        self._firsts = [0, *itertools.accumulate(len(data) for data in self._sets)]
        sizes = [data._size for data in self._sets]
        self._size = max(sizes) if all(sizes) else 0
        arrays = {data._array() for data in self._sets}
        self._array_of = arrays.pop() if len(arrays) == 1 else None

    def __repr__(self) -> str:
        return f"Mix({self.url!r}, samples={len(self)})"

    def __len__(self) -> int:
        """Returns the number of samples of all sets."""
        return self._firsts[-1]

    def place(self, sample: int) -> Tuple[str, int, int]:
        """Returns the name of the shard of a sample, below the URL of its set, and the offset and size of the sample in the shard."""
        data, number = self._find(sample)
        place: Tuple[str, int, int] = data.place(number)
        return place

    def _find(self, sample: int) -> Tuple[Any, int]:
        if not 0 <= sample < len(self):
            raise IndexError(f"invalid sample {sample} of the mix: the number of samples is {len(self)}")
        k = bisect.bisect(self._firsts, sample) - 1
        return self._sets[k], sample - self._firsts[k]

    def _epoch(self) -> Tuple[int, bytes, bytes, bool]:
        """Returns the arguments of _native.Plan: samples of an epoch, sizes of the sets, weights, and ``repeat``."""
        counts = array("Q", map(len, self._sets)).tobytes()
        return self._samples, counts, array("Q", self._whole).tobytes(), self._repeat

    def _share(self) -> float:
        """Returns the share of the set with the largest weight."""
        return max(self._whole) / sum(self._whole)

    def _begin(self, ids: bytes, memory: Memory, skip: bool) -> "_MixRead":
        return _MixRead(self, ids, memory, skip)


class _MixRead:
    """Samples of a mix that are read together: a read of each set."""

    def __init__(self, mix: Mix, ids: bytes, memory: Memory, skip: bool) -> None:
        numbers: Dict[int, Any] = {}
        places: Dict[int, List[int]] = {}
        for place, number in enumerate(memoryview(ids).cast("Q")):
            k = bisect.bisect(mix._firsts, number) - 1
            numbers.setdefault(k, array("Q")).append(number - mix._firsts[k])
            places.setdefault(k, []).append(place)
        self._array_of = mix._array_of
        self._parts = [(Read(mix._sets[k], numbers[k].tobytes(), memory, skip), places[k]) for k in numbers]

    def wait(self) -> int:
        return sum(read.wait() for read, _ in self._parts)

    def samples(self, first: int, last: int, report: Report) -> Any:
        rows: Dict[int, Any] = {}
        for read, places in self._parts:
            start, end = bisect.bisect_left(places, first), bisect.bisect_left(places, last)
            samples = read.samples(start, end, report) if start < end else []
            rows.update(zip((places[i] for i in range(start, end) if i not in read.skipped), samples))
        got = [rows[place] for place in sorted(rows)]
        if self._array_of is None or not got:
            return got
        import numpy

        return numpy.stack(got)

"""Batches of a data set or a mix, epoch by epoch: the order, reading ahead, and the position for a checkpoint."""
import collections
import operator
from typing import Any, Callable, Deque, Dict, Iterator, List, Optional, Tuple, Union

from penstock import _native
from penstock._errors import data_error
from penstock._memory import torch_if_loaded
from penstock._meter import Line, Meter, ending, in_run, record
from penstock._numbers import check_number
from penstock._ranks import ranks
from penstock._reads import AT_A_TIME, Memory, Report

_STATE_VERSION = 1
_STATE = ("version", "seed", "epoch", "delivered", "samples", "order")
_JOIN = 8 << 20  # bytes of consecutive samples that are read together
_SHUFFLES: Dict[Any, str] = {False: "none", True: "full", None: "none"}
_BATCH = 1 << 24  # maximum number of samples of a batch
_RANKS = 1 << 20


def _worker_info() -> Any:
    """Returns torch's description of this worker of a DataLoader; None if the process is not a
    worker."""
    torch = torch_if_loaded()
    return torch.utils.data.get_worker_info() if torch is not None else None


def _worker() -> Tuple[int, int]:
    """Returns (number of this worker, number of workers) in a worker of a torch DataLoader, else
    (0, 1)."""
    info = _worker_info()
    return (info.id, info.num_workers) if info is not None else (0, 1)


def _block(data: Any) -> int:
    """Returns the number of samples of a block: at least one sample, at most 1,024 samples and
    1 MiB. If the samples differ in size, the number is 256.

    The number is a power of two, as most batch sizes are, so that windows begin with a batch.
    """
    return int(2 ** (min(1024, max(1, (1 << 20) // (data._size or 4096))).bit_length() - 1))


def tensors(samples: Any) -> Any:
    """Makes tensors of a list of samples, as ``collate="torch"`` does: for ``collate_fn`` of your own torch DataLoader.

    torch's default makes a list of numbers of each memoryview, and fails for uint16 up to torch 2.2.
    """
    from penstock._torch import tensors as made

    return made(samples)


class Loader:
    """Batches of a data set, epoch by epoch, read ahead in the background: ``for batch in loader``.

    ``data`` is a Dataset or a Mix of several. ``shuffle`` is False, True (any sample anywhere), ``"block"`` (blocks of ``block`` samples in
    a random order, shuffled within) or ``"window"`` (shuffled within each ``window`` blocks of such an order); the last two read large
    ranges. A block has at most 1,024 samples and 1 MiB, or 256 samples if they differ in size, unless ``block`` is given. If ``rank`` and
    ``world_size`` are not given, they come from torch.distributed or the environment. ``batch_size`` is the number of samples for one
    rank.

    At the end of an epoch all ranks differ by at most one sample; ``drop_last`` drops the last step if it is incomplete, and ``pad`` fills
    it with the first samples of the epoch. A batch is the result of ``collate`` for the list of samples. Without ``collate`` a batch is the
    list, or one array if each sample is an array. ``transform`` is called with each sample first.
    ``collate="torch"`` makes tensors of arrays and numbers, column by column, and leaves lists of
    everything else. ``pin_memory`` also makes tensors, in page-locked memory if CUDA is available:
    ``tensor.to("cuda", non_blocking=True)`` copies such memory in the background. At most ``ahead``
    bytes are read in advance, but at least two reads.

    ``on_error="skip"`` skips samples that are damaged, have changed or are missing, with one warning for each shard: their batch is shorter,
    and an empty batch is left out. ``progress`` shows a line on the terminal of rank 0.

    ``for`` after a ``break`` restarts the epoch: at its first sample, or at the state that was loaded for this epoch. At the end of an
    epoch the loader advances to the next epoch. ``dataloader(num_workers=4)`` transforms and collates in torch's worker processes.
    """

    def __init__(
        self,
        data: Any,
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
        collate: Union[Callable[[Any], Any], str, None] = None,
        ahead: int = 128 << 20,
        on_error: str = "raise",
        progress: bool = False,
        pin_memory: bool = False,
    ) -> None:
        if (rank is None) != (world_size is None):
            raise ValueError("rank and world_size must be given together")
        self._given: Optional[Tuple[int, int]] = None
        if world_size is not None and rank is not None:
            self._given = (check_number("rank", rank, 0, check_number("world_size", world_size, 1, _RANKS) - 1), world_size)
        if drop_last and pad:
            raise ValueError("drop_last and pad exclude each other")
        if on_error not in ("raise", "skip"):
            raise ValueError(f"invalid on_error {on_error!r}: expected 'raise' or 'skip'")
        if isinstance(collate, str) and collate != "torch":
            raise ValueError(f"invalid collate {collate!r}: expected a function or 'torch'")
        if not hasattr(data, "_epoch"):
            raise TypeError(f"invalid data of type {type(data).__name__!r}: expected a Dataset or a Mix")
        self.data = data
        self.batch_size = check_number("batch_size", batch_size, 1, _BATCH)
        self.shuffle = str(_SHUFFLES.get(shuffle, shuffle))
        if self.shuffle not in ("none", "full", "block", "window"):
            raise ValueError(f"invalid shuffle {shuffle!r}: expected False, True, 'block' or 'window'")
        self.seed = check_number("seed", seed, 0)
        self.epoch = 0
        self._blocks = (check_number("block", _block(data) if block is None else block, 1), check_number("window", window, 1))
        self._rest = "drop" if drop_last else "pad" if pad else "keep"
        self._transform: Optional[Callable[[Any], Any]] = transform
        self._collate: Optional[Callable[[Any], Any]] = collate if callable(collate) else tensors if collate or pin_memory else None
        self._pin = pin_memory
        self._ahead, self._skip, self._progress = check_number("ahead", ahead, 0), on_error == "skip", progress
        self._meter = Meter()
        self._start = 0  # samples that all ranks had got at the point where this process starts in the epoch
        self._delivered = 0
        self._passed = 0  # batches after `_start` that this worker has already yielded before a resume
        self._yielded = 0
        self._whole = False  # the last batch of the epoch was delivered
        self._numbers: Any = None  # description of the epoch whose numbers are written to the output; None if there is none
        self._samples = self._plan(0, (0, 1)).samples()  # refuses invalid arguments

    def _ranks(self) -> Tuple[int, int]:
        return self._given or ranks()

    def _plan(self, start: int, worker: Tuple[int, int]) -> "_native.Plan":
        rank, world = self._ranks()
        samples, *mix = self.data._epoch()
        deal = (world, rank, self.batch_size, worker[1], worker[0])
        return _native.Plan(samples, self.shuffle, self._rest, (*self._blocks, self.seed, self.epoch, start), deal, tuple(mix))

    def __repr__(self) -> str:
        return f"Loader({self.data!r}, batch_size={self.batch_size}, shuffle={self.shuffle!r}, batches={len(self)})"

    def __len__(self) -> int:
        """Returns the number of batches of a whole epoch of this rank."""
        return self._plan(0, (0, 1)).rank_batches()

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch. If a state was loaded for this epoch, the epoch continues at that state."""
        if check_number("epoch", epoch, 0) != self.epoch or self._whole:
            self._begin(epoch)

    def _begin(self, epoch: int) -> None:
        self.epoch, self._whole = epoch, False
        self._start = self._delivered = self._passed = self._yielded = 0

    def _joined(self) -> Tuple[int, int]:
        """Returns the number of batches of the first read, and the number of batches of each later read.

        A read has a window or some blocks, which are large ranges. If the epoch starts within a window, the first read ends with that
        window. A mix uses the window of the set with the largest share.
        """
        block, window = self._blocks
        step = self.batch_size * self._ranks()[1]
        samples = {"window": int(block * window / self.data._share()), "full": 0}.get(self.shuffle, _JOIN // (self.data._size or _JOIN))
        if self.shuffle == "block":
            samples = max(1, samples // block) * block
        first = samples - self._start % samples if samples else 0
        return max(1, first // step), max(1, samples // step)

    def _reads(self, plan: "_native.Plan") -> Iterator[Tuple[List[int], Any]]:
        """Starts the reads of the plan in order. Yields each read with the indexes in the read at
        which its batches begin and end."""
        n, (join, then) = plan.batches(), self._joined()
        first, memory = self._passed, Memory()
        while first < n:
            parts = [plan.batch(i)[0] for i in range(first, min(first + join, n))]
            ends = [0]
            for part in parts:
                ends.append(ends[-1] + len(part) // 8)
            yield ends, self.data._begin(b"".join(parts), memory, self._skip)
            first, join = first + join, then

    def _batches(self, worker: Tuple[int, int]) -> Iterator[Tuple[Any, Report]]:
        """Yields the batches of a worker, each with its Report; a batch of 0 samples is not transformed or collated."""
        plan = self._plan(self._start, worker)
        reads = self._reads(plan)
        waiting: Deque[Tuple[List[int], Any]] = collections.deque()
        size = 0
        while True:
            while len(waiting) < 2 or (size and (len(waiting) + 1) * size <= self._ahead and len(waiting) < AT_A_TIME):
                started = next(reads, None)
                if started is None:
                    break
                waiting.append(started)
            if not waiting:
                return
            ends, read = waiting.popleft()
            size = max(size, read.wait(), 1)
            for i in range(len(ends) - 1):
                report = Report()
                samples = read.samples(ends[i], ends[i + 1], report)
                if report.samples and self._transform is not None:
                    samples = [self._transform(sample) for sample in samples]
                if report.samples and self._collate is not None:
                    samples = self._collate(samples)
                yield samples, report
                del samples
            del read

    def __iter__(self) -> Iterator[Any]:
        self._advance()
        worker = _worker()
        batches = self._batches(worker)
        if self._pin and _worker_info() is None:
            from penstock._torch import pinned

            batches = pinned(batches)
        return self._deliver(batches, worker)

    def _advance(self) -> None:
        """Advances to the next epoch if this epoch was delivered: a loop that counts its batches
        stops before it would see the end of the epoch."""
        if self._whole:
            self._begin(self.epoch + 1)

    def _deliver(self, batches: Iterator[Tuple[Any, Report]], worker: Tuple[int, int] = (0, 1)) -> Iterator[Any]:
        """Yields the batches that have samples, and counts what is delivered."""
        epoch, plan, meter, message = self.epoch, self._plan(self._start, worker), self._meter, ""
        line = Line(epoch, plan.batches(), meter) if self._progress and self._ranks()[0] == 0 else None
        self._record()
        self._numbers = numbers = {"data": self.data.url, "epoch": epoch, "ended": False}
        i = self._passed
        ends = ending.add(self._record) if in_run() and _worker_info() is None else 0
        meter.begin()
        try:
            for batch, report in meter.watch(batches):
                i += 1
                if epoch == self.epoch:  # not if set_epoch() was called in the loop
                    self._delivered = plan.delivered((i - 1) * worker[1] + worker[0] + 1)
                    self._yielded, self._whole = i, i == plan.batches()
                numbers["ended"] = i == plan.batches()
                if line is not None:
                    line.show(i)
                if self._numbers is numbers and not numbers["ended"] and meter.due():
                    self._record()
                if report.samples:
                    yield batch
                else:
                    message = report.skipped[-1][2]
                del batch
            numbers["ended"] = True
        finally:
            if line is not None:
                line.end(i)
            if self._numbers is numbers:
                self._record()
                self._numbers = None
            if ends:
                ending.remove(ends)
        if message and not meter.samples and self._start == self._passed == 0:
            self._whole = False
            raise data_error("corrupt", f"cannot read any sample of the epoch: {message}".encode())
        if epoch == self.epoch:
            self._begin(epoch + 1)

    def _record(self) -> None:
        """Writes the numbers of the epoch to the output of the run."""
        if self._numbers is not None and _worker_info() is None:
            record(self._ranks()[0], self._numbers, self._meter.stats())

    def stats(self) -> Dict[str, float]:
        """Returns the numbers of the current epoch, or of the last epoch that has ended: ``samples``, ``bytes``, ``skipped``,
        ``seconds``, ``samples_per_s``, ``bytes_per_s`` and ``waiting``, the share of the seconds in which the loop waited for a batch;
        and ``total_samples``, ``total_bytes`` and ``total_skipped`` of all epochs. All numbers are of this rank.
        """
        return self._meter.stats()

    @property
    def skipped(self) -> Dict[str, int]:
        """The numbers of samples that were skipped in all epochs, by cause: ``damaged``, ``changed`` and ``missing``."""
        return dict(self._meter.skipped)

    def state_dict(self) -> Dict[str, int]:
        """Returns the position in the epoch: a few integers, which count delivered batches and not batches that were read ahead."""
        numbers = (_STATE_VERSION, self.seed, self.epoch, self._delivered, self._samples, self._plan(0, (0, 1)).id())
        return dict(zip(_STATE, numbers))

    def load_state_dict(self, state: Dict[str, int]) -> None:
        """Continues at a position from state_dict(), even one saved by another number of ranks. Uses the seed of the state.

        Raises ValueError if the samples or their order differ from the state: some samples would be repeated and others skipped.
        """
        try:
            version, seed, epoch, delivered, samples, order = (operator.index(state[name]) for name in _STATE)
        except (KeyError, TypeError):
            raise ValueError(f"invalid state {state!r}: expected integers {', '.join(_STATE)}") from None
        if version != _STATE_VERSION:
            raise ValueError(f"the state has version {version}; this version of penstock reads {_STATE_VERSION}")
        if samples != self._samples:
            raise ValueError(f"the state belongs to a data set of {samples} samples; this data set has {self._samples}")
        if order != self._plan(0, (0, 1)).id():
            raise ValueError("the state was saved with another shuffle, block or window; use the same arguments")
        check_number("number of delivered samples", delivered, 0, self._samples)
        self.seed, self.epoch = check_number("seed", seed, 0), check_number("epoch", epoch, 0)
        self._start = self._delivered = delivered
        self._passed = self._yielded = 0
        self._whole = False

    def dataloader(self, **options: Any) -> Any:
        """Returns a torch DataLoader of the batches: ``for batch in loader.dataloader(num_workers=4, pin_memory=True)``.

        The workers read, transform and collate, into tensors if there is no ``collate``; the batches are the same in the same order for
        any number of workers. set_epoch(), state_dict() and load_state_dict() of this loader apply to the DataLoader.
        """
        from penstock._torch import dataloader

        return dataloader(self, options)

    def iterable(self) -> Any:
        """Returns a torch IterableDataset of the batches, for your own DataLoader with ``batch_size=None``.

        Each worker gets its part of the batches. This loader does not count the batches of workers; if you call its state_dict(), use
        dataloader(), or torchdata's StatefulDataLoader, which asks the workers. Call set_epoch() before each epoch.
        """
        from penstock._torch import batches

        return batches(self, None)

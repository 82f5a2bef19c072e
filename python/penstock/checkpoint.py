"""Checkpoints that are there whole or not at all.

A checkpoint is a directory that counts from the moment on when it has its ``COMMIT.json``, which names every file with size
and checksum and is written last. A process that is killed at any moment leaves the checkpoint before. ``penstock run``
publishes checkpoints in that order, too, and restores the newest one that is whole on the next machine.

Environment, all of it set by ``penstock run`` and none of it needed: ``PENSTOCK_CHECKPOINT_DIR`` (where checkpoints are),
``PENSTOCK_CHECKPOINT`` (the one that was restored), ``PENSTOCK_PREEMPT_FILE``, ``PENSTOCK_DEADLINE``, ``PENSTOCK_DONE_FILE``,
and ``RANK`` and ``WORLD_SIZE`` where a training has several processes.
"""
import math
import operator
import os
import warnings
from typing import Any, Dict, List, Literal, Mapping, NamedTuple, Optional, Set, Tuple, Union, overload

from penstock import _native, _safetensors, _torchfile
from penstock._errors import CheckpointDamaged, CheckpointError, CheckpointExists, CheckpointTimeout
from penstock._memory import HostBuffer
from penstock._notice import Notice, deadline, notice, should_save, should_stop, write_done_file
from penstock._ranks import group, ranks
from penstock._saver import Pending, commit_state, file_name, saver

__all__ = [
    "Checkpoint", "CheckpointDamaged", "CheckpointError", "CheckpointExists", "CheckpointTimeout", "File", "Notice", "Pending",
    "deadline", "done", "latest", "list_all", "load", "notice", "save", "should_save", "should_stop", "wait",
]  # fmt: skip

PathLike = Union[str, "os.PathLike[str]"]
Format = Literal["torch", "safetensors"]

_FORMATS: Dict[str, Any] = {"torch": _torchfile.TorchState, "safetensors": _safetensors.SafetensorsState}
_buffer = HostBuffer()
_warned: Set[str] = set()
os.register_at_fork(after_in_child=_buffer.forget)


class File(NamedTuple):
    """One file of a checkpoint."""

    name: str
    """Below the checkpoint's directory."""
    size: int
    """In bytes."""
    crc64nvme: int


class Checkpoint(NamedTuple):
    """A checkpoint that counts, as its COMMIT.json describes it."""

    path: str
    """Its directory, or the file, of programs that know nothing of commits."""
    step: int
    attempt: int
    """Of the run, from 1."""
    run: str
    """Identity of the run; "" outside of one."""
    time: float
    """Of the commit: Unix time in seconds."""
    world_size: int
    """How many ranks saved it."""
    metrics: Dict[str, float]
    files: List[File]


def _checkpoint(commit: Tuple[Any, ...]) -> Checkpoint:
    path, step, attempt, run, time_ns, world_size, metrics, files = commit
    return Checkpoint(path, step, attempt, run, time_ns / 1e9, world_size, metrics, [File(*file) for file in files])


def _directory(given: Optional[PathLike]) -> str:
    """Where checkpoints are, as an absolute path."""
    if given is not None:
        return os.path.abspath(os.fspath(given))
    if os.environ.get("PENSTOCK_CHECKPOINT_DIR"):
        return os.path.abspath(os.environ["PENSTOCK_CHECKPOINT_DIR"])
    if os.environ.get("DEEPSQUARE_OUTPUT"):
        return os.path.abspath(os.path.join(os.environ["DEEPSQUARE_OUTPUT"], "checkpoints"))
    raise ValueError("where do checkpoints go? Outside of a run, give dir=... or set PENSTOCK_CHECKPOINT_DIR")


def _metrics(given: Optional[Mapping[str, float]]) -> Dict[bytes, float]:
    """The finite ones; what is none cannot be compared with others when the best checkpoints are kept."""
    metrics = {}
    for name, value in (given or {}).items():
        if not isinstance(name, str) or not name or "\0" in name:
            raise ValueError(f"the metric {name!r} is to have a name, as text")
        if math.isfinite(float(value)):
            metrics[name.encode()] = float(value)
        else:
            warnings.warn(f"the metric {name} is {value} and is left out of the checkpoint", stacklevel=3)
    return metrics


@overload
def save(
    state: Any, step: int, *, metrics: Optional[Mapping[str, float]] = ..., dir: Optional[PathLike] = ..., format: Format = ...,
    asynchronous: Literal[False] = ..., timeout: float = ...,
) -> str: ...  # fmt: skip
@overload
def save(
    state: Any, step: int, *, metrics: Optional[Mapping[str, float]] = ..., dir: Optional[PathLike] = ..., format: Format = ...,
    asynchronous: Literal[True], timeout: float = ...,
) -> Pending: ...  # fmt: skip
@overload
def save(
    state: Any, step: int, *, metrics: Optional[Mapping[str, float]] = ..., dir: Optional[PathLike] = ..., format: Format = ...,
    asynchronous: bool, timeout: float = ...,
) -> Union[str, Pending]: ...  # fmt: skip
def save(
    state: Any,
    step: int,
    *,
    metrics: Optional[Mapping[str, float]] = None,
    dir: Optional[PathLike] = None,
    format: Format = "torch",
    asynchronous: bool = False,
    timeout: float = 600.0,
) -> Union[str, Pending]:
    """Saves ``state`` as the checkpoint of ``step``: durable on disk and complete when it counts.

    state
        With ``format="torch"`` whatever pickles: usually a dict with the ``state_dict()`` of model, optimizer and schedule,
        the states of random generators, and the position in the data. Tensors may be on any device and of any shape and
        type; tensors that share memory share it again when loaded, and all of them come from the CPU then. With
        ``format="safetensors"`` dicts, lists and tuples of tensors, arrays of numpy, numbers, text and None.
    step
        Of the training, counted as you like, not negative. A second save of the same step by the same process in the same
        directory does nothing and gives the first one's path, while that is there; by another process of the same attempt it is
        an error.
    metrics
        Numbers by name, such as ``{"loss": 0.25}``, by which a run may keep the best checkpoints. Those of rank 0 count.
    dir
        Directory of checkpoints; else ``$PENSTOCK_CHECKPOINT_DIR``, else ``$DEEPSQUARE_OUTPUT/checkpoints``.
    asynchronous
        Returns as soon as the state was copied into host memory, one buffer that every save uses again and that is
        page-locked where tensors come from a GPU; a thread writes and commits it. The next save waits for it.
    timeout
        Seconds for which ranks wait for each other.

    Several ranks call this with the same step and directory, of a file system that all of them see, each with its own state;
    rank 0 commits when all are done, and all return then.

    Returns the checkpoint's path; asynchronous, a ``Pending`` whose ``wait()`` gives it. A handler of a signal may call this, in
    the middle of another save, too: then it waits for that one, and its own has ended when it returns.

    Raises CheckpointError (CheckpointExists, CheckpointTimeout) with the reason: the checkpoints before are untouched. What
    went wrong in an asynchronous save is raised by the next ``save()`` or ``wait()``, and printed at the end of a process that
    calls neither. ValueError: an argument is wrong. What pickle raises for a state that it cannot take.
    """
    if format not in _FORMATS:
        raise ValueError(f"there is no format {format!r}; there are {' and '.join(_FORMATS)}")
    step = _step(step)
    if not 0 < timeout < 1e9:
        raise ValueError(f"timeout is {timeout!r}, not a number of seconds")
    place, who, chosen = (_directory(dir), step), ranks(), _metrics(metrics)
    title = f"saving step {step} in {place[0]}"
    with saver.lock:
        # A signal's handler that saves while save() is at it. The memory for asynchronous saves may be in use, so it takes its own.
        nested, saver.preparing = saver.preparing, True
        asynchronously = asynchronous and not nested
        try:
            saver.settle()
            if _is_saved(place):
                return Pending.of_result(title, saver.saved[place]) if asynchronous else saver.saved[place]
            prepared = _FORMATS[format](state, HostBuffer() if nested else _buffer, asynchronously)
            _warn_of_refused(prepared.refused)
            saver.settle()  # what a handler has begun meanwhile
            if _is_saved(place):
                return Pending.of_result(title, saver.saved[place]) if asynchronous else saver.saved[place]
            pending = Pending(lambda self: commit_state(self, place, who, chosen, float(timeout), prepared), title)
            if asynchronously:
                return saver.start(pending)
            try:
                saver.start(pending)
                path = pending.wait()
            except BaseException:
                pending.end()
                raise
            finally:
                saver.drop(pending)
            return pending if asynchronous else path
        finally:
            saver.preparing = nested


def _step(given: Any) -> int:
    """As an int, also of numpy's."""
    try:
        step = -1 if isinstance(given, bool) else operator.index(given)
    except TypeError:
        step = -1
    if not 0 <= step < 1 << 63:
        raise ValueError(f"step is {given!r}, not a whole number from 0")
    return step


def _is_saved(place: Tuple[str, int]) -> bool:
    """Whether this process has saved it, and it is still there."""
    return place in saver.saved and os.path.exists(saver.saved[place])


def _warn_of_refused(names: List[str]) -> None:
    new = [name for name in names if name not in _warned]
    _warned.update(new)
    if new:
        warnings.warn(
            f"the state has {', '.join(new)}, which load() reads only with weights_only=False; save its parts, such as its state_dict()", stacklevel=4
        )


def wait() -> None:
    """Waits until the asynchronous save that is under way counts, or raises CheckpointError with what went wrong with it."""
    saver.settle()


def latest(dir: Optional[PathLike] = None) -> Optional[Checkpoint]:
    """The newest checkpoint that is whole, every byte of it compared with its checksum; None: there is none.

    The newest is that of the highest attempt, then of the highest step, in ``dir`` (as in ``save()``); where there is none,
    the restored one, ``$PENSTOCK_CHECKPOINT``. A damaged one is passed over with a warning that says what is wrong with it.
    Ranks of an initialised process group get the answer of rank 0, so all of them must ask. A save that is under way is
    waited for.
    """
    saver.settle()
    distributed = group()
    if distributed is None or distributed.get_world_size() == 1:
        return _latest_here(dir)
    answer: List[Any] = [None]
    if distributed.get_rank() == 0:
        try:
            answer = [_latest_here(dir)]
        except Exception as error:
            answer = [error]
    distributed.broadcast_object_list(answer, src=0)
    if isinstance(answer[0], Exception):
        raise answer[0]
    found: Optional[Checkpoint] = answer[0]
    return found


def _latest_here(dir: Optional[PathLike]) -> Optional[Checkpoint]:
    restored = os.environ.get("PENSTOCK_CHECKPOINT") if dir is None else None
    if dir is None and restored and not os.environ.get("PENSTOCK_CHECKPOINT_DIR") and not os.environ.get("DEEPSQUARE_OUTPUT"):
        return _checkpoint(_native.open(os.fsencode(restored), True))
    commit, passed = _native.latest(os.fsencode(_directory(dir)))
    for path, why in passed:
        warnings.warn(f"passed over the checkpoint {os.fsdecode(path)}: {why.decode('utf-8', 'replace')}", stacklevel=3)
    if commit is not None:
        return _checkpoint(commit)
    return _checkpoint(_native.open(os.fsencode(restored), True)) if restored else None


def list_all(dir: Optional[PathLike] = None) -> List[Checkpoint]:
    """Every checkpoint of ``dir`` (as in ``save()``) that was committed, newest first; their data is not looked at."""
    return [_checkpoint(entry) for entry in _native.list(os.fsencode(_directory(dir))) if len(entry) > 2]


def load(
    which: Union[None, PathLike, Checkpoint] = None, *, map_location: Any = "cpu", dir: Optional[PathLike] = None,
    rank: Optional[int] = None, weights_only: bool = True,
) -> Any:  # fmt: skip
    """The state that was given to ``save()``, bit for bit; None: there is no checkpoint yet.

    which
        A ``Checkpoint`` or the path of one, which is compared with its checksums before anything is read; else ``latest(dir)``.
    map_location
        Where tensors go, as in ``torch.load``: a device, or None for where they were. Copying a state from the CPU into a
        model on a GPU is left to ``load_state_dict()``, so "cpu" is right there, too.
    rank
        Whose part of a checkpoint of several ranks; else this process's own.
    weights_only
        Only tensors, arrays, numbers, text and collections are made from a file of torch; whatever else it names, which could
        run code, is refused by name. False: as pickle does it, for files that you trust.

    Raises CheckpointDamaged where bytes are wrong or missing, CheckpointError where the checkpoint has no part for this rank
    (it was saved by another number of ranks: ``penstock.dcp`` is for that) or where the file is refused.
    """
    if which is None:
        found = latest(dir)
        if found is None:
            return None
    else:
        path = which.path if isinstance(which, Checkpoint) else os.fspath(which)
        found = _checkpoint(_native.open(os.fsencode(os.path.abspath(path)), True))
    path = _part(found, rank)
    if path.endswith(_safetensors.SUFFIX):
        return _safetensors.read(path, map_location)
    return _torchfile.read(path, map_location, weights_only)


def _part(found: Checkpoint, rank: Optional[int]) -> str:
    """The file with the state of this rank."""
    if not os.path.isdir(found.path):
        return found.path
    here, world = ranks()
    if rank is None:
        if found.world_size > 1 and found.world_size != world:
            raise CheckpointError(
                f"{found.path} was saved by {found.world_size} ranks and is loaded by {world}; rank=... names the part to load, and "
                "penstock.dcp saves what any number of ranks can load"
            )
        rank = here
    names = [file.name for file in found.files]
    if found.world_size == 1:
        rank = 0
    for suffix in (_torchfile.SUFFIX, _safetensors.SUFFIX):
        name = file_name(rank, found.world_size, suffix)
        if name in names:
            return os.path.join(found.path, name)
    if len(names) == 1:
        return os.path.join(found.path, names[0])
    raise CheckpointError(f"{found.path} has no state that save() wrote for rank {rank}; it has {', '.join(names[:5]) or 'no files'}")


def done() -> None:
    """Says that this training is finished, once the save that is under way counts: a run that has a notice of preemption takes it
    for complete then, not for one to go on with. Outside of a run only the wait happens."""
    wait()
    write_done_file()

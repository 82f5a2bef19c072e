"""Atomic checkpoints.

A checkpoint is a directory that its ``COMMIT.json`` commits: this file is written last and lists every file with size and
checksum. If a process is killed, the previous checkpoint remains. ``penstock run`` uploads checkpoints in the same order and
restores the newest complete one on the next machine.

Environment, set by ``penstock run`` but optional: ``PENSTOCK_CHECKPOINT_DIR`` (directory of the checkpoints),
``PENSTOCK_CHECKPOINT`` (the restored checkpoint), ``PENSTOCK_PREEMPT_FILE``, ``PENSTOCK_SAVE_FILE``, ``PENSTOCK_DEADLINE``,
``PENSTOCK_DONE_FILE``, and ``RANK`` and ``WORLD_SIZE`` if there are several processes.
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
    """Relative to the checkpoint's directory."""
    size: int
    """In bytes."""
    crc64nvme: int


class Checkpoint(NamedTuple):
    """A committed checkpoint, as described by its COMMIT.json."""

    path: str
    """Directory of the checkpoint, or its file if the checkpoint is a single file with a commit next to it."""
    step: int
    attempt: int
    """Attempt of the run, from 1."""
    run: str
    """ID of the run; "" outside of a run."""
    time: float
    """Time of the commit: Unix time in seconds."""
    world_size: int
    """Number of ranks that saved the checkpoint."""
    metrics: Dict[str, float]
    files: List[File]


def _checkpoint(commit: Tuple[Any, ...]) -> Checkpoint:
    path, step, attempt, run, time_ns, world_size, metrics, files = commit
    return Checkpoint(path, step, attempt, run, time_ns / 1e9, world_size, metrics, [File(*file) for file in files])


def _directory(given: Optional[PathLike]) -> str:
    """Returns the absolute path of the directory of checkpoints."""
    if given is not None:
        return os.path.abspath(os.fspath(given))
    if os.environ.get("PENSTOCK_CHECKPOINT_DIR"):
        return os.path.abspath(os.environ["PENSTOCK_CHECKPOINT_DIR"])
    if os.environ.get("DEEPSQUARE_OUTPUT"):
        return os.path.abspath(os.path.join(os.environ["DEEPSQUARE_OUTPUT"], "checkpoints"))
    raise ValueError("missing directory for checkpoints; outside of a run, pass dir=... or set PENSTOCK_CHECKPOINT_DIR")


def _metrics(given: Optional[Mapping[str, float]]) -> Dict[bytes, float]:
    """Returns the finite metrics. A selection of the best checkpoints cannot compare other numbers."""
    metrics = {}
    for name, value in (given or {}).items():
        if not isinstance(name, str) or not name or "\0" in name:
            raise ValueError(f"invalid name of a metric: {name!r}; expected non-empty text")
        if math.isfinite(float(value)):
            metrics[name.encode()] = float(value)
        else:
            warnings.warn(f"metric '{name}' is {value} and is omitted from the checkpoint", stacklevel=3)
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
    """Saves ``state`` as the checkpoint of ``step``. The checkpoint is committed once it is complete and durable on disk.

    state
        With ``format="torch"`` any object that can be pickled: usually a dict with the ``state_dict()`` of model, optimizer and schedule,
        the states of random generators, and the position in the data. Tensors may be on any device and of any shape and
        type. Tensors that share memory share it again when loaded, and all are loaded to the CPU. With
        ``format="safetensors"`` dicts, lists and tuples of tensors, numpy arrays, numbers, text and None.
    step
        Training step, in any unit, not negative. A second save of the same step by the same process in the same directory does
        nothing and returns the path of the first save while this checkpoint exists; a second save by another process of the same
        attempt is an error.
    metrics
        Numbers by name, such as ``{"loss": 0.25}``, by which a run may select the best checkpoints. The metrics of rank 0 are used.
    dir
        Directory of checkpoints; default ``$PENSTOCK_CHECKPOINT_DIR``, else ``$DEEPSQUARE_OUTPUT/checkpoints``.
    asynchronous
        Returns as soon as the state is copied into host memory; a thread writes and commits it. All saves reuse one buffer,
        which is page-locked if tensors come from a GPU. The next save waits for this one.
    timeout
        Seconds that ranks wait for each other.

    With several ranks, each rank calls this function with its own state and the same step and directory, on a shared file
    system. Rank 0 commits when all ranks are done; then the calls of all ranks return.

    Returns the checkpoint's path, or with ``asynchronous`` a ``Pending`` whose ``wait()`` returns the path. A signal handler may
    call this function, even during another save: it waits for that save, and its own save is always synchronous.

    Raises CheckpointError (CheckpointExists, CheckpointTimeout) with the reason; earlier checkpoints are untouched. The
    error of an asynchronous save is raised by the next ``save()`` or ``wait()``, or printed at exit if the process calls
    neither. Raises ValueError if an argument is invalid, and pickle's exceptions for a state that it cannot pickle.
    """
    if format not in _FORMATS:
        raise ValueError(f"invalid format {format!r}; expected {' or '.join(_FORMATS)}")
    step, timeout = _step(step), _timeout(timeout)
    place, who, chosen = (_directory(dir), step), ranks(), _metrics(metrics)
    title = f"saving step {step} in {place[0]}"
    with saver.lock:
        # The call is nested if a signal handler saves during save(). The shared buffer may be in use then, so use another buffer.
        nested, saver.preparing = saver.preparing, True
        asynchronously = asynchronous and not nested
        try:
            saver.settle()
            if _is_saved(place):
                return Pending.of_result(title, saver.saved[place]) if asynchronous else saver.saved[place]
            prepared = _FORMATS[format](state, HostBuffer() if nested else _buffer, asynchronously)
            _warn_of_refused(prepared.refused)
            saver.settle()  # a save started by a signal handler meanwhile
            if _is_saved(place):
                return Pending.of_result(title, saver.saved[place]) if asynchronous else saver.saved[place]
            pending = Pending(lambda self: commit_state(self, place, who, chosen, timeout, prepared), title)
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
    """Returns the step as an int; accepts numpy integers."""
    try:
        step = -1 if isinstance(given, bool) else operator.index(given)
    except TypeError:
        step = -1
    if not 0 <= step < 1 << 63:
        raise ValueError(f"invalid step {given!r}; expected an integer from 0")
    return step


def _timeout(given: float) -> float:
    if not 0 < given < 1e9:
        raise ValueError(f"invalid timeout {given!r}; expected a positive number of seconds")
    return float(given)


def _is_saved(place: Tuple[str, int]) -> bool:
    """Returns True if this process has saved the checkpoint and it still exists."""
    return place in saver.saved and os.path.exists(saver.saved[place])


def _warn_of_refused(names: List[str]) -> None:
    new = [name for name in names if name not in _warned]
    _warned.update(new)
    if new:
        warnings.warn(
            f"the state has {', '.join(new)}, which load() reads only with weights_only=False; save plain data instead, such as a state_dict()", stacklevel=4
        )


def wait() -> None:
    """Waits until the asynchronous save in progress is committed. Raises CheckpointError if it fails."""
    saver.settle()


def latest(dir: Optional[PathLike] = None) -> Optional[Checkpoint]:
    """Returns the newest complete checkpoint, with all checksums verified; None if there is none.

    The newest has the highest attempt, then the highest step, in ``dir`` (as in ``save()``). If there is none and ``dir`` is
    not given, returns the restored checkpoint, ``$PENSTOCK_CHECKPOINT``. Corrupt checkpoints are skipped with a warning that
    gives the reason. In an initialised process group all ranks get the result of rank 0, so all must call this function.
    Waits for a save in progress.
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
        warnings.warn(f"skipped checkpoint '{os.fsdecode(path)}': {why.decode('utf-8', 'replace')}", stacklevel=3)
    if commit is not None:
        return _checkpoint(commit)
    return _checkpoint(_native.open(os.fsencode(restored), True)) if restored else None


def list_all(dir: Optional[PathLike] = None) -> List[Checkpoint]:
    """Returns all committed checkpoints of ``dir`` (as in ``save()``), newest first, without verifying their data."""
    return [_checkpoint(entry) for entry in _native.list(os.fsencode(_directory(dir))) if len(entry) > 2]


def load(
    which: Union[None, PathLike, Checkpoint] = None, *, map_location: Any = "cpu", dir: Optional[PathLike] = None,
    rank: Optional[int] = None, weights_only: bool = True,
) -> Any:  # fmt: skip
    """Returns the state passed to ``save()``, bit for bit; None if there is no checkpoint yet.

    which
        A ``Checkpoint`` or its path, whose checksums are verified before it is read; default ``latest(dir)``.
    map_location
        Device of the loaded tensors, as in ``torch.load``; None for the device in the file, which is the CPU if ``save()`` wrote
        it. ``load_state_dict()`` copies a state from the CPU into a model on a GPU, so "cpu" also works there.
    rank
        Rank whose part is loaded; default this process's rank.
    weights_only
        Load only tensors, arrays, numbers, text and collections from a torch file and refuse all other types, which could run
        code. If False, any type is unpickled: use this only for files that you trust.

    Raises CheckpointDamaged if data is corrupt or missing, CheckpointError if the checkpoint has no part for this rank (for a
    different number of ranks use ``penstock.dcp``) or if the file is refused.
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
    """Returns the path of the file with the state of this rank."""
    if not os.path.isdir(found.path):
        return found.path
    here, world = ranks()
    if rank is None:
        if found.world_size > 1 and found.world_size != world:
            raise CheckpointError(
                f"cannot load '{found.path}': saved by {found.world_size} ranks, loaded by {world}; choose a part with rank=..., or "
                "use penstock.dcp, whose checkpoints any number of ranks can load"
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
    raise CheckpointError(f"cannot load '{found.path}': no state of save() for rank {rank}; its files: {', '.join(names[:5]) or 'none'}")


def done() -> None:
    """Waits for the save in progress, then marks this task as finished: a run with a notice of preemption is then complete and
    will not be resumed. Outside of a run this function only waits."""
    wait()
    write_done_file()

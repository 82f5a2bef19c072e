"""Preemption notice, save request, deadline and done marker of a task."""
import json
import os
from typing import Any, NamedTuple, Optional, Tuple

from penstock._memory import torch_if_loaded


class Notice(NamedTuple):
    """A notice of preemption: why and when this task must stop."""

    source: str
    """Origin of the notice: "gcp", "aws", "file", ...; "" if unknown."""
    reason: str
    """One line for the user."""
    deadline: Optional[float]
    """Unix time in seconds at which the task will be killed; None if unknown."""


_saved_for: Optional[Tuple[int, int]] = None


def notice() -> Optional[Notice]:
    """Returns the notice of preemption in ``$PENSTOCK_PREEMPT_FILE``; None if there is none.

    A file that cannot be parsed still is a notice, with empty fields.
    """
    path = os.environ.get("PENSTOCK_PREEMPT_FILE")
    if not path or not os.path.exists(path):
        return None
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            content: Any = json.load(file)
    except FileNotFoundError:  # removed after the check
        return None
    except (OSError, ValueError):
        content = None
    if not isinstance(content, dict):
        content = {}
    deadline = content.get("deadline")
    return Notice(
        source=str(content.get("source") or ""),
        reason=str(content.get("reason") or ""),
        deadline=float(deadline) if isinstance(deadline, (int, float)) and not isinstance(deadline, bool) else None,
    )


def _anywhere(here: bool) -> bool:
    """Returns True if ``here`` is true on any rank of the default process group."""
    torch = torch_if_loaded()
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return here
    device = torch.device("cuda", torch.cuda.current_device()) if torch.distributed.get_backend() == "nccl" else torch.device("cpu")
    answer = torch.tensor([int(here)], dtype=torch.int32, device=device)
    torch.distributed.all_reduce(answer, op=torch.distributed.ReduceOp.MAX)
    return bool(answer.item())


def should_stop(everywhere: bool = False) -> bool:
    """Returns True if this task must save and exit, because ``$PENSTOCK_PREEMPT_FILE`` exists. Takes 2 µs: cheap enough for every batch.

    A warning that preemption is likely is not a reason to exit; ``should_save()`` reports it.

    Ranks check at different times. With ``everywhere`` they agree: the result is True on all ranks as soon as it is True on
    one of them. The agreement takes one all-reduce in ``torch.distributed``'s default group, so all ranks must call this
    function equally often. Without an initialised process group ``everywhere`` has no effect.
    """
    path = os.environ.get("PENSTOCK_PREEMPT_FILE")
    here = bool(path) and os.path.exists(str(path))
    return _anywhere(here) if everywhere else here


def should_save(everywhere: bool = False) -> bool:
    """Returns True, once per request, if this task should save and continue, because its machine may be preempted soon.

    Checks ``$PENSTOCK_SAVE_FILE``, as cheaply as ``should_stop()``; ``everywhere`` works the same way.
    """
    global _saved_for
    here = False
    try:
        status = os.stat(os.environ.get("PENSTOCK_SAVE_FILE") or "")
        here = (status.st_ino, status.st_mtime_ns) != _saved_for
        _saved_for = (status.st_ino, status.st_mtime_ns)
    except OSError:
        pass
    return _anywhere(here) if everywhere else here


def deadline() -> Optional[float]:
    """Returns the Unix time in seconds at which this task must have exited; None if there is no known limit.

    The deadline is the earlier of the notice's deadline and ``$PENSTOCK_DEADLINE`` (a time limit, or the end of a Slurm allocation).
    Remaining seconds: ``deadline() - time.time()``.
    """
    times = []
    current = notice()
    if current is not None and current.deadline is not None:
        times.append(current.deadline)
    try:
        times.append(float(os.environ.get("PENSTOCK_DEADLINE") or "none"))
    except ValueError:
        pass
    return min(times) if times else None


def write_done_file() -> None:
    """Creates ``$PENSTOCK_DONE_FILE``; does nothing if the variable is not set."""
    path = os.environ.get("PENSTOCK_DONE_FILE")
    if path:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666))

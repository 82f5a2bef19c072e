"""What a training asks about its end: the preempt file, the save file, the deadline, the done marker."""
import json
import os
from typing import Any, NamedTuple, Optional, Tuple

from penstock._memory import torch_if_loaded


class Notice(NamedTuple):
    """Why and when this task has to end."""

    source: str
    """Who said so: "gcp", "aws", "file", ... ; "" where the notice does not say."""
    reason: str
    """One line for people."""
    deadline: Optional[float]
    """Unix time in seconds at which the task is ended; None: not known."""


_saved_for: Optional[Tuple[int, int]] = None


def notice() -> Optional[Notice]:
    """The notice of preemption, as ``$PENSTOCK_PREEMPT_FILE`` has it; None: there is none.

    A file that cannot be understood is a notice all the same, with nothing known about it.
    """
    path = os.environ.get("PENSTOCK_PREEMPT_FILE")
    if not path or not os.path.exists(path):
        return None
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            content: Any = json.load(file)
    except FileNotFoundError:  # withdrawn meanwhile
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
    """Whether it is so at any rank of the default process group."""
    torch = torch_if_loaded()
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return here
    device = torch.device("cuda", torch.cuda.current_device()) if torch.distributed.get_backend() == "nccl" else torch.device("cpu")
    answer = torch.tensor([int(here)], dtype=torch.int32, device=device)
    torch.distributed.all_reduce(answer, op=torch.distributed.ReduceOp.MAX)
    return bool(answer.item())


def should_stop(everywhere: bool = False) -> bool:
    """Whether this task is to save and end: one look for ``$PENSTOCK_PREEMPT_FILE``, about 2 µs, cheap enough for every batch.

    That it may happen soon is no reason to end; ``should_save()`` tells of it.

    Ranks of one training look at different moments. With ``everywhere`` they agree: the answer is True on all of them as
    soon as it is on one, by one all-reduce of ``torch.distributed``'s default group, so every rank must call it equally
    often. Without a process group that is initialised ``everywhere`` changes nothing.
    """
    path = os.environ.get("PENSTOCK_PREEMPT_FILE")
    here = bool(path) and os.path.exists(str(path))
    return _anywhere(here) if everywhere else here


def should_save(everywhere: bool = False) -> bool:
    """Whether to save now and go on, since this machine may be taken away soon: True once for each time it is asked for.

    One look for ``$PENSTOCK_SAVE_FILE``, as cheap as ``should_stop()``, and ``everywhere`` is as there.
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
    """Unix time in seconds when this task must be over; None: as far as is known, never.

    The earlier of the notice's deadline and ``$PENSTOCK_DEADLINE`` (a time limit, or the end of a Slurm allocation).
    Seconds that are left: ``deadline() - time.time()``.
    """
    times = []
    told = notice()
    if told is not None and told.deadline is not None:
        times.append(told.deadline)
    try:
        times.append(float(os.environ.get("PENSTOCK_DEADLINE") or "none"))
    except ValueError:
        pass
    return min(times) if times else None


def write_done_file() -> None:
    """Creates ``$PENSTOCK_DONE_FILE``; nothing where there is no such variable."""
    path = os.environ.get("PENSTOCK_DONE_FILE")
    if path:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666))

"""Finds processes that a test left. This process adopts all orphans below it, so a daemon cannot hide by forking twice."""
import ctypes
import os
import signal
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans():
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def children(pid):
    """Returns the direct children of all threads of a process."""
    found = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:  # the process has ended meanwhile
        return found
    for task in tasks:
        try:
            found += [int(child) for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split()]
        except OSError:
            pass
    return found


def descendants(pid=None):
    """Returns {pid: command line} of the living processes below `pid` (default: this process). Zombies are not alive."""
    found, waiting = {}, children(pid or os.getpid())
    while waiting:
        child = waiting.pop()
        waiting += children(child)
        if is_alive(child):
            found[child] = command_line(child)
    return found


def is_alive(pid):
    """Returns True if the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def is_stopped(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def command_line(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def reap(pid):
    """Reaps an adopted zombie. Do not call this function for a child of a Popen object."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass


def survivors(before, patience_s):
    """Waits at most `patience_s` for new processes to end. Returns those that still run."""
    deadline = time.monotonic() + patience_s
    while True:
        left = {pid: command for pid, command in descendants().items() if pid not in before}
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


def end(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    for pid in pids:
        reap(pid)

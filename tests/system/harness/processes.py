"""Finding what a test left running. This process adopts every orphan below it, so a daemon cannot hide by forking twice."""
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
    """Direct children of all of a process's threads."""
    found = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:  # it has ended meanwhile
        return found
    for task in tasks:
        try:
            found += [int(child) for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split()]
        except OSError:
            pass
    return found


def descendants(pid=None):
    """{pid: command line} of everything alive below `pid` (default: this process); zombies are not alive."""
    found, waiting = {}, children(pid or os.getpid())
    while waiting:
        child = waiting.pop()
        waiting += children(child)
        if is_alive(child):
            found[child] = command_line(child)
    return found


def is_alive(pid):
    """Whether the process exists and is more than a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def command_line(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def reap(pid):
    """Collects an adopted zombie. A child that a Popen object still waits for is left to it by the caller."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass


def survivors(before, patience_s):
    """What runs now and did not before, after waiting up to `patience_s` for it to end."""
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

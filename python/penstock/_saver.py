"""Saving on a thread: one save at a time, whose error reaches the training at its next one."""
import atexit
import os
import sys
import threading
import traceback
from typing import Any, Callable, Dict, Optional, Tuple

from penstock import _native
from penstock._errors import CheckpointError


class Pending:
    """A save that is under way. ``wait()`` gives its result."""

    def __init__(self, work: "Callable[[Pending], str]", title: str):
        self.title = title
        self.saving: Any = None
        self._work = work
        self._result: Optional[str] = None
        self._error: Optional[BaseException] = None
        self._seen = False
        # An event, since Thread.join() takes a thread for ended once a signal's exception has come out of it.
        self._ended = threading.Event()
        self._mutex = threading.Lock()
        self._running = self._abandoned = False
        # Not a daemon: the interpreter waits for it before it ends.
        self._thread = threading.Thread(target=self._run, name=f"penstock {title}", daemon=False)

    def begin(self) -> None:
        self._thread.start()

    def abandon(self) -> bool:
        """Whether it had not begun, and never will: a signal's exception may come out of begin() before and after that."""
        with self._mutex:
            self._abandoned = not self._running
        return self._abandoned

    def _run(self) -> None:
        with self._mutex:
            if self._abandoned:
                return
            self._running = True
        try:
            self._result = self._work(self)
        except BaseException as error:  # noqa: B902  # it belongs to whoever waits
            self._error = error
        finally:
            self.saving = None
            del self._work
            self._ended.set()

    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return self._ended.is_set()

    def wait(self, timeout: Optional[float] = None) -> str:
        """The path of the checkpoint, once it counts. Raises what went wrong, and TimeoutError after ``timeout`` seconds."""
        if not self._ended.wait(timeout):
            raise TimeoutError(f"{self.title}: not done after {timeout} s")
        self._seen = True
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    def complete(self) -> str:
        """begin() and wait(), of a save whose memory is the caller's: what interrupts it ends the wait for other ranks, not the write."""
        try:
            self.begin()
            return self.wait()
        except BaseException:
            while not self.abandon() and not self._ended.is_set():
                saving = self.saving
                if saving is not None:
                    saving.cancel()
                self._ended.wait(0.1)
            self._seen = True
            raise

    def unseen_error(self) -> Optional[BaseException]:
        return self._error if not self._seen and self.done() else None


class Saver:
    """The saves of this process, in their order."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.pending: Optional[Pending] = None
        self.saved: Dict[Tuple[str, int], str] = {}

    def settle(self) -> None:
        """Waits for the save that is under way; an error that nobody has seen yet is raised, once."""
        with self.lock:
            pending, self.pending = self.pending, None
            if pending is None:
                return
            seen = pending._seen
            try:
                pending.wait()
            except KeyboardInterrupt:
                self.pending = pending
                raise
            except BaseException as error:
                if seen:
                    return
                raise CheckpointError(f"{pending.title} failed: {error}") from error

    def start(self, pending: Pending) -> Pending:
        """Lets it run beside the training."""
        with self.lock:
            assert self.pending is None
            self.pending = pending
            try:
                pending.begin()
            except BaseException:
                if pending.abandon():
                    self.pending = None
                raise
            return pending

    def forget(self) -> None:
        """After fork(): the save goes on in the parent only."""
        self.__init__()  # type: ignore[misc]


saver = Saver()
os.register_at_fork(after_in_child=saver.forget)


@atexit.register
def _tell_unseen_error() -> None:
    pending = saver.pending
    error = pending.unseen_error() if pending is not None else None
    if pending is not None and error is not None:
        print(f"penstock: {pending.title} failed: {error}", file=sys.stderr)
        if not isinstance(error, CheckpointError):
            traceback.print_exception(type(error), error, error.__traceback__)


def commit_state(pending: Pending, place: Tuple[str, int], who: Tuple[int, int], metrics: Dict[bytes, float], timeout: float, prepared: Any) -> str:
    """Writes a prepared state and makes it count; on the thread of ``pending``."""
    (directory, step), (rank, world) = place, who
    saving = _native.Saving(os.fsencode(directory), step, rank, world, metrics, timeout)
    pending.saving = saving
    try:
        path = saving.path()
        prepared.write(saving, file_name(rank, world, prepared.suffix))
        saving.commit()
    except BaseException:
        saving.give_up()
        raise
    saver.saved[place] = path
    return path


def file_name(rank: int, world: int, suffix: str) -> str:
    return f"rank-{rank:05d}{suffix}" if world > 1 else f"state{suffix}"

"""Saves on a background thread, one at a time. The next call raises the error of a failed save."""
import atexit
import os
import sys
import threading
import traceback
from typing import Any, Callable, Dict, Optional, Tuple

from penstock import _native
from penstock._errors import CheckpointError


class Pending:
    """A save in progress. ``wait()`` returns its result."""

    def __init__(self, work: "Callable[[Pending], str]", title: str):
        self.title = title
        self.saving: Any = None
        self._work = work
        self._result: Optional[str] = None
        self._error: Optional[BaseException] = None
        self._seen = False
        self._done = False
        # A lock that is released when the save has ended. Thread.join() is not enough: if a signal
        # handler raises an exception during join(), is_alive() may be False although the thread
        # still runs. An Event has an inner lock, on which a signal handler that waits here could
        # deadlock.
        self._gate = threading.Lock()
        self._gate.acquire()
        self._mutex = threading.Lock()
        self._running = self._abandoned = False
        # Not a daemon: the interpreter waits for the thread before it exits.
        self._thread = threading.Thread(target=self._run, name=f"penstock {title}", daemon=False)

    @classmethod
    def of_result(cls, title: str, path: str) -> "Pending":
        """Returns a save that has already succeeded."""
        pending = cls(lambda _: path, title)
        pending._run()
        return pending

    def begin(self) -> None:
        """Starts the thread; if that is impossible (at interpreter exit since Python 3.12), runs the save at once."""
        try:
            self._thread.start()
        except RuntimeError:
            self._run()

    def abandon(self) -> bool:
        """Returns True if the save has not started, and prevents it from starting."""
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
        except BaseException as error:  # noqa: B902  # raised by wait()
            self._error = error
        finally:
            self.saving = None
            del self._work
            self._done = True
            self._gate.release()

    def leave(self) -> None:
        """Ends the save in a forked child: its thread exists only in the parent."""
        if not self._done:
            self._seen, self._error = True, CheckpointError(f"{self.title}: this save runs only in the parent process")
            self._done, self._gate = True, threading.Lock()

    def done(self) -> bool:
        """Returns True if the save has succeeded or failed."""
        return self._done

    def _ends_within(self, timeout: Optional[float]) -> bool:
        if not self._done:
            if not self._gate.acquire(timeout=-1 if timeout is None else max(0.0, min(timeout, threading.TIMEOUT_MAX))):
                return False
            self._gate.release()
        return True

    def wait(self, timeout: Optional[float] = None) -> str:
        """Returns the path of the checkpoint when it is committed. Raises the error of the save, or TimeoutError after ``timeout`` seconds."""
        if not self._ends_within(timeout):
            raise TimeoutError(f"{self.title}: not done after {timeout} s")
        self._seen = True
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    def end(self) -> None:
        """Returns when the save has ended or can no longer start, so that its memory may be reused. Cancels the wait for other ranks."""
        while not self._done and not self.abandon():
            saving = self.saving
            if saving is not None:
                saving.cancel()
            self._ends_within(0.1)
        self._seen = True

    def unseen_error(self) -> Optional[BaseException]:
        return self._error if not self._seen and self._done else None


class Saver:
    """Serialises the saves of this process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.pending: Optional[Pending] = None
        self.saved: Dict[Tuple[str, int], str] = {}
        #: True while save() runs. If a caller holds the lock and finds True, it is a signal handler that interrupted save().
        self.preparing = False

    def settle(self) -> None:
        """Waits for the save in progress; raises the error of the save unless wait() has raised it before."""
        with self.lock:
            pending = self.pending
            if pending is None:
                return
            seen = pending._seen
            try:
                pending.wait()
            except BaseException as error:
                if error is not pending._error:  # raised by a signal handler during the wait
                    raise
                self.drop(pending)
                if not seen:
                    raise CheckpointError(f"{pending.title} failed: {error}") from error
            self.drop(pending)

    def drop(self, pending: Pending) -> None:
        """Forgets a save that has ended and whose error was reported."""
        if self.pending is pending:
            self.pending = None

    def start(self, pending: Pending) -> Pending:
        """Starts the save in the background."""
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
        """Resets the state in a forked child: the save continues only in the parent."""
        pending = self.pending
        self.__init__()  # type: ignore[misc]
        if pending is not None:
            pending.leave()


saver = Saver()
os.register_at_fork(after_in_child=saver.forget)


@atexit.register
def _print_unseen_error() -> None:
    pending = saver.pending
    error = pending.unseen_error() if pending is not None else None
    if pending is not None and error is not None:
        print(f"penstock: {pending.title} failed: {error}", file=sys.stderr)
        if not isinstance(error, CheckpointError):
            traceback.print_exception(type(error), error, error.__traceback__)


def commit_state(pending: Pending, place: Tuple[str, int], who: Tuple[int, int], metrics: Dict[bytes, float], timeout: float, prepared: Any) -> str:
    """Writes and commits a prepared state, on the thread of ``pending``."""
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

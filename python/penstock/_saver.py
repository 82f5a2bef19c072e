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
        # A lock that is free once it has ended. Thread.join() takes a thread for ended once a signal's exception has come out of
        # it; an Event has a lock that a signal's handler, which may wait here too, could find held by what it interrupted.
        self._done = False
        self._gate = threading.Lock()
        self._gate.acquire()
        self._mutex = threading.Lock()
        self._running = self._abandoned = False
        # Not a daemon: the interpreter waits for it before it ends.
        self._thread = threading.Thread(target=self._run, name=f"penstock {title}", daemon=False)

    @classmethod
    def of_result(cls, title: str, path: str) -> "Pending":
        """One that has ended well."""
        pending = cls(lambda _: path, title)
        pending._run()
        return pending

    def begin(self) -> None:
        """Runs it on its thread, or where there can be none (from Python 3.12 on at the interpreter's end) at once."""
        try:
            self._thread.start()
        except RuntimeError:
            self._run()

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
            self._done = True
            self._gate.release()

    def leave(self) -> None:
        """In a child of fork(): its thread is the parent's."""
        if not self._done:
            self._seen, self._error = True, CheckpointError(f"{self.title}: this goes on in the process that has forked this one, and only there")
            self._done, self._gate = True, threading.Lock()

    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return self._done

    def _ends_within(self, timeout: Optional[float]) -> bool:
        if not self._done:
            if not self._gate.acquire(timeout=-1 if timeout is None else max(0.0, min(timeout, threading.TIMEOUT_MAX))):
                return False
            self._gate.release()
        return True

    def wait(self, timeout: Optional[float] = None) -> str:
        """The path of the checkpoint, once it counts. Raises what went wrong, and TimeoutError after ``timeout`` seconds."""
        if not self._ends_within(timeout):
            raise TimeoutError(f"{self.title}: not done after {timeout} s")
        self._seen = True
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    def end(self) -> None:
        """Returns when it has ended, or never will begin: what it saves is its caller's. It waits for other ranks no more."""
        while not self._done and not self.abandon():
            saving = self.saving
            if saving is not None:
                saving.cancel()
            self._ends_within(0.1)
        self._seen = True

    def unseen_error(self) -> Optional[BaseException]:
        return self._error if not self._seen and self._done else None


class Saver:
    """The saves of this process, in their order."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.pending: Optional[Pending] = None
        self.saved: Dict[Tuple[str, int], str] = {}
        #: save() is at it. Whoever finds that with the lock held is a signal's handler in the middle of it.
        self.preparing = False

    def settle(self) -> None:
        """Waits for the save that is under way; an error that nobody has seen yet is raised, once."""
        with self.lock:
            pending = self.pending
            if pending is None:
                return
            seen = pending._seen
            try:
                pending.wait()
            except BaseException as error:
                if error is not pending._error:  # a signal's, which came out of the wait
                    raise
                self.drop(pending)
                if not seen:
                    raise CheckpointError(f"{pending.title} failed: {error}") from error
            self.drop(pending)

    def drop(self, pending: Pending) -> None:
        """It has ended, and whoever was to hear of it has."""
        if self.pending is pending:
            self.pending = None

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
        pending = self.pending
        self.__init__()  # type: ignore[misc]
        if pending is not None:
            pending.leave()


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

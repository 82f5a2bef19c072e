"""penstock.open(): objects of a store and web resources as files."""
import ctypes
import io
import os
import re
import socket
import threading
import warnings
from typing import IO, Any, Callable, Dict, Iterable, List, Optional, Tuple, TypeVar

from penstock import _native
from penstock._numbers import check_number

# Smaller reads of a file come from a buffer of this size; larger reads request exactly their bytes.
BUFFER = 64 << 10
AHEAD = 32 << 20
REMOTE = ("s3://", "gs://", "http://", "https://")
_PIPE = 1 << 20
_MODES = {"rb", "r", "rt", "wb", "w", "wt", "xb", "x", "xt"}

# endpoint_url, region, profile, key, secret, token, anonymous
Store = Tuple[Optional[str], Optional[str], Optional[str], Optional[str], Optional[str], Optional[str], bool]
_Result = TypeVar("_Result")

_HANDLES = 8
_VARIABLES = ("AWS_", "GOOGLE_", "GS_", "STORAGE_EMULATOR_HOST")

_transfers: Dict[Any, "_native.Transfer"] = {}
_lock = threading.Lock()


def transfer(store: Store) -> "_native.Transfer":
    """Returns the handle for a store, whose connections and threads are shared by all files.

    A child after fork() gets its own handle. A change of the environment variables for stores also
    leads to another handle.
    """
    place = (os.getpid(), store, tuple(pair for pair in os.environ.items() if pair[0].startswith(_VARIABLES)))
    with _lock:
        if place not in _transfers:
            while len(_transfers) >= _HANDLES:
                del _transfers[next(iter(_transfers))]
            _transfers[place] = _native.Transfer(*store)
        return _transfers[place]


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def shown(url: str) -> str:
    """Returns a URL for messages: without user, password and query, which may be secrets."""
    return re.sub(r"^(https?://)(?:[^/?#]*@)?([^?#]*).*", r"\1\2", url, flags=re.DOTALL)


def interruptible(call: Callable[["_native.Cancel"], _Result]) -> _Result:
    """Runs a call to libpenstock that may wait a long time, so that Ctrl-C ends the call."""
    cancel = _native.Cancel()
    ended: List[Any] = []

    def run() -> None:
        try:
            ended.append((call(cancel), None))
        except BaseException as error:
            ended.append((None, error))

    thread = threading.Thread(target=run, name="penstock", daemon=True)
    thread.start()
    try:
        thread.join()
    except BaseException:
        cancel.set()
        raise
    result, error = ended.pop()
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


# ---- reading ----


class _Raw(io.RawIOBase):
    """The bytes of one version of a file. A child after fork() opens the same version for itself."""

    def __init__(self, url: str, store: Store, ahead: int, known: Optional[Tuple[str, int]] = None) -> None:
        self.name, self.mode = url, "rb"
        self._store, self._ahead = store, ahead
        self._at = 0
        self._file: Optional["_native.File"] = None
        self._open(known)

    def _open(self, known: Optional[Tuple[str, int]]) -> "_native.File":
        version, size = known or (None, 0)
        file = transfer(self._store).open(self.name, self._ahead, version, size)
        self.version, self.size = file.version(), file.size()
        self._file, self._pid = file, os.getpid()
        return file

    def _native(self) -> "_native.File":
        if self._file is None:
            raise ValueError("I/O operation on closed file")
        return self._file if self._pid == os.getpid() else self._open((self.version, self.size))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence not in (io.SEEK_SET, io.SEEK_CUR, io.SEEK_END):
            raise ValueError(f"invalid whence {whence}: expected 0, 1 or 2")
        at = offset + (0, self._at, self.size)[whence]
        if at < 0:
            raise ValueError(f"negative seek position {at}")
        self._at = at
        return at

    def into(self, buffer: Any, at: int) -> int:
        view = memoryview(buffer).cast("B")
        if not len(view):
            return 0
        return self._native().read_into(at, ctypes.addressof(ctypes.c_char.from_buffer(view)), len(view))

    def readinto(self, buffer: Any) -> int:
        n = self.into(buffer, self._at)
        self._at += n
        return n

    def pread(self, size: int, at: int) -> bytes:
        return self._native().read(check_number("offset", at, 0), check_number("size", size, -1))

    def ranges(self, ranges: Iterable[Tuple[int, int]]) -> List[bytes]:
        checked = [(check_number("offset", at, 0), check_number("size", size, 0)) for at, size in ranges]
        return self._native().ranges(checked)

    def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            file.close()
        super().close()


class File(io.BufferedIOBase):
    """A file of ``penstock.open()`` for reading, as an ``io.BufferedReader``, with ``size``, ``version``, ``pread()`` and ``read_ranges()``.

    Sequential reads are read ahead in the background; other reads of 64 KiB or more request exactly their bytes. All bytes are of the
    version that was opened, else FileChanged is raised. Waiting does not hold Python's lock, and Ctrl-C ends it. Any number of threads may
    call ``pread()`` and ``read_ranges()``; all other reads are for one thread at a time. A child after fork() may use the file, and a
    pickled file is opened again at the same version and position.
    """

    # Not a subclass of io.BufferedReader: NumPy up to 1.24 reads from the descriptor of such files, and there is no descriptor.
    def __init__(self, raw: _Raw) -> None:
        self._source = raw
        self._buffered = io.BufferedReader(raw, BUFFER)
        self.name, self.mode = raw.name, raw.mode

    def readable(self) -> bool:
        return self._buffered.readable()

    def seekable(self) -> bool:
        return self._buffered.seekable()

    def tell(self) -> int:
        return self._buffered.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._buffered.seek(offset, whence)

    @property
    def raw(self) -> io.RawIOBase:  # type: ignore[override]
        return self._source

    @property
    def closed(self) -> bool:
        return self._buffered.closed

    def close(self) -> None:
        self._buffered.close()

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._source.size

    @property
    def version(self) -> str:
        """The ETag, else the Last-Modified time; for a local file, the modification time."""
        return self._source.version

    def pread(self, size: int, offset: int) -> bytes:
        """Reads at an offset, as ``os.pread()``; does not move the position. A ``size`` of -1 reads to the end."""
        return self._source.pread(size, offset)

    def read_ranges(self, ranges: Iterable[Tuple[int, int]]) -> List[bytes]:
        """Reads many ranges (offset, size), which must lie within the file, at the same time."""
        return self._source.ranges(ranges)

    def read(self, size: Optional[int] = -1) -> bytes:
        if size is not None and 0 <= size < BUFFER:
            return self._buffered.read(size)
        at = self.tell()
        data = self._source.pread(-1 if size is None else size, at)
        self.seek(at + len(data))
        return data

    def peek(self, size: int = 0) -> bytes:
        return self._buffered.peek(size)

    def read1(self, size: int = -1) -> bytes:
        return self._buffered.read1(size)

    def readline(self, size: Optional[int] = -1) -> bytes:  # type: ignore[override]
        return self._buffered.readline(size)

    def readinto(self, buffer: Any) -> int:
        if memoryview(buffer).nbytes < BUFFER:
            return self._buffered.readinto(buffer)
        at = self.tell()
        n = self._source.into(buffer, at)
        self.seek(at + n)
        return n

    def __reduce__(self) -> Any:
        raw = self._source
        return _reopen, (raw.name, raw._store, raw._ahead, (raw.version, raw.size), self.tell())


def _reopen(url: str, store: Store, ahead: int, known: Tuple[str, int], at: int) -> File:
    file = File(_Raw(url, store, ahead, known))
    file.seek(at)
    return file


# ---- writing ----


class _Upload(io.RawIOBase):
    """Passes written bytes to an upload in a thread. The object appears when the upload is closed, and never after abort()."""

    def __init__(self, url: str, store: Store, create: bool) -> None:
        self.name, self.mode = url, "xb" if create else "wb"
        # Not a pipe: the reader would see the end only after all forked children have closed their
        # copies of the writing end. shutdown() ends a socket even if copies of it are open.
        self._socket, other = socket.socketpair()
        self._socket.settimeout(None)  # not the timeout of socket.setdefaulttimeout()
        other.settimeout(None)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _PIPE)
        self._cancel = _native.Cancel()
        self._pid = os.getpid()
        self._error: Optional[BaseException] = None
        self._thread = threading.Thread(target=self._run, args=(transfer(store), other, create), name="penstock", daemon=True)
        self._thread.start()

    def _run(self, handle: "_native.Transfer", other: socket.socket, create: bool) -> None:
        try:
            handle.put(self.name, other.fileno(), create, self._cancel)
        except BaseException as error:
            self._error = error
        finally:
            try:
                other.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            other.close()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self.is_inherited():
            raise ValueError(f"cannot write '{shown(self.name)}': only the process that opened it can")
        try:
            return self._socket.send(data)
        except OSError:
            self._thread.join()
            if self._error is None:
                raise
            raise self._error from None

    def is_inherited(self) -> bool:
        """Returns True in a child after fork(): the upload belongs to its parent."""
        return self._pid != os.getpid()

    def _end(self) -> None:
        if self.is_inherited():
            self._socket.close()
            return
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the upload has failed
        try:
            self._thread.join()
        except BaseException:
            self._cancel.set()
            raise
        finally:
            self._socket.close()

    def abort(self) -> None:
        if not self.closed:
            self._cancel.set()
            self._end()
            super().close()

    def close(self) -> None:
        if self.closed:
            return
        try:
            self._end()
        finally:
            super().close()
        if self._error is not None:
            raise self._error


class Writer(io.BufferedWriter):
    """A file of ``penstock.open()`` for writing. The object appears whole when the file is closed.

    No object appears after an exception in its ``with`` block, after ``abort()``, or if the file is never closed. Closing the file in a
    child after fork() has no effect.
    """

    def __init__(self, raw: _Upload) -> None:
        super().__init__(raw, _PIPE)
        self._upload = raw

    def abort(self) -> None:
        """Aborts the upload; no object appears."""
        self._upload.abort()

    def close(self) -> None:
        if self.closed:
            return
        if self.is_inherited():
            self._upload.close()
            return
        try:
            self.flush()
        except BaseException:
            self.abort()
            raise
        super().close()

    def is_inherited(self) -> bool:
        return self._upload.is_inherited()

    @property
    def closed(self) -> bool:
        return self._upload.closed

    def __exit__(self, kind: Any, *rest: Any) -> None:
        if kind is not None:
            self.abort()
        self.close()

    def __del__(self) -> None:
        if not self.closed and not self.is_inherited():
            warnings.warn(f"'{self._upload.name}' was not closed: nothing is written", ResourceWarning, stacklevel=2)
            self.abort()


class _Text(io.TextIOWrapper):
    """The text layer of a Writer; closes or aborts the Writer, too."""

    def close(self) -> None:
        if self.closed:
            return
        if self.buffer.is_inherited():  # type: ignore[attr-defined]
            self.buffer.close()
            return
        try:
            self.flush()
        except BaseException:
            self.buffer.abort()  # type: ignore[attr-defined]
            raise
        super().close()

    def __exit__(self, kind: Any, *rest: Any) -> None:
        if kind is not None:
            self.buffer.abort()  # type: ignore[attr-defined]
        self.close()

    def __del__(self) -> None:
        pass  # the Writer aborts itself


# ---- open ----


def open(  # noqa: A001
    url: Any,
    mode: str = "rb",
    *,
    ahead: int = AHEAD,
    encoding: Optional[str] = None,
    errors: Optional[str] = None,
    newline: Optional[str] = None,
    endpoint_url: Optional[str] = None,
    region: Optional[str] = None,
    profile: Optional[str] = None,
    anonymous: bool = False,
) -> IO[Any]:
    """Opens ``s3://BUCKET/KEY``, ``gs://BUCKET/KEY``, ``http(s)://…`` or a path: a File for reading, a Writer for writing.

    ``mode`` is "rb", "r" (text), "wb" or "w", and "xb" or "x", which raise FileExistsError if the object exists; HTTP is read only.
    Text is UTF-8 unless ``encoding`` is given. Sequential reads are read ahead, at most ``ahead`` bytes; 0 turns reading ahead off. Keys,
    region and endpoint come from the environment and the profile, as for ``penstock cp``, unless they are given.

    Raises FileNotFoundError, PermissionError, FileChanged, and FileError, which is an OSError, for everything else.
    """
    url = os.fspath(url)
    if mode not in _MODES:
        raise ValueError(f"invalid mode {mode!r}: expected 'rb', 'r', 'wb', 'w', 'xb' or 'x'")
    if not 0 <= ahead < 1 << 62:
        raise ValueError(f"invalid ahead {ahead}: expected 0 or more")
    text = "b" not in mode
    if not text and (encoding, errors, newline) != (None, None, None):
        raise ValueError("encoding, errors and newline are for text; use mode 'r' or 'w'")
    return open_with(url, mode, (endpoint_url, region, profile, None, None, None, anonymous), ahead, (encoding or "utf-8", errors, newline))


def open_with(url: str, mode: str, store: Store, ahead: int = AHEAD, text: Tuple[str, Optional[str], Optional[str]] = ("utf-8", None, None)) -> IO[Any]:
    """Opens a file of a store with given keys."""
    encoding, errors, newline = text
    file: Any
    if mode[0] == "r":
        file = File(_Raw(url, store, ahead))
        return file if mode == "rb" else io.TextIOWrapper(file, encoding, errors, newline)
    if not url.startswith(REMOTE):
        return io.open(url, mode) if "b" in mode else io.open(url, mode, encoding=encoding, errors=errors, newline=newline)
    if url.startswith(("http://", "https://")):
        raise io.UnsupportedOperation(f"cannot write '{shown(url)}': HTTP is read only")
    file = Writer(_Upload(url, store, mode[0] == "x"))
    return file if "b" in mode else _Text(file, encoding, errors, newline)

"""Object storage for everything that reads through fsspec: pandas, pyarrow, Dask, Hugging Face datasets.

    import pandas

    frame = pandas.read_parquet("penstock://data/train.parquet")

Paths are ``penstock://BUCKET/KEY``. ``register("s3")`` also makes penstock the file system of ``s3://`` in this process, in place of s3fs.

``storage_options`` are ``endpoint_url``, ``region``, ``profile``, ``key``, ``secret``, ``token``, ``anon`` and ``ahead``; options that are
not given come from the environment and the profile, as for ``penstock cp``. Nothing is cached: each listing is a request to the store.
"""
import datetime
import queue
import threading
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from fsspec import register_implementation
from fsspec.core import get_compression
from fsspec.spec import AbstractFileSystem

from penstock import _native
from penstock._errors import FileMissing
from penstock._files import AHEAD, Store, interruptible, open_with, transfer

__all__ = ["FileSystem", "GoogleFileSystem", "register"]

_THREADS = 16  # for calls on several objects
# Options that fsspec itself has for every file system.
_OPTIONS = {"asynchronous", "batch_size", "listings_expiry_time", "loop", "max_paths", "skip_instance_cache", "use_listings_cache"}


def _run(calls: List[Callable[[], Any]]) -> List[Any]:
    """Returns the result of each call, or its exception. Ctrl-C ends the wait for the calls."""
    results: List[Any] = [None] * len(calls)
    left: "queue.SimpleQueue[int]" = queue.SimpleQueue()

    def work() -> None:
        while True:
            try:
                i = left.get_nowait()
                results[i] = calls[i]()
            except queue.Empty:
                return
            except Exception as error:
                results[i] = error

    for i in range(len(calls)):
        left.put(i)
    threads = [threading.Thread(target=work, name="penstock", daemon=True) for _ in range(min(len(calls), _THREADS))]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    finally:
        try:
            while True:
                left.get_nowait()
        except queue.Empty:
            pass
    return results


def _raise_first(results: List[Any]) -> None:
    for result in results:
        if isinstance(result, Exception):
            raise result


def _store(
    endpoint_url: Optional[str] = None, region: Optional[str] = None, profile: Optional[str] = None, key: Optional[str] = None,
    secret: Optional[str] = None, token: Optional[str] = None, anon: bool = False, client_kwargs: Optional[Dict[str, Any]] = None, **other: Any,
) -> Store:  # fmt: skip
    """Returns the store that the options select. Like s3fs, takes some options from ``client_kwargs``."""
    client = dict(client_kwargs or {})
    place = endpoint_url or client.pop("endpoint_url", None), region or client.pop("region_name", None)
    unknown = [*other, *(f"client_kwargs[{name!r}]" for name in client if name not in ("endpoint_url", "region_name"))]
    if unknown:
        raise TypeError(f"unknown options {', '.join(unknown)}; expected endpoint_url, region, profile, key, secret, token, anon or ahead")
    return (*place, profile, key, secret, token, anon)


class FileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Objects of S3 and compatible stores. Paths are ``BUCKET/KEY``.

    An object appears whole when its file is closed. An exception in ``with fs.open(…)`` leaves the store unchanged; in
    ``with fsspec.open(…)``, which does not pass on the exception, the part that was written becomes the object.
    """

    protocol: Union[str, Tuple[str, ...]] = ("penstock", "s3", "s3a")
    root_marker = ""
    scheme = "s3"

    def __init__(self, ahead: int = AHEAD, **options: Any) -> None:
        super().__init__(**options)
        self._store = _store(**{name: value for name, value in options.items() if name not in _OPTIONS})
        self._ahead = ahead

    def _url(self, path: str) -> str:
        return f"{self.scheme}://{self._strip_protocol(path)}"

    def _file(self, path: str) -> Any:
        """Opens a file that is read in ranges."""
        return open_with(self._url(path), "rb", self._store, 0)

    # ---- names ----

    @staticmethod
    def _entry(path: str, object: Tuple[str, int, Optional[str], int, bool]) -> Dict[str, Any]:
        _, size, etag, modified_ns, is_prefix = object
        if is_prefix:
            return {"name": path, "size": 0, "type": "directory"}
        modified = datetime.datetime.fromtimestamp(modified_ns // 10**9, datetime.timezone.utc)
        return {"name": path, "size": size, "type": "file", "ETag": etag, "LastModified": modified}

    def _list(self, prefix: str, delimiter: Optional[str], most: int = 0) -> List[Dict[str, Any]]:
        bucket, _, _ = prefix.partition("/")
        if not bucket:
            raise NotImplementedError("buckets cannot be listed; name one")
        found = interruptible(lambda cancel: transfer(self._store).list(f"{self.scheme}://{prefix}", delimiter, cancel, most))
        return [self._entry(f"{bucket}/{object[0]}".rstrip("/") if object[4] else f"{bucket}/{object[0]}", object) for object in found]

    def _is_prefix(self, path: str) -> bool:
        return bool(self._list(f"{path}/", None, 1))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> List[Any]:
        path = self._strip_protocol(path)
        found = self._list(f"{path}/", "/")
        # A key that ends in "/" marks a directory.
        entries = [entry for entry in found if entry["name"] != f"{path}/"]
        if not found:
            info = self.info(path)
            entries = [info] if info["type"] == "file" else []
        return entries if detail else [entry["name"] for entry in entries]

    def info(self, path: str, **kwargs: Any) -> Dict[str, Any]:
        path = self._strip_protocol(path)
        bucket, _, key = path.partition("/")
        if key:
            try:
                return self._entry(path, interruptible(lambda cancel: transfer(self._store).head(f"{self.scheme}://{path}")))
            except FileMissing:
                pass
        if not self._is_prefix(path) and key:
            raise FileNotFoundError(path)
        return {"name": path, "size": 0, "type": "directory"}

    def exists(self, path: str, **kwargs: Any) -> bool:
        try:
            self.info(path)
            return True
        except FileNotFoundError:
            return False

    def find(self, path: str, maxdepth: Optional[int] = None, withdirs: bool = False, detail: bool = False, **kwargs: Any) -> Any:
        if maxdepth is not None or withdirs:
            return super().find(path, maxdepth=maxdepth, withdirs=withdirs, detail=detail, **kwargs)
        path = self._strip_protocol(path)
        prefix = kwargs.get("prefix", "")
        found = {entry["name"]: entry for entry in self._list(f"{path}/{prefix}", None) if not entry["name"].endswith("/")}
        if not found and not prefix and "/" in path and self.isfile(path):
            found = {path: self.info(path)}
        return {name: found[name] for name in sorted(found)} if detail else sorted(found)

    def modified(self, path: str) -> datetime.datetime:
        modified: datetime.datetime = self.info(path)["LastModified"]
        return modified

    def ukey(self, path: str) -> str:
        return str(self.info(path)["ETag"])

    checksum = ukey

    # ---- bytes ----

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, autocommit: bool = True, cache_options: Any = None, **kwargs: Any) -> Any:
        if not autocommit:
            raise NotImplementedError("transactions are not supported: an object appears whole when its file is closed")
        if mode not in ("rb", "wb", "xb"):
            raise ValueError(f"invalid mode {mode!r}: an object is replaced as a whole; expected 'rb', 'wb' or 'xb'")
        return open_with(self._url(path), mode, self._store, kwargs.get("ahead", self._ahead))

    def open(self, path: str, mode: str = "rb", block_size: Any = None, cache_options: Any = None, compression: Optional[str] = None, **kwargs: Any) -> Any:
        packing = get_compression(path, compression)
        # The compressing wrapper does not pass on exceptions, so a part of the object would be stored.
        if packing and "r" not in mode:
            raise NotImplementedError("cannot write compressed data with this function; use fsspec.open(…, compression=…)")
        if "b" in mode or packing:
            return super().open(path, mode, block_size, cache_options, packing, **kwargs)
        text = kwargs.get("encoding") or "utf-8", kwargs.get("errors"), kwargs.get("newline")
        return open_with(self._url(path), mode, self._store, kwargs.get("ahead", self._ahead), text)

    def cat_file(self, path: str, start: Optional[int] = None, end: Optional[int] = None, **kwargs: Any) -> bytes:
        with self._file(path) as file:
            offset, size = _range(start, end, file.size)
            return bytes(file.pread(size, offset))

    def cat_ranges(
        self, paths: List[str], starts: Any, ends: Any, max_gap: Optional[int] = None, on_error: str = "return", **kwargs: Any
    ) -> List[Any]:
        """Returns the bytes of each range, or its exception. All ranges of a file are read together, and several files at a time."""
        n = len(paths)
        starts, ends = (list(given) if isinstance(given, (list, tuple)) else [given] * n for given in (starts, ends))
        if not len(starts) == len(ends) == n:
            raise ValueError(f"{n} paths have {len(starts)} starts and {len(ends)} ends")
        wanted: Dict[str, List[int]] = {}
        for i, path in enumerate(paths):
            wanted.setdefault(self._strip_protocol(path), []).append(i)

        def read(path: str) -> List[bytes]:
            with self._file(path) as file:
                ranges = [_range(starts[i], ends[i], file.size) for i in wanted[path]]
                return list(file.read_ranges(ranges))

        result: List[Any] = [None] * n
        for path, data in zip(wanted, _run([lambda path=path: read(path) for path in wanted])):  # type: ignore[misc]
            for at, i in enumerate(wanted[path]):
                result[i] = data if isinstance(data, Exception) else data[at]
        if on_error == "raise":
            _raise_first(result)
        return result

    def cat(self, path: Any, recursive: bool = False, on_error: str = "raise", **kwargs: Any) -> Any:
        paths = self.expand_path(path, recursive=recursive)
        if isinstance(path, str) and paths == [self._strip_protocol(path)] and not (recursive and self.isdir(path)):
            return self.cat_file(paths[0], **kwargs)
        if recursive:
            paths = sorted({file for each in ([path] if isinstance(path, str) else path) for file in self.find(each)})
        data = dict(zip(paths, self.cat_ranges(paths, kwargs.get("start"), kwargs.get("end"), on_error="raise" if on_error == "raise" else "return")))
        return {name: content for name, content in data.items() if on_error != "omit" or not isinstance(content, Exception)}

    def rm_file(self, path: str) -> None:
        interruptible(lambda cancel: transfer(self._store).delete(self._url(path)))

    _rm = rm_file

    def rm(self, path: Any, recursive: bool = False, maxdepth: Optional[int] = None) -> None:
        names = self.expand_path(path, recursive=recursive, maxdepth=maxdepth)
        if recursive and maxdepth is None:
            below = [entry["name"] for each in self.expand_path(path) for entry in self._list(f"{each}/", None)]
            names = sorted({*below, *self.expand_path(path)})
        _raise_first(_run([lambda name=name: transfer(self._store).delete(f"{self.scheme}://{name}") for name in names if "/" in name]))  # type: ignore[misc]

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        interruptible(lambda cancel: transfer(self._store).copy(self._url(path1), self._url(path2), cancel))

    # Directories are only prefixes of names.

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        pass

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        pass

    def rmdir(self, path: str) -> None:
        pass


class GoogleFileSystem(FileSystem):
    """Objects of Google Cloud Storage."""

    protocol = ("gs", "gcs")
    scheme = "gs"


def _range(start: Optional[int], end: Optional[int], size: int) -> Tuple[int, int]:
    """Returns (offset, size) of a slice."""
    first, last, _ = slice(start, end).indices(size)
    return first, max(0, last - first)


def register(*protocols: str) -> None:
    """Makes fsspec open these protocols with penstock in this process: "s3", "s3a", "gs", "gcs"; all of them if none is given."""
    known = {protocol: kind for kind in (FileSystem, GoogleFileSystem) for protocol in kind.protocol}
    for protocol in protocols or known:
        if protocol not in known:
            raise ValueError(f"unknown protocol {protocol!r}; expected one of {', '.join(known)}")
        register_implementation(protocol, known[protocol], clobber=True)

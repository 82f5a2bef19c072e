"""Storage for torch.distributed.checkpoint, whose files are committed like other penstock checkpoints.

    import torch.distributed.checkpoint as dcp
    from penstock import dcp as storage

    dcp.save(state_dict, storage_writer=storage.Writer(step))
    dcp.load(state_dict, storage_reader=storage.Reader())

With torch 1.13 and 2.0 use ``save_state_dict`` and ``load_state_dict``. torch's FileSystemWriter writes the files, so torch's
FileSystemReader also reads them. In addition, a checkpoint is committed only when all ranks have written and synced their part,
it is verified before it is read, and ``penstock run`` uploads and restores it. The number of ranks that load a checkpoint may
differ from the number that saved it.
"""
import dataclasses
import enum
import importlib
import os
import pickle
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Union

import torch  # noqa: F401  # fails first, with a clear message, if torch is missing

from penstock import _native
from penstock._errors import CheckpointError
from penstock._ranks import group, ranks
from penstock._saver import Pending, saver
from penstock._torchfile import RestrictedUnpickler
from penstock.checkpoint import Checkpoint, PathLike, _checkpoint, _directory, _metrics, _step, _timeout, latest


def _import_storage() -> Any:
    """Imports the module with torch's own storage."""
    try:
        return importlib.import_module("torch.distributed.checkpoint")
    except ModuleNotFoundError:
        pass
    # Before torch 2.0 the module had another name, and a field of a dataclass had a default value that Python 3.11 accepts only
    # if the class of the value is hashable. Debian 12 has torch 1.13 and Python 3.11.
    plain = dataclasses.dataclass

    def hashable(cls: Any = None, **options: Any) -> Any:
        return plain(cls, **options) if cls is None else plain(cls, unsafe_hash="__hash__" not in vars(cls), **options)

    dataclasses.dataclass = hashable  # type: ignore[assignment]
    try:
        return importlib.import_module("torch.distributed._shard.checkpoint")
    finally:
        dataclasses.dataclass = plain


_storage = _import_storage()

__all__ = ["Reader", "Writer"]


class Writer(_storage.FileSystemWriter):  # type: ignore[misc]
    """Saves one checkpoint; create a new Writer for each.

    step, metrics, dir, timeout
        As in ``penstock.checkpoint.save()``.
    options
        Options of torch's FileSystemWriter: ``single_file_per_rank``, ``sync_files``, and the options of later versions.

    All ranks of the default process group take part, and rank 0 is the coordinator. When ``save`` returns on rank 0, the
    checkpoint is committed. The other ranks return when their part is on disk; ``penstock.checkpoint.wait()`` and their next
    save raise an error if the commit failed. ``path`` is the checkpoint's directory.
    """

    def __init__(
        self, step: int, *, metrics: Optional[Mapping[str, float]] = None, dir: Optional[PathLike] = None, timeout: float = 600.0, **options: Any,
    ):  # fmt: skip
        self._place = (_directory(dir), _step(step))
        self._chosen: Dict[bytes, float] = _metrics(metrics)
        self._timeout = _timeout(timeout)
        self._saving: Any = None
        options.setdefault("single_file_per_rank", True)
        super().__init__(self._place[0], **options)

    # torch 1.13 and 2.0 call init(), later versions call reset() and set_up_storage_writer().
    def init(self, is_coordinator: bool) -> None:
        self._begin(is_coordinator)

    def reset(self, checkpoint_id: Any = None) -> None:
        if checkpoint_id is not None:
            raise ValueError("checkpoint_id is not supported: penstock names checkpoints itself")
        super().reset(None)

    def set_up_storage_writer(self, is_coordinator: bool, *arguments: Any, **options: Any) -> None:
        super().set_up_storage_writer(is_coordinator, *arguments, **options)
        self._begin(is_coordinator)

    def _begin(self, is_coordinator: bool) -> None:
        rank, world = ranks() if group() is not None else (0, 1)
        if is_coordinator != (rank == 0):
            raise ValueError(f"rank {rank} is {'' if is_coordinator else 'not '}the coordinator; the coordinator must be rank 0 of the default process group")
        saver.settle()
        if self._saving is not None:
            raise ValueError("this Writer has already saved a checkpoint; create a new one")
        self._rank = rank
        self._saving = _native.Saving(os.fsencode(self._place[0]), self._place[1], rank, world, self._chosen, self._timeout)
        self.path = Path(self._saving.path())

    def storage_meta(self) -> Any:
        """Stores the path as text: Python before 3.13 cannot unpickle paths that Python 3.13 has
        pickled."""
        meta = super().storage_meta()
        if meta is not None:
            meta.checkpoint_id = str(self.path)
        return meta

    def write_data(self, plan: Any, planner: Any) -> Any:
        try:
            written = super().write_data(plan, planner)
            for name in sorted({result.storage_data.relative_path for result in written.wait()}):
                self._saving.add(name)
        except BaseException:
            self._saving.give_up()
            raise
        if self._rank > 0:
            saving = self._saving

            def commit(pending: Pending) -> str:
                pending.saving = saving
                path: str = saving.path()
                saving.commit()
                return path

            saver.start(Pending(commit, f"saving step {self._place[1]} in {self._place[0]}"))
        return written

    def finish(self, metadata: Any, results: List[List[Any]]) -> None:
        try:
            super().finish(metadata, results)
            self._saving.add(".metadata")
            self._saving.commit()
        except BaseException:
            self._saving.give_up()
            raise


class Reader(_storage.FileSystemReader):  # type: ignore[misc]
    """Reads a checkpoint saved by ``Writer``.

    which
        A ``Checkpoint`` or its path, verified before it is read; default the newest complete one, chosen by rank 0 for all.
    dir
        As in ``penstock.checkpoint.latest()``.

    Raises CheckpointError (code "not found") if there is no checkpoint. ``checkpoint`` is the checkpoint being read.
    """

    def __init__(self, which: Union[None, PathLike, Checkpoint] = None, *, dir: Optional[PathLike] = None, **options: Any):
        found: Optional[Checkpoint]
        if which is None:
            found = latest(dir)
        else:
            path = which.path if isinstance(which, Checkpoint) else os.fspath(which)
            found = _checkpoint(_native.open(os.fsencode(os.path.abspath(path)), True))
        if found is None:
            error = CheckpointError(f"cannot find a checkpoint in '{_directory(dir)}'")
            error.code = "not found"
            raise error
        if ".metadata" not in [file.name for file in found.files]:
            raise CheckpointError(f"cannot read '{found.path}': not saved by penstock.dcp; use penstock.checkpoint.load()")
        self.checkpoint = found
        super().__init__(found.path, **options)

    def read_metadata(self, *arguments: Any, **options: Any) -> Any:
        path = os.path.join(self.checkpoint.path, ".metadata")
        with open(path, "rb") as file:
            try:
                _MetadataUnpickler(file).load()
            except pickle.UnpicklingError as error:
                raise CheckpointError(f"{path}: {error}") from error
        return super().read_metadata(*arguments, **options)


class _MetadataUnpickler(RestrictedUnpickler):
    """Also allows the types of torch's metadata, which describes tensors and their places in files."""

    _NAMES = {
        "metadata": {
            "BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta", "TensorProperties",
            "TensorStorageMetadata", "_MEM_FORMAT_ENCODING", "MEM_FORMAT_ENCODING", "ShardMetadata", "ShardedTensorMetadata",
        },
        "filesystem": {"_StorageInfo"},
    }  # fmt: skip
    _PATHS = {(module, kind) for module in ("pathlib", "pathlib._local") for kind in ("Path", "PosixPath")}
    _PACKAGES = ("torch.distributed.checkpoint", "torch.distributed._shard.checkpoint", "torch.distributed._shard.sharded_tensor", "torch.distributed._shard")

    def find_class(self, module: str, name: str) -> Any:
        # Python 3.11 pickles a member of an enumeration as a call of getattr().
        return _member if (module, name) == ("builtins", "getattr") else super().find_class(module, name)

    def is_allowed(self, module: str, name: str) -> bool:
        package, _, last = module.rpartition(".")
        known = package in self._PACKAGES and name in self._NAMES.get(last, ())
        return known or (module, name) in self._PATHS or super().is_allowed(module, name)


def _member(kind: Any, name: str) -> Any:
    if not isinstance(kind, enum.EnumMeta):
        raise pickle.UnpicklingError(f"refused to get {name!r} of {kind!r}")
    return kind[name]

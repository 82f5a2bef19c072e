"""Errors of checkpoints, data sets and files. Each message is one line: the failure, its place and a hint."""
from typing import Any, Dict


def _made(kinds: Dict[str, Any], other: Any, code: str, message: bytes) -> Any:
    made = kinds.get(code, other)(message.decode("utf-8", "replace"))
    made.code = code
    return made


class CheckpointError(RuntimeError):
    """A checkpoint could not be saved or read. ``code`` is libpenstock's short name of the error, such as "no space"."""

    code: str = ""


class CheckpointDamaged(CheckpointError):
    """Data of a checkpoint is missing or differs from the committed data."""


class CheckpointExists(CheckpointError):
    """This attempt has already committed this step."""


class CheckpointTimeout(CheckpointError):
    """Other ranks did not finish their part in time. On rank 0 the message names the missing ranks."""


_KINDS = {"corrupt": CheckpointDamaged, "exists": CheckpointExists, "timeout": CheckpointTimeout}


def error(code: str, message: bytes) -> CheckpointError:
    """Returns the exception for a libpenstock error; called by the extension module."""
    made: CheckpointError = _made(_KINDS, CheckpointError, code, message)
    return made


class DatasetError(RuntimeError):
    """A data set could not be opened or read. ``code`` is libpenstock's short name of the error, such as "not found"."""

    code: str = ""


class DatasetDamaged(DatasetError):
    """Bytes of a data set are missing or differ from their checksum; the message has the shard and the offset."""

    code = "corrupt"


class DatasetChanged(DatasetError):
    """A shard was replaced or truncated after the data set was opened."""

    code = "changed"


_DATA_KINDS = {"corrupt": DatasetDamaged, "changed": DatasetChanged}


def data_error(code: str, message: bytes) -> DatasetError:
    """Returns the exception for an error of a data set; called by the extension module."""
    made: DatasetError = _made(_DATA_KINDS, DatasetError, code, message)
    return made


class FileError(OSError):
    """An object could not be opened, read or written. ``code`` is libpenstock's short name of the error, such as "unavailable"."""

    code: str = ""


class FileChanged(FileError):
    """The object was replaced after it was opened."""


class FileMissing(FileError, FileNotFoundError):
    """There is no such object."""


class FileRefused(FileError, PermissionError):
    """The store refused the request."""


class FileThere(FileError, FileExistsError):
    """The object exists."""


_FILE_KINDS = {
    "changed": FileChanged, "not found": FileMissing, "permission denied": FileRefused, "exists": FileThere, "precondition failed": FileThere,
}  # fmt: skip


def file_error(code: str, message: bytes) -> FileError:
    """Returns the exception for an error of a file; called by the extension module."""
    made: FileError = _made(_FILE_KINDS, FileError, code, message)
    return made

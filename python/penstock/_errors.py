"""What goes wrong with checkpoints. Messages are one line: what, where, what to do."""


class CheckpointError(RuntimeError):
    """A checkpoint could not be saved or read. ``code`` is libpenstock's short name of the reason, such as "no space"."""

    code: str = ""


class CheckpointDamaged(CheckpointError):
    """Bytes of a checkpoint are not those that were committed, or are missing."""


class CheckpointExists(CheckpointError):
    """This step was committed by this attempt already."""


class CheckpointTimeout(CheckpointError):
    """Other ranks did not finish their part in time; the message names them."""


_KINDS = {"corrupt": CheckpointDamaged, "exists": CheckpointExists, "timeout": CheckpointTimeout}


def error(code: str, message: bytes) -> CheckpointError:
    """The exception for an error of libpenstock; called by the extension module."""
    raised = _KINDS.get(code, CheckpointError)(message.decode("utf-8", "replace"))
    raised.code = code
    return raised

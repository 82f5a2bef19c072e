"""penstock for Python: atomic checkpoints, preemption notices, and object storage for training code.

    from penstock import checkpoint

    saved = checkpoint.load()                       # None on the first start
    for step in range(saved["step"] if saved else 0, steps):
        train(step)
        stop = checkpoint.should_stop()             # cheap enough for every batch
        if stop or (step + 1) % 500 == 0:
            checkpoint.save({"step": step + 1, "model": model.state_dict()}, step + 1, asynchronous=not stop)
        if stop:
            raise SystemExit(0)
    checkpoint.done()

``penstock.open("s3://bucket/key")`` opens an object as a file. ``penstock.data`` reads data sets, ``penstock.fsspec`` is for programs
that read through fsspec, ``penstock.dcp`` contains the storage for ``torch.distributed.checkpoint``. Importing the package imports
neither torch nor numpy.
"""
import os
import sys

# TensorFlow makes all libraries that are loaded after it call its BoringSSL instead of OpenSSL, which crashes them.
_flags = sys.getdlopenflags()
if "tensorflow" in sys.modules:
    sys.setdlopenflags(_flags | os.RTLD_DEEPBIND)
try:
    from penstock import _native
finally:
    sys.setdlopenflags(_flags)

from penstock import checkpoint
from penstock._errors import CheckpointDamaged, CheckpointError, CheckpointExists, CheckpointTimeout, FileChanged, FileError
from penstock._files import open

__version__: str = _native.version()
__all__ = [
    "CheckpointDamaged", "CheckpointError", "CheckpointExists", "CheckpointTimeout", "FileChanged", "FileError", "__version__", "checkpoint", "open",
]  # fmt: skip

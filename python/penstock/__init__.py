"""penstock for Python: atomic checkpoints, preemption notices, and samples from object storage for a training.

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

Importing the package imports neither torch nor numpy. ``penstock.data`` reads data sets, ``penstock.dcp`` contains the storage for
``torch.distributed.checkpoint``.
"""
from penstock import _native, checkpoint
from penstock._errors import CheckpointDamaged, CheckpointError, CheckpointExists, CheckpointTimeout

__version__: str = _native.version()
__all__ = ["CheckpointDamaged", "CheckpointError", "CheckpointExists", "CheckpointTimeout", "__version__", "checkpoint"]

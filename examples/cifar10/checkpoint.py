"""Checkpoints: the complete state of a training, written whole or not at all."""
import hashlib
import os
import random

import numpy as np
import torch

FORMAT = 1


class CheckpointError(Exception):
    """The file is not a checkpoint, or not one of this training."""


def random_state():
    state = {"torch": torch.get_rng_state(), "numpy": np.random.get_state(), "python": random.getstate()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def restore_random_state(state):
    torch.set_rng_state(state["torch"])
    np.random.set_state(state["numpy"])
    random.setstate(state["python"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])


def save(path, content):
    """Writes a temporary file next to `path`, syncs and renames it: a reader or a crash sees the old or the new file."""
    path = os.path.abspath(path)
    temporary = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.tmp")
    try:
        with open(temporary, "wb") as file:
            torch.save({"format": FORMAT, **content}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    directory = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def load(path):
    try:
        content = torch.load(path, map_location="cpu")
    except Exception as error:  # torch.load raises many types for a damaged file
        raise CheckpointError(f"{path}: not a readable checkpoint: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(f"{path}: not a checkpoint of this trainer (format {FORMAT})")
    return content


def weights_digest(model):
    """SHA-256 over the model's tensors. The bytes of a file also depend on the pickling."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()

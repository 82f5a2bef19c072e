#!/usr/bin/python3
"""Fine-tunes ResNet-50 on folders of pictures, on machines that may be taken away at any moment.

    resnet50.py --dataset DIR [--weights resnet50.pth]

The program uses four of penstock's environment variables, and needs none of them: PENSTOCK_CHECKPOINT_DIR (directory for its .pth
files), PENSTOCK_CHECKPOINT (the checkpoint to resume from), PENSTOCK_PREEMPT_FILE (exists once the machine is about to go away) and
PENSTOCK_DONE_FILE (created at the end). The initial weights come from a file, a state_dict of ResNet-50 for 1,000 classes such
as torchvision's; without such a file they are random, and the program prints a note.
"""
import argparse
import os
from pathlib import Path

import training
from training import say

import torch

import data
import models

KEPT = 2


def checkpoint_dir():
    output = os.environ.get("DEEPSQUARE_OUTPUT", ".")
    return Path(os.environ.get("PENSTOCK_CHECKPOINT_DIR") or Path(output) / "checkpoints")


def save(state, step):
    """Writes a temporary file, syncs and renames it, then removes older checkpoints."""
    folder = checkpoint_dir()
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"step-{step:012d}.pth"
    temporary = folder / f".{target.name}.new"
    with open(temporary, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, target)
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    for old in sorted(folder.glob("step-*.pth"))[:-KEPT]:
        old.unlink()


def newest():
    """The checkpoint to resume from: the restored one, or the newest local one; None at the first start."""
    here = sorted(checkpoint_dir().glob("step-*.pth"))
    restored = os.environ.get("PENSTOCK_CHECKPOINT")
    if restored and Path(restored).is_file() and not any(path.name > Path(restored).name for path in here):
        return Path(restored)
    return here[-1] if here else None


def preempted():
    """Returns True if the training is to save and exit."""
    return os.path.exists(os.environ.get("PENSTOCK_PREEMPT_FILE", ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    training.add_arguments(parser, epochs=2, batch_size=32, lr=0.0001)
    parser.add_argument("--weights", metavar="FILE", help="initial weights; default: random")
    parser.add_argument("--width", type=float, default=1.0, help="scales every channel count, to try things out")
    parser.add_argument("--side", type=int, default=224, help="side of the pictures, in pixels")
    parser.add_argument("--model-out", metavar="FILE", help="where the finished weights go; default: resnet50.pth in the output")
    args = parser.parse_args()
    request = training.StopRequest()
    training.seed_everything(args)
    try:
        pictures = data.ImageFolder(args.dataset, args.side, args.limit)
    except data.DataError as error:
        raise SystemExit(f"resnet50.py: {error}") from error
    found = newest()
    if not args.weights and not found:
        say("no --weights: starting with random weights, which need many pictures to reach a good accuracy")
    train = training.Training(models.fine_tuned(pictures.classes, None if found else args.weights, args.width), pictures, args)

    if found:
        # The file has more than tensors, and only this program writes it.
        train.restore(torch.load(found, map_location="cpu", weights_only=False))
        say(f"resumed after batch {train.batch} of epoch {train.epoch + 1} (step {train.step})")
    while not train.finished:
        train.train_batch()
        stop = request.signal or preempted()
        if stop or train.finished or train.step % train.every == 0:
            save(train.state(), train.step)
        if stop and not train.finished:
            say(f"stopped after batch {train.batch} of epoch {train.epoch + 1}; saved step {train.step}")
            return training.INTERRUPTED
    out = args.model_out or os.path.join(os.environ.get("DEEPSQUARE_OUTPUT", "."), "resnet50.pth")
    torch.save(train.model.state_dict(), out + ".new")
    os.replace(out + ".new", out)
    say(f"finished after step {train.step}\nweights sha256 {train.digest()}")
    if os.environ.get("PENSTOCK_DONE_FILE"):
        Path(os.environ["PENSTOCK_DONE_FILE"]).touch()
    return 0


if __name__ == "__main__":
    training.run(main)

#!/usr/bin/python3
"""Trains a small CNN on CIFAR-10, on machines that may be taken away at any moment.

    cifar10.py --dataset DIR

`penstock.checkpoint` saves checkpoints during the training, and finds the newest complete one. When the machine is about to
go away (SIGTERM, or the file that PENSTOCK_PREEMPT_FILE names), the program stops after the batch, even in the middle of an
epoch, saves, and exits with 143. Started again, it resumes with the next batch, and ends with the same weights, bit for bit, as an
uninterrupted training. Outside of a run PENSTOCK_CHECKPOINT_DIR names the directory for checkpoints.
"""
import argparse
import os

import training
from training import say

import torch

import data
import models
from penstock import checkpoint


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    training.add_arguments(parser, epochs=2, batch_size=4, lr=0.001)
    parser.add_argument("--format", choices=("torch", "safetensors"), default="torch", help="file format of the checkpoints")
    parser.add_argument("--model-out", metavar="FILE", help="where the finished weights go; default: cifar_net.pth in the output")
    args = parser.parse_args()
    request = training.StopRequest()
    training.seed_everything(args)
    try:
        pictures = (data.StoredCifar10 if "://" in args.dataset else data.Cifar10)(args.dataset, args.limit)
    except data.DataError as error:
        raise SystemExit(f"cifar10.py: {error}") from error
    train = training.Training(models.SmallCnn(), pictures, args)

    saved = checkpoint.load()
    if saved is not None:
        train.restore(saved)
        say(f"resumed after batch {train.batch} of epoch {train.epoch + 1} (step {train.step})")
    while not train.finished:
        train.train_batch()
        stop = request.signal or checkpoint.should_stop()
        if stop or train.finished or train.step % train.every == 0 or checkpoint.should_save():
            # Before a stop, the program waits for the complete save. At other times the training
            # waits only until the state has been copied in memory.
            checkpoint.save(train.state(), train.step, metrics={"loss": train.mean_loss}, format=args.format, asynchronous=not stop)
        if stop and not train.finished:
            say(f"stopped after batch {train.batch} of epoch {train.epoch + 1}; saved step {train.step}")
            return training.INTERRUPTED
    checkpoint.wait()
    out = args.model_out or os.path.join(os.environ.get("DEEPSQUARE_OUTPUT", "."), "cifar_net.pth")
    torch.save(train.model.state_dict(), out + ".new")
    os.replace(out + ".new", out)
    say(f"finished after step {train.step}\nweights sha256 {train.digest()}")
    checkpoint.done()
    return 0


if __name__ == "__main__":
    training.run(main)

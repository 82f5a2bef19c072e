#!/usr/bin/python3
"""Trains SimpleDLA on CIFAR-10, with a checkpoint from which it resumes exactly where it stopped.

    main.py --dataset=DIR --checkpoint_out=ckpt.pth [--checkpoint_in=ckpt.pth]

The program resumes from --checkpoint_out if that file exists (penstock restores the output of a
resumed run), else from --checkpoint_in if that is given and exists; otherwise the training starts
from scratch. A training that was interrupted and resumed ends with the same weights, bit for bit,
as an uninterrupted training on the same kind of processor, with the same options and the same
variables that choose the instructions of torch and its BLAS (OPENBLAS_CORETYPE,
ATEN_CPU_CAPABILITY, …).

On SIGTERM, or when the file named by PENSTOCK_PREEMPT_FILE appears, the program finishes its step,
saves, and exits with 143, the exit code of a program that SIGTERM has ended, so that an unfinished
training does not count as finished.
"""
import argparse
import math
import os
import random
import signal
import sys
import time

# Set before torch is loaded: waiting threads sleep instead of keeping a shared machine busy, and OpenBLAS uses one thread. By default
# OpenBLAS uses one thread per processor, ignores torch.set_num_threads(), and rounds differently for other numbers of threads.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import torch
from torch import nn

import checkpoint
import data
from model import SimpleDLA

STOPPED = 128 + signal.SIGTERM
PREEMPT_POLL_S = 0.2
# A checkpoint's weights and its position in the epoch are valid only for the same options.
FIXED_SETTINGS = ("batch_size", "width", "pictures")


def positive(kind):
    def parse(text):
        value = kind(text)
        if not value > 0:
            raise argparse.ArgumentTypeError(f"{text}: must be above 0")
        return value

    return parse


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--dataset", required=True, metavar="DIR|URL", help="where cifar-10-batches-py/ is, or train/*.bin and test/*.bin")
    parser.add_argument("--checkpoint_out", "--checkpoint-out", required=True, metavar="FILE")
    parser.add_argument("--checkpoint_in", "--checkpoint-in", metavar="FILE", help="resume from this file if it exists")
    parser.add_argument("--epochs", type=positive(int), default=20, help="in total, resumed ones included")
    parser.add_argument("--batch-size", type=positive(int), default=128)
    parser.add_argument("--lr", type=positive(float), default=0.05, help="highest learning rate")
    parser.add_argument("--width", type=positive(float), default=1.0, help="scales every channel count of the network")
    parser.add_argument("--limit-train", type=positive(int), metavar="N", help="only the first N training pictures")
    parser.add_argument("--limit-test", type=positive(int), metavar="N", help="only the first N test pictures")
    parser.add_argument("--steps-per-checkpoint", type=positive(int), metavar="N", help="default: once per epoch")
    parser.add_argument("--log-every", type=positive(int), default=10, metavar="STEPS")
    parser.add_argument("--no-augment", dest="augment", action="store_false", help="do not move or mirror the training pictures")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=positive(int), default=2, help="results repeat only with the same number")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: the GPU if there is one")
    parser.add_argument("--step-delay", type=float, default=0, metavar="S", help="sleep after each step (to try things out)")
    return parser.parse_args()


def say(text):
    print(text, flush=True)


class StopWatch:
    """Detects a request to stop: SIGTERM, or penstock's preempt file."""

    def __init__(self):
        self.reason = None
        self.file = os.environ.get("PENSTOCK_PREEMPT_FILE")
        self.next_look = 0.0
        signal.signal(signal.SIGTERM, self.on_signal)

    def on_signal(self, *_):
        self.reason = "SIGTERM"

    def requested(self):
        if not self.reason and self.file and time.monotonic() >= self.next_look:
            self.next_look = time.monotonic() + PREEMPT_POLL_S
            if os.path.exists(self.file):
                self.reason = "preemption notice"
        return self.reason is not None


class Trainer:
    def __init__(self, args):
        self.args = args
        self.device = torch.device(args.device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.train, self.test = data.load(args.dataset, args.limit_train, args.limit_test)
        self.steps_per_epoch = math.ceil(len(self.train) / args.batch_size)
        self.total_steps = args.epochs * self.steps_per_epoch
        self.model = SimpleDLA(width=args.width).to(self.device)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4, nesterov=True
        )
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self.rate)
        self.loss = nn.CrossEntropyLoss()
        self.epoch = 0
        self.batch = 0  # number of the next batch in the epoch
        self.order = self.new_order()

    @property
    def step(self):
        return self.epoch * self.steps_per_epoch + self.batch

    def rate(self, step):
        """A short warm-up, then a cosine that falls to 0 at the last step."""
        warm_up = max(1, self.total_steps // 10)
        return min((step + 1) / warm_up, 0.5 * (1 + math.cos(math.pi * min(step / self.total_steps, 1))))

    def new_order(self):
        generator = torch.Generator().manual_seed(self.args.seed * 1_000_003 + self.epoch)
        return torch.randperm(len(self.train), generator=generator).to(torch.int32)

    def settings(self):
        names = ("batch_size", "width", "lr", "epochs", "augment", "seed", "threads")
        return {name: getattr(self.args, name) for name in names} | {"pictures": len(self.train)}

    def save(self):
        checkpoint.save(
            self.args.checkpoint_out,
            {
                "settings": self.settings(),
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "scheduler": self.scheduler.state_dict(),
                "epoch": self.epoch,
                "batch": self.batch,
                "order": self.order,
                "random": checkpoint.random_state(),
            },
        )

    def restore(self, path):
        saved = checkpoint.load(path)
        for name, value in self.settings().items():
            before = saved["settings"].get(name)
            if before == value:
                continue
            if name in FIXED_SETTINGS:
                raise checkpoint.CheckpointError(f"{path}: was made with {name} {before}, not {value}; use the same value to resume")
            say(f"note: {name} was {before} and is {value}; the weights will differ from those of an uninterrupted training")
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.scheduler.load_state_dict(saved["scheduler"])
        self.epoch, self.batch, self.order = saved["epoch"], saved["batch"], saved["order"]
        checkpoint.restore_random_state(saved["random"])

    def train_step(self):
        chosen = self.order[self.batch * self.args.batch_size : (self.batch + 1) * self.args.batch_size].long()
        pictures, labels = self.train.batch(chosen)
        if self.args.augment:
            pictures = data.augment(pictures)
        self.optimizer.zero_grad()
        loss = self.loss(self.model(data.normalise(pictures, self.device)), labels.to(self.device))
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        self.batch += 1
        if self.batch == self.steps_per_epoch:
            self.epoch, self.batch = self.epoch + 1, 0
            self.order = self.new_order()
        return loss.item()

    def fit(self, watch):
        """Trains to the end (True) or until a request to stop (False); saves the state in both cases."""
        every = self.args.steps_per_checkpoint or self.steps_per_epoch
        self.model.train()
        recent, saved_at = [], None
        while self.step < self.total_steps:
            epoch = self.epoch
            recent.append(self.train_step())
            if self.step % self.args.log_every == 0 or self.step == self.total_steps:
                say(f"step {self.step}/{self.total_steps} epoch {epoch + 1} loss {sum(recent) / len(recent):.4f}")
                recent.clear()
            stop = watch.requested()
            if stop or self.step % every == 0 or self.step == self.total_steps:
                self.save()
                saved_at = self.step
                say(f"checkpoint at step {saved_at}")
            if stop and self.step < self.total_steps:
                say(f"stopping: {watch.reason}; saved step {saved_at}")
                return False
            if self.args.step_delay > 0:
                time.sleep(self.args.step_delay)
        return True

    @torch.no_grad()
    def accuracy(self):
        self.model.eval()
        right = 0
        for start in range(0, len(self.test), 256):
            pictures, labels = self.test.batch(torch.arange(start, min(start + 256, len(self.test))))
            scores = self.model(data.normalise(pictures, self.device))
            right += int((scores.argmax(1).cpu() == labels).sum())
        return right / len(self.test)

    def chance(self):
        """Score of always answering the most frequent class of the training set."""
        favourite = int(torch.bincount(self.train.batch(torch.arange(len(self.train)))[1], minlength=10).argmax())
        return max(0.1, float((self.test.batch(torch.arange(len(self.test)))[1] == favourite).float().mean()))


def make_repeatable(args):
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    np.random.seed(args.seed % 2**32)
    random.seed(args.seed)


def resume(trainer, args):
    for path in (args.checkpoint_out, args.checkpoint_in):
        if path and os.path.exists(path):
            trainer.restore(path)
            say(f"resumed at step {trainer.step} from {path}")
            return
    if args.checkpoint_in:
        say(f"{args.checkpoint_in} does not exist; starting at step 0")


def main():
    args = parse_arguments()
    watch = StopWatch()
    make_repeatable(args)
    try:
        trainer = Trainer(args)
        say(
            f"SimpleDLA at width {args.width:g}: {sum(p.numel() for p in trainer.model.parameters())} parameters, "
            f"{len(trainer.train)} training and {len(trainer.test)} test pictures, {trainer.total_steps} steps "
            f"on {trainer.device.type}"
        )
        resume(trainer, args)
        finished = trainer.fit(watch)
    except (data.DataError, checkpoint.CheckpointError, OSError) as error:
        print(f"main.py: {error}", file=sys.stderr)
        return 1
    if not finished:
        return STOPPED
    if not os.path.exists(args.checkpoint_out):  # resumed from --checkpoint_in with nothing left to train
        trainer.save()
    say(f"held-out accuracy {100 * trainer.accuracy():.2f} % (chance {100 * trainer.chance():.2f} %)")
    say(f"weights sha256 {checkpoint.weights_digest(trainer.model)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

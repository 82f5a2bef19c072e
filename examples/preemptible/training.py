"""The common part of both examples: a training that can stop after any batch and resume there exactly.

`state()` has everything that determines the next batch: weights, the optimizer's moments, the
random generators, the epoch and the number of the batch in the epoch. The order of the pictures
follows from the seed and the epoch alone.
"""
import hashlib
import math
import os
import random
import signal
import sys

# Set before torch is loaded: waiting threads sleep instead of keeping a shared machine busy, and OpenBLAS uses one thread. By default
# OpenBLAS uses one thread per processor, ignores torch.set_num_threads(), and rounds differently for other numbers of threads.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import numpy as np
import torch
from torch import nn

INTERRUPTED = 128 + signal.SIGTERM  # exit code of a training that is to be resumed


def say(text):
    print(text, flush=True)


def add_arguments(parser, epochs, batch_size, lr):
    parser.add_argument("--dataset", required=True, metavar="DIR|URL")
    parser.add_argument("--epochs", type=int, default=epochs)
    parser.add_argument("--batch-size", type=int, default=batch_size)
    parser.add_argument("--lr", type=float, default=lr)
    parser.add_argument("--limit", type=int, metavar="N", help="only N pictures")
    parser.add_argument("--every", type=int, metavar="N", help="batches from one checkpoint to the next; default: an epoch")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2, help="results repeat only with the same number")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")


class StopRequest:
    """True after a SIGTERM. The handler only records it; the training checks after every batch."""

    def __init__(self):
        self.signal = False
        signal.signal(signal.SIGTERM, self.on_signal)

    def on_signal(self, *_):
        self.signal = True


def seed_everything(args):
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    random.seed(args.seed)
    torch.set_num_threads(args.threads)
    torch.use_deterministic_algorithms(True, warn_only=True)


class Training:
    def __init__(self, model, pictures, args):
        self.args, self.pictures = args, pictures
        self.device = torch.device(args.device)
        self.model = model.to(self.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        self.loss = nn.CrossEntropyLoss()
        self.batches = math.ceil(len(pictures) / args.batch_size)
        self.every = args.every or self.batches
        self.epoch = self.batch = 0  # place of the next batch
        self.total = self.seen = 0.0  # sums for the mean loss of this epoch
        self.mean_loss = math.nan
        self.order_of = (-1, None)

    @property
    def step(self):
        """Number of trained batches."""
        return self.epoch * self.batches + self.batch

    @property
    def finished(self):
        return self.epoch >= self.args.epochs

    def settings(self):
        """Settings that must be equal to those of a checkpoint."""
        return {"batch_size": self.args.batch_size, "pictures": len(self.pictures), "seed": self.args.seed, "lr": self.args.lr}

    def state(self):
        return {
            "settings": self.settings(),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "epoch": self.epoch,
            "batch": self.batch,
            "loss": [self.total, self.seen],
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
            "numpy": np.random.get_state(),
            "python": random.getstate(),
        }

    def restore(self, state):
        if state["settings"] != self.settings():
            raise SystemExit(f"the checkpoint was made with {state['settings']}, not {self.settings()}; use the same, or another output")
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.epoch, self.batch = state["epoch"], state["batch"]
        self.total, self.seen = state["loss"]
        torch.set_rng_state(state["torch"])
        if torch.cuda.is_available():
            torch.cuda.set_rng_state_all(state["cuda"])
        np.random.set_state(state["numpy"])
        random.setstate(state["python"])

    def order(self):
        if self.order_of[0] != self.epoch:
            generator = torch.Generator().manual_seed(self.args.seed * 1_000_003 + self.epoch)
            self.order_of = (self.epoch, torch.randperm(len(self.pictures), generator=generator))
        return self.order_of[1]

    def train_batch(self):
        chosen = self.order()[self.batch * self.args.batch_size : (self.batch + 1) * self.args.batch_size]
        pictures, labels = self.pictures.batch(chosen)
        mirrored = torch.rand(len(pictures)) < 0.5
        pictures[mirrored] = pictures[mirrored].flip(-1)
        self.model.train()
        self.optimizer.zero_grad()
        loss = self.loss(self.model(pictures.to(self.device)), labels.to(self.device))
        loss.backward()
        self.optimizer.step()
        self.total, self.seen = self.total + loss.item() * len(labels), self.seen + len(labels)
        self.mean_loss = self.total / self.seen
        self.batch += 1
        if self.batch == self.batches:
            say(f"epoch {self.epoch + 1}/{self.args.epochs} loss {self.mean_loss:.4f}")
            self.epoch, self.batch, self.total, self.seen = self.epoch + 1, 0, 0.0, 0.0

    def digest(self):
        """SHA-256 over the weights, bit for bit."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()


def run(main):
    """Prints a mistake of the user as one line instead of a traceback."""
    try:
        sys.exit(main())
    except (OSError, ValueError) as error:
        sys.exit(f"{os.path.basename(sys.argv[0])}: {error}")

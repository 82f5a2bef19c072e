"""A small trainer with the options of the published program: softmax regression on CIFAR-10, with numpy only.

Every epoch ends with a checkpoint, which is overwritten in place, as in the published program. The
trainer resumes from --checkpoint_out if it exists, else from --checkpoint_in. An interrupted and
resumed run ends with the same weights as an uninterrupted one. While
$DEEPSQUARE_TMP/hold-EPOCH exists, the trainer waits at the end of that epoch.
"""
import argparse
import hashlib
import os
import pickle
import signal
import sys
import time
from pathlib import Path

os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")  # for repeatable results
import numpy as np

EPOCHS, BATCH = 4, 50


def load(folder):
    batches = [pickle.loads((folder / f"data_batch_{number}").read_bytes(), encoding="bytes") for number in range(1, 6)]
    pictures = np.concatenate([np.asarray(batch[b"data"], np.float32) for batch in batches])[:400] / 255 - 0.5
    return pictures, np.concatenate([np.asarray(batch[b"labels"]) for batch in batches])[:400]


def save(path, state):
    with open(path, "wb") as file:
        pickle.dump(state, file)
        file.flush()
        os.fsync(file.fileno())


def epoch_of(state, pictures, labels):
    order = np.random.default_rng(state["epoch"]).permutation(len(labels))
    loss = 0.0
    for begin in range(0, len(order), BATCH):
        chosen = order[begin : begin + BATCH]
        scores = pictures[chosen] @ state["weights"]
        chances = np.exp(scores - scores.max(1, keepdims=True))
        chances /= chances.sum(1, keepdims=True)
        loss -= float(np.log(chances[np.arange(len(chosen)), labels[chosen]]).sum())
        chances[np.arange(len(chosen)), labels[chosen]] -= 1
        state["momentum"] = 0.9 * state["momentum"] - 0.001 * (pictures[chosen].T @ chances)
        state["weights"] = state["weights"] + state["momentum"]
    state["epoch"] += 1
    return loss / len(order)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dataset", type=Path)
    parser.add_argument("--checkpoint_in", type=Path)
    parser.add_argument("--checkpoint_out", type=Path)
    args = parser.parse_args()
    told = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(1))
    pictures, labels = load(args.dataset / "cifar-10-batches-py")
    state = {"epoch": 0, "weights": np.zeros((3072, 10), np.float32), "momentum": np.zeros((3072, 10), np.float32)}
    found = [path for path in (args.checkpoint_out, args.checkpoint_in) if path and path.exists()]
    if found:
        state = pickle.loads(found[0].read_bytes())
        print(f"resumed at epoch {state['epoch']} from {found[0]}", flush=True)
    hold = Path(os.environ.get("DEEPSQUARE_TMP", "/nonexistent"))
    while state["epoch"] < EPOCHS:
        loss = epoch_of(state, pictures, labels)
        save(args.checkpoint_out, state)
        print(f"epoch {state['epoch']} loss {loss:.4f}", flush=True)
        while (hold / f"hold-{state['epoch']}").exists() and not told:
            time.sleep(0.02)
        if told and state["epoch"] < EPOCHS:
            print(f"stopping: saved epoch {state['epoch']}", flush=True)
            sys.exit(143)
    print("weights sha256", hashlib.sha256(state["weights"].tobytes()).hexdigest(), flush=True)


if __name__ == "__main__":
    main()

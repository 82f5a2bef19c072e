"""Trains the autoencoder on pictures that stay in the bucket, on one or several tasks, and resumes in mid-epoch after a kill."""
import argparse
import atexit
import os
import time

import torch
import torch.distributed as dist
from model import Autoencoder, optimizer
from penstock import checkpoint
from penstock.data import Dataset, Loader
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("pictures", help="IDX file, such as s3://mnist/data/train-images-idx3-ubyte.gz")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--batch", type=int, default=32, help="samples of a batch, of all tasks together")
parser.add_argument("--save-every", type=int, default=100, metavar="BATCHES")
parser.add_argument("--step-delay", type=float, default=0, metavar="SECONDS", help="sleep after each step, as if the model were larger")
options = parser.parse_args()

rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
torch.manual_seed(7)
torch.set_num_threads(1)
model = Autoencoder()
if world > 1:
    dist.init_process_group("gloo")
    atexit.register(dist.destroy_process_group)  # without it a process may abort at its exit
steps = optimizer(model)
loader = Loader(Dataset(options.pictures), options.batch // world, shuffle=True, seed=7, pad=True)
step = 0
if saved := checkpoint.load():
    step = saved["step"]
    model.load_state_dict(saved["model"])
    steps.load_state_dict(saved["optimizer"])
    loader.load_state_dict(saved["loader"])
    print(f"resumed at step {step}, epoch {loader.epoch}", flush=True)
trained = DistributedDataParallel(model) if world > 1 else model


def save():
    state = {"step": step, "model": model.state_dict(), "optimizer": steps.state_dict(), "loader": loader.state_dict()}
    checkpoint.save(state, step)


while loader.epoch < options.epochs:
    for batch in loader:
        pictures = torch.as_tensor(batch).reshape(-1, 784).float() / 255
        loss = torch.nn.functional.mse_loss(trained(pictures), pictures)
        steps.zero_grad()
        loss.backward()
        steps.step()
        time.sleep(options.step_delay)
        step += 1
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.6f}", flush=True)
        if step % options.save_every == 0:
            save()
        if checkpoint.should_stop(everywhere=True):
            save()
            raise SystemExit(143)
save()
checkpoint.done()
if rank == 0:
    print(f"sum of the weights {sum(float(weight.double().sum()) for weight in model.state_dict().values()):.9f}")

"""Trains a small network on several tasks at a time, or on one: the same global batch gives the same losses.

penstock starts each task with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, which is all that torch.distributed asks for.
"""
import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def data(count, generator):
    """Points on two spirals, and the number of the spiral of each."""
    labels = torch.arange(count) % 2
    turns = torch.rand(count, generator=generator, dtype=torch.float64) * 6
    angles = turns + labels * torch.pi
    points = torch.stack((turns * torch.cos(angles), turns * torch.sin(angles)), 1) / 6
    return points, labels.to(torch.float64)[:, None]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--global-batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    torch.manual_seed(7)  # the same weights everywhere
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).double()
    if world > 1:
        dist.init_process_group("gloo")
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    generator = torch.Generator().manual_seed(11)
    share = options.global_batch // world

    for step in range(options.steps):
        points, labels = data(options.global_batch, generator)
        mine = slice(rank * share, (rank + 1) * share)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(points[mine]), labels[mine])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach()
        if world > 1:
            dist.all_reduce(total)
            total /= world
        if rank == 0:
            print(f"step {step + 1} loss {total.item():.9f}", flush=True)
    if rank == 0:
        torch.save({"model": getattr(model, "module", model).state_dict(), "world": world}, os.path.join(os.environ.get("DEEPSQUARE_OUTPUT", "."), "model.pt"))
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()

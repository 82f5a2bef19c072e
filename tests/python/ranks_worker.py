"""One of two ranks over gloo; prints its results as JSON.

    ranks_worker.py RENDEZVOUS PREEMPT_FILE
"""
import json
import os
import sys
import time
import warnings

import torch
import torch.distributed as dist

import penstock
from penstock import checkpoint, dcp

try:
    from torch.distributed.checkpoint import load as dcp_load, save as dcp_save

    def save_state_dict(state, writer):
        dcp_save(state, storage_writer=writer)

    def load_state_dict(state, reader):
        dcp_load(state, storage_reader=reader)

except ImportError:
    from torch.distributed._shard.checkpoint import load_state_dict, save_state_dict

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
found = {}


def same(*values):
    return bool(all(torch.equal(one, other) for one, other in values))


def whole():
    return torch.arange(20.0).reshape(10, 2)


def sharded():
    """Rows of `whole()`, half of them on each rank."""
    try:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor

        return distribute_tensor(whole(), init_device_mesh("cpu", (world,)), [Shard(0)])
    except ImportError:
        from torch.distributed._shard import sharded_tensor
        from torch.distributed._shard.sharding_spec import ChunkShardingSpec

        spec = ChunkShardingSpec(dim=0, placements=[f"rank:{at}/cpu" for at in range(world)])
        made = sharded_tensor.empty(spec, 10, 2)
        for shard in made.local_shards():
            begin = shard.metadata.shard_offsets[0]
            shard.tensor.copy_(whole()[begin : begin + shard.metadata.shard_sizes[0]])
        return made


def local_part(value):
    return value.to_local() if hasattr(value, "to_local") else value.local_shards()[0].tensor


def states_of_each_rank():
    state = {"rank": rank, "x": torch.full((100 + rank,), float(rank))}
    for step, asynchronous in ((1, False), (2, True)):
        checkpoint.save(state, step, metrics={"loss": 0.5 + rank}, asynchronous=asynchronous)
    checkpoint.wait()
    latest = checkpoint.latest()
    found["latest"] = [latest.step, latest.world_size, sorted(file.name for file in latest.files), latest.metrics]
    mine, other = checkpoint.load(), checkpoint.load(rank=1 - rank)
    found["parts"] = [mine["rank"], other["rank"], same((mine["x"], state["x"]))]


def one_rank_fails():
    """The save fails on all ranks at once, without waiting for rank 0's timeout, and nothing is committed."""
    write = penstock.checkpoint._torchfile.TorchState.write

    def fail(self, saving, name):
        while not os.path.exists(os.path.join(saving.path(), ".penstock-save")):
            time.sleep(0.001)  # rank 0 has not begun
        raise OSError("rank 1 cannot")

    if rank == 1:
        penstock.checkpoint._torchfile.TorchState.write = fail
    try:
        checkpoint.save({"x": 1}, 3, timeout=100)
        found["failed"] = "not at all"
    except (OSError, penstock.CheckpointError) as error:
        found["failed"] = str(error)
    penstock.checkpoint._torchfile.TorchState.write = write
    dist.barrier()
    found["after the failure"] = checkpoint.latest().step


def agreement(preempt_file):
    """Only rank 1 looks for the preempt file that rank 0 creates."""
    os.environ["PENSTOCK_PREEMPT_FILE"] = preempt_file + ("" if rank == 1 else ".other")
    before = checkpoint.should_stop(everywhere=True)
    dist.barrier()
    if rank == 0:
        open(preempt_file, "w").close()
    dist.barrier()
    found["stop"] = [before, checkpoint.should_stop(), checkpoint.should_stop(everywhere=True)]


def distributed_checkpoint():
    state = {"w": torch.arange(6.0), "rows": sharded(), "n": {"step": 4}}
    directory = os.environ["PENSTOCK_CHECKPOINT_DIR"] + "-dcp"
    save_state_dict(state, dcp.Writer(4, metrics={"loss": 1}, dir=directory))
    checkpoint.wait()
    dist.barrier()
    again = {"w": torch.zeros(6), "rows": sharded(), "n": {"step": 0}}
    local_part(again["rows"]).zero_()
    reader = dcp.Reader(dir=directory)
    load_state_dict(again, reader)
    found["dcp"] = [reader.checkpoint.step, reader.checkpoint.world_size, ".metadata" in [file.name for file in reader.checkpoint.files],
                    same((again["w"], state["w"]), (local_part(again["rows"]), local_part(state["rows"]))), again["n"]["step"]]  # fmt: skip


warnings.simplefilter("ignore")
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=world)
states_of_each_rank()
one_rank_fails()
agreement(sys.argv[2])
distributed_checkpoint()
dist.barrier()
dist.destroy_process_group()
print(json.dumps(found))

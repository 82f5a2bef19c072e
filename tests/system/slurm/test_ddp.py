"""Data-parallel training of two ranks on two nodes, with Debian's PyTorch and its gloo back end, through a preemption."""
import json
import re

import pytest

STEPS = 30

TRAINING = '''
import atexit, hashlib, os, signal, sys, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

notified = torch.zeros(1)
def on_term(*_): notified[0] = 1
signal.signal(signal.SIGTERM, on_term)
torch.set_num_threads(1)
dist.init_process_group("gloo")
atexit.register(dist.destroy_process_group)
rank = dist.get_rank()
place = os.path.join(os.environ["DEEPSQUARE_OUTPUT"], "checkpoint.pt")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
step = 0
if os.path.exists(place):
    saved = torch.load(place)
    model.load_state_dict(saved["model"]); optimizer.load_state_dict(saved["optimizer"]); step = saved["step"]
print("begins at", step, flush=True)

def any_rank_was_notified():
    flag = notified.clone()
    dist.all_reduce(flag)
    return bool(flag.item())

def save():
    if rank == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, place + ".new")
        os.replace(place + ".new", place)
    dist.barrier()

while step < %d:
    if step == int(os.environ.get("HOLD_AT", "-1")) and os.environ["PENSTOCK_ATTEMPT"] == "1":
        print("holds at", step, flush=True)
        while not any_rank_was_notified(): time.sleep(0.02)
        save()
        print("saved", step, flush=True)
        sys.exit(0)
    generator = torch.Generator().manual_seed(1000 * step + rank)
    inputs = torch.randn(8, 16, generator=generator)
    optimizer.zero_grad()
    model(inputs).pow(2).mean().backward()
    optimizer.step()
    step += 1
    print("step", step, flush=True)
digest = hashlib.sha256()
for tensor in model.state_dict().values(): digest.update(tensor.numpy().tobytes())
print("weights", digest.hexdigest(), flush=True)
''' % STEPS  # fmt: skip


@pytest.fixture
def training(tmp_path):
    """training(**fields): a workflow that trains on two tasks."""
    script = tmp_path / "train.py"
    script.write_text(TRAINING)

    def write(name, env=(), **fields):
        two = {"tasks": 2, "cpusPerTask": 1}
        run = {"command": f"exec /usr/bin/python3 {script}", "resources": two, "env": [{"key": k, "value": v} for k, v in env]}
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"name": name, "resources": two, "steps": [{"name": "train", "run": run}]} | fields))
        return path

    return write


def weights(text):
    (one, other) = re.findall(r"weights ([0-9a-f]{64})", text)
    assert one == other
    return one


def steps_of(text, rank):
    return [int(found) for found in re.findall(rf"^{rank}: step (\d+)$", text, re.M)]


@pytest.mark.long
def test_two_ranks_on_two_nodes_lose_no_step_over_a_preemption(login, slurm, training, cluster_store, tmp_path):
    output = cluster_store.workflow_output("results", "/ddp")
    whole = login.on_slurm(training("whole"), "--sbatch=--nodes=2").wait(240).exits(0).out
    process = login.on_slurm(training("broken", [("HOLD_AT", "12")], output=output, continuousOutputSync=True), "--partition=low", "--sbatch=--nodes=2")
    process.wait_for_output("1: holds at 12", 240)

    slurm.run("sbatch", "--partition=high", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap", f"until [ -e {tmp_path}/on ]; do sleep 0.1; done")
    process.wait_for_output("0: saved 12", 240)
    (tmp_path / "on").touch()

    broken = process.wait(280).exits(0).out
    assert weights(broken) == weights(whole)
    for rank in "01":
        assert steps_of(broken, rank) == steps_of(whole, rank) == list(range(1, STEPS + 1))
    assert len(set(re.findall(r"begins at 12", broken))) == 1 and login.ps()[0]["attempt"] == 2

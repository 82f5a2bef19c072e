"""Loaders in the training loops of other packages: an epoch is complete, and can be resumed in the middle."""
import os
import subprocess

import numpy as np
import pytest

from python_child import PACKAGE, TOP

pytestmark = pytest.mark.long
START = """
import itertools, sys, warnings
warnings.simplefilter("ignore")
from penstock.data import Dataset, Loader

data = Dataset(sys.argv[1])

def listed(batches):
    return [batch.tolist() for batch in batches]

expected = listed(Loader(data, 7, shuffle=True, seed=3))
"""
TORCH = """
import torch

def loader():
    return Loader(data, 7, shuffle=True, seed=3, collate="torch")
"""


@pytest.fixture(scope="module")
def python():
    python = subprocess.run([TOP / "tools" / "bench-python", "--find"], check=True, capture_output=True, text=True).stdout.strip()
    if not python:
        pytest.skip("torch 2.15 and the frameworks are not installed; tools/bench-python installs them (4 GB)")
    return python


@pytest.fixture
def script(python, tmp_path):
    """script(text): runs the text with the packages and a set of 100 samples; the value of each sample is its number."""
    np.save(tmp_path / "0.npy", np.arange(100))
    env = os.environ | {"PYTHONPATH": str(PACKAGE), "HOME": str(tmp_path), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}

    def run(text, torch=TORCH):
        done = subprocess.run([python, "-c", START + torch + text, tmp_path], env=env, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    return run


# torchdata saves the position of each worker.
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_torchdata_resumes_in_the_middle_of_an_epoch(script, workers):
    script(f"""
from torchdata.stateful_dataloader import StatefulDataLoader

def make():
    return StatefulDataLoader(loader().iterable(), batch_size=None, num_workers={workers})

for stop in (1, 5, 14):
    first = make()
    got = listed(itertools.islice(first, stop))
    again = make()
    again.load_state_dict(first.state_dict())
    assert got + listed(again) == expected, stop
""")


@pytest.mark.parametrize("workers", [0, 2])
def test_torchdata_resumes_a_second_time_and_in_a_later_epoch(script, workers):
    script(f"""
from torchdata.stateful_dataloader import StatefulDataLoader

def make(epoch=4):
    one = loader()
    one.set_epoch(epoch)
    return StatefulDataLoader(one.iterable(), batch_size=None, num_workers={workers})

expected, got, state = listed(make()), [], None
for stop in (4, 3, 100):
    torches = make(0 if state else 4)
    if state:
        torches.load_state_dict(state)
    got += listed(itertools.islice(torches, stop))
    state = torches.state_dict()
assert got == expected
""")


# A checkpoint of Lightning contains the positions of its loaders.
@pytest.mark.parametrize("through", ["loader().dataloader()", "loader().dataloader(num_workers=2)"])
@pytest.mark.parametrize("stop", [15, 20])
def test_lightning_trains_and_resumes_at_the_end_and_in_the_middle_of_an_epoch(script, through, stop):
    script(f"""
import lightning

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer, self.seen = torch.nn.Linear(1, 1), []

    def training_step(self, batch, i):
        self.seen.append(batch.tolist())
        return self.layer(batch.float()[:, None]).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-4)

def trainer(**limits):
    quiet = dict(logger=False, enable_progress_bar=False, enable_model_summary=False)
    return lightning.Trainer(accelerator="cpu", devices=1, max_epochs=2, **quiet, **limits)

whole, first, second = Model(), Model(), Model()
trainer().fit(whole, {through})
saves = lightning.pytorch.callbacks.ModelCheckpoint(".", filename="place", every_n_train_steps={stop})
trainer(max_steps={stop}, callbacks=[saves]).fit(first, {through})
trainer().fit(second, {through}, ckpt_path="place.ckpt")

assert whole.seen[:15] == expected and len(whole.seen) == 30 and sorted(sum(whole.seen[15:], [])) == list(range(100))
assert first.seen + second.seen == whole.seen
""")


# The loader knows its rank, so the script does not pass the loader to accelerator.prepare(). The
# position of the loader is saved with the other state.
@pytest.mark.parametrize("through", ["loader", "loader.dataloader()", "loader.dataloader(num_workers=2)"])
def test_accelerate_saves_the_place_of_a_loader(script, through):
    script(f"""
import accelerate

def train(stop, restore):
    global loader
    loader = Loader(data, 7, shuffle=True, seed=3, collate="torch")
    accelerator = accelerate.Accelerator(cpu=True)
    layer = torch.nn.Linear(1, 1)
    model, optimizer = accelerator.prepare(layer, torch.optim.SGD(layer.parameters(), lr=1e-4))
    accelerator.register_for_checkpointing(loader)
    if restore:
        accelerator.load_state("place")
    seen = []
    for batch in itertools.islice({through}, stop):
        batch = accelerate.utils.send_to_device(batch, accelerator.device)
        accelerator.backward(model(batch.float()[:, None]).mean())
        optimizer.step(), optimizer.zero_grad()
        seen.append(batch.tolist())
    accelerator.save_state("place")
    return seen

assert train(6, False) + train(100, True) == expected
""")


# Each of two processes gets half of the samples.
def test_accelerate_deals_samples_to_processes_once(script, tmp_path):
    (tmp_path / "train.py").write_text("""
import sys, accelerate, torch
from penstock.data import Dataset, Loader

accelerator = accelerate.Accelerator(cpu=True)
loader = Loader(Dataset(sys.argv[1]), 7, shuffle=True, seed=3, collate="torch")
layer = torch.nn.Linear(1, 1)
model, optimizer = accelerator.prepare(layer, torch.optim.SGD(layer.parameters(), lr=1e-4))
seen = []
for batch in loader.dataloader(num_workers=1):
    accelerator.backward(model(batch.float()[:, None]).mean())
    optimizer.step(), optimizer.zero_grad()
    seen += batch.tolist()
everywhere = accelerate.utils.gather_object(seen)
assert sorted(everywhere) == list(range(100)) and len(seen) == 50
""")
    script("""
import subprocess
command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "train.py", sys.argv[1]]
done = subprocess.run(command, capture_output=True, text=True)
assert done.returncode == 0, done.stderr
""")


@pytest.mark.parametrize("workers", [0, 2])
def test_keras_trains_epoch_by_epoch(script, workers):
    script(f"""
import os
os.environ["KERAS_BACKEND"] = "torch"
import keras

seen = []

def pair(sample):
    return torch.tensor([float(sample)]), torch.tensor([2.0 * float(sample)])

class Seen(keras.layers.Layer):
    def call(self, x):
        seen.append([int(value) for value in x.flatten().tolist()])
        return x

model = keras.Sequential([keras.Input((1,)), Seen(), keras.layers.Dense(1)])
model.compile(optimizer=keras.optimizers.SGD(1e-6), loss="mse", run_eagerly=True)
seen.clear()
one = Loader(data, 10, shuffle=True, seed=3, transform=pair, collate="torch")
history = model.fit(one.dataloader(num_workers={workers}), epochs=2, verbose=0)

plain = Loader(data, 10, shuffle=True, seed=3)
assert len(history.history["loss"]) == 2 and one.epoch == 2
assert seen[-20:] == [batch.tolist() for _ in range(2) for batch in plain]
""")


# Runs the example of docs/datasets.md. TensorFlow 2.21 and torch 2.15 have copies of LLVM that abort if both are in one process.
def test_tensorflow_reads_from_a_loader(script):
    (lines,) = [part.split("```")[0] for part in (TOP / "docs" / "datasets.md").read_text().split("```python\n") if "from_generator" in part]
    script(f"""
loader = Loader(data, 7, shuffle=True, seed=3)
{lines}
first, second = ([batch.numpy().tolist() for batch in batches] for _ in range(2))
assert first == expected and sorted(sum(second, [])) == list(range(100)) and second != first
""", torch="")

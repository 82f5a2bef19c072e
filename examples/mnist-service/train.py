"""Trains a classifier of handwritten digits on pictures in the bucket, and saves it with its accuracy after each epoch."""
import argparse

import torch
from penstock import checkpoint
from penstock.data import Dataset

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("pictures", help="IDX file, such as s3://digits/data/t10k-images-idx3-ubyte.gz")
parser.add_argument("labels", help="IDX file of the same length")
parser.add_argument("--hidden", type=int, default=32)
parser.add_argument("--epochs", type=int, default=1)
options = parser.parse_args()


def read(place):
    data = Dataset(place)
    return torch.as_tensor(data.__getitems__(list(range(len(data)))))


torch.manual_seed(7)
torch.set_num_threads(1)
pictures, labels = read(options.pictures).reshape(-1, 784).float() / 255, read(options.labels).reshape(-1).long()
held = len(labels) // 5  # for the accuracy; not trained on
model = torch.nn.Sequential(torch.nn.Linear(784, options.hidden), torch.nn.ReLU(), torch.nn.Linear(options.hidden, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
first = 0
if saved := checkpoint.load():
    first = saved["epoch"]
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
for epoch in range(first + 1, options.epochs + 1):
    for batch in torch.randperm(len(labels) - held, generator=torch.Generator().manual_seed(epoch)).split(64):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(pictures[held + batch]), labels[held + batch]).backward()
        optimizer.step()
    with torch.no_grad():
        accuracy = (model(pictures[:held]).argmax(1) == labels[:held]).float().mean().item()
    print(f"epoch {epoch} accuracy {accuracy:.4f}", flush=True)
    state = {"epoch": epoch, "hidden": options.hidden, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    checkpoint.save(state, epoch, metrics={"accuracy": accuracy})

"""Fits y = 2 x + 1 to the samples, and keeps the weights; the same program for all three runners."""
import json
import os

params = json.loads(os.environ.get("DET_HPARAMS", "{}"))
epochs, rate = int(os.environ.get("EPOCHS", "20")), float(params.get("lr", 0.5))
samples = [int(line) / 100 for line in open("data/samples.txt")]
weight = bias = 0.0
for epoch in range(epochs):
    errors = [(weight * x + bias - (2 * x + 1), x) for x in samples]
    weight -= rate * sum(e * x for e, x in errors) / len(errors)
    bias -= rate * sum(e for e, _ in errors) / len(errors)
    print(f"epoch {epoch} loss {sum(e * e for e, _ in errors) / len(errors):.5f}", flush=True)
folder = "model" if os.path.isdir("model") else os.environ["DEEPSQUARE_OUTPUT"]
with open(folder + "/weights.json", "w") as out:
    json.dump({"weight": weight, "bias": bias}, out)

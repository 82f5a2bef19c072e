"""Fits y = 3x + 1 by gradient descent in plain Python; saves every step and resumes from the last save."""
import json
import os
import random
import time
from pathlib import Path

STEPS = 30
DELAY = float(os.environ.get("DELAY", "0.5"))  # seconds; a real training takes its time
saved = Path(os.environ["DEEPSQUARE_OUTPUT"]) / "model.json"

model = {"step": 0, "slope": 0.0, "offset": 0.0}
if saved.exists():
    model = json.loads(saved.read_text())
    print(f"resumed at step {model['step']}")

while model["step"] < STEPS:
    model["step"] += 1
    chance = random.Random(model["step"])  # the same batch for the same step: a resumed training ends with the same model
    batch = [(x, 3 * x + 1) for x in (chance.uniform(-1, 1) for _ in range(1000))]
    errors = [(x, model["slope"] * x + model["offset"] - y) for x, y in batch]
    model["slope"] -= 0.5 * sum(error * x for x, error in errors) / len(batch)
    model["offset"] -= 0.5 * sum(error for _, error in errors) / len(batch)
    time.sleep(DELAY)

    unfinished = saved.with_suffix(".tmp")
    unfinished.write_text(json.dumps(model))
    unfinished.rename(saved)
    print(f"step {model['step']} loss {sum(error**2 for _, error in errors) / len(batch):.6f}")

print(f"y = {model['slope']:.6f} x + {model['offset']:.6f}")

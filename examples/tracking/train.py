"""Fits a line, and logs each step to MLflow. A resumed attempt continues the same MLflow run.

    mlflow server --backend-store-uri sqlite:///mlflow.db --default-artifact-root s3://lines/artifacts --no-serve-artifacts
    MLFLOW_TRACKING_URI=http://127.0.0.1:5000 penstock run workflow.yaml
"""
import json
import os
import signal
import sys
import time
from pathlib import Path

import mlflow

STEPS, RATE = 40, 0.05
POINTS = [(x / 10, 3 * x / 10 + 1) for x in range(20)]
output = Path(os.environ["DEEPSQUARE_OUTPUT"])
saved = output / "state.json"


def save(state):
    fresh = output / "state.json.new"
    fresh.write_text(json.dumps(state))
    fresh.rename(saved)


signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # each step is saved
state = json.loads(saved.read_text()) if saved.exists() else {"step": 0, "a": 0.0, "b": 0.0}
with mlflow.start_run():  # $MLFLOW_RUN_ID
    if state["step"] == 0:
        mlflow.log_param("rate", RATE)
    while state["step"] < STEPS:
        errors = [(state["a"] * x + state["b"] - y, x) for x, y in POINTS]
        state["a"] -= RATE * sum(error * x for error, x in errors) / len(errors)
        state["b"] -= RATE * sum(error for error, _ in errors) / len(errors)
        loss = sum(error * error for error, _ in errors) / len(errors)
        mlflow.log_metric("loss", loss, step=state["step"])
        state["step"] += 1
        save(state)
        print(f"step {state['step']} loss {loss:.4f}")
        time.sleep(float(os.environ.get("DELAY", "0.5")))
    mlflow.log_artifact(str(saved))
print(f"y = {state['a']:.2f} x + {state['b']:.2f}")

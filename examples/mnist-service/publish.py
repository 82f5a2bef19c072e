"""Publishes the checkpoint of a run with the best accuracy as the next version of a model.

    python3 publish.py RUN s3://digits/model
"""
import json
import subprocess
import sys
import tempfile

run, model = sys.argv[1:]


def penstock(*arguments):
    return subprocess.run(["penstock", *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


saved = json.loads(penstock("checkpoints", "list", run, "--json"))
best = max(saved, key=lambda one: one["metrics"]["accuracy"])
there = subprocess.run(["penstock", "ls", f"{model}/"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.split()
numbers = [int(word.rstrip("/").rpartition("/")[2]) for word in there if word.rstrip("/").rpartition("/")[2].isdigit() and word.endswith("/")]
version = max(numbers, default=0) + 1
with tempfile.TemporaryDirectory() as folder:
    penstock("checkpoints", "get", run, best["name"], "-o", folder)
    penstock("sync", f"{folder}/{best['name']}", f"{model}/{version}/")
print(f"{best['name']} with accuracy {best['metrics']['accuracy']:.4f} is {model}/{version}")

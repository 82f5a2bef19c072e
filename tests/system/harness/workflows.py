"""Workflow files: one builder for all tests."""
import json

RESOURCES = {"tasks": 1, "cpusPerTask": 1, "memPerCpu": 512, "gpus": 0}


def s3_place(store, path="/", bucket="out", endpoint=None, **fields):
    """Returns the value of `input` or `output` for a path in a store, with the keys. A run creates the bucket of its output."""
    return {"s3": {
        "region": "us-east-1", "bucketUrl": f"s3://{bucket}", "path": path, "accessKeyId": store.access_key,
        "secretAccessKey": store.secret_key, "endpointUrl": endpoint or store.endpoint, "createBucket": True,
    } | fields}  # fmt: skip


def step(what, name):
    """Returns a step, from a command, a `run` or a step."""
    if isinstance(what, str):
        what = {"command": what}
    return {"name": name, "run": what} if "command" in what else what


def write_workflow(folder, *steps, file="wf.json", named="s{}", **fields):
    """Writes a workflow of these steps, named by `named` and a number from 1. A field of None is left out. Returns the path."""
    made = [step(what, named.format(i)) for i, what in enumerate(steps, 1)]
    whole = {"resources": RESOURCES, "steps": made} | fields
    path = folder / file
    path.write_text(json.dumps({key: value for key, value in whole.items() if value is not None}))
    return path

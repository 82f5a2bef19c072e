"""The published CIFAR-10 workflows, adapted to the machine of the tests."""
import fcntl
import hashlib
import json
import re
import subprocess
import tempfile

from .program import SHARED, TOP, environment

EXAMPLE = TOP / "examples" / "cifar10"
PUBLISHED = SHARED / "seeds" / "1-deepsquare-persisting-data.md"
SMALL = "--width 0.07 --epochs 2 --batch-size 32 --limit-train 320 --limit-test 100 --steps-per-checkpoint 3 --log-every 5 --threads 1"


def published_text(name):
    """Returns a published workflow file, "first" or "resume": from the published page if the
    machine has it, else from a copy."""
    copies = {"first": "seed-1-workflow.json", "resume": "seed-1-workflow-resume.json"}
    if PUBLISHED.exists():
        found = re.findall(r'```json title="[^"]*"\n(.*?)```', PUBLISHED.read_text(), re.S)
        return found[list(copies).index(name)]
    return (TOP / "tests" / "system" / "data" / copies[name]).read_text()


def published(name):
    return json.loads(published_text(name))


def localise(workflow, store, dataset_url, options=SMALL, path=None):
    """Adapts a published workflow to this machine: addresses, keys, resources, workDir and interpreter; removes the container."""
    workflow["resources"] |= {"gpusPerTask": 0, "cpusPerTask": 1, "memPerCpu": 1024}
    for side in ("input", "output"):
        if "s3" in workflow[side]:
            keys = {"accessKeyId": store.access_key, "secretAccessKey": store.secret_key, "endpointUrl": store.endpoint}
            workflow[side]["s3"] |= keys | ({"path": path} if path else {}) | ({"createBucket": True} if side == "output" else {})
        else:
            workflow[side]["http"]["url"] = dataset_url
    for step in workflow["steps"]:
        run = step["run"]
        del run["container"]
        if "workDir" in run:
            run["workDir"] = str(EXAMPLE)
        command = re.sub(r"https://\S+\.tar\.gz", dataset_url, run["command"])
        command = command.replace("/.venv/bin/python3 main.py", f"/usr/bin/python3 main.py {options}")
        run["command"] = command
    return workflow


def write(workflow, path):
    path.write_text(json.dumps(workflow, indent=2))
    return path


def unbroken(pictures, options=SMALL, program=EXAMPLE / "main.py"):
    """Returns the hash of the weights that the same training has without penstock. Only the first
    of all pytest workers trains; the others read the hash from a file."""
    worker = pictures.parent
    run = worker.parent if worker.name.startswith("popen-") else worker
    with open(run / ("unbroken-" + hashlib.sha256(f"{program} {options}".encode()).hexdigest()[:16]), "a+", encoding="ascii") as kept:
        fcntl.flock(kept, fcntl.LOCK_EX)
        kept.seek(0)
        if found := kept.read():
            return found
        with tempfile.TemporaryDirectory() as folder:
            words = ["/usr/bin/python3", program, f"--dataset={pictures}", f"--checkpoint_out={folder}/ckpt.pth", *options.split()]
            trained = weights(subprocess.run(words, env=environment(), capture_output=True, text=True, check=True).stdout)
        kept.write(trained)
    return trained


def weights(text):
    """Returns the last hash that the trainer printed."""
    return re.findall(r"weights sha256 ([0-9a-f]{64})", text)[-1]

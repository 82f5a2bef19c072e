"""Measures the time from the close of a checkpoint until it is durable in the store, and the supervisor's memory."""
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import report as reporting

sys.path.insert(0, str(reporting.TOP / "tests" / "system"))
from harness.program import Penstock, Store  # noqa: E402
from harness.waiting import wait_for  # noqa: E402

BUCKET = "out-bucket"
POLL_S = 5


def write(path, size, seed):
    """Saves a file: opens it, writes it in pieces, and closes it. Returns the time of the close."""
    block = random.Random(seed).randbytes(1 << 20)
    with open(path, "wb") as file:
        for _ in range(size >> 20):
            file.write(block)
        file.write(bytes(size & ((1 << 20) - 1)))
    return time.monotonic()


def visible_after(client, key, size, closed):
    """Returns the seconds from the close until HEAD finds an object of this size; the store shows only durable objects."""
    while True:
        try:
            if client.head_object(Bucket=BUCKET, Key=key)["ContentLength"] == size:
                return time.monotonic() - closed
        except client.exceptions.ClientError:
            pass
        time.sleep(0.002)


def curl_put(store, path, key):
    """Returns curl's own time for a PUT of the same bytes to the same store."""
    command = [
        "curl", "-sS", "-f", "-o", "/dev/null", "-w", "%{time_total}", "-T", path, "--aws-sigv4", "aws:amz:us-east-1:s3",
        "-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD", f"{store.endpoint}/{BUCKET}/{key}", "-K", "-",
    ]  # fmt: skip
    keys = f'user = "{store.access_key}:{store.secret_key}"\n'
    return float(subprocess.run(command, input=keys, capture_output=True, text=True, check=True).stdout)


def peak_memory(pid):
    return int(re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text()).group(1)) * 1024


class Run:
    """A `penstock run` whose step only waits; the benchmark writes the output of the step."""

    def __init__(self, penstock, store, folder):
        self.folder = folder
        self.store = store
        s3 = {
            "region": "us-east-1", "bucketUrl": f"s3://{BUCKET}", "path": "/p", "accessKeyId": store.access_key,
            "secretAccessKey": store.secret_key, "endpointUrl": store.endpoint,
        }  # fmt: skip
        workflow = folder / "workflow.json"
        workflow.write_text(json.dumps({
            "resources": {"tasks": 1, "cpusPerTask": 1, "memPerCpu": 64, "gpus": 0},
            "output": {"s3": s3}, "continuousOutputSync": True,
            "steps": [{"name": "wait", "run": {"command": "echo started; exec sleep 100000"}}],
        }))  # fmt: skip
        self.process = penstock.popen("run", workflow)
        self.process.wait_for_output("started")
        (self.out,) = penstock.home.glob("runs/*/storage/output")

    def wait_published(self, name, size, deadline_s):
        listed = lambda: self.store.client.list_objects_v2(Bucket=BUCKET, Prefix=f"p/{name}").get("Contents", [])  # noqa: E731
        wait_for(lambda: any(entry["Size"] == size for entry in listed()), deadline_s, f"{name} in the store", every_s=0.2)

    def quit(self):
        self.process.send(signal.SIGINT)
        self.process.wait()


def latency(report, store, sync, size):
    versions = iter(range(1, 1000))
    client = store.client
    twin = sync.folder / "twin"

    def ours():
        version = next(versions)
        return visible_after(client, "p/ckpt.pth", size + version, write(sync.out / "ckpt.pth", size + version, version))

    def curl():
        write(twin, size, 0)
        return curl_put(store, twin, "curl.pth")

    ours_s, curl_s = report.interleave(9, ours, curl)
    what = f"close of {size // 10**6} MB to durable"
    report.more(what, ours_s, curl_s, at_most=0.100, peer_name="curl's PUT")
    return what, ours_s


def poll(report, store, folder, size, what, ours_s):
    """Measures a loop of a sync and five seconds of sleep, with s5cmd and the AWS CLI."""
    for name in ("s5cmd", "aws"):
        program = report.aws() if name == "aws" else report.peer(name)
        if not program:
            continue
        out = folder / f"poll-{name}"
        out.mkdir()
        target = f"s3://{BUCKET}/poll-{name}/"
        sync = f'"{program}" sync "{out}/" {target}' if name == "s5cmd" else f'"{program}" s3 sync --endpoint-url {store.endpoint} --only-show-errors "{out}" {target}'
        env = dict(os.environ) | store.env | {"S3_ENDPOINT_URL": store.endpoint}
        loop = subprocess.Popen(
            ["/bin/sh", "-c", f"trap 'exit 0' TERM; while :; do {sync}; sleep {POLL_S} & wait $!; done"],
            env=env, stdout=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            versions = iter(range(1, 1000))
            chance = random.Random(1)

            def once():
                version = next(versions)
                time.sleep(chance.random() * POLL_S)
                return visible_after(
                    store.client, f"poll-{name}/ckpt.pth", size + version, write(out / "ckpt.pth", size + version, version)
                )

            poll_s = report.interleave(5, once, warm_up=0)
        finally:
            os.killpg(loop.pid, 15)
            loop.wait()
        report.figure(what, ours_s, unit="s", peer=poll_s, peer_name=f"{name} sync every {POLL_S} s")


def memory(report, sync, size):
    with open(sync.out / "large.bin", "wb") as file:
        block = os.urandom(1 << 20)
        for _ in range(size >> 20):
            file.write(block)
    sync.wait_published("large.bin", size, deadline_s=300)
    report.limit(f"peak memory, syncing {size / 2**30:.0f} GiB", peak_memory(sync.process.pid), at_most=32 << 20, unit="bytes")


def main(report):
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        folder = Path(folder)
        os.environ["PENSTOCK"] = str(reporting.binary())
        penstock = Penstock(folder / "p")
        store = Store(penstock, folder / "store")
        store.client.create_bucket(Bucket=BUCKET)
        (folder / "s").mkdir()
        sync = Run(penstock, store, folder / "s")
        try:
            size = report.size(100_000_000, 10_000_000)
            what, ours_s = latency(report, store, sync, size)
            poll(report, store, folder, size, what, ours_s)
            memory(report, sync, report.size(4 << 30, 1 << 28))
            sync.quit()
        finally:
            penstock.close()

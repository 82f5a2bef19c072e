"""Measures the time from the same command on a new machine to the first step, after a preemption and after a crash."""
import json
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

TERM_S = 5  # the default of 30 s would only lengthen the benchmark
STEP = """trap 'exit 0' TERM; cd $DEEPSQUARE_OUTPUT; echo began; if [ ! -e ckpt ]; then head -c %d /dev/urandom > .new; mv .new ckpt; echo saved; fi
while :; do sleep 0.05; done"""


def curl_get(store, key, to):
    command = [
        "curl", "-sS", "-f", "-o", to, "-w", "%{time_total}", "--aws-sigv4", "aws:amz:us-east-1:s3", "-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD",
        f"{store.endpoint}/out/{key}", "-K", "-",
    ]  # fmt: skip
    keys = f'user = "{store.access_key}:{store.secret_key}"\n'
    return float(subprocess.run(command, input=keys, capture_output=True, text=True, check=True).stdout)


class Machines:
    def __init__(self, folder, store, size):
        self.folder, self.store, self.n = folder, store, 0
        transport = {
            "region": "us-east-1", "bucketUrl": "s3://out", "path": "/res", "accessKeyId": store.access_key,
            "secretAccessKey": store.secret_key, "endpointUrl": store.endpoint,
        }  # fmt: skip
        self.path = folder / "wf.json"
        self.path.write_text(json.dumps({
            "resources": {"tasks": 1, "cpusPerTask": 1, "memPerCpu": 64}, "output": {"s3": transport}, "continuousOutputSync": True,
            "steps": [{"name": "train", "run": {"command": STEP % size}}],
        }))  # fmt: skip

    def begin(self):
        """Starts the run on a new machine. Returns the run and the seconds until its step prints that it began."""
        self.n += 1
        self.program = Penstock(self.folder / f"m{self.n}")
        self.program.env |= {"PENSTOCK_MACHINE": f"m{self.n}", "PENSTOCK_LEASE_TERM": str(TERM_S)}
        run = self.program.popen("run", self.path)
        run.wait_for_output("^began", 300)
        return run, time.monotonic() - run.started

    def published(self):
        manifests = [key for key in self.store.keys("out", "res/.penstock/") if key.endswith("/manifest.json")]
        return manifests and b'"ckpt"' in self.store.bytes("out", manifests[0])


def measure(report, size, label):
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        folder = Path(folder)
        store = Store(Penstock(folder / "store"), folder / "root")
        store.client.create_bucket(Bucket="out")
        machines = Machines(folder, store, size)
        run, _ = machines.begin()
        run.wait_for_output("^saved", 300)
        wait_for(machines.published, 300)
        state = {"run": run}

        def after(number):
            state["run"].send(number)
            state["run"].popen.wait(300)
            machines.program.close()
            state["run"], seconds = machines.begin()
            return seconds

        released, crashed, curl = report.interleave(
            5, lambda: after(signal.SIGTERM), lambda: after(signal.SIGKILL), lambda: curl_get(store, "res/ckpt", folder / "got")
        )
        state["run"].send(signal.SIGTERM)
        state["run"].popen.wait(300)
        machines.program.close()
        store.stop()
    report.more(f"restart elsewhere after a preemption, {label}", released, curl, at_most=2, peer_name="curl GET")
    report.more(f"restart elsewhere after a crash, {label}, term {TERM_S} s", crashed, released, at_most=TERM_S + 0.5, peer_name="after a preemption")


def main(report):
    measure(report, 1 << 20, "1 MiB")
    large = report.size(500, 50)
    measure(report, large << 20, f"{large} MiB")

"""Measures, for each notice source, the time from a notice to the signal handler of a task. Requires that the preempt file exists
when the handler runs.
"""
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import report as reporting

sys.path.insert(0, str(reporting.TOP / "tests" / "system"))
from harness.metadata import Aws, Azure, Gcp  # noqa: E402
from harness.program import Penstock  # noqa: E402
from harness.waiting import wait_for  # noqa: E402

NOTIFIED_S = 0.2
# Prints the time at which its handler ran, and True if the preempt file existed at that time.
TRAINER = """
import os, signal, sys, time
def on_signal(number, frame):
    at = time.monotonic()
    os.write(1, f"{at} {os.path.exists(os.environ['PENSTOCK_PREEMPT_FILE'])}\\n".encode())
    os._exit(0)
signal.signal(signal.SIGTERM, on_signal)
print("up", flush=True)
while True:
    time.sleep(1)
"""


def measure(penstock, path, notify, env=None):
    """Returns the seconds from the notice to the handler of the task; `notify` sends the notice and returns its time."""
    run = penstock.popen("run", "--fresh", path, env={"PENSTOCK_PREEMPTION_SOURCES": None, "AWS_EC2_METADATA_DISABLED": "true", "NO_GCE_CHECK": "true"} | (env or {}))
    run.wait_for_output("^up")
    noticed = notify(run)
    result = run.wait()
    at, there = result.out.splitlines()[1].split()
    if result.code != 75 or there != "True":
        raise SystemExit(f"the run ended with {result.code}, the preempt file: {there}\n{result.err}")
    return float(at) - noticed


def now(action):
    at = time.monotonic()
    action()
    return at


def hanging(gcp):
    def notify(run):
        wait_for(lambda: any("wait_for_change" in path for _, path, *_ in gcp.asked(gcp.ROOT + "preempted")), what="a request that hangs")
        return now(lambda: gcp.set("preempted", "TRUE"))

    return notify


def after_a_poll(service, path, action):
    """Returns a function that calls `action` right after a poll, so that the notice waits a full
    interval for the next poll.
    """

    def notify(run):
        count = len(service.asked(path))
        wait_for(lambda: len(service.asked(path)) > count, what="a poll")
        return now(action)

    return notify


def of_gcp(penstock, path):
    gcp = Gcp()
    try:
        return measure(penstock, path, hanging(gcp), {"PENSTOCK_METADATA_GCP": gcp.url})
    finally:
        gcp.close()


def of_aws(penstock, path):
    aws = Aws()
    try:
        notify = after_a_poll(aws, "/latest/meta-data/events/recommendations/rebalance", lambda: aws.action("terminate", lead_s=120))
        return measure(penstock, path, notify, {"PENSTOCK_METADATA_AWS": aws.url})
    finally:
        aws.close()


def of_azure(penstock, path):
    azure = Azure("vm-7")
    try:
        notify = after_a_poll(azure, azure.EVENTS, lambda: azure.event("Preempt", ["vm-7"]))
        return measure(penstock, path, notify, {"PENSTOCK_METADATA_AZURE": azure.url})
    finally:
        azure.close()


def main(report):
    os.environ["PENSTOCK"] = str(reporting.binary())
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        folder = Path(folder)
        penstock = Penstock(folder)
        trainer, path, evict = folder / "trainer.py", folder / "wf.json", folder / "evict"
        trainer.write_text(TRAINER)
        sources = [{"file": str(evict)}]
        step = {"name": "train", "run": {"command": f"/usr/bin/python3 {trainer}; exit $?"}}
        resources = {"tasks": 1, "cpusPerTask": 1, "memPerCpu": 256}
        path.write_text(json.dumps({"resources": resources, "steps": [step]}))
        by_file = folder / "file.json"
        by_file.write_text(json.dumps({"resources": resources, "steps": [step], "preemption": {"sources": sources}}))

        def of_file():
            try:
                return measure(penstock, by_file, lambda run: now(evict.touch))
            finally:
                evict.unlink()

        def of_signal():
            return measure(penstock, path, lambda run: now(lambda: run.send(signal.SIGTERM)), {"PENSTOCK_PREEMPTION_SOURCES": "none"})

        try:
            for name, limit, count, one in (
                ("a signal", NOTIFIED_S, 11, of_signal),
                ("GCP, a request that hangs", NOTIFIED_S, 11, lambda: of_gcp(penstock, path)),
                ("a file", 0.25 + NOTIFIED_S, 11, of_file),
                ("Azure", 1 + NOTIFIED_S, 5, lambda: of_azure(penstock, path)),
                ("AWS", 5 + NOTIFIED_S, 3, lambda: of_aws(penstock, path)),
            ):
                times = sorted(one() for _ in range(report.repeats(count)))
                report.limit(f"notice to tasks notified: {name} (the longest)", times[-1], at_most=limit, unit="s")
        finally:
            penstock.close()

"""Measures the bytes that the continuous sync and `cp --delta` send for a checkpoint of which 5 % changed."""
import os
import random
import sys
import tempfile
import time
from pathlib import Path

import report as reporting

sys.path.insert(0, str(reporting.TOP / "tests" / "system"))
from harness.program import Penstock, Store  # noqa: E402
from harness.slow_link import SlowLink  # noqa: E402
from harness.sync_driver import Syncer  # noqa: E402

BUCKET = "bucket"
VERSIONS = 6
SHARE = 0.05
AT_MOST = 0.15


def changed(data, version):
    """Replaces 5 % of the bytes, in one piece, as if the training had changed one layer."""
    length = int(len(data) * SHARE)
    at = random.Random(version).randrange(len(data) // 10, len(data) - length)
    data[at : at + length] = os.urandom(length)
    return data


def shares(data, publish, link, stored):
    """Publishes versions. Returns the largest share of a version's bytes that was sent, and the median time in seconds."""
    publish(data, 1)
    ours, seconds = [], []
    for version in range(2, VERSIONS + 2):
        changed(data, version)
        before, start = link.carried, time.monotonic()
        publish(data, version)
        seconds.append(time.monotonic() - start)
        ours.append((link.carried - before) / len(data))
        assert stored() == data, "the store has other bytes"
    return max(ours), sorted(seconds)[len(seconds) // 2]


def through_sync(report, penstock, store, link, folder, size):
    sync = Syncer(penstock, store, folder, endpoint=link.url)

    def publish(data, version):
        (folder / "next").write_bytes(data)
        os.rename(folder / "next", sync.out / "ckpt.pth")
        sync.wait_event("published", "ckpt.pth", count=version)

    before = reporting.cpu_of(store.process.pid)
    share, median_s = shares(bytearray(os.urandom(size)), publish, link, lambda: sync.object("ckpt.pth"))
    report.limit(f"bytes sent of {size // 10**6} MB, 5 % changed: sync", share, at_most=AT_MOST, unit="of it")
    report.figure("one version by sync", median_s, unit="s")
    report.figure("processor time of the store for all versions", reporting.cpu_of(store.process.pid) - before, unit="s")
    sync.flush()


def through_cp(report, penstock, store, link, folder, size):
    store.client.create_bucket(Bucket=BUCKET)
    env = store.env | {"AWS_ENDPOINT_URL": link.url}

    def publish(data, version):
        (folder / "model.bin").write_bytes(data)
        penstock.run("cp", "--delta", folder / "model.bin", f"s3://{BUCKET}/model.bin", env=env, cwd=folder).ok()

    stored = lambda: store.client.get_object(Bucket=BUCKET, Key="model.bin")["Body"].read()  # noqa: E731
    share, median_s = shares(bytearray(os.urandom(size)), publish, link, stored)
    report.limit(f"bytes sent of {size // 10**6} MB, 5 % changed: cp --delta", share, at_most=AT_MOST, unit="of it")
    report.figure("one version by cp --delta", median_s, unit="s")


def main(report):
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        folder = Path(folder)
        os.environ["PENSTOCK"] = str(reporting.binary())
        penstock = Penstock(folder / "p")
        store = Store(penstock, folder / "store")
        link = SlowLink(store.endpoint)
        (folder / "s").mkdir()
        try:
            size = report.size(100_000_000, 40_000_000)
            through_sync(report, penstock, store, link, folder / "s", size)
            through_cp(report, penstock, store, link, folder, size)
        finally:
            link.close()
            penstock.close()

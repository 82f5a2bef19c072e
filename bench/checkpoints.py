"""Measures the time from the end of a checkpoint's save until its commit and files are durable in the store."""
import importlib
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import async_save
import publish_latency
import report as reporting

sys.path.insert(0, str(reporting.TOP / "tests" / "system"))
from harness.program import Penstock, Store  # noqa: E402

ROUNDS = 5
LIMIT_S = 1.0


def durable(store, key, saved):
    """Returns the seconds from `saved` until HEAD finds the object; the store shows only durable objects."""
    while True:
        try:
            store.client.head_object(Bucket=publish_latency.BUCKET, Key=key)
            return time.monotonic() - saved
        except store.client.exceptions.ClientError:
            time.sleep(0.002)


def main(report):
    sys.path.insert(0, str(async_save.package()))
    checkpoint = importlib.import_module("penstock.checkpoint")
    torch = importlib.import_module("torch")
    size = report.size(500_000_000, 10_000_000)
    state = {f"layer{at}": torch.rand(size // 4 // 20) for at in range(20)}
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        folder = Path(folder)
        os.environ["PENSTOCK"] = str(reporting.binary())
        penstock = Penstock(folder / "p")
        store = Store(penstock, folder / "store")
        store.client.create_bucket(Bucket=publish_latency.BUCKET)
        (folder / "s").mkdir()
        sync = publish_latency.Run(penstock, store, folder / "s")
        kept, twin, steps = sync.out / "checkpoints", folder / "twin", iter(range(1, 1000))

        def ours():
            for old in kept.glob("*"):
                shutil.rmtree(old)
            state["layer0"].uniform_()
            checkpoint.save(state, next(steps), dir=kept)
            saved = time.monotonic()
            (commit,) = kept.glob("*/COMMIT.json")
            return durable(store, f"p/{commit.relative_to(sync.out)}", saved)

        def curl():
            publish_latency.write(twin, size, 0)
            return publish_latency.curl_put(store, twin, "curl.bin")

        try:
            ours_s, curl_s = report.interleave(ROUNDS, ours, curl)
            report.more(f"a saved checkpoint of {size // 10**6} MB to durable", ours_s, curl_s, at_most=LIMIT_S, peer_name="curl's PUT")
            sync.quit()
        finally:
            penstock.close()

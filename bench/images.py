"""An image of eight layers from a registry to runnable, beside `skopeo copy` and `umoci unpack` in a row."""
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

import report as reporting

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "system"))
from harness import registry as images  # noqa: E402

LAYERS = 8


def make_layer(number, size):
    """As images of Python programs are: thousands of small texts, some large libraries; half of it compresses."""
    noise = random.Random(number)
    words = [noise.randbytes(6).hex() for _ in range(2000)]
    page = " ".join(noise.choices(words, k=100_000))
    members, made = {}, 0
    while made < size // 4:
        length = noise.randrange(600, 24_000)
        begin = noise.randrange(len(page) - length)
        members[f"usr/lib/python/package{number}/module{len(members) // 40}/file{len(members)}.py"] = page[begin : begin + length]
        made += length
    while made < size:
        length = min(24 << 20, size - made)
        half = noise.randbytes(length // 2)
        members[f"usr/lib/library{number}-{len(members)}.so"] = half + bytes(length - len(half))
        made += length
    return images.layer(members)


def main(report):
    skopeo, umoci = report.peer("skopeo"), report.peer("umoci")
    server = report.peer("docker-registry")
    if not (skopeo and umoci and server):
        return
    program = reporting.binary()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        folder = Path(name)
        registry = images.Registry(folder / "registry")
        try:
            made = images.image([make_layer(number, report.size(1 << 30, 16 << 20) // LAYERS) for number in range(LAYERS)])
            registry.push("bench/image:v1", made)
            compressed = sum(len(data) for data in made[0].values())
            del made
            reference = f"{registry.host}/bench/image:v1"
            env = {"PATH": os.environ["PATH"], "HOME": str(folder), "PENSTOCK_HOME": str(folder / "home")}

            def ours():
                reporting.run_checked([program, "pull", reference], env=env)

            def peers():
                reporting.run_checked([skopeo, "--insecure-policy", "copy", "--quiet", "--src-tls-verify=false", f"docker://{reference}", f"oci:{folder}/layout:v1"], env=env)
                reporting.run_checked([umoci, "unpack", "--image", f"{folder}/layout:v1", f"{folder}/bundle"], env=env)

            def clean():
                for path in ("home", "layout", "bundle"):
                    shutil.rmtree(folder / path, ignore_errors=True)

            ours_s, peers_s = report.interleave(report.size(5, 1), after(clean, ours), after(clean, peers))
        finally:
            registry.close()
    report.ratio("an image of eight layers, from registry to runnable", ours_s, peers_s, at_least=report.size(1.5, 0.0), peer_name="skopeo + umoci")
    report.figure("the same, compressed bytes", compressed / ours_s, unit="bytes/s")


def after(prepare, run):
    """A sample that does not count what is prepared for it."""
    def sample():
        prepare()
        begin = time.perf_counter()
        run()
        return time.perf_counter() - begin

    return sample

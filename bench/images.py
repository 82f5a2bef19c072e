"""Measures the pull of an image of eight layers from a registry, and of a next version with one new layer.

The peers are `skopeo copy` followed by `umoci unpack`, and `skopeo copy` followed by penstock's unpacking. The figures are
time and processor time.
"""
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import report as reporting

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "system"))
from harness import registry as images  # noqa: E402

LAYERS = 8


def make_layer(number, size):
    """Returns a layer like those of Python programs: thousands of small texts, and some large libraries that compress to half."""
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
            size = report.size(1 << 30, 16 << 20) // LAYERS
            layers = [make_layer(number, size) for number in range(LAYERS)]
            compressed = sum(len(data) for data in push(registry, "v1", layers).values())
            push(registry, "v2", [*layers[:-1], make_layer(LAYERS, size)])
            del layers
            env = {"PATH": os.environ["PATH"], "HOME": str(folder), "PENSTOCK_HOME": str(folder / "home")}

            def run(*words):
                reporting.run_checked([*words], env=env)

            def fetch(tag):
                source = f"docker://{registry.host}/bench/image:{tag}"
                run(skopeo, "--insecure-policy", "copy", "--quiet", "--src-tls-verify=false", source, f"oci:{folder}/layout:{tag}")

            def ours(tag="v1"):
                run(program, "pull", f"{registry.host}/bench/image:{tag}")

            def peers(tag="v1"):
                fetch(tag)
                run(umoci, "unpack", "--image", f"{folder}/layout:{tag}", f"{folder}/bundle-{tag}")

            def both(tag="v1"):
                fetch(tag)
                run(program, "pull", f"{folder}/layout")
                shutil.rmtree(folder / "layout")  # else a second copy of the image would stay on the disk

            def clean():
                for path in ("home", "layout", "bundle-v1", "bundle-v2"):
                    shutil.rmtree(folder / path, ignore_errors=True)

            def with_v1(way):
                def prepare():
                    clean()
                    way("v1")

                return prepare

            def again(way):
                return after(with_v1(way), lambda: way("v2"))

            first = measure(report, *(after(clean, way) for way in (ours, peers, both)))
            second = measure(report, *(again(way) for way in (ours, peers, both)))
        finally:
            registry.close()
    (ours_s, ours_cpu), (peers_s, peers_cpu), (both_s, both_cpu) = first
    report.ratio("an image of eight layers, from registry to runnable", ours_s, peers_s, at_least=report.size(1.5, 0.0), peer_name="skopeo + umoci")
    report.figure("the same, processor time", ours_cpu, unit="s", peer=peers_cpu, peer_name="skopeo + umoci")
    report.figure("the same", ours_s, unit="s", peer=both_s, peer_name="skopeo + our unpacking")
    report.figure("the same, processor time", ours_cpu, unit="s", peer=both_cpu, peer_name="skopeo + our unpacking")
    report.figure("the same, compressed bytes", compressed / ours_s, unit="bytes/s")
    (ours_s, ours_cpu), (peers_s, peers_cpu), (both_s, both_cpu) = second
    report.figure("its next version, one layer of eight is new", ours_s, unit="s", peer=peers_s, peer_name="skopeo + umoci")
    report.figure("the same, processor time", ours_cpu, unit="s", peer=peers_cpu, peer_name="skopeo + umoci")
    report.figure("the same", ours_s, unit="s", peer=both_s, peer_name="skopeo + our unpacking")
    report.figure("the same, processor time", ours_cpu, unit="s", peer=both_cpu, peer_name="skopeo + our unpacking")


def push(registry, tag, layers):
    made = images.image(layers)
    registry.push(f"bench/image:{tag}", made)
    return made[0]


def measure(report, *samples):
    """Returns the medians of (seconds, CPU seconds) of each sample; the samples are taken in turn."""
    taken = [[] for _ in samples]
    for number in range(1 + report.size(5, 1)):
        for sample, kept in zip(samples, taken):
            value = sample()
            if number or report.quick:
                kept.append(value)
    return [tuple(statistics.median(column) for column in zip(*kept)) for kept in taken]


def after(prepare, run):
    """Returns a sample: a function that calls prepare() and run(), and returns (seconds, CPU seconds) of run()."""
    def sample():
        prepare()
        begin, used = time.perf_counter(), reporting.children_cpu_s()
        run()
        return time.perf_counter() - begin, reporting.children_cpu_s() - used

    return sample

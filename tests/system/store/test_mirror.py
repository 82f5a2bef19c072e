"""The recipe of docs/stores.md for two disks: a store on a mirror of btrfs loses nothing if a disk is damaged, or gone."""
import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from harness.program import Store

MIB = 1 << 20
DISK = 256 * MIB
KEPT = 2 * MIB  # keeps the superblock: a disk without one would be missing, not damaged
SIZES = (1, 1000, 20_000, 300_000, 3 * MIB)


def call(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


class Mirror:
    def __init__(self, folder):
        self.folder, self.mounted, self.loops = folder, folder / "mounted", {}
        self.mounted.mkdir()
        for name in ("a", "b"):
            self.add(name)
        call("mkfs.btrfs", "-q", "--data", "raid1", "--metadata", "raid1", *self.loops.values())

    def add(self, name):
        with open(self.folder / name, "wb") as file:
            file.truncate(DISK)
        self.loops[name] = call("losetup", "--find", "--show", self.folder / name).strip()

    def remove(self, name):
        loop = self.loops.pop(name)
        call("losetup", "--detach", loop)
        call("btrfs", "device", "scan", "--forget")

    def mount(self, options="defaults"):
        call("btrfs", "device", "scan", *self.loops.values())
        call("mount", "-o", options, self.loops["a"], self.mounted)

    def umount(self):
        call("umount", self.mounted)

    def close(self):
        subprocess.run(["umount", "-l", self.mounted], capture_output=True)
        for loop in self.loops.values():
            subprocess.run(["losetup", "--detach", loop], capture_output=True)


@pytest.fixture
def mirror(tmp_path):
    if os.geteuid() or not shutil.which("mkfs.btrfs") or "btrfs" not in Path("/proc/filesystems").read_text():
        pytest.skip("no root, no btrfs-progs, or a kernel without btrfs")
    made = Mirror(tmp_path)
    yield made
    made.close()


def damage(path, seed):
    """Overwrites a quarter of the disk, in random places."""
    choose = random.Random(seed)
    with open(path, "r+b") as disk:
        for offset in range(KEPT, DISK, MIB):
            disk.seek(offset + choose.randrange(MIB * 3 // 4))
            disk.write(choose.randbytes(MIB // 4))


def contents(store):
    return {key: store.bytes("bucket", key) for key in store.keys("bucket")}


def holds(store, wrote):
    """Starts the store, and stops it again. Returns True if the store has exactly the written
    objects."""
    store.start()
    same = contents(store) == wrote
    store.stop().ok()
    return same


@pytest.mark.long
def test_a_store_on_a_mirror_survives_a_damaged_disk_and_a_lost_one(penstock, mirror):
    choose = random.Random(1)
    wrote = {f"{size}-{i}": choose.randbytes(size) for size in SIZES for i in range(6)}
    mirror.mount()
    store = Store(penstock, mirror.mounted / "objects")
    store.client.create_bucket(Bucket="bucket")
    for key, body in wrote.items():
        store.client.put_object(Bucket="bucket", Key=key, Body=body)
    store.stop().ok()
    mirror.umount()

    damage(mirror.folder / "b", 2)
    mirror.mount()
    assert holds(store, wrote)
    penstock.run("store", "scrub", "--root", store.root).ok()
    report = call("btrfs", "scrub", "start", "-B", mirror.mounted)
    repaired = call("btrfs", "device", "stats", mirror.mounted)
    assert "Uncorrectable:  0" in report or "no errors found" in report, report
    assert sum(int(n) for n in re.findall(r"corruption_errs\s+(\d+)", repaired)) > 0, repaired
    mirror.umount()

    mirror.remove("b")
    mirror.mount("degraded")
    store.start()
    assert contents(store) == wrote
    wrote["later"] = b"written with one disk"
    store.client.put_object(Bucket="bucket", Key="later", Body=wrote["later"])
    mirror.add("c")
    call("btrfs", "replace", "start", "-B", "2", mirror.loops["c"], mirror.mounted)
    call("btrfs", "balance", "start", "-dconvert=raid1,soft", "-mconvert=raid1,soft", mirror.mounted)
    assert contents(store) == wrote
    store.stop().ok()
    mirror.umount()
    damage(mirror.folder / "a", 3)
    mirror.mount()
    assert holds(store, wrote)

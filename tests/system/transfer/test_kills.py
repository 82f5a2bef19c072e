"""kill -9 in the middle of a sync: the next sync resumes, and in the end every file is complete,
and there are no other files."""
import os
import random
import signal
import tarfile

import pytest

from harness import processes
from harness.program import SHARED
from harness.waiting import wait_for

SEED = int(os.environ.get("PENSTOCK_KILL_SEED", "7"))


def draw(folder, count, draws):
    """Makes small files in a few directories: some are empty, some are larger than the buffer of an
    item."""
    for number in range(count):
        path = folder / f"class{number % 10}" / f"{number:05}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        size = 0 if number % 97 == 0 else 300_000 if number % 199 == 0 else draws.randrange(100, 2000)
        path.write_bytes(draws.randbytes(size))


def content(folder):
    found = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, folder)] = file.read()
    return found


class Killing:
    def __init__(self, penstock, draws):
        self.penstock, self.draws, self.kills, self.store_kills = penstock, draws, 0, 0

    def killed(self, source, target, after):
        """Runs a sync, and kills it once it has reported `after` items. Returns False if the sync
        ended before that."""
        process = self.penstock.popen("sync", "-v", "--endpoint-url", "embedded", source, target)
        wait_for(lambda: not process.running() or process.out.count("\n") >= after, 300, "items of a sync", every_s=0.005)
        if not process.running():
            process.wait().ok()
            return False
        process.kill()
        process.finish()
        self.kills += 1
        return True

    def kill_store(self):
        """Kills the owner of the embedded store, too; the next sync starts another."""
        for pid, command in processes.descendants().items():
            if "serve" in command:
                os.kill(pid, signal.SIGKILL)
                self.store_kills += 1


def go_there_and_back(penstock, folder, draws, count, kills, each, with_store=False):
    there, back = folder / "there", folder / "back"
    killing = Killing(penstock, draws)
    penstock.run("mb", "--endpoint-url", "embedded", "s3://images").ok()

    for source, target in [(there, "s3://images/set"), ("s3://images/set", back)]:
        for number in range(kills // 2):
            killing.killed(source, target, draws.randrange(1, each))
            if with_store and number % 5 == 4:
                killing.kill_store()
        result = penstock.run("sync", "--endpoint-url", "embedded", source, target, deadline_s=1200).ok()
        assert f"{count} unchanged" in penstock.run("sync", "--endpoint-url", "embedded", source, target, deadline_s=600).ok().err, result.err

    assert killing.kills >= kills * 3 // 4, "too few kills came in the middle of a sync"
    assert not with_store or killing.store_kills, "the store was never killed"
    expected = content(there)
    assert len(expected) == count and content(back) == expected


def test_a_killed_sync_is_continued(penstock, tmp_path):
    draws = random.Random(SEED)
    draw(tmp_path / "there", 2000, draws)

    go_there_and_back(penstock, tmp_path, draws, 2000, kills=6, each=300)


# The same command resumes within a large object, and leaves no other file at the end.
@pytest.mark.parametrize("way", ["down", pytest.param("up", marks=pytest.mark.long)])
@pytest.mark.parametrize("end", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_a_large_transfer_is_gone_on_with_where_asked(penstock, store, fault_proxy, tmp_path, way, end):
    body = random.Random(SEED).randbytes(80 << 20)
    env = store.env | {"AWS_ENDPOINT_URL": fault_proxy.url}
    store.client.create_bucket(Bucket="bucket")
    if way == "up":
        (tmp_path / "big").write_bytes(body)
        arguments = ["cp", "--resume", "big", "s3://bucket/big"]
        held = fault_proxy.fault(method="PUT", query="partNumber=[6-9]&", hold="request", times=1000)
    else:
        store.client.put_object(Bucket="bucket", Key="big", Body=body)
        arguments = ["cp", "--resume", "s3://bucket/big", "out"]
        held = fault_proxy.fault(method="GET", path="/big$", skip=3, hold="request", times=1000)

    process = penstock.popen(*arguments, env=env, cwd=tmp_path)

    def moved(since=0):
        return sum(each.received + each.sent for each in fault_proxy.seen(path="/big$") if each.ended and each.number >= since)

    def recorded():
        """Returns the number of recorded parts of an upload, or of recorded 1 MiB blocks of a
        download."""
        journals, line = ((penstock.home / "transfers").glob("*"), b" P ") if way == "up" else (tmp_path.glob("out*journal*"), b" B ")
        return sum(journal.read_bytes().count(line) for journal in journals if journal.is_file())

    # Parts that have arrived, but are not recorded yet, are sent again.
    wait_for(lambda: held.hits and recorded() >= (2 if way == "up" else 16), 60, "two parts of the object")
    process.send(end)
    process.wait()
    fault_proxy.clear()
    before = len(fault_proxy.seen())
    again = penstock.run(*arguments, env=env, cwd=tmp_path).ok()

    assert "1 copied" in again.err
    assert moved(before) < len(body) - (8 << 20), "the whole object was moved again"
    assert store.bytes("bucket", "big") == body
    assert "Uploads" not in store.client.list_multipart_uploads(Bucket="bucket")
    if way == "down":
        assert (tmp_path / "out").read_bytes() == body
        assert not [name for name in os.listdir(tmp_path) if name.startswith("out.")]


# The images are real ones if the machine has them, else as many files with random bytes.
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_sixty_thousand_images_survive_fifty_kills(penstock, tmp_path):
    draws = random.Random(SEED)
    archive = SHARED / "data" / "cifar10-jpeg.tar.gz"
    if archive.exists():
        with tarfile.open(archive) as images:
            images.extractall(tmp_path / "there")
    else:
        draw(tmp_path / "there", 60_000, draws)

    go_there_and_back(penstock, tmp_path, draws, 60_000, kills=50, each=2000, with_store=True)

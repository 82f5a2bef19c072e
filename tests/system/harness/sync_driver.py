"""Runs the continuous sync alone: tests/support/sync_driver.c with a directory and a real object store."""
import contextlib
import json
import os
import subprocess
import threading
import urllib.parse
from pathlib import Path

import pytest

from .program import Process, binary, has_sanitizer
from .waiting import wait_for


def driver():
    """Returns the path of the driver, which is built with the penstock under test."""
    return binary().parent / "tests" / "unit" / "sync" / "sync-driver"


LIMITED = 'echo "$1" > /proc/sys/user/"$2"; shift 2; exec "$@"'


def limited(number, name):
    """Returns a command prefix that runs the driver in a user namespace with a limit of inotify."""
    if subprocess.run(["unshare", "-Ur", "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("user namespaces are not allowed here")
    return ["unshare", "-Ur", "sh", "-c", LIMITED, "sh", str(number), name]


class Syncer:
    """A sync of `folder`/out to s3://out-bucket/p/, whose writers are the child processes of this test."""

    BUCKET = "out-bucket"
    PREFIX = "p/"
    STATE = "p/.penstock/runs/run/"

    def __init__(self, penstock, store, folder, *options, attempt=1, start=True, root=None, through=(), endpoint=None):
        self.store = store
        self.folder = folder
        self.out = root or folder / "out"
        self.out.mkdir(exist_ok=True)
        self.private = folder / "private"
        self.journal = folder / "journal"
        arguments = [
            *through, driver(), "--dir", self.out, "--private", self.private, "--journal", self.journal, "--bucket", self.BUCKET,
            "--prefix", self.PREFIX, "--attempt", attempt, "--root-pid", os.getpid(), *options,
        ]  # fmt: skip
        env = penstock.env | store.env | ({"AWS_ENDPOINT_URL": endpoint} if endpoint else {})
        self.process = Process(arguments, env, folder, stdin=subprocess.PIPE)
        penstock.started.append(self.process)
        self.lock = threading.Lock()
        self.taken, self.rest, self.parsed = 0, b"", []
        if start:
            self.start()

    # Output of the driver.

    def lines(self):
        chunks = self.process.chunks["out"]
        while self.taken < len(chunks):
            *whole, self.rest = (self.rest + chunks[self.taken]).split(b"\n")
            self.taken += 1
            self.parsed += map(json.loads, whole)
        return self.parsed

    def ask(self, command, deadline_s=60):
        """Sends a command to the driver. Returns the answer."""
        with self.lock:
            before = len(self.lines())
            self.process.popen.stdin.write(command.encode() + b"\n")
            self.process.popen.stdin.flush()
            word = command.split()[0]

            def answered():
                assert self.process.running(), f"the driver ended: {self.process.err}"
                return next((line for line in self.lines()[before:] if line.get("answer") == word), None)

            return wait_for(answered, deadline_s, f"the answer to {command}")

    def start(self):
        assert self.ask("start")["result"] == "done", self.lines()

    def restore(self):
        answer = self.ask("restore")
        assert "error" not in answer, answer
        return answer

    def flush(self, milliseconds=30000):
        answer = self.ask(f"flush {milliseconds}", milliseconds / 1000 + 30)
        assert answer["result"] == "done", answer
        return self

    def ended(self, killed):
        self.ask(f"ended {int(killed)}")

    def status(self):
        return self.ask("status")

    def manifest(self):
        answer = self.ask("manifest")
        assert "error" not in answer, answer
        return {urllib.parse.unquote_to_bytes(entry["path"]): entry for entry in answer["files"]}

    def manifest_list(self, name):
        return self.ask("manifest")[name]

    def events(self, kind=None, path=None):
        found = [line for line in self.lines() if "event" in line]
        return [e for e in found if kind in (None, e["event"]) and path in (None, e["path"])]

    def wait_event(self, kind, path=None, count=1, deadline_s=60):
        return wait_for(
            lambda: (self.events(kind, path) + [None] * count)[count - 1] and self.events(kind, path),
            deadline_s,
            f"{count} events {kind} of {path}",
        )[-1]

    def warnings(self):
        return [urllib.parse.unquote(e["detail"]) for e in self.events("warning")]

    def watches(self, pid):
        """Returns True if the driver watches that process as a writer: it has a pidfd of the process."""
        for info in Path(f"/proc/{self.process.pid}/fdinfo").iterdir():
            with contextlib.suppress(FileNotFoundError):
                if f"Pid:\t{pid}\n" in info.read_text():
                    return True
        return False

    def quit(self):
        self.process.popen.stdin.write(b"quit\n")
        self.process.popen.stdin.close()
        assert self.process.popen.wait(30) == 0, self.process.err
        self.process.finish()
        return self

    def kill(self):
        self.process.kill()
        return self

    def check_peak(self):
        """Checks that the driver's peak memory is within the limit of a supervisor."""
        with open(f"/proc/{self.process.pid}/status") as status:
            peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
        print(f"peak of {peak} kB")
        if not has_sanitizer():
            assert peak <= 32 * 1024

    # Contents of the store.

    def object(self, path):
        return self.store.bytes(self.BUCKET, self.PREFIX + path)

    def has(self, path):
        return self.PREFIX + path in self.store.keys(self.BUCKET, self.PREFIX + path)

    def partial(self, path):
        return self.store.bytes(self.BUCKET, f"{self.STATE}partial/{path}")

    def paths(self):
        """Returns the keys of the output, without those of penstock's state."""
        keys = [key[len(self.PREFIX) :] for key in self.store.keys(self.BUCKET, self.PREFIX)]
        return sorted(key for key in keys if not key.startswith(".penstock/"))

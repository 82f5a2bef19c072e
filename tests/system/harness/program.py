"""Runs penstock and its store without the user's home, credentials and the machine-wide claims."""
import json
import os
import re
import secrets
import select
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from .waiting import wait_for

TOP = Path(__file__).resolve().parents[3]
SHARED = TOP.parent / "shared"
PASSED_ON = ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "LSAN_OPTIONS", "LLVM_PROFILE_FILE")
MAKING_CLIENT = threading.Lock()  # boto3's default session is not thread-safe


def binary():
    path = Path(os.environ.get("PENSTOCK", TOP / "build" / "penstock")).resolve()
    if not os.access(path, os.X_OK):
        raise FileNotFoundError(f"cannot find the program '{path}'; run make, or set PENSTOCK to its path")
    return path


def has_sanitizer():
    """Returns True if the program is built with a sanitizer, which takes several times the memory."""
    return "asan" in str(binary()) or "tsan" in str(binary())


def preloading(library):
    """Returns the variables that load `library` before the libraries of the program. By default,
    AddressSanitizer refuses such a library."""
    options = [*filter(None, [os.environ.get("ASAN_OPTIONS")]), "verify_asan_link_order=0"]
    return {"LD_PRELOAD": str(library), "ASAN_OPTIONS": ":".join(options)}


def environment(home=None):
    """
    Returns the environment of the program, and of training programs that a test starts without
    penstock. The caller's variables that select the instructions or threads of torch, BLAS or the C
    library are left out: they change the last bits of trained weights.
    """
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "HOME": str(home or os.environ["HOME"]),
        "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
        "PYTHONDONTWRITEBYTECODE": "1",
    } | {name: os.environ[name] for name in PASSED_ON if name in os.environ}


@dataclass
class Result:
    arguments: list
    code: int
    out: str
    err: str
    seconds: float

    @property
    def text(self):
        return self.out + self.err

    def ok(self):
        """Returns this result if the exit code is 0; otherwise fails the test with the output."""
        return self.exits(0)

    def exits(self, code):
        assert self.code == code, (
            f"penstock {' '.join(map(str, self.arguments))}: exit code {self.code}, not {code}"
            f"\n--- stdout\n{self.out}\n--- stderr\n{self.err}"
        )
        return self

    def json(self):
        return json.loads(self.ok().out)


class Process:
    """A penstock that runs in the background. A thread reads its output, so that it never blocks on a full pipe."""

    def __init__(self, arguments, env, cwd, stdin=subprocess.DEVNULL):
        self.arguments = arguments
        self.started = time.monotonic()
        self.popen = subprocess.Popen(
            [str(argument) for argument in arguments],
            env=env,
            cwd=cwd,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.chunks = {"out": [], "err": []}
        self.readers = [
            threading.Thread(target=self.collect, args=(stream, name), daemon=True)
            for stream, name in ((self.popen.stdout, "out"), (self.popen.stderr, "err"))
        ]
        for reader in self.readers:
            reader.start()

    def collect(self, stream, name):
        with stream:
            while chunk := os.read(stream.fileno(), 65536):
                self.chunks[name].append(chunk)

    @property
    def pid(self):
        return self.popen.pid

    @property
    def out(self):
        return b"".join(self.chunks["out"]).decode(errors="replace")

    @property
    def err(self):
        return b"".join(self.chunks["err"]).decode(errors="replace")

    def running(self):
        return self.popen.poll() is None

    def wait_for_output(self, pattern, deadline_s=60):
        """Waits for a match of the regular expression in stdout or stderr, and returns the match."""

        def look():
            alive = self.running()
            found = re.search(pattern, self.out, re.M) or re.search(pattern, self.err, re.M)
            if not found and not alive:
                self.finish()
                found = re.search(pattern, self.out + "\n" + self.err, re.M)
                assert found, f"ended with {self.popen.returncode} before {pattern!r}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"
            return found

        try:
            return wait_for(look, deadline_s, f"{pattern!r} in the output")
        except AssertionError as error:
            raise AssertionError(f"{error}\n--- stdout\n{self.out}\n--- stderr\n{self.err}") from None

    def send(self, number=signal.SIGTERM):
        self.popen.send_signal(number)

    def kill(self):
        """Kills this process only, with SIGKILL."""
        self.popen.kill()
        self.popen.wait(30)

    def finish(self):
        for reader in self.readers:
            reader.join(5)  # a grandchild may still hold the pipe

    def wait(self, deadline_s=120):
        """Waits for the end of the process. Returns its Result."""
        if self.popen.returncode is None:
            # The descriptor is readable at the end of the process; Popen.wait() would poll.
            end = os.pidfd_open(self.popen.pid)
            try:
                waiting = select.poll()
                waiting.register(end, select.POLLIN)
                ready = waiting.poll(deadline_s * 1000)
            finally:
                os.close(end)
            if not ready:
                raise AssertionError(
                    f"penstock {' '.join(map(str, self.arguments))}: still running after {deadline_s} s"
                    f"\n--- stdout\n{self.out}\n--- stderr\n{self.err}"
                )
        code = self.popen.wait()
        self.finish()
        return Result(self.arguments, code, self.out, self.err, time.monotonic() - self.started)

    def close(self):
        if self.running():
            self.kill()
        self.finish()


class Penstock:
    """The program with its own home below `folder`. `env` is the environment of every call."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.home = self.folder / "penstock"
        self.claims = self.folder / "claims"
        self.user_home = self.folder / "home"
        self.cwd = self.folder / "cwd"
        for path in (self.claims, self.user_home, self.cwd):
            path.mkdir(parents=True, exist_ok=True)
        self.started = []
        self.prefix = []  # words before the program, for another user or another network
        self.env = environment(self.user_home) | {
            "PENSTOCK_HOME": str(self.home),
            "PENSTOCK_CLAIMS_DIR": str(self.claims),
            "PENSTOCK_PREEMPTION_SOURCES": "none",  # the tests may run on a machine of a cloud
        }

    def popen(self, *arguments, env=None, cwd=None, stdin=subprocess.DEVNULL):
        merged = {key: value for key, value in (self.env | (env or {})).items() if value is not None}
        process = Process([*self.prefix, binary(), *arguments], merged, cwd or self.cwd, stdin)
        self.started.append(process)
        return process

    def run(self, *arguments, env=None, cwd=None, input=None, deadline_s=120):
        """Runs the program to its end. `env` adds variables to the environment; None removes a variable."""
        if input is None:
            return self.popen(*arguments, env=env, cwd=cwd).wait(deadline_s)
        process = self.popen(*arguments, env=env, cwd=cwd, stdin=subprocess.PIPE)
        try:
            with process.popen.stdin as pipe:  # the close writes buffered bytes
                pipe.write(input if isinstance(input, bytes) else input.encode())
        except BrokenPipeError:
            pass  # the program did not read all input; its own message has the reason
        return process.wait(deadline_s)

    def ps(self):
        """Returns the runs, newest first."""
        return self.run("ps", "--json").json()

    def close(self):
        for process in self.started:
            process.close()


class Store:
    """`penstock serve` on a free port, with a boto3 client for it."""

    made_client = None, None  # endpoint and keys of the client, and the client

    def __init__(self, penstock, root, durability=None, access_key=None, secret_key=None, options=()):
        self.penstock = penstock
        self.root = Path(root)
        self.access_key = access_key or "AK" + secrets.token_hex(8).upper()
        self.secret_key = secret_key or secrets.token_urlsafe(30)
        self.options = [*(["--durability", durability] if durability else []), *options]
        self.process = None
        self.endpoint = None
        self.start()

    def start(self, listen="127.0.0.1:0"):
        self.process = self.penstock.popen(
            "serve", "--root", self.root, "--listen", listen, *self.options,
            env={"PENSTOCK_ACCESS_KEY_ID": self.access_key, "PENSTOCK_SECRET_ACCESS_KEY": self.secret_key},
        )  # fmt: skip
        self.endpoint = self.process.wait_for_output(r"listening on (https?://\S+)", 30).group(1)

    @property
    def address(self):
        return self.endpoint.removeprefix("http://")

    @property
    def env(self):
        """The environment of an S3 client of this store."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def boto3(self, endpoint=None, service="s3", keys=(), verify=None, **config):
        """Returns a client, perhaps with another endpoint (such as a proxy), another service, or other keys (and a token)."""
        import boto3
        from botocore.config import Config

        settings = {"s3": {"addressing_style": "path"}, "retries": {"max_attempts": 1}} | config
        names = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
        with MAKING_CLIENT:
            return boto3.client(
                service,
                endpoint_url=endpoint or self.endpoint,
                region_name="us-east-1",
                verify=verify,
                config=Config(**settings),
                **dict(zip(names, keys or (self.access_key, self.secret_key))),
            )

    @property
    def client(self):
        """A client of the store's current endpoint. The client is cached, because creating one takes as long as several requests."""
        now = self.endpoint, self.access_key, self.secret_key
        made_for, client = self.made_client
        if made_for != now:
            client = self.boto3()
            self.made_client = now, client
        return client

    def bytes(self, bucket, key):
        return self.client.get_object(Bucket=bucket, Key=key)["Body"].read()

    def keys(self, bucket, prefix=""):
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

    def kill(self):
        self.process.kill()

    def stop(self, deadline_s=60):
        if self.process.running():
            self.process.send(signal.SIGTERM)
        return self.process.wait(deadline_s)

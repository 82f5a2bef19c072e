"""
Kills runs at chosen moments, and checks the result of the next attempt.

A World is a machine: a home, a store behind a proxy, and a web server. A Round is a job in a World;
the job is killed, continued and checked. The moment of a kill is a system call
(tests/support/kill_at.c), a request that the proxy stops, a stalled download, or a line that a step
prints.
"""
import configparser
import fcntl
import hashlib
import io
import json
import os
import random
import re
import signal
import tarfile
import threading
from dataclasses import dataclass, field
from pathlib import Path

from . import processes
from .http_server import Server
from .kills_proxy import Proxy
from .program import Penstock, Store, binary, preloading
from .registry import busybox, image, layer, serve
from .waiting import wait_for

TOOLS = binary().parent / "tests" / "unit"
STEPS = 5
BODY, RECORD = 24000, 64
BIG_MIB = 65  # more than LIMIT_PUT_SINGLE
PATIENCE_S = 120
MASK = (1 << 64) - 1


# ---- the output of the training (tests/support/kill_trainer.c) ----


def mix(state):
    state = (state + 0x9E3779B97F4A7C15) & MASK
    state = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & MASK
    state = ((state ^ state >> 27) * 0x94D049BB133111EB) & MASK
    return state ^ state >> 31


def compose(step, state):
    words, word = [], state
    for _ in range(BODY // 8):
        words.append(word.to_bytes(8, "little"))
        word = mix(word)
    record = f"step {step} state {state:016x} of {BODY} bytes".encode().ljust(RECORD - 1) + b"\n"
    return record + b"".join(words)[RECORD:-RECORD] + record


def expected():
    """Returns ({name: bytes} of the output of an uninterrupted training run, the state of its last
    step)."""
    made, state = {}, 1
    for step in range(1, STEPS + 1):
        state = mix(state)
        made[f"data-{step}"] = compose(step, state)
    made["ckpt"] = made[f"data-{STEPS}"]
    made["end"] = f"state {state:016x} after {STEPS} steps\n".encode()
    return made, state


EXPECTED, LAST_STATE = expected()
CHECKPOINTS = {EXPECTED[f"data-{step}"] for step in range(1, STEPS + 1)}
FOREIGN = b"an object that was there before\n" * 20

TORN = b"half of a checkpoint"

# A fake Python. A virtual environment is a link to python3 and a file that the fake pip writes
# last. While FOLDER/no-index exists, the fake pip hangs.
PYTHON = """#!/bin/sh
for last; do :; done
case "$2" in
venv) mkdir -p "$last/bin"; ln -s /usr/bin/python3 "$last/bin/python3" ;;
pip) touch {0}/installing; [ ! -e {0}/no-index ] || exec sleep 1000; touch "${{4%/bin/*}}/installed" ;;
esac
"""

INPUT = {"a": b"first member\n" * 4000, "sub/b": random.Random(7).randbytes(300_000), "sub/c": b"last\n"}


def archive():
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in INPUT.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


ARCHIVE = archive()


# ---- a machine ----


class Reader(threading.Thread):
    """Reads the object that is overwritten again and again: every version must be complete."""

    def __init__(self, world):
        super().__init__(daemon=True)
        self.world = world
        self.target = None
        self.seen = 0
        self.broken = []
        self.ended = threading.Event()

    def run(self):
        while not self.ended.wait(0.01):
            target = self.target
            if not target:
                continue
            bucket, key = target
            try:
                found = self.world.s3.get_object(Bucket=bucket, Key=key)["Body"].read()
            except Exception:  # there is no object yet, or the store is down
                continue
            self.seen += 1
            if found not in CHECKPOINTS and found != FOREIGN:
                self.broken.append((key, len(found), found[:80]))


class World:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.penstock = Penstock(self.folder / "p")
        python = self.folder / "python3"
        python.write_text(PYTHON.format(self.folder))
        python.chmod(0o755)
        self.penstock.env |= {"PENSTOCK_FLUSH_PATIENCE": "1", "PENSTOCK_PYTHON": str(python)}
        self.server = Penstock(self.folder / "s")
        self.store = Store(self.server, self.folder / "store")
        self.s3 = self.store.client
        self.s3.create_bucket(Bucket="inputs")
        self.s3.create_bucket(Bucket="out")
        for name, content in INPUT.items():
            self.s3.put_object(Bucket="inputs", Key=f"data/{name}", Body=content)
        host, _, port = self.store.address.rpartition(":")
        self.proxy = Proxy((host, int(port)))
        self.web = Server()
        self.reader = Reader(self)
        self.reader.start()
        self.rounds = 0
        self.embedded = []  # rounds whose output is in the embedded store

    def owner_lives(self):
        """Returns True if a process serves the embedded store."""
        lock = self.penstock.home / "store" / "lock"
        if not lock.exists():
            return False
        with open(lock) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    def owner_answers(self):
        """Returns True if the embedded store is ready: its owner has written owner.json."""
        return self.owner_lives() and (self.penstock.home / "store" / "owner.json").exists()

    def wait_for_idle_owner(self):
        wait_for(lambda: not self.owner_lives(), PATIENCE_S, "the end of the embedded store's owner")

    def check_embedded(self):
        """Checks the output of the rounds with the embedded store."""
        if not self.embedded:
            return
        self.wait_for_idle_owner()
        root = self.penstock.home / "store"
        keys = configparser.ConfigParser()
        keys.read(root / "credentials")
        served = Store(
            self.server, root, access_key=keys["default"]["aws_access_key_id"], secret_key=keys["default"]["aws_secret_access_key"]
        )
        try:
            for made, identity in self.embedded:
                made.check_output(served.client, identity)
        finally:
            served.stop()

    def story(self):
        """Returns the output of the last commands, and the files and the journal of the last round."""
        lines = []
        for process in [each for each in self.penstock.started if "ps" not in each.arguments][-4:]:
            lines += [f"$ penstock {' '.join(map(str, process.arguments[1:]))} ({process.popen.poll()})", process.out, process.err]
        folders = sorted(path for path in self.penstock.home.glob("runs/*/workflow") if f'"r{self.rounds}"' in path.read_text())
        for folder in folders:
            lines += [str(path.relative_to(self.penstock.home)) for path in sorted(folder.parent.rglob("*"))]
            journal = folder.parent / "state" / "sync"
            lines += journal.read_text(errors="replace").split("\n")[-40:] if journal.exists() else []
        return "\n".join(lines)[-12000:]

    def restart_store(self):
        self.store.start(self.store.address)

    def close(self):
        self.reader.ended.set()
        self.reader.join(30)
        self.proxy.close()
        self.web.close()
        if self.store.process.running():
            self.store.stop()
        self.penstock.close()
        self.server.close()

    def living(self, run_id=None):
        """Returns {pid: command line} of the processes of the steps in this home, or of the steps of one run."""
        home, found = f"STORAGE_PATH={self.penstock.home}/".encode(), {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            ours = any(item.startswith(home) for item in environ)
            if ours and (not run_id or f"PENSTOCK_RUN_ID={run_id}".encode() in environ) and processes.is_alive(int(pid)):
                found[int(pid)] = processes.command_line(int(pid))
        return found


# ---- a round ----


@dataclass
class Job:
    input: str = "none"  # none, http, s3
    rename: bool = False  # the checkpoint is saved by a rename
    big: bool = False  # a file is uploaded in parts
    orphan: bool = False  # the trainer is not a child of penstock and outlives it
    foreign: bool = False  # the store has an object of another owner with the checkpoint's name
    continuous: bool = True
    embedded: bool = False
    many: bool = False  # the first step ends with many files in new directories
    delete: bool = False  # with deleteSync; the first step makes `gone`, the last step removes it
    image: bool = False  # the first step runs in a container
    packages: bool = False  # the steps have Python packages
    told: bool = False  # the training handles the signal of a preemption notice
    pace_ms: int = 0
    resources: dict = field(default_factory=dict)


class Round:
    def __init__(self, world, job, rng):
        world.rounds += 1
        self.world = world
        self.job = job
        self.rng = rng
        self.name = f"r{world.rounds}"
        self.bucket = f"run-{self.name}" if job.embedded else "out"
        self.prefix = f"{self.name}/"
        self.folder = world.folder / self.name
        self.folder.mkdir()
        (self.folder / "ledger").touch()
        self.input_path = f"/{self.name}/in.tar.gz"
        self.workflow = self.folder / "wf.json"
        self.process = None
        self.kills = 0
        self.before = {}
        self.suspects = None  # the only names that may be in partial/; None if all names may
        self.torn = {}  # {name: contents} that must be in partial/
        self.flushable = True
        self.layers = []  # paths of the web server
        self.write()
        if job.delete:
            world.s3.put_object(Bucket=self.bucket, Key=self.prefix + "theirs", Body=FOREIGN)
        if job.foreign:
            world.s3.put_object(Bucket=self.bucket, Key=self.prefix + "ckpt", Body=FOREIGN)
        if job.input == "http":
            world.web.add(self.input_path, ARCHIVE)
        world.reader.target = None if job.embedded else (self.bucket, self.prefix + "ckpt")

    def s3_of(self, bucket, path):
        if self.job.embedded:
            return {"region": "r", "bucketUrl": f"s3://{bucket}", "path": path, "endpointUrl": "embedded"}
        store = self.world.store
        return {
            "region": "us-east-1", "bucketUrl": f"s3://{bucket}", "path": path, "accessKeyId": store.access_key,
            "secretAccessKey": store.secret_key, "endpointUrl": self.world.proxy.url, "createBucket": bucket != "inputs",
        }  # fmt: skip

    def write(self):
        job = self.job
        trainer = f"{TOOLS}/kill-trainer {self.folder} {STEPS}"
        trainer += " rename" * job.rename + f" pace={job.pace_ms}" * bool(job.pace_ms) + f" big={BIG_MIB}" * job.big
        prepare = "echo prepared > $DEEPSQUARE_OUTPUT/prep"
        if job.input != "none":
            prepare = "cat $DEEPSQUARE_INPUT/a $DEEPSQUARE_INPUT/sub/b $DEEPSQUARE_INPUT/sub/c > $DEEPSQUARE_OUTPUT/prep"
        if job.many:
            # The shell makes the files itself, so the step ends directly after the last close.
            loop = "n=0; while [ $n -lt 200 ]; do echo x > many/$((n / 10))/$((n % 10)); n=$((n + 1)); done"
            prepare += f"; cd $DEEPSQUARE_OUTPUT; mkdir -p many; cd many; mkdir $(seq 0 19); cd ..; {loop}"
        if job.delete:
            prepare += "; echo x > $DEEPSQUARE_OUTPUT/gone"
        if job.packages:
            prepare += '; test -e "$VIRTUAL_ENV/installed" || exit 9'
        if job.orphan:
            trainer += " & wait $!"
        if job.told:
            trainer = f"trap 'kill $!; exit 0' TERM; {trainer} & wait $!"
        workflow = {
            "name": self.name,
            "resources": {"tasks": 1, "cpusPerTask": 1, "memPerCpu": 256, "gpus": 0} | job.resources,
            "output": {"s3": self.s3_of(self.bucket, f"/{self.name}") | ({"deleteSync": True} if job.delete else {})},
            "continuousOutputSync": job.continuous,
            "enableLogging": True,
            "steps": [
                {"name": "prepare", "run": {"command": prepare}},
                {"name": "train", "run": {"command": trainer}},
            ],
        }
        if job.delete:
            workflow["steps"].append({"name": "clean", "run": {"command": "rm -f $DEEPSQUARE_OUTPUT/gone"}})
        if job.image:
            own = random.Random(self.name).randbytes(400_000)  # busybox is cached from the second round on
            made = image([busybox(), layer({"round": self.name, "data": own})])
            name, self.layers = serve(self.world.web, f"job/{self.name}:v1", made)
            workflow["steps"][0]["run"]["container"] = {"image": name}
        if job.packages:
            (self.folder / "project").mkdir()
            (self.folder / "project" / "requirements.txt").write_text(f"{self.name}\n")
            workflow |= {"context": "project", "python": {"requirements": "requirements.txt"}}
        if job.input == "http":
            workflow["inputs"] = [{"http": {"url": self.world.web.url + self.input_path}, "sha256": hashlib.sha256(ARCHIVE).hexdigest()}]
        elif job.input == "s3":
            workflow["input"] = {"s3": self.s3_of("inputs", "/data")}
        self.workflow.write_text(json.dumps(workflow))

    # -- running and killing --

    def start(self, *words, kill_at=None, armed=None, deaf=False):
        """Starts a command; `kill_at` (OP:WHEN:NUMBER:GLOB) kills it at a system call, once the file `armed` exists, if given."""
        words = words or ("run", self.workflow)
        env = self.preloaded(words[0], kill_at) if kill_at else {}
        if deaf:
            env["KILL_AT_DEAF"] = "1"
        if armed:
            env["KILL_AT_ARMED"] = str(armed)
        self.process = self.world.penstock.popen(*words, env=env)
        return self.process

    def hold_step(self, moment, attempt=1):
        (self.folder / f"hold-{attempt}-{moment}").touch()

    def release_steps(self):
        for path in self.folder.glob("hold-*"):
            path.unlink()

    @staticmethod
    def preloaded(verb, kill_at):
        return preloading(TOOLS / "kill-at.so") | {"KILL_AT": kill_at, "KILL_AT_VERB": verb}

    def start_owner(self, kill_at):
        """Starts the embedded store's owner with penstock's arguments; `kill_at` kills it."""
        root = self.world.penstock.home / "store"
        words = ("serve", "--root", root, "--listen", "127.0.0.1:0", "--embedded", "--durability", "full")
        return self.world.penstock.popen(*words, env=self.preloaded("serve", kill_at))

    def died(self):
        """Waits for the end of the command. Returns True if it was killed by SIGKILL."""
        self.process.popen.wait(PATIENCE_S)
        return self.process.popen.returncode == -signal.SIGKILL

    def reached(self, hold):
        """Waits until the proxy has stopped the request. Returns False if the command ended before that."""
        wait_for(lambda: hold.reached.is_set() or not self.process.running(), PATIENCE_S, f"{hold.pattern} or the end")
        return hold.reached.is_set()

    def kill(self, who):
        """
        Kills penstock with SIGKILL: alone ("penstock"), with the processes of its steps ("group"), or with the store ("store").
        Call this method even after the command was killed by `kill_at`: it kills the remaining processes.
        """
        targets = [] if not self.process.running() else [self.process.pid]
        if who == "group":
            targets += self.world.living(self.run_id())
        if who == "store":
            targets.append(self.world.store.process.pid)
        self.rng.shuffle(targets)
        for pid in targets:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.popen.wait(30)
        self.world.proxy.disarm()
        if who == "store":
            self.world.store.process.popen.wait(30)
        self.kills += 1
        self.remember()
        if who == "store":
            self.world.restart_store()

    # -- the state at the kill --

    def run_id(self):
        for path in self.world.penstock.home.glob("runs/*/workflow"):
            try:
                if json.loads(path.read_text()).get("name") == self.name:
                    return path.parent.name
            except (OSError, ValueError):
                continue
        return None

    def directory(self):
        identity = self.run_id()
        return self.world.penstock.home / "runs" / identity if identity else None

    def journalled(self):
        """Returns the names that the journal of the sync records as closed."""
        folder = self.directory()
        path = folder / "state" / "sync" if folder else None
        if not path or not path.exists():
            return set()
        # A line counts only if it is complete, with its newline and its checksum.
        fields = [line.split(b" ") for line in path.read_bytes().split(b"\n")[:-1]]
        last = {line[2].decode(): line[1] for line in fields if len(line) == 11}
        # If a step died directly before penstock, the journal marks its last files as suspect (S).
        return {name for name, kind in last.items() if kind in (b"C", b"P")}

    def input_is_whole(self):
        """Returns True if the file of the HTTP input is complete on this machine, under any of its names."""
        folder = self.directory()
        if not folder or self.job.input != "http":
            return False
        places = [*folder.glob("storage/input/in.tar.gz"), *folder.glob("state/stage-*/in.tar.gz")]
        return any(path.stat().st_size == len(ARCHIVE) and path.read_bytes() == ARCHIVE for path in places)

    def s3_input_is_whole(self):
        folder = self.directory()
        path = folder / "state" / "stage.json" if folder else None
        try:
            return self.job.input == "s3" and all(mark["complete"] for mark in json.loads(path.read_text())["inputs"])
        except (OSError, TypeError, ValueError, KeyError):
            return False

    def remember(self):
        self.before = {
            "ledger": set((self.folder / "ledger").read_text().split("\n")[:-1]),
            "journalled": self.before.get("journalled", set()) | self.journalled(),
            "input whole": self.input_is_whole(),
            "s3 input whole": self.s3_input_is_whole(),
            "http requests": len(self.world.web.seen(self.input_path)),
            "storage": bool(self.directory() and (self.directory() / "storage").exists()),
        }
        self.world.proxy.seen = []

    # -- afterwards --

    def go_on(self, *words):
        """Runs the next command to its end."""
        words = words or ("run", self.workflow)
        return self.world.penstock.run(*words, deadline_s=PATIENCE_S).ok()

    def continue_and_check(self):
        """Runs the same command again, or another that continues the run, and checks the result."""
        if self.rng.random() < 0.5 or not self.resumed():
            self.go_on()
        self.release_steps()
        self.check()

    def resumed(self):
        """Tries to continue the run by a command other than `run`. Returns True if `resume` has
        continued the run. Otherwise returns False (in some rounds after a `flush`), and the caller
        uses `run`."""
        run = next((run for run in self.world.penstock.ps() if run["name"] == self.name), None)
        if not run or run["state"] != "lost" or not self.directory():
            # The run has ended, or was killed before its workflow was stored, so that only the same
            # command can continue it.
            return False
        if self.rng.random() < 0.6:
            self.go_on("resume", self.name)
            return True
        if self.flushable and (self.directory() / "storage" / "output").exists():
            self.go_on("flush", self.name)
        return False

    def content(self, s3, key):
        try:
            return s3.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        except s3.exceptions.NoSuchKey:
            raise AssertionError(f"no object {key}") from None

    def check(self):
        """Checks, after the end, that the output is in the store and that nothing is left on the machine."""
        run = next(run for run in self.world.penstock.ps() if run["name"] == self.name)
        assert run["state"] == "succeeded", run
        self.check_machine(run["id"])
        self.check_input()
        if self.job.embedded:
            self.world.embedded.append((self, run["id"]))
        else:
            self.check_output(self.world.s3, run["id"])

    def check_output(self, s3, identity):
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self.prefix)
        keys = {entry["Key"][len(self.prefix) :] for page in pages for entry in page.get("Contents", [])}
        for name, content in EXPECTED.items():
            assert name in keys, f"{name} is lost: {sorted(keys)}"
            assert self.content(s3, self.prefix + name) == content, name
        prepared = b"prepared\n" if self.job.input == "none" else b"".join(INPUT.values())
        assert self.content(s3, self.prefix + "prep") == prepared
        self.check_closed(s3, keys, f".penstock/runs/{identity}/")
        if self.job.big:
            self.check_big(s3)
        # An incomplete file (*.penstock-part) of a killed restore may be in partial/, because a
        # flush does not recognise such files. All other files in partial/ must be suspects.
        aside = {key.partition("/partial/")[2] for key in keys if "/partial/" in key and not key.endswith(".penstock-part")}
        assert self.suspects is None or aside <= self.suspects, f"complete files in partial/: {aside - self.suspects}"
        for name, content in self.torn.items():
            assert self.content(s3, f"{self.prefix}.penstock/runs/{identity}/partial/{name}") == content, name
        if self.job.delete:
            assert "gone" not in keys, "what the run has removed is still there"
            assert self.content(s3, self.prefix + "theirs") == FOREIGN
        if self.job.foreign:
            replaced = [key for key in keys if key.startswith(f".penstock/runs/{identity}/replaced/")]
            assert FOREIGN in [self.content(s3, self.prefix + key) for key in replaced], f"the object of another client is lost: {replaced}"
        manifest = json.loads(self.content(s3, f"{self.prefix}.penstock/runs/{identity}/manifest.json"))
        listed = {entry["path"] for entry in manifest["files"]}
        assert {*EXPECTED, "prep"} <= listed and not (self.job.delete and "gone" in listed)
        state = json.loads(self.content(s3, f"{self.prefix}.penstock/runs/{identity}/state.json"))
        assert state["state"] == "succeeded", state
        uploads = s3.list_multipart_uploads(Bucket=self.bucket, Prefix=self.prefix).get("Uploads", [])
        assert uploads == [], f"unfinished uploads are left in the store: {uploads}"

    def check_closed(self, s3, keys, state):
        """Checks the files that only one attempt wrote: they are published, or, if not recorded as closed, in partial/."""
        for name in self.before.get("ledger", ()):
            found = re.fullmatch(r"mine/(\d+)-(\d+)", name)
            if not found:
                continue
            content = f"attempt {found.group(1)} step {found.group(2)}\n".encode()
            if name in self.before["journalled"]:
                assert name in keys, f"{name} was recorded as closed, and is lost"
                assert f"{state}partial/{name}" not in keys, f"{name} was recorded as closed, and is in partial/"
            key = name if name in keys else f"{state}partial/{name}"
            assert key in keys, f"{name} was closed before the kill, and is missing"
            assert self.content(s3, self.prefix + key) == content, key

    def check_big(self, s3):
        size = BIG_MIB << 20
        head = s3.head_object(Bucket=self.bucket, Key=self.prefix + "big")
        assert head["ContentLength"] == size
        for span in ("bytes=0-15", f"bytes={size - 16}-{size - 1}"):
            piece = s3.get_object(Bucket=self.bucket, Key=self.prefix + "big", Range=span)["Body"].read()
            word = LAST_STATE.to_bytes(8, "little")
            assert piece in (word + bytes(8), bytes(8) + word)

    def check_machine(self, identity):
        left = self.world.living(identity)
        assert not left, f"processes of the run are still alive: {left}"
        folder = self.world.penstock.home / "runs" / identity
        assert not (folder / "storage").exists() and not (folder / "tmp").exists()
        assert list(self.world.penstock.claims.glob("claim-*")) == []
        home = self.world.penstock.home
        halves = [*home.glob("images/layers/*.part"), *(path for path in home.glob("venvs/*") if path.suffix not in (".lock", ".use") and not (path / ".complete").exists())]
        assert not halves, halves

    def check_input(self):
        again = [r for r in self.world.web.seen(self.input_path)[self.before.get("http requests", 0) :] if r.sent]
        if self.before.get("input whole"):
            assert not again, f"the input was whole, and {sum(r.sent for r in again)} bytes of it were fetched again"
        if self.before.get("s3 input whole"):
            assert not [line for line in self.world.proxy.seen if line.startswith("GET /inputs/data")]
        assert not self.world.reader.broken, self.world.reader.broken

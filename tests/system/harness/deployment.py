"""`penstock deploy` with the server of model_server.py, and clients that detect each failed request."""
import http.client
import json
import os
import re
import signal
import threading
import time
from pathlib import Path

from .processes import end, is_alive
from .waiting import wait_for

SERVER = Path(__file__).with_name("model_server.py")
QUICK = ("--settle", "200ms", "--interval", "200ms", "--watch", "300ms", "--drain", "10s")
BUCKET = "models"


def weights(version):
    """Returns the contents of a version's file, which identify the version of a reply."""
    return f"weights of {version}"


def publish(store, version, weights, behaviour=None, model="mnist", before=()):
    """Uploads a version as a user does, without a commit; `before` are files to upload first."""
    for name, body in (*before, *((("behaviour", behaviour),) if behaviour else ()), ("weights", weights)):
        store.client.put_object(Bucket=BUCKET, Key=f"{model}/{version}/{name}", Body=body)


class Deployment:
    """A deployment. `process` is the process that the test started; if it is killed, its spare
    process takes over."""

    def __init__(self, penstock, store, *options, model="mnist", server=("{model}",), command=None, home=None, port=0, quick=QUICK,
                 endpoint=None, env=None):  # fmt: skip
        self.store, self.model, self.cwd = store, model, penstock.cwd
        env = store.env | ({"PENSTOCK_HOME": str(home)} if home else {}) | ({"AWS_ENDPOINT_URL": endpoint} if endpoint else {}) | (env or {})
        self.home = Path(env.get("PENSTOCK_HOME", penstock.home))
        command = command or ("/usr/bin/python3", SERVER, *server)
        self.process = penstock.popen("deploy", f"s3://{BUCKET}/{model}", "--listen", f"127.0.0.1:{port}", *quick, *options, "--",
                                      *command, env=env)

    @property
    def err(self):
        return self.process.err

    def look(self, pattern):
        """Returns the matches in the deployment's standard error so far. Fails if there is no match
        and `process` has ended without a SIGKILL."""
        found = re.findall(pattern, self.err)
        assert found or self.process.popen.poll() in (None, -signal.SIGKILL), self.err
        return found

    def wait_for(self, pattern):
        return wait_for(lambda: self.look(pattern), 60, f"{pattern!r} in {self.err!r}")

    def wait_in_service(self, version):
        """Waits until the version is in service. Returns the port."""
        self.port = int(self.wait_for(rf"version '{version}' is in service on \S+ port (\d+)")[-1])
        return self.port

    def get(self, path="/"):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", path, headers={"Connection": "close"})
            reply = connection.getresponse()
            return json.loads(reply.read())
        finally:
            connection.close()

    def state(self):
        """Returns the state of the deployment on this machine."""
        return json.loads(next(self.home.glob("deploy/*/state.json")).read_text())

    def servers(self):
        return [server["pid"] for server in self.state()["servers"] if server]

    def replicas(self):
        """Returns the states of all replicas, from the object next to the model."""
        try:
            text = self.store.bytes(BUCKET, f"{self.model}/.penstock/deploy.json")
        except self.store.client.exceptions.NoSuchKey:
            return {}
        return json.loads(text)["replicas"]

    def mains(self):
        """Returns the pids of the main process and its spare, which are those with this test's working directory."""
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
                if b"deploy" in words[:2] and Path(os.readlink(entry / "cwd")) == self.cwd:
                    found[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                pass  # the process has ended
        return sorted(found, key=lambda pid: found[pid] in found)

    def both(self):
        """Waits for the main process and its spare. Returns their pids."""
        return wait_for(lambda: (lambda found: found if len(found) == 2 else None)(self.mains()))

    def stop(self):
        """Ends the main process: the one that the test started, or the spare that took over."""
        if self.process.running():
            self.process.send()
            self.process.wait(60).exits(0)
            return
        for pid in self.mains()[:1]:
            os.kill(pid, signal.SIGTERM)
            wait_for(lambda: not is_alive(pid), 60, "the end of the spare")

    def close(self):
        while mains := self.mains():
            end(mains)  # a spare may have taken over and started another one meanwhile
        end(self.servers() if list(self.home.glob("deploy/*/state.json")) else [])


class Load:
    """
    Clients that send requests over kept and new connections in turn, until stop(). With `same`, one
    server process loads each new version, so its environment still names the first version.
    """

    def __init__(self, port, clients=4, path="/", same=False):
        self.path, self.same = path, same
        self.port, self.ended, self.errors, self.count, self.versions = port, threading.Event(), [], 0, []
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.run, args=(i,), daemon=True) for i in range(clients)]
        for thread in self.threads:
            thread.start()

    def run(self, number):
        connection, highest = None, 0
        while not self.ended.is_set():
            try:
                fresh = connection is None
                connection = connection or http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
                connection.request("GET", self.path)
                reply = connection.getresponse()
                body = json.loads(reply.read())
                assert reply.status == 200, reply.status
                # The weights contain the version, so a reply that mixes two versions is detected.
                assert self.same or body["weights"] == weights(body["version"]), body
                version = int(body["weights"].rpartition(" ")[2])
                assert not fresh or version >= highest, f"a new connection got version {version} after {highest}"
                highest = max(highest, version)
                if reply.will_close or number % 2:
                    connection.close()
                    connection = None
                with self.lock:
                    self.count += 1
                    if not self.versions or self.versions[-1] != version:
                        self.versions.append(version)
            except (OSError, http.client.HTTPException, ValueError, AssertionError) as error:
                self.errors.append(f"{time.monotonic():.3f}: {type(error).__name__}: {error}")
                connection = None
        if connection:
            connection.close()

    def stop(self):
        self.ended.set()
        for thread in self.threads:
            thread.join(60)
        return self

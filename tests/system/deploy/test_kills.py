"""The main process of a deployment is killed at each operation of a roll, which is the change to a
new version. No request fails, and the next versions come into service. The spare is the process
that takes over from a killed main process."""
import itertools
import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.deployment import Deployment, Load, publish, weights
from harness.processes import is_alive, is_stopped
from harness.program import Penstock, binary, preloading
from harness.waiting import wait_for

pytestmark = pytest.mark.preloads

WAYS = {
    "socket": ((), ("{model}",)),
    "HUP": (("--traffic", "HUP", "--health", "http://127.0.0.1:{health_port}/health"), ("{model}", "--port", "{port}", "--health-port", "{health_port}")),
}
BOUND_S = 45  # less than the minute for which a version is refused
NEVER = "any:before:1000000:*"
# Moments of a roll at which the state of the deployment and the state of the machine differ.
MOMENTS = {
    "socket": ("rename:before:1:*/COMMIT.json", "fork:after:1:*", "write:before:1:pipe:*", "rename:after:2:*/state.json", "signal:after:1:*"),
    "HUP": ("rename:after:1:*/state.json", "signal:before:1:*"),
}
# Kills of the spare while it takes over.
SECOND = ("write:before:1:*/state.json.*", "rename:after:1:*/state.json", "send:before:1:*", "fork:after:1:*")


class Rolls:
    """A deployment that rolls from version to version, under load. Its processes die at the points of kill_at()."""

    def __init__(self, models, folder, way):
        folder.mkdir()
        self.models, self.model, self.file, self.trace, self.version = models, folder.name, folder / "kill", folder / "trace", 1
        options, server = WAYS[way]
        env = preloading(binary().parent / "tests/unit/kill-at.so")
        env |= {"KILL_AT_FILE": str(self.file), "KILL_AT_VERB": "deploy", "KILL_AT_TRACE": str(self.trace)}
        publish(models, 1, weights(1), model=self.model)
        self.penstock = Penstock(folder / "p")
        self.deployment = Deployment(self.penstock, models, *options, model=self.model, server=server, env=env)
        self.load = Load(self.deployment.wait_in_service(1), clients=2, same=way == "HUP")
        self.settle()

    def settled(self):
        state = self.deployment.state()
        front = state["servers"][state["front"]]
        return front and front["phase"] == "ready" and front["model"]["version"] == str(self.version) and len(self.deployment.servers()) == 1

    def wait(self, condition, what):
        try:
            wait_for(condition, BOUND_S, f"version {self.version} {what}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.deployment.err}") from None

    def settle(self):
        """Waits until only the newest version has a server, and the spare is there."""
        self.wait(self.settled, "has the only server")
        self.deployment.both()

    def kill_at(self, *points):
        """The first process that reaches the first point dies there; a later process dies at the next point."""
        for name, point in reversed([*zip((self.file, Path(f"{self.file}.next")), points)]):
            new = Path(f"{name}.new")
            new.write_text(point)
            new.rename(name)

    def publish(self):
        self.version += 1
        publish(self.models, self.version, weights(self.version), model=self.model)

    def roll(self):
        self.publish()
        self.wait(lambda: self.deployment.look(f"version '{self.version}' is in service"), "is in service")
        self.settle()

    def check(self):
        assert self.load.errors == []
        home = self.deployment.home
        # A file that a killed process had begun to write may stay until the next version.
        assert [*home.glob("models/*/*.part"), *home.glob("models/*/*.gone"), *home.rglob("*.penstock-part")] == []
        found = {path.parent.name: path.read_text() for path in home.glob(f"models/*/*/{self.model}/*/weights")}
        assert found == {name: weights(name) for name in found} and str(self.version) in found
        assert "cannot serve" not in self.deployment.err

    def roll_with_kill(self, *points):
        """Returns False if no process reached the last point."""
        if points[0].startswith("wait"):
            self.roll()  # a process waits only for servers that it started itself
        self.kill_at(*points)
        self.roll()
        try:
            if self.file.exists():
                self.file.unlink()
                # A process counts its calls from its start, so the next point needs a new process.
                os.kill(self.deployment.mains()[0], signal.SIGKILL)
                return False
        except FileNotFoundError:
            pass  # reached meanwhile
        self.settle()
        self.check()
        return True

    def end(self):
        self.roll()
        self.check()
        left = [*self.deployment.both(), *self.deployment.servers()]
        self.load.stop()
        self.deployment.stop()
        self.check()
        assert self.deployment.replicas() == {}
        wait_for(lambda: not any(map(is_alive, left)), 20, f"the end of {left}")
        assert self.deployment.mains() == [] and self.deployment.servers() == []
        assert self.models.keys("models", f"{self.model}/.penstock/") == [f"{self.model}/.penstock/deploy.json"]

    def close(self):
        self.load.ended.set()
        self.deployment.close()
        self.penstock.close()


@pytest.fixture
def rolls(models, tmp_path):
    """rolls(way): starts a deployment of a model of its own, which ends with the test."""
    started, numbers = [], itertools.count()

    def start(way):
        one = Rolls(models, tmp_path / f"{way}-{next(numbers)}", way)
        started.append(one)
        return one

    yield start
    for one in started:
        one.close()


def places(trace):
    """Returns the points OP:WHEN:NUMBER:GLOB of a roll that was traced."""
    found = {}
    for line in trace.read_text().splitlines():
        op, path = line.split(" ", 1)
        if op == "mkdir" and ".part" not in path:
            continue  # the directory exists
        name = re.sub(r".*/models/\w+/", "*/models/*/", path.replace(trace.parent.name, "*"))
        name = re.sub(r"[0-9a-f]{32}|tmp-\w{6}|\[\d+\]|(?<=/)\d+(?=/|$)|(?<=weights\.)[0-9a-f]+", "*", re.sub(r".*/deploy/\w+", "*/deploy/*", name))
        found[op, name] = found.get((op, name), 0) + 1
    return [f"{op}:{when}:{number}:{name}" for (op, name), count in found.items() for number in range(1, count + 1) for when in ("before", "after")
            if (op, when) != ("wait", "before")]


def traced(rolls):
    rolls.kill_at(NEVER)
    rolls.roll()
    rolls.file.unlink()
    os.kill(rolls.deployment.mains()[0], signal.SIGKILL)
    wait_for(lambda: "was killed" in rolls.deployment.err)
    return places(rolls.trace)


@pytest.mark.parametrize("way", WAYS)
def test_the_process_in_charge_is_killed_during_a_roll(rolls, way):
    one = rolls(way)
    for point in MOMENTS[way]:
        assert one.roll_with_kill(point), point
    one.end()


def test_the_spare_is_killed_while_it_takes_over(rolls):
    """The process that takes over starts the next spare before it changes anything."""
    one = rolls("socket")
    assert one.roll_with_kill(MOMENTS["socket"][0], SECOND[0])
    assert one.deployment.err.count("was killed") == 2
    one.end()


@pytest.mark.parametrize("both", [False, True])
def test_a_server_is_killed_before_its_command_runs(rolls, both):
    """The version is given up, or offered again by the process that takes over."""
    one = rolls("socket")
    main, _ = one.deployment.both()
    one.kill_at("write:stop:1:pipe:*")
    one.publish()
    wait_for(lambda: not one.file.exists() and is_stopped(main))
    server = next(s["pid"] for s in one.deployment.state()["servers"] if s and s["phase"] == "starting")
    os.kill(server, signal.SIGKILL)
    wait_for(lambda: not is_alive(server))
    os.kill(main, signal.SIGKILL if both else signal.SIGCONT)
    if both:
        one.deployment.wait_for("version '2' is in service")
        one.settle()
        one.check()
    else:
        one.deployment.wait_for("cannot serve version '2': its server was ended by signal 9; version '1' stays in service")
    one.roll()
    one.load.stop()
    assert one.load.errors == []
    one.deployment.stop()


WORKERS = 5


def sweep(rolls, way, points):
    """Rolls with a kill at each point, by several deployments at once. Returns the points that no process reached."""
    waiting, missed = iter(points), []

    def work(_):
        one = rolls(way)
        for point in waiting:
            try:
                if not one.roll_with_kill(*point):
                    missed.append(point)
            except AssertionError as error:
                raise AssertionError(f"{way}, killed at {point}: {error}") from None
        one.end()

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(work, range(WORKERS)))
    return missed


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("way", WAYS)
def test_the_process_in_charge_is_killed_at_each_operation(rolls, way):
    first = rolls(way)
    points = [(point,) for point in traced(first)]
    first.settle()
    first.end()
    missed = sweep(rolls, way, points)
    print(f"{way}: {len(points)} points, {len(missed)} not reached: {missed}")
    assert len(missed) <= len(points) // 5


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("way", WAYS)
def test_the_spare_is_killed_at_each_operation_of_its_takeover(rolls, way):
    points = list(itertools.product(MOMENTS[way], SECOND))
    missed = sweep(rolls, way, points)
    print(f"{way}: {len(points)} pairs of points, {len(missed)} not reached: {missed}")
    assert len(missed) <= len(points) // 5

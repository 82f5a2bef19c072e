"""
The main job, killed again and again. The real trainer is killed at random moments; its weights show
if bytes were lost or torn. A tiny trainer is killed in every state of a run's life
(harness/kills_states.py), and each file is checked.
"""
import fcntl
import os
import random
import re
import threading
import time
from collections import Counter

import pytest

from harness.jobs import SMALL, localise, published, unbroken, weights, write
from harness.kills import Job, Round, World
from harness.kills_proxy import Hold
from harness.kills_states import STATES, damage, killed_once

MANY_STEPS = SMALL.replace("--epochs 2", "--epochs 8") + " --step-delay 0.05"


@pytest.fixture(scope="module")
def unbroken_weights(pictures):
    return unbroken(pictures, MANY_STEPS.replace("--step-delay 0.05", ""))


def train_through_kills(penstock, workflow, rng, longest_s):
    """Runs the workflow, and kills penstock after random times, which grow until a run ends by
    itself. Returns the number of kills and the Result."""
    kills, longest = 0, 2.0
    while True:
        running = penstock.popen("run", workflow)
        deadline = time.monotonic() + rng.uniform(0, longest)
        while running.running() and time.monotonic() < deadline:
            time.sleep(0.01)
        if not running.running():
            return kills, running.wait().ok()
        running.kill()
        kills += 1
        longest = min(longest * 1.15, longest_s)


def killed_training_ends_like_an_unbroken_one(penstock, store, dataset_url, folder, seed, unbroken_weights):
    job = localise(published("first"), store, dataset_url, MANY_STEPS) | {"name": f"job-{seed}"}
    workflow = write(job, folder / f"workflow-{seed}.json")

    kills, last = train_through_kills(penstock, workflow, random.Random(seed), longest_s=60)

    assert weights(last.text) == unbroken_weights, f"seed {seed}, {kills} kills\n{last.text}"
    run = next(run for run in penstock.ps() if run["name"] == f"job-{seed}")
    assert run["state"] == "succeeded"
    steps = [int(step) for step in re.findall(r"resumed at step (\d+)", last.text)]
    return kills, steps


@pytest.fixture
def dataset_url(http_server, cifar_archive):
    return http_server.add("/kriz/cifar-10-python.tar.gz", cifar_archive)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_training_survives_kills_at_random_moments(penstock, store, dataset_url, tmp_path, unbroken_weights, seed):
    kills, _ = killed_training_ends_like_an_unbroken_one(penstock, store, dataset_url, tmp_path, seed, unbroken_weights)

    assert kills >= 3, "too few kills: the training ended before"


# PENSTOCK_SOAK_S is the duration. Each training run has another seed, which is printed if the run
# fails.
@pytest.mark.soak
def test_trainings_survive_kills_for_hours(penstock, store, dataset_url, tmp_path, unbroken_weights):
    end = time.monotonic() + float(os.environ.get("PENSTOCK_SOAK_S", 2 * 3600))
    seed = int(time.time())
    kills = trainings = 0

    while time.monotonic() < end or trainings == 0:
        more, _ = killed_training_ends_like_an_unbroken_one(penstock, store, dataset_url, tmp_path, seed, unbroken_weights)
        kills, trainings, seed = kills + more, trainings + 1, seed + 1

    print(f"{trainings} trainings, {kills} kills")
    assert kills > trainings


# ---- every state of a run's life ----


class Campaign:
    """Runs rounds of all states on several machines in parallel, and counts the kills that happened
    in the intended state."""

    def __init__(self, folder, wanted, machines, seed):
        self.folder = folder
        self.wanted = wanted  # {state: kills}
        self.machines = machines
        self.seed = seed
        self.lock = threading.Lock()
        self.kills = Counter()
        self.tried = Counter()
        self.checks = Counter()  # objects that the readers saw
        self.failure = None

    def take(self):
        """Returns (state, its number) of the next round, or None if all kills are done, a round has
        failed, or too many rounds have missed their state."""
        with self.lock:
            open_states = [
                name for name, count in self.wanted.items() if self.kills[name] < count and self.tried[name] < 4 * count + 8
            ]
            if self.failure or not open_states:
                return None
            name = min(open_states, key=lambda name: (self.tried[name] / self.wanted[name], name))
            self.tried[name] += 1
            return name, self.tried[name] - 1

    def work(self, number):
        world = None
        try:
            world = World(self.folder / f"machine-{number}")
            while dealt := self.take():
                name, n = dealt
                kills = self.round(world, name, n)
                with self.lock:
                    self.kills[name] += kills
            world.check_embedded()
        except BaseException as error:
            with self.lock:
                self.failure = self.failure or error
        finally:
            if world:
                self.checks[number] = world.reader.seen
                world.close()

    def round(self, world, name, n):
        """Kills a run in that state, runs the next command, and checks everything. Returns the number of kills in that state."""
        rng = random.Random(f"{self.seed} {name} {n}")
        try:
            made = STATES[name](world, rng, n)
            if made is None:
                return 0
            made.continue_and_check()
        except BaseException as error:
            raise AssertionError(f"killed in the state {name!r}, round {n} of seed {self.seed}: {error}\n{world.story()}") from error
        return 1

    def run(self):
        threads = [threading.Thread(target=self.work, args=(number,)) for number in range(self.machines)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.failure:
            raise self.failure

    def table(self):
        width = max(map(len, self.wanted))
        lines = [f"{name:<{width}} {self.kills[name]:4}" for name in self.wanted]
        return "\n".join(lines + [f"{'all':<{width}} {self.kills.total():4}"])


def killed_everywhere(folder, wanted, seed, capsys):
    campaign = Campaign(folder, wanted, machines=2, seed=seed)

    campaign.run()

    with capsys.disabled():
        print(f"\nkills per state (seed {seed}):\n{campaign.table()}")
    assert all(campaign.kills[name] for name in wanted), f"no kill happened in some state:\n{campaign.table()}"
    assert campaign.checks.total(), "no reader read an object during the kills"
    return campaign


# There is one kill in each state. The seed is fixed, so that every machine does the same.
def test_a_run_is_continued_from_every_state(tmp_path, capsys):
    killed_everywhere(tmp_path, dict.fromkeys(STATES, 1), 1, capsys)


# PENSTOCK_KILL_SEED selects other random choices in the same states; PENSTOCK_KILLS is the number
# of kills.
@pytest.mark.long
def test_hundreds_of_kills_over_every_state(tmp_path, capsys):
    seed = int(os.environ.get("PENSTOCK_KILL_SEED", 2))
    kills = int(os.environ.get("PENSTOCK_KILLS", 500))

    campaign = killed_everywhere(tmp_path, dict.fromkeys(STATES, -(-kills // len(STATES))), seed, capsys)

    assert campaign.kills.total() >= kills, campaign.table()


# ---- faults that these kills have found, each in its own test ----


@pytest.fixture
def world(tmp_path):
    machine = World(tmp_path)
    yield machine
    machine.close()


def killed_at(world, job, hold, at_end=None):
    """Returns a round whose processes were all killed while the proxy held a request."""
    made = Round(world, job, random.Random(1))
    if at_end:
        made.hold_step(at_end)
    made.world.proxy.arm(hold)
    made.start()
    assert made.reached(hold)
    made.kill("group")
    made.release_steps()
    return made


@pytest.mark.parametrize("where", ["head", "reply"])
def test_a_manifest_that_a_killed_attempt_wrote_is_its_own(world, where):
    # The journal does not have the manifest's generation yet. penstock must not take the manifest
    # for that of another machine, whose output would be newer than all local files. The next
    # manifest must have the files that this manifest does not list yet.
    made = killed_at(world, Job(), Hold(r"PUT /out/[^?]*/manifest.json", where), at_end="end")

    made.go_on()

    made.check()


@pytest.mark.parametrize("request_of", [r"POST /out/[^?]*/big\?uploads", r"PUT /out/[^?]*/big\?.*partNumber="])
def test_an_upload_in_parts_that_was_cut_off_is_ended(world, request_of):
    # Only the journal knows this upload. If the upload were not aborted, the store would keep its
    # parts, at the user's cost.
    made = killed_at(world, Job(big=True), Hold(request_of, "reply"))
    begun = world.s3.list_multipart_uploads(Bucket="out")["Uploads"]
    # The upload of another key must not be aborted.
    other = world.s3.create_multipart_upload(Bucket="out", Key=made.prefix + "big-other")["UploadId"]

    made.go_on()

    left = world.s3.list_multipart_uploads(Bucket="out")["Uploads"]
    assert len(begun) == 1 and [upload["UploadId"] for upload in left] == [other]
    world.s3.abort_multipart_upload(Bucket="out", Key=made.prefix + "big-other", UploadId=other)
    made.check()


def test_a_restore_that_was_killed_goes_on_where_it_was(world):
    # The fetched files are complete, so penstock neither fetches them again nor takes them for
    # leftovers of a killed step.
    made = killed_once(world, random.Random(1), Job())
    damage(made, "gone")
    made.start(kill_at="rename:after:3:*/storage/output/*")
    assert made.died()
    made.kill("penstock")
    there = {path.name for path in (made.directory() / "storage" / "output").iterdir() if path.is_file() and not path.suffix}

    made.go_on()

    fetched = {line.split(" ")[1].removeprefix(f"/out/{made.prefix}") for line in world.proxy.seen if line.startswith("GET")}
    assert len(there) >= 2 and not fetched & there, (there, fetched)
    made.check()


def test_a_step_is_not_skipped_before_its_output_is_on_record(world):
    # penstock is killed between two steps, before the thread of the sync has run: the files that
    # the first step closed last are complete, even in new directories.
    made = Round(world, Job(many=True), random.Random(1))
    made.start(kill_at="fork:before:2:*", deaf=True)
    assert made.died()
    made.kill("penstock")

    ended = made.go_on()

    assert "'prepare'" in ended.err
    keys = {entry["Key"] for entry in world.s3.list_objects_v2(Bucket="out", Prefix=made.prefix + "many/")["Contents"]}
    assert keys == {f"{made.prefix}many/{d}/{n}" for d in range(20) for n in range(10)}
    made.check()


def test_a_lock_that_outlives_its_holder_for_a_moment_is_waited_for(world):
    # A child that was forked just before the kill keeps the lock's descriptor until it executes its
    # program.
    made = killed_once(world, random.Random(1), Job())
    held = open(made.directory() / "lock")
    fcntl.flock(held, fcntl.LOCK_EX)
    release = threading.Timer(0.5, held.close)
    release.start()

    made.go_on()

    release.join()
    made.check()


def test_a_flush_between_two_restores_gives_nothing_up(world):
    # The flush finds only the files that the killed restore has fetched. The other files must be
    # restored, not deleted.
    made = killed_once(world, random.Random(1), Job())
    damage(made, "gone")
    made.start(kill_at="rename:before:1:*/storage/output/*")
    assert made.died()
    made.kill("penstock")
    made.go_on("flush", made.name)

    last = made.go_on()

    assert "resumed at step 3\n" in last.out
    made.check()


@pytest.mark.parametrize("place", ["rename:after:1:*/stage-*/in.tar.gz", "rename:after:1:*/storage/input/in.tar.gz"])
def test_an_input_that_was_whole_at_the_kill_is_not_fetched_again(world, place):
    made = Round(world, Job(input="http"), random.Random(1))
    made.start(kill_at=place)
    assert made.died()
    made.kill("penstock")

    made.go_on()

    assert made.before["input whole"]
    made.check()


def test_a_run_that_was_killed_before_it_had_a_log_can_be_flushed(world):
    made = Round(world, Job(), random.Random(1))
    made.start(kill_at="open:before:1:*/log/1")
    assert made.died()
    made.kill("penstock")

    made.go_on("flush", made.name)

    made.go_on()
    made.check()

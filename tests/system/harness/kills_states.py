"""
The places at which runs are killed. A state is a function (world, rng, n) that starts a job and kills it at one of the state's
places; `n` is the number of the round and selects the place. A state returns the Round, or None if the command ended before
it reached the place.
"""
import itertools
import json
import os
import signal

from . import progress
from .kills import PATIENCE_S, STEPS, TORN, Job, Round
from .kills_proxy import Hold
from .registry import BUSYBOX
from .waiting import wait_for

STATES = {}


def state(name):
    def register(function):
        STATES[name] = function
        return function

    return register


def places(*patterns):
    """Returns values of KILL_AT from (op, glob, numbers, whens), ordered so that the first ones differ most."""
    made = [
        [f"{op}:{when}:{number}:{glob}" for number in numbers for when in whens.split()] for op, glob, numbers, whens in patterns
    ]
    return [place for row in itertools.zip_longest(*made) for place in row if place]


def who(rng, *, steps=False, store=True):
    """Returns a random argument for Round.kill()."""
    choices = ["penstock", "penstock"] + ["group"] * (2 if steps else 0) + ["store"] * store
    return rng.choice(choices)


def self_killed(world, rng, job, place, *words, setup=None, steps=False, armed=None):
    """Returns a round that is killed at a system call, or None if the command ended before that."""
    made = Round(world, job, rng)
    if setup:
        setup(made)
    made.start(*words, kill_at=place, armed=armed)
    if not made.died():
        return None
    made.kill(who(rng, steps=steps))
    return made


def stands_at(made, hold):
    """Returns True if the proxy has stopped the request. Otherwise lets the command run to its end and returns False."""
    if made.reached(hold):
        return True
    made.world.proxy.disarm()
    made.process.wait(PATIENCE_S)
    return False


def held(world, rng, job, hold, *, steps=True, at_end=None, also=None):
    """Returns a round that is killed while the proxy holds a request, or None if the command ended before that."""
    made = Round(world, job, rng)
    made.world.proxy.arm(hold)
    if at_end:
        made.hold_step(at_end)
    made.start()
    if also:
        also(made)
    if not stands_at(made, hold):
        return None
    made.kill(who(rng, steps=steps))
    return made


# ---- before anything is recorded ----

LOCK = places(("write", "*/runs/*/lock", [1], "before half after"), ("truncate", "*/runs/*/lock", [1], "before after"))


@state("taking the lock")
def taking_the_lock(world, rng, n):
    return self_killed(world, rng, Job(), LOCK[n % len(LOCK)])


RECORD = places(
    ("write", "*/runs.db-wal", range(1, 5), "before half after"),
    ("sync", "*/runs.db-wal", [1], "before after"),
    ("sync", "*/penstock", [1], "before after"),
)


@state("recording the attempt")
def recording_the_attempt(world, rng, n):
    return self_killed(world, rng, Job(), RECORD[n % len(RECORD)])


SET_UP = places(
    ("any", "*/state/began*", range(1, 5), "before after"),
    ("any", "*/runs/*/workflow*", range(1, 5), "before after"),
    ("mkdir", "*/runs/*/*", range(1, 12), "before"),
    ("open", "*/log/1", [1], "before after"),
)


@state("laying out directories")
def laying_out_directories(world, rng, n):
    return self_killed(world, rng, Job(), SET_UP[n % len(SET_UP)])


CLAIM = places(("any", "*/claims/?*", range(1, 6), "before after"), ("write", "*/claims/claim-*", [1], "half"))


@state("claiming resources")
def claiming_resources(world, rng, n):
    return self_killed(world, rng, Job(), CLAIM[n % len(CLAIM)])


@state("waiting in line")
def waiting_in_line(world, rng, n):
    machine = {"cpusPerTask": os.cpu_count()}
    holder = Round(world, Job(resources=machine), rng)
    holder.hold_step(1)
    holding = holder.start()
    holding.wait_for_output("at step 1", PATIENCE_S)
    made = Round(world, Job(resources=machine), rng)
    made.start().wait_for_output(progress.WAITING, PATIENCE_S)
    made.kill("penstock")
    holder.release_steps()
    holding.wait(PATIENCE_S).ok()
    holder.check()
    return made


# ---- inputs ----

HTTP = places(
    ("write", "*/stage-*/in.tar.gz.*.penstock-part", range(1, 5), "before half after"),
    ("any", "*/stage-*/*.json*", range(1, 8), "before after"),
    ("any", "*/state/stage.json*", range(1, 5), "before after"),
)


@state("fetching over HTTP")
def fetching_over_http(world, rng, n):
    if n % 3:
        return self_killed(world, rng, Job(input="http"), HTTP[n // 3 * 2 + n % 3 - 1 if n < 2 * len(HTTP) else n % len(HTTP)])
    made = Round(world, Job(input="http"), rng)
    world.web.fault(made.input_path, stall_after=rng.randrange(1000, 250_000), stall_s=PATIENCE_S)
    made.start()
    wait_for(lambda: any(r.sent for r in world.web.seen(made.input_path)), PATIENCE_S, "the download")
    made.kill(who(rng))
    return made


UNPACK = places(
    ("any", "*/storage/input/*", range(1, 40), "before after"),
    ("write", "*/storage/input/*", range(1, 8), "half"),
)


@state("unpacking")
def unpacking(world, rng, n):
    return self_killed(world, rng, Job(input="http"), UNPACK[n % len(UNPACK)])


VERIFY = places(
    ("pread", "*/stage-*/in.tar.gz*", range(1, 6), "before after"),
    ("rename", "*/stage-*/in.tar.gz", [1], "before after"),
    ("rename", "*/storage/input/in.tar.gz", [1], "before after"),
    ("any", "*/state/stage.json*", range(5, 13), "before after"),
)


@state("verifying the input")
def verifying_the_input(world, rng, n):
    return self_killed(world, rng, Job(input="http"), VERIFY[n % len(VERIFY)])


S3_INPUT = places(("any", "*/storage/input/*", range(1, 16), "before after"), ("any", "*/state/stage-*", range(1, 10), "before after"))


@state("fetching from S3")
def fetching_from_s3(world, rng, n):
    if n % 2:
        return self_killed(world, rng, Job(input="s3"), S3_INPUT[n // 2 % len(S3_INPUT)])
    where = ["reply-body", "head", "reply"][n // 2 % 3]
    name = ["sub/b", "a"][n // 6 % 2] if n // 2 % 4 else None
    pattern = rf"GET /inputs/data/{name}" if name else r"GET /inputs/?\?.*prefix=data"
    return held(world, rng, Job(input="s3"), Hold(pattern, where), steps=False)


# ---- restoring ----


def killed_once(world, rng, job):
    """Returns a round whose first attempt was killed at step 3, when all files so far were published."""
    made = Round(world, job, rng)
    made.hold_step(3)
    made.start().wait_for_output("at step 3", PATIENCE_S)
    wait_for(lambda: all(published(made, name) for name in ("mine/1-3", "data-3")) and published(made, "ckpt", 3), PATIENCE_S, "step 3 in the store")
    made.kill("group")
    made.release_steps()
    made.suspects = {"train.log"}
    return made


def published(made, name, step=None):
    try:
        found = made.content(made.world.s3, made.prefix + name)
    except AssertionError:
        return False
    return step is None or found.startswith(f"step {step} ".encode())


def damage(made, how):
    """Damages the local files like a step that outlived the run, or like a lost disk."""
    storage = made.directory() / "storage"
    if how == "torn":
        (storage / "output" / "ckpt").write_bytes(TORN)
        made.suspects.add("ckpt")
    elif how == "gone":
        for path in (storage / "output").iterdir():
            if path.is_file():
                path.unlink()


RESTORE = places(
    ("any", "*/storage/output/*", range(1, 30), "before after"),
    ("any", "*/runs/*/tmp/*", range(1, 12), "before after"),
    ("any", "*/state/sync*", range(1, 8), "before after"),
)


@state("restoring")
def restoring(world, rng, n):
    made = killed_once(world, rng, Job(rename=n % 2 == 0))
    damage(made, ["torn", "gone"][n // 2 % 2])
    if n % 3 == 0:
        key = ["ckpt", r"\.penstock/runs/\w+/manifest.json"][n // 3 % 2]
        hold = world.proxy.arm(Hold(rf"GET /out/{made.prefix}{key}", ["reply-body", "head"][n // 6 % 2]))
        made.start()
        if not stands_at(made, hold):
            return None
    else:
        made.start(kill_at=RESTORE[n // 3 * 2 + n % 3 - 1 if n < 2 * len(RESTORE) else n % len(RESTORE)])
        if not made.died():
            return None
    made.kill(who(rng))
    return made


@state("setting a torn file aside")
def setting_aside(world, rng, n):
    """Kills penstock while it uploads a torn file to partial/; the next attempt must complete the
    upload."""
    made = killed_once(world, rng, Job(rename=n % 4 > 1))
    damage(made, "torn")
    made.torn = {"ckpt": TORN}
    hold = world.proxy.arm(Hold(rf"PUT /out/{made.prefix}[^?]*/partial/ckpt\n", ["head", "reply", "body"][n % 3]))
    made.start()
    if not stands_at(made, hold):
        return None
    made.kill(who(rng))
    return made


# ---- another machine ----


@state("taking over")
def taking_over(world, rng, n):
    """Makes another machine the owner; that machine does not renew its lease. Kills penstock while
    it watches the lease, or when it writes the lease for the first time."""
    made = killed_once(world, rng, Job())
    key = f"{made.prefix}.penstock/runs/{made.run_id()}/state.json"
    left = json.loads(made.content(world.s3, key))
    left["owner"] |= {"boot_id": "another", "host": "node7", "home": "/elsewhere"}
    left["lease"]["term_ms"] = 1500
    world.s3.put_object(Bucket="out", Key=key, Body=json.dumps(left).encode())
    made.flushable = False  # only the machine that had the run could flush it
    if n % 3 == 0:
        made.start().wait_for_output(progress.WATCHING, PATIENCE_S)
    else:
        hold = world.proxy.arm(Hold(r"PUT /out/[^?]*/state.json\n", ["reply", "head"][n % 3 - 1]))
        made.start()
        if not stands_at(made, hold):
            return None
    made.kill(who(rng))
    return made


# ---- images and packages of steps ----

IMAGE = places(("any", "*/images/*", range(1, 40, 3), "before after"), ("write", "*/images/*", range(1, 4), "half"))

if os.path.exists(BUSYBOX):

    @state("pulling an image")
    def pulling_an_image(world, rng, n):
        if n % 3:
            return self_killed(world, rng, Job(image=True), IMAGE[(n - n // 3 - 1) % len(IMAGE)])
        made = Round(world, Job(image=True), rng)
        world.web.fault(made.layers[1], stall_after=rng.randrange(1000, 300_000), stall_s=PATIENCE_S)
        made.start()
        wait_for(lambda: any(r.sent for r in world.web.seen(made.layers[1])), PATIENCE_S, "the layer")
        made.kill(who(rng))
        return made


PACKAGES = places(("any", "*/venvs/*", range(1, 12), "before after"))


@state("installing packages")
def installing_packages(world, rng, n):
    if n % 3:
        return self_killed(world, rng, Job(packages=True), PACKAGES[(n - n // 3 - 1) % len(PACKAGES)])
    made = Round(world, Job(packages=True), rng)
    (world.folder / "installing").unlink(missing_ok=True)
    (world.folder / "no-index").touch()
    made.start()
    wait_for((world.folder / "installing").exists, PATIENCE_S, "the installation")
    made.kill(who(rng))
    (world.folder / "no-index").unlink()
    return made


# ---- steps ----


@state("starting a step")
def starting_a_step(world, rng, n):
    place = f"fork:{['after', 'before'][n % 2]}:{n // 2 % 2 + 1}:*"
    return self_killed(world, rng, Job(orphan=n % 4 > 1), place, steps=True)


@state("step running, nothing to send")
def step_running(world, rng, n):
    made = Round(world, Job(orphan=n % 2 == 0, rename=n % 3 == 0), rng)
    made.hold_step(3)
    made.start().wait_for_output("at step 3", PATIENCE_S)
    wait_for(lambda: published(made, "mine/1-3") and published(made, "ckpt", 3), PATIENCE_S, "step 3 in the store")
    victims = ["penstock", "group", "penstock", "store"][n % 4]
    made.kill(victims)
    live_on(made, rng, n)
    return made


@state("closed and recorded")
def closed_and_on_record(world, rng, n):
    made = Round(world, Job(orphan=n % 2 == 0, rename=n % 3 == 0), rng)
    made.hold_step(3)
    # The file is not published, so only the journal records its close. If the step died before penstock, the file would be suspect.
    world.proxy.arm(Hold(r"PUT /out/[^?]*/mine/1-3\n", "head", patience_s=10 * PATIENCE_S))
    made.start().wait_for_output("at step 3", PATIENCE_S)
    wait_for(lambda: "mine/1-3" in made.journalled(), PATIENCE_S, "the close of step 3 in the journal")
    assert not published(made, "mine/1-3")
    made.kill(["penstock", "store"][n % 2])
    assert "mine/1-3" in made.before["journalled"] & made.before["ledger"]  # so that check_closed() requires it
    live_on(made, rng, n)
    return made


def live_on(made, rng, n):
    """Chooses the state of a step that outlived penstock: the step still waits, so that the next
    command must end it; or it runs during the next command, or has ended before that command."""
    if not made.job.orphan or not made.world.living():
        return
    if n // 2 % 3 == 0:
        return  # held: the next command must end it
    made.release_steps()
    if n // 2 % 3 == 1:
        wait_for(lambda: not made.world.living(made.run_id()), PATIENCE_S, "the end of the step that outlived penstock")


@state("step ended")
def step_ended(world, rng, n):
    if n % 2 == 0:
        return self_killed(world, rng, Job(), f"wait:after:{n // 2 % 2 + 1}:*")
    made = Round(world, Job(), rng)
    made.hold_step("end")
    armed = made.folder / "armed"
    op = ["write:before", "write:half", "write:after"][n // 2 % 3]
    made.start(kill_at=f"{op}:{n // 6 % 4 + 1}:*/runs.db-wal", armed=armed).wait_for_output("at end", PATIENCE_S)
    armed.touch()
    made.release_steps()
    if not made.died():
        return None
    made.kill(who(rng))
    return made


# ---- publishing ----


@state("uploading a file")
def uploading_a_file(world, rng, n):
    where = ["body", "reply", "head"][n % 3]
    key = ["ckpt", "data-2", "mine/1-3", "prep", "ckpt"][n // 3 % 5]
    orphan = n % 4 == 3
    hold = Hold(rf"PUT /out/[^?]*/{key}\n", where, number=2 if key == "ckpt" and n // 3 % 2 else 1)
    made = held(world, rng, Job(orphan=orphan, rename=n % 2 == 0, pace_ms=40), hold, at_end=STEPS)
    if made:
        live_on(made, rng, n)
        made.release_steps()
    return made


PART = r"PUT /out/[^?]*/big\?.*partNumber="


@state("uploading in parts")
def uploading_in_parts(world, rng, n):
    where = ["body", "reply", "head"][n % 3]
    return held(world, rng, Job(big=True), Hold(PART, where, number=1 + n % 7), at_end="end")


@state("beginning an upload in parts")
def beginning_in_parts(world, rng, n):
    return held(world, rng, Job(big=True), Hold(r"POST /out/[^?]*/big\?uploads", ["reply", "head"][n % 2]), at_end="end")


@state("completing an upload")
def completing_an_upload(world, rng, n):
    return held(world, rng, Job(big=True), Hold(r"POST /out/[^?]*/big\?uploadId", ["reply", "head", "body"][n % 3]), at_end="end")


@state("keeping a replaced object")
def keeping_a_replaced_object(world, rng, n):
    if n % 3 == 2:
        hold = Hold(rf"PUT /out/[^?]*/ckpt\n.*if-match", ["reply", "head", "body"][n // 3 % 3])
    else:
        hold = Hold(r"PUT /out/[^?]*/replaced/[^?]*ckpt", ["reply", "head"][n % 2])
    return held(world, rng, Job(foreign=True), hold, at_end=STEPS)


JOURNAL = places(
    ("write", "*/state/sync", range(1, 25), "half before after"),
    ("any", "*/state/sync.new", range(1, 4), "before after"),
    ("rename", "*/state/sync", [1], "before after"),
    ("sync", "*/state/sync", [1], "before after"),
)


@state("writing the journal")
def writing_the_journal(world, rng, n):
    job = Job(orphan=n % 5 == 4, rename=n % 2 == 0, pace_ms=rng.choice([0, 15, 40]))
    made = self_killed(world, rng, job, JOURNAL[n % len(JOURNAL)], steps=True)
    if made:
        live_on(made, rng, n)
    return made


@state("deleting what a step removed")
def deleting(world, rng, n):
    made = Round(world, Job(delete=True), rng)
    made.hold_step("end")
    made.start().wait_for_output("at end", PATIENCE_S)
    wait_for(lambda: published(made, "gone"), PATIENCE_S, "what is to be removed in the store")
    hold = world.proxy.arm(Hold(rf"DELETE /out/{made.prefix}gone\n", ["head", "reply"][n % 2]))
    made.release_steps()
    if not stands_at(made, hold):
        return None
    made.kill(who(rng))
    return made


# ---- preemption ----

NOTICE = places(("any", "*/storage/.penstock/*", range(1, 5), "before after"), ("any", "*/runs/*/notice*", range(1, 5), "before after"))


@state("reacting to a notice")
def reacting_to_a_notice(world, rng, n):
    """Kills penstock while it notifies the tasks, in the last flush, or when it records that the run is preempted."""
    made = Round(world, Job(told=True), rng)
    made.hold_step(3)
    armed, hold = made.folder / "armed", None
    if n % 3 == 0:
        made.start(kill_at=NOTICE[n // 3 % len(NOTICE)], armed=armed)
    else:
        made.start()
    made.process.wait_for_output("at step 3", PATIENCE_S)
    wait_for(lambda: published(made, "mine/1-3") and published(made, "ckpt", 3), PATIENCE_S, "step 3 in the store")
    armed.touch()
    if n % 3:
        pattern, body = [(r"PUT /out/[^?]*/(train.log|manifest.json)\n", b""), (r"PUT /out/[^?]*/state.json\n", b'"preempted"')][n % 3 - 1]
        hold = world.proxy.arm(Hold(pattern, ["head", "reply"][n // 3 % 2], body=body))
    made.process.send(signal.SIGTERM)
    if not (made.reached(hold) if hold else made.died()):
        world.proxy.disarm()
        made.process.wait(PATIENCE_S)
        return None
    made.kill(who(rng, steps=True))
    made.release_steps()
    return made


@state("writing the manifest")
def writing_the_manifest(world, rng, n):
    where = ["head", "reply", "body"][n % 3]
    hold = Hold(r"PUT /out/[^?]*/manifest.json", where, number=1 + n // 3 % 2)
    return held(world, rng, Job(pace_ms=[0, 300][n // 3 % 2]), hold)


# ---- the end ----


@state("flushing")
def flushing(world, rng, n):
    key = ["data-3", "ckpt", "end", "train.log", "mine/1-1"][n % 5]
    hold = Hold(rf"PUT /out/[^?]*/{key}\n", ["body", "reply", "head"][n // 5 % 3])
    return held(world, rng, Job(continuous=False, rename=n % 2 == 0), hold, steps=False)


@state("uploading the log")
def uploading_the_log(world, rng, n):
    return held(world, rng, Job(), Hold(r"PUT /out/[^?]*/log/1\n", ["head", "reply", "body"][n % 3]), steps=False)


@state("releasing the lease")
def releasing_the_lease(world, rng, n):
    hold = Hold(r"PUT /out/[^?]*/state.json\n", ["head", "reply", "body"][n % 3], body=b'"succeeded"')
    return held(world, rng, Job(), hold, steps=False)


@state("renewing the lease")
def renewing_the_lease(world, rng, n):
    hold = Hold(r"PUT /out/[^?]*/state.json\n", ["head", "reply"][n % 2], body=[b'"running"', b'"flushing"', b'"staging"'][n // 2 % 3])
    return held(world, rng, Job(), hold)


FINAL = places(("write", "*/runs.db-wal", range(1, 4), "before half after"), ("sync", "*/runs.db-wal", [1], "before after"))


@state("recording the end")
def recording_the_end(world, rng, n):
    """Kills penstock while it records the end: kill_at is armed by the last write of the lease."""
    made = Round(world, Job(), rng)
    armed = made.folder / "armed"
    world.proxy.arm(Hold(r"PUT /out/[^?]*/state.json\n", "nowhere", body=b'"succeeded"', on_reached=armed.touch))
    made.start(kill_at=FINAL[n % len(FINAL)], armed=armed)
    if not made.died():
        world.proxy.disarm()
        return None
    made.kill(who(rng))
    return made


TIDY = places(
    ("rename", "*/published", [1], "before after"),
    ("unlink", "*/storage*", range(1, 22), "before"),
    ("rmdir", "*/runs/*", range(1, 7), "before after"),
    ("unlink", "*/claims/claim-*", [1], "before after"),
    ("sync", "*/log/1", [1], "before after"),
)


@state("removing what was published")
def tidying(world, rng, n):
    return self_killed(world, rng, Job(input=["none", "http"][n % 2]), TIDY[n % len(TIDY)])


# ---- other commands ----


def anywhere(made, rng, n, *words):
    """Kills a command at one of its first 150 changes of files; each round takes another change."""
    made.start(*words, kill_at=f"any:{['before', 'after'][n % 2]}:{1 + n * 7 % 150}:*/p/*")
    if not made.died():
        return None
    made.kill(who(rng))
    return made


@state("resume")
def resume(world, rng, n):
    made = killed_once(world, rng, Job(orphan=False))
    damage(made, ["torn", "gone", "none"][n % 3])
    return anywhere(made, rng, n + 4, "resume", made.name)


@state("flush (the command)")
def flush(world, rng, n):
    made = held(world, rng, Job(continuous=False), Hold(r"PUT /out/[^?]*/data-3\n", "head"), steps=False)
    if n % 2:
        return made and anywhere(made, rng, n + 2, "flush", made.name)
    hold = world.proxy.arm(Hold(r"PUT /out/[^?]*/(ckpt|end|manifest.json|state.json)\n", ["head", "reply", "body"][n // 2 % 3], number=1 + n // 2 % 4))
    made.start("flush", made.name)
    if not made.reached(hold):
        world.proxy.disarm()
        return None
    made.kill(who(rng))
    return made


REMOVE = places(
    ("unlink", "*/runs/*", range(1, 30), "before after"),
    ("rmdir", "*/runs/*", range(1, 8), "before after"),
    ("write", "*/runs.db-wal", range(1, 4), "before half after"),
    ("any", "*/runs/*/lock", range(1, 4), "before after"),
)


@state("rm")
def remove(world, rng, n):
    """Kills rm. A second rm must remove the rest, and the name is free again."""
    made = killed_once(world, rng, Job())
    made.start("rm", "--force", made.name, kill_at=REMOVE[n % len(REMOVE)])
    if not made.died():
        return None
    made.kill("penstock")
    again = world.penstock.run("rm", "--force", made.name)
    assert again.code in (0, 66), again.text  # 66: the first rm had removed everything
    assert all(run["name"] != made.name for run in world.penstock.ps())
    assert made.directory() is None
    made.before["journalled"] = set()
    return made


# ---- the embedded store ----

OWNER_STARTS = places(("any", "*/store/*", range(1, 60, 3), "before after"))
OWNER_SERVES = places(
    ("sync", "*/store/data/*", range(1, 12), "before after"),
    ("write", "*/store/data/*", range(1, 12), "half"),
    ("write", "*/store/meta.db-wal", range(30, 90, 6), "half before"),
    ("sync", "*/store/meta.db-wal", range(3, 16), "before after"),
)


JOINS = places(("any", "*/store/[us]*", range(1, 4), "before after"), ("any", "*/store/lock", range(1, 3), "before after"))


def owner_killed(world, rng, n, place, serving):
    """
    Kills the store's owner at a place, and then the penstock that uses it; in every fourth round penstock runs to its own end.
    The test starts the owner, because an owner that penstock starts does not get KILL_AT.
    """
    made = Round(world, Job(embedded=True, pace_ms=20), rng)
    owner = made.start_owner(place)
    if serving:
        wait_for(lambda: world.owner_answers() or not owner.running(), PATIENCE_S, "the embedded store")
    made.start()
    wait_for(lambda: not owner.running() or not made.process.running(), PATIENCE_S, "the owner's death")
    # The owner was not killed: the run ended before the place, or penstock started another owner
    # first.
    if owner.popen.poll() != -signal.SIGKILL:
        made.process.wait(PATIENCE_S).ok()
        owner.wait(PATIENCE_S)
        return None
    if n % 4 == 3:
        ended = made.process.wait(PATIENCE_S)
        assert ended.code in (0, 69, 73), ended.text
        if ended.code == 73:
            made.go_on("flush", made.name)
    made.kill(rng.choice(["penstock", "group"]))
    return made


@state("embedded store starting")
def embedded_starting(world, rng, n):
    world.wait_for_idle_owner()
    if n % 2 == 0:
        return owner_killed(world, rng, n // 2, OWNER_STARTS[n // 2 % len(OWNER_STARTS)], serving=False)
    return self_killed(world, rng, Job(embedded=True), JOINS[n // 2 % len(JOINS)])


@state("embedded store serving")
def embedded_serving(world, rng, n):
    world.wait_for_idle_owner()
    return owner_killed(world, rng, n, OWNER_SERVES[n % len(OWNER_SERVES)], serving=True)

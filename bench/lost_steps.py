"""Counts the steps that a training run has to repeat after a preemption at a random moment, each time on a new machine.

In half of the preemptions the save fits into the grace period, and no step may be lost. In the other half the training is killed
before it has saved, and only steps after its last commit may be lost.
"""
import json
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import report as reporting
from async_save import package

sys.path.insert(0, str(reporting.TOP / "tests" / "system"))
from harness.program import Penstock, Store  # noqa: E402

COUNT = 100
EVERY = 50  # steps from one asynchronous save to the next
GRACE_S = 1
# Softmax regression by stochastic gradient descent. The program notes in a file at which step it began, and each step that it
# trained or committed.
TRAINER = f"""
import os, sys, time
import numpy
from penstock import checkpoint

notes = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
def note(what, step):
    os.write(notes, b"%s %d\\n" % (what, step))

saved = checkpoint.load() or {{"step": 0, "weights": numpy.zeros((64, 10), dtype=numpy.float32), "random": None}}
step, weights = saved["step"], saved["weights"]
note(b"began", step)
generator = numpy.random.default_rng(3)
if saved["random"]:
    generator.bit_generator.state = saved["random"]
truth, pending = numpy.random.default_rng(1).normal(size=(64, 10)), None
while True:
    inputs = generator.normal(size=(128, 64)).astype(numpy.float32)
    labels = numpy.eye(10, dtype=numpy.float32)[(inputs @ truth).argmax(1)]
    scores = numpy.exp(inputs @ weights)
    weights -= 0.1 * inputs.T @ (scores / scores.sum(1, keepdims=True) - labels) / 128
    step += 1
    note(b"trained", step)
    if pending and pending[0].done():
        note(b"committed", pending[1])
        pending = None
    stop = checkpoint.should_stop()
    if stop and len(sys.argv) > 2:
        time.sleep(3600)  # a save that does not fit
    if stop or (step % {EVERY} == 0 and not pending):
        state = {{"step": step, "weights": weights, "random": generator.bit_generator.state}}
        result = checkpoint.save(state, step, format="safetensors", asynchronous=not stop)
        if stop:
            sys.exit(143)
        pending = (result, step)
"""


class Machines:
    def __init__(self, folder, store):
        self.folder, self.store, self.n, self.last = folder, store, 0, None
        (folder / "trainer.py").write_text(TRAINER)

    def workflow(self, fits):
        transport = {
            "region": "us-east-1", "bucketUrl": "s3://out", "path": "/lost", "accessKeyId": self.store.access_key,
            "secretAccessKey": self.store.secret_key, "endpointUrl": self.store.endpoint,
        }  # fmt: skip
        path = self.folder / "wf.json"
        command = f"exec env PYTHONPATH={package()} /usr/bin/python3 {self.folder}/trainer.py {self.folder}/notes-{self.n}{'' if fits else ' slow'}"
        path.write_text(json.dumps({
            "name": "lost", "resources": {"tasks": 1, "cpusPerTask": 1, "memPerCpu": 512}, "output": {"s3": transport}, "continuousOutputSync": True,
            "checkpoints": {"keep": {"latest": 2}}, "steps": [{"name": "train", "run": {"command": command}}],
        }))  # fmt: skip
        return path

    def notes(self):
        path = self.folder / f"notes-{self.n}"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(what, int(step)) for what, step in (line.split() for line in lines)]

    def preempted(self, fits, after_s):
        """Runs an attempt and preempts it. Returns two numbers of steps of the previous attempt
        that this attempt repeats: of all steps, and of committed steps. Returns None for the first
        attempt.
        """
        self.n += 1
        program = Penstock(self.folder / f"m{self.n}")
        program.env |= {"PENSTOCK_MACHINE": f"m{self.n}"}
        run = program.popen("run", self.workflow(fits))
        end = time.monotonic() + 120
        while not any(what == "trained" for what, _ in self.notes()):
            if time.monotonic() > end or run.popen.poll() is not None:
                raise SystemExit(f"the training did not begin\n{run.wait(10).err}")
            time.sleep(0.005)
        time.sleep(after_s)
        if fits:
            run.send(random.choice((signal.SIGTERM, signal.SIGUSR1)))
        else:
            program.run("preempt", "lost", "--grace", f"{GRACE_S}s").ok()
        result = run.wait(120)
        program.close()
        if result.code != 75:
            raise SystemExit(f"the run ended with {result.code}\n{result.err}")
        return self.judge()

    def judge(self):
        notes, before = self.notes(), self.last
        began, trained = notes[0][1], max(step for what, step in notes if what == "trained")
        committed = max([step for what, step in notes if what == "committed"], default=began)
        self.last = (trained, committed)
        return (before[0] - began, max(0, before[1] - began)) if before else None


def main(report):
    generator = random.Random(100)
    random.seed(100)
    count = report.size(COUNT, 6)
    plan = [True, False] * (count // 2)
    generator.shuffle(plan)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        store = Store(Penstock(Path(folder) / "store"), Path(folder) / "root")
        try:
            store.client.create_bucket(Bucket="out")
            machines = Machines(Path(folder), store)
            # A further attempt shows the result of the last one.
            found = [machines.preempted(fits, generator.uniform(0, 0.6)) for fits in [*plan, True]][1:]
        finally:
            store.stop()
    kept = [lost for fits, (lost, _) in zip(plan, found) if fits]
    killed = [each for fits, each in zip(plan, found) if not fits]
    report.limit(f"steps lost in {len(kept)} preemptions whose save fits the grace", sum(kept), at_most=0, unit="steps")
    report.limit(f"committed steps lost in {len(killed)} in which it does not", sum(committed for _, committed in killed), at_most=0, unit="steps")
    report.figure(f"steps lost in those, each (saved every {EVERY})", sum(lost for lost, _ in killed) / len(killed), unit="steps")

"""The CNN of examples/preemptible on CIFAR-10, preempted again and again, each time on a new machine."""
import json
import random
import re
import signal

import pytest

from harness.metadata import Aws, Azure, Gcp
from harness.program import TOP, Penstock

EXAMPLE = TOP / "examples" / "preemptible"
TRAINER = TOP / "tests" / "system" / "data" / "preempted_trainer.py"
NAME = "preempted-cnn"
PICTURES, BATCH = 320, 8
STEPS_PER_EPOCH = PICTURES // BATCH
SOURCES = ("sigterm", "preempt", "file", "gcp", "sigusr1", "azure", "command", "aws")


class Training:
    """Attempts of one training run, which share only the store and the server with the pictures."""

    def __init__(self, folder, store, url, epochs, every):
        self.folder, self.store, self.url = folder, store, url
        self.options = f"--limit {PICTURES} --batch-size {BATCH} --epochs {epochs} --every {every} --threads 1 --device cpu"
        self.total, self.every = epochs * STEPS_PER_EPOCH, every
        self.attempts = 0
        self.at = 0  # the step that was saved last
        self.programs = []
        self.services = []

    def close(self):
        for program in self.programs:
            program.close()
        for service in self.services:
            service.close()

    def workflow(self, name, sources):
        s3 = {
            "region": "us-east-1", "bucketUrl": "s3://training", "path": f"/{name}", "accessKeyId": self.store.access_key,
            "secretAccessKey": self.store.secret_key, "endpointUrl": self.store.endpoint, "createBucket": True,
        }  # fmt: skip
        path = self.folder / "workflow.json"
        path.write_text(json.dumps({
            "name": name, "resources": {"tasks": 1, "cpusPerTask": 1, "memPerCpu": 1024, "gpus": 0}, "input": {"http": {"url": self.url}},
            "output": {"s3": s3}, "continuousOutputSync": True, "preemption": {"sources": sources, "grace": "300s", "reserve": "100s"},
            "steps": [{"name": "train", "run": {"command": f'exec /usr/bin/python3 {TRAINER} --dataset "$DEEPSQUARE_INPUT" {self.options}'}}],
        }))  # fmt: skip
        return path

    def start(self, name, point="", sources=(), env=None):
        """Starts an attempt on a new machine. Returns the machine's program and the process."""
        self.attempts += 1
        program = Penstock(self.folder / f"machine-{self.attempts}")
        self.programs.append(program)
        variables = {"EXAMPLE": EXAMPLE, "PYTHONPATH": TOP / "build" / "python", "POINT": point, "OMP_NUM_THREADS": 1}
        words = [word for key, value in variables.items() for word in ("--env", f"{key}={value}")]
        return program, program.popen("run", self.workflow(name, list(sources)), *words, env=env)

    def unbroken(self):
        return self.start("unbroken")[1].wait(300).ok().out

    def finish(self):
        out = self.start(NAME)[1].wait(300).ok().out
        return out

    def preempted(self, source, within_save, ahead):
        """Runs one attempt, which is preempted `ahead` steps later, or in the first save after
        these steps. Returns its output."""
        step = self.at + ahead
        if within_save:
            step = -(-step // self.every) * self.every
        arrange = getattr(self, source, None)
        sources, env, tell = arrange() if arrange else ((), None, None)
        program, run = self.start(NAME, f"{'save' if within_save else 'batch'}:{step}", sources, env)
        run.wait_for_output("^standing still", 300)
        if tell:
            tell()
        elif source == "preempt":
            program.run("preempt", NAME, "--grace", "300s").ok()
        else:
            run.send(signal.SIGTERM if source == "sigterm" else signal.SIGUSR1)
        result = run.wait(300).exits(75)
        saved = int(re.search(r"^stopped after .*; saved step (\d+)$", result.out, re.M).group(1))
        assert saved > step if not within_save else saved >= step, result.out
        self.check_resumed(result.out)
        self.at = saved
        return result.out

    def check_resumed(self, out):
        """Checks that no step was lost: the training resumes from the step that was saved last."""
        found = re.search(r"^resumed after .*\(step (\d+)\)$", out, re.M)
        assert int(found.group(1)) == self.at if self.at else not found, f"at {self.at}:\n{out}"

    # Sources of notices. Each returns (sources of the workflow, environment, function that sends
    # the notice).

    def file(self):
        path = self.folder / f"evict-{self.attempts}"
        return [{"file": str(path)}], None, lambda: path.write_text("evicted\n")

    def command(self):
        path = self.folder / f"evict-{self.attempts}"
        return [{"command": f"cat {path} 2>/dev/null"}], None, lambda: path.write_text("evicted\n")

    def service(self, kind, *arguments):
        self.services.append(kind(*arguments))
        return self.services[-1]

    def gcp(self):
        gcp = self.service(Gcp)
        return ["gcp"], {"PENSTOCK_METADATA_GCP": gcp.url}, lambda: gcp.set("preempted", "TRUE")

    def aws(self):
        aws = self.service(Aws)
        return ["aws"], {"PENSTOCK_METADATA_AWS": aws.url, "AWS_EC2_METADATA_DISABLED": None}, lambda: aws.action("terminate", lead_s=600)

    def azure(self):
        azure = self.service(Azure, "vm-7")
        return ["azure"], {"PENSTOCK_METADATA_AZURE": azure.url}, lambda: azure.event("Preempt", ["vm-7"], lead_s=600)


@pytest.fixture
def training(tmp_path, store, http_server, cifar_archive):
    """training(epochs, every): a Training, which saves after each `every` steps."""
    made = []
    url = http_server.add("/cifar-10-python.tar.gz", cifar_archive.read_bytes())

    def make(epochs, every):
        made.append(Training(tmp_path, store, url, epochs, every))
        return made[-1]

    yield make
    for one in made:
        one.close()


def weights(out):
    return re.search(r"^weights sha256 ([0-9a-f]{64})$", out, re.M).group(1)


# Other tests cover each part: run/test_preemption.py has each source, jobs/test_preemptible.py
# compares the weights after a kill and after a notice, and in jobs/test_main_job.py a preempted run
# publishes a checkpoint and resumes from it.
@pytest.mark.long
def test_four_preemptions_change_no_bit_of_the_weights(training):
    train = training(epochs=2, every=7)

    train.preempted("sigterm", within_save=False, ahead=3)
    train.preempted("preempt", within_save=True, ahead=10)
    train.preempted("file", within_save=False, ahead=17)
    train.preempted("gcp", within_save=True, ahead=8)
    out = train.finish()
    train.check_resumed(out)

    assert weights(out) == weights(train.unbroken())


# Each source preempts the training five times, about half of them in a save.
@pytest.mark.long
def test_forty_preemptions_change_no_bit_of_the_weights(training):
    generator = random.Random(40)
    train = training(epochs=10, every=4)
    plan = [(source, within_save) for source in SOURCES for within_save in (False, True, False, True, generator.random() < 0.5)]
    generator.shuffle(plan)
    assert len(plan) == 40 and sum(within_save for _, within_save in plan) >= 16

    for source, within_save in plan:
        train.preempted(source, within_save, generator.randrange(1, 5))
    out = train.finish()
    train.check_resumed(out)

    assert train.at < train.total and weights(out) == weights(train.unbroken())

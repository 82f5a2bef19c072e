"""Experiments of Determined with its real package: the Core API, trial classes and launchers, without a master."""
import json
import textwrap

import pytest

from harness.program import Penstock
from harness.workflows import s3_place

CORE = """
import os, pathlib, sys, time
import determined as det

info = det.get_cluster_info()
with det.core.init() as core:
    first = 0
    if info.latest_checkpoint:
        core.checkpoint.download(info.latest_checkpoint, "down")
        first = int(pathlib.Path("down/step").read_text())
        assert core.checkpoint.get_metadata(info.latest_checkpoint)["steps_completed"] == first == info.trial._steps_completed
    print("begins at", first, info.trial.hparams["lr"], core.distributed.size, flush=True)
    for step in range(first + 1, 7):
        core.train.report_training_metrics(steps_completed=step, metrics={"loss": 1 / step})
        core.train.report_validation_metrics(steps_completed=step, metrics={"accuracy": step / 10})
        pathlib.Path("made").mkdir(exist_ok=True)
        pathlib.Path("made/step").write_text(str(step))
        core.checkpoint.upload("made", {"steps_completed": step})
        print("saved", step, flush=True)
        while step == 3 and os.environ.get("WAITS"):
            if core.preempt.should_preempt():
                sys.exit(0)
            time.sleep(0.05)
print("done", flush=True)
"""
TRIAL = """
import os, time
import torch
from determined import pytorch

class Trial(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(torch.nn.Linear(4, 1))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=context.get_hparam("lr")))

    def data(self):
        torch.manual_seed(7)
        return pytorch.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 4), torch.ones(64, 1)), batch_size=8)

    build_training_data_loader = build_validation_data_loader = data

    def train_batch(self, batch, epoch_idx, batch_idx):
        loss = torch.nn.functional.mse_loss(self.model(batch[0]), batch[1])
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        print("batch", batch_idx, self.context.distributed.size, flush=True)
        while batch_idx == 11 and os.environ.get("WAITS") and not os.path.exists(os.environ["PENSTOCK_PREEMPT_FILE"]):
            time.sleep(0.05)
        return {"loss": loss}

    def evaluate_batch(self, batch):
        return {"val_loss": torch.nn.functional.mse_loss(self.model(batch[0]), batch[1])}
"""


@pytest.fixture
def experiment(penstock, store, determined_venv, tmp_path):
    """experiment(entrypoint, program, **keys): the path of an experiment whose checkpoints go to the bucket `ckpts`."""
    penstock.env["PATH"] = f"{determined_venv}/bin:{penstock.env['PATH']}"
    store.client.create_bucket(Bucket="ckpts")

    def write(entrypoint, program, **keys):
        folder = tmp_path / "experiment"
        folder.mkdir(exist_ok=True)
        (folder / "model_def.py").write_text(textwrap.dedent(program))
        storage = {"type": "s3", "bucket": "ckpts", "prefix": "team", "access_key": store.access_key, "secret_key": store.secret_key, "endpoint_url": store.endpoint}
        whole = {
            "name": "exp", "entrypoint": entrypoint, "hyperparameters": {"lr": 0.1}, "checkpoint_storage": storage, "max_restarts": 0,
            "searcher": {"name": "single", "metric": "val_loss", "smaller_is_better": True, "max_length": {"batches": 16}},
            "min_validation_period": {"batches": 4}, "min_checkpoint_period": {"batches": 4}, "scheduling_unit": 4,
        }  # fmt: skip
        (folder / "const.yaml").write_text(json.dumps(whole | keys))
        return folder / "const.yaml"

    return write


def commits(store):
    """Returns {step: commit} of the commits in the bucket."""
    found = [json.loads(store.client.get_object(Bucket="ckpts", Key=key)["Body"].read()) for key in store.keys("ckpts", "team/checkpoints/") if key.endswith("/COMMIT.json")]
    return {commit["step"]: commit for commit in found}


def metrics(store):
    (key,) = [key for key in store.keys("ckpts", "team/determined/") if key.endswith("/metrics.jsonl")]
    return [json.loads(line) for line in store.client.get_object(Bucket="ckpts", Key=key)["Body"].read().splitlines()]


# The package's own mode without a cluster keeps checkpoints in the user's home and never finds
# these checkpoints again.
def test_checkpoints_of_the_core_api_end_in_the_bucket_and_are_continued_elsewhere(penstock, store, experiment, tmp_path):
    path = experiment("python3 model_def.py", CORE)
    other = Penstock(tmp_path / "other")
    other.env |= {"PATH": penstock.env["PATH"]}

    run = penstock.popen("run", path, "--env", "WAITS=1")
    run.wait_for_output("saved 3")
    stopped = penstock.run("preempt", "exp", "--grace", "30s", "--json").json()
    run.wait()
    again = other.run("run", path).ok()
    verified = other.run("checkpoints", "verify", "exp").ok()
    other.close()

    assert stopped["state"] == "preempted" and run.out.split("\n")[0] == "begins at 0 0.1 1" and "done" not in run.out
    assert again.out == "begins at 3 0.1 1\nsaved 4\nsaved 5\nsaved 6\ndone\n"
    found = commits(store)
    assert sorted(found) == [1, 2, 3, 4, 5, 6] and found[6]["metrics"] == {"accuracy": 0.6} and verified.code == 0
    assert {file["path"] for file in found[3]["files"]} == {"metadata.json", "step"}
    told = metrics(store)
    assert [m["steps_completed"] for m in told if m["group"] == "training"] == [1, 2, 3, 4, 5, 6]


# A machine can die without a notice.
def test_a_trial_of_the_core_api_that_is_killed_continues_from_its_newest_checkpoint(penstock, store, experiment):
    path = experiment("PYTHONPATH=. python3 model_def.py", CORE)
    run = penstock.popen("run", path, "--env", "WAITS=1")
    run.wait_for_output("saved 3")

    run.kill()
    again = penstock.run("run", path).ok()

    assert again.out.startswith("begins at 3 ") and again.out.endswith("saved 6\ndone\n")
    assert sorted(commits(store)) == [1, 2, 3, 4, 5, 6]


def test_checkpoints_on_a_shared_file_system_stay_there_and_are_continued(penstock, experiment, tmp_path):
    path = experiment("python3 model_def.py", CORE, checkpoint_storage={"type": "shared_fs", "host_path": str(tmp_path), "storage_path": "cp"})
    run = penstock.popen("run", path, "--env", "WAITS=1")
    run.wait_for_output("saved 3")

    penstock.run("preempt", "exp").ok()
    run.wait()
    again = penstock.run("run", path).ok()

    assert again.out.startswith("begins at 3 ") and again.out.endswith("done\n")
    assert len(list((tmp_path / "cp").glob("*/COMMIT.json"))) == 6


# After a failure, the trial is restarted within the same attempt.
def test_a_restart_continues_from_the_newest_checkpoint(penstock, store, experiment):
    fails = CORE.replace("        while step == 3 and", "        if step == 4 and first == 0:\n            sys.exit(9)\n        while step == 3 and")
    path = experiment("python3 model_def.py", fails, max_restarts=1)

    done = penstock.run("run", path).ok()

    assert [line for line in done.out.splitlines() if line.startswith("begins")] == ["begins at 0 0.1 1", "begins at 4 0.1 1"]
    assert sorted(commits(store)) == [1, 2, 3, 4, 5, 6]


def test_a_workflow_without_the_dialect_has_the_core_api_by_a_key(penstock, workflow, determined_venv, tmp_path):
    program = tmp_path / "train.py"
    program.write_text(CORE.replace('info.trial.hparams["lr"]', '"-"'))
    penstock.env["PATH"] = f"{determined_venv}/bin:{penstock.env['PATH']}"
    path = workflow(f"cd $STORAGE_PATH && python3 {program}", name="own", python={"determined": True})
    run = penstock.popen("run", path, env={"WAITS": "1"})
    run.wait_for_output("saved 3")

    penstock.run("preempt", "own").ok()
    run.wait()
    again = penstock.run("run", path).ok()

    assert again.out.startswith("begins at 3 - 1\n") and again.out.endswith("done\n")


# More than half of the real experiments name a class, which the package's Trainer runs.
def test_a_pytorch_trial_is_preempted_and_continues_with_the_same_result(penstock, store, experiment, determined_venv):
    path = experiment("model_def:Trial", TRIAL)
    run = penstock.popen("run", path, "--env", "WAITS=1")
    run.wait_for_output("batch 11 ")

    penstock.run("preempt", "exp", "--grace", "60s").ok()
    run.wait()
    before = sorted(commits(store))
    again = penstock.run("run", path).ok()

    found = commits(store)
    batches = [int(line.split()[1]) for line in (run.out + again.out).splitlines() if line.startswith("batch ")]
    assert before == [4, 8, 12] and sorted(found) == [4, 8, 12, 16] and batches == list(range(16))
    assert [sorted(found[step]["metrics"]) for step in sorted(found)] == [["batches", "epochs", "val_loss"]] * 4
    assert found[16]["metrics"]["val_loss"] < found[4]["metrics"]["val_loss"]
    assert any("/tensorboard/events" in key for key in store.keys("ckpts", "team/determined/"))


def test_a_trial_with_several_slots_has_as_many_processes(penstock, store, experiment):
    # Without the first two options, Debian's torch.distributed.run fails in Python 3.11.
    options = ["--redirects", "1", "--tee", "1", "--role", "slot"]
    path = experiment(["python3", "-u", "-m", "determined.launch.torch_distributed", *options, "--", "--trial", "model_def:Trial"], TRIAL,
                      resources={"slots_per_trial": 2})  # fmt: skip

    done = penstock.run("run", path, env={"PENSTOCK_GPUS": "2"}).ok()

    batches = sorted(line for line in done.out.splitlines() if "]:batch " in line)
    assert batches == sorted(f"[slot{rank}]:batch {i} 2" for i in range(16) for rank in range(2))
    assert sorted(commits(store)) == [4, 8, 12, 16]


# The controllers of Keras trials ask Determined's master for each piece of work. Without a master,
# they would wait forever.
def test_a_trial_of_keras_is_refused_by_name(penstock, experiment):
    path = experiment("model_def:Trial", "import determined\nclass TFKerasTrial(determined.LegacyTrial): pass\nclass Trial(TFKerasTrial): pass\n")

    refused = penstock.run("run", path).exits(1)

    assert "TFKerasTrial" in refused.err and "model_def:Trial" in refused.err


def test_a_trial_of_deepspeed_is_refused_by_name(penstock, experiment):
    path = experiment("model_def:Trial", "import determined\nclass DeepSpeedTrial(determined.LegacyTrial): pass\nclass Trial(DeepSpeedTrial): pass\n")

    refused = penstock.run("run", path).exits(1)

    assert "DeepSpeed" in refused.err and "model_def:Trial" in refused.err


def test_without_a_type_checkpoints_go_to_the_store_of_the_configuration(penstock, store, experiment):
    path = experiment("python3 model_def.py", CORE, checkpoint_storage={"save_trial_latest": 2, "save_trial_best": 0})
    (path.parent / "penstock.yaml").write_text(json.dumps({"output": s3_place(store, path="/team", bucket="ckpts")}))

    penstock.run("run", path, "--context", path.parent).ok()

    names = [key for key in store.keys("ckpts", "team/") if key.endswith("/COMMIT.json")]
    assert len(names) == 2 and all(key.startswith("team/exp/checkpoints/") for key in names)


SHARDS = """
import os, pathlib
import determined as det

rank = int(os.environ["RANK"])
with det.core.init(distributed=det.core.DistributedContext.from_torch_distributed()) as core:
    for step in (1, 2):
        folder = pathlib.Path(f"shard-{rank}")
        folder.mkdir(exist_ok=True)
        (folder / f"part-{rank}").write_text(f"{rank} of step {step}")
        core.checkpoint.upload(folder, {"steps_completed": step} if rank == 0 else None, shard=True, selector=lambda name: name == f"part-{rank}")
        assert not core.preempt.should_preempt()
"""


# One checkpoint of all ranks has one commit, which names the files of each.
def test_ranks_save_shards_of_one_checkpoint(penstock, store, experiment):
    path = experiment("python3 -m determined.launch.torch_distributed --redirects 1 --tee 1 -- python3 model_def.py", SHARDS, resources={"slots": 2})

    penstock.run("run", path, env={"PENSTOCK_GPUS": "2"}).ok()

    found = commits(store)
    assert sorted(found) == [1, 2]
    assert {"part-0", "part-1"} <= {file["path"] for file in found[2]["files"]}
    penstock.run("checkpoints", "verify", "exp").ok()

"""Determined's Core API in a run without Determined's master.

penstock writes this file as sitecustomize.py into a directory that is first in PYTHONPATH (`python.determined`). Every
Python of the step imports this file, so the file does nothing until the package `determined` is imported. Then the file
replaces the parts that need the master: `det.get_cluster_info()` reads the variables that a trial has, checkpoints are
committed in the run's output, metrics are files of the output, and the preemption signal is penstock's preempt file.
"""
import os
import sys

CRC = (1 << 64) - 1
HIDDEN = ".penstock-"


# ---- commits: docs/checkpoints.md has the format ----


class Crc64:
    """CRC-64/NVME. numpy computes many lanes of a block at once, because Python has no function for this checksum."""

    LANE = 1024  # bytes
    BLOCK = 8 << 20

    def __init__(self):
        import numpy

        self.np = numpy
        first = []
        for value in range(256):
            for _ in range(8):
                value = (value >> 1) ^ (0x9A6C9329AC4BC9B5 if value & 1 else 0)
            first.append(value)
        tables = [first]
        for _ in range(7):
            tables.append([first[value & 255] ^ (value >> 8) for value in tables[-1]])
        tables = numpy.array(tables, dtype=numpy.uint64)
        pair = numpy.arange(1 << 16)
        self.tables = [tables[7 - i][pair & 255] ^ tables[6 - i][pair >> 8] for i in (0, 2, 4, 6)]
        # shifts[i]: the effect of 2^i zero bytes on each bit of a checksum.
        bits = [1 << i for i in range(64)]
        self.shifts = [numpy.array([first[bit & 255] ^ (bit >> 8) for bit in bits], dtype=numpy.uint64)]
        for _ in range(40):
            self.shifts.append(self.shift(self.shifts[-1], len(self.shifts) - 1))

    def shift(self, values, power):
        """Returns the checksums `values` after 2^power zero bytes."""
        np, columns = self.np, self.shifts[power]
        out = np.zeros_like(values)
        for bit in range(64):
            out ^= columns[bit] * ((values >> np.uint64(bit)) & np.uint64(1))
        return out

    def block(self, data):
        """Returns the checksum of a block, from 0. Zero bytes in front fill up the lanes; they do
        not change the checksum."""
        np = self.np
        lanes = 1
        while lanes * self.LANE < len(data):
            lanes *= 2
        whole = np.zeros(lanes * self.LANE, dtype=np.uint8)
        whole[len(whole) - len(data) :] = np.frombuffer(data, dtype=np.uint8)
        words = np.ascontiguousarray(whole.view("<u8").reshape(lanes, -1).T)
        sums = np.zeros(lanes, dtype="<u8")
        for row in words:
            sums ^= row
            pairs = sums.view("<u2").reshape(lanes, 4).T.astype(np.intp)
            sums = self.tables[0].take(pairs[0], mode="wrap")
            for table, index in zip(self.tables[1:], pairs[1:]):
                sums ^= table.take(index, mode="wrap")
        power = self.LANE.bit_length() - 1
        while len(sums) > 1:
            sums = self.shift(sums[0::2], power) ^ sums[1::2]
            power += 1
        return sums

    def of(self, file):
        np = self.np
        total = np.array([CRC], dtype=np.uint64)
        while True:
            data = file.read(self.BLOCK)
            if not data:
                return int(total[0]) ^ CRC
            for power in range(len(data).bit_length()):
                if len(data) >> power & 1:
                    total = self.shift(total, power)
            total = total ^ self.block(data)


def sync_directory(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def commit(directory, step, metrics):
    """Makes the files of a checkpoint durable and writes its commit."""
    import json
    import time

    crc, files = Crc64(), []
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            inside = os.path.relpath(path, directory)
            if os.path.islink(path) or not os.path.isfile(path) or inside == "COMMIT.json" or inside.startswith(HIDDEN):
                continue
            with open(path, "rb") as file:
                files.append({"path": inside, "size": os.fstat(file.fileno()).st_size, "crc64nvme": "%016x" % crc.of(file)})
                os.fsync(file.fileno())
        sync_directory(folder)
    sync_directory(os.path.dirname(directory))
    now = time.time()
    text = json.dumps({
        "format": "penstock.checkpoint/1", "step": step, "attempt": int(os.environ.get("PENSTOCK_ATTEMPT") or 0),
        "run": os.environ.get("PENSTOCK_RUN_ID") or "", "world_size": 1, "metrics": metrics, "files": files,
        "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + ".%03dZ" % (now % 1 * 1000),
    })  # fmt: skip
    hidden = os.path.join(directory, HIDDEN + "commit")
    with open(hidden, "w") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.rename(hidden, os.path.join(directory, "COMMIT.json"))
    sync_directory(directory)


# ---- the files of a trial ----


def directory_of_checkpoints():
    """Returns the directory that `checkpoint_storage` names, else that of the run."""
    return os.environ.get("PENSTOCK_DETERMINED_STORAGE") or os.environ["PENSTOCK_CHECKPOINT_DIR"]


def place(name):
    """Returns a path in the output for a file that is not part of a checkpoint."""
    directory = os.path.join(os.environ["DEEPSQUARE_OUTPUT"], "determined", os.environ.get("PENSTOCK_RUN_ID") or "run")
    os.makedirs(directory, exist_ok=True)
    return os.path.join(directory, name)


def latest():
    """Returns the ID of the checkpoint to continue from, and its step. The run has verified a checkpoint in its output; for
    a checkpoint elsewhere there is only latest.json."""
    import json

    restored = os.environ.get("PENSTOCK_CHECKPOINT")
    try:
        if restored:
            with open(os.path.join(restored, "COMMIT.json")) as file:
                return os.path.basename(restored), json.load(file)["step"]
        with open(place("latest.json")) as file:
            note = json.load(file)
            return note["storage_id"], note["steps_completed"]
    except (OSError, ValueError, KeyError):
        return None, 0


def reported(before):
    """Yields the validations of the metrics file up to a step: (steps, metrics). A line that a kill has cut is left out."""
    import json

    try:
        with open(place("metrics.jsonl")) as file:
            lines = file.readlines()
    except OSError:
        return
    for line in lines:
        try:
            entry = json.loads(line)
            if entry["group"] == "validation" and entry["steps_completed"] <= before:
                yield entry["steps_completed"], entry["metrics"]
        except (ValueError, KeyError, TypeError):
            pass


def numbers(metrics):
    """Returns the finite numbers among the metrics, without arrays of numpy and torch."""
    import math

    found = {}
    for name, value in metrics.items():
        try:
            if not isinstance(value, (str, bytes)) and math.isfinite(float(value)):
                found[str(name)] = float(value)
        except (TypeError, ValueError, RuntimeError):
            pass
    return found


# ---- requests of the package to its master ----

DEFAULTS = {
    "name": "", "description": "", "labels": [], "data": {}, "debug": False, "max_restarts": 5, "bind_mounts": [],
    "checkpoint_policy": "best", "min_checkpoint_period": {"batches": 0}, "min_validation_period": {"batches": 0},
    "perform_initial_validation": False, "records_per_epoch": 0, "scheduling_unit": 100, "hyperparameters": {},
    "optimizations": {
        "aggregation_frequency": 1, "auto_tune_tensor_fusion": False, "average_aggregated_gradients": True,
        "average_training_metrics": True, "grad_updates_size_file": None, "gradient_compression": False, "mixed_precision": "O0",
        "tensor_fusion_cycle_time": 1, "tensor_fusion_threshold": 64,
    },
    "profiling": {"enabled": False, "begin_on_batch": 0, "end_after_batch": None, "sync_timings": True},
    "reproducibility": {"experiment_seed": 0}, "resources": {"slots_per_trial": 1}, "environment": {"environment_variables": []},
    "searcher": {"name": "single", "metric": None, "smaller_is_better": True},
}  # fmt: skip


def filled(given, defaults):
    """Returns `given` with the defaults of the keys that it lacks, as the master stores a configuration."""
    out = dict(defaults)
    for key, value in given.items():
        if isinstance(value, dict) and isinstance(defaults.get(key), dict) and not key.startswith("min_"):
            value = filled(value, defaults[key])
        if value is not None or key not in defaults:
            out[key] = value
    return out


def configuration():
    import json

    config = filled(json.loads(os.environ.get("DET_EXPERIMENT_CONFIG") or "{}"), DEFAULTS)
    for key in ("min_checkpoint_period", "min_validation_period"):
        if isinstance(config[key], int):
            config[key] = {"batches": config[key]}
    config["checkpoint_storage"] = {"type": "directory", "container_path": directory_of_checkpoints()}
    return config


def create(cls, **values):
    """Makes an object of a class whose constructor differs between versions; other parameters get None."""
    import inspect

    return cls(**{name: values.get(name) for name in inspect.signature(cls).parameters})


def cluster_info(module):
    import json

    slots = json.loads(os.environ.get("DET_SLOT_IDS") or "[]")
    newest, step = latest()
    trial = create(
        module.TrialInfo, trial_id=1, experiment_id=1, trial_seed=int(os.environ.get("DET_TRIAL_SEED") or 0),
        hparams=json.loads(os.environ.get("DET_HPARAMS") or "{}"),
        config=configuration(), steps_completed=step, trial_run_id=int(os.environ.get("DET_TRIAL_RUN_ID") or 1),
        debug=bool(configuration()["debug"]), unique_port_offset=0,
    )  # fmt: skip
    return create(
        module.ClusterInfo, master_url="http://penstock.invalid", cluster_id="penstock", agent_id="penstock", slot_ids=slots, session_token="",
        task_id=os.environ.get("DET_TASK_ID") or "1", allocation_id=os.environ.get("DET_ALLOCATION_ID") or "1.1", task_type="TRIAL",
        latest_checkpoint=newest, trial_info=trial,
        rendezvous_info=create(module.RendezvousInfo, container_addrs=["127.0.0.1"], container_rank=0, container_slot_counts=[len(slots)]),
        resources_info=module.ResourcesInfo(gpu_uuids=module.gpu.get_gpu_uuids()[: len(slots)]),
    )  # fmt: skip


def replace_info(module):
    module.ClusterInfo._from_file = classmethod(lambda cls, *_: cluster_info(module))


class Session:
    """Discards all reports to the master."""

    def __getattr__(self, name):
        return lambda *args, **kwargs: None


class Watcher:
    """Replaces the master, which the package queries for preemptions."""

    start = close = lambda self: None

    def should_preempt(self):
        return os.path.exists(os.environ.get("PENSTOCK_PREEMPT_FILE") or "")


def contexts(core):
    """Returns classes for a context, derived from those for training without a cluster."""
    import determined as det

    class Train(core.DummyTrainContext):
        def _penstock_begin(self, info):
            import pathlib

            searcher = info.trial._config["searcher"]
            self._trial_id, self._exp_id = info.trial.trial_id, info.trial.experiment_id
            self._tbd_directory = pathlib.Path(place("tensorboard"))
            self._metric, self._smaller = searcher["metric"], searcher["smaller_is_better"]
            self._best = self._last = None
            self._validation = (None, {})
            for step, metrics in reported(info.trial._steps_completed):
                self._note(step, metrics)

        def _note(self, step, metrics):
            value = numbers(metrics).get(self._metric)
            if value is not None and (self._best is None or (value < self._best if self._smaller else value > self._best)):
                self._best = value
            self._last, self._validation = step, (step, numbers(metrics))

        def _penstock_metrics(self, step):
            return self._validation[1] if self._validation[0] == step else {}

        def _report_trial_metrics(self, group, steps_completed, metrics, batch_metrics=None):
            entry = {"group": group, "steps_completed": steps_completed, "metrics": {k: v for k, v in metrics.items() if not isinstance(v, bytes)}}
            text = det.util.json_encode(entry)
            with open(place("metrics.jsonl"), "a") as file:
                file.write(text + "\n")
            if group == "validation":
                self._note(steps_completed, metrics)

        # Older versions have no function for all groups.
        def report_training_metrics(self, steps_completed, metrics, batch_metrics=None):
            self._report_trial_metrics("training", steps_completed, metrics, batch_metrics)

        def report_validation_metrics(self, steps_completed, metrics):
            self._report_trial_metrics("validation", steps_completed, metrics)

        def _get_last_validation(self):
            return self._last

        def get_experiment_best_validation(self):
            return self._best

        def get_tensorboard_path(self):
            self._tbd_directory.mkdir(parents=True, exist_ok=True)
            return self._tbd_directory

    class Checkpoint(core.DummyCheckpointContext):
        def _penstock_path(self, storage_id):
            return os.path.join(getattr(self._storage_manager, "_base_path", ""), storage_id)

        def _report_checkpoint(self, storage_id, resources=None, metadata=None):
            import json

            if "steps_completed" not in (metadata or {}):
                raise ValueError("the metadata of a checkpoint must have 'steps_completed'")
            step, path = int(metadata["steps_completed"]), self._penstock_path(storage_id)
            if os.path.isdir(path):
                commit(path, step, self._penstock_train._penstock_metrics(step))
            if os.path.dirname(path) != os.path.abspath(os.environ["PENSTOCK_CHECKPOINT_DIR"]):
                with open(place("latest.json.new"), "w") as file:
                    json.dump({"storage_id": storage_id, "steps_completed": step}, file)
                os.rename(place("latest.json.new"), place("latest.json"))
            super()._report_checkpoint(storage_id, resources, metadata)

        def get_metadata(self, storage_id):
            import json

            with self._storage_manager.restore_path(storage_id) as path, open(os.path.join(str(path), "metadata.json")) as file:
                return json.load(file)

        def delete(self, storage_id):
            # Without its commit, a checkpoint that is half deleted does not count.
            path = os.path.join(self._penstock_path(storage_id), "COMMIT.json")
            if os.path.exists(path):
                os.unlink(path)
            super().delete(storage_id)

    class Preempt(core.PreemptContext):
        def acknowledge_preemption_signal(self):
            pass

    class Searcher(core.DummySearcherContext):
        def get_configured_units(self):
            return self._units

    return Train, Checkpoint, Preempt, Searcher


def replace_core(module):
    def init(*, distributed=None, checkpoint_storage=None, preempt_mode=None, **_):
        import determined as det
        from determined import core

        info = det.get_cluster_info()
        if distributed is None and len(info.slot_ids) > 1:
            raise ValueError("a task with several slots needs a DistributedContext")
        Train, Checkpoint, Preempt, Searcher = contexts(core)
        context = module._dummy_init(distributed=distributed, checkpoint_storage=checkpoint_storage or directory_of_checkpoints())
        context.info = info
        context.train.__class__ = Train
        context.train._penstock_begin(info)
        context.checkpoint.__class__ = Checkpoint
        context.checkpoint._penstock_train = context.train
        context.preempt = Preempt(Session(), info.allocation_id, context.distributed, preempt_mode or core.PreemptMode.WorkersAskChief)
        if context.preempt._watcher is not None:
            context.preempt._watcher = Watcher()
        length = info.trial._config["searcher"].get("max_length")
        if length is not None:
            unit = next(iter(length)) if isinstance(length, dict) else None
            context.searcher = Searcher(context.distributed, length[unit] if unit else length)
            context.searcher._session, context.searcher._trial_id = Session(), 1
            context.searcher._units = core.Unit(unit.upper()) if unit else None
        return context

    module.init = init


def replace_code(module):
    """Writes the code of the working directory into a checkpoint: unlike Determined's containers, a run has no second copy."""
    original = module.write_user_code
    module.write_user_code = lambda path, on_cluster=False: original(path, False)


def refuse_trials(module):
    """Refuses trials of classes whose controllers ask the master for each step of their work."""
    original = module.trial_class_from_entrypoint

    def load(entrypoint):
        found = original(entrypoint)
        for base in found.__mro__:
            if base.__name__ == "DeepSpeedTrial":
                sys.exit("cannot run '%s': trials of DeepSpeed are not supported; use the Core API in a script" % entrypoint)
            if base.__name__ in ("TFKerasTrial", "EstimatorTrial"):
                sys.exit("cannot run '%s': a %s needs Determined's master; use det.keras.DeterminedCallback in a script" % (entrypoint, base.__name__))
        return found

    module.trial_class_from_entrypoint = load


# ---- imports ----

REPLACED = {
    "determined._info": replace_info, "determined.core._context": replace_core, "determined.load": refuse_trials,
    "determined.util": replace_code,
}  # fmt: skip


class Finder:
    """Calls the function of a module after the module was executed."""

    def find_spec(self, name, path=None, target=None):
        replace = REPLACED.get(name)
        if replace is None:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self and hasattr(finder, "find_spec") else None
            if spec is None or spec.loader is None:
                continue
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                replace(module)

            spec.loader.exec_module = exec_module
            return spec
        return None


def other_sitecustomize():
    """Executes the sitecustomize of the machine or of the environment, which this file hides."""
    from importlib.machinery import PathFinder

    here = os.path.dirname(os.path.abspath(__file__))
    spec = PathFinder.find_spec("sitecustomize", [path for path in sys.path if os.path.abspath(path) != here])
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(type(sys)("sitecustomize"))


if "DEEPSQUARE_OUTPUT" in os.environ and "PENSTOCK_CHECKPOINT_DIR" in os.environ:
    sys.meta_path.insert(0, Finder())
other_sitecustomize()

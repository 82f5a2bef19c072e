"""docs/datasets.md: the programs that users copy run unchanged, with data sets in a store."""
import io
import re
import sys

import numpy as np
import pytest
from harness.program import TOP, binary
from harness.sessions import fenced, session

# Python runs without sanitizers even if the program is built with them.
PACKAGE = next(path for path in (TOP / "build" / "python", binary().parent / "python") if (path / "penstock" / "_native.abi3.so").exists())
sys.path.insert(0, str(PACKAGE))
from penstock.data import Dataset  # noqa: E402

PAGE = (TOP / "docs" / "datasets.md").read_text(encoding="utf-8")
PICTURES, BATCH, EPOCHS = 600, 256, 90


def program(word):
    """Returns the only program of the page that contains the word."""
    (found,) = [text for text in fenced(PAGE, "python") if word in text]
    return found


@pytest.fixture
def bucket(store, monkeypatch, tmp_path):
    """The client of a store; the environment selects this store, and puts checkpoints below
    tmp_path."""
    for name, value in (store.env | {"PENSTOCK_CHECKPOINT_DIR": str(tmp_path / "checkpoints")}).items():
        monkeypatch.setenv(name, value)
    return store.client


@pytest.fixture
def cifar10(bucket):
    """The data set of the page, of pictures whose first two bytes are their number."""
    pictures = np.zeros((PICTURES, 3073), "u1")
    pictures[:, 1], pictures[:, 2] = divmod(np.arange(PICTURES), 256)
    bucket.create_bucket(Bucket="cifar10")
    for first in (0, PICTURES // 2):
        bucket.put_object(Bucket="cifar10", Key=f"train/data_batch_{first}.bin", Body=pictures[first : first + PICTURES // 2].tobytes())


class Training:
    """train(batch) of the page: keeps the numbers of the samples, and raises after `stop` batches."""

    def __init__(self, stop=None):
        self.stop, self.seen = stop, []

    def __call__(self, batch):
        self.seen.append([int(sample["image"].flat[0]) * 256 + int(sample["image"].flat[1]) for sample in batch])
        if len(self.seen) == self.stop:
            raise KeyboardInterrupt


class Model:
    """The state that the page saves together with the position of the loader."""

    def state_dict(self):
        return {}


# The first program of the page: all epochs are trained, each with all samples in its own order.
def test_the_first_program_of_the_page_trains_all_its_epochs(cifar10):
    training = Training()

    exec(fenced(PAGE, "python")[0], {"train": training})

    steps = -(-PICTURES // BATCH)
    epochs = [sum(training.seen[i : i + steps], []) for i in range(0, len(training.seen), steps)]
    assert len(epochs) == EPOCHS and all(sorted(epoch) == list(range(PICTURES)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == EPOCHS
    assert {len(batch) for batch in training.seen} == {BATCH, PICTURES % BATCH}


# Both programs of the page: the second loads a position before the loop and saves it after a batch.
@pytest.mark.parametrize("stop", [1, 3, 7])
def test_the_program_of_the_page_resumes_at_the_batch_where_it_was(cifar10, stop):
    first, resume = fenced(PAGE, "python")[0], program("load_state_dict")
    made, loop = re.fullmatch(r"(.*?)^(for epoch in .*)", first, re.M | re.S).groups()
    load, save = re.fullmatch(r"(.*?)^\.\.\.\n(.*)", resume, re.M | re.S).groups()
    whole = Training()
    exec(first.replace(str(EPOCHS), "3"), {"train": whole})
    broken, resumed = Training(stop), Training()

    def train(batch):
        try:
            broken(batch)
        except KeyboardInterrupt:
            exec(save, scope | {"model": Model(), "step": stop})
            raise

    scope = {"train": train}
    with pytest.raises(KeyboardInterrupt):
        exec(made + load + loop.replace(str(EPOCHS), "3"), scope)
    exec(made + load + loop.replace(str(EPOCHS), "3"), {"train": resumed})

    assert len(broken.seen) == stop and broken.seen + resumed.seen == whole.seen


def test_the_mix_of_the_page_deals_by_its_weights(bucket):
    for name, value in (("web", 0), ("books", 1), ("code", 2)):
        content = io.BytesIO()
        np.save(content, np.full(2000, value, "u1"))
        bucket.create_bucket(Bucket=name)
        bucket.put_object(Bucket=name, Key="0.npy", Body=content.getvalue())
    scope = {}

    exec(program("Mix("), scope)
    batch = next(iter(scope["loader"]))

    counts = np.bincount(batch)
    assert len(batch) == BATCH and all(abs(count - BATCH * weight) < 2 for count, weight in zip(counts, (0.7, 0.2, 0.1)))


# The page's commands write an index, inspect the data set and measure it. With the index, the data
# set is the same as before.
def test_the_commands_of_the_page_work_on_its_data_set(cifar10, penstock, store):
    typed = [command.removeprefix("penstock ").split() for command, _ in session(PAGE) if " dataset " in f" {command} "]
    before = Dataset("s3://cifar10/train/")

    outs = {words[1]: penstock.run(*words, env=store.env).ok().out for words in typed}
    data = Dataset("s3://cifar10/train/")

    assert set(outs) == {"index", "inspect", "bench"} and all(words[2] == "s3://cifar10/train/" for words in typed)
    assert "train/.penstock-index" in store.keys("cifar10") and len(data) == len(before) == PICTURES and data.format == before.format == "cifar10"
    assert "cifar10" in outs["inspect"] and str(PICTURES) in outs["inspect"]


# All programs of the page can at least be compiled, and use only names that the package has.
def test_the_programs_of_the_page_name_what_there_is():
    programs = fenced(PAGE, "python")

    assert len(programs) >= 7
    for text in programs:
        compile(text, "docs/datasets.md", "exec")
        for line in re.findall(r"^from penstock\S* import .*", text, re.M):
            exec(line, {})

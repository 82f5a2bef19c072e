"""Loaders that skip unreadable samples: the others are delivered as usual, and the position in the epoch stays exact."""
import os
import warnings

import numpy as np
import pytest
from torch.utils.data import DataLoader

from penstock.data import Dataset, DatasetDamaged, DatasetError, Loader, Mix
from test_data import example, record
from test_loader import flat

pytestmark = pytest.mark.filterwarnings("ignore:samples of", "ignore:This DataLoader will create")


@pytest.fixture
def objects(tmp_path):
    """40 objects; the content of each object is its number, as a byte."""
    for i in range(40):
        (tmp_path / f"{i:02}").write_bytes(bytes([i]))
    return Dataset(tmp_path, "objects")


@pytest.fixture
def records(tmp_path):
    """Two shards of 20 examples, whose feature `a` is their number; samples 3, 5 and 27 are damaged."""
    for shard in range(2):
        rows = [bytearray(record(example(a=[20 * shard + i]))) for i in range(20)]
        for i in (3, 5) if shard == 0 else (7,):
            rows[i][len(rows[i]) - 6] ^= 1
        (tmp_path / f"{shard}.tfrecord").write_bytes(b"".join(rows))
    return Dataset(tmp_path)


def bytes_of(batch):
    return [bytes(sample)[0] for sample in batch]


def numbers_of(batch):
    return [int(sample["a"][0]) for sample in batch]


def spoil(folder):
    """Removes one object and changes another."""
    (folder / "07").unlink()
    (folder / "21").write_bytes(b"longer")


def test_objects_that_are_missing_or_changed_are_skipped_and_counted(tmp_path, objects):
    loader = Loader(objects, 4, collate=bytes_of, on_error="skip")
    spoil(tmp_path)

    batches = list(loader)

    assert [len(batch) for batch in batches] == [4, 3, 4, 4, 4, 3, 4, 4, 4, 4]
    assert flat(batches) == [i for i in range(40) if i not in (7, 21)]
    assert loader.skipped == {"damaged": 0, "changed": 1, "missing": 1} and loader.epoch == 1


@pytest.mark.parametrize("shuffle", [False, True, "window"])
def test_damaged_records_are_skipped_and_their_neighbours_are_not(records, shuffle):
    loader = Loader(records, 8, shuffle=shuffle, block=4, window=2, collate=numbers_of, on_error="skip")
    whole = Loader(Dataset(records.url), 8, shuffle=shuffle, block=4, window=2)
    order = [memoryview(whole._plan(0, (0, 1)).batch(i)[0]).cast("Q").tolist() for i in range(5)]

    batches = list(loader)

    assert batches == [[number for number in batch if number not in (3, 5, 27)] for batch in order]
    assert loader.skipped == {"damaged": 3, "changed": 0, "missing": 0}


@pytest.fixture
def checksums(tmp_path, monkeypatch):
    """checksums(*damaged): a data set of two shards of 100 samples whose reads fail for damaged samples, and the list of its reads."""
    np.save(tmp_path / "0.npy", np.arange(100)), np.save(tmp_path / "1.npy", np.arange(100, 200))
    data = Dataset(tmp_path)
    start, reads = data._start, []

    class Damaged:
        def wait(self):
            raise DatasetDamaged("damaged")

    def make(*damaged):
        def read(ids, memory):
            reads.append(memoryview(ids).cast("Q").tolist())
            return Damaged() if set(reads[-1]) & set(damaged) else start(ids, memory)

        monkeypatch.setattr(data, "_start", read)
        return data, reads

    return make


@pytest.mark.parametrize("damaged", [{0}, {99, 100}, set(range(40, 60)), {1, 77, 150, 199}])
def test_samples_with_another_checksum_are_found_by_halves(checksums, damaged):
    data, _ = checksums(*damaged)
    loader = Loader(data, 64, shuffle=True, on_error="skip")

    batches = list(loader)

    assert sorted(flat(batch.tolist() for batch in batches)) == [i for i in range(200) if i not in damaged]
    assert loader.skipped["damaged"] == len(damaged) and loader.stats()["bytes"] == 8 * (200 - len(damaged))


# Each read of a compressed shard fetches the whole shard, so the loader must give up a shard
# without readable samples after a few reads.
def test_a_shard_of_which_nothing_can_be_read_is_given_up_early(checksums):
    data, reads = checksums(*range(100))
    loader = Loader(data, 200, on_error="skip")

    (batch,) = loader

    assert batch.tolist() == list(range(100, 200)) and loader.skipped["damaged"] == 100 and len(reads) == 1 + 2 + 2 + 4 + 8


def test_a_shard_that_has_changed_is_skipped_whole(tmp_path):
    np.save(tmp_path / "0.npy", np.arange(10)), np.save(tmp_path / "1.npy", np.arange(10, 20))
    loader = Loader(Dataset(tmp_path), 4, shuffle=True, on_error="skip")
    np.save(tmp_path / "0.npy", np.arange(9))

    batches = list(loader)

    assert sorted(flat(batch.tolist() for batch in batches)) == list(range(10, 20)) and all(batch.dtype == np.int64 for batch in batches)
    assert loader.skipped == {"damaged": 0, "changed": 10, "missing": 0}


# An error such as an unavailable store affects every sample, so skipping it would skip the whole
# data set.
def test_other_errors_are_raised(tmp_path, objects, monkeypatch):
    def unavailable(*_):
        error = DatasetError("cannot read '03'")
        error.code = "unavailable"
        raise error

    class Broken:
        wait = unavailable

    monkeypatch.setattr(objects, "_start", lambda *_: Broken())

    with pytest.raises(DatasetError, match="03"):
        list(Loader(objects, 4, on_error="skip"))


def test_errors_are_raised_by_default(records):
    loader = Loader(records, 40)

    with pytest.raises(DatasetDamaged, match="0.tfrecord"):
        list(loader)

    assert loader.skipped == {"damaged": 0, "changed": 0, "missing": 0}


@pytest.mark.parametrize("count", [0, 2])
def test_workers_report_what_they_skip(tmp_path, objects, count):
    loader = Loader(objects, 4, collate=bytes_of, on_error="skip")
    spoil(tmp_path)

    with pytest.warns(RuntimeWarning) as warned:
        batches = list(loader.dataloader(num_workers=count))

    assert flat(batches) == [i for i in range(40) if i not in (7, 21)]
    assert loader.skipped == {"damaged": 0, "changed": 1, "missing": 1}
    assert [name in str(warning.message) for name, warning in zip(("'07'", "'21'"), warned)] == [True, True]


# A state counts positions of the order, including skipped samples, so that other numbers of ranks
# resume at the right position.
@pytest.mark.parametrize("count", [0, 2])
def test_a_state_counts_skipped_samples(tmp_path, objects, count):
    spoil(tmp_path)
    loader = Loader(objects, 4, collate=bytes_of, on_error="skip")

    states = []
    for _ in loader.dataloader(num_workers=count):
        states.append(loader.state_dict())
    again = Loader(objects, 3, collate=bytes_of, on_error="skip")
    again.load_state_dict(states[4])

    assert [state["delivered"] for state in states] == list(range(4, 41, 4))
    assert flat(again) == [i for i in range(20, 40) if i != 21]


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("through", ["dataloader", "iterable"])
def test_a_batch_of_which_nothing_is_left_is_left_out(tmp_path, objects, count, through):
    for i in range(8, 12):
        (tmp_path / f"{i:02}").unlink()
    loader = Loader(objects, 4, collate=bytes_of, on_error="skip")

    torches = DataLoader(loader.iterable(), batch_size=None, num_workers=count) if through == "iterable" else loader.dataloader(num_workers=count)

    got = [list(map(int, batch)) for batch in torches]

    # torch returns the batches of its workers in turn.
    assert (sorted(got) if through == "iterable" else got) == [list(range(i, i + 4)) for i in range(0, 40, 4) if i != 8]


def test_an_epoch_of_which_nothing_is_left_is_an_error(tmp_path, objects):
    loader = Loader(objects, 4, on_error="skip")
    for path in tmp_path.iterdir():
        path.unlink()

    with pytest.raises(DatasetError, match=str(tmp_path)):
        list(loader)

    assert loader.skipped["missing"] == 40 and loader.epoch == 0


def test_sets_of_a_mix_are_skipped_by_themselves(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        for i in range(10):
            (tmp_path / name / str(i)).write_bytes(bytes([i + 10 * (name == "b")]))
    first, mix = (Mix([(Dataset(tmp_path / name, "objects"), 1) for name in "ab"]) for _ in range(2))
    whole = list(Loader(first, 4, shuffle=True, collate=bytes_of))
    (tmp_path / "b" / "7").unlink()
    loader = Loader(mix, 4, shuffle=True, collate=bytes_of, on_error="skip")

    batches = list(loader)

    assert batches == [[number for number in batch if number != 17] for batch in whole] and loader.skipped["missing"] == 1


def test_a_mix_of_arrays_stays_one(tmp_path):
    for k in range(2):
        (tmp_path / str(k)).mkdir()
        for shard in range(2):
            np.save(tmp_path / str(k) / f"{shard}.npy", np.arange(5) + 100 * k + 10 * shard)
    mix = Mix([(Dataset(tmp_path / str(k)), 1) for k in range(2)])
    (tmp_path / "1" / "0.npy").unlink()

    batches = list(Loader(mix, 7, on_error="skip"))

    assert sorted(flat(batch.tolist() for batch in batches)) == [*range(5), *range(10, 15), *range(110, 115)]


def test_a_shard_is_named_once(records):
    loader = Loader(records, 4, on_error="skip")

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(3):
            list(loader)

    assert [[name in str(warning.message) for name in ("'0.tfrecord'", "'1.tfrecord'")] for warning in warned] == [[True, False], [False, True]]
    assert warned[0].filename == __file__ and loader.skipped["damaged"] == 9


def test_warnings_are_bounded(tmp_path):
    for i in range(120):
        (tmp_path / f"{i:03}").write_bytes(b"x")
    data = Dataset(tmp_path, "objects")
    for i in range(1, 120):
        (tmp_path / f"{i:03}").unlink()

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        list(Loader(data, 60, on_error="skip"))

    assert len(warned) == 100


@pytest.mark.parametrize("value", ["ignore", None, True])
def test_other_words_for_errors_are_refused(objects, value):
    with pytest.raises(ValueError, match="on_error"):
        Loader(objects, 4, on_error=value)


def test_samples_that_come_back_are_read(tmp_path, objects):
    loader = Loader(objects, 4, collate=bytes_of, on_error="skip")
    os.rename(tmp_path / "05", tmp_path / ".05")

    first = flat(loader)
    os.rename(tmp_path / ".05", tmp_path / "05")

    assert 5 not in first and flat(loader) == list(range(40))

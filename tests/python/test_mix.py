"""Several data sets mixed by weights: shares, order, ranks, workers and resuming."""
import collections
import itertools
import json
import pickle

import numpy as np
import pytest

import penstock.data
from penstock.data import Dataset, DatasetError, Loader, Mix
from test_loader import flat, listed, workers  # noqa: F401

SHUFFLES = [False, True, "block", "window"]
SIZES = (100, 40, 12)
WEIGHTS = (0.6, 0.3, 0.1)


@pytest.fixture
def sets(tmp_path):
    """Sets of 100, 40 and 12 samples, whose values count from 0, 1000 and 2000."""
    made = []
    for k, n in enumerate(SIZES):
        (tmp_path / str(k)).mkdir()
        np.save(tmp_path / str(k) / "0.npy", np.arange(1000 * k, 1000 * k + n))
        made.append(Dataset(tmp_path / str(k)))
    return made


def mixed(sets, **options):
    return Mix(zip(sets, WEIGHTS), **options)


def loader(sets, world=1, rank=0, shuffle=True, **options):
    return Loader(mixed(sets, **options), 7, shuffle, seed=3, block=8, window=3, rank=rank, world_size=world)


def shares(samples):
    return [sum(sample // 1000 == k for sample in samples) for k in range(3)]


# --- shares ---


@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_each_set_has_its_share_at_any_place(sets, shuffle):
    samples = flat(listed(loader(sets, shuffle=shuffle, repeat=True, samples=1000)))

    for n in range(1, 1001):
        assert all(abs(got - n * weight) < 1.68 for got, weight in zip(shares(samples[:n]), WEIGHTS))
    assert shares(samples) == [600, 300, 100]


def test_an_epoch_ends_before_a_sample_comes_twice(sets):
    samples = flat(listed(loader(sets)))

    assert len(set(samples)) == len(samples) and shares(samples)[2] == 12 and len(loader(sets)) == -(-len(samples) // 7)


# A set starts again only after all of its samples were delivered, and an epoch continues where the
# previous one ended.
def test_sets_that_repeat_are_taken_whole_before_any_sample_again(sets):
    batches = loader(sets, repeat=True)
    everything = {1000 * k + i for k, n in enumerate(SIZES) for i in range(n)}

    first = flat(listed(batches))
    seen = first + flat(listed(batches)) + flat(listed(batches))

    assert set(first) == everything
    for k, n in enumerate(SIZES):
        own = [sample for sample in seen if sample // 1000 == k]
        passes = [own[i : i + n] for i in range(0, len(own), n)]
        assert all(sorted(got) == list(range(1000 * k, 1000 * k + n)) for got in passes[:-1]) and len(set(passes[-1])) == len(passes[-1])
        assert passes[0] != passes[1]


@pytest.mark.parametrize("weights", [(7, 2, 1), (0.7, 0.2, 0.1), ("7/10", "1/5", "1/10"), (np.float32(0.7), np.float64(0.2), 0.1), (1.4e-3, 4e-4, 2e-4)])
def test_equal_ratios_are_one_order(sets, weights):
    loaders = [Loader(Mix(zip(sets, given)), 5, shuffle=True) for given in (weights, (7, 2, 1))]

    assert loaders[0].state_dict() == loaders[1].state_dict() and listed(loaders[0]) == listed(loaders[1])


def test_weights_of_any_size_are_whole_numbers():
    from penstock._mix import _whole

    assert _whole([1e-30, 1]) == [1, 2**32 - 3]
    assert _whole([1 / 3, 2 / 3])[1] / sum(_whole([1 / 3, 2 / 3])) == pytest.approx(2 / 3, rel=1e-9)
    assert sum(_whole([0.1234567890123] * 1000 + [1e9])) <= 2**32 and _whole([5]) == [1]


def test_the_order_of_a_mix_stays_the_same_in_later_versions(sets):
    samples = flat(listed(loader(sets)))

    assert samples[:20] == [51, 1002, 24, 2011, 35, 65, 1021, 83, 1031, 54, 43, 1027, 75, 2006, 22, 50, 1020, 33, 1017, 99]


# --- ranks, workers, resuming ---


@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_ranks_and_workers_get_the_samples_of_one_process(sets, workers, shuffle, world, count):  # noqa: F811
    got = [workers(lambda rank=rank: loader(sets, world, rank, shuffle, repeat=True), count) for rank in range(world)]

    assert got == [listed(loader(sets, world, rank, shuffle, repeat=True)) for rank in range(world)]
    steps = [flat(step) for step in itertools.zip_longest(*got, fillvalue=[])]
    assert flat(steps) == flat(listed(loader(sets, shuffle=shuffle, repeat=True)))


# A resumed epoch delivers the remaining samples in the same order, with any number of ranks and
# workers.
@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("then", [(1, 0), (3, 2), (4, 1)])
def test_an_epoch_resumes_with_other_ranks_and_workers(sets, workers, world, then):  # noqa: F811
    whole = flat(listed(loader(sets, repeat=True)))
    ranks = [loader(sets, world, rank, repeat=True) for rank in range(world)]
    first = [listed(itertools.islice(own, 3)) for own in ranks]
    state = json.loads(json.dumps(ranks[0].state_dict()))

    def resumed(rank):
        again = pickle.loads(pickle.dumps(loader(sets, then[0], rank, repeat=True)))
        again.load_state_dict(state)
        return again

    rest = [workers(lambda rank=rank: resumed(rank), then[1]) for rank in range(then[0])]

    assert state["delivered"] == 21 * world and state["samples"] == len(whole)
    assert flat(flat(step) for step in zip(*first)) == whole[: 21 * world]
    assert flat(flat(step) for step in itertools.zip_longest(*rest, fillvalue=[])) == whole[21 * world :]


def test_torch_workers_deliver_a_mix(sets):
    expected = listed(loader(sets, repeat=True))
    torches = loader(sets, repeat=True)

    assert listed(torches.dataloader(num_workers=3)) == expected and torches.epoch == 1


@pytest.mark.parametrize("other", [{"samples": 70}, {"repeat": True}, {"weights": (5, 4, 1)}, {"sets": 2}])
def test_a_state_of_another_mix_is_refused(sets, other):
    state = loader(sets).state_dict()
    weights, count = other.pop("weights", WEIGHTS), other.pop("sets", 3)

    with pytest.raises(ValueError, match="samples|shuffle"):
        Loader(Mix(zip(sets[:count], weights), **other), 7, True, block=8, window=3).load_state_dict(state)


# --- samples ---


def test_samples_of_several_kinds_are_a_list(sets, tmp_path):
    (tmp_path / "texts").mkdir()
    for i in range(5):
        (tmp_path / "texts" / f"{i}.txt").write_text(f"text {i}")

    got = flat(Loader(Mix([(sets[0], 1), (Dataset(tmp_path / "texts", "objects"), 1)], repeat=True, samples=10), 4))

    assert got[::2] == [0, 1, 2, 3, 4] and [bytes(text) for text in got[1::2]] == [b"text %d" % i for i in range(5)]


def test_columns_of_a_mix_are_dicts(tmp_path):
    for k in range(2):
        (tmp_path / str(k)).mkdir()
        rows = np.full((10, 3073), k, "uint8")
        (tmp_path / str(k) / "data_batch_1.bin").write_bytes(rows.tobytes())

    batches = list(Loader(Mix([(Dataset(tmp_path / "0"), 3), (Dataset(tmp_path / "1"), 1)]), 4))

    assert [[int(sample["label"]) for sample in batch] for batch in batches[:2]] == [[0, 1, 0, 0]] * 2 and batches[0][0]["image"].shape == (3, 32, 32)


def test_arrays_of_other_types_are_a_list(sets, tmp_path):
    (tmp_path / "small").mkdir()
    np.save(tmp_path / "small" / "0.npy", np.arange(20, dtype="i2"))

    (batch,) = itertools.islice(Loader(Mix([(sets[0], 1), (Dataset(tmp_path / "small"), 1)]), 4), 1)

    assert isinstance(batch, list) and [sample.dtype.name for sample in batch] == ["int64", "int16"] * 2


def test_numbers_count_on_from_set_to_set(sets):
    mix = mixed(sets)

    assert len(mix) == 152 and mix.place(100) == sets[1].place(0) and mix.place(151) == sets[2].place(11)
    for number in (-1, 152):
        with pytest.raises(IndexError, match="152"):
            mix.place(number)


# A large read has samples of several sets. Each sample is delivered once, and a batch that is kept
# does not change when later batches are read.
def test_large_reads_keep_their_order(tmp_path):
    made = []
    for k in range(3):
        (tmp_path / str(k)).mkdir()
        np.save(tmp_path / str(k) / "0.npy", np.arange(600)[:, None] + np.full((1, 1000), 1000 * k))
        made.append(Dataset(tmp_path / str(k)))
    batches = Loader(Mix(zip(made, (3, 2, 1))), 50, "window", block=16, window=4)

    kept = [(batch, batch[:, 0].tolist()) for batch in batches]

    assert all((batch == np.array(first)[:, None]).all() for batch, first in kept)
    seen = collections.Counter(flat(first for _, first in kept))
    assert max(seen.values()) == 1 and len(seen) == batches.state_dict()["samples"]


# --- errors ---


@pytest.mark.parametrize("weights", [(0.5, 0), (0.5, -1), (0.5, float("nan")), (0.5, float("inf")), (0.5, "x"), (0.5, "1/0"), (0.5, None), ()])
def test_invalid_weights_are_refused(sets, weights):
    with pytest.raises(ValueError, match="weights"):
        Mix(zip(sets, weights))


def test_invalid_lengths_are_refused(sets):
    with pytest.raises(ValueError, match="samples"):
        mixed(sets, samples=-1)
    with pytest.raises(DatasetError, match="1000"):
        Loader(mixed(sets, samples=1000), 5)


def test_an_error_of_one_set_is_raised(sets, tmp_path):
    batches = loader(sets)
    (tmp_path / "1" / "0.npy").unlink()

    with pytest.raises(DatasetError, match="1/0.npy"):
        list(batches)

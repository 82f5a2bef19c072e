"""Batches of a training: each sample once for any number of ranks and workers, resumable at any point, without growth of memory."""
import collections
import contextlib
import itertools
import json
import os
import pickle
import random
import re
import time

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import penstock.data
from penstock.data import Dataset, DatasetChanged, DatasetError, Loader
from python_child import PATIENCE_S

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
SHUFFLES = [False, True, "block", "window"]


@pytest.fixture
def numbers(tmp_path):
    """numbers(n): a set of n samples; the value of each sample is its number."""

    def make(n, threads=0):
        folder = tmp_path / f"numbers-{n}"
        folder.mkdir(exist_ok=True)
        half = n // 2
        np.save(folder / "0.npy", np.arange(half)), np.save(folder / "1.npy", np.arange(half, n))
        return Dataset(folder, threads=threads)

    return make


@pytest.fixture
def workers(monkeypatch):
    """workers(make_loader, number): the batches of `number` simulated DataLoader workers, each a loader in this process."""

    def batches(make, number):
        if number == 0:
            return [batch.tolist() for batch in make()]
        parts = []
        for worker in range(number):
            monkeypatch.setattr(penstock._loader, "_worker", lambda worker=worker: (worker, number))
            parts.append([batch.tolist() for batch in make()])
        monkeypatch.undo()
        return [batch for row in itertools.zip_longest(*parts) for batch in row if batch is not None]

    return batches


def listed(batches):
    return [batch.tolist() for batch in batches]


def flat(batches):
    return [sample for batch in batches for sample in batch]


def loaders(data, world, **options):
    return [Loader(data, 7, seed=3, block=8, window=3, rank=rank, world_size=world, **options) for rank in range(world)]


# --- the order ---


@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_ranks_and_workers_get_each_sample_once(numbers, workers, shuffle, world, count):
    data = numbers(100)

    got = [workers(lambda rank=rank: loaders(data, world, shuffle=shuffle)[rank], count) for rank in range(world)]

    assert sorted(flat(flat(got))) == list(range(100))
    assert got == [listed(loader) for loader in loaders(data, world, shuffle=shuffle)]
    assert max(len(flat(own)) for own in got) - min(len(flat(own)) for own in got) <= 1


# Real worker processes of torch, each with a copy of the loader.
@pytest.mark.parametrize("world", [1, 3])
@pytest.mark.parametrize("count", [0, 1, 2, 4])
@pytest.mark.parametrize("through", ["iterable", "dataloader"])
def test_torch_workers_deliver_the_same_batches(numbers, world, count, through):
    data = numbers(100)

    got = []
    for loader in loaders(data, world, shuffle=True):
        torches = DataLoader(loader.iterable(), batch_size=None, num_workers=count) if through == "iterable" else loader.dataloader(num_workers=count)
        assert len(torches) == len(loader)
        got.append(listed(torches))

    assert sorted(flat(flat(got))) == list(range(100)) and got == [listed(loader) for loader in loaders(data, world, shuffle=True)]


class Negative:
    """A transform that can be pickled."""

    def __call__(self, sample):
        return -sample


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_of_any_start_method_deliver_the_same_batches(numbers, monkeypatch, context):
    data = numbers(60)
    plain = listed(Loader(data, 4, shuffle=True, rank=1, world_size=2))
    monkeypatch.setattr(penstock._loader, "ranks", lambda: (1, 2))  # a process group that does not include spawned workers
    loader = Loader(data, 4, shuffle=True, transform=Negative(), collate=list)

    got = list(loader.dataloader(num_workers=2, multiprocessing_context=context))

    assert got == [[-sample for sample in batch] for batch in plain]


@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_epochs_have_orders_of_their_own_that_depend_on_the_seed(numbers, shuffle):
    data = numbers(100)

    def epoch(number, seed=1):
        loader = Loader(data, 10, shuffle=shuffle, seed=seed, block=8, window=2)
        loader.set_epoch(number)
        return flat(listed(loader))

    assert epoch(0) == epoch(0) and sorted(epoch(1)) == list(range(100))
    assert [epoch(0) == epoch(1), epoch(0) == epoch(0, seed=2), epoch(0) == list(range(100))] == [shuffle is False] * 3


def test_the_order_stays_the_same_in_later_versions(numbers):
    data = numbers(20)

    orders = [flat(listed(Loader(data, 6, shuffle=shuffle, seed=42, block=4, window=2))) for shuffle in SHUFFLES]

    assert orders == [
        list(range(20)),
        [13, 5, 10, 7, 12, 1, 16, 9, 15, 19, 18, 14, 3, 17, 8, 11, 6, 4, 0, 2],
        [19, 18, 17, 16, 12, 14, 13, 15, 7, 5, 6, 4, 9, 8, 10, 11, 3, 1, 2, 0],
        [12, 14, 18, 15, 16, 13, 17, 19, 9, 7, 8, 10, 4, 11, 5, 6, 3, 1, 2, 0],
    ]


def test_blocks_and_windows_are_near_each_other(numbers):
    data = numbers(64)

    blocks = flat(listed(Loader(data, 8, shuffle="block", block=8)))
    windows = flat(listed(Loader(data, 8, shuffle="window", block=8, window=4)))

    assert all(len({sample // 8 for sample in blocks[i : i + 8]}) == 1 for i in range(0, 64, 8))
    assert all(len({sample // 8 for sample in windows[i : i + 32]}) == 4 for i in range(0, 64, 32))
    assert len({sample // 8 for sample in windows[:8]}) > 1


def test_the_last_step_is_kept_dropped_or_padded(numbers):
    data = numbers(23)

    sizes = {}
    for name, options in {"keep": {}, "drop": {"drop_last": True}, "pad": {"pad": True}}.items():
        got = [listed(loader) for loader in loaders(data, 2, **options)]
        assert [len(own) for own in got] == [len(loader) for loader in loaders(data, 2, **options)]
        sizes[name] = [[len(batch) for batch in own] for own in got]
        if name == "pad":
            assert sorted(flat(flat(got))) == sorted([*range(23), 0])

    assert sizes == {"keep": [[7, 5], [7, 4]], "drop": [[7], [7]], "pad": [[7, 5], [7, 5]]}


def test_a_rank_may_have_a_batch_less(numbers):
    got = [listed(loader) for loader in loaders(numbers(15), 2)]

    assert [[len(batch) for batch in own] for own in got] == [[7, 1], [7]]


# The largest clusters have ten thousand ranks; at the end of an epoch most of these ranks get no
# further batch.
@pytest.mark.parametrize("rest", ["keep", "drop_last", "pad"])
@pytest.mark.parametrize("shuffle", [True, "window"])
def test_ten_thousand_ranks_get_each_sample_once(numbers, shuffle, rest):
    n, world, batch = 23_456, 10_000, 2
    data = numbers(n)
    options = {"shuffle": shuffle, "seed": 3} | ({rest: True} if rest != "keep" else {})
    order = flat(listed(Loader(data, 1000, shuffle=shuffle, seed=3)))

    ranks = [Loader(data, batch, rank=rank, world_size=world, **options) for rank in range(world)]
    got = [listed(loader) for loader in ranks]
    seen = sorted(flat(flat(got)))

    more = n - batch * world
    if rest == "keep":
        assert seen == list(range(n)) and collections.Counter(len(flat(own)) for own in got) == {3: more, 2: world - more}
    elif rest == "drop_last":
        assert seen == sorted(order[: batch * world]) and {len(flat(own)) for own in got} == {2}
    else:
        assert seen == sorted(order + order[: world - more]) and {len(flat(own)) for own in got} == {3}
    assert [len(own) for own in got] == [len(loader) for loader in ranks] and {loader.epoch for loader in ranks} == {1}


# The only step of the epoch is also its last one, so it is kept, dropped or padded like any last
# step.
@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_more_ranks_than_samples_share_one_step(numbers, shuffle):
    data, world = numbers(5), 12

    got = {name: [listed(loader) for loader in loaders(data, world, shuffle=shuffle, **options)]
           for name, options in {"keep": {}, "drop": {"drop_last": True}, "pad": {"pad": True}}.items()}  # fmt: skip

    assert sorted(flat(flat(got["keep"]))) == list(range(5)) and sorted(map(len, got["keep"])) == [0] * 7 + [1] * 5
    assert got["drop"] == [[]] * world
    padded = flat(flat(got["pad"]))
    assert [len(flat(own)) for own in got["pad"]] == [1] * world and sorted(collections.Counter(padded).values()) == [2, 2, 2, 3, 3]


# The batch size is a limit; memory is allocated only for the samples that the batch has.
@pytest.mark.parametrize("batch", [101, 1 << 24])
@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_a_batch_that_is_larger_than_the_set_has_all_of_it(numbers, shuffle, batch):
    data = numbers(100)
    loader = Loader(data, batch, shuffle=shuffle)

    epochs = [listed(loader), listed(loader.dataloader(num_workers=2))]

    assert [sorted(flat(epoch)) for epoch in epochs] == [list(range(100))] * 2 and [len(epoch) for epoch in epochs] == [1, 1]
    assert len(loader) == 1 and loader.epoch == 2 and (epochs[0] == epochs[1]) == (shuffle is False)


def test_a_batch_that_is_larger_than_the_set_is_kept_dropped_or_padded(numbers):
    data = numbers(23)

    def sizes(**options):
        ranks = [Loader(data, 64, rank=rank, world_size=2, **options) for rank in range(2)]
        got = [[len(batch) for batch in loader] for loader in ranks]
        assert [len(own) for own in got] == [len(loader) for loader in ranks] and [loader.epoch for loader in ranks] == [1, 1]
        return got

    assert (sizes(), sizes(drop_last=True), sizes(pad=True)) == ([[12], [11]], [[], []], [[12], [12]])


@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("count", [None, 0, 2])
def test_a_set_of_one_sample_is_an_epoch_of_one_batch(numbers, shuffle, batch, count):
    data = numbers(1)
    loader = Loader(data, batch, shuffle=shuffle, seed=9)
    batches = loader if count is None else loader.dataloader(num_workers=count)

    epochs, states = [], []
    for _ in range(3):
        for got in batches:
            epochs.append(got.tolist())
            states.append((loader.state_dict()["epoch"], loader.state_dict()["delivered"]))

    assert epochs == [[0]] * 3 and states == [(0, 1), (1, 1), (2, 1)] and (len(data), len(loader), loader.epoch) == (1, 1, 3)


def test_one_sample_is_for_one_rank_or_for_all(numbers):
    data = numbers(1)

    got = [[listed(loader) for loader in loaders(data, 3, **options)] for options in ({}, {"drop_last": True}, {"pad": True})]

    assert sorted(got[0]) == [[], [], [[0]]] and got[1] == [[], [], []] and got[2] == [[[0]]] * 3


@pytest.mark.parametrize("rank, size", [("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")])
def test_ranks_come_from_the_environment(numbers, monkeypatch, rank, size):
    data = numbers(100)
    monkeypatch.setenv(rank, "2"), monkeypatch.setenv(size, "3")

    assert listed(Loader(data, 7, seed=3)) == listed(loaders(data, 3)[2])


# --- resuming ---


# A job is stopped at random points, and resumes with other numbers of ranks and workers.
@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize("seed", range(4))
def test_a_training_that_changes_its_size_gets_each_sample_once(numbers, workers, shuffle, seed):
    rng = random.Random(seed)
    data = numbers(rng.choice([97, 200, 256]))
    state, got = None, []

    while state is None or state["epoch"] == 0:
        world, count, stop = rng.randint(1, 4), rng.choice([0, 1, 2, 4]), rng.randint(1, 4)
        ranks = loaders(data, world, shuffle=shuffle)
        if state:
            for loader in ranks:
                loader.load_state_dict(json.loads(json.dumps(state)))
        batches = [workers(lambda loader=loader: pickle.loads(pickle.dumps(loader)), count) for loader in ranks]
        steps = max(map(len, batches))
        got += flat(flat(own[:stop] for own in batches))
        for i, _ in enumerate(ranks[0]):
            state = ranks[0].state_dict()
            if i + 1 == stop:
                break
        if stop >= steps:
            break

    assert sorted(got) == list(range(len(data)))
    assert state["delivered"] == len(data)


def test_a_state_counts_delivered_batches_and_not_those_read_ahead(numbers):
    loader = Loader(numbers(1000), 10, shuffle=True)

    states = [loader.state_dict()["delivered"] for _ in itertools.islice(loader, 3)]

    assert states == [10, 20, 30] and loader.state_dict()["delivered"] == 30


@pytest.mark.parametrize("count", [0, 2])
def test_a_state_counts_what_workers_delivered(numbers, count):
    data = numbers(1000)
    expected = listed(Loader(data, 10, shuffle=True))
    loader = Loader(data, 10, shuffle=True)

    states = [loader.state_dict()["delivered"] for _ in itertools.islice(loader.dataloader(num_workers=count), 3)]
    again = Loader(data, 10, shuffle=True)
    again.load_state_dict(loader.state_dict())

    assert states == [10, 20, 30] and listed(again.dataloader(num_workers=3 - count)) == expected[3:]
    assert again.state_dict()["epoch"] == 1 and again.state_dict()["delivered"] == 0


def test_workers_that_stay_follow_the_epoch_of_the_loader(numbers):
    data = numbers(200)

    def epoch(number):
        loader = Loader(data, 10, shuffle=True)
        loader.set_epoch(number)
        return listed(loader)

    loader = Loader(data, 10, shuffle=True)
    torches = loader.dataloader(num_workers=2, persistent_workers=True)
    next(iter(torches))
    again, following = listed(torches), listed(torches)
    loader.set_epoch(7)
    seventh = listed(torches)
    state = dict(loader.state_dict(), epoch=3, delivered=50)
    loader.load_state_dict(state)

    assert (again, following, seventh, listed(torches)) == (epoch(0), epoch(1), epoch(7), epoch(3)[5:]) and loader.epoch == 4


def test_an_epoch_that_is_left_starts_again(numbers):
    loader = Loader(numbers(50), 10, shuffle=True)
    first = next(iter(loader)).tolist()
    for _ in itertools.islice(loader, 2):
        pass

    assert loader.state_dict()["delivered"] == 20
    again = listed(loader)

    assert again[0] == first and len(again) == 5 and loader.epoch == 1


# Lightning and Keras count batches, and do not ask for a batch after the last one.
@pytest.mark.parametrize("count", [None, 0, 2])
def test_an_epoch_whose_last_batch_was_taken_is_followed_by_the_next(numbers, count):
    data = numbers(50)
    plain = Loader(data, 10, shuffle=True)
    expected = [listed(plain), listed(plain)]
    loader = Loader(data, 10, shuffle=True)
    torches = loader if count is None else loader.dataloader(num_workers=count)

    got = [listed(batch for _, batch in zip(range(5), torches)) for _ in range(2)]

    assert got == expected and loader.state_dict()["epoch"] == 1 and loader.state_dict()["delivered"] == 50
    loader.set_epoch(1)
    assert listed(loader) == expected[1] and loader.epoch == 2


# The loops of some frameworks restore the state before they ask for the next epoch.
def test_a_state_of_the_end_of_an_epoch_continues_a_dataloader_with_the_next(numbers):
    data = numbers(50)
    plain = Loader(data, 10, shuffle=True)
    expected = [listed(plain), listed(plain)]
    first, again = (Loader(data, 10, shuffle=True).dataloader() for _ in range(2))
    for _ in zip(range(5), first):
        pass

    again.load_state_dict(first.state_dict())

    assert listed(again) == expected[1] and again.state_dict()["epoch"] == 2


def test_an_epoch_that_was_resumed_and_left_starts_where_it_was_resumed(numbers):
    data = numbers(50)
    expected = listed(Loader(data, 10, shuffle=True))
    loader = Loader(data, 10, shuffle=True)
    loader.load_state_dict(dict(loader.state_dict(), delivered=20))

    left = next(iter(loader)).tolist()

    assert left == expected[2] and loader.state_dict()["delivered"] == 30
    loader.set_epoch(0)  # a training program calls this before every epoch
    assert listed(loader) == expected[2:] and len(listed(loader)) == 5


def test_the_epoch_advances_by_itself_or_is_chosen(numbers):
    data = numbers(30)
    loader = Loader(data, 10, shuffle=True)

    first, second = listed(loader), listed(loader)
    loader.set_epoch(0)
    again = listed(loader)
    loader.set_epoch(1)

    assert loader.epoch == 1 and listed(loader) == second != first == again


def test_another_epoch_that_is_chosen_in_a_loop_is_kept(numbers):
    loader = Loader(numbers(30), 10)

    for _ in loader:
        loader.set_epoch(5)

    assert loader.epoch == 5 and loader.state_dict()["delivered"] == 0


def test_a_state_after_the_last_batch_is_at_the_end_of_the_epoch(numbers):
    data = numbers(30)
    for options in ({}, {"drop_last": True}, {"pad": True}):
        loader = Loader(data, 7, **options)
        states = [loader.state_dict() for _ in loader]
        again = Loader(data, 7, **options)
        again.load_state_dict(states[-1])

        assert states[-1]["delivered"] == 30 and list(again) == [] and again.epoch == 1 and len(list(again)) == len(loader)


def test_a_state_can_be_saved_as_json_and_in_a_checkpoint(numbers, place):
    loader = Loader(numbers(50), 7, shuffle=True, seed=2**63 - 1)
    next(iter(loader))
    state = loader.state_dict()

    penstock.checkpoint.save({"loader": state}, 1)

    assert json.loads(json.dumps(state)) == state == penstock.checkpoint.load()["loader"]


@pytest.mark.parametrize(
    "change, word",
    [({"version": 2}, "version"), ({"samples": 51}, "51"), ({"order": 5}, "shuffle"), ({"delivered": 51}, "51"), ({"delivered": -1}, "-1"),
     ({"seed": -1}, "seed"), ({"epoch": 2**63}, "epoch"), ({"epoch": "1"}, "state"), ({"delivered": 2.5}, "state"), ({"seed": None}, "state")],
)  # fmt: skip
def test_a_state_of_another_training_is_refused(numbers, change, word):
    loader = Loader(numbers(50), 7, shuffle=True, seed=1)
    state = loader.state_dict()

    with pytest.raises(ValueError, match=word):
        loader.load_state_dict(state | change)

    assert loader.state_dict() == state


@pytest.mark.parametrize("other", [{}, {"shuffle": "block"}, {"shuffle": "window", "block": 9}, {"shuffle": "window", "block": 8, "window": 3}])
def test_a_state_of_another_order_is_refused(numbers, other):
    data = numbers(50)
    state = Loader(data, 7, shuffle="window", block=8, window=2).state_dict()

    with pytest.raises(ValueError, match="shuffle"):
        Loader(data, 7, **other).load_state_dict(state)


@pytest.mark.parametrize("state", [None, 5, {}, {"version": 1}, []])
def test_no_state_is_refused(numbers, state):
    with pytest.raises(ValueError, match="state"):
        Loader(numbers(50), 7).load_state_dict(state)


def test_a_state_that_was_loaded_is_the_state(numbers):
    loader = Loader(numbers(50), 7, shuffle=True)
    state = loader.state_dict() | {"seed": 9, "epoch": 4, "delivered": 21}

    loader.load_state_dict(state)
    loader.set_epoch(4)

    assert loader.state_dict() == state


def test_another_batch_size_may_go_on_with_the_seed_of_the_state(numbers):
    data = numbers(50)
    loader = Loader(data, 10, shuffle=True, seed=5)
    expected = flat(listed(loader))
    loader = Loader(data, 10, shuffle=True, seed=5)
    next(iter(loader))

    again = Loader(data, 3, shuffle=True, seed=6)
    again.load_state_dict(loader.state_dict())

    assert flat(listed(again)) == expected[10:] and again.seed == 5


# --- arguments ---


@pytest.mark.parametrize(
    "arguments",
    [{"batch_size": 0}, {"batch_size": -1}, {"batch_size": 2**32 + 1}, {"seed": -1}, {"seed": 2**63}, {"block": 0}, {"window": -1}, {"ahead": -5}, {"shuffle": "blocks"},
     {"rank": 2, "world_size": 2}, {"rank": -1, "world_size": 2}, {"world_size": 0, "rank": 0}, {"rank": 0}, {"world_size": 1}, {"pad": True, "drop_last": True}],
)  # fmt: skip
def test_invalid_arguments_are_named(numbers, arguments):
    with pytest.raises(ValueError, match="|".join(arguments)):
        Loader(numbers(10), **{"batch_size": 2} | arguments)


def test_an_invalid_epoch_is_refused(numbers):
    with pytest.raises(ValueError, match="epoch"):
        Loader(numbers(10), 2).set_epoch(-1)


# --- transform, collate, errors ---


def test_samples_are_transformed_and_batches_collated(numbers):
    data = numbers(10)

    transformed = list(Loader(data, 4, transform=lambda sample: sample * 2))
    collated = list(Loader(data, 4, transform=torch.tensor, collate=torch.stack))

    assert transformed == [[0, 2, 4, 6], [8, 10, 12, 14], [16, 18]] and isinstance(transformed[0], list)
    assert [batch.tolist() for batch in collated] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]] and collated[0].dtype == torch.int64


@contextlib.contextmanager
def ended(loader, count):
    """Yields a DataLoader and ends its workers before the garbage collector frees them; otherwise torch waits five seconds for each after an error."""
    torches = loader.dataloader(num_workers=count, persistent_workers=count > 0)
    yield torches
    if count:
        torches._iterator._shutdown_workers()


@pytest.mark.parametrize("name", ["transform", "collate"])
@pytest.mark.parametrize("count", [0, 2])
def test_a_function_that_raises_leaves_the_loader_as_it_was(numbers, name, count):
    broken = [True]

    def fails(value):
        if broken[0] and 25 in np.atleast_1d(value):
            raise LookupError("sample 25")
        return value

    loader = Loader(numbers(50), 10, **{name: fails})
    got = []
    with ended(loader, count) as torches, pytest.raises(LookupError, match="sample 25"):
        for batch in torches:
            got.append(batch)

    # The failed batch does not count as delivered: a training run that resumes gets it.
    assert len(got) == 2 and loader.state_dict()["delivered"] == 20 and loader.epoch == 0
    broken[0] = False
    assert len(list(loader.dataloader(num_workers=count))) == 5 and loader.epoch == 1


@pytest.mark.parametrize("count", [0, 2])
def test_an_error_of_a_shard_is_raised_where_the_batch_is_due(tmp_path, count):
    for i in range(40):
        (tmp_path / f"{i:02}").write_bytes(bytes([i]))
    loader = Loader(Dataset(tmp_path, "objects"), 4, collate=lambda batch: [bytes(sample)[0] for sample in batch])
    (tmp_path / "21").rename(tmp_path / ".21")
    got = []

    with ended(loader, count) as torches, pytest.raises(DatasetError, match="21"):
        for batch in torches:
            got.append(batch)
    (tmp_path / ".21").rename(tmp_path / "21")

    assert len(got) == 5 and loader.state_dict()["delivered"] == 20
    assert flat(loader) == list(range(40))


def test_errors_of_workers_keep_their_class(tmp_path):
    for i in range(40):
        (tmp_path / f"{i:02}").write_bytes(b"x")
    loader = Loader(Dataset(tmp_path, "objects"), 4, collate=len)
    (tmp_path / "21").write_bytes(b"longer")

    with ended(loader, 2) as torches, pytest.raises(DatasetChanged, match="/21'") as raised:
        list(torches)

    assert raised.value.code == "changed"


def test_workers_send_views_of_memory(tmp_path):
    for i in range(6):
        (tmp_path / str(i)).write_bytes(b"x" * i)

    got = list(Loader(Dataset(tmp_path, "objects"), 4).dataloader(num_workers=2))

    assert [[sample.tobytes() for sample in batch] for batch in got] == [[b"", b"x", b"xx", b"xxx"], [b"xxxx", b"xxxxx"]]


def test_samples_outlive_loader_and_set(numbers):
    batches = list(Loader(numbers(100), 10))

    assert flat(listed(batches)) == list(range(100))
    batches[0][0] = 5  # batches may be changed in place


# --- reading ahead ---


def test_several_loaders_read_one_set_at_a_time(numbers):
    data = numbers(300, threads=2)

    got = list(zip(Loader(data, 10), Loader(data, 10, shuffle=True), Loader(data, 10)))

    assert all(np.array_equal(first, third) for first, _, third in got) and sorted(flat(listed(second for _, second, _ in got))) == list(range(300))


def test_processes_are_forked_in_the_middle_of_an_epoch(numbers):
    data = numbers(500)
    loader, other = Loader(data, 10), Loader(data, 10, shuffle=True)

    left = iter(loader)
    next(left)
    inner = listed(other.dataloader(num_workers=2))

    assert sorted(flat(inner)) == list(range(500)) and len(list(left)) == 49


def rss(pid):
    """Returns the resident memory of the process in MiB."""
    with open(f"/proc/{pid}/status") as status:
        return int(re.search(r"VmRSS:\s+(\d+) kB", status.read()).group(1)) / 1024


@pytest.fixture
def large(tmp_path):
    """32 MiB in 512 samples."""
    np.save(tmp_path / "large.npy", np.ones((512, 8192), "f8"))
    return Dataset(tmp_path)


# The memory of a large read is reused once no array refers to it.
@pytest.mark.parametrize("batch", [16, 64])
def test_batches_that_are_kept_stay_as_they_were(tmp_path, batch):
    np.save(tmp_path / "0.npy", np.repeat(np.arange(512, dtype="f8"), 8192).reshape(512, 8192))
    loader = Loader(Dataset(tmp_path), batch, shuffle=True)
    kept, tensors, rows = [], [], []

    for epoch in range(2):
        for i, samples in enumerate(loader):
            if i % 3 == 0:
                kept.append((samples, samples[:, 0].tolist()))
            elif i % 3 == 1:
                rows.append((samples[5], samples[5, 0].item()))
                tensors.append((torch.from_numpy(samples)[1], samples[1, 0].item()))

    assert all((samples == np.array(first)[:, None]).all() for samples, first in kept)
    assert all((row == first).all() for row, first in rows + tensors)


# A leak of the read data would be 32 MiB in each epoch; the data read ahead has a limit.
@pytest.mark.parametrize("stay", [False, True])
def test_memory_does_not_grow(large, stay):
    loader = Loader(large, 16, shuffle=True, transform=lambda sample: float(sample[0]), ahead=4 << 20)
    torches = loader.dataloader(num_workers=4, persistent_workers=stay)
    sizes = []

    for _ in range(20):
        assert sum(map(sum, torches)) == 512
        pids = [os.getpid(), *(worker.pid for worker in torches._iterator._workers)] if stay else [os.getpid()]
        sizes.append([rss(pid) for pid in pids])

    assert loader.epoch == 20
    growth = [last - early for last, early in zip(sizes[-1], sizes[4])]
    assert max(growth) < 8, f"{sizes[4]} MB after five epochs, {sizes[-1]} after twenty"


def test_memory_does_not_grow_without_workers(large):
    loader = Loader(large, 16, shuffle="block", block=32, ahead=4 << 20)
    sizes = []

    for _ in range(20):
        for _ in itertools.islice(loader, 8):  # leaves the epoch while reads are in flight
            pass
        for _ in loader:
            pass
        sizes.append(rss(os.getpid()))

    assert sizes[-1] - sizes[4] < 8


def test_descriptors_and_threads_do_not_grow(numbers):
    def held():
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    before = held()
    for _ in range(30):
        data = numbers(100)
        next(iter(Loader(data, 10)))
        list(Loader(data, 10))
        del data

    end = time.monotonic() + PATIENCE_S
    while held() > before and time.monotonic() < end:
        time.sleep(0.01)
    assert held() <= before


# --- the example ---


# Runs the example of the documentation with another directory and fewer epochs, stops it, and
# resumes it.
def test_the_example_trains_and_resumes(tmp_path):
    lines = penstock.data.__doc__.split("\n\n")
    (code,) = [text for text in lines if "Loader(" in text]
    first = "".join(line[4:] + "\n" for line in ("    from penstock.data import Dataset, Loader\n" + code).splitlines())
    source = first.replace("s3://cifar10/train/", str(tmp_path)).replace("90", "3").replace("256", "16")
    pictures = np.random.default_rng(0).integers(0, 256, (100, 3073), dtype="uint8")
    pictures[:, 0] = np.arange(100)
    (tmp_path / "data_batch_1.bin").write_bytes(pictures.tobytes())
    seen, scope = [], {"saved": None}

    def train(batch):
        seen.append([int(sample["label"]) for sample in batch])
        if len(seen) == 10:
            raise KeyboardInterrupt

    scope["train"] = train
    with pytest.raises(KeyboardInterrupt):
        exec(source, scope)
    saved = {"loader": scope["loader"].state_dict()}
    exec(source, {"saved": saved, "train": train})

    assert source.count(str(tmp_path)) == 1 and [len(batch) for batch in seen] == [16, 16, 16, 16, 16, 16, 4] * 3
    assert all(sorted(flat(seen[i : i + 7])) == list(range(100)) for i in (0, 7, 14)) and seen[0] != seen[7]

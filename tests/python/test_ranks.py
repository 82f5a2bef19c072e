"""Several ranks: each saves its part and rank 0 commits; torch.distributed.checkpoint with penstock's storage."""
import json
import os
from pathlib import Path

import pytest
import torch

import penstock
from penstock import checkpoint, dcp
from python_child import Child

WORKER = Path(__file__).with_name("ranks_worker.py")

try:
    from torch.distributed.checkpoint import FileSystemReader, load, save

    def save_alone(state, writer):
        save(state, storage_writer=writer)

    def load_alone(state, reader):
        load(state, storage_reader=reader)

except ImportError:
    from torch.distributed._shard.checkpoint import FileSystemReader, load_state_dict, save_state_dict

    def save_alone(state, writer):
        save_state_dict(state, writer, no_dist=True)

    def load_alone(state, reader):
        load_state_dict(state, reader, no_dist=True)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Returns the results of two ranks, and the directory of their checkpoints."""
    folder = tmp_path_factory.mktemp("two")
    env = {"PENSTOCK_CHECKPOINT_DIR": str(folder / "checkpoints"), "WORLD_SIZE": "2"}
    ranks = [Child(str(WORKER), (folder / "rendezvous", folder / "preempt"), env | {"RANK": str(rank)}) for rank in (0, 1)]
    try:
        found = [json.loads(rank.finished()[0].splitlines()[-1]) for rank in ranks]
    finally:
        for rank in ranks:
            rank.process.kill()
            rank.process.communicate()
    return found, folder / "checkpoints"


def test_each_rank_saves_its_part_and_gets_it_back(two):
    for rank, found in enumerate(two[0]):
        assert found["latest"] == [2, 2, ["rank-00000.pt", "rank-00001.pt"], {"loss": 0.5}]
        assert found["parts"] == [rank, 1 - rank, True]


def test_where_one_rank_fails_all_of_them_hear_of_it_and_nothing_counts(two):
    assert "rank 1 cannot" in two[0][1]["failed"]
    assert "rank 1 " in two[0][0]["failed"]
    assert [found["after the failure"] for found in two[0]] == [2, 2]


def test_all_ranks_stop_after_the_same_batch(two):
    assert [found["stop"] for found in two[0]] == [[False, False, True], [False, True, True]]


def test_distributed_checkpoints_are_committed_by_all_ranks(two):
    assert [found["dcp"] for found in two[0]] == [[4, 2, True, True, 4]] * 2


def test_another_number_of_ranks_loads_a_distributed_checkpoint(two):
    state = {"w": torch.zeros(6), "rows": torch.zeros(10, 2), "n": {"step": 0}}

    reader = dcp.Reader(dir=f"{two[1]}-dcp")
    load_alone(state, reader)
    plain = {"rows": torch.zeros(10, 2)}
    load_alone(plain, FileSystemReader(reader.checkpoint.path))

    assert torch.equal(state["w"], torch.arange(6.0)) and state["n"]["step"] == 4
    assert torch.equal(state["rows"], torch.arange(20.0).reshape(10, 2)) and torch.equal(plain["rows"], state["rows"])


def test_another_number_of_ranks_has_to_say_whose_part_it_wants(two):
    found = checkpoint.latest(two[1])

    with pytest.raises(penstock.CheckpointError, match="2 .*1.*penstock.dcp"):
        checkpoint.load(found)

    assert checkpoint.load(found, rank=1)["rank"] == 1


def test_a_rank_that_never_comes_is_named_and_nothing_counts(place, monkeypatch):
    monkeypatch.setenv("RANK", "0"), monkeypatch.setenv("WORLD_SIZE", "3")

    with pytest.raises(penstock.CheckpointTimeout, match="1, 2"):
        checkpoint.save({"x": 1}, 1, timeout=0.2)

    assert checkpoint.list_all() == [] and list(place.iterdir()) == []


def test_a_distributed_checkpoint_of_one_process(place):
    state = {"w": torch.arange(5.0), "step": 3}
    writer = dcp.Writer(3, metrics={"loss": 2})
    save_alone(state, writer)

    again = {"w": torch.zeros(5), "step": 0}
    load_alone(again, dcp.Reader())

    assert torch.equal(again["w"], state["w"]) and again["step"] == 3
    assert checkpoint.latest().metrics == {"loss": 2.0} and str(writer.path) == checkpoint.latest().path
    with pytest.raises(penstock.CheckpointError, match="rank 0"):
        checkpoint.load()


def test_a_writer_refuses_invalid_arguments(place):
    for arguments in ({"step": -1}, {"step": 1.5}, {"step": 1, "timeout": 0}):
        with pytest.raises(ValueError):
            dcp.Writer(**arguments)


def test_a_damaged_distributed_checkpoint_is_passed_over(place):
    for step in (1, 2):
        save_alone({"w": torch.full((50,), float(step))}, dcp.Writer(step))
    (file,) = [path for path in (place / "step-000000000002-1").iterdir() if path.suffix == ".distcp"]
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)

    with pytest.warns(UserWarning, match="step-000000000002-1"):
        reader = dcp.Reader()
    with pytest.raises(penstock.CheckpointDamaged):
        dcp.Reader(place / "step-000000000002-1")

    assert reader.checkpoint.step == 1


def test_without_one_there_is_nothing_to_read(place):
    with pytest.raises(penstock.CheckpointError, match=str(place)) as raised:
        dcp.Reader()

    assert raised.value.code == "not found"
    checkpoint.save({"x": 1}, 1)
    with pytest.raises(penstock.CheckpointError, match="penstock.dcp"):
        dcp.Reader()


def test_metadata_that_could_run_code_is_refused(place, tmp_path):
    import pickle

    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    writer = dcp.Writer(1)
    finish = type(writer).__mro__[1].finish

    def trapped(self, metadata, results):
        finish(self, metadata, results)
        (Path(self.path) / ".metadata").write_bytes(pickle.dumps(Trap()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(writer).__mro__[1], "finish", trapped)
        save_alone({"w": torch.zeros(2)}, writer)

    with pytest.raises(BaseException, match=r"(?s)\.metadata.*posix\.mkdir"):
        load_alone({"w": torch.zeros(2)}, dcp.Reader())
    assert not (tmp_path / "sprung").exists()

"""Saving and loading in one process: loaded states are equal bit for bit, and damaged and foreign files are refused."""
import json
import os
import random
import shutil
import subprocess
import threading
import zipfile

import numpy as np
import pytest
import torch

import penstock
import states
from python_child import TOP
from penstock import checkpoint
from states import bits

FORMATS = ("torch", "safetensors")
WAYS = pytest.mark.parametrize("asynchronous", [False, True], ids=["at-once", "asynchronous"])


def flip(path, at):
    """Flips one bit of the file; a negative `at` counts from the end."""
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


@WAYS
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("state", [states.plain, states.trained])
def test_a_state_comes_back_bit_for_bit(place, state, format, asynchronous):
    before = bits(state())

    checkpoint.save(state(), 7, format=format, asynchronous=asynchronous)
    loaded = checkpoint.load()

    assert bits(loaded) == before


@WAYS
def test_the_format_torch_holds_whatever_a_state_is_made_of(place, asynchronous):
    state = states.pickled_only()

    checkpoint.save(state, 1, asynchronous=asynchronous)
    loaded = checkpoint.load()

    sparse, before = loaded.pop("sparse"), state.pop("sparse")
    assert torch.equal(sparse.to_dense(), before.to_dense())
    assert bits(loaded) == bits(state) and isinstance(loaded["ordered"]["b"], torch.nn.Parameter)
    assert loaded["strided"].stride() == state["strided"].stride()
    loaded["views"][0][2] = -1  # tensors that shared memory before the save share it again
    assert loaded["views"][1][0] == -1


# A model continues from a loaded state exactly as it would have continued from its own.
@pytest.mark.parametrize("format", FORMATS)
def test_training_goes_on_from_a_loaded_state_as_if_it_had_not_stopped(place, format):
    def steps(model, optimizer, count):
        for _ in range(count):
            optimizer.zero_grad()
            torch.nn.functional.dropout(model(torch.randn(4, 6)), 0.5).square().sum().backward()
            optimizer.step()

    def fresh():
        torch.manual_seed(1)
        model = torch.nn.Linear(6, 3)
        return model, torch.optim.Adam(model.parameters(), lr=0.01)

    model, optimizer = fresh()
    steps(model, optimizer, 3)
    checkpoint.save({"m": model.state_dict(), "o": optimizer.state_dict(), "r": torch.get_rng_state()}, 3, format=format)
    steps(model, optimizer, 4)
    again, its_optimizer = fresh()
    saved = checkpoint.load()
    again.load_state_dict(saved["m"]), its_optimizer.load_state_dict(saved["o"]), torch.set_rng_state(saved["r"])
    steps(again, its_optimizer, 4)

    assert bits(again.state_dict()) == bits(model.state_dict())


def test_torch_reads_our_files_and_we_read_those_of_torch(place, tmp_path):
    state = states.trained()
    path = checkpoint.save(state, 1)

    read = torch.load(os.path.join(path, "state.pt"))
    zipped = zipfile.ZipFile(os.path.join(path, "state.pt"))
    offsets = [entry.header_offset + 30 + len(entry.filename.encode()) + entry_extra(zipped, entry) for entry in zipped.infolist()]
    torch.save(state, os.path.join(path, "other.pt"))
    foreign = penstock.checkpoint._torchfile.read(os.path.join(path, "other.pt"), "cpu", True)

    assert bits(read) == bits(foreign) == bits(state)
    assert zipped.testzip() is None and all(offset % 64 == 0 for offset in offsets)


def entry_extra(zipped, entry):
    zipped.fp.seek(entry.header_offset + 28)
    return int.from_bytes(zipped.fp.read(2), "little")


def test_the_library_safetensors_reads_our_files_and_we_read_its(place, tmp_path):
    state = {"a": torch.arange(6, dtype=torch.float32).reshape(2, 3), "b": {"c": torch.tensor([1, -2], dtype=torch.int8), "n": 3}}
    path = checkpoint.save(state, 1, format="safetensors")
    venv = subprocess.run([TOP / "tools" / "test-venv"], check=True, capture_output=True, text=True).stdout.strip()
    script = """
import json, sys
from safetensors import deserialize, serialize
found = deserialize(open(sys.argv[1], "rb").read())
print(json.dumps([[name, entry["dtype"], entry["shape"], bytes(entry["data"]).hex()] for name, entry in sorted(found)]))
open(sys.argv[2], "wb").write(serialize({"x": {"dtype": "float16", "shape": [2], "data": b"\\x00\\x3c\\x00\\xc0"}}, {"who": "them"}))
"""
    done = subprocess.run(
        [f"{venv}/bin/python", "-c", script, os.path.join(path, "state.safetensors"), tmp_path / "theirs"], check=True, capture_output=True, text=True
    )
    theirs = penstock.checkpoint._safetensors.read(str(tmp_path / "theirs"), "cpu")

    a, c = state["a"].numpy().tobytes().hex(), state["b"]["c"].numpy().tobytes().hex()
    assert json.loads(done.stdout) == [["a", "F32", [2, 3], a], ["b.c", "I8", [2], c]]
    assert bits(theirs) == bits({"x": torch.tensor([1.0, -2.0], dtype=torch.float16)})


def test_files_of_more_than_4_gib_have_the_large_fields_of_zip(tmp_path):
    """The file is sparse; no memory is allocated for its block of 5 GiB."""
    from penstock._memory import Block, block_of_bytes
    from penstock._zip import ZipWriter

    class Sparse:
        def __init__(self, path):
            self.file = open(path, "wb")

        def write(self, name, data):
            self.file.write(data)

        def write_at(self, name, address, size):
            if address:
                self.file.write(__import__("ctypes").string_at(address, size))
            else:
                self.file.seek(size, os.SEEK_CUR)

    sparse = Sparse(tmp_path / "large")
    zipped, crc32 = ZipWriter(sparse, "large"), penstock._native.crc32
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(penstock._native, "crc32", lambda address, size, crc: crc32(address, size, crc) if address else 0)
        zipped.add("archive/large", Block(0, 5 << 30, None))
        zipped.add("archive/small", block_of_bytes(b"behind it"))
        zipped.finish()
    sparse.file.close()

    read = zipfile.ZipFile(tmp_path / "large")
    assert [(entry.filename, entry.file_size) for entry in read.infolist()] == [("archive/large", 5 << 30), ("archive/small", 9)]
    assert read.read("archive/small") == b"behind it"


@pytest.mark.parametrize("format", FORMATS)
def test_a_damaged_checkpoint_is_refused_and_the_one_before_is_used(place, format):
    checkpoint.save({"x": torch.zeros(1000)}, 1, format=format)
    path = place / os.path.basename(checkpoint.save({"x": torch.ones(1000)}, 2, format=format))
    (file,) = [name for name in path.iterdir() if name.name.startswith("state")]
    flip(file, -2000)

    with pytest.raises(penstock.CheckpointDamaged, match=file.name):
        checkpoint.load(path)
    with pytest.warns(UserWarning, match=f"{path}.*{file.name}"):
        found = checkpoint.latest()
    with pytest.warns(UserWarning):
        loaded = checkpoint.load()

    assert found.step == 1 and bits(loaded) == bits({"x": torch.zeros(1000)})


@pytest.mark.parametrize("damage", ["cut", "gone", "no-commit", "commit"])
def test_whatever_is_missing_the_one_before_is_used(place, damage):
    checkpoint.save({"x": 1}, 1)
    path = place / os.path.basename(checkpoint.save({"x": 2}, 2))
    if damage == "cut":
        os.truncate(path / "state.pt", 100)
    elif damage == "gone":
        (path / "state.pt").unlink()
    elif damage == "no-commit":
        (path / "COMMIT.json").unlink()
    else:
        flip(path / "COMMIT.json", 40)

    if damage == "no-commit":
        assert checkpoint.load() == {"x": 1}
    else:
        with pytest.warns(UserWarning, match="step-000000000002-1"):
            assert checkpoint.load() == {"x": 1}


class Trap:
    """An object whose unpickling runs code: it creates the directory $TRAP."""

    def __reduce__(self):
        return os.mkdir, (os.environ["TRAP"],)


def test_a_state_that_could_run_code_is_refused_unless_it_is_trusted(place, tmp_path, monkeypatch):
    monkeypatch.setenv("TRAP", str(tmp_path / "sprung"))

    with pytest.warns(UserWarning, match=r"posix\.mkdir.*weights_only=False"):
        path = checkpoint.save({"x": Trap(), "y": torch.zeros(2)}, 1)
    with pytest.raises(penstock.CheckpointError, match=r"state\.pt.*posix\.mkdir.*weights_only=False"):
        checkpoint.load(path)
    assert not (tmp_path / "sprung").exists()
    checkpoint.load(path, weights_only=False)

    assert (tmp_path / "sprung").is_dir()


def test_safetensors_says_where_the_state_has_what_it_cannot_hold(place):
    for state, where in (({"a": [0, {1}]}, r"state\.a\.1 .*builtins\.set"), ({"a": {(1, 2): 0}}, r"state\.a .*\(1, 2\)"),
                         ({"s": torch.eye(2).to_sparse()}, r"state\.s .*torch\.float32")):  # fmt: skip
        with pytest.raises(penstock.CheckpointError, match=where):
            checkpoint.save(state, 1, format="safetensors")
    assert checkpoint.latest() is None


# A tensor and its conjugate have the same memory, type and shape; only a flag of the view differs.
def test_safetensors_holds_a_tensor_and_its_conjugate(place):
    z = torch.tensor([1 + 2j, 3 - 1j])
    checkpoint.save({"z": z, "conjugate": z.conj(), "imaginary": z.imag, "negative": z.conj().imag}, 1, format="safetensors")

    loaded = checkpoint.load()

    assert torch.equal(loaded["z"], z) and torch.equal(loaded["conjugate"], z.conj())
    assert torch.equal(loaded["imaginary"], z.imag) and torch.equal(loaded["negative"], z.conj().imag)


def test_what_stands_in_the_commit(place, monkeypatch):
    monkeypatch.setenv("PENSTOCK_RUN_ID", "cifar-7")
    monkeypatch.setenv("PENSTOCK_ATTEMPT", "3")
    with pytest.warns(UserWarning, match="'nan' is nan"):
        path = checkpoint.save({"x": torch.zeros(5)}, 12, metrics={"loss": 0.25, "nan": float("nan"), "größe": 2})

    found = checkpoint.latest()

    assert (found.path, found.step, found.attempt, found.run, found.world_size) == (path, 12, 3, "cifar-7", 1)
    assert found.metrics == {"loss": 0.25, "größe": 2.0}
    (file,) = found.files
    assert file.name == "state.pt" and file.size == os.path.getsize(os.path.join(path, "state.pt"))
    assert checkpoint.list_all() == [found] and abs(found.time - os.stat(path).st_mtime) < 600


def test_a_step_is_saved_once_by_a_process_and_by_nobody_else_of_the_attempt(place, child):
    first = checkpoint.save({"x": 1}, 5)

    again = checkpoint.save({"x": 2}, 5)
    out, _ = child(
        "import penstock\ntry:\n    penstock.checkpoint.save({}, 5, format='safetensors')\nexcept penstock.CheckpointExists as error:\n    print(error)"
    ).finished()

    assert again == first and "step-000000000005-1" in out and checkpoint.load() == {"x": 1}


def test_later_attempts_come_before_later_steps(place, monkeypatch):
    for attempt, step in (("1", 10), ("2", 4)):
        monkeypatch.setenv("PENSTOCK_ATTEMPT", attempt)
        checkpoint.save({"at": (attempt, step)}, step)

    assert checkpoint.load() == {"at": ("2", 4)}
    assert [(found.attempt, found.step) for found in checkpoint.list_all()] == [(2, 4), (1, 10)]


def test_what_was_restored_is_used_where_there_is_nothing_newer(place, tmp_path, monkeypatch):
    restored = checkpoint.save({"x": "restored"}, 3, dir=tmp_path / "elsewhere")
    monkeypatch.setenv("PENSTOCK_CHECKPOINT", restored)

    before = checkpoint.load()
    checkpoint.save({"x": "newer"}, 4)

    assert before == {"x": "restored"} and checkpoint.load() == {"x": "newer"}


def test_without_a_checkpoint_there_is_nothing_to_load(place):
    assert checkpoint.latest() is None and checkpoint.load() is None and checkpoint.list_all() == []
    place.mkdir()
    assert checkpoint.latest() is None and checkpoint.load() is None


def test_arguments_that_cannot_be_meant_are_refused(place, monkeypatch):
    for arguments in ({"step": -1}, {"step": 1.5}, {"step": True}, {"step": 1, "format": "pickle"}, {"step": 1, "timeout": 0}):
        with pytest.raises(ValueError):
            checkpoint.save({}, **arguments)
    monkeypatch.delenv("PENSTOCK_CHECKPOINT_DIR")
    with pytest.raises(ValueError, match="PENSTOCK_CHECKPOINT_DIR"):
        checkpoint.save({}, 1)
    monkeypatch.setenv("RANK", "2"), monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="RANK=2.*WORLD_SIZE=2"):
        checkpoint.save({}, 1, dir=place)


def test_numbers_of_numpy_are_steps_and_names_of_metrics_are_text(place):
    checkpoint.save({"x": 1}, np.int64(7), metrics={"loss": np.float32(0.5)})

    assert (checkpoint.latest().step, checkpoint.latest().metrics) == (7, {"loss": 0.5})
    for name in (7, "", "a\0b"):
        with pytest.raises(ValueError, match="metric"):
            checkpoint.save({"x": 1}, 8, metrics={name: 1.0})


def test_a_step_whose_checkpoint_was_removed_is_saved_again(place):
    path = checkpoint.save({"x": 1}, 5)
    shutil.rmtree(path)

    again = checkpoint.save({"x": 2}, 5)

    assert again == path and checkpoint.load() == {"x": 2}


def test_only_one_thread_at_a_time_is_at_a_checkpoint(place, wait_for):
    saving = penstock._native.Saving(os.fsencode(place), 1, 0, 2, {}, 100.0)
    saving.write("a", b"rank 0")
    ended = []

    def commit():
        try:
            saving.commit()
        except penstock.CheckpointError as error:
            ended.append(str(error))

    def is_busy():
        try:
            return not saving.path()
        except ValueError as error:
            return "cancel()" in str(error)

    thread = threading.Thread(target=commit)
    thread.start()
    wait_for(is_busy, "the commit")
    for call in (lambda: saving.write("b", b""), lambda: saving.add("b"), saving.commit, saving.give_up):
        with pytest.raises(ValueError, match=r"cancel\(\)"):
            call()
    saving.cancel()
    thread.join()

    assert len(ended) == 1 and checkpoint.list_all() == []


def test_a_save_that_fails_leaves_what_was_there(place):
    checkpoint.save({"x": 1}, 1)
    (place / "step-000000000002-1").write_text("in the way")
    os.chmod(place, 0o755)
    (place / "file").write_text("")

    with pytest.raises(penstock.CheckpointError, match=str(place / "file")):
        checkpoint.save({"x": 2}, 2, dir=place / "file")

    assert checkpoint.load() == {"x": 1}


# A process that dies at any point of a save leaves the previous checkpoint intact.
@pytest.mark.parametrize("moment", ["writing", "before-commit"])
def test_killed_within_a_save_the_checkpoint_before_counts(place, tmp_path, child, wait_for, moment):
    script = """
import pathlib, sys, threading
import numpy
import penstock._safetensors as format
from penstock import checkpoint
moment, marker = sys.argv[1], pathlib.Path(sys.argv[2])
checkpoint.save({"x": numpy.arange(1000)}, 1, format="safetensors")
write = format.SafetensorsState.write
def slow(self, saving, name):
    if moment == "writing":
        saving.write(name, b"half of it")
    else:
        write(self, saving, name)
    marker.touch()
    threading.Event().wait()
format.SafetensorsState.write = slow
checkpoint.save({"x": numpy.arange(2000)}, 2, format="safetensors")
"""
    one = child(script, moment, tmp_path / "marker")
    wait_for(lambda: (tmp_path / "marker").exists() or one.process.poll() is not None, "the save")
    one.process.kill()
    one.process.wait()

    left = sorted(path.name for path in place.iterdir())
    loaded = checkpoint.load()
    checkpoint.save({"x": np.arange(3)}, 2, format="safetensors")

    assert left == ["step-000000000001-1", "step-000000000002-1"]
    assert bits(loaded) == bits({"x": np.arange(1000)}) and bits(checkpoint.load()) == bits({"x": np.arange(3)})


def test_importing_it_imports_no_torch_and_no_numpy(child):
    out, err = child("import sys\nfrom penstock import checkpoint\nprint(sorted({'torch', 'numpy'} & set(sys.modules)), checkpoint.should_stop())").finished()

    assert (out, err) == ("[] False\n", "")


def test_the_module_keeps_to_the_stable_interface_of_python():
    path = penstock._native.__file__
    needed = subprocess.run(["nm", "-D", "--undefined-only", path], check=True, capture_output=True, text=True).stdout
    defined = subprocess.run(["nm", "-D", "--defined-only", path], check=True, capture_output=True, text=True).stdout

    assert path.endswith(".abi3.so") and "_Py_NoneStruct" in needed
    assert not [line for line in needed.splitlines() if " penstock_" in line]
    assert [line.split()[-1] for line in defined.splitlines()] == ["PyInit__native"]
    assert penstock.__version__ == penstock._native.version()


@pytest.mark.parametrize("header", ["[" * 100_000, '{"a": ' * 100_000, '{"x": {"dtype": "F32", "shape": [0, 9223372036854775808], "data_offsets": [0, 0]}}'], ids=["lists", "dicts", "length"])
def test_headers_that_no_reader_can_hold_are_damage(tmp_path, header):
    (tmp_path / "state.safetensors").write_bytes(len(header).to_bytes(8, "little") + header.encode())

    with pytest.raises(penstock.CheckpointDamaged, match="state.safetensors") as raised:
        penstock.checkpoint._safetensors.read(str(tmp_path / "state.safetensors"), "cpu")

    assert "\n" not in str(raised.value)


# A torch without CUDA raises an AssertionError for CUDA devices.
@pytest.mark.parametrize("device", ["nonsense", "cuda:99"])
def test_a_device_that_cannot_load_the_tensors_is_not_reported_as_damage(place, device):
    checkpoint.save({"x": torch.zeros(2)}, 1, format="safetensors")

    with pytest.raises(penstock.CheckpointError, match=f"state.safetensors' to '{device}'") as raised:
        checkpoint.load(map_location=device)

    assert not isinstance(raised.value, penstock.CheckpointDamaged)


def test_randomly_damaged_files_of_safetensors_are_refused_in_one_line(place, tmp_path):
    from penstock import _safetensors

    path = checkpoint.save({"a": torch.arange(4), "n": [1, "x", {"y": None}]}, 1, format="safetensors")
    content = open(os.path.join(path, "state.safetensors"), "rb").read()
    generator, target = random.Random(1), tmp_path / "damaged"

    for _ in range(300):
        broken = bytearray(content[: generator.randrange(len(content) + 1)] if generator.random() < 0.3 else content)
        for _ in range(generator.randrange(3)):
            if broken:
                broken[generator.randrange(len(broken))] = generator.randrange(256)
        target.write_bytes(broken)
        try:
            _safetensors.read(str(target), "cpu")
        except penstock.CheckpointError as error:
            assert "\n" not in str(error)

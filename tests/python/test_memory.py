"""Copies of memory: by several threads, and from simulated GPUs."""
import ctypes
import random
from array import array
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch

import penstock
from penstock import _memory, _native, checkpoint
from penstock._memory import Block, HostBuffer, Source
from states import bits


def copied(pieces, threads):
    _native.copy(array("Q", [word for piece in pieces for word in piece]).tobytes(), threads)


# Large pieces are copied in a different way than small ones: in lines of 64 bytes and groups of
# pages.
@pytest.mark.parametrize("threads", [0, 1, 3, 1000])
def test_every_byte_is_copied_and_none_beside_them(threads):
    generator, size = random.Random(7), 12 << 20
    source = np.random.RandomState(7).randint(0, 256, size, dtype=np.uint8)
    target, expected = np.zeros(size, dtype=np.uint8), np.zeros(size, dtype=np.uint8)
    pieces, at = [], 1
    for length in (1 << 20, (1 << 20) + 1, (3 << 20) + 4095, 32768, 5 << 20, 0, 1, 63, 64, 65, 4096):
        begin = generator.randrange(size - length)
        pieces.append((target.ctypes.data + at, source.ctypes.data + begin, length))
        expected[at : at + length] = source[begin : begin + length]
        at += length + generator.randrange(1, 100)

    copied(pieces, threads)

    assert np.array_equal(target, expected)


def test_pieces_that_are_none_are_refused():
    _native.copy(b"", 4)
    with pytest.raises(ValueError, match=r"copy\(\)"):
        _native.copy(b"1234567", 1)


class Gpu:
    """Replaces torch as HostBuffer sees it on a machine with a GPU; `events` lists the calls in their order."""

    uint8 = torch.uint8

    def __init__(self, lockable=True):
        self.events, self.lockable = [], lockable
        self.cuda = SimpleNamespace(synchronize=lambda device: self.events.append(("synchronize", device)))

    def empty(self, size, dtype, pin_memory):
        assert pin_memory and dtype == torch.uint8
        self.events.append(("lock", size))
        if not self.lockable:
            raise RuntimeError("CUDA error: out of memory\nCompile with TORCH_USE_CUDA_DSA")
        return OnHost(torch.zeros(size, dtype=dtype), self.events)

    def frombuffer(self, owner, dtype):
        return OnHost(torch.frombuffer(owner, dtype=dtype), self.events)

    def get_num_threads(self):
        return 2

    def source(self, values, device):
        values = torch.tensor(values, dtype=torch.uint8)
        return Source(values.numel(), None, lambda: values, device)


class OnHost:
    """A host tensor; a copy to it from a GPU is complete at the latest when that GPU is synchronised."""

    def __init__(self, tensor, events):
        self.tensor, self.events = tensor, events

    def data_ptr(self):
        return self.tensor.data_ptr()

    def __getitem__(self, part):
        return OnHost(self.tensor[part], self.events)

    def copy_(self, values, non_blocking):
        if isinstance(values, BaseException):
            raise values
        self.events.append(("copy", values.numel(), non_blocking))
        self.tensor.copy_(values)


class Device(NamedTuple):
    type: str
    index: int


FIRST, SECOND, OTHER = Device("cuda", 0), Device("cuda", 1), Device("mps", 0)


@pytest.fixture
def gpu(monkeypatch):
    def make(**options):
        made = Gpu(**options)
        monkeypatch.setattr(_memory, "torch_if_loaded", lambda: made)
        return made

    return make


def content(block):
    return bytes((ctypes.c_char * block.size).from_address(block.address))


def test_copies_from_gpus_go_on_beside_those_of_the_host_and_have_ended_when_it_returns(gpu):
    gpu, buffer, host = gpu(), HostBuffer(), np.full(1000, 9, dtype=np.uint8)
    sources = [gpu.source([1] * 70, FIRST), Source(1000, Block(host.ctypes.data, 1000, host)), gpu.source([2] * 3, SECOND), gpu.source([3], OTHER)]

    blocks = buffer.take(sources)

    assert [content(block) for block in blocks] == [b"\1" * 70, b"\t" * 1000, b"\2" * 3, b"\3"]
    assert gpu.events[:4] == [("lock", 2 << 20), ("copy", 70, True), ("copy", 3, True), ("copy", 1, False)]
    assert sorted(gpu.events[4:], key=str) == [("synchronize", FIRST), ("synchronize", SECOND)]


def test_its_memory_is_locked_once_and_only_for_gpus(gpu):
    gpu, buffer = gpu(), HostBuffer()

    buffer.take([gpu.source([3] * 10, OTHER)])
    unlocked = buffer.page_locked
    for _ in range(3):
        buffer.take([gpu.source([1] * 100, FIRST)])
    buffer.take([gpu.source([3] * 10, OTHER)])

    assert not unlocked and buffer.page_locked
    assert [event for event in gpu.events if event[0] == "lock"] == [("lock", 2 << 20)]


def test_memory_that_cannot_be_locked_does_as_well_and_is_asked_for_once(gpu):
    gpu, buffer = gpu(lockable=False), HostBuffer()

    with pytest.warns(UserWarning, match="2097152.*CUDA error: out of memory$"):
        first = [content(block) for block in buffer.take([gpu.source([1] * 100, FIRST)])]
    second = [content(block) for block in buffer.take([gpu.source([2] * 100, FIRST)])]

    assert (first, second) == ([b"\1" * 100], [b"\2" * 100])
    assert [event for event in gpu.events if event[0] == "lock"] == [("lock", 2 << 20)]


def test_when_a_copy_fails_no_other_goes_on(gpu):
    gpu, buffer = gpu(), HostBuffer()
    failing = Source(5, None, lambda: RuntimeError("an illegal memory access was encountered"), SECOND)

    with pytest.raises(RuntimeError, match="illegal memory access"):
        buffer.take([gpu.source([1] * 10, FIRST), failing])

    assert sorted(gpu.events[2:], key=str) == [("synchronize", FIRST), ("synchronize", SECOND)]


def test_in_a_child_of_fork_memory_of_the_gpu_is_left_alone(gpu):
    gpu, locked, plain = gpu(), HostBuffer(), HostBuffer()
    locked.take([gpu.source([1] * 10, FIRST)])
    plain.take([gpu.source([3] * 10, OTHER)])
    address = plain.address

    locked.forget()
    plain.forget()

    assert (locked.size, locked.address, locked.page_locked) == (0, 0, False)
    assert plain.address == address != 0


def test_where_nothing_is_copied_the_blocks_are_those_of_the_tensors(place):
    x = torch.arange(10.0)
    state = penstock.checkpoint._torchfile.TorchState({"x": x, "y": x[2:]}, HostBuffer(), False)

    assert [block.address for block in state.blocks] == [x.data_ptr()]
    checkpoint.save({"x": x}, 1)
    assert bits(checkpoint.load()) == bits({"x": x})

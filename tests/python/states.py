"""States with every kind of value that trainings save, and a bit-for-bit comparison of two states."""
import random
from collections import OrderedDict

import numpy as np
import torch


def bits(value):
    """Returns the value in a form that compares every bit: types, shapes, bytes."""
    if isinstance(value, torch.Tensor):
        flat = value.detach().cpu().contiguous().reshape(-1)
        return ("tensor", str(value.dtype), tuple(value.shape), flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
    if isinstance(value, np.ndarray):
        return ("array", str(value.dtype), value.shape, value.tobytes())
    if isinstance(value, dict):
        return ("dict", [(bits(key), bits(entry)) for key, entry in value.items()])
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [bits(entry) for entry in value])
    return (type(value).__name__, repr(value))


def plain():
    """Returns a state that torch's format and safetensors both support."""
    torch.manual_seed(3)
    odd = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan")])
    odd.view(torch.int32)[4] = 0x7FC12345  # a NaN with unusual bits
    base = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4)
    state = {
        "odd": odd,
        "types": {
            str(dtype)[6:]: torch.arange(7).to(dtype)
            for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
        },
        "bool": torch.tensor([True, False, True]),
        "complex": torch.complex(torch.randn(3), torch.randn(3)),
        "scalar": torch.tensor(2.5),
        "empty": torch.empty(0, 3),
        "turned": base.permute(2, 0, 1),
        "part": base[1:, 1:, ::2],
        "numbers": [1, -(2**70), 0.1, float("inf"), float("-inf"), -0.0, True, None, "text ü"],
        "keys": {0: "zero", 1: {"a.b": 1}, None: 3, 2.5: 4},
        "nothing": {},
        "pair": (1, (2.5, "x"), []),
        "random": random.getstate(),
        "torch": torch.get_rng_state(),
        "numpy": np.random.get_state(),
    }
    state["tied"] = [state["odd"], state["scalar"]]
    return state


def trained():
    """Model and optimizer after some steps, as their state_dict() gives them."""
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(), torch.nn.Linear(4 * 36, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(5, 3, 8, 8)).square().sum().backward()
        optimizer.step()
        schedule.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict(), "step": 3}


def pickled_only():
    """Returns a state that only torch's format supports."""
    shared = torch.arange(10.0)
    return {
        "ordered": OrderedDict(a=1, b=torch.nn.Parameter(torch.ones(2))),
        "views": (shared[2:5], shared[4:8]),
        "sparse": torch.eye(3).to_sparse(),
        "set": {1, 2},
        "size": torch.Size([2, 3]),
        "dtype": torch.bfloat16,
        "device": torch.device("cpu"),
        "strided": base_of_strides(),
        "bytes": b"\x00\xff",
    }


def base_of_strides():
    return torch.empty_strided((3, 4), (1, 3)).copy_(torch.arange(12.0).reshape(3, 4))

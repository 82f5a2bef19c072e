"""States in the safetensors file format: named tensors, without pickle.

The tensors of a nested state are named by their path ("model.conv1.weight"), so any safetensors reader finds them. Everything
else (numbers, text, the nesting itself) is JSON in the file's metadata, under "penstock".
"""
import json
import math
import os
import struct
import sys
from typing import Any, Dict, List, Tuple

from penstock._errors import CheckpointDamaged, CheckpointError
from penstock._memory import HostBuffer, Source, block_of_array, block_of_bytes, block_of_tensor, blocks_of, torch_if_loaded, view_of

SUFFIX = ".safetensors"
_METADATA = "penstock"
# Maximum size of a header in the format; bounds the memory that an unverified file can claim.
_HEADER_LIMIT = 100_000_000

# safetensors' name, torch's, numpy's
_TYPES = [
    ("F64", "float64", "float64"), ("F32", "float32", "float32"), ("F16", "float16", "float16"), ("BF16", "bfloat16", None),
    ("I64", "int64", "int64"), ("I32", "int32", "int32"), ("I16", "int16", "int16"), ("I8", "int8", "int8"),
    ("U64", "uint64", "uint64"), ("U32", "uint32", "uint32"), ("U16", "uint16", "uint16"), ("U8", "uint8", "uint8"),
    ("BOOL", "bool", "bool"), ("C64", "complex64", "complex64"), ("F8_E4M3", "float8_e4m3fn", None), ("F8_E5M2", "float8_e5m2", None),
]  # fmt: skip
_OF_TORCH = {torch: name for name, torch, _ in _TYPES}
_OF_NUMPY = {numpy: name for name, _, numpy in _TYPES if numpy}
_TO_TORCH = {name: torch for name, torch, _ in _TYPES}
_TO_NUMPY = {name: numpy for name, _, numpy in _TYPES if numpy}


class _Flattener:
    """Splits a state into the JSON of its structure and its named tensors."""

    def __init__(self) -> None:
        self.torch = torch_if_loaded()
        self.numpy: Any = sys.modules.get("numpy")
        self.entries: Dict[str, Tuple[str, List[int]]] = {}
        self.sources: List[Source] = []
        self.names: Dict[Any, str] = {}
        self.kept: List[Any] = []

    def node(self, value: Any, path: str) -> Any:
        if value is None or isinstance(value, (bool, str)) or type(value) is int:
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, dict):
            return {"dict": [self.pair(key, entry, path) for key, entry in value.items()]}
        if type(value) is list:
            return [self.node(entry, self.join(path, at)) for at, entry in enumerate(value)]
        if type(value) is tuple:
            return {"tuple": [self.node(entry, self.join(path, at)) for at, entry in enumerate(value)]}
        if self.torch is not None and isinstance(value, self.torch.Tensor):
            return {"tensor": self.tensor(value, path)}
        if self.numpy is not None and isinstance(value, self.numpy.ndarray):
            return {"array": self.array(value, path)}
        raise CheckpointError(
            f"state{'.' if path else ''}{path} is a {type(value).__module__}.{type(value).__qualname__}, which the format 'safetensors' "
            "does not support: use tensors, arrays, numbers, text, None, lists, tuples and dicts, or format='torch'"
        )

    def pair(self, key: Any, value: Any, path: str) -> List[Any]:
        if key is not None and not isinstance(key, (bool, str)) and type(key) not in (int, float):
            raise CheckpointError(f"state{'.' if path else ''}{path} has the key {key!r}; the format 'safetensors' supports text and numbers")
        return [self.node(key, path), self.node(value, self.join(path, key))]

    @staticmethod
    def join(path: str, name: Any) -> str:
        return f"{path}.{name}" if path else str(name)

    def new_name(self, path: str) -> str:
        """Returns a unique name: the path, with a number if another tensor has the same path, such as ``{1: a, "1": b}``."""
        name, again = path or "tensor", 1
        while name in self.entries or name == "__metadata__":
            again += 1
            name = f"{path}#{again}"
        return name

    def once(self, identity: Any, kind: str, shape: Any, source: Any, path: str) -> str:
        """Returns the name of a tensor. A tensor that occurs again, such as tied weights, is written once."""
        if identity not in self.names:
            name = self.names[identity] = self.new_name(path)
            self.entries[name] = (kind, [int(length) for length in shape])
            self.sources.append(source())
        return self.names[identity]

    def tensor(self, value: Any, path: str) -> str:
        torch = self.torch
        kind = _OF_TORCH.get(str(value.dtype)[6:])
        if kind is None or value.layout != torch.strided or value.device.type == "meta":
            raise CheckpointError(f"state.{path} is a tensor of {value.dtype} ({value.layout}, {value.device}), which the format 'safetensors' does not support")

        def source() -> Source:
            flat = value.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
            flat = flat.view(torch.uint8) if flat.numel() else torch.empty(0, dtype=torch.uint8)
            if flat.device.type == "cpu":
                return Source(flat.numel(), block_of_tensor(flat))
            return Source(flat.numel(), None, lambda: flat, flat.device)

        self.kept.append(value)  # keeps its address from being reused
        flags = (value.is_conj(), value.is_neg())  # a view with such a flag shares the memory of another tensor
        identity = (value.data_ptr() or id(value), value.device, kind, tuple(value.shape), tuple(value.stride()), flags)
        return self.once(identity, kind, value.shape, source, path)

    def array(self, value: Any, path: str) -> str:
        kind = _OF_NUMPY.get(str(value.dtype))
        if kind is None:
            raise CheckpointError(f"state.{path} is an array of {value.dtype}, which the format 'safetensors' does not support")
        self.kept.append(value)
        return self.once(id(value), kind, value.shape, lambda: Source(value.nbytes, block_of_array(self.numpy.ascontiguousarray(value))), path)


class SafetensorsState:
    """A snapshot of a state, like ``TorchState``."""

    suffix = SUFFIX

    def __init__(self, state: Any, buffer: HostBuffer, copy: bool):
        flat = _Flattener()
        node = flat.node(state, "")
        # The tensors with large elements come first, so that every tensor is aligned to its element size.
        names, kinds, end = list(flat.entries), [kind for kind, _ in flat.entries.values()], 0
        order = sorted(range(len(names)), key=lambda at: -_bytes_each(kinds[at]))
        header: Dict[str, Any] = {"__metadata__": {"format": "pt", _METADATA: json.dumps(node, separators=(",", ":"), allow_nan=False)}}
        for at in order:
            kind, shape = flat.entries[names[at]]
            size = flat.sources[at].size
            header[names[at]] = {"dtype": kind, "shape": shape, "data_offsets": [end, end + size]}
            end += size
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        if len(text) > _HEADER_LIMIT:
            raise CheckpointError(f"the names and numbers of this state take {len(text)} bytes; the format 'safetensors' allows {_HEADER_LIMIT}")
        self.header = struct.pack("<Q", len(text)) + text
        self.blocks = blocks_of([flat.sources[at] for at in order], buffer, copy)
        self.refused: List[str] = []

    def write(self, saving: Any, name: str) -> None:
        header = block_of_bytes(self.header)
        for block in [header, *self.blocks]:
            saving.write_at(name, block.address, block.size)


def _bytes_each(kind: str) -> int:
    return {"C64": 8, "BF16": 2, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1}.get(kind) or int(kind[1:]) // 8


# ---- reading ----


def read(path: str, map_location: Any) -> Any:
    """Returns the state in a file written by ``SafetensorsState``; for other files, a dict of their tensors."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            (length,) = struct.unpack("<Q", file.read(8))
            if length > min(_HEADER_LIMIT, size - 8):
                raise ValueError(f"the header claims {length} bytes, the file has {size}")
            header = json.loads(file.read(length))
            metadata = header.pop("__metadata__", {})
            reader = _Reader(file, 8 + length, size, header, map_location)
            if _METADATA not in metadata:
                return {name: reader.tensor(name) for name in header}
            return reader.value(json.loads(metadata[_METADATA]))
    except CheckpointError:
        raise
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, OverflowError, RuntimeError) as error:  # RuntimeError includes too deep nesting
        raise CheckpointDamaged(f"{path}: invalid safetensors file: {' '.join(str(error).split())}") from error


class _Reader:
    def __init__(self, file: Any, begin: int, size: int, header: Dict[str, Any], map_location: Any):
        self.file, self.begin, self.size, self.header, self.map_location = file, begin, size, header, map_location
        self.known: Dict[str, Any] = {}

    def bytes_of(self, name: str, into: Any, size: int) -> None:
        begin, end = self.header[name]["data_offsets"]
        if not 0 <= begin <= end <= self.size - self.begin or end - begin != size:
            raise ValueError(f"tensor '{name}' has the invalid range {begin} to {end}")
        self.file.seek(self.begin + begin)
        if self.file.readinto(into) != size:
            raise ValueError(f"tensor '{name}' is truncated")

    def shape(self, name: str) -> Tuple[str, List[int], int]:
        entry = self.header[name]
        kind, shape = entry["dtype"], entry["shape"]
        if kind not in _TO_TORCH or not all(type(length) is int and length >= 0 for length in shape):
            raise ValueError(f"tensor '{name}' has an invalid type or shape: {kind} {shape}")
        size = math.prod(shape) * _bytes_each(kind)
        if size > self.size:
            raise ValueError(f"tensor '{name}' claims {size} bytes, more than the file has")
        return kind, shape, size

    def tensor(self, name: str) -> Any:
        import torch

        if name not in self.known:
            kind, shape, size = self.shape(name)
            memory = torch.empty(size, dtype=torch.uint8)
            if size:
                self.bytes_of(name, view_of(memory), size)
            tensor = (memory.view(getattr(torch, _TO_TORCH[kind])) if size else torch.empty(0, dtype=getattr(torch, _TO_TORCH[kind]))).reshape(shape)
            self.known[name] = self.moved(tensor)
        return self.known[name]

    def moved(self, tensor: Any) -> Any:
        if self.map_location is None:
            return tensor
        try:
            return tensor.to(self.map_location)
        except (RuntimeError, TypeError, AssertionError) as error:  # such as a GPU without room, or a torch without CUDA: the file is not damaged
            raise CheckpointError(f"cannot load '{self.file.name}' to {self.map_location!r}: {' '.join(str(error).split())}") from error

    def array(self, name: str) -> Any:
        import numpy

        key = f"array {name}"
        if key not in self.known:
            kind, shape, size = self.shape(name)
            memory = numpy.empty(size, dtype=numpy.uint8)
            if size:
                self.bytes_of(name, memory, size)
            self.known[key] = memory.view(_TO_NUMPY[kind]).reshape(shape)
        return self.known[key]

    def value(self, node: Any) -> Any:
        if isinstance(node, list):
            return [self.value(entry) for entry in node]
        if not isinstance(node, dict):
            return node
        ((kind, content),) = node.items()
        if kind == "dict":
            return {self.value(key): self.value(entry) for key, entry in content}
        if kind == "tuple":
            return tuple(self.value(entry) for entry in content)
        if kind == "float":
            return float(content)
        return {"tensor": self.tensor, "array": self.array}[kind](content)


"""States in the file format of torch.save() and torch.load(): any object that can be pickled.

Saving takes two steps. ``TorchState`` pickles the state without the memory of its tensors, which is fast, and lists that
memory. ``write()`` then writes both to the file, at any later time and from any thread.

With ``weights_only``, reading unpickles only types on an allow-list: tensors and the types of states, nothing that could
run code from the file.
"""
import inspect
import io
import pickle
import sys
import types
import zipfile
from collections import OrderedDict
from typing import Any, Dict, List, Set, Tuple

from penstock._errors import CheckpointError
from penstock._memory import Block, HostBuffer, Source, block_of_bytes, blocks_of, view_of
from penstock._zip import ZipWriter

SUFFIX = ".pt"
# The only protocol that torch.load(weights_only=True) reads.
_PROTOCOL = 2
_FOLDER = "archive"

_STORAGE_NAMES = {
    "float64": "DoubleStorage", "float32": "FloatStorage", "float16": "HalfStorage", "bfloat16": "BFloat16Storage",
    "int64": "LongStorage", "int32": "IntStorage", "int16": "ShortStorage", "int8": "CharStorage", "uint8": "ByteStorage",
    "bool": "BoolStorage", "complex128": "ComplexDoubleStorage", "complex64": "ComplexFloatStorage",
    "qint8": "QInt8Storage", "qint32": "QInt32Storage", "quint8": "QUInt8Storage",
    "quint4x2": "QUInt4x2Storage", "quint2x4": "QUInt2x4Storage",
}  # fmt: skip


class _Storage:
    """Represents a storage in the pickle; ``persistent`` is torch's reference to it."""

    __slots__ = ("persistent",)

    def __init__(self, persistent: Tuple[Any, ...]):
        self.persistent = persistent


class _Pickler(pickle.Pickler):
    """Replaces every storage with a number and records the global names in the pickle.

    A state has thousands of tensors, and the caller of save() waits until they are pickled. Plain
    tensors are reduced here, in a tenth of the time of their own ``__reduce_ex__``.
    """

    def __init__(self, file: io.BytesIO, torch: Any):
        super().__init__(file, protocol=_PROTOCOL)
        self.torch = torch
        self.plain = torch.Tensor
        self.strided = torch.strided
        self.rebuild = torch._utils._rebuild_tensor_v2
        self.typed = torch.storage.TypedStorage
        self.untyped = torch.UntypedStorage
        self.storage_of = getattr(torch.Tensor, "untyped_storage", None) or torch.Tensor._storage
        self.kinds: Dict[Any, Any] = {}
        self.sources: List[Source] = []
        self.keys: Dict[int, Tuple[str, Any]] = {}
        self.globals: Set[Tuple[str, str]] = set()

    def persistent_id(self, obj: Any) -> Any:
        kind = type(obj)
        if kind is _Storage:
            return obj.persistent
        if kind is self.typed or isinstance(obj, self.typed):
            storage = getattr(obj, "_untyped_storage", None)
            return self.reference(obj._storage if storage is None else storage, obj.dtype)
        if kind is self.untyped:
            return self.reference(obj, None)
        return None

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is self.plain and self.is_plain(obj):
            dtype = obj.dtype
            if dtype in self.kinds or str(dtype)[6:] in _STORAGE_NAMES:
                storage = _Storage(self.reference(self.storage_of(obj), dtype))
                return self.rebuild, (storage, obj.storage_offset(), tuple(obj.shape), obj.stride(), obj.requires_grad, OrderedDict())
        elif isinstance(obj, (type, types.FunctionType, types.BuiltinFunctionType)):
            self.globals.add((obj.__module__ or "builtins", obj.__qualname__))
        return NotImplemented

    def is_plain(self, tensor: Any) -> bool:
        return (
            tensor.layout is self.strided
            and tensor.device.type in ("cpu", "cuda")
            and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg() or tensor.__dict__ or tensor._backward_hooks)
            and (not hasattr(tensor, "names") or not tensor.has_names())
        )

    def reference(self, storage: Any, dtype: Any) -> Tuple[Any, ...]:
        """Returns torch's reference to a storage with elements of this type; ``dtype`` is None for bytes."""
        kind, size = self.kinds.get(dtype, (None, 0))
        if kind is None:
            kind = self.untyped if dtype is None else getattr(self.torch, _STORAGE_NAMES[str(dtype)[6:]])
            size = 1 if dtype is None else self.torch.empty(0, dtype=dtype).element_size()
            self.kinds[dtype] = (kind, size)
        nbytes = storage.nbytes()
        key, first = self.keys.get(storage._cdata, (None, None))
        if key is None:
            key = str(len(self.sources))
            self.keys[storage._cdata] = (key, dtype)
            self.sources.append(self.source(storage, nbytes))
        elif dtype != first and nbytes != 0:
            raise CheckpointError("the state has tensors that share memory with different types; save a clone of one")
        return ("storage", kind, key, "cpu", nbytes // size)

    def source(self, storage: Any, nbytes: int) -> Source:
        """Returns the source of a storage. The source keeps the storage alive until it is saved."""
        device = storage.device
        if device.type == "meta" and nbytes:
            raise CheckpointError("the state has a tensor on the device 'meta', which has no content; materialise it first")

        if device.type == "cpu" or nbytes == 0:
            return Source(nbytes, Block(storage.data_ptr() if nbytes else 0, nbytes, storage))
        return Source(nbytes, None, lambda: self.torch.empty(0, dtype=self.torch.uint8, device=device).set_(storage, 0, (nbytes,), (1,)), device)


def _old(torch: Any) -> bool:
    """Returns True for torch before 2.0, where a tensor accepts only typed storages."""
    return int(torch.__version__.split(".")[0]) < 2


class TorchState:
    """A snapshot of a state. With ``copy``, ``write()`` is not affected by later changes of the tensors."""

    suffix = SUFFIX

    def __init__(self, state: Any, buffer: HostBuffer, copy: bool):
        import torch

        out = io.BytesIO()
        pickler = _Pickler(out, torch)
        pickler.dump(state)
        self.pickled = out.getvalue()
        self.blocks = blocks_of(pickler.sources, buffer, copy)
        #: Names that load() will refuse, as "module.name".
        self.refused = sorted(f"{module}.{name}" for module, name in pickler.globals if not _is_allowed(module, name))

    def write(self, saving: Any, name: str) -> None:
        zipped = ZipWriter(saving, name)
        zipped.add(f"{_FOLDER}/data.pkl", block_of_bytes(self.pickled))
        zipped.add(f"{_FOLDER}/byteorder", block_of_bytes(sys.byteorder.encode()))
        for key, block in enumerate(self.blocks):
            zipped.add(f"{_FOLDER}/data/{key}", block)
        zipped.add(f"{_FOLDER}/version", block_of_bytes(b"3\n"))
        zipped.finish()


# ---- reading ----

_ALLOWED = {
    "collections": {"OrderedDict"},
    "builtins": {"set", "frozenset", "complex", "bytearray", "slice", "range"},
    "_codecs": {"encode"},
    "torch": {"Size", "Tensor", "device", "UntypedStorage"},
    "torch.storage": {"TypedStorage", "UntypedStorage"},
    "torch.serialization": {"_get_layout"},
    "torch.nn.parameter": {"Parameter"},
    "torch._utils": {
        "_rebuild_device_tensor_from_numpy", "_rebuild_meta_tensor_no_storage", "_rebuild_nested_tensor", "_rebuild_parameter",
        "_rebuild_qtensor", "_rebuild_sparse_csr_tensor", "_rebuild_sparse_tensor", "_rebuild_tensor", "_rebuild_tensor_v2",
        "_rebuild_tensor_v3",
    },
    "numpy": {"dtype", "ndarray"},
    "numpy.core.multiarray": {"_reconstruct", "scalar"},
    "numpy._core.multiarray": {"_reconstruct", "scalar"},
}  # fmt: skip
_PYTHON_2 = {"__builtin__": "builtins", "copy_reg": "copyreg"}


def _is_allowed(module: str, name: str) -> bool:
    module = _PYTHON_2.get(module, module)
    if name in _ALLOWED.get(module, ()):
        return True
    if module == "numpy.dtypes":
        return name.endswith("DType")
    torch = sys.modules.get("torch")
    if module != "torch" or torch is None:
        return False
    return name in _STORAGE_NAMES.values() or isinstance(
        getattr(torch, name, None), (torch.dtype, torch.layout, torch.memory_format, torch.qscheme)
    )


class RestrictedUnpickler(pickle.Unpickler):
    """Resolves names on the allow-list and refuses all others."""

    def find_class(self, module: str, name: str) -> Any:
        if not self.is_allowed(module, name):
            raise pickle.UnpicklingError(f"refused to load '{module}.{name}', which could run code")
        return super().find_class(module, name)

    def is_allowed(self, module: str, name: str) -> bool:
        return _is_allowed(module, name)


class _StateUnpickler(RestrictedUnpickler):
    """Unpickles an open file and reads each storage when the pickle refers to it.

    torch.load(weights_only=True) cannot be used: its allow-list has no arrays, and before torch 2.0 not even floats. Nor can
    torch.load(pickle_module=…) be used: torch 1.13 ignores the argument.
    """

    def __init__(self, records: "_Records", map_location: Any):
        super().__init__(io.BytesIO(records.content("data.pkl")), encoding="utf-8")
        import torch

        self.torch, self.records, self.map_location = torch, records, map_location
        self.storages: Dict[str, Any] = {}

    def find_class(self, module: str, name: str) -> Any:
        if name in _STORAGE_TYPES and module in ("torch", "torch.storage"):
            return _STORAGE_TYPES[name]
        return super().find_class(module, name)

    def persistent_load(self, saved: Any) -> Any:
        if not isinstance(saved, tuple) or len(saved) != 5 or saved[0] != "storage":
            raise pickle.UnpicklingError("invalid reference to a storage")
        _, kind, key, location, count = saved
        if kind is self.torch.UntypedStorage or kind is self.torch.storage.UntypedStorage:
            kind = "uint8"
        if not isinstance(kind, str) or not isinstance(key, str) or type(count) is not int or count < 0:
            raise pickle.UnpicklingError("reference to a storage of unknown type")
        if key not in self.storages:
            dtype = getattr(self.torch, kind)
            size = count * self.torch.empty(0, dtype=dtype).element_size()
            memory = self.torch.empty(size, dtype=self.torch.uint8)
            self.records.read_into(f"data/{key}", memory)
            options = {} if _old(self.torch) else {"_internal": True}
            self.storages[key] = self.torch.storage.TypedStorage(wrap_storage=self.placed(memory, str(location)), dtype=dtype, **options)
        return self.storages[key]

    def placed(self, memory: Any, location: str) -> Any:
        """Returns the storage of this memory, moved according to `map_location`."""
        target = self.map_location
        if isinstance(target, dict):
            target = target.get(location, location)
        elif target is None:
            target = location
        if callable(target):
            moved = target(_untyped(memory), location)
            return _untyped(memory) if moved is None else getattr(moved, "_untyped_storage", moved)
        return _untyped(memory if str(target) == "cpu" else memory.to(target))


_STORAGE_TYPES = {name: dtype for dtype, name in _STORAGE_NAMES.items()}


def _untyped(tensor: Any) -> Any:
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage().untyped()


class _Records:
    """The uncompressed entries of a file written by torch.save()."""

    def __init__(self, file: Any):
        self.file = file
        with zipfile.ZipFile(file) as zipped:
            entries = zipped.infolist()
        self.folder = next((entry.filename[: -len("data.pkl")] for entry in entries if entry.filename.endswith("/data.pkl")), "")
        self.entries = {entry.filename: entry for entry in entries}
        if not self.folder:
            raise ValueError("entry 'data.pkl' is missing")
        order = self.content("byteorder").decode("ascii") if self.folder + "byteorder" in self.entries else "little"
        if order != sys.byteorder:
            raise ValueError(f"the file is {order}-endian, this machine is not")

    def place(self, name: str) -> Tuple[int, int]:
        """Returns the offset and the size of an entry."""
        entry = self.entries.get(self.folder + name)
        if entry is None:
            raise ValueError(f"entry '{name}' is missing")
        if entry.compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"entry '{name}' is compressed")
        self.file.seek(entry.header_offset)
        header = self.file.read(30)
        if len(header) != 30 or header[:4] != b"PK\x03\x04":
            raise ValueError(f"entry '{name}' is truncated")
        return entry.header_offset + 30 + int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little"), entry.file_size

    def content(self, name: str) -> bytes:
        offset, size = self.place(name)
        self.file.seek(offset)
        found: bytes = self.file.read(size)
        if len(found) != size:
            raise ValueError(f"entry '{name}' is truncated")
        return found

    def read_into(self, name: str, memory: Any) -> None:
        offset, size = self.place(name)
        if size != memory.numel():
            raise ValueError(f"entry '{name}' has {size} bytes, expected {memory.numel()}")
        self.file.seek(offset)
        if size and self.file.readinto(view_of(memory)) != size:
            raise ValueError(f"entry '{name}' is truncated")


def read(path: str, map_location: Any, weights_only: bool) -> Any:
    """Returns the state in a file written by torch.save() or ``TorchState``."""
    import torch

    takes_weights_only = "weights_only" in inspect.signature(torch.load).parameters
    try:
        if not weights_only or not zipfile.is_zipfile(path):  # files from before torch 1.6 are not ZIP files
            if weights_only and not takes_weights_only:
                raise pickle.UnpicklingError("files from before torch 1.6 cannot be restricted to weights by this torch")
            return torch.load(path, map_location=map_location, **({"weights_only": weights_only} if takes_weights_only else {}))
        with open(path, "rb") as file:
            return _StateUnpickler(_Records(file), map_location).load()
    except pickle.UnpicklingError as error:
        raise CheckpointError(f"cannot load '{path}': {_line(error)}; use weights_only=False if you trust the file") from error
    except (EOFError, RuntimeError, ValueError, KeyError, TypeError, AttributeError, IndexError, zipfile.BadZipFile) as error:
        raise CheckpointError(f"cannot load '{path}' with torch: {_line(error)}") from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())

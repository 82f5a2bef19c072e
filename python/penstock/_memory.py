"""Addresses of the memory of tensors and arrays, and the buffer that asynchronous saves copy it into."""
import ctypes
import mmap
import os
import sys
import warnings
from array import array
from typing import Any, Callable, List, Optional

from penstock import _native

_HUGE_PAGE = 2 << 20
_ALIGNMENT = 64
# Bytes that one thread copies at a time; fewer bytes are not worth another thread.
_PIECE = 8 << 20
_MAX_THREADS = 8
# Linux defines this flag; Python's mmap lacks it.
_MADV_WIPEONFORK = 18


class Block:
    """``size`` bytes of host memory at ``address``; ``owner`` keeps them alive."""

    __slots__ = ("address", "owner", "size")

    def __init__(self, address: int, size: int, owner: Any):
        self.address, self.size, self.owner = address, size, owner


def torch_if_loaded() -> Any:
    """Returns the module torch; None if torch has not been imported, so that no object can be a
    tensor."""
    return sys.modules.get("torch")


def block_of_bytes(data: bytes) -> Block:
    """Returns the block of an immutable bytes object."""
    return Block(ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0, len(data), data)


def block_of_tensor(tensor: Any) -> Block:
    """Returns the block of a contiguous tensor on the CPU."""
    return Block(tensor.data_ptr(), tensor.numel() * tensor.element_size(), tensor)


def block_of_array(array: Any) -> Block:
    """Returns the block of a contiguous numpy array."""
    return Block(array.__array_interface__["data"][0], array.nbytes, array)


def view_of(tensor: Any) -> memoryview:
    """Returns a view of a flat, non-empty tensor of bytes on the CPU; the caller keeps the tensor alive."""
    return memoryview((ctypes.c_char * tensor.numel()).from_address(tensor.data_ptr())).cast("B")


class HostBuffer:
    """Host memory that all saves reuse; page-locked if it receives copies from a GPU."""

    def __init__(self) -> None:
        self.size = 0
        self.address = 0
        self.page_locked = False
        self._owner: Any = None
        self._tensor: Any = None

    def reserve(self, size: int, page_locked: bool) -> None:
        """Ensures room for ``size`` bytes. The content is lost."""
        if size <= self.size and (self.page_locked or not page_locked):
            return
        self.__init__()  # type: ignore[misc]  # frees the old memory before the new is allocated
        size = -(-size // _HUGE_PAGE) * _HUGE_PAGE
        if page_locked:
            self._tensor = _page_locked(size)
        if self._tensor is not None:
            self.address = self._tensor.data_ptr()
        else:
            memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            # Large pages make the first copy fast. A forked child gets zeros in their place: sharing the pages would slow down
            # the next copy, and leaving them unmapped would crash a save in the child.
            for advice in (getattr(mmap, "MADV_HUGEPAGE", None), _MADV_WIPEONFORK):
                try:
                    if advice is not None:
                        memory.madvise(advice)
                except OSError:
                    pass
            self._owner = memory
            self.address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self.size, self.page_locked = size, page_locked

    def tensor(self) -> Any:
        """Returns the whole buffer as a tensor of bytes."""
        if self._tensor is None:
            torch = torch_if_loaded()
            self._tensor = torch.frombuffer(self._owner, dtype=torch.uint8)
        return self._tensor

    def forget(self) -> None:
        """Drops the buffer in a forked child without freeing it: memory locked by CUDA belongs to the parent."""
        if self._tensor is not None and self._owner is None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._tensor))
            self.__init__()  # type: ignore[misc]

    def take(self, sources: "List[Source]") -> List[Block]:
        """Copies all sources into the buffer, one after another. The sources may change once this method has returned.

        Copies from GPUs run asynchronously while host memory is copied.
        """
        offsets, end = [], 0
        for source in sources:
            offsets.append(end)
            end += -(-source.size // _ALIGNMENT) * _ALIGNMENT
        devices = {source.device for source in sources if source.device is not None and source.device.type == "cuda"}
        self.reserve(end, bool(devices))
        pieces = array("Q")
        try:
            for source, offset in zip(sources, offsets):
                to = self.address + offset
                if source.block is None:
                    assert source.tensor is not None
                    self.tensor()[offset : offset + source.size].copy_(source.tensor(), non_blocking=source.device in devices)
                    continue
                for at in range(0, source.size, _PIECE):
                    pieces.extend((to + at, source.block.address + at, min(_PIECE, source.size - at)))
            _native.copy(pieces.tobytes(), _threads())
        finally:
            # Wait for copies in flight, even after an error: the memory may be reused next.
            for device in devices:
                torch_if_loaded().cuda.synchronize(device)
        return [Block(self.address + offset, source.size, self) for source, offset in zip(sources, offsets)]


def _page_locked(size: int) -> Any:
    """Returns a page-locked tensor of bytes, to which a GPU copies directly; None if the memory cannot be locked."""
    torch = torch_if_loaded()
    try:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)
    except RuntimeError as error:
        warnings.warn(f"cannot lock {size} bytes of memory, so copies from the GPU will be slower: {str(error).splitlines()[0]}", stacklevel=2)
        return None


def _threads() -> int:
    """Returns the number of threads that copy: as many as torch has, which are idle during a copy, or one per CPU without torch; at most 8."""
    torch = torch_if_loaded()
    return int(min(torch.get_num_threads() if torch is not None else len(os.sched_getaffinity(0)), _MAX_THREADS))


class Source:
    """Memory to save: a block of host memory, or, for another device, a function that returns a flat tensor of its bytes."""

    __slots__ = ("block", "device", "size", "tensor")

    def __init__(self, size: int, block: Optional[Block], tensor: "Optional[Callable[[], Any]]" = None, device: Any = None):
        self.size, self.block, self.tensor, self.device = size, block, tensor, device


def blocks_of(sources: List[Source], buffer: HostBuffer, copy: bool) -> List[Block]:
    """Returns the sources' bytes in host memory: copied into ``buffer``, or in place if all are in host memory and ``copy`` is False."""
    if copy or any(source.block is None for source in sources):
        return buffer.take(sources)
    return [source.block for source in sources if source.block is not None]

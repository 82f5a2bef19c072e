"""Memory of tensors and arrays as addresses, and the one buffer into which an asynchronous save copies it."""
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
# What one thread copies at a time; below it no thread is worth its start.
_PIECE = 8 << 20
_MAX_THREADS = 8
# The header of Linux has it, Python's mmap does not.
_MADV_WIPEONFORK = 18


class Block:
    """``size`` bytes of host memory at ``address``; ``owner`` is what keeps them there."""

    __slots__ = ("address", "owner", "size")

    def __init__(self, address: int, size: int, owner: Any):
        self.address, self.size, self.owner = address, size, owner


def torch_if_loaded() -> Any:
    """The module torch where somebody imported it: without it, nothing can be one of its tensors."""
    return sys.modules.get("torch")


def block_of_bytes(data: bytes) -> Block:
    """Of an object that is never written to; the address is that of its bytes."""
    return Block(ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0, len(data), data)


def block_of_tensor(tensor: Any) -> Block:
    """Of a contiguous tensor on the CPU."""
    return Block(tensor.data_ptr(), tensor.numel() * tensor.element_size(), tensor)


def block_of_array(array: Any) -> Block:
    """Of a contiguous array of numpy."""
    return Block(array.__array_interface__["data"][0], array.nbytes, array)


def view_of(tensor: Any) -> memoryview:
    """The memory of a flat tensor of bytes on the CPU that is not empty; the tensor has to stay."""
    return memoryview((ctypes.c_char * tensor.numel()).from_address(tensor.data_ptr())).cast("B")


class HostBuffer:
    """Host memory that is made once and used again by every save; page-locked where it takes copies from a GPU."""

    def __init__(self) -> None:
        self.size = 0
        self.address = 0
        self.page_locked = False
        self._owner: Any = None
        self._tensor: Any = None

    def reserve(self, size: int, page_locked: bool) -> None:
        """Makes room for ``size`` bytes. What was in it is gone."""
        if size <= self.size and (self.page_locked or not page_locked):
            return
        self.__init__()  # type: ignore[misc]  # the old one goes before the new one comes
        size = -(-size // _HUGE_PAGE) * _HUGE_PAGE
        if page_locked:
            self._tensor = _page_locked(size)
        if self._tensor is not None:
            self.address = self._tensor.data_ptr()
        else:
            memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            # Large pages make the first copy quick. Children of fork() get zeros in their place: to share the pages would make
            # the next copy slow, and to have none there would make a child's own save a crash.
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
        """The whole of it as a tensor of bytes."""
        if self._tensor is None:
            torch = torch_if_loaded()
            self._tensor = torch.frombuffer(self._owner, dtype=torch.uint8)
        return self._tensor

    def forget(self) -> None:
        """In a child of fork(): memory that CUDA has locked is not there, and not the child's to give back."""
        if self._tensor is not None and self._owner is None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._tensor))
            self.__init__()  # type: ignore[misc]

    def take(self, sources: "List[Source]") -> List[Block]:
        """Copies every source into it, one behind the other; when it returns the sources may change.

        Copies from GPUs are begun first and go on while the host's memory is copied.
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
            # Whatever happens, nothing copies any more when the memory is somebody else's.
            for device in devices:
                torch_if_loaded().cuda.synchronize(device)
        return [Block(self.address + offset, source.size, self) for source, offset in zip(sources, offsets)]


def _page_locked(size: int) -> Any:
    """A tensor of bytes that a GPU copies to by itself; None where the machine has not so much memory to lock: the copies are slower then."""
    torch = torch_if_loaded()
    try:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)
    except RuntimeError as error:
        warnings.warn(f"cannot lock {size} bytes of memory, so copies from the GPU take longer: {str(error).splitlines()[0]}", stacklevel=2)
        return None


def _threads() -> int:
    """How many threads may copy: as many as torch computes with, which stand still meanwhile."""
    torch = torch_if_loaded()
    return int(min(torch.get_num_threads() if torch is not None else len(os.sched_getaffinity(0)), _MAX_THREADS))


class Source:
    """Memory to be saved: a block of the host's, or, of another device, what makes a flat tensor of its bytes."""

    __slots__ = ("block", "device", "size", "tensor")

    def __init__(self, size: int, block: Optional[Block], tensor: "Optional[Callable[[], Any]]" = None, device: Any = None):
        self.size, self.block, self.tensor, self.device = size, block, tensor, device


def blocks_of(sources: List[Source], buffer: HostBuffer, copy: bool) -> List[Block]:
    """The sources' bytes on the host: copied into ``buffer``, or, where all of it is there and ``copy`` is false, where they are."""
    if copy or any(source.block is None for source in sources):
        return buffer.take(sources)
    return [source.block for source in sources if source.block is not None]

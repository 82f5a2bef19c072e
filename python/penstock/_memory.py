"""Memory of tensors and arrays as addresses, and the one buffer into which an asynchronous save copies it."""
import ctypes
import mmap
import os
import sys
import threading
from collections import deque
from typing import Any, Callable, Deque, List, Optional, Tuple

_HUGE_PAGE = 2 << 20
_ALIGNMENT = 64
# What one thread copies at a time; below it no thread is worth its start.
_PIECE = 8 << 20
_MAX_THREADS = 8


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
            self._tensor = torch_if_loaded().empty(size, dtype=torch_if_loaded().uint8, pin_memory=True)
            self.address = self._tensor.data_ptr()
        else:
            memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            # Large pages make the first copy quick; kept from children, whose start would make the next copy slow.
            for advice in ("MADV_HUGEPAGE", "MADV_DONTFORK"):
                try:
                    memory.madvise(getattr(mmap, advice))
                except (AttributeError, OSError):
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

    def take(self, sources: "List[Source]") -> List[Block]:
        """Copies every source into it, one behind the other; when it returns the sources may change."""
        offsets, end = [], 0
        for source in sources:
            offsets.append(end)
            end += -(-source.size // _ALIGNMENT) * _ALIGNMENT
        devices = {source.device for source in sources if source.device is not None and source.device.type == "cuda"}
        self.reserve(end, bool(devices))
        pieces: Deque[Tuple[int, int, int]] = deque()
        for source, offset in zip(sources, offsets):
            if source.block is None:
                assert source.tensor is not None
                self.tensor()[offset : offset + source.size].copy_(source.tensor(), non_blocking=source.device in devices)
            elif source.size <= _PIECE:
                ctypes.memmove(self.address + offset, source.block.address, source.size)
            else:
                for at in range(0, source.size, _PIECE):
                    pieces.append((self.address + offset + at, source.block.address + at, min(_PIECE, source.size - at)))
        _move(pieces)
        for device in devices:
            torch_if_loaded().cuda.synchronize(device)
        return [Block(self.address + offset, source.size, self) for source, offset in zip(sources, offsets)]


def _move(pieces: Deque[Tuple[int, int, int]]) -> None:
    """Copies (to, from, size) with as many threads as torch computes with: memmove() of C is quicker than torch's own copy, and
    lets other threads of Python run."""

    def work() -> None:
        while True:
            try:
                piece = pieces.popleft()
            except IndexError:
                return
            ctypes.memmove(*piece)

    torch = torch_if_loaded()
    count = min(len(pieces), torch.get_num_threads() if torch is not None else len(os.sched_getaffinity(0)), _MAX_THREADS)
    helpers = [threading.Thread(target=work, name="penstock copy") for _ in range(count - 1)]
    for helper in helpers:
        helper.start()
    work()
    for helper in helpers:
        helper.join()


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

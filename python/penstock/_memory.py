"""Memory of tensors and arrays as addresses, and the one buffer into which an asynchronous save copies it."""
import ctypes
import mmap
import sys
from typing import Any, List, Optional

_HUGE_PAGE = 2 << 20
_ALIGNMENT = 64


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
        devices = {source.tensor.device for source in sources if source.tensor is not None and source.tensor.is_cuda}
        self.reserve(end, bool(devices))
        for source, offset in zip(sources, offsets):
            if source.size == 0:
                continue
            if source.tensor is not None:
                self.tensor()[offset : offset + source.size].copy_(source.tensor, non_blocking=source.tensor.is_cuda)
            else:
                assert source.block is not None
                ctypes.memmove(self.address + offset, source.block.address, source.size)
        for device in devices:
            torch_if_loaded().cuda.synchronize(device)
        return [Block(self.address + offset, source.size, self) for source, offset in zip(sources, offsets)]


class Source:
    """Memory to be saved: a flat tensor of bytes on any device, or a block of host memory."""

    __slots__ = ("block", "size", "tensor")

    def __init__(self, tensor: Any = None, block: Optional[Block] = None):
        self.tensor, self.block = tensor, block
        if tensor is not None:
            self.size = tensor.numel()
        else:
            assert block is not None
            self.size = block.size

    def is_on_host(self) -> bool:
        return self.tensor is None or self.tensor.device.type == "cpu"

    def where_it_is(self) -> Block:
        if self.tensor is not None:
            return block_of_tensor(self.tensor)
        assert self.block is not None
        return self.block


def blocks_of(sources: List[Source], buffer: HostBuffer, copy: bool) -> List[Block]:
    """The sources' bytes on the host: copied into ``buffer``, or, where all of it is there and ``copy`` is false, where they are."""
    if copy or not all(source.is_on_host() for source in sources):
        return buffer.take(sources)
    return [source.where_it_is() for source in sources]

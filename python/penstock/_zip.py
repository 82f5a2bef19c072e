"""ZIP files as torch.save() writes them: uncompressed, the data of every entry aligned to 64 bytes.

The file is written from memory in one pass, without the interpreter lock. torch's own writer holds the lock while it writes,
which would stop all other threads.
"""
import struct
from typing import Any, List

from penstock import _native
from penstock._memory import Block

_ALIGNMENT = 64
_MASK_32 = 0xFFFFFFFF
_MASK_16 = 0xFFFF
# 1 January 1980, the earliest date of the format. A fixed date makes the output reproducible.
_DATE = (1 << 5) | 1


class ZipWriter:
    """Writes ZIP entries to the file ``name`` of a checkpoint that is being saved."""

    def __init__(self, saving: Any, name: str):
        self.saving, self.name = saving, name
        self.offset = 0
        self.directory: List[bytes] = []

    def _write(self, data: bytes) -> None:
        self.saving.write(self.name, data)
        self.offset += len(data)

    def add(self, name: str, block: Block) -> None:
        crc = _native.crc32(block.address, block.size, 0)
        begin, title = self.offset, name.encode()
        large = block.size >= _MASK_32
        size = _MASK_32 if large else block.size
        extra = struct.pack("<HHQQ", 1, 16, block.size, block.size) if large else b""
        padding = -(begin + 30 + len(title) + len(extra) + 4) % _ALIGNMENT
        extra += struct.pack("<2sH", b"FB", padding) + b"Z" * padding
        version = 45 if large else 20
        self._write(struct.pack("<IHHHHHIIIHH", 0x04034B50, version, 0x800, 0, 0, _DATE, crc, size, size, len(title), len(extra)) + title + extra)
        self.saving.write_at(self.name, block.address, block.size)
        self.offset += block.size
        far = begin >= _MASK_32
        fields = [block.size, block.size] * large + [begin] * far
        extra = struct.pack(f"<HH{len(fields)}Q", 1, 8 * len(fields), *fields) if fields else b""
        self.directory.append(
            struct.pack(
                "<IHHHHHHIIIHHHHHII", 0x02014B50, 45, 45 if fields else 20, 0x800, 0, 0, _DATE, crc, size, size, len(title), len(extra),
                0, 0, 0, 0, _MASK_32 if far else begin,
            ) + title + extra
        )  # fmt: skip

    def finish(self) -> None:
        """Writes the central directory, which completes the file."""
        begin, count = self.offset, len(self.directory)
        directory = b"".join(self.directory)
        end = b""
        if count >= _MASK_16 or begin >= _MASK_32 or len(directory) >= _MASK_32:
            at = begin + len(directory)
            end = struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, count, count, len(directory), begin)
            end += struct.pack("<IIQI", 0x07064B50, 0, at, 1)
        entries = min(count, _MASK_16)
        end += struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, entries, entries, min(len(directory), _MASK_32), min(begin, _MASK_32), 0)
        self._write(directory + end)

"""Opus packets as Ogg pages (RFC 3533, RFC 7845)."""

from __future__ import annotations

import secrets
import struct
import zlib
from collections.abc import Sequence

from cosyserve.version import __version__

GRANULES_PER_SECOND = 48_000  # whatever the rate that was encoded
PAGE_HEADER = struct.Struct("<4sBBqIIIB")
FIRST_PAGE, LAST_PAGE = 0x02, 0x04
MAX_PAGE_SEGMENTS = 255
SEGMENT_BYTES = 255
CHECKSUM_OFFSET = 22
ALL_ONES = 0xFFFFFFFF
MIRRORED_BITS = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


class OpusPages:
    """The pages of one stream, numbered, each with the count of samples at its end.

    `head` is the OpusHead that the encoder made; a player drops the samples of its pre-skip.
    """

    def __init__(self, head: bytes) -> None:
        self._head = head
        self._serial = secrets.randbits(32)
        self._page = 0
        self._granule = 0
        self.pre_skip = int.from_bytes(head[10:12], "little")

    def header(self) -> bytes:
        vendor = f"cosyserve {__version__}".encode()
        tags = b"OpusTags" + struct.pack("<I", len(vendor)) + vendor + struct.pack("<I", 0)
        return self._write([self._head], 0, FIRST_PAGE) + self._write([tags], 0)

    def pages(self, packets: Sequence[bytes], granules_each: int) -> bytes:
        """These packets, in as few pages as hold them."""
        pages = []
        waiting: list[bytes] = []
        segments = 0
        for packet in packets:
            needed = len(packet) // SEGMENT_BYTES + 1
            if segments + needed > MAX_PAGE_SEGMENTS:
                pages.append(self._write(waiting, self._granule))
                waiting, segments = [], 0
            waiting.append(packet)
            segments += needed
            self._granule += granules_each
        if waiting:
            pages.append(self._write(waiting, self._granule))
        return b"".join(pages)

    def last_page(self, packet: bytes, granules: int) -> bytes:
        """The page that ends the stream, `granules` long in all (samples at 48 kHz)."""
        return self._write([packet], self.pre_skip + granules, LAST_PAGE)

    def _write(self, packets: Sequence[bytes], granule: int, flags: int = 0) -> bytes:
        lacing = b"".join(
            b"\xff" * (len(packet) // SEGMENT_BYTES) + bytes([len(packet) % SEGMENT_BYTES])
            for packet in packets
        )
        header = PAGE_HEADER.pack(
            b"OggS", 0, flags, granule, self._serial, self._page, 0, len(lacing)
        )
        self._page += 1
        page = bytearray(b"".join([header, lacing, *packets]))
        struct.pack_into("<I", page, CHECKSUM_OFFSET, _checksum(page))
        return bytes(page)


def _checksum(page: bytearray) -> int:
    """Ogg's CRC-32 is zlib's with every byte and the result mirrored, and without inversions."""
    mirrored = zlib.crc32(page.translate(MIRRORED_BITS), ALL_ONES) ^ ALL_ONES
    return int(f"{mirrored:032b}"[::-1], 2)

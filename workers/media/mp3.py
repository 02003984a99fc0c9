"""
How long an MP3 file is, which its decoder guesses from its first frames where the file does not say.

A file of frames alone, as ISO/IEC 11172-3 and 13818-3 have them, has no length; encoders put a silent frame before them
that holds a table ("Xing", or "Info" where all frames are of one rate).
"""

from collections.abc import Iterator
from typing import NamedTuple

_RATES = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}  # Hz, by version
_KBITS = {
    3: (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    2: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
_TABLES = (b"Xing", b"Info")
_TABLE_AT = (13, 21, 36)  # bytes into a frame, by version and channels
_USUAL = 0x90  # the place of a rate, in _KBITS, at which a frame has room for a table
_SEARCHED = 2**16  # bytes of junk before the first frame


class Frames(NamedTuple):
    """What is there: `first` is where frames begin, `found` and `said` how many there are."""

    first: int
    found: int
    said: int | None
    """As the file's table has it, if it has one."""
    samples: int
    """Samples of each channel in all frames."""


def frames_of(data: bytes) -> Frames | None:
    """Count the frames of an MP3 file that are there whole, without its table; None if it has none of layer III."""
    first = _first(data)
    if first is None:
        return None
    said = _said(data, first)
    count = sum(1 for _ in _walk(data, first)) - (said is not None)
    return Frames(first, count, said, count * (1152 if _version(data, first) == 3 else 576))


def with_table(data: bytes, frames: Frames) -> bytes:
    """Put a table before the frames of a file that has none, so that its decoder knows all of them."""
    sync, version, _, mode = data[frames.first : frames.first + 4]
    head = bytes((sync, version | 1, _USUAL | data[frames.first + 2] & 0x0C, mode))
    mono, full = mode >> 6 == 3, _version(data, frames.first) == 3
    place = _TABLE_AT[(not mono) + full]
    table = b"Info" + (1).to_bytes(4, "big") + frames.found.to_bytes(4, "big")
    frame = head.ljust(place, b"\0") + table
    return data[: frames.first] + frame.ljust(_length(head, 0), b"\0") + data[frames.first :]


def _first(data: bytes) -> int | None:
    """Find the first frame that another one follows, after a tag of ID3 if there is one."""
    start = 0
    if data[:3] == b"ID3" and len(data) > 10:
        start = 10 + sum(byte << shift for byte, shift in zip(data[6:10], (21, 14, 7, 0), strict=True))
    place = data.find(b"\xff", start)
    while 0 <= place < start + _SEARCHED:
        length = _length(data, place)
        if length and (_length(data, place + length) or place + length >= len(data)):
            return place
        place = data.find(b"\xff", place + 1)
    return None


def _walk(data: bytes, place: int) -> Iterator[int]:
    while (length := _length(data, place)) and place + length <= len(data):
        yield place
        place += length


def _said(data: bytes, first: int) -> int | None:
    for place in _TABLE_AT:
        at = first + place
        if data[at : at + 4] in _TABLES and data[at + 7] & 1:
            return int.from_bytes(data[at + 8 : at + 12], "big")
    return None


def _version(data: bytes, place: int) -> int:
    return data[place + 1] >> 3 & 3


def _length(data: bytes, place: int) -> int:
    """Give the bytes of the frame at a place, 0 if there is none whose header says so."""
    head = data[place : place + 4]
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE6 != 0xE2:  # in step, and of layer III
        return 0
    version, kbits, rate = _version(head, 0), head[2] >> 4, head[2] >> 2 & 3
    if version == 1 or kbits in (0, 15) or rate == 3:
        return 0
    bits = _KBITS[3 if version == 3 else 2][kbits] * 1000
    return (144 if version == 3 else 72) * bits // _RATES[version][rate] + (head[2] >> 1 & 1)

"""Numbers of bytes as people write them."""

import re

from infinity_pool.broker.errors import InvalidInput

_UNITS = {"": 1, **{f"{prefix}B": 1000**n for n, prefix in enumerate("KMGT", 1)}}
_UNITS |= {f"{prefix}iB": 1024**n for n, prefix in enumerate("KMGT", 1)} | {"B": 1}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?i?B)?")


def parse_size(text: str) -> int:
    """Read a number of bytes, as 4GiB, 500MB or 1000000; empty is 0. Raises InvalidInput, naming `memory_limit`."""
    if not text:
        return 0
    found = _SIZE.fullmatch(text.strip())
    if not found or (found[2] or "") not in _UNITS or not float(found[1]):
        raise InvalidInput(f"--memory-limit is a size such as 4GiB or 500MB, not {text!r}", param="memory_limit")
    return int(float(found[1]) * _UNITS[found[2] or ""])


def shown(size: int) -> str:
    """Write a number of bytes for people."""
    return f"{size / 1e6:,.0f} MB" if size < 1e9 else f"{size / 1e9:,.1f} GB"

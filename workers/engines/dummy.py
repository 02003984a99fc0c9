"""
No network at all: the family's arrays go straight to `reduce`, so that everything around a model can be measured.

`--model dummy:0.005` takes 5 ms of the device for each item, so a batch of n items n times that, and a worker does
200 items/s whatever the machine: what overload is tested with. Without a number it takes no time.
"""

import time
from pathlib import Path
from typing import Any

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from infinity_pool.workers.interface import Batch, Engine, Family, ModelFiles, Progress, Reduce

_TIMED = "dummy:"


def convert(files: ModelFiles, family: Family, folder: Path, progress: Progress) -> dict[str, Any]:
    """Nothing: there is no network."""
    return {}


def load(files: ModelFiles, family: Family, device: str, dtype: str) -> Engine:
    """Give the engine that runs nothing; raises InvalidInput if `dummy:` is followed by no number of seconds."""
    return DummyEngine(_seconds(files.spec))


class DummyEngine(Engine):
    """An engine whose network gives nothing, and takes `seconds` of the device for each item."""

    device = "cpu"
    dtype = "float32"

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds

    def run(self, batch: Batch, reduce: Reduce) -> Array:
        """Give what the family makes of its own arrays, after the time that they take."""
        if self._seconds:
            time.sleep(self._seconds * len(next(iter(batch.values()))))
        reduced: Array = reduce(None, batch)
        return reduced

    def close(self) -> None:
        """Nothing is held."""


def _seconds(spec: str) -> float:
    if not spec.startswith(_TIMED):
        return 0.0
    try:
        seconds = float(spec.removeprefix(_TIMED))
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise InvalidInput(f"model {spec!r}: after dummy: come the seconds that an item takes", param="model")
    return seconds

"""No network at all: the family's arrays go straight to `reduce`, so that everything around a model can be measured."""

from pathlib import Path
from typing import Any

from infinity_pool.broker.messages import Array
from infinity_pool.workers.interface import Batch, Engine, Family, ModelFiles, Progress, Reduce


def convert(files: ModelFiles, family: Family, folder: Path, progress: Progress) -> dict[str, Any]:
    """Nothing: there is no network."""
    return {}


def load(files: ModelFiles, family: Family, device: str, dtype: str) -> Engine:
    """Give the engine that runs nothing."""
    return DummyEngine()


class DummyEngine:
    """An engine whose network gives nothing."""

    device = "cpu"
    dtype = "float32"

    def run(self, batch: Batch, reduce: Reduce) -> Array:
        """Give what the family makes of its own arrays."""
        reduced: Array = reduce(None, batch)
        return reduced

    def close(self) -> None:
        """Nothing is held."""

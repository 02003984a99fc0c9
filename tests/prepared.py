"""Models that are made ready in the test's process, which has torch: their workers start without it, and soon."""

from pathlib import Path

from infinity_pool.workers.models.loading import load_model
from infinity_pool.workers.settings import ModelSettings
from tests.workers.conftest import ignore_progress, making_here


def prepared(folder: Path, *, engine: str = "onnx") -> list[str]:
    """Make all that a worker needs of a model, in a cache beside it; give the options of one that finds it there."""
    settings = ModelSettings(model=str(folder), engine=engine, cache_dir=str(folder.parent / "cache"))
    with making_here():
        load_model(settings, "cpu", ignore_progress).engine.close()
    return [
        "--model",
        settings.model,
        "--engine",
        engine,
        "--cache-dir",
        settings.cache_dir,
        "--preprocess-workers",
        "0",
    ]

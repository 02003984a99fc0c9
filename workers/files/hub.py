"""Downloads a model from the Hugging Face hub: only the files that are needed, and none that are there already."""

import glob
import io
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # read when the client is imported

from huggingface_hub import HfApi, snapshot_download, try_to_load_from_cache
from huggingface_hub.errors import (
    GatedRepoError,
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from tqdm import tqdm

from infinity_pool.broker.errors import InfinityError, InvalidInput, Unavailable
from infinity_pool.workers.files.cache import cache_root
from infinity_pool.workers.files.content import definition, graphs_for
from infinity_pool.workers.interface import Progress
from infinity_pool.workers.settings import ModelSettings

_log = logging.getLogger(__name__)

_REFUSED = (RepositoryNotFoundError, RevisionNotFoundError, HFValidationError)


def download(settings: ModelSettings, progress: Progress) -> Path:
    """
    Give the folder of a repository's files; HF_TOKEN, HF_HOME and HF_ENDPOINT count as everywhere.

    Raises InvalidInput if the hub has no such model for us, and Unavailable if it cannot be reached and the model was
    never downloaded.
    """
    revision = settings.revision or None
    try:
        info = HfApi().model_info(settings.model, revision=revision, files_metadata=True)
        sizes = {file.rfilename: file.size or 0 for file in info.siblings or []}
        names = definition(sizes) + _graphs(sizes, settings)
        folder = snapshot_download(
            settings.model,
            revision=revision,
            cache_dir=_cache(settings),
            allow_patterns=[glob.escape(name) for name in names],
            tqdm_class=_bar(progress, f"downloading {settings.model}", sum(sizes[name] for name in names)),
        )
    except _REFUSED as error:
        raise _refused(settings, error) from error
    except Exception as error:  # noqa: BLE001 - the client's versions have three HTTP libraries, each with its errors
        return _downloaded_before(settings, error)
    return Path(folder)


def _graphs(names: Iterable[str], settings: ModelSettings) -> list[str]:
    """Choose the ONNX files that may be run."""
    quantised = settings.dtype == "int8"
    if not (settings.engine == "onnx" or settings.onnx_file or (settings.engine == "auto" and quantised)):
        return []
    return graphs_for(names, settings.onnx_file, quantised)


def _downloaded_before(settings: ModelSettings, error: Exception) -> Path:
    config = try_to_load_from_cache(
        settings.model, "config.json", cache_dir=_cache(settings), revision=settings.revision or None
    )
    if not isinstance(config, str):
        raise Unavailable(
            f"model {settings.model!r} is not on this machine, and the hub cannot be reached: {error}"
        ) from error
    folder = Path(config).parent
    _log.warning("the hub cannot be reached (%s): model %r is taken from %s", error, settings.model, folder)
    return folder


def _cache(settings: ModelSettings) -> Path | None:
    return cache_root(settings.cache_dir) / "hub" if settings.cache_dir else None  # None: where HF_HOME says


def _refused(settings: ModelSettings, error: Exception) -> InfinityError:
    if isinstance(error, GatedRepoError):
        return InvalidInput(f"model {settings.model!r} is gated: accept its terms and set HF_TOKEN", param="model")
    if isinstance(error, RevisionNotFoundError):
        return InvalidInput(f"model {settings.model!r} has no revision {settings.revision!r}", param="revision")
    what = "is no folder here and no model on the hub, or it is private and HF_TOKEN not of one who may read it"
    return InvalidInput(f"model {settings.model!r} {what}", param="model")


def _bar(progress: Progress, stage: str, total: int) -> type[tqdm]:
    """Make the progress bar that the hub's client feeds report to us, and show nothing itself."""

    class Bar(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **(options | {"file": io.StringIO(), "disable": False}))

        def update(self, n: float | None = 1) -> bool | None:
            shown: bool | None = super().update(n)
            if self.unit == "B" and total:  # the other bars count files
                progress(stage, min(1.0, self.n / total))
            return shown

        def display(self, *_: Any, **__: Any) -> bool:
            return True

    return Bar

"""Measures the range of each dimension of a model's vectors, by which they are answered as int8 and uint8."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from infinity_pool.workers.device.devices import expand
from infinity_pool.workers.files.cache import surroundings, whole_file
from infinity_pool.workers.interface import Progress
from infinity_pool.workers.models.loading import load_model
from infinity_pool.workers.models.running import run_items
from infinity_pool.workers.settings import ModelSettings

_FEWEST = 2  # texts; one has no range
_AT_ONCE = 16


class Calibrated(NamedTuple):
    """Where the ranges were written, float32 [2, width], and what they were measured on."""

    path: Path
    texts: int
    width: int


def calibrate(settings: ModelSettings, texts: Path, progress: Progress) -> Calibrated:
    """
    Embed the lines of a file, and keep the least and the largest value of each dimension in the cache.

    Raises InvalidInput if there are no texts, or the model gives no vectors of texts.
    """
    lines = _lines(texts)
    loaded = load_model(settings, expand(settings.device)[0], progress)
    if "embed" not in loaded.family.tasks:
        raise InvalidInput(
            f"model {settings.model!r} gives no vectors, only {', '.join(loaded.family.tasks)}", param="model"
        )
    ranges: Array | None = None
    for first in range(0, len(lines), _AT_ONCE):
        progress("embedding", first / len(lines))
        some = lines[first : first + _AT_ONCE]
        vectors = np.asarray(run_items(loaded.family, loaded.engine, "embed", some, {}), np.float32)
        both = vectors if ranges is None else np.concatenate([ranges, vectors])
        ranges = np.stack([both.min(0), both.max(0)])
    assert ranges is not None
    target = loaded.files.ranges
    with surroundings(target.parent), whole_file(target) as scratch, scratch.open("wb") as file:
        np.save(file, ranges)
    return Calibrated(target, len(lines), ranges.shape[1])


def _lines(texts: Path) -> list[str]:
    try:
        lines = [line for line in texts.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{texts} cannot be read: {error}", param="texts") from error
    if len(lines) < _FEWEST:
        raise InvalidInput(f"{texts} has {len(lines)} lines of text; a hundred or more make good ranges", param="texts")
    return lines

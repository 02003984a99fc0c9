"""
Embeddings in the number format that is asked for, exactly as sentence-transformers' `quantize_embeddings` makes them.

int8 and uint8 have 256 steps between the least and the largest value of each dimension, its range: float32 [2, width],
of the model's own vectors. binary and ubinary have a bit for each dimension, set if it is over 0, eight in a byte.
"""

from pathlib import Path
from typing import Any

import numpy as np

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from infinity_pool.workers.files.content import RANGES
from infinity_pool.workers.interface import ModelFiles
from infinity_pool.workers.settings import EMBEDDING_DTYPES
from infinity_pool.workers.text.options import Options

OPTION = "embedding_dtype"
PLAIN = ("float32", "float16")
BITS = ("binary", "ubinary")
STEPS = ("int8", "uint8")

_COUNT = 255  # steps


class NumberFormats:
    """
    What a model's vectors can be answered as, by default as its worker was told.

    Matrices have no `steps`: ranges are those of vectors of whole texts.
    """

    def __init__(self, files: ModelFiles, width: int, steps: bool = True) -> None:
        self._known = EMBEDDING_DTYPES if steps else (*PLAIN, *BITS)
        self._usual = files.embedding_dtype if files.embedding_dtype in self._known else PLAIN[0]
        self._model = files.spec
        self._ranges = read_ranges(files, width) if steps else None

    def check(self, options: Options, *changed: str) -> str:
        """
        Give the format that is asked for; raises InvalidInput, naming the option, if there is none such.

        `changed` are the options by which vectors are others than those that ranges were measured on.
        """
        wanted = options.get(OPTION)
        wanted = self._usual if wanted is None else wanted
        if wanted not in self._known:
            raise InvalidInput(f"{OPTION} must be one of {', '.join(self._known)}, not {wanted!r}", param=OPTION)
        if wanted in STEPS and self._ranges is None:
            message = f"{wanted} needs ranges: infinity calibrate --model {self._model} --texts FILE makes them"
            raise InvalidInput(f"{message}, and workers find them at their start", param=OPTION)
        if wanted in STEPS and changed:
            message = f"{wanted} is for vectors as the model gives them, not with another {changed[0]}"
            raise InvalidInput(message, param=changed[0])
        return str(wanted)

    def apply(self, vectors: Array, options: Options) -> Array:
        """Turn float32 [n, width] into the format that is asked for; the first columns of wider ranges count."""
        wanted = self.check(options)
        if wanted in PLAIN:
            return np.asarray(vectors, wanted)
        if wanted in BITS:
            packed = np.packbits(vectors > 0, axis=-1)
            return np.asarray(packed if wanted == "ubinary" else (packed ^ 0x80).view(np.int8))
        assert self._ranges is not None
        least, largest = self._ranges[:, : vectors.shape[-1]]
        width = (largest - least) / _COUNT
        steps: Array = np.clip(np.floor((vectors - least) / np.where(width == 0, 1, width)), 0, _COUNT)
        return steps.astype(np.uint8) if wanted == "uint8" else (steps - 128).astype(np.int8)


def read_ranges(files: ModelFiles, width: int) -> Array | None:
    """
    Read a model's ranges, its own or those that were made for it here; None if there are none.

    Raises InvalidInput if they are no ranges of vectors so wide.
    """
    for path in (files.path / RANGES, files.ranges):
        if path.name and path.is_file():
            return _checked(path, width)
    return None


def _checked(path: Path, width: int) -> Array:
    try:
        ranges: Any = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}", param="model") from error
    if not isinstance(ranges, np.ndarray) or ranges.dtype.kind != "f" or ranges.shape != (2, width):
        raise InvalidInput(f"{path} must hold floating-point numbers [2, {width}]", param="model")
    if not (np.isfinite(ranges).all() and (ranges[0] <= ranges[1]).all()):
        raise InvalidInput(f"{path} has a range that is none", param="model")
    return ranges.astype(np.float32)

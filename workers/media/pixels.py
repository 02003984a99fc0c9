"""
From an image to the square of numbers that a vision tower takes, exactly as the model's own image processor does it.

`read_pixels` asks transformers once what that processor does and proves on a few images that this module does the same;
`Pixels` then needs Pillow and numpy alone, where transformers' own takes 2.6 s and 360 MB in each process, for torch.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from io import BytesIO
from typing import Any

import numpy as np

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from infinity_pool.workers.interface import ModelFiles
from infinity_pool.workers.media.images import check_size, noise, open_image

_TOLERANCE = 1e-5
_ENOUGH = 2**20  # pixels for these probes
_PROBES = ((64, 48), (500, 130), (301, 401))  # width and height of the images that both processors see

Rules = dict[str, Any]


class Pixels:
    """
    A model's image processor: `height` and `width` of what it gives, and the steps to it.

    Bytes travel, not floats: `prepare` gives uint8, a quarter as much, and the rest is `scale` and `offset` of each
    channel, [3, 1, 1], on the device. An image, and what it is resized to, may have `most` pixels.
    """

    def __init__(self, rules: Rules, most: int) -> None:
        self._most = most
        self.height, self.width = rules["height"], rules["width"]
        self.scale = np.asarray(rules["scale"], np.float32)[:, None, None]
        self.offset = np.asarray(rules["offset"], np.float32)[:, None, None]
        self._edge: int | None = rules["shortest_edge"]
        self._resized: list[int] | None = rules["resized"]
        self._resample: int = rules["resample"]

    def prepare(self, files: Sequence[Any]) -> Array:
        """Decode, resize and crop: uint8 [n, 3, height, width]; raises InvalidInput, naming the item."""
        pixels = np.empty((len(files), 3, self.height, self.width), np.uint8)
        for item, data in enumerate(files):
            pixels[item] = self._one(open_image(data, item, self._most), item)
        return pixels

    def _one(self, image: Any, item: int) -> Array:
        if (size := self._size(image.size)) is not None:
            try:
                check_size(size, self._most, "is so narrow that it would be resized to")
            except InvalidInput as error:
                raise InvalidInput(error.message, item=item) from error
            image = image.resize(size, resample=self._resample)
        left, top = (image.width - self.width) // 2, (image.height - self.height) // 2
        if (left, top) != (0, 0) or image.size != (self.width, self.height):  # what is outside is black
            image = image.crop((left, top, left + self.width, top + self.height))
        return np.asarray(image).transpose(2, 0, 1)

    def _size(self, size: tuple[int, int]) -> tuple[int, int] | None:
        """Give the width and height to resize to."""
        if self._resized is not None:
            return self._resized[0], self._resized[1]
        if self._edge is None:
            return None
        width, height = size
        if width <= height:
            return self._edge, int(self._edge * height / width)
        return int(self._edge * width / height), self._edge


def read_pixels(files: ModelFiles, image_size: int) -> Rules:
    """
    Write down what a model's image processor does.

    Raises InvalidInput if Pillow is missing, or the processor does what `Pixels` does not.
    """
    if find_spec("PIL") is None:
        raise InvalidInput("images need 'pillow', which is not installed: pip install 'infinity-pool[image]'")
    from transformers import AutoImageProcessor

    try:
        processor: Any = AutoImageProcessor.from_pretrained(  # type: ignore[no-untyped-call]
            files.network, backend="pil", local_files_only=True, trust_remote_code=files.trust_remote_code
        )
    except (OSError, ValueError) as error:
        raise InvalidInput(f"no image processor for {files.spec!r}: {error}", param="model") from error
    rules = _rules(processor)
    if (rules["height"], rules["width"]) != (image_size, image_size):
        raise InvalidInput(
            f"the image processor of {files.spec!r} gives {rules['width']} x {rules['height']} pixels, and its "
            f"network takes {image_size} x {image_size}",
            param="model",
        )
    if (difference := _difference(processor, Pixels(rules, _ENOUGH))) > _TOLERANCE:
        raise InvalidInput(
            f"the image processor of {files.spec!r}, {type(processor).__name__}, does what is not served here: pixels "
            f"differ by {difference:.1e}",
            param="model",
        )
    return rules


def _rules(processor: Any) -> Rules:
    """Reduce the switches of a processor to sizes, and one product and sum for each channel."""
    size = dict(processor.size or {}) if processor.do_resize else {}
    edge = size.get("shortest_edge")
    resized = [size["width"], size["height"]] if size.get("height") and size.get("width") else None
    crop = dict(processor.crop_size or {}) if processor.do_center_crop else {}
    factor = processor.rescale_factor if processor.do_rescale else 1.0
    mean, std = (processor.image_mean, processor.image_std) if processor.do_normalize else ([0.0] * 3, [1.0] * 3)
    return {
        "shortest_edge": edge,
        "resized": resized,
        "resample": int(processor.resample),
        "height": crop.get("height") or size.get("height") or edge,
        "width": crop.get("width") or size.get("width") or edge,
        "scale": [factor / one for one in std],
        "offset": [-middle / one for middle, one in zip(mean, std, strict=True)],
    }


def _difference(processor: Any, pixels: Pixels) -> float:
    """Give the greatest difference of any pixel of some noisy images, infinite where the shapes differ."""
    from PIL import Image

    worst = 0.0
    for width, height in _PROBES:
        file = noise(width, height)
        theirs = np.asarray(processor(Image.open(BytesIO(file)), return_tensors="np")["pixel_values"])
        ours = pixels.prepare([file]) * pixels.scale + pixels.offset
        if theirs.shape != ours.shape:
            return float("inf")
        worst = max(worst, float(np.abs(theirs - ours).max()))
    return worst

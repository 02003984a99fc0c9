"""
Bytes of an image file to RGB pixels, or an error that says what is wrong with them.

The pixels are those of transformers' `load_image` and of the pipelines that CLIP and SigLIP were trained with: the
first frame, turned as its EXIF says, transparency left out (colours as they are under it). One thing is better: 16 bits
of grey are scaled to 8, where Pillow alone would cut everything bright to white.
"""

import warnings
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np

from infinity_pool.broker.errors import InvalidInput

FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""What is read; of Pillow's other readers, some start other programs."""

_DEEP = 65_535  # the brightest of 16 bits


def open_image(data: Any, item: int, most: int) -> Any:
    """
    Decode one image file to a PIL image in RGB; raises InvalidInput, naming the item.

    It may have `most` pixels: what 8 MB hold may unpack to a thousand times as much.
    """
    if not isinstance(data, bytes):
        raise InvalidInput(f"must be the bytes of an image file, not {type(data).__name__}", item=item)
    try:
        with warnings.catch_warnings(action="ignore"):  # of odd metadata, which no pixel depends on
            return _decoded(data, most)
    except InvalidInput as error:
        raise InvalidInput(error.message, item=item) from error
    except Exception as error:  # decoders meet what is broken in many ways
        raise InvalidInput(_explained(error, most), item=item) from error


def noise(width: int, height: int) -> bytes:
    """Give a PNG file of noise, always the same, to compare what two programs make of it."""
    from PIL import Image

    file = BytesIO()
    numbers = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    Image.fromarray(numbers).save(file, "PNG")
    return file.getvalue()


def check_size(size: Sequence[int], most: int, what: str = "has") -> None:
    """Refuse more pixels than `most`."""
    width, height = size
    if width * height > most:
        raise InvalidInput(f"{what} {width} x {height} pixels, more than the {most} allowed")


def _decoded(data: bytes, most: int) -> Any:
    from PIL import Image, ImageOps

    Image.MAX_IMAGE_PIXELS = most  # for images inside of images
    with Image.open(BytesIO(data), formats=FORMATS) as image:
        check_size(image.size, most)
        image.load()
        shallow = _shallow(image)
        if shallow is not image:  # made anew, so without the EXIF that says how to turn it
            shallow.info["exif"] = image.getexif().tobytes()
        ImageOps.exif_transpose(shallow, in_place=True)
        return shallow if shallow.mode == "RGB" else shallow.convert("RGB")  # no copies: each is 200 MB at most


def _shallow(image: Any) -> Any:
    """Scale 16 bits of grey to 8; refuse numbers whose range nobody knows."""
    from PIL import Image

    if not image.mode.startswith(("I", "F")):
        return image
    grey = np.asarray(image)
    if image.mode == "F" or grey.min() < 0 or grey.max() > _DEEP:
        raise InvalidInput(f"has pixels of {image.mode!r}, numbers of no known range; send 8 or 16 bits a channel")
    return Image.fromarray((grey.astype(np.uint32) * 255 // _DEEP).astype(np.uint8))


def _explained(error: Exception, most: int) -> str:
    from PIL import Image, UnidentifiedImageError

    if isinstance(error, UnidentifiedImageError):
        return f"is no image that can be read; {', '.join(FORMATS)} can"
    if isinstance(error, Image.DecompressionBombError):
        return f"has more than the {most} pixels allowed"
    return f"is a broken image: {str(error)[:200] or type(error).__name__}"

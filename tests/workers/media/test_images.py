"""What callers send as images: decoded right, or refused by name; never a dead process."""

import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from infinity_pool.workers.media.images import open_image
from infinity_pool.workers.media.pixels import Pixels
from tests.tiny_towers import encoded, png

MOST = 2**26
RULES: dict[str, Any] = {
    "shortest_edge": 32,
    "resized": None,
    "resample": 3,
    "height": 32,
    "width": 32,
    "scale": [1.0] * 3,
    "offset": [0.0] * 3,
}


def decoded(data: Any) -> Array:
    image = open_image(data, 0, MOST)
    assert image.mode == "RGB"
    return np.asarray(image)


def gradient(mode: str) -> Any:
    return Image.linear_gradient("L").convert(mode)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM", "GIF"])
def test_formats_without_loss(kind: str) -> None:
    image = Image.radial_gradient("L").convert("RGB")
    np.testing.assert_array_equal(decoded(encoded(image, kind)), np.asarray(image))


@pytest.mark.parametrize("kind", ["JPEG", "WEBP", "AVIF"])
def test_formats_with_loss(kind: str) -> None:
    image = Image.radial_gradient("L").convert("RGB")
    assert np.abs(decoded(encoded(image, kind)).astype(int) - np.asarray(image)).mean() < 3


def test_palette() -> None:
    image = Image.radial_gradient("L").convert("RGB").quantize(16)
    np.testing.assert_array_equal(decoded(encoded(image, "PNG")), np.asarray(image.convert("RGB")))


def test_one_bit() -> None:
    assert decoded(encoded(Image.new("1", (3, 2), 1), "PNG")).tolist() == [[[255] * 3] * 3] * 2


def test_cmyk() -> None:
    pixels = decoded(encoded(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG"))
    assert np.abs(pixels.astype(int) - [255, 0, 0]).max() <= 2


def test_alpha_is_left_out_as_in_training() -> None:
    image = Image.new("RGBA", (4, 4), (10, 20, 30, 0))
    assert decoded(encoded(image, "PNG"))[0, 0].tolist() == [10, 20, 30]
    assert decoded(encoded(Image.new("LA", (4, 4), (77, 5)), "PNG"))[0, 0].tolist() == [77] * 3


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bits_of_grey_are_scaled(kind: str) -> None:
    deep = Image.fromarray(np.array([[0, 257, 32_896, 65_535]], np.uint16))
    assert decoded(encoded(deep, kind))[0, :, 0].tolist() == [0, 1, 128, 255]


def test_sixteen_bits_of_ppm() -> None:
    assert decoded(b"P5 2 1 65535\n" + struct.pack(">HH", 65_535, 32_896))[0, :, 0].tolist() == [255, 128]


def test_numbers_of_no_known_range() -> None:
    for numbers in (np.array([[0.5, 3.0]], np.float32), np.array([[-1, 70_000]], np.int32)):
        with pytest.raises(InvalidInput, match="no known range"):
            decoded(encoded(Image.fromarray(numbers), "TIFF"))


def test_first_frame_of_an_animation() -> None:
    frames = [Image.new("RGB", (5, 5), colour) for colour in ("red", "lime", "blue")]
    for kind in ("GIF", "WEBP", "PNG"):
        data = encoded(
            frames[0], kind, save_all=True, append_images=frames[1:], **({"lossless": True} if kind == "WEBP" else {})
        )
        assert decoded(data)[2, 2].tolist() == [255, 0, 0], kind


@pytest.mark.parametrize("mode", ["RGB", "L", "I;16"])
def test_exif_turns(mode: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be seen, turn it by a quarter to the right
    if mode == "I;16":
        image, brightest = Image.fromarray(np.array([[0, 0, 65_535]] * 2, np.uint16)), 255
    else:
        image, brightest = Image.fromarray(np.array([[0, 0, 255]] * 2, np.uint8)).convert(mode), 255
    pixels = decoded(encoded(image, "PNG", exif=exif))
    assert pixels[:, :, 0].tolist() == [[0, 0], [0, 0], [brightest, brightest]]


def test_one_pixel() -> None:
    assert decoded(png(1, 1)).shape == (1, 1, 3)
    assert Pixels(RULES, MOST).prepare([png(1, 1)]).shape == (1, 3, 32, 32)


def bomb(width: int, height: int) -> bytes:
    """A PNG whose header says how large it is, and whose pixels would follow."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    packed = zlib.compress(bytes(min(2**20, (width // 8 + 1) * height)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [8193, 12_000, 100_000, 2_000_000])
def test_decompression_bombs(side: int) -> None:
    with pytest.raises(InvalidInput, match=f"more than the {MOST}"):
        decoded(bomb(side, side))


def test_a_limit_of_ones_own() -> None:
    assert Pixels(RULES, 1600).prepare([png(40, 40)]).shape == (1, 3, 32, 32)
    with pytest.raises(InvalidInput, match=r"item 1: has 41 x 40 pixels, more than the 1600 allowed"):
        Pixels(RULES, 1600).prepare([png(40, 40), png(41, 40)])


def test_a_narrow_image_is_no_bomb_when_resized() -> None:
    line = encoded(Image.new("1", (100_000, 1)), "PNG")
    with pytest.raises(InvalidInput, match=r"item 1: is so narrow that it would be resized to 3200000 x 32"):
        Pixels(RULES, MOST).prepare([png(40, 40), line])


GOOD = png(60, 60)
PHOTO = encoded(Image.effect_noise((60, 60), 80).convert("RGB"), "JPEG")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no image"),
        (b"not an image at all", "no image"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "no image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "no image"),
        (b"%PDF-1.4", "no image"),
        (GOOD[:8], "no image|broken"),
        (GOOD[:-400], "broken"),
        (GOOD[:200], "broken"),
        (PHOTO[:-300], "broken"),
        (PHOTO[:300], "broken|no image"),
        (GOOD[:60] + b"\x00" * 50 + GOOD[110:], "broken"),
        ("a text", "bytes of an image file, not str"),
        (None, "bytes of an image file, not NoneType"),
        ([1, 2], "bytes of an image file, not list"),
    ],
)
def test_what_is_broken_is_named(data: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        Pixels(RULES, MOST).prepare([GOOD, data, GOOD])
    assert caught.value.item == 1


def test_what_is_labelled_wrong_is_read_by_what_it_is() -> None:
    assert decoded(PHOTO).shape == (60, 60, 3)  # nothing here looks at a name or a media type


def test_noise_of_all_kinds_is_an_image_or_an_error() -> None:
    noise = np.random.default_rng(0)
    files = [GOOD, PHOTO, *(encoded(gradient("RGB"), kind) for kind in ("GIF", "TIFF", "WEBP", "BMP"))]
    read = 0
    for data in files:
        for _ in range(40):
            spoilt = bytearray(data)
            for place in noise.integers(0, len(data), 6):
                spoilt[place] = noise.integers(256)
            try:
                decoded(bytes(spoilt))
                read += 1
            except InvalidInput:
                pass
    assert read > 0

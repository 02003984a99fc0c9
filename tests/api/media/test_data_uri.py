"""Files in JSON: decoded, however clients write them, or refused."""

import base64

import pytest

from infinity_pool.api.media.data_uri import MAX_ITEM_BYTES, file_of
from infinity_pool.broker.errors import InvalidInput

AWKWARD = bytes(range(256)) + b"\xff\xfe\xfb"  # both alphabets differ here, and padding is needed


@pytest.mark.parametrize(
    "value",
    [
        "data:image/png;base64,aGVsbG8=",
        "DATA:image/png;BASE64,aGVsbG8=",
        "data:;base64,aGVsbG8=",
        "data:audio/wav;name=a.wav;charset=x;base64,aGVsbG8=",
        "data:image/png;base64,aGVsbG8%3D",
        "data:image/png;base64,aGVsbG8",
        "data:,hello",
        "data:text/plain,%68ello",
        "aGVsbG8=",
        "aGVsbG8",
        " aGVs\r\nbG8=\n",
    ],
)
def test_ways_to_write_a_file(value: str) -> None:
    assert file_of(value) == b"hello"


def test_ways_to_write_base64() -> None:
    for text in (
        base64.b64encode(AWKWARD),
        base64.urlsafe_b64encode(AWKWARD),
        base64.urlsafe_b64encode(AWKWARD).rstrip(b"="),
        base64.encodebytes(AWKWARD),
        base64.encodebytes(AWKWARD).replace(b"\n", b"\r\n"),
    ):
        assert file_of(text.decode()) == file_of(f"data:;base64,{text.decode()}") == AWKWARD


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("", "empty"),
        ("====", "empty"),
        ("data:image/png;base64,", "empty"),
        ("data:image/png;base64", "comma"),
        ("data:" + "x" * 10_000 + ",a", "comma"),
        ("data:image/png;base64,aGVsb", "base64"),
        ("data:image/png;base64,aGVs*bG8=", "base64"),
        ("aGVs=bG8=", "base64"),
        ("aGVsbG8=\n!", "base64"),
        ("ein Bär", "base64"),
        ("file:///etc/passwd", "not file:"),
        ("htt://example.com", "not htt:"),
        ("A" * (MAX_ITEM_BYTES * 4 // 3 * 79 // 76), "send it smaller"),
        ("data:," + "a" * (MAX_ITEM_BYTES + 1), "send it smaller"),
    ],
)
def test_what_is_no_file(value: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        file_of(value)


def test_the_largest_file() -> None:
    largest = bytes(MAX_ITEM_BYTES)
    assert file_of(f"data:image/png;base64,{base64.b64encode(largest).decode()}") == largest
    assert file_of(base64.encodebytes(largest).replace(b"\n", b"\r\n").decode()) == largest

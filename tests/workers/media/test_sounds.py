"""What callers send as sounds: decoded right, or refused by name."""

import itertools
import struct
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from infinity_pool.workers.media.sounds import read_sound
from tests.tiny_towers import sound, tone

RATE = 8000
SAMPLES = tone(0.5)


def samples(data: Any, longest: int = 100_000) -> Array:
    read = read_sound(data, 0, RATE, longest)
    assert read.samples.dtype == np.float32
    assert not read.truncated
    return read.samples


@pytest.mark.parametrize(
    ("kind", "subtype", "tolerance"),
    [
        ("WAV", "FLOAT", 0),
        ("WAV", "DOUBLE", 1e-7),
        ("WAV", "PCM_U8", 1 / 120),
        ("WAV", "PCM_16", 1 / 32_000),
        ("WAV", "PCM_24", 1e-6),
        ("WAV", "PCM_32", 1e-7),
        ("WAVEX", "PCM_16", 1 / 32_000),
        ("AIFF", "PCM_16", 1 / 32_000),
        ("FLAC", "PCM_16", 1 / 32_000),
        ("FLAC", "PCM_24", 1e-6),
    ],
)
def test_formats_without_loss(kind: str, subtype: str, tolerance: float) -> None:
    np.testing.assert_allclose(samples(sound(SAMPLES, RATE, kind, subtype)), SAMPLES[:, 0], atol=tolerance)


@pytest.mark.parametrize(("kind", "subtype"), [("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", "MPEG_LAYER_III")])
def test_formats_with_loss(kind: str, subtype: str) -> None:
    read = samples(sound(SAMPLES, RATE, kind, subtype))
    assert abs(len(read) - len(SAMPLES)) < 10
    spectrum = np.abs(np.fft.rfft(read))
    assert abs(spectrum.argmax() * RATE / len(read) - 440) < 5


def test_channels_are_mixed_down() -> None:
    stereo = tone(0.2, channels=2)
    np.testing.assert_allclose(samples(sound(stereo)), stereo.mean(axis=1), atol=1e-7)


@pytest.mark.parametrize("rate", [8000, 11_025, 16_000, 22_050, 44_100, 48_000, 96_000, 44_101])
def test_any_rate(rate: int) -> None:
    times = np.arange(rate // 2) / rate
    read = samples(sound(np.sin(2 * np.pi * 440 * times).astype(np.float32), rate))
    assert abs(len(read) - 4000) <= 1
    wanted = np.sin(2 * np.pi * 440 * np.arange(len(read)) / RATE)
    np.testing.assert_allclose(read[100:-100], wanted[100:-100], atol=1e-3)


@pytest.mark.parametrize("rate", [8000, 44_100])
def test_of_what_is_too_long_the_first_part_is_heard(rate: int) -> None:
    long = tone(3, rate)
    cut = read_sound(sound(long, rate), 0, RATE, 8000)
    whole = read_sound(sound(long, rate), 0, RATE, 100_000)
    assert (len(cut.samples), cut.truncated, whole.truncated) == (8000, True, False)
    np.testing.assert_allclose(cut.samples, whole.samples[:8000], atol=1e-5)


def test_what_just_fits_is_not_cut() -> None:
    for rate in (8000, 44_100, 48_000):
        assert not read_sound(sound(tone(1, rate), rate), 0, RATE, 8000).truncated


def test_hours_of_silence_are_not_decoded() -> None:
    silence = sound(np.zeros((RATE * 3600, 2), np.float32), RATE, "FLAC", "PCM_16")
    assert len(silence) < 2**20
    assert len(read_sound(silence, 0, RATE, 8000).samples) == 8000


def header(rate: int = RATE, channels: int = 1, size: int = 8, data: bytes = bytes(8)) -> bytes:
    """A WAV file of 16 bits that says what it likes of itself."""
    form = struct.pack("<HHIIHH", 1, channels, rate, min(rate * channels * 2, 2**32 - 1), channels * 2 % 2**16, 16)
    parts = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", size) + data
    return b"RIFF" + struct.pack("<I", len(parts)) + parts


def test_a_recording_that_did_not_know_its_length() -> None:
    assert len(samples(header(size=0xFFFF_FFFF, data=bytes(2000)))) == 1000


WHOLE = sound(tone(0.5), subtype="PCM_16")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no sound"),
        (b"hello, this is no sound at all", "no sound"),
        (b"RIFF\x00\x00\x00\x00WAVE", "no sound"),
        (WHOLE[:40], "no sound"),
        (WHOLE[:3000], "is cut off"),
        (sound(tone(0.5), kind="FLAC", subtype="PCM_16")[:2000], "no sound"),
        (sound(tone(0.5), kind="OGG", subtype="VORBIS")[:3000], "no sound"),
        (sound(tone(0.5), kind="AIFF", subtype="PCM_16")[:3000], "is cut off"),
        (sound(tone(0.5), kind="AU", subtype="PCM_16"), "is AU, and only"),
        (sound(np.zeros((0, 1), np.float32)), "holds no sound"),
        (sound(np.array([0.1, np.nan, 0.2], np.float32)), "no numbers"),
        (sound(np.array([0.1, np.inf, 0.2], np.float32)), "no numbers"),
        (header(rate=10), "has 10 samples a second"),
        (header(rate=4_000_000_000), "samples a second|no sound"),
        (header(channels=500, size=2000, data=bytes(2000)), "has 500 channels"),
        (header(channels=0), "no sound"),
        ("a text", "bytes of a sound file, not str"),
    ],
    ids=itertools.count(),  # a file written now holds the time, and is no name
)
def test_what_is_broken_is_named(data: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        read_sound(data, 3, RATE, 8000)
    assert caught.value.item == 3
    assert "object at" not in caught.value.message


def test_noise_of_all_kinds_is_a_sound_or_an_error() -> None:
    noise = np.random.default_rng(0)
    files = [WHOLE] + [sound(SAMPLES, kind=kind, subtype=sub) for kind, sub in (("FLAC", "PCM_16"), ("OGG", "VORBIS"))]
    read = 0
    for data in files:
        for _ in range(60):
            spoilt = bytearray(data)
            for place in noise.integers(0, min(len(data), 500), 4):
                spoilt[place] = noise.integers(256)
            with suppress(InvalidInput):
                read += len(read_sound(bytes(spoilt), 0, RATE, 8000).samples) > 0
    assert read > 0

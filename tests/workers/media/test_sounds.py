"""What callers send as sounds: decoded right, or refused by name."""

import itertools
import os
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


@pytest.mark.parametrize("rate", [8000, 11_025, 16_000, 22_050, 44_100, 48_000, 96_000, 44_101, 768_000])
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
FLAC = sound(tone(0.5), kind="FLAC", subtype="PCM_16")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no sound"),
        (b"hello, this is no sound at all", "no sound"),
        (b"RIFF\x00\x00\x00\x00WAVE", "broken sound"),
        (WHOLE[:40], "broken sound"),
        (WHOLE[:3000], "is cut off"),
        (sound(tone(0.5), kind="FLAC", subtype="PCM_16")[:2000], "is a broken sound, or one that is cut off"),
        (sound(tone(0.5), kind="OGG", subtype="VORBIS")[:3000], "is cut off: it has no last page"),
        (sound(tone(0.5), kind="OGG", subtype="VORBIS")[:-100], "is cut off"),
        (sound(tone(0.5), kind="OGG", subtype="OPUS")[:-1000], "is cut off"),
        (sound(tone(0.5), kind="AIFF", subtype="PCM_16")[:3000], "is cut off"),
        (sound(tone(0.5), kind="W64", subtype="PCM_16")[:3000], "is cut off"),
        (sound(tone(0.5), kind="RF64", subtype="PCM_16")[:3000], "is cut off"),
        (sound(tone(0.5), kind="MP3", subtype="MPEG_LAYER_III")[:-500], "is cut off, or broken: it has 6 of 9 frames"),
        (sound(tone(0.5), kind="AU", subtype="PCM_16"), "is AU, and only"),
        (sound(np.zeros((0, 1), np.float32)), "holds no sound"),
        (sound(np.array([0.1, np.nan, 0.2], np.float32)), "no numbers"),
        (sound(np.array([0.1, np.inf, 0.2], np.float32)), "no numbers"),
        (sound(np.array([0.1, 1e30, 0.2], np.float32)), r"samples of up to 1.0e\+30"),
        (FLAC[:21] + bytes([FLAC[21] & 0xF0]) + bytes(4) + FLAC[26:], "does not say how long it is"),
        (header(rate=1), "has 1 samples a second"),
        (header(rate=768_001), "has 768001 samples a second"),
        (header(rate=10), "has 10 samples a second"),
        (header(rate=4_000_000_000), "samples a second|broken sound"),
        (header(channels=500, size=2000, data=bytes(2000)), "has 500 channels"),
        (header(channels=0), "broken sound"),
        ("a text", "bytes of a sound file, not str"),
    ],
    ids=itertools.count(),  # a file written now holds the time, and is no name
)
def test_what_is_broken_is_named(data: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        read_sound(data, 3, RATE, 8000)
    assert caught.value.item == 3
    assert "object at" not in caught.value.message


def without_table(mp3: bytes) -> bytes:
    return mp3[mp3.index(b"\xff\xf3", 4) :]  # from the second frame on


def test_mp3_without_a_table_is_heard_to_its_end() -> None:
    noise = np.random.default_rng(0).normal(0, 0.2, (16_000, 1)).astype(np.float32)
    varied = np.concatenate([tone(1, 16_000), noise, tone(1, 16_000)])  # the first frames are smaller than the others
    mp3 = sound(varied, 16_000, "MP3", "MPEG_LAYER_III")
    whole, bare = (read_sound(data, 0, 16_000, 10**6).samples for data in (mp3, without_table(mp3)))
    assert len(whole) == len(varied) < len(bare)
    delays = range(1500)
    errors = [np.abs(bare[delay : delay + 8000] - whole[:8000]).mean() for delay in delays]
    delay = int(np.argmin(errors))  # of the encoder, which only the table tells
    np.testing.assert_allclose(bare[delay + 4000 :][:40_000], whole[4000:44_000], atol=1e-3)


def test_tags_around_mp3_are_passed_over() -> None:
    mp3 = sound(SAMPLES, kind="MP3", subtype="MPEG_LAYER_III")
    tagged = b"ID3\x04\0\0\0\0\x01\x00" + (b"\xff\xfb Info" * 18).ljust(128) + mp3 + b"TAG" + bytes(125)
    np.testing.assert_array_equal(samples(tagged), samples(mp3))


def test_libraries_in_c_write_nothing_into_the_log_of_a_preprocessing_process(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mp3 = sound(tone(3), kind="MP3", subtype="MPEG_LAYER_III")
    broken = mp3 + bytes(len(mp3))  # the decoder remarks that it is longer than it says
    samples(broken)
    assert "Xing" in capfd.readouterr().err
    monkeypatch.setattr("multiprocessing.parent_process", lambda: "a worker")
    samples(broken)
    assert not capfd.readouterr().err
    os.write(2, b"as before")
    assert capfd.readouterr().err == "as before"


SPOILT = (("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("MP3", "MPEG_LAYER_III"))


def test_noise_of_all_kinds_is_a_sound_or_an_error() -> None:
    noise = np.random.default_rng(0)
    files = [WHOLE] + [sound(SAMPLES, kind=kind, subtype=sub) for kind, sub in SPOILT]
    read = 0
    for data in files:
        for _ in range(60):
            spoilt = bytearray(data)
            for place in noise.integers(0, min(len(data), 500), 4):
                spoilt[place] = noise.integers(256)
            with suppress(InvalidInput):
                read += len(read_sound(bytes(spoilt), 0, RATE, 8000).samples) > 0
    assert read > 0

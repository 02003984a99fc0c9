"""
Bytes of a sound file to samples at a model's rate, or an error that says what is wrong with them.

Channels are mixed down to their mean, then resampled by soxr at its high quality, as librosa does it, from which
transformers' users have their samples. Only as much is decoded as is heard: minutes of silence fit in a few kilobytes.
What is cut off is refused where the file says how much it should be; frames of MP3 without a table do not.
"""

import multiprocessing
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from infinity_pool.workers.media.mp3 import frames_of, with_table

FORMATS = ("AIFF", "FLAC", "MP3", "OGG", "RF64", "W64", "WAV", "WAVEX")
"""What is read, of libsndfile's many."""

_RATES = range(1_000, 768_001)  # Hz
_CHANNELS = 64
_MARGIN = 0.1  # s beyond what is heard, so that a cut leaves no edge for the resampler to smooth
_ENDLESS = 2**48  # samples, where libsndfile has no number
_BLOCK = 2**16  # samples of each channel read at a time
_LOUDEST = 1e6  # beside 1.0, the loudest of what is no mistake; far beyond it spectra overflow
_CUT_OFF = re.compile(r"^(?: *(?:data|SSND)|riff| *Riff size) : (\d+) \(should be (\d+)\)", re.MULTILINE)
_MISCOUNTED = 2  # frames: some encoders count their table too
_LAST_PAGE = 4  # a flag of a page of Ogg (RFC 3533)
_UNKNOWN = 1  # libsndfile's code for what is no sound file
_STREAMED = 0x7FFF_0000  # bytes that a recorder says who does not know yet how many there will be


class Sound(NamedTuple):
    """Samples of one channel, float32 [n], and whether there was more than was asked for."""

    samples: Array
    truncated: bool


def need_libraries() -> None:
    """Raise InvalidInput if what sounds need is not installed."""
    for name in ("soundfile", "soxr"):
        if find_spec(name) is None:
            raise InvalidInput(f"sounds need {name!r}, which is not installed: pip install 'infinity-pool[audio]'")


def read_sound(data: Any, item: int, rate: int, longest: int) -> Sound:
    """Decode a file to at most `longest` samples at `rate` Hz, its first; raises InvalidInput, naming the item."""
    if not isinstance(data, bytes):
        raise InvalidInput(f"must be the bytes of a sound file, not {type(data).__name__}", item=item)
    try:
        return _checked(_decoded(data, rate, longest))
    except InvalidInput as error:
        raise InvalidInput(error.message, item=item) from error
    except Exception as error:  # decoders meet what is broken in many ways
        raise InvalidInput(_explained(error), item=item) from error


def _checked(sound: Sound) -> Sound:
    if not len(sound.samples):
        raise InvalidInput("holds no sound")
    if not np.isfinite(sound.samples).all():
        raise InvalidInput("holds samples that are no numbers")
    if (loudest := np.abs(sound.samples).max()) > _LOUDEST:
        raise InvalidInput(f"holds samples of up to {loudest:.1e}; they lie between -1 and 1")
    return sound


def _explained(error: Exception) -> str:
    reason = getattr(error, "error_string", str(error))[:200]
    if getattr(error, "code", _UNKNOWN) == _UNKNOWN:
        return f"is no sound that can be read ({', '.join(FORMATS)}): {reason}"
    return f"is a broken sound, or one that is cut off: {reason}"


def _decoded(data: bytes, rate: int, longest: int) -> Sound:
    import soxr

    with _opened(data) as file:
        frames = int((longest / rate + _MARGIN) * file.samplerate) + 1
        mixed = np.concatenate([np.zeros(0, np.float32), *_mixed(file, frames)])
        samples = mixed if file.samplerate == rate else soxr.resample(mixed, file.samplerate, rate, quality="HQ")
    return Sound(samples[:longest], len(samples) > longest)


@contextmanager
def _opened(data: bytes) -> Iterator[Any]:
    """Open a file that can be read and is all there."""
    import soundfile

    with _quiet():
        with soundfile.SoundFile(BytesIO(data)) as file:
            _check(file)
            whole = _whole(file, data)
            if whole is data:
                yield file
                return
        with soundfile.SoundFile(BytesIO(whole)) as file:
            yield file


def _whole(file: Any, data: bytes) -> bytes:
    """Refuse what is cut off; give a file whose length is known."""
    if file.format == "OGG" and not _has_last_page(data):
        raise InvalidInput("is cut off: it has no last page")
    frames = frames_of(data) if file.format == "MP3" else None
    if frames is None:
        return data
    if frames.said is None:
        return data if file.frames >= frames.samples else with_table(data, frames)
    if frames.found < frames.said - _MISCOUNTED:
        raise InvalidInput(f"is cut off, or broken: it has {frames.found} of {frames.said} frames")
    return data


def _has_last_page(data: bytes) -> bool:
    page = data[data.rfind(b"OggS") :]
    if len(page) < 27 or not page[5] & _LAST_PAGE:
        return False
    head = 27 + page[26]
    return len(page) >= head + sum(page[27:head])


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what libraries in C write about a caller's file out of the log; in a process where nobody else writes."""
    if multiprocessing.parent_process() is None:
        yield
        return
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _mixed(file: Any, frames: int) -> Iterator[Array]:
    """Read a little at a time, whatever the header says of the whole, and mix the channels down."""
    while frames > 0:
        block = file.read(min(frames, _BLOCK), dtype="float32", always_2d=True)
        if not len(block):
            return
        frames -= len(block)
        yield block.mean(axis=1)


def _check(file: Any) -> None:
    if file.format not in FORMATS:
        raise InvalidInput(f"is {file.format}, and only {', '.join(FORMATS)} are read")
    if file.samplerate not in _RATES:
        raise InvalidInput(f"has {file.samplerate} samples a second; {_RATES[0]} to {_RATES[-1]} are allowed")
    if file.frames > _ENDLESS:
        raise InvalidInput("does not say how long it is, as a stream that was saved; it must be written as a file")
    if file.channels > _CHANNELS:
        raise InvalidInput(f"has {file.channels} channels; {_CHANNELS} are allowed")
    for said, found in _CUT_OFF.findall(file.extra_info):
        if int(found) < int(said) < _STREAMED:
            raise InvalidInput(f"is cut off: it has {found} of {said} bytes")

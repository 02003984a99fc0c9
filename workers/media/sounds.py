"""
Bytes of a sound file to samples at a model's rate, or an error that says what is wrong with them.

Channels are mixed down to their mean, then resampled by soxr at its high quality, as librosa does it, from which
transformers' users have their samples. Only as much is decoded as is heard: minutes of silence fit in a few kilobytes.
"""

import re
from collections.abc import Iterator
from importlib.util import find_spec
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array

FORMATS = ("AIFF", "FLAC", "MP3", "OGG", "RF64", "W64", "WAV", "WAVEX")
"""What is read, of libsndfile's many."""

_RATES = range(1_000, 768_001)  # Hz
_CHANNELS = 64
_MARGIN = 0.1  # s beyond what is heard, so that a cut leaves no edge for the resampler to smooth
_BLOCK = 2**16  # samples of each channel read at a time
_CUT_OFF = re.compile(r"\b(?:data|SSND) : (\d+) \(should be (\d+)\)")
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
        sound = _decoded(data, rate, longest)
    except InvalidInput as error:
        raise InvalidInput(error.message, item=item) from error
    except Exception as error:  # decoders meet what is broken in many ways
        reason = getattr(error, "error_string", str(error))[:200]
        raise InvalidInput(f"is no sound that can be read ({', '.join(FORMATS)}): {reason}", item=item) from error
    if not len(sound.samples):
        raise InvalidInput("holds no sound", item=item)
    if not np.isfinite(sound.samples).all():
        raise InvalidInput("holds samples that are no numbers", item=item)
    return sound


def _decoded(data: bytes, rate: int, longest: int) -> Sound:
    import soundfile
    import soxr

    with soundfile.SoundFile(BytesIO(data)) as file:
        _check(file)
        frames = int((longest / rate + _MARGIN) * file.samplerate) + 1
        mixed = np.concatenate([np.zeros(0, np.float32), *_mixed(file, frames)])
        samples = mixed if file.samplerate == rate else soxr.resample(mixed, file.samplerate, rate, quality="HQ")
    return Sound(samples[:longest], len(samples) > longest)


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
    if file.channels > _CHANNELS:
        raise InvalidInput(f"has {file.channels} channels; {_CHANNELS} are allowed")
    for said, found in _CUT_OFF.findall(file.extra_info):
        if int(found) < int(said) < _STREAMED:
            raise InvalidInput(f"is cut off: it has {found} of {said} bytes")

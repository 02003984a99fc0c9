"""
From samples to the mel spectrograms that CLAP's audio tower hears, as transformers' feature extractor makes them.

Two things are not left to chance, so that a sound has one vector, alone and in any batch. Where the extractor crops at
random: of a sound that is too long the first part is heard ("rand_trunc"), and a model that fuses four views ("fusion")
gets the middle one of the crops that could be drawn from each third. Where it marks one sound of a batch as long at
random: every sound is marked, as one that comes alone is.

`read_mels` writes down what the extractor does and proves that this module does the same; `Mels` then needs numpy
alone, where transformers' own imports torch.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from infinity_pool.workers.interface import ModelFiles
from infinity_pool.workers.media.sounds import need_libraries, read_sound

FUSED_SECONDS = 300
"""How much of a sound a model that fuses views hears; one that does not hears its own ten seconds or so."""

_FILTERS = "mel_filters.npy"
_FLOOR = 1e-10
_FRAMES = 1000  # transformed at a time
_TOLERANCE = 1e-3  # dB
_FUSION = "fusion"

Rules = dict[str, Any]


class Mels:
    """A model's feature extractor; `fused` says that it gives four views of a sound."""

    def __init__(self, rules: Rules, folder: Path) -> None:
        self.fused: bool = rules["truncation"] == _FUSION
        self._rate: int = rules["rate"]
        self._samples: int = rules["samples"]
        self._hop: int = rules["hop"]
        self._padding: str = rules["padding"]
        self._filters: Array = np.load(folder / _FILTERS, allow_pickle=False)
        self._window = np.hanning(rules["window"] + 1)[:-1]
        self._longest = self._rate * FUSED_SECONDS if self.fused else self._samples

    def prepare(self, files: Sequence[Any]) -> tuple[Array, Array]:
        """Decode and transform: float32 [n, views, frames, bands] in dB, and bool [n], which were too long."""
        sounds = [read_sound(data, item, self._rate, self._longest) for item, data in enumerate(files)]
        return np.stack([self.views(sound.samples) for sound in sounds]), np.array([each.truncated for each in sounds])

    def views(self, samples: Array) -> Array:
        """Give what is heard of some samples: float32 [views, frames, bands]."""
        if not self.fused:
            return np.asarray(self._decibels(self._filled(samples[: self._samples]))[None])
        if len(samples) <= self._samples:
            return np.repeat(self._decibels(self._filled(samples))[None], 4, axis=0)
        return _four(self._decibels(samples), self._samples // self._hop + 1)

    def _filled(self, samples: Array) -> Array:
        """Fill up what is short, by playing it again where the extractor does, then with silence."""
        times = self._samples // len(samples)
        if self._padding == "repeat":
            samples = np.tile(samples, times + 1)[: self._samples]
        elif self._padding == "repeatpad":
            samples = np.tile(samples, times)
        return np.asarray(np.pad(samples, (0, self._samples - len(samples))))

    def _decibels(self, samples: Array) -> Array:
        """Give the power in each band of each frame, in dB: float32 [frames, bands]."""
        width = len(self._window)
        padded = np.pad(samples, width // 2, mode="reflect").astype(np.float64)
        frames = np.lib.stride_tricks.sliding_window_view(padded, width)[:: self._hop]
        power = [self._power(frames[first : first + _FRAMES]) for first in range(0, len(frames), _FRAMES)]
        return np.asarray(10.0 * np.log10(np.maximum(_FLOOR, np.concatenate(power))), np.float32)

    def _power(self, frames: Array) -> Array:
        spectrum = np.fft.rfft(frames * self._window).astype(np.complex64)  # as coarse as the extractor has it
        return np.asarray(np.abs(spectrum).astype(np.float64) ** 2 @ self._filters)


def _four(decibels: Array, frames: int) -> Array:
    """Give a long sound as a whole, shrunk in time, and a crop of each third: float32 [4, frames, bands]."""
    if len(decibels) == frames:
        return np.repeat(decibels[None], 4, axis=0)
    thirds = np.array_split(np.arange(len(decibels) - frames + 1), 3)
    firsts = [int(third[len(third) // 2]) if len(third) else 0 for third in thirds]
    return np.stack([_shrunk(decibels, frames), *(decibels[first : first + frames] for first in firsts)])


def _shrunk(decibels: Array, frames: int) -> Array:
    """Interpolate in time as torch's bilinear `interpolate` does."""
    places = np.maximum((np.arange(frames) + 0.5) * len(decibels) / frames - 0.5, 0.0)
    before = places.astype(np.int64)
    after = np.minimum(before + 1, len(decibels) - 1)
    share = (places - before)[:, None]
    return np.asarray(decibels[before] * (1 - share) + decibels[after] * share, np.float32)


def read_mels(files: ModelFiles, folder: Path, fused: bool) -> Rules:
    """
    Write down what a model's feature extractor does, its filters in `folder`; `fused` is what its network takes.

    Raises InvalidInput if a library for sounds is missing, or the extractor does what `Mels` does not.
    """
    need_libraries()
    from transformers import AutoFeatureExtractor

    try:
        extractor: Any = AutoFeatureExtractor.from_pretrained(files.network, local_files_only=True)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise InvalidInput(f"no feature extractor for {files.spec!r}: {error}", param="model") from error
    if (extractor.truncation == _FUSION) != fused:
        raise InvalidInput(f"the feature extractor of {files.spec!r} makes other views than its network takes")
    np.save(folder / _FILTERS, extractor.mel_filters if fused else extractor.mel_filters_slaney)
    rules = {
        "truncation": extractor.truncation,
        "padding": extractor.padding,
        "rate": extractor.sampling_rate,
        "samples": extractor.nb_max_samples,
        "hop": extractor.hop_length,
        "window": extractor.fft_window_size,
    }
    if (difference := _difference(extractor, Mels(rules, folder))) > _TOLERANCE:
        raise InvalidInput(
            f"the feature extractor of {files.spec!r}, {type(extractor).__name__}, does what is not served here: "
            f"it differs by {difference:.1e} dB",
            param="model",
        )
    return rules


def _difference(extractor: Any, mels: Mels) -> float:
    """Give the greatest difference on some noise, infinite where the shapes differ."""
    noise = np.random.default_rng(0).normal(0, 0.1, extractor.nb_max_samples * 2 // 5).astype(np.float32)
    theirs = extractor(noise, sampling_rate=extractor.sampling_rate, return_tensors="np")["input_features"][0]
    ours = mels.views(noise)
    return float(np.abs(theirs - ours).max()) if theirs.shape == ours.shape else float("inf")

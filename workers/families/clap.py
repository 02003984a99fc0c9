"""CLAP: texts and sounds to vectors of one space, by two towers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from infinity_pool.broker.messages import Item
from infinity_pool.workers.interface import Claim, Family, ModelFiles, Rows
from infinity_pool.workers.media.mels import Mels, read_mels
from infinity_pool.workers.media.towers import TwoTowers, read_text_tower
from infinity_pool.workers.text.quantising import OPTION

_MERGED = 16  # patches that are one token where the audio tower has most of its layers, after merging them twice


def serves(files: ModelFiles) -> Claim:
    """Claim models that have both towers."""
    architectures = files.config.get("architectures") or ["ClapModel"]
    return Claim.OWN if files.config.get("model_type") == "clap" and "ClapModel" in architectures else Claim.NONE


def describe(files: ModelFiles, folder: Path) -> dict[str, Any]:
    """Write the tokenizer and the mel filters to `folder`; give the limits, and what the feature extractor does."""
    from infinity_pool.workers.networks.network import read_config

    config = read_config(files)
    text, audio = config.text_config, config.audio_config
    positions = text.max_position_embeddings - text.pad_token_id - 1  # RoBERTa's start after padding
    patches = (audio.spec_size // audio.patch_stride[0]) * (audio.spec_size // audio.patch_stride[1])
    return read_text_tower(files, folder, config, positions) | {
        "mels": read_mels(files, folder, fused=audio.enable_fusion),
        "tokens": max(1, patches // _MERGED),
    }


def make(files: ModelFiles) -> Family:
    """Make the family of a described model."""
    return Clap(files)


class Clap(TwoTowers):
    """Texts and sounds in, one vector each out: equal to `get_text_features` and `get_audio_features`."""

    modalities: tuple[str, ...] = ("text", "audio")
    media_input = "input_features"
    options: tuple[str, ...] = ("dimensions", "modality", OPTION)  # the network itself gives vectors of length 1

    def __init__(self, files: ModelFiles) -> None:
        super().__init__(files)
        self._mels = Mels(files.extra["mels"], files.described)
        self._tokens: int = files.extra["tokens"]

    def prepare_media(self, items: Sequence[Item]) -> Rows:
        """Decode sounds and give their spectrograms; each is of the same length, whatever it was."""
        features, truncated = self._mels.prepare(items)
        return Rows(np.full(len(items), self._tokens, np.int32), {}, {self.media_input: features}, truncated)

    def call(self, network: Any, inputs: dict[str, Any]) -> Any:
        """Run the tower that the batch is for; a network that fuses views is told that there are some to fuse."""
        if self.media_input not in inputs:
            return network.get_text_features(**inputs).pooler_output
        features = inputs[self.media_input].to(network.dtype)
        longer = features.new_ones((len(features), 1)) == 1 if self._mels.fused else None
        return network.get_audio_features(input_features=features, is_longer=longer).pooler_output

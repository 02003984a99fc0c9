"""CLIP and SigLIP (also SigLIP 2 of fixed resolution): texts and images to vectors of one space, by two towers."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from infinity_pool.broker.messages import Item
from infinity_pool.workers.interface import Claim, Family, ModelFiles, Rows
from infinity_pool.workers.media.pixels import Pixels, read_pixels
from infinity_pool.workers.media.towers import TwoTowers, read_text_tower
from infinity_pool.workers.text.modules import modules_of

_ARCHITECTURES = {"clip": "CLIPModel", "siglip": "SiglipModel"}
"""By model_type; SigLIP 2 of fixed resolution says `siglip` too, the one of any resolution `siglip2`."""


def serves(files: ModelFiles) -> Claim:
    """Claim models that have both towers."""
    whole = _ARCHITECTURES.get(files.config.get("model_type", ""))
    architectures = files.config.get("architectures") or [whole]
    return Claim.OWN if whole is not None and whole in architectures else Claim.NONE


def describe(files: ModelFiles, folder: Path) -> dict[str, Any]:
    """Write the tokenizer to `folder`; give the limits, and what the image processor does."""
    from infinity_pool.workers.networks.network import read_config

    modules = modules_of(files.path)
    network = {"network": modules[0][1] if modules else ""}
    files = replace(files, extra=network)
    config = read_config(files)
    vision = config.vision_config
    return (
        network
        | read_text_tower(files, folder, config, config.text_config.max_position_embeddings)
        | {
            "pixels": read_pixels(files, vision.image_size),
            "patches": (vision.image_size // vision.patch_size) ** 2,
            "pads_to_limit": config.model_type == "siglip",
        }
    )


def make(files: ModelFiles) -> Family:
    """Make the family of a described model."""
    return Clip(files)


class Clip(TwoTowers):
    """Texts and images in, one vector each out: equal to `get_text_features` and `get_image_features`, at length 1."""

    modalities: tuple[str, ...] = ("text", "image")
    media_input = "pixel_values"

    def __init__(self, files: ModelFiles) -> None:
        super().__init__(files)
        self.pads_to_limit = files.extra["pads_to_limit"]
        self._pixels = Pixels(files.extra["pixels"])
        self._patches: int = files.extra["patches"]

    def prepare_media(self, items: Sequence[Item]) -> Rows:
        """Decode, resize and crop images; each counts as many tokens as it has patches."""
        pixels = self._pixels.prepare(items)
        lengths = np.full(len(items), self._patches, np.int32)
        return Rows(lengths, {}, {self.media_input: pixels}, np.zeros(len(items), np.bool_))

    def call(self, network: Any, inputs: dict[str, Any]) -> Any:
        """Run the tower that the batch is for; pixels become numbers of the processor's scale here, on the device."""
        if self.media_input not in inputs:
            return network.get_text_features(**inputs).pooler_output
        pixels = inputs[self.media_input].float()
        scale, offset = (pixels.new_tensor(array.tolist()) for array in (self._pixels.scale, self._pixels.offset))
        return network.get_image_features(pixel_values=pixels * scale + offset).pooler_output

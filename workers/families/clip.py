"""CLIP and SigLIP (also SigLIP 2 of fixed resolution): texts and images to vectors of one space, by two towers."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from infinity_pool.broker.messages import Item
from infinity_pool.workers.interface import Batch, Claim, Family, GraphSpec, ModelFiles, Rows
from infinity_pool.workers.media.images import noise
from infinity_pool.workers.media.pixels import Pixels, read_pixels
from infinity_pool.workers.media.towers import TwoTowers, read_text_tower
from infinity_pool.workers.text.modules import modules_of

_ARCHITECTURES = {"clip": "CLIPModel", "siglip": "SiglipModel"}
"""By model_type; SigLIP 2 of fixed resolution says `siglip` too, the one of any resolution `siglip2`."""

_PROBES = ((64, 48), (301, 401))  # width and height of the images by which engines are compared
_OUTPUTS = {"clip": ("text_embeds", "image_embeds"), "siglip": ("pooler_output", "pooler_output")}
"""What the ONNX graphs of the two towers call their outputs, as optimum exports them, by model_type."""


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
            "outputs": _OUTPUTS[config.model_type],
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
        self.pads_to_limit = self.counts_unattended = files.extra["pads_to_limit"]
        self._pixels = Pixels(files.extra["pixels"], files.max_image_pixels)
        self._patches: int = files.extra["patches"]
        self._text_output, self._image_output = files.extra["outputs"]

    def prepare_media(self, items: Sequence[Item]) -> Rows:
        """Decode, resize and crop images; each counts as many tokens as it has patches."""
        pixels = self._pixels.prepare(items)
        lengths = np.full(len(items), self._patches, np.int32)
        return Rows(lengths, {}, {self.media_input: pixels}, np.zeros(len(items), np.bool_))

    def graphs(self) -> tuple[GraphSpec, ...]:
        """Give each tower, under the name that optimum gives it."""
        text = tuple(name for name in self.inputs if name != self.media_input)
        return (
            GraphSpec("text_model", self._text_output, text),
            GraphSpec("vision_model", self._image_output, (self.media_input,)),
        )

    def feed(self, batch: Batch) -> Batch:
        """Give pixels as numbers of the processor's scale."""
        if self.media_input not in batch:
            return batch
        pixels = batch[self.media_input].astype(np.float32)
        return batch | {self.media_input: pixels * self._pixels.scale + self._pixels.offset}

    def probes(self) -> list[tuple[dict[str, Any], Item]]:
        """Give two images."""
        return [({"modality": "image"}, noise(width, height)) for width, height in _PROBES]

    def call(self, network: Any, inputs: dict[str, Any]) -> Any:
        """Run the tower that the batch is for; bytes become numbers of the processor's scale here, on the device."""
        if self.media_input not in inputs:
            return network.get_text_features(**inputs).pooler_output
        pixels = inputs[self.media_input]
        if not pixels.is_floating_point():
            pixels = pixels.float()
            scale, offset = (pixels.new_tensor(array.tolist()) for array in (self._pixels.scale, self._pixels.offset))
            pixels = pixels * scale + offset
        return network.get_image_features(pixel_values=pixels).pooler_output

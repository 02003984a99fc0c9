"""
Embedders made of vision-language models, as sentence-transformers packs them: texts and images to vectors of one space.

Qwen2-VL, Qwen2.5-VL and Qwen3-VL with a chat template: an item is a user's message, a prompt the system's. Transformers
renders the template and prepares images, so that it comes into each preprocessing process.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array, Item
from infinity_pool.workers.files.locate import read_object
from infinity_pool.workers.interface import Batch, Claim, Family, Head, ModelFiles, Rows
from infinity_pool.workers.media.images import noise, open_image
from infinity_pool.workers.text import saved_tokenizer
from infinity_pool.workers.text.modules import modules_of, read_steps
from infinity_pool.workers.text.options import check_names, modality_of
from infinity_pool.workers.text.padding import mask_of, text_batch
from infinity_pool.workers.text.pooled import Pooled
from infinity_pool.workers.text.prompts import read_prompts
from infinity_pool.workers.text.tokenizer import Tokens

_NETWORKS = ("qwen2_5_vl", "qwen2_vl", "qwen3_vl")
_IMAGE = "<|image_pad|>"  # stands in a message for an image, and among its tokens for each part of it
_IMAGE_INPUTS = ("pixel_values", "image_grid_thw", "mm_token_type_ids")
_FILLERS = ("0", "1 2 3 4")  # texts without a common end, by which what a template puts behind a text is found
_PROBE = (301, 201)  # width and height of the image by which engines are compared
_ENDS_KEPT = 256  # of prompts
_SIZES = ("max_length", "padding", "restore_suffix", "return_tensors", "truncation")  # that are no template's


def serves(files: ModelFiles) -> Claim:
    """Claim networks that are known, in a folder that says that they take messages."""
    return Claim.OWN if _is_known(files) and "message" in _modalities(files) else Claim.NONE


def describe(files: ModelFiles, folder: Path) -> dict[str, Any]:
    """Write the tokenizer and the modules' weights to `folder`; give the limits, the template and what it is given."""
    from infinity_pool.workers.text.reading import MESSAGE, read_text_model

    if not _is_known(files):
        raise InvalidInput(f"vision_language serves {', '.join(_NETWORKS)} with a modules.json", param="family")
    if _modalities(files).get(MESSAGE, {}).get("format") == "flat":
        raise InvalidInput(f"flat messages, which {files.spec!r} takes, are not served", param="model")
    network = {"network": modules_of(files.path)[0][1]}
    files = replace(files, extra=network)
    facts = network | read_text_model(files, folder, VisionLanguage.auto_class, takes=MESSAGE)
    facts |= _read_processing(facts.pop("processing"))
    facts |= {"tokenizer_options": saved_tokenizer.saved_options(folder), "template": _template(files, folder)}
    images = _image_processor(files, facts["tokenizer_options"])
    described = read_object(files.path / "config_sentence_transformers.json")
    more = {
        "steps": read_steps(files.path, folder),
        "truncate_dim": described.get("truncate_dim"),
        "inputs": [*facts["inputs"], *_IMAGE_INPUTS],
        "vocab_size": None,  # token ids are no messages
        "patches": int(images.merge_size) ** 2,
        "images_by": type(images).__name__,
    }
    return facts | read_prompts(files.path) | more


def make(files: ModelFiles) -> Family:
    """Make the family of a described model."""
    return VisionLanguage(files)


class VisionLanguage(Pooled):
    """Texts, and files of images in, one vector each out: equal to sentence-transformers' `encode`."""

    modalities: tuple[str, ...] = ("text", "image")
    output = ""

    def __init__(self, files: ModelFiles) -> None:
        super().__init__(files)
        self._files = files
        self._patches: int = files.extra["patches"]
        self._end = lru_cache(_ENDS_KEPT)(self._end_of)

    @cached_property
    def _images(self) -> Any:
        return _image_processor(self._files, self._files.extra["tokenizer_options"])

    @cached_property
    def _renderer(self) -> Any:
        return saved_tokenizer.load(self._files, self._files.extra["tokenizer_options"])

    @cached_property
    def _image_id(self) -> int:
        return int(self._renderer.convert_tokens_to_ids(_IMAGE))

    def head(self, task: str, options: dict[str, Any]) -> Head:
        """Check `modality`, text unless it says image, and what is asked of the vectors, which is the same for both."""
        modality = modality_of(options, self.modalities)
        others = {name: value for name, value in options.items() if name != "modality"}
        if modality != "text":
            check_names(others, self.options)
        return super().head(task, others)._replace(modality=modality)

    def prepare(self, head: Head, items: Sequence[Item], options: dict[str, Any]) -> Rows:
        """Put items into messages, and these into tokens; raises InvalidInput, naming the item."""
        prompt = self._prompts.choose(options)
        if head.modality == "text":
            tokens = self._texts(items, prompt, options)
            return Rows(tokens.lengths, {"input_ids": tokens.ids}, self.marks(head, len(items)), tokens.truncated)
        rows = [self._image(item, place, prompt) for place, item in enumerate(items)]
        ids, pixels, grids = zip(*rows, strict=True)
        lengths = np.fromiter(map(len, ids), np.int32, len(ids))
        ragged = {"input_ids": np.concatenate(ids), "pixel_values": np.concatenate(pixels)}
        fixed = self.marks(head, len(items)) | {"image_grid_thw": np.concatenate(grids)}
        return Rows(lengths, ragged, fixed, np.zeros(len(ids), np.bool_))

    def collate(self, rows: Sequence[Rows]) -> Batch:
        """Pad tokens on the right, where none looks; the parts of all images come one after another."""
        mask = mask_of(rows)
        batch = text_batch(rows, mask, self.inputs, self._tokenizer.pad_id) | self.pooling_of(rows)
        if "pixel_values" not in rows[0].ragged:
            return batch
        seen = batch["input_ids"] == self._image_id
        pixels = np.concatenate([part.ragged["pixel_values"] for part in rows])[seen[mask]]
        return batch | {
            "pixel_values": pixels.reshape(len(pixels) * self._patches, -1),
            "image_grid_thw": np.concatenate([part.fixed["image_grid_thw"] for part in rows]),
            "mm_token_type_ids": seen.astype(np.int64),
        }

    def probes(self) -> list[tuple[dict[str, Any], Item]]:
        """Give an image."""
        return [({"modality": "image"}, noise(*_PROBE))]

    def call(self, network: Any, inputs: dict[str, Any]) -> Any:
        """Run the network: [n, length, hidden]."""
        return network(**inputs).last_hidden_state

    def _texts(self, items: Sequence[Item], prompt: str, options: dict[str, Any]) -> Tokens:
        """Tokenize messages of text; what a template puts behind a text stays where that is cut."""
        for place, item in enumerate(items):
            if not isinstance(item, str):
                raise InvalidInput(f"must be a text, not {type(item).__name__}", item=place)
        cut = self._tokenizer.cut(options)
        rendered = [self._rendered({"type": "text", "text": item}, prompt) for item in items]
        tokens = self._tokenizer.encode(rendered, cut=cut)
        tokens.refuse_empty()
        ends = np.cumsum(tokens.lengths)
        for place in np.flatnonzero(tokens.truncated).tolist():
            end = self._end(prompt)[-int(tokens.lengths[place]) :]
            tokens.ids[ends[place] - len(end) : ends[place]] = end
        return tokens

    def _image(self, item: Item, place: int, prompt: str) -> tuple[Array, Array, Array]:
        """
        Give an image's tokens, for each of them its part of the pixels, 0 where it is none of the image, and its grid.

        So a batch has no pixels of padding, however unlike its images are.
        """
        image = open_image(item, place, self._files.max_image_pixels)
        try:
            made = self._images(images=[image], return_tensors="pt", **self._files.extra["image_options"])
        except ValueError as error:  # of a shape that it does not take, such as a very long and thin one
            raise InvalidInput(f"cannot be used by this model: {error}", item=place) from error
        parts = np.asarray(made["pixel_values"]).reshape(-1, self._patches * made["pixel_values"].shape[-1])
        ids = self._tokens_around(len(parts), place, prompt)
        pixels = np.zeros((len(ids), parts.shape[-1]), np.float32)
        pixels[ids == self._image_id] = parts
        return ids, pixels, np.asarray(made["image_grid_thw"])

    def _tokens_around(self, count: int, place: int, prompt: str) -> Array:
        text = self._rendered({"type": "image", "image": ""}, prompt)
        if text.count(_IMAGE) != 1:
            raise InvalidInput(f"prompt must not have {_IMAGE} in it", param="prompt")
        tokens = self._tokenizer.encode([text.replace(_IMAGE, _IMAGE * count)])
        if tokens.truncated[0]:
            raise InvalidInput(f"becomes over {self.max_length} tokens, the limit of this model", item=place)
        return tokens.ids

    def _rendered(self, content: dict[str, str], prompt: str) -> str:
        messages = [{"role": "user", "content": [content]}]
        if prompt:
            messages.insert(0, {"role": "system", "content": [{"type": "text", "text": prompt}]})
        facts = self._files.extra
        rendered = self._renderer.apply_chat_template(
            messages, chat_template=facts["template"], tokenize=False, **facts["template_options"]
        )
        return str(rendered)

    def _end_of(self, prompt: str) -> Array:
        """Give the tokens that the template puts behind a text, by what two texts' messages have in common there."""
        messages = [self._rendered({"type": "text", "text": filler}, prompt) for filler in _FILLERS]
        one, other = (self._tokenizer.encode([message]).ids[::-1] for message in messages)
        length = min(len(one), len(other))
        same = int(np.logical_and.accumulate(one[:length] == other[:length]).sum())
        return one[:same][::-1] if same < length else one[:0]


def _is_known(files: ModelFiles) -> bool:
    kind = (modules_of(files.path) or [("", "")])[0][0]
    described = read_object(files.path / "config_sentence_transformers.json")
    dense = described.get("model_type", "SentenceTransformer") == "SentenceTransformer"
    ours = kind.startswith("sentence_transformers.") and kind.endswith(".Transformer")
    return dense and ours and files.config.get("model_type") in _NETWORKS


def _modalities(files: ModelFiles) -> dict[str, Any]:
    settings = read_object(files.path / modules_of(files.path)[0][1] / "sentence_bert_config.json")
    return settings.get("modality_config") or {}


def _read_processing(settings: dict[str, Any]) -> dict[str, Any]:
    """Give the model's own options of its template, its images and its limit; refuse what else it has."""
    template, image, text = (settings.get(name) or {} for name in ("chat_template", "image", "text"))
    others = [name for name in settings if name not in ("chat_template", "image", "text")]
    others += [name for name in template if name in _SIZES] + [name for name in text if name != "max_length"]
    if others:
        raise InvalidInput(f"processing_kwargs with {', '.join(others)} are not served", param="model")
    limit = {"max_length": int(text["max_length"])} if text else {}
    return limit | {"template_options": template, "image_options": image}


def _template(files: ModelFiles, folder: Path) -> str:
    older = read_object(files.network / "chat_template.json").get("chat_template")
    found = saved_tokenizer.load(files, saved_tokenizer.saved_options(folder)).chat_template or older
    if not isinstance(found, str):
        raise InvalidInput(f"model {files.spec!r} has no chat template", param="model")
    return found


def _image_processor(files: ModelFiles, options: dict[str, Any]) -> Any:
    from transformers import AutoImageProcessor

    own = {name: value for name, value in options.items() if name != "model_max_length"}
    common = {"trust_remote_code": files.trust_remote_code, "local_files_only": True}
    try:
        return AutoImageProcessor.from_pretrained(files.network, **common, **own)  # type: ignore[no-untyped-call]
    except (ImportError, OSError, ValueError) as error:
        raise InvalidInput(f"no image processor for {files.spec!r}: {error}", param="model") from error

"""
Late interaction on pictures of pages: ColPali, ColQwen2 and ColModernVBert, as transformers has them.

An image and a query each give one vector a token. The method is of "ColPali: Efficient Document Retrieval with Vision
Language Models" (Faysse et al., 2024, arXiv:2407.01449). Processors differ from model to model and are transformers'
own, so that preparing an item brings transformers and torch into each preprocessing process.
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array, Item
from infinity_pool.workers.files.locate import read_object
from infinity_pool.workers.interface import Batch, Claim, Family, Head, ModelFiles, Rows
from infinity_pool.workers.media.images import open_image
from infinity_pool.workers.text.cutting import CUTS, Cut, cut_of
from infinity_pool.workers.text.limits import limit_of
from infinity_pool.workers.text.matrices import cut
from infinity_pool.workers.text.modules import modules_of
from infinity_pool.workers.text.options import Options, check_names, check_task, count_of, modality_of
from infinity_pool.workers.text.padding import mask_of, pad
from infinity_pool.workers.text.quantising import OPTION, NumberFormats

_CLASSES = ("ColModernVBertForRetrieval", "ColPaliForRetrieval", "ColQwen2ForRetrieval")
_WITH_ROOM = "ColPaliForRetrieval"  # whose processor adds room for an image, which is not there, to a query's limit
_OPTIONS = ("dimensions", "modality", OPTION)
_CHARS_PER_TOKEN = 16  # of a query that are read; what is over the limit is cut
_UNLIMITED = 32_768  # tokens, for tokenizers that name no limit


def serves(files: ModelFiles) -> Claim:
    """Claim transformers' own classes; the checkpoints of colpali-engine have others, and no weights of their own."""
    return Claim.OWN if _class_of(files) in _CLASSES else Claim.NONE


def describe(files: ModelFiles, folder: Path) -> dict[str, Any]:
    """Give the limits, the width and what the network takes; raises InvalidInput if there is no processor."""
    from infinity_pool.workers.networks.network import read_config

    _refuse_modules(files)
    config = read_config(files)
    processor = _processor(files)
    text = config.vlm_config.get_text_config()
    return {
        "class": _class_of(files),
        "width": int(config.embedding_dim),
        "usual": int(min(processor.tokenizer.model_max_length, _UNLIMITED)),
        "positions": getattr(text, "max_position_embeddings", None),
        "pad_id": int(processor.tokenizer.pad_token_id or 0),
    }


def _refuse_modules(files: ModelFiles) -> None:
    """Refuse what sentence-transformers would do after the network: leave out tokens, or put them together."""
    for kind, place in modules_of(files.path)[1:]:
        config = read_object(files.path / place / "config.json")
        if not kind.endswith(".MultiVectorMask") or config.get("keep_only_token_ids") or config.get("skiplist_words"):
            raise InvalidInput(f"module {kind!r} of {files.spec!r} is not served: it leaves out tokens", param="model")


def make(files: ModelFiles) -> Family:
    """Make the family of a described model."""
    return ColPali(files)


class ColPali(Family):
    """Queries, and files of page images in; a matrix of one vector of length 1 a token out."""

    tasks: tuple[str, ...] = ("multivector",)
    modalities: tuple[str, ...] = ("text", "image")
    inputs: tuple[str, ...] = (
        "input_ids",
        "attention_mask",
        "token_type_ids",
        "mm_token_type_ids",
        "pixel_values",
        "pixel_attention_mask",
        "image_grid_thw",
    )
    output = ""

    def __init__(self, files: ModelFiles) -> None:
        facts = files.extra
        self.auto_class = facts["class"]
        self.dimensions: int = facts["width"]
        self.max_length = limit_of(files, facts["usual"])
        self.max_chars = _CHARS_PER_TOKEN * self.max_length
        self._formats = NumberFormats(files, self.dimensions, steps=False)
        self._pad_id: int = facts["pad_id"]
        self._files = files

    @cached_property
    def _processor(self) -> Any:
        return _processor(self._files)

    def head(self, task: str, options: dict[str, Any]) -> Head:
        """Check `modality`, text unless it says image, `dimensions`, and where queries are cut."""
        check_task(task, self.tasks)
        modality = modality_of(options, self.modalities)
        check_names(options, (*_OPTIONS, *CUTS) if modality == "text" else _OPTIONS)
        count_of(options, "dimensions", self.dimensions)
        self._cut(options)
        self._formats.check(options)
        return Head(task, modality)

    def prepare(self, head: Head, items: Sequence[Item], options: dict[str, Any]) -> Rows:
        """Let the model's processor make arrays of each item; raises InvalidInput, naming the item."""
        if head.modality != "text":
            return _rows([self._page(item, place) for place, item in enumerate(items)])
        cut = self._cut(options)
        return _rows([self._query(item, place, cut) for place, item in enumerate(items)], cut.length)

    def _cut(self, options: Options) -> Cut:
        return cut_of(options, Cut(self.max_length, left=False), 0)

    def _query(self, item: Item, place: int, cut: Cut) -> Batch:
        if not isinstance(item, str):
            raise InvalidInput(f"must be a text, not {type(item).__name__}", item=place)
        text = item[-self.max_chars :] if cut.left else item[: self.max_chars]
        self._processor.tokenizer.truncation_side = "left" if cut.left else "right"
        room = self._processor.image_seq_length if self.auto_class == _WITH_ROOM and cut.length < self.max_length else 0
        return _arrays(self._processor.process_queries(text=[text], truncation=True, max_length=cut.length - room))

    def _page(self, item: Item, place: int) -> Batch:
        image = open_image(item, place, self._files.max_image_pixels)
        try:
            return _arrays(self._processor.process_images(images=[image]))
        except ValueError as error:  # of a shape that it does not take, such as a very long and thin one
            raise InvalidInput(f"cannot be used by this model: {error}", item=place) from error

    def collate(self, rows: Sequence[Rows]) -> Batch:
        """Pad tokens on the right, where none looks, and what is of an image with zeros."""
        mask = mask_of(rows)
        batch = {name: pad(rows, name, mask, self._pad_id if name == "input_ids" else 0) for name in rows[0].ragged} | {
            name: _stacked([part.fixed[name] for part in rows]) for name in rows[0].fixed
        }
        return batch | {"attention_mask": mask.astype(np.int64)}

    def call(self, network: Any, inputs: dict[str, Any]) -> Any:
        """Run the network: [n, length, width], each token's vector of length 1."""
        return network(**inputs).embeddings

    def reduce(self, output: Any, batch: Any) -> Any:
        """Leave all tokens as they are; those of padding go in `split`."""
        return output

    def split(self, outputs: Array, batch: Batch) -> list[Any]:
        """Give each item's own tokens, [tokens, width]."""
        lengths = batch["attention_mask"].sum(1).tolist()
        return [matrix[:length] for matrix, length in zip(outputs, lengths, strict=True)]

    def finish(self, head: Head, outputs: Any, options: dict[str, Any]) -> list[Any]:
        """Cut vectors to `dimensions`, make them of length 1 again, and quantise; all tokens stay."""
        return [self._formats.apply(cut(matrix, options.get("dimensions")), options) for matrix in outputs]


def _class_of(files: ModelFiles) -> str:
    return str((files.config.get("architectures") or [""])[0])


def _processor(files: ModelFiles) -> Any:
    from transformers import AutoProcessor

    common = {"trust_remote_code": files.trust_remote_code, "local_files_only": True}
    try:
        return AutoProcessor.from_pretrained(files.network, **common)  # type: ignore[no-untyped-call]
    except (ImportError, OSError, ValueError) as error:
        raise InvalidInput(f"no processor for {files.spec!r}: {error}", param="model") from error


def _arrays(inputs: Any) -> Batch:
    return {name: np.asarray(array) for name, array in inputs.items() if name in ColPali.inputs}


def _rows(items: list[Batch], limit: int = _UNLIMITED) -> Rows:
    """
    Put items together: what there is for each token in ragged arrays, the rest padded with zeros to one shape.

    Those of `limit` tokens or more are taken to be cut.
    """
    per_token = [name for name, array in items[0].items() if array.shape == items[0]["input_ids"].shape]
    kept = [one["attention_mask"][0].astype(bool) for one in items]
    lengths = np.fromiter((mask.sum() for mask in kept), np.int32, len(items))
    ragged = {
        name: np.concatenate([one[name][0][mask] for one, mask in zip(items, kept, strict=True)])
        for name in per_token
        if name != "attention_mask"
    }
    fixed = {name: _stacked([one[name] for one in items]) for name in items[0] if name not in per_token}
    return Rows(lengths, ragged, fixed, lengths >= limit)


def _stacked(arrays: list[Array]) -> Array:
    """Join arrays along their first axis, each filled up with zeros to the largest in all others."""
    shape = np.max([array.shape[1:] for array in arrays], axis=0)
    filled = [
        np.pad(one, [(0, 0), *((0, most - has) for most, has in zip(shape, one.shape[1:], strict=True))])
        for one in arrays
    ]
    return np.concatenate(filled)

"""What families of two towers share: one for texts, one for images or sounds, both giving vectors of one space."""

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from infinity_pool.broker.messages import Array, Item
from infinity_pool.workers.interface import Batch, Family, Head, ModelFiles, Rows
from infinity_pool.workers.text import saved_tokenizer
from infinity_pool.workers.text.cutting import CUTS
from infinity_pool.workers.text.modules import unit
from infinity_pool.workers.text.options import check_names, check_task, count_of, flag_of, modality_of
from infinity_pool.workers.text.padding import mask_of, text_batch
from infinity_pool.workers.text.quantising import OPTION, NumberFormats
from infinity_pool.workers.text.tokenizer import Tokenizer, Tokens, max_length_of

_TEXT_INPUTS = ("input_ids", "attention_mask")


def read_text_tower(files: ModelFiles, folder: Path, config: Any, positions: int) -> dict[str, Any]:
    """
    Write a model's tokenizer to `folder`; give its limits and what the text tower takes.

    `config` is the model's own as transformers has it, `positions` how many tokens its text tower can run.
    """
    made = saved_tokenizer.save(files, folder, {}, lower_case=False)
    width = getattr(config, "projection_dim", None) or config.text_config.projection_size
    return {
        "max_length": int(min(made.model_max_length, positions)),
        "positions": positions,
        "left": made.padding_side == "left",
        "text_inputs": [name for name in _TEXT_INPUTS if name in made.model_input_names],
        "width": int(width),
    }


class TwoTowers(Family):
    """
    Texts, and files of `modalities[1]` in, vectors of length 1 out.

    A family says what the media become (`prepare_media`: arrays of one row an item, with the tokens they count as) and
    how each tower is called. Where `pads_to_limit` every text is run at the full length, as the tower was trained.
    """

    tasks: tuple[str, ...] = ("embed",)
    auto_class = "AutoModel"
    output = ""
    options: tuple[str, ...] = ("dimensions", "modality", "normalize", OPTION)
    pads_to_limit = False
    media_input: str

    def __init__(self, files: ModelFiles) -> None:
        facts = files.extra
        self.max_length = max_length_of(files)
        self.dimensions: int = facts["width"]
        self.inputs: tuple[str, ...] = (*facts["text_inputs"], self.media_input)
        self._formats = NumberFormats(files, self.dimensions)
        self._left: bool = facts["left"]
        self._tokenizer = Tokenizer(files, self.max_length)
        self.max_chars = self._tokenizer.max_chars

    @abstractmethod
    def prepare_media(self, items: Sequence[Item]) -> Rows:
        """Turn files into arrays; raises InvalidInput, naming the item."""

    def head(self, task: str, options: dict[str, Any]) -> Head:
        """Check the options, of which each family has its own."""
        check_task(task, self.tasks)
        modality = modality_of(options, self.modalities)
        check_names(options, (*self.options, *CUTS) if modality == "text" else self.options)
        self._tokenizer.cut(options)
        changed = ["normalize"] if flag_of(options, "normalize") is False else []
        self._formats.check(options, *changed)
        count_of(options, "dimensions", self.dimensions)
        return Head(task, modality)

    def prepare(self, head: Head, items: Sequence[Item], options: dict[str, Any]) -> Rows:
        """Tokenize texts, or decode files."""
        if head.modality != "text":
            return self.prepare_media(items)
        return self._texts(self._tokenizer.encode(items, cut=self._tokenizer.cut(options)))

    def _texts(self, tokens: Tokens) -> Rows:
        rows = Rows(tokens.lengths, {"input_ids": tokens.ids}, {}, tokens.truncated)
        if self.pads_to_limit:
            return self._padded(rows)
        tokens.refuse_empty()
        return rows

    def _padded(self, rows: Rows) -> Rows:
        """Fill every text up to the limit, on the tokenizer's own side: the tower reads its padding too."""
        mask = np.arange(self.max_length) < rows.lengths[:, None]
        if self._left:
            mask = mask[:, ::-1]
        ids = np.full(mask.shape, self._tokenizer.pad_id, np.int32)
        ids[mask] = rows.ragged["input_ids"]
        lengths = np.full(len(mask), self.max_length, np.int32)
        return Rows(lengths, {}, {"input_ids": ids, "attention_mask": mask}, rows.truncated)

    def collate(self, rows: Sequence[Rows]) -> Batch:
        """Pad texts to the longest, on the right; media, and texts that are padded already, are put together."""
        if not rows[0].ragged:
            batch = {name: np.concatenate([part.fixed[name] for part in rows]) for name in rows[0].fixed}
            return {
                name: array if name == self.media_input else array.astype(np.int64) for name, array in batch.items()
            }
        return text_batch(rows, mask_of(rows), _TEXT_INPUTS, self._tokenizer.pad_id)

    def reduce(self, output: Any, batch: Any) -> Any:
        """Nothing: a tower gives one vector an item, [n, width]."""
        return output

    def finish(self, head: Head, outputs: Array, options: dict[str, Any]) -> Array:
        """Cut vectors to `dimensions`, make them of length 1 unless `normalize` is false, and quantise."""
        cut = outputs[:, : options.get("dimensions") or self.dimensions]
        vectors = cut if options.get("normalize") is False else np.asarray(unit(cut))
        return self._formats.apply(vectors, options)

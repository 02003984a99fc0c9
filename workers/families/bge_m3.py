"""
bge-m3: from one network a vector, a sparse vector or a matrix of a text.

The recipe is FlagEmbedding's, that of https://arxiv.org/abs/2402.03216; queries and documents are treated alike.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from infinity_pool.broker.messages import Array, Item
from infinity_pool.workers.files.content import HEADS
from infinity_pool.workers.interface import Batch, Claim, Family, Head, ModelFiles, Rows
from infinity_pool.workers.text.cutting import CUTS
from infinity_pool.workers.text.limits import limit_of
from infinity_pool.workers.text.matrices import cut
from infinity_pool.workers.text.modules import unit
from infinity_pool.workers.text.options import INPUT_TYPES, check_names, check_task, count_of, flag_of, input_type_of
from infinity_pool.workers.text.padding import mask_of, text_batch
from infinity_pool.workers.text.projection import Projection, read_linear, write_weights
from infinity_pool.workers.text.quantising import OPTION, NumberFormats
from infinity_pool.workers.text.sparse import heaviest, sparse_of_tokens
from infinity_pool.workers.text.tokenizer import Tokenizer

_OPTIONS = {
    "embed": ("dimensions", "normalize", OPTION, "input_type", *CUTS),
    "sparse": ("top_k", "input_type", *CUTS),
    "multivector": ("dimensions", OPTION, "input_type", *CUTS),
}
_UNWEIGHTED = ("cls_token_id", "eos_token_id", "pad_token_id", "unk_token_id")


def serves(files: ModelFiles) -> Claim:
    """Claim networks that have both of bge-m3's layers beside them."""
    return Claim.OWN if all((files.path / name).exists() for name in HEADS) else Claim.NONE


def describe(files: ModelFiles, folder: Path) -> dict[str, Any]:
    """Write the tokenizer and the two layers to `folder`, and give the tokens that have no weight."""
    from transformers import AutoTokenizer

    from infinity_pool.workers.text.reading import read_text_model

    facts = read_text_model(files, folder, BgeM3.auto_class)
    sparse, colbert = (read_linear(files.path / name) for name in HEADS)
    write_weights(folder, {"sparse": sparse, "colbert": colbert})
    options = {"trust_remote_code": files.trust_remote_code, "local_files_only": True}
    tokenizer = AutoTokenizer.from_pretrained(files.network, **options)
    found = {getattr(tokenizer, name) for name in _UNWEIGHTED}
    return facts | {
        "unweighted": sorted(found - {None}),
        "vocabulary": len(tokenizer),
        "width": len(colbert["weight"]),
    }


def make(files: ModelFiles) -> Family:
    """Make the family of a described model."""
    return BgeM3(files)


class BgeM3(Family):
    """Texts in; a head's task says what of them comes out, and is marked in its batch."""

    tasks: tuple[str, ...] = ("embed", "sparse", "multivector")
    prompts: tuple[str, ...] = INPUT_TYPES
    auto_class = "AutoModel"

    def __init__(self, files: ModelFiles) -> None:
        facts = files.extra
        self.max_length = limit_of(files, facts["max_length"])
        self.inputs: tuple[str, ...] = tuple(facts["inputs"])
        self.dimensions: int = facts["hidden_size"]
        self._most = {"embed": self.dimensions, "multivector": facts["width"], "sparse": facts["vocabulary"]}
        self._tokenizer = Tokenizer(files, self.max_length, vocabulary=facts["vocab_size"])
        self.max_chars = self._tokenizer.max_chars
        self._formats = {
            "embed": NumberFormats(files, self.dimensions),
            "multivector": NumberFormats(files, facts["width"], steps=False),
        }
        self._unweighted = np.array(facts["unweighted"], np.int64)
        self._projection = Projection(files.described)

    def head(self, task: str, options: dict[str, Any]) -> Head:
        """Check `dimensions`, `normalize`, `top_k` and `input_type`, where the task has it, and where texts are cut."""
        check_task(task, self.tasks)
        check_names(options, _OPTIONS[task])
        for name in ("dimensions", "top_k"):
            count_of(options, name, self._most[task])
        normalize = flag_of(options, "normalize")
        input_type_of(options)
        self._tokenizer.cut(options)
        if task in self._formats:
            self._formats[task].check(options, *(["normalize"] if normalize is False else []))
        return Head(task)

    def prepare(self, head: Head, items: Sequence[Item], options: dict[str, Any]) -> Rows:
        """Tokenize."""
        tokens = self._tokenizer.encode(items, cut=self._tokenizer.cut(options))
        tokens.refuse_empty()
        mark = {head.task: np.ones(len(items), np.bool_)}
        return Rows(tokens.lengths, {"input_ids": tokens.ids}, mark, tokens.truncated)

    def collate(self, rows: Sequence[Rows]) -> Batch:
        """Pad to the longest, on the right; under the task's name is what counts of each text."""
        mask = mask_of(rows)
        batch = text_batch(rows, mask, self.inputs, self._tokenizer.pad_id)
        if "sparse" in rows[0].fixed:
            batch["sparse"] = mask & np.isin(batch["input_ids"], self._unweighted, invert=True)
        if "multivector" in rows[0].fixed:
            batch["multivector"] = mask[:, 1:]
        return batch

    def reduce(self, output: Any, batch: Any) -> Any:
        """Give weights [n, length], vectors of tokens [n, length - 1, width], or the first token's [n, hidden]."""
        if "sparse" in batch:
            return self._projection.linear(output, "sparse")[..., 0].clip(0) * batch["sparse"]
        if "multivector" in batch:
            return unit(self._projection.linear(output[:, 1:], "colbert")) * batch["multivector"][..., None]
        return output[:, 0]

    def split(self, outputs: Array, batch: Batch) -> Array | list[Any]:
        """Give each item its vector, its [indices, values], or its matrix."""
        if "sparse" in batch:
            return [sparse_of_tokens(ids, row) for ids, row in zip(batch["input_ids"], outputs, strict=True)]
        if "multivector" in batch:
            return [matrix[kept] for matrix, kept in zip(outputs, batch["multivector"], strict=True)]
        return outputs

    def finish(self, head: Head, outputs: Any, options: dict[str, Any]) -> Array | list[Any]:
        """Cut to `dimensions`, make of length 1 unless `normalize` is false, quantise; keep the `top_k` heaviest."""
        if head.task == "sparse":
            return [heaviest(vector, options.get("top_k")) for vector in outputs]
        if head.task == "multivector":
            matrices = (cut(matrix, options.get("dimensions")) for matrix in outputs)
            return [self._formats["multivector"].apply(matrix, options) for matrix in matrices]
        vectors: Array = outputs[:, : options.get("dimensions") or self.dimensions]
        vectors = vectors if options.get("normalize") is False else np.asarray(unit(vectors))
        return self._formats["embed"].apply(vectors, options)

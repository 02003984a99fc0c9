"""
How ColBERT's queries and documents become tokens: markers, query expansion, and the words that are skipped.

The rules are PyLate's, for its own folders and for those of the Stanford implementation (architecture HF_ColBERT), so
that vectors fit an index made with it. The method is that of https://arxiv.org/abs/2112.01488 (ColBERTv2).
"""

import json
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array, Item
from infinity_pool.workers.files.locate import read_object
from infinity_pool.workers.interface import ModelFiles, Rows
from infinity_pool.workers.text.cutting import Cut, cut_of
from infinity_pool.workers.text.options import Options
from infinity_pool.workers.text.tokenizer import Tokenizer

Facts = dict[str, Any]

STANFORD = "HF_ColBERT"
_QUERY_LENGTH, _DOCUMENT_LENGTH = 32, 180  # tokens, where the files say nothing


def read_sides(files: ModelFiles, vocabulary: int) -> dict[str, Facts]:
    """
    Read what the two sides' tokens are, in plain values.

    Raises InvalidInput if a marker is no token among those that the network knows, `vocabulary` of them.
    """
    settings = _pylate(files.path) if (files.path / "modules.json").exists() else _stanford(files.path)
    tokenizer = _tokenizer(files)
    words = settings["skiplist_words"]
    common: Facts = {"marker": None, "skipped": [], "expanded": False, "attended": False, "filler": 0}
    document = {
        "length": settings["document_length"],
        "marker": _marker(tokenizer, settings["document_prefix"], vocabulary),
        "skipped": sorted({tokenizer.convert_tokens_to_ids(word) for word in words} - {None}),
    }
    query = {
        "length": settings["query_length"],
        "marker": _marker(tokenizer, settings["query_prefix"], vocabulary),
        "expanded": settings["do_query_expansion"],
        "attended": settings["attend_to_expansion_tokens"],
        "filler": _filler(tokenizer),
    }
    return {"query": common | query, "document": common | document}


def _pylate(path: Path) -> Facts:
    usual = {
        "query_prefix": "[Q] ",
        "document_prefix": "[D] ",
        "query_length": _QUERY_LENGTH,
        "document_length": _DOCUMENT_LENGTH,
        "do_query_expansion": True,
        "attend_to_expansion_tokens": False,
        "skiplist_words": list(string.punctuation),
    }
    own = read_object(path / "config_sentence_transformers.json")
    return usual | {name: own[name] for name in usual if own.get(name) is not None}


def _stanford(path: Path) -> Facts:
    own = read_object(path / "artifact.metadata")
    return {
        "query_prefix": own.get("query_token_id") or "[unused0]",
        "document_prefix": own.get("doc_token_id") or "[unused1]",
        "query_length": own.get("query_maxlen") or _QUERY_LENGTH,
        "document_length": own.get("doc_maxlen") or _DOCUMENT_LENGTH,
        "do_query_expansion": True,
        "attend_to_expansion_tokens": bool(own.get("attend_to_mask_tokens")),
        "skiplist_words": list(string.punctuation) if own.get("mask_punctuation", True) else [],
    }


def _tokenizer(files: ModelFiles) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(
        files.network, trust_remote_code=files.trust_remote_code, local_files_only=True
    )


def _marker(tokenizer: Any, prefix: str, vocabulary: int) -> int | None:
    """Give a marker's token; an empty one is none, and one that was never trained would make vectors of noise."""
    if not prefix:
        return None
    found = tokenizer.convert_tokens_to_ids(prefix)
    if found is None or found == tokenizer.unk_token_id or found >= vocabulary:
        raise InvalidInput(f"the marker {json.dumps(prefix)} is no token of this model", param="model")
    return int(found)


def _filler(tokenizer: Any) -> int:
    for found in (tokenizer.mask_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id):
        if found is not None:
            return int(found)
    raise InvalidInput("the tokenizer has no token to expand queries with", param="model")


def sees_nothing(query: Facts, window: int | None) -> bool:
    """
    Whether tokens of an expansion may be too far, for local attention in a `window`, from any that is attended to.

    What comes of them then depends on how attention is computed; the reference's way is torch's.
    """
    unattended = query["expanded"] and not query["attended"]
    return bool(unattended and window and query["length"] > window // 2)


class Side:
    """Turns the texts of one side, queries or documents, into tokens; `limit` is the most that there may be."""

    def __init__(self, files: ModelFiles, facts: Facts, limit: int) -> None:
        self.length = limit
        self._facts = facts
        self._skipped = np.array(facts["skipped"], np.int64)
        self._prompt: str = facts.get("prompt", "")
        self._floor: int = facts.get("floor", limit)
        self._marks = 0 if facts["marker"] is None else 1
        self._tokenizer = Tokenizer(files, limit - self._marks)
        self.max_chars = self._tokenizer.max_chars
        self.pad_id = self._tokenizer.pad_id

    def cut(self, options: Options) -> Cut:
        """Give where texts are cut before they are marked and filled up; raises InvalidInput, naming the option."""
        usual = Cut(self.length, self._tokenizer.usual.left)
        whole = cut_of(options, usual, self._tokenizer.added + self._marks)
        return Cut(whole.length - self._marks, whole.left)

    def prepare(self, texts: Sequence[Item], cut: Cut) -> Rows:
        """
        Give `input_ids`, whether each is `kept` in the answer, and how many the others `attended` see.

        Raises InvalidInput, naming the item.
        """
        tokens = self._tokenizer.encode(texts, self._prompt, cut)
        tokens.refuse_empty()
        ids, lengths = self._marked(tokens.ids, tokens.lengths)
        attended = lengths
        if self._facts["expanded"]:
            full = np.maximum(lengths, self._floor)
            ids, lengths = self._expanded(ids, lengths, full), full
            attended = lengths if self._facts["attended"] else attended
        kept = np.isin(ids, self._skipped, invert=True)
        return Rows(lengths, {"input_ids": ids, "kept": kept}, {"attended": attended}, tokens.truncated)

    def _marked(self, ids: Array, lengths: Array) -> tuple[Array, Array]:
        """Put the marker after the first token of each text."""
        if self._facts["marker"] is None:
            return ids, lengths
        starts = np.cumsum(lengths) - lengths
        return np.insert(ids, starts + 1, self._facts["marker"]), lengths + 1

    def _expanded(self, ids: Array, lengths: Array, full: Array) -> Array:
        """Fill each text up to its full length."""
        places = np.arange(full.max(initial=0))
        rows = np.full((len(lengths), len(places)), self._facts["filler"], np.int32)
        rows[places < lengths[:, None]] = ids
        return np.asarray(rows[places < full[:, None]])

"""Texts to tokens one can read, and token ids to texts: what a tokenizer knows besides the ids that a network takes."""

from typing import Any, Protocol

import numpy as np

from infinity_pool.broker.answers import Spelled
from infinity_pool.workers.interface import ModelFiles
from infinity_pool.workers.text.saved_tokenizer import load, read_backend


class Vocabulary(Protocol):
    """A tokenizer, seen from both ends."""

    size: int
    """Token ids are below it."""

    def spell(self, text: str, special: bool) -> Spelled:
        """Give all tokens of a text, with or without special tokens around it."""
        ...

    def text_of(self, ids: list[int], skip_special: bool) -> str:
        """Give the text of token ids."""
        ...


def read_vocabulary(files: ModelFiles, facts: dict[str, Any]) -> Vocabulary:
    """Read the tokenizer whose `facts` were written down beside it."""
    return _Fast(files, facts) if facts["fast"] else _Slow(files, facts)


class _Fast:
    def __init__(self, files: ModelFiles, facts: dict[str, Any]) -> None:
        self._backend = read_backend(files.described, facts)
        self._backend.no_truncation()
        self.size: int = self._backend.get_vocab_size(with_added_tokens=True)

    def spell(self, text: str, special: bool) -> Spelled:
        found = self._backend.encode(text, add_special_tokens=special)
        offsets = np.array(found.offsets, np.int32).reshape(-1, 2)
        tokens = [self._backend.id_to_token(number) for number in found.ids]  # found.tokens has texts for unknown ones
        return Spelled(np.array(found.ids, np.int32), np.array(found.special_tokens_mask, np.bool_), offsets, tokens)

    def text_of(self, ids: list[int], skip_special: bool) -> str:
        return str(self._backend.decode(ids, skip_special_tokens=skip_special))


class _Slow:
    """One that only transformers can run, and that cannot tell where in the text its tokens are."""

    def __init__(self, files: ModelFiles, facts: dict[str, Any]) -> None:
        self._loaded = load(files, facts["options"])
        self.size = len(self._loaded)

    def spell(self, text: str, special: bool) -> Spelled:
        ids = self._loaded(text, add_special_tokens=special, truncation=False, verbose=False)["input_ids"]
        mask = self._loaded.get_special_tokens_mask(ids, already_has_special_tokens=True) if special else [0] * len(ids)
        offsets = np.zeros((0, 2), np.int32)
        tokens = self._loaded.convert_ids_to_tokens(ids)
        return Spelled(np.array(ids, np.int32), np.array(mask, np.bool_), offsets, tokens)

    def text_of(self, ids: list[int], skip_special: bool) -> str:
        return str(self._loaded.decode(ids, skip_special_tokens=skip_special))

"""
Single texts and pairs of texts to token ids and token types, as transformers does it.

A pair is a query and a document. Texts are tokenized alone, a query once for all its documents, and put between the
special tokens that transformers puts there; `save_frames` learns these once. Where a pair is too long its document is
cut, as by `truncation="only_second"`, and never its query. sentence-transformers takes from the longer of the two
(`longest_first`): the same, unless the query alone has over half of the tokens.
"""

import json
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array, Item
from infinity_pool.workers.interface import ModelFiles
from infinity_pool.workers.text.cutting import Cut, cut_of
from infinity_pool.workers.text.options import Options
from infinity_pool.workers.text.saved_tokenizer import load, saved_options
from infinity_pool.workers.text.token_ids import cut_ids
from infinity_pool.workers.text.tokenizer import Tokenizer

_FRAMES = "frames.json"

_Token = tuple[int, int, int | None]  # its id, its type, and which text it is of; None: a special token


class PairTokens(NamedTuple):
    """
    Tokens of several items, one after another.

    `ids` and `types` are int32 [sum(lengths)], `lengths` int32 [n], and `truncated` bool [n].
    """

    ids: Array
    types: Array
    lengths: Array
    truncated: Array


class _Text(NamedTuple):
    ids: Array
    truncated: bool


class _Row(NamedTuple):
    ids: Array
    types: Array
    truncated: bool


class Frame:
    """The special tokens around one text or two, and the token types of all, learnt from an example's `tokens`."""

    def __init__(self, tokens: Iterable[_Token]) -> None:
        around: list[list[_Token]] = [[]]  # the special tokens before the first text, between, after
        self._text_types: list[int] = []
        for token in tokens:
            if token[2] is None:
                around[-1].append(token)
            elif token[2] == len(self._text_types):
                self._text_types.append(token[1])
                around.append([])
        self.added = sum(map(len, around))
        self._ids = [np.array([token[0] for token in some], np.int32) for some in around]
        self._types = [np.array([token[1] for token in some], np.int32) for some in around]

    def around(self, texts: Sequence[Array], truncated: bool) -> _Row:
        """Put the texts' token ids in."""
        ids, types = [self._ids[0]], [self._types[0]]
        for place, text in enumerate(texts):
            ids += (text, self._ids[place + 1])
            types += (np.full(len(text), self._text_types[place], np.int32), self._types[place + 1])
        return _Row(np.concatenate(ids), np.concatenate(types), truncated)


class PairTokenizer:
    """
    A tokenizer of texts and pairs that cuts at `max_length` tokens, special tokens included.

    `sides` is what the two texts of a pair are called where one is refused.
    """

    def __init__(self, files: ModelFiles, max_length: int, sides: tuple[str, str] = ("query", "document")) -> None:
        frames = json.loads((files.described / _FRAMES).read_text())
        self._single, self._pair = Frame(frames["single"]), Frame(frames["pair"])
        if max_length <= self._pair.added + 1:
            least = self._pair.added + 1
            raise InvalidInput(f"max_length must be over {least}, special tokens and a query", param="max_length")
        self.max_length = max_length
        self._sides = sides
        self._tokenizer = Tokenizer(files, max_length, special=False)
        self.pad_id = self._tokenizer.pad_id
        self.max_chars = self._tokenizer.max_chars

    def cut(self, options: Options) -> Cut:
        """Give where a request wants its texts and documents cut; raises InvalidInput, naming the option."""
        return cut_of(options, self._tokenizer.usual, self._single.added)

    def encode(self, items: Sequence[Item], cut: Cut | None = None) -> PairTokens:
        """
        Tokenize items, each a text or [query, document].

        Raises InvalidInput, naming the item, if one is neither, has no tokens, or has a query that leaves no room for
        its document; `param` is "query" then.
        """
        cut = cut or self._tokenizer.usual
        split = [_texts_of(item, index) for index, item in enumerate(items)]
        firsts = list(dict.fromkeys(texts[0] for texts in split))  # a query once, however many documents it has
        tokens = self._tokens([*firsts, *(texts[1] for texts in split if len(texts) == 2)], split, cut.left)
        known = dict(zip(firsts, tokens, strict=False))
        seconds = iter(tokens[len(firsts) :])
        rows = [
            self._row(index, [known[texts[0]], *islice(seconds, len(texts) - 1)], cut)
            for index, texts in enumerate(split)
        ]
        return PairTokens(
            np.concatenate([row.ids for row in rows]),
            np.concatenate([row.types for row in rows]),
            np.fromiter((len(row.ids) for row in rows), np.int32, len(rows)),
            np.fromiter((row.truncated for row in rows), np.bool_, len(rows)),
        )

    def _tokens(self, texts: list[str], split: list[list[str]], left: bool) -> list[_Text]:
        """Tokenize up to the model's own limit: what a request leaves of a document depends on its query."""
        try:
            tokens = self._tokenizer.encode(texts, cut=Cut(self.max_length, left))
        except InvalidInput as error:
            raise self._first_wrong(split) or error from error
        rows = np.split(tokens.ids, np.cumsum(tokens.lengths[:-1]))
        return [_Text(ids, bool(cut)) for ids, cut in zip(rows, tokens.truncated, strict=True)]

    def _first_wrong(self, split: list[list[str]]) -> InvalidInput | None:
        """Find the first item that cannot be tokenized."""
        for index, texts in enumerate(split):
            try:
                self._tokenizer.encode(texts)
            except InvalidInput as error:
                return InvalidInput(error.message, item=index)
        return None

    def _row(self, index: int, texts: list[_Text], cut: Cut) -> _Row:
        """Put an item's texts between special tokens, the last one cut to the room that there is."""
        frame = self._pair if len(texts) == 2 else self._single
        *query, last = texts
        room = cut.length - frame.added - sum(len(text.ids) for text in query)
        if room < min(1, len(last.ids)):
            first, second = self._sides
            raise InvalidInput(
                f"the {first} is of {'over ' if query[0].truncated else ''}{len(query[0].ids)} tokens, and leaves no "
                f"room for a {second} in the {cut.length}{'' if cut.length < self.max_length else ' of the model'}",
                param=first if first == "query" else None,
                item=index,
            )
        if not frame.added and not any(len(text.ids) for text in texts):
            raise InvalidInput("has no tokens", item=index)
        kept = cut_ids(last.ids, Cut(room, cut.left))
        truncated = last.truncated or len(kept) < len(last.ids)
        return frame.around([*(text.ids for text in query), kept], truncated)


def _texts_of(item: Item, index: int) -> list[str]:
    if isinstance(item, str):
        return [item]
    if isinstance(item, list | tuple) and len(item) == 2 and all(isinstance(text, str) for text in item):
        return list(item)
    raise InvalidInput("must be a text, or a pair of two texts", item=index)


def save_frames(files: ModelFiles, folder: Path) -> None:
    """
    Write down what special tokens a tokenizer puts around texts, in the folder in which it was saved.

    Runs once, with transformers.
    """
    tokenizer = load(files, saved_options(folder))
    learn = _fast_frame if tokenizer.is_fast else _slow_frame
    frames = {"single": learn(tokenizer, ["a"]), "pair": learn(tokenizer, ["a", "b"])}
    (folder / _FRAMES).write_text(json.dumps(frames))


def _fast_frame(tokenizer: Any, texts: list[str]) -> list[_Token]:
    encoding = tokenizer.backend_tokenizer.encode(*texts)
    return list(zip(encoding.ids, encoding.type_ids, encoding.sequence_ids, strict=True))


def _slow_frame(tokenizer: Any, texts: list[str]) -> list[_Token]:
    """Let it put its special tokens around numbers that no token has."""
    numbers = [[-1 - place] for place in range(len(texts))]
    ids = tokenizer.build_inputs_with_special_tokens(*numbers)
    types = tokenizer.create_token_type_ids_from_sequences(*numbers)
    return [(token, kind, -1 - token if token < 0 else None) for token, kind in zip(ids, types, strict=True)]

"""
Texts to token ids, exactly as transformers does it, without transformers.

What transformers made of a tokenizer, once (see `saved_tokenizer`), is read with the `tokenizers` library alone,
which takes 30 ms where transformers takes a second and 200 MB.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, Protocol

import numpy as np

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array, Item
from infinity_pool.workers.interface import ModelFiles
from infinity_pool.workers.text.cutting import Cut, cut_of
from infinity_pool.workers.text.limits import limit_of
from infinity_pool.workers.text.options import Options
from infinity_pool.workers.text.saved_tokenizer import load, read_backend, saved_facts
from infinity_pool.workers.text.token_ids import cut_ids, ids_of, is_ids

CHARS_FIRST = 16
"""Characters for each token of the limit that are read first: prose has 4 or 5, Chinese has 1 or 2."""
CHARS_AT_MOST = 1024
"""Characters for each token of the limit that are read at all; only a run of spaces or one endless word has more."""

_LONG_ENOUGH = 2**20  # characters, a second's work of a preprocessing process
_LEAST = 64  # characters for each token of a limit that is so high that this is more
_PERIOD = 16  # characters at most that a text repeats where its tokens depend on how often it does


class Tokens(NamedTuple):
    """
    Token ids of several texts, one after another.

    `ids` is int32 [sum(lengths)], `lengths` int32 [n], and `truncated` bool [n].
    """

    ids: Array
    lengths: Array
    truncated: Array

    def refuse_empty(self) -> None:
        """Raise InvalidInput, with its place, if a text has no tokens."""
        if not self.lengths.all():
            raise InvalidInput("has no tokens", item=int(self.lengths.argmin()))


class _Encoding(Protocol):
    @property
    def ids(self) -> list[int]: ...
    @property
    def overflowing(self) -> list[Any]: ...


_Encode = Callable[[list[str], Cut], Sequence[_Encoding]]


class Tokenizer:
    """
    A tokenizer that cuts at `max_length` tokens, special tokens included, or before them where a request says so.

    Its cost is bounded by the limit, not by the text: CHARS_FIRST characters a token are read first. If these fill the
    limit twice, what follows cannot change the tokens that are kept, since a word or a merge that was cut in two
    reaches back over far less than a whole limit, unless it is one endless run: of an odd number of characters that
    go in pairs one is left over, and it may be at the far end. Of runs, and of what does not fill the limit, up to
    `most_chars` are read.
    Without `special`, no special tokens are added. Of a `vocabulary` that is known, token ids are taken too.
    """

    def __init__(self, files: ModelFiles, max_length: int, special: bool = True, vocabulary: int | None = None) -> None:
        facts = saved_facts(files.described)
        self.added: int = facts["added"] if special else 0
        if max_length <= self.added:
            raise InvalidInput(f"max_length must be over {self.added}, the special tokens", param="max_length")
        self.max_length = max_length
        self.pad_id: int = facts["pad_id"]
        self.special_ids = frozenset(facts["special_ids"])
        self.usual = Cut(max_length, facts["truncation_side"] == "left")
        self._first, self._most = max_length * CHARS_FIRST, most_chars(max_length)
        self.max_chars = 0 if self.usual.left else self._most
        self._vocabulary = vocabulary
        self._encode = (_fast if facts["fast"] else _slow)(files, facts, special)

    def cut(self, options: Options) -> Cut:
        """Give where a request wants its texts cut; raises InvalidInput, naming the option."""
        return cut_of(options, self.usual, self.added) if options else self.usual

    def encode(self, items: Sequence[Item], prefix: str = "", cut: Cut | None = None) -> Tokens:
        """Tokenize, each text with `prefix` in front; raises InvalidInput, with its place, if an item is no text."""
        cut = cut or self.usual
        if not all(isinstance(item, str) for item in items):
            return self._encode_mixed(items, prefix, cut)
        texts = [prefix + item for item in items] if prefix else items
        encodings = self._encodings(texts, cut)
        rows = [encoding.ids for encoding in encodings]
        lengths = np.fromiter(map(len, rows), np.int32, len(rows))
        ids = np.fromiter(chain.from_iterable(rows), np.int32, int(lengths.sum()))
        truncated = np.fromiter((len(text) >= self._most for text in texts), np.bool_, len(rows))
        for index in np.flatnonzero(lengths >= cut.length).tolist():  # as long as the limit, or cut to it?
            truncated[index] = bool(encodings[index].overflowing)
        return Tokens(ids, lengths, truncated)

    def _encode_mixed(self, items: Sequence[Item], prefix: str, cut: Cut) -> Tokens:
        """Take token ids as they are, beside texts; the first item that is wrong is named."""
        wrong: InvalidInput | None = None
        given: dict[int, Array] = {}
        places: list[int] = []
        for index, item in enumerate(items):
            try:
                if isinstance(item, str):
                    places.append(index)
                else:
                    given[index] = self._ids(item, index)
            except InvalidInput as error:
                wrong = error
                break
        tokens = self._encode_some(items, places, prefix, cut)
        if wrong:
            raise wrong
        texts = dict(zip(places, np.split(tokens.ids, np.cumsum(tokens.lengths[:-1])), strict=False))
        rows = [texts[index] if index in texts else cut_ids(given[index], cut) for index in range(len(items))]
        truncated = np.array([index in given and len(given[index]) > cut.length for index in range(len(items))])
        truncated[places] = tokens.truncated
        return Tokens(np.concatenate(rows), np.fromiter(map(len, rows), np.int32, len(rows)), truncated)

    def _encode_some(self, items: Sequence[Item], places: list[int], prefix: str, cut: Cut) -> Tokens:
        try:
            return self.encode([items[place] for place in places], prefix, cut)
        except InvalidInput as error:
            error.item = places[error.item] if error.item is not None else None
            raise

    def _ids(self, item: Item, index: int) -> Array:
        if self._vocabulary is None:
            raise not_text([item], index)
        if not is_ids(item):
            raise InvalidInput(f"must be a text or token ids, not {type(item).__name__}", item=index)
        return ids_of(item, index, self._vocabulary)

    def _encodings(self, texts: Sequence[str], cut: Cut) -> list[_Encoding]:
        try:
            firsts = [self._cut(text, self._first, cut) for text in texts]
            encodings = list(self._encode(firsts, cut))
            for index, text in enumerate(texts):
                if len(text) > self._first and not self._is_enough(firsts[index], encodings[index], cut):
                    encodings[index] = self._encode([self._cut(text, self._most, cut)], cut)[0]
        except TypeError as error:
            raise not_text(texts) from error
        return encodings

    def _is_enough(self, first: str, encoding: _Encoding, cut: Cut) -> bool:
        """Whether two whole limits are over, in pieces of the length that is kept, and the text was cut in no run."""
        over = len(encoding.overflowing) * (cut.length - self.added)
        half = len(first) // 2
        return over >= 2 * (self.max_length - self.added) and not _is_run(first[:half] if cut.left else first[half:])

    def _cut(self, text: str, chars: int, cut: Cut) -> str:
        if len(text) <= chars:
            return text
        return text[-chars:] if cut.left else text[:chars]


def most_chars(max_length: int) -> int:
    """Give how many characters of a text are read at all, however it is tokenized."""
    return min(CHARS_AT_MOST * max_length, max(_LONG_ENOUGH, _LEAST * max_length))


def _is_run(text: str) -> bool:
    """Whether a text is a few characters over and over."""
    return any(text[period:] == text[:-period] for period in range(1, _PERIOD + 1))


def max_length_of(files: ModelFiles) -> int:
    """Apply the user's own limit, which may be over the model's but not over what the network can run."""
    return limit_of(files, int(files.extra["max_length"]))


def not_text(texts: Sequence[Any], first: int = 0) -> InvalidInput:
    """Say which of some items, counted from `first`, cannot be tokenized, and why."""
    for index, text in enumerate(texts, first):
        if not isinstance(text, str):
            return InvalidInput(f"must be a text, not {type(text).__name__}", item=index)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            return InvalidInput(f"has half of a surrogate pair at character {error.start}", item=index)
    return InvalidInput("an item cannot be tokenized")


def _fast(files: ModelFiles, facts: dict[str, Any], special: bool) -> _Encode:
    backend = read_backend(files.described, facts)
    encode_batch = partial(backend.encode_batch_fast, add_special_tokens=special)
    current: Cut | None = None

    def encode(texts: list[str], cut: Cut) -> Sequence[_Encoding]:
        nonlocal current
        if cut != current:
            backend.enable_truncation(cut.length, direction="left" if cut.left else "right")
            current = cut
        encodings: Sequence[_Encoding] = encode_batch(texts)
        return encodings

    return encode


class _Shortened(NamedTuple):
    ids: list[int]
    overflowing: list[Any]


def _slow(files: ModelFiles, facts: dict[str, Any], special: bool) -> _Encode:
    """Use a tokenizer that only transformers can run."""
    loaded = load(files, facts["options"])
    tokenizer = partial(loaded, add_special_tokens=special)

    def encode(texts: list[str], cut: Cut) -> Sequence[_Encoding]:
        loaded.truncation_side = "left" if cut.left else "right"
        whole = tokenizer(texts, truncation=False, verbose=False)["input_ids"]
        kept = tokenizer(texts, truncation=True, max_length=cut.length)["input_ids"]
        return [
            _Shortened(some, [None] * ((len(ids) - len(some)) // len(some) + 1) if some != ids else [])
            for some, ids in zip(kept, whole, strict=True)
        ]

    return encode

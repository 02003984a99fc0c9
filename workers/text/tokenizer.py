"""
Texts to token ids, exactly as transformers does it, without transformers.

`save` lets transformers make a model's tokenizer once and writes down its fast backend; `Tokenizer` reads that with the
`tokenizers` library alone, which takes 30 ms where transformers takes a second and 200 MB.
"""

import json
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array, Item
from infinity_pool.workers.interface import ModelFiles
from infinity_pool.workers.text.cutting import Cut, cut_of
from infinity_pool.workers.text.limits import limit_of
from infinity_pool.workers.text.options import Options
from infinity_pool.workers.text.token_ids import cut_ids, ids_of, is_ids

_BACKEND = "tokenizer.json"
_FACTS = "tokenizer_facts.json"

CHARS_FIRST = 16
"""Characters for each token of the limit that are read first: prose has 4 or 5, Chinese has 1 or 2."""
CHARS_AT_MOST = 1024
"""Characters for each token of the limit that are read at all; only a run of spaces or one endless word has more."""


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
    reaches back over far less than a whole limit; else up to CHARS_AT_MOST characters a token are read.
    Without `special`, no special tokens are added. Of a `vocabulary` that is known, token ids are taken too.
    """

    def __init__(self, files: ModelFiles, max_length: int, special: bool = True, vocabulary: int | None = None) -> None:
        facts = json.loads((files.described / _FACTS).read_text())
        self.added: int = facts["added"] if special else 0
        if max_length <= self.added:
            raise InvalidInput(f"max_length must be over {self.added}, the special tokens", param="max_length")
        self.max_length = max_length
        self.pad_id: int = facts["pad_id"]
        self.special_ids = frozenset(facts["special_ids"])
        self.usual = Cut(max_length, facts["truncation_side"] == "left")
        self._first, self._most = max_length * CHARS_FIRST, max_length * CHARS_AT_MOST
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
            raise _not_text([item], index)
        if not is_ids(item):
            raise InvalidInput(f"must be a text or token ids, not {type(item).__name__}", item=index)
        return ids_of(item, index, self._vocabulary)

    def _encodings(self, texts: Sequence[str], cut: Cut) -> list[_Encoding]:
        try:
            encodings = list(self._encode([self._cut(text, self._first, cut) for text in texts], cut))
            for index, text in enumerate(texts):
                if len(text) > self._first and not self._is_full(encodings[index], cut):
                    encodings[index] = self._encode([self._cut(text, self._most, cut)], cut)[0]
        except TypeError as error:
            raise _not_text(texts) from error
        return encodings

    def _is_full(self, encoding: _Encoding, cut: Cut) -> bool:
        """Whether two whole limits are over, in pieces of the length that is kept."""
        return len(encoding.overflowing) * (cut.length - self.added) >= 2 * (self.max_length - self.added)

    def _cut(self, text: str, chars: int, cut: Cut) -> str:
        if len(text) <= chars:
            return text
        return text[-chars:] if cut.left else text[:chars]


def max_length_of(files: ModelFiles) -> int:
    """Apply the user's own limit, which may be over the model's but not over what the network can run."""
    return limit_of(files, int(files.extra["max_length"]))


def _not_text(texts: Sequence[Any], first: int = 0) -> InvalidInput:
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


def read_backend(folder: Path, facts: dict[str, Any]) -> Any:
    """Give the `tokenizers` library's tokenizer that `save` wrote to a folder, which pads nothing."""
    from tokenizers import Tokenizer as Backend

    backend = Backend.from_file(str(folder / _BACKEND))
    backend.encode_special_tokens = facts["split_special_tokens"]
    backend.no_padding()
    return backend


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


def save(files: ModelFiles, folder: Path, options: dict[str, Any], lower_case: bool) -> Any:
    """
    Let transformers make a model's tokenizer with `options`, write it to `folder`, and give it.

    Raises InvalidInput if the model has no tokenizer, or one whose token types are not all 0.
    """
    tokenizer = load(files, options)
    if tokenizer.is_fast:
        if tokenizer.vocab_size <= len(tokenizer.all_special_ids):  # made of nothing, since there are no files
            raise InvalidInput(
                f"no tokenizer for {files.spec!r}: there is no tokenizer.json or vocabulary", param="model"
            )
        if lower_case:
            _lower_case(tokenizer.backend_tokenizer)
        (folder / _BACKEND).write_text(tokenizer.backend_tokenizer.to_str(), encoding="utf-8")
    if any(tokenizer("a text", return_token_type_ids=True)["token_type_ids"]):
        raise InvalidInput(f"the tokenizer of {files.spec!r} gives token types other than 0", param="model")
    facts = {
        "fast": tokenizer.is_fast,
        "options": options,
        "pad_id": tokenizer.pad_token_id or 0,
        "special_ids": sorted(set(tokenizer.all_special_ids)),
        "split_special_tokens": tokenizer.split_special_tokens,
        "truncation_side": tokenizer.truncation_side,
        "added": tokenizer.num_special_tokens_to_add(),
    }
    (folder / _FACTS).write_text(json.dumps(facts))
    return tokenizer


def save_backend(file: Path, folder: Path) -> int | None:
    """
    Write a tokenizer that is a file of the `tokenizers` library to `folder`; give its own limit in tokens, if any.

    Raises InvalidInput if there is no such file, or it cannot be read.
    """
    from tokenizers import Tokenizer as Backend

    try:
        backend = Backend.from_file(str(file))
    except Exception as error:  # its own class is Exception itself
        raise InvalidInput(f"no tokenizer in {file}: {error}", param="model") from error
    (folder / _BACKEND).write_text(backend.to_str(), encoding="utf-8")
    truncation = backend.truncation or {}
    facts = {
        "fast": True,
        "options": {},
        "pad_id": 0,
        "special_ids": [number for number, token in backend.get_added_tokens_decoder().items() if token.special],
        "split_special_tokens": False,
        "truncation_side": truncation.get("direction", "right"),
        "added": 0,
    }
    (folder / _FACTS).write_text(json.dumps(facts))
    return truncation.get("max_length")


def saved_options(folder: Path) -> dict[str, Any]:
    """Give the options that a tokenizer was made with which `save` wrote to a folder."""
    return dict(saved_facts(folder)["options"])


def saved_facts(folder: Path) -> dict[str, Any]:
    """Give what was written down of a tokenizer; nothing where there is none."""
    file = folder / _FACTS
    return dict(json.loads(file.read_text())) if file.exists() else {}


def load(files: ModelFiles, options: dict[str, Any]) -> Any:
    """Let transformers make a model's tokenizer; raises InvalidInput if it cannot."""
    from transformers import AutoTokenizer

    common = {"trust_remote_code": files.trust_remote_code, "local_files_only": True}
    try:
        return AutoTokenizer.from_pretrained(files.network, **common, **options)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"no tokenizer for {files.spec!r}: {error}", param="model") from error


def _lower_case(backend: Any) -> None:
    from tokenizers import normalizers

    before: Any = backend.normalizer
    steps = list(iter(before)) if isinstance(before, normalizers.Sequence) else [before] if before else []
    if not any(isinstance(step, normalizers.Lowercase) for step in steps):
        backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *steps])

"""The tokens of pairs are transformers' own."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.interface import ModelFiles
from infinity_pool.workers.text import saved_tokenizer
from infinity_pool.workers.text.pairs import PairTokenizer, save_frames
from tests.tiny_models import ARCHITECTURES, POSITIONS, save_network, transformers

QUERY = "What is the capital of France?"
DOCUMENTS = [
    "Paris is the capital.",
    "",
    "the quick brown fox jumps over the lazy dog " * 40,
    "数千年 \0 ﬁne\u0301 👩‍👩‍👧",
    "x" * 5000,
    " two  spaces ",
]
ITEMS: list[Any] = [
    *([QUERY, document] for document in DOCUMENTS),
    *DOCUMENTS[:1],
    *DOCUMENTS[2:],
    ("another query", "with another document"),
    ["", "a document without a query"],
]


def made(kind: str, folder: Path, max_length: int, **options: Any) -> tuple[PairTokenizer, Any]:
    pairs = _saved(save_network(kind, folder, **options), max_length)
    return pairs, transformers.AutoTokenizer.from_pretrained(folder)


def _saved(folder: Path, max_length: int) -> PairTokenizer:
    files = ModelFiles(folder, {}, str(folder), built=folder)
    files.described.mkdir()
    saved_tokenizer.save(files, files.described, {}, lower_case=False)
    save_frames(files, files.described)
    return PairTokenizer(files, max_length)


@pytest.mark.parametrize("kind", ARCHITECTURES)
@pytest.mark.parametrize("side", ["right", "left"])
def test_ids_types_and_truncation(kind: str, side: str, tmp_path: Path) -> None:
    pairs, reference = made(kind, tmp_path, max_length=40, truncation_side=side)

    tokens = pairs.encode(ITEMS)

    ends = np.cumsum(tokens.lengths)
    for item, end, length, cut in zip(ITEMS, ends, tokens.lengths, tokens.truncated, strict=True):
        texts = [item] if isinstance(item, str) else item
        expected = _reference(reference, texts, truncation="only_second" if len(texts) == 2 else True, max_length=40)
        assert tokens.ids[end - length : end].tolist() == expected["input_ids"]
        assert tokens.types[end - length : end].tolist() == expected["token_type_ids"]
        assert cut == (len(_reference(reference, texts)["input_ids"]) > 40)


def _reference(reference: Any, texts: list[str], **options: Any) -> dict[str, list[int]]:
    batch = [texts] if len(texts) == 2 else texts  # a lone empty document would be taken for none
    found = reference(batch, return_token_type_ids=True, verbose=False, **options)
    return {name: values[0] for name, values in found.items()}


def test_a_query_is_never_cut(tmp_path: Path) -> None:
    pairs, reference = made("bert", tmp_path, max_length=20)
    words = "the " * 16  # with three special tokens, one is left

    kept = pairs.encode([[words, "cat fox"]])
    assert kept.ids.tolist() == reference(words, "cat")["input_ids"]
    assert kept.truncated.tolist() == [True]
    assert pairs.encode([[words + "the", ""]]).lengths.tolist() == [20]
    for query, told in ((words + "the", "the query is of 17 tokens"), (words * 9, "the query is of over 20 tokens")):
        with pytest.raises(InvalidInput, match=told) as caught:
            pairs.encode([["a", "cat"], [query, "cat"]])
        assert (caught.value.param, caught.value.item) == ("query", 1)


@pytest.mark.parametrize("bad", [7, None, ["one"], ["a", "b", "c"], ["a", 1], {"text": "a"}, b"bytes"])
def test_what_is_no_pair(bad: Any, tmp_path: Path) -> None:
    pairs, _ = made("bert", tmp_path, max_length=20)

    with pytest.raises(InvalidInput, match="a text, or a pair") as caught:
        pairs.encode(["a", bad])
    assert caught.value.item == 1


@pytest.mark.parametrize("bad", ["\ud83d", ["a", "\ud83d"], ["\ud83d", "a"]])
def test_half_a_surrogate_pair(bad: Any, tmp_path: Path) -> None:
    pairs, _ = made("bert", tmp_path, max_length=20)

    with pytest.raises(InvalidInput, match="surrogate") as caught:
        pairs.encode(["b", ["c", "d"], bad])
    assert caught.value.item == 2


def test_nothing_at_all(tmp_path: Path) -> None:
    pairs, _ = made("modernbert", tmp_path, max_length=20)
    assert pairs.encode(["", ["", ""]]).lengths.tolist() == [2, 3]


def test_a_limit_that_leaves_no_room(tmp_path: Path) -> None:
    pairs, _ = made("bert", tmp_path, max_length=POSITIONS)
    assert pairs.max_chars > 0
    with pytest.raises(InvalidInput, match="must be over 4"):
        PairTokenizer(ModelFiles(tmp_path, {}, "tiny", built=tmp_path), 4)


def test_a_tokenizer_that_only_transformers_runs(tmp_path: Path) -> None:
    slow = transformers.ByT5Tokenizer()
    slow.save_pretrained(tmp_path)
    transformers.T5Config().save_pretrained(tmp_path)
    pairs = _saved(tmp_path, 20)

    tokens = pairs.encode([["query", "document " * 5], "text"])

    assert not slow.is_fast
    expected = [slow([["query", "document " * 5]], truncation="only_second", max_length=20), slow(["text"])]
    assert tokens.ids.tolist() == [*expected[0]["input_ids"][0], *expected[1]["input_ids"][0]]
    assert tokens.truncated.tolist() == [True, False]

"""Token ids are transformers' own, at a cost that is bounded by the limit and not by the text."""

import json
import random
import string
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import tokenizers
import transformers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import models

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.interface import ModelFiles
from infinity_pool.workers.text import saved_tokenizer
from infinity_pool.workers.text.cutting import Cut
from infinity_pool.workers.text.tokenizer import CHARS_AT_MOST, Tokenizer, most_chars
from tests.tiny_models import save_network
from tests.workers.conftest import prepare_here

LIMIT = 24


class Both:
    """A tokenizer of ours, and transformers' own."""

    def __init__(self, folder: Path) -> None:
        self.ours = Tokenizer(prepare_here(folder).files, LIMIT)
        self.theirs: Any = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)

    def check(self, texts: list[str], side: str = "right") -> None:
        tokens = self.ours.encode(texts, cut=Cut(LIMIT, side == "left"))
        self.theirs.truncation_side = side
        expected = self.theirs(texts, truncation=True, max_length=LIMIT)["input_ids"]
        whole = self.theirs(texts, verbose=False)["input_ids"]

        assert tokens.ids.tolist() == [token for row in expected for token in row]
        assert tokens.lengths.tolist() == [len(row) for row in expected]
        assert tokens.truncated.tolist() == [len(row) > LIMIT for row in whole]


@pytest.fixture(scope="module", params=["bert", "gemma3", "roberta", "xlm_roberta", "qwen3"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    return Both(save_network(request.param, tmp_path_factory.mktemp(request.param)))


KNOWN = ["the quick brown fox ", " \n\t ", "aaaaaaaa", "数千年来", "<s>", "[MASK]", "<|im_end|>", "e\u0301", "\0"]
PIECES = st.one_of(st.text(), st.sampled_from(KNOWN))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.builds(lambda parts, times: "".join(parts) * times, st.lists(PIECES), st.integers(1, 300))))
def test_any_texts(both: Both, texts: list[str]) -> None:
    if texts:
        both.check(texts)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("piece", ["word ", " ", "x", "数", "\n", "a\u0301", "😀", "x" * 99 + " ", "3.14;"])
def test_texts_much_longer_than_the_limit(both: Both, piece: str, side: str) -> None:
    long = (piece * 20_000)[: LIMIT * CHARS_AT_MOST - 10]

    both.check([long, "short", long + "the end", " " * 2_000 + "the quick brown fox " * 20], side)
    both.check(["the end" + long, "the quick brown fox " * 20 + " " * 2_000], side)


def test_no_texts(both: Both) -> None:
    tokens = both.ours.encode([])

    assert (tokens.ids.size, tokens.lengths.size, tokens.truncated.size) == (0, 0, 0)


@pytest.mark.parametrize("piece", ["the quick brown fox ", " ", "x"])
def test_ten_megabytes_cost_little(both: Both, piece: str) -> None:
    text = piece * (10_000_000 // len(piece))
    both.ours.encode(["warm"])
    start = time.process_time()

    tokens = both.ours.encode([text])

    assert time.process_time() - start < 0.2
    assert tokens.truncated.tolist() == [True]


def test_keeping_the_end(tmp_path: Path) -> None:
    settings_file = save_network("bert", tmp_path) / "tokenizer_config.json"
    settings_file.write_text(json.dumps(json.loads(settings_file.read_text()) | {"truncation_side": "left"}))
    both = Both(tmp_path)

    assert both.theirs.truncation_side == "left"
    texts = ["the quick brown fox " * 1_000 + "a cat sits on the mat", "short", "", "fox" + " " * 20_000 + "cat"]
    both.check(texts, "left")
    assert both.ours.usual == Cut(LIMIT, True)
    assert both.ours.max_chars == 0


PAIRS = {
    "bpe": models.BPE({"a": 0, "b": 1, "aa": 2, "ab": 3}, [("a", "a"), ("a", "b")]),
    "unigram": models.Unigram([("?", 0.0), ("a", -3.0), ("b", -3.0), ("aa", -3.5), ("ab", -3.2)], 0),
}


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", PAIRS)
def test_runs_whose_characters_go_in_pairs(kind: str, side: str, tmp_path: Path) -> None:
    """Of an odd number one is left over, at the end in one kind of tokenizer and at the beginning in the other."""
    whole = tokenizers.Tokenizer(PAIRS[kind])
    whole.enable_truncation(LIMIT, direction=side)
    files = ModelFiles(tmp_path, {}, kind, built=tmp_path)
    files.described.mkdir()
    whole.save(str(tmp_path / "tokenizer.json"))
    saved_tokenizer.save_backend(tmp_path / "tokenizer.json", files.described)
    ours = Tokenizer(files, LIMIT)
    texts = [(piece * 999)[:length] for piece in ("a", "ab", "aab", "abaab") for length in range(900, 911)]

    tokens = ours.encode(texts)

    assert tokens.ids.tolist() == [number for text in texts for number in whole.encode(text).ids]


@pytest.mark.parametrize(("limit", "most"), [(24, 24_576), (512, 524_288), (8192, 2**20), (32_768, 2**21)])
def test_how_much_of_a_text_is_read_at_all(limit: int, most: int) -> None:
    assert most_chars(limit) == most


def test_random_words_do_not_fill_the_memory(both: Both) -> None:
    """A tokenizer's cache of words must not grow with every word there is."""
    source = random.Random(0)
    memory = psutil.Process().memory_info

    def encode() -> None:
        both.ours.encode(["".join(source.choices(string.ascii_letters, k=12_345)) for _ in range(50)])
        both.ours.encode([" ".join("".join(source.choices(string.ascii_letters, k=9)) for _ in range(40))] * 50)

    for _ in range(3):
        encode()
    before = memory().rss
    for _ in range(20):
        encode()

    assert memory().rss - before < 20 * 2**20


def test_a_tokenizer_that_only_transformers_runs(tmp_path: Path) -> None:
    slow = transformers.CanineTokenizer()  # type: ignore[no-untyped-call]
    slow.save_pretrained(tmp_path)
    transformers.CanineConfig().save_pretrained(tmp_path)
    (tmp_path / ".built" / "family").mkdir(parents=True)
    files = ModelFiles(tmp_path, {}, str(tmp_path), built=tmp_path / ".built")
    saved_tokenizer.save(files, tmp_path / ".built" / "family", {}, lower_case=False)

    ours = Tokenizer(files, LIMIT)
    tokens = ours.encode(["short", "x" * 1_000])

    assert not slow.is_fast
    long = slow("x" * 1_000, truncation=True, max_length=LIMIT)["input_ids"]
    assert tokens.ids.tolist() == [*slow("short")["input_ids"], *long]
    assert tokens.truncated.tolist() == [False, True]


def test_what_a_model_lacks_is_named(tmp_path: Path) -> None:
    transformers.BertConfig().save_pretrained(tmp_path)

    with pytest.raises(InvalidInput, match="no tokenizer for 'some/model'"):
        saved_tokenizer.save(ModelFiles(tmp_path, {}, "some/model"), tmp_path, {}, lower_case=False)


def test_a_surrogate_far_behind_is_that_items(tmp_path: Path) -> None:
    ours = Both(save_network("bert", tmp_path)).ours

    with pytest.raises(InvalidInput, match="item 1: has half of a surrogate pair at character 480"):
        ours.encode(["good", " " * 480 + "\ud83d"])


def test_ids_are_small_arrays(both: Both) -> None:
    tokens = both.ours.encode(["a text", "another"])

    assert [array.dtype.name for array in tokens] == ["int32", "int32", "bool"]

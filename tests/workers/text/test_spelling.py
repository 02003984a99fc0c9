"""tokenize and decode, next to transformers' own fast tokenizers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.interface import ModelFiles
from infinity_pool.workers.models.loading import LoadedModel
from infinity_pool.workers.text.saved_tokenizer import save
from infinity_pool.workers.text.spelling import Speller
from infinity_pool.workers.text.tokenizer import CHARS_AT_MOST
from tests.tiny_models import save_network, transformers

TEXTS = [
    "What is the capital of France?",
    "数千年来巴黎是法国的首都。",
    "naïve ﬁne 👩\u200d👩\u200d👧 [MASK]",
    "",
    "word " * 3000,
]


def compare(speller: Speller, reference: Any, special: bool) -> None:
    outputs, tokens = speller.answer("tokenize", TEXTS, {"add_special_tokens": special, "prompt": ""})
    expected = reference(
        TEXTS, add_special_tokens=special, return_offsets_mapping=True, return_special_tokens_mask=True
    )
    assert tokens == sum(map(len, expected["input_ids"]))
    for index, one in enumerate(outputs):
        assert one.ids.tolist() == expected["input_ids"][index]
        assert one.offsets.tolist() == [list(pair) for pair in expected["offset_mapping"][index]]
        assert one.special.tolist() == [bool(mark) for mark in expected["special_tokens_mask"][index]]
        assert one.strings == reference.convert_ids_to_tokens(one.ids)


@pytest.mark.parametrize("special", [True, False])
def test_minilm(minilm: LoadedModel, special: bool) -> None:
    reference = transformers.AutoTokenizer.from_pretrained(minilm.files.network)
    reference.model_max_length = 10**9
    speller = Speller(minilm.files, minilm.family.max_length)

    compare(speller, reference, special)

    for skip in (True, False):
        ids = reference(TEXTS[:2])["input_ids"]
        texts, tokens = speller.answer("decode", ids, {"skip_special_tokens": skip})
        assert texts == [reference.decode(one, skip_special_tokens=skip) for one in ids]
        assert tokens == sum(map(len, ids))


def written(folder: Path, kind: str, **extra: Any) -> ModelFiles:
    """Write a tiny model, and down what is known of its tokenizer."""
    save_network(kind, folder)
    files = ModelFiles(folder, {}, kind, built=folder, extra=extra)
    files.described.mkdir()
    save(files, files.described, {}, lower_case=False)
    return files


@pytest.mark.parametrize("kind", ["bert", "gemma3", "qwen3", "xlm_roberta"])
def test_every_kind_of_tokenizer(kind: str, tmp_path: Path) -> None:
    speller = Speller(written(tmp_path, kind), 512)
    reference = transformers.AutoTokenizer.from_pretrained(tmp_path)
    reference.model_max_length = 10**9

    compare(speller, reference, special=True)
    [text], _ = speller.answer("decode", [reference(TEXTS[0])["input_ids"]], {})
    assert text == reference.decode(reference(TEXTS[0])["input_ids"], skip_special_tokens=True)


def test_the_text_of_a_token_and_a_prompt(tmp_path: Path) -> None:
    prompts = {"prompts": {"query": "the fox: ", "document": ""}, "default_prompt_name": "query"}
    speller = Speller(written(tmp_path, "bert", **prompts), 512)

    [usual], _ = speller.answer("tokenize", ["The Dog"], {"texts": True})
    [named], _ = speller.answer("tokenize", ["The Dog"], {"texts": True, "prompt_name": "document"})

    assert (usual.strings[0], usual.strings[-1], "".join(usual.strings[1:-1])) == ("[CLS]", "[SEP]", "thefox:TheDog")
    assert "".join(named.strings[1:-1]) == "TheDog"
    with pytest.raises(InvalidInput, match="no prompt_name 'none'"):
        speller.answer("tokenize", ["a"], {"prompt_name": "none"})


def test_a_tokenizer_that_only_transformers_can_run(tmp_path: Path) -> None:
    slow = transformers.CanineTokenizer()
    slow.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "canine"}')
    files = ModelFiles(tmp_path, {}, "canine", built=tmp_path)
    files.described.mkdir()
    save(files, files.described, {}, lower_case=False)
    speller = Speller(files, 512)

    [one], _ = speller.answer("tokenize", ["a dog"], {"texts": True})
    assert (one.ids.tolist(), one.offsets.shape) == (slow("a dog")["input_ids"], (0, 2))
    assert one.special.tolist() == [True, False, False, False, False, False, True]
    assert speller.answer("decode", [one.ids], {})[0] == [slow.decode(one.ids, skip_special_tokens=True)]


@pytest.mark.parametrize(
    ("task", "items", "options", "fault"),
    [
        ("tokenize", ["a", 7], {}, ("must be a text", None, 1)),
        ("tokenize", ["a", "\ud800"], {}, ("half of a surrogate", None, 1)),
        ("tokenize", ["a", "a" * (512 * CHARS_AT_MOST + 1)], {}, ("characters", None, 1)),
        ("tokenize", ["a"], {"dimensions": 3}, ("no option", "dimensions", None)),
        ("tokenize", ["a"], {"add_special_tokens": 1}, ("true or false", "add_special_tokens", None)),
        ("decode", [[1], np.ones(512 * CHARS_AT_MOST + 1, np.int32)], {}, ("token ids", None, 1)),
        ("decode", [[1], [10**6]], {}, ("none of the model's", None, 1)),
        ("decode", [np.array([-1], np.int32)], {}, ("none of the model's", None, 0)),
        ("decode", ["a"], {}, ("token ids", None, 0)),
        ("decode", [[1]], {"skip_special_tokens": "no"}, ("true or false", "skip_special_tokens", None)),
    ],
)
def test_what_is_refused(task: str, items: Any, options: Any, fault: Any, tmp_path: Path) -> None:
    speller = Speller(written(tmp_path, "bert"), 512)
    message, param, item = fault
    with pytest.raises(InvalidInput, match=message) as caught:
        speller.answer(task, items, options)
    assert (caught.value.param, caught.value.item) == (param, item)


def test_a_model_without_a_tokenizer(tmp_path: Path) -> None:
    files = replace(ModelFiles(tmp_path, {}, "dummy"), built=tmp_path)
    for task in ("tokenize", "decode"):
        with pytest.raises(InvalidInput, match=f"cannot {task}: it has no tokenizer"):
            Speller(files, 512).answer(task, ["a"], {})

"""Texts are cut where a request says, as transformers cuts them; token ids are taken as they are."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers as real_transformers

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.interface import Engine, Family, Rows
from infinity_pool.workers.models.choices import make_family
from infinity_pool.workers.models.detect import detect
from tests.tiny_late_interaction import save_bge_m3, save_pylate
from tests.tiny_models import POSITIONS, pooling, save_modules, save_network, save_scorer
from tests.tiny_towers import save_clip, save_siglip
from tests.workers.conftest import embed, load_here, prepare_here, run
from tests.workers.families.test_causal_reranker import save_causal_reranker

transformers: Any = real_transformers
LONG = "the quick brown fox jumps over the lazy dog; " * 30 + "a cat sits on the mat"
TEXTS = ["short", LONG, "Paris is the capital of France."]
COUNTS = [3, 7, 12]
SIDES = ["left", "right"]

Options = dict[str, Any]


def made(folder: Path) -> Family:
    files = prepare_here(folder).files
    return make_family(detect(files), files)


def rows_of(family: Family, items: list[Any], **options: Any) -> Rows:
    return family.prepare(family.head(family.tasks[0], options), items, options)


def ids_in(rows: Rows) -> list[list[int]]:
    parts = np.split(rows.ragged["input_ids"], np.cumsum(rows.lengths)[:-1])
    return [part.tolist() for part in parts]


def tokenizer_of(folder: Path, side: str = "right") -> Any:
    return transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, truncation_side=side)


@pytest.mark.parametrize("kind", ["bert", "qwen3", "xlm_roberta"])
def test_texts_are_cut_as_transformers_does_it(kind: str, tmp_path: Path) -> None:
    folder = save_modules(save_network(kind, tmp_path, model_max_length=POSITIONS), pooling("mean"))
    family = made(folder)

    for side in SIDES:
        for count in [*COUNTS, -1]:
            rows = rows_of(family, TEXTS, truncation_side=side, truncate_prompt_tokens=count)
            limit = POSITIONS if count == -1 else count
            assert ids_in(rows) == tokenizer_of(folder, side)(TEXTS, truncation=True, max_length=limit)["input_ids"]
            whole = tokenizer_of(folder)(TEXTS, verbose=False)["input_ids"]
            assert rows.truncated.tolist() == [len(ids) > limit for ids in whole]

    assert ids_in(rows_of(family, TEXTS)) == tokenizer_of(folder)(TEXTS, truncation=True)["input_ids"]


@pytest.mark.parametrize("piece", ["word ", " ", "x", "数", "x" * 99 + " "])
def test_few_tokens_of_a_very_long_text(piece: str, tmp_path: Path) -> None:
    folder = save_modules(save_network("bert", tmp_path, model_max_length=24), pooling("mean"))
    text = (piece * 30_000)[:24_000] + "the end"

    for side in SIDES:
        rows = rows_of(made(folder), [text], truncation_side=side, truncate_prompt_tokens=4)
        assert ids_in(rows) == tokenizer_of(folder, side)([text], truncation=True, max_length=4)["input_ids"]


@pytest.mark.parametrize("side", SIDES)
def test_of_a_pair_the_document_is_cut(side: str, tmp_path: Path) -> None:
    family = made(save_scorer("bert", tmp_path))
    pairs = [["what is it?", text] for text in TEXTS]
    for count in (12, 40):
        rows = rows_of(family, pairs, truncation_side=side, truncate_prompt_tokens=count)
        theirs = tokenizer_of(tmp_path, side)(pairs, truncation="only_second", max_length=count)
        assert ids_in(rows) == theirs["input_ids"]

    with pytest.raises(InvalidInput, match=r"item 0: the query is of 5 tokens, .* no room for a document in the 7$"):
        rows_of(family, pairs, truncate_prompt_tokens=7)


def test_a_pair_to_classify_has_a_first_and_a_second_text(tmp_path: Path) -> None:
    family = made(save_scorer("bert", tmp_path, labels=3))

    with pytest.raises(InvalidInput, match=r"the first text is of over .* no room for a second text") as caught:
        rows_of(family, ["fine", [LONG, "b"], [LONG, "c"]])

    assert (caught.value.item, caught.value.param) == (1, None)


def test_a_language_model_keeps_the_query(tmp_path: Path) -> None:
    folder = save_causal_reranker(tmp_path)
    family = made(folder)
    [whole] = ids_in(rows_of(family, [["what?", ""]]))
    count = len(whole) + 4

    [right] = ids_in(rows_of(family, [["what?", LONG]], truncate_prompt_tokens=count))
    [left] = ids_in(rows_of(family, [["what?", LONG]], truncate_prompt_tokens=count, truncation_side="left"))
    tokenizer = tokenizer_of(folder)
    start = len(tokenizer(tokenizer.decode(whole).partition("<Document>: ")[0] + "<Document>: ").input_ids)

    assert len(left) == len(right) == count
    assert left[: start - 1] == right[: start - 1]  # the space at its end is part of the document's first word
    assert left[start : start + 4] == tokenizer.encode(LONG)[-4:]
    assert tokenizer.decode(right).partition("<Document>:")[2].lstrip().startswith("the quick"[:4])
    with pytest.raises(InvalidInput, match=r"leaves no room .* asked for"):
        rows_of(family, [["what?", LONG]], truncate_prompt_tokens=count - 8)


@pytest.mark.parametrize("side", SIDES)
def test_colbert_cuts_before_it_marks(side: str, tmp_path: Path) -> None:
    folder = save_pylate(tmp_path)
    rows = rows_of(made(folder), TEXTS, truncation_side=side, truncate_prompt_tokens=8)

    plain = tokenizer_of(folder, side)(TEXTS, truncation=True, max_length=7)["input_ids"]
    marker = tokenizer_of(folder).convert_tokens_to_ids("[D] ")
    assert ids_in(rows) == [[ids[0], marker, *ids[1:]] for ids in plain]


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("save", [save_clip, save_siglip])
def test_texts_of_two_towers(save: Any, side: str, tmp_path: Path) -> None:
    folder = save(tmp_path)
    rows = rows_of(made(folder), TEXTS, truncation_side=side, truncate_prompt_tokens=6)

    theirs = tokenizer_of(folder, side)(TEXTS, truncation=True, max_length=6)["input_ids"]
    if "input_ids" in rows.fixed:
        pad = tokenizer_of(folder).pad_token_id
        assert rows.fixed["input_ids"].tolist() == [ids + [pad] * (16 - len(ids)) for ids in theirs]
    else:
        assert ids_in(rows) == theirs
    with pytest.raises(InvalidInput, match="truncation_side"):
        made(folder).head("embed", {"modality": "image", "truncation_side": side})


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Family, Engine]:
    folder = save_network("bert", tmp_path_factory.mktemp("bert"), model_max_length=24)
    prompts = {"query": "the fox: ", "document": ""}
    save_modules(folder, pooling("mean", include_prompt=False), prompts=prompts, default_prompt_name="query")
    return folder, *load_here(folder)


def test_token_ids_are_taken_as_they_are(bert: tuple[Path, Family, Engine]) -> None:
    folder, family, engine = bert
    ids = tokenizer_of(folder)(["the fox jumps", "a cat"])["input_ids"]
    items: list[Any] = [ids[0], "a cat", np.array(ids[1], np.int32), tuple(ids[0])]

    given = embed(family, engine, items)
    texts = embed(family, engine, ["the fox jumps", "a cat"], prompt="")
    [cat] = embed(family, engine, ["a cat"])  # the default prompt is for texts alone

    np.testing.assert_allclose(given, [texts[0], cat, texts[1], texts[0]], atol=1e-5)
    rows = rows_of(family, items)
    assert rows.lengths.tolist()[::2] == [len(ids[0]), len(ids[1])]


def test_token_ids_are_cut(bert: tuple[Path, Family, Engine]) -> None:
    family = bert[1]
    items = [[*range(5, 45)], [7, 8]]

    assert ids_in(rows_of(family, items)) == [[*range(5, 29)], [7, 8]]
    assert ids_in(rows_of(family, items, truncation_side="left")) == [[*range(21, 45)], [7, 8]]
    rows = rows_of(family, items, truncate_prompt_tokens=3)
    assert (ids_in(rows), rows.truncated.tolist()) == ([[5, 6, 7], [7, 8]], [True, False])


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ([5, 10_000], "token id 10000 is none of the model's"),
        ([5, -1], "token id -1 is none"),
        ([5, True], "bool is not"),
        ([5, 1.0], "float is not"),
        ([5, 10**30], "a token id that no model has"),
        ([], "has no tokens"),
        ([[5]], "list is not"),
        ([5, "a"], "str is not"),
        (np.ones(3, np.float32), "whole numbers, not float32"),
        (np.ones((1, 3), np.int32), r"whole numbers, not int32 of shape \(1, 3\)"),
        (7, "must be a text or token ids, not int"),
    ],
)
def test_bad_token_ids_are_named(bert: tuple[Path, Family, Engine], bad: Any, words: str) -> None:
    for items in (["a", bad, bad, "\ud83d"], [[5], bad, "\ud83d"]):
        with pytest.raises(InvalidInput, match=f"^item 1: .*{words}"):
            rows_of(bert[1], items)
    with pytest.raises(InvalidInput, match=r"^item 0: has half of a surrogate"):
        rows_of(bert[1], ["\ud83d", bad])


def test_token_ids_have_no_prompt(bert: tuple[Path, Family, Engine]) -> None:
    assert rows_of(bert[1], [[5, 6]], input_type="document").lengths.tolist() == [2]
    with pytest.raises(InvalidInput, match="without input_type") as caught:
        rows_of(bert[1], [[5, 6]], input_type="query")
    assert caught.value.param == "input_type"


def test_token_ids_of_all_that_one_network_gives(tmp_path: Path) -> None:
    folder = save_bge_m3(tmp_path)
    family, engine = load_here(folder)
    ids = tokenizer_of(folder)(TEXTS[2])["input_ids"]

    for task in family.tasks:
        given, text = (run(family, engine, task, [item])[0] for item in (ids, TEXTS[2]))
        for ours, theirs in zip(
            given if task == "sparse" else [given], text if task == "sparse" else [text], strict=True
        ):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_a_family_that_puts_its_own_tokens_in_takes_texts_alone(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="item 1: must be a text, not list"):
        rows_of(made(save_pylate(tmp_path)), ["a", [5, 6]])

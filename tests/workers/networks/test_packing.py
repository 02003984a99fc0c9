"""Batches without padding give what the reference gives; on a CPU, where its attention is a loop, as on a GPU."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from infinity_pool.workers.engines.torch import TorchEngine
from infinity_pool.workers.interface import Family, Packs
from infinity_pool.workers.networks import packing
from infinity_pool.workers.networks.packing import VARLEN, Packing, plan, varlen_attention, why_padded
from tests.tiny_late_interaction import save_bge_m3, save_pylate
from tests.tiny_models import ARCHITECTURES, POSITIONS, pooling, save_modules, save_network, save_scorer
from tests.workers.conftest import embed, load_here, run
from tests.workers.families.test_causal_reranker import save_causal_reranker
from tests.workers.families.test_sentence_transformer import TEXTS, reference
from tests.workers.families.test_splade import save_sparse_encoder

PACKED = sorted(ARCHITECTURES.keys() - {"deberta_v2", "mpnet"})
PAIRS = [["a query", "a document " * count] for count in (1, 9, 3, 20)]


def load(folder: Path) -> tuple[Family, TorchEngine]:
    family, engine = load_here(folder)
    assert isinstance(engine, TorchEngine)
    return family, engine


def save_encoder(kind: str, folder: Path, mode: str, **config: Any) -> Path:
    folder = save_modules(save_network(kind, folder, model_max_length=POSITIONS), pooling(mode))
    told = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(told | config))
    return folder


@pytest.mark.parametrize("kind", PACKED)
def test_packed_texts_give_the_references_vectors(kind: str, tmp_path: Path) -> None:
    folder = save_encoder(kind, tmp_path, "lasttoken" if kind == "qwen3" else "mean")
    family, engine = load(folder)

    assert engine.pack(VARLEN), engine.layout

    expected = reference(folder)
    np.testing.assert_allclose(embed(family, engine, TEXTS), expected, atol=1e-5)
    np.testing.assert_allclose(embed(family, engine, TEXTS[3:4]), expected[3:4], atol=1e-5)


@pytest.mark.parametrize(
    "config",
    [
        {"is_causal": False},
        {"use_sliding_window": True, "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]},
    ],
    ids=["sees what follows", "sees a window"],
)
def test_a_language_model_that_is_no_usual_one(config: dict[str, Any], tmp_path: Path) -> None:
    folder = save_encoder("qwen3", tmp_path, "mean", **config)
    family, engine = load(folder)

    assert engine.pack(VARLEN), engine.layout

    np.testing.assert_allclose(embed(family, engine, TEXTS), reference(folder), atol=1e-5)


@pytest.mark.parametrize("kind", ["bert", "roberta", "modernbert"])
def test_heads_see_nothing_of_it(kind: str, tmp_path: Path) -> None:
    family, engine = load(save_scorer(kind, tmp_path))
    padded = run(family, engine, "rerank", PAIRS, raw_scores=True)

    assert engine.pack(VARLEN), engine.layout

    np.testing.assert_allclose(run(family, engine, "rerank", PAIRS, raw_scores=True), padded, atol=1e-5)


def test_families_with_a_call_of_their_own_see_nothing_of_it(tmp_path: Path) -> None:
    family, engine = load(save_causal_reranker(tmp_path))
    padded = run(family, engine, "rerank", PAIRS, raw_scores=True)

    assert engine.pack(VARLEN), engine.layout

    np.testing.assert_allclose(run(family, engine, "rerank", PAIRS, raw_scores=True), padded, atol=1e-5)


def test_vectors_of_tokens_are_put_back_in_their_places(tmp_path: Path) -> None:
    family, engine = load(save_bge_m3(tmp_path))
    padded = run(family, engine, "multivector", TEXTS[2:5])

    assert engine.pack(VARLEN), engine.layout

    for ours, theirs in zip(run(family, engine, "multivector", TEXTS[2:5]), padded, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize(
    ("save", "why"),
    [
        (lambda folder: save_encoder("mpnet", folder, "mean"), "its attention is its own"),
        (lambda folder: save_encoder("deberta_v2", folder, "mean"), "its attention is its own"),
        (save_pylate, "its family reads what is not attended to"),
        (save_sparse_encoder, "its head runs on every token"),
    ],
    ids=["relative positions", "disentangled attention", "query expansion", "a head on every token"],
)
def test_what_cannot_be_packed_says_why(save: Any, why: str, tmp_path: Path) -> None:
    family, engine = load(save(tmp_path))
    usual = engine.attention

    engine.choose_attention()

    assert why_padded(engine._network, family) == why
    assert (engine.packed, engine.layout, engine.attention) == (False, f"padded: {why}", usual)


def leaky(*args: Any, cu_seq_lens_q: Any, max_length_q: int, **more: Any) -> Any:
    bounds = cu_seq_lens_q[[0, -1]]
    return varlen_attention(*args, cu_seq_lens_q=bounds, max_length_q=max_length_q, **more)


def broken(*args: Any, **more: Any) -> Any:
    raise RuntimeError("no kernel\nfor this")


@pytest.mark.parametrize(
    ("attention", "words"),
    [(leaky, "outputs differ: their cosine is 0."), (broken, "it fails: RuntimeError: no kernel")],
)
def test_wrong_attention_is_found_at_load(attention: Any, words: str, tmp_path: Path) -> None:
    family, engine = load(save_encoder("bert", tmp_path, "mean"))
    padded = embed(family, engine, TEXTS)
    ALL_ATTENTION_FUNCTIONS.register("wrong", attention)

    assert not engine.pack("wrong")

    assert words in engine.layout
    assert engine.attention == "sdpa"
    np.testing.assert_array_equal(embed(family, engine, TEXTS), padded)


def test_the_best_attention_that_works_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, engine = load(save_encoder("bert", tmp_path, "mean"))
    tried: list[str] = []
    pack = engine.pack

    def try_out(attention: str) -> bool:
        tried.append(attention)
        return pack(attention)

    monkeypatch.setattr("infinity_pool.workers.engines.torch.find_spec", lambda name: name)  # a flash-attn for no CPU
    monkeypatch.setattr(engine, "pack", try_out)

    engine.choose_attention()

    assert tried == ["flash_attention_2", VARLEN]
    assert (engine.packed, engine.layout, engine.attention) == (True, "packed", VARLEN)
    assert isinstance(engine, Packs)


def test_padded_it_stays_with_what_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, engine = load(save_sparse_encoder(tmp_path))
    monkeypatch.setattr("infinity_pool.workers.engines.torch.find_spec", lambda name: name)

    engine.choose_attention()

    assert (engine.packed, engine.attention) == (False, "sdpa")


def test_what_the_kernel_has_not_is_not_passed_over() -> None:
    query = torch.zeros(1, 2, 3, 4)

    with pytest.raises(NotImplementedError, match="softcap"):
        varlen_attention(None, query, query, query, None, cu_seq_lens_q=None, max_length_q=3, softcap=30.0)


def test_the_row_has_the_tokens_and_nothing_else() -> None:
    found = plan(np.array([[1, 1, 0], [1, 0, 0], [1, 1, 1]]))

    assert found.places.tolist() == [0, 1, 3, 6, 7, 8]
    assert (found.bounds.tolist(), found.bounds.dtype, found.longest) == ([0, 2, 3, 6], np.int32, 3)


def test_the_network_runs_on_as_many_tokens_as_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    family, engine = load(save_encoder("bert", tmp_path, "mean"))
    assert engine.pack(VARLEN)
    seen: list[int] = []

    def attend(query: Any, *others: Any, **options: Any) -> Any:
        seen.append(len(query))
        return query

    monkeypatch.setattr(packing, "_attend_one_by_one", attend)
    rows = family.prepare(family.head("embed", {}), ["a", TEXTS[3]], {})

    engine.run(family.collate([rows]), family.reduce)

    assert set(seen) == {int(rows.lengths.sum())}


def test_undone_it_leaves_nothing_behind(tmp_path: Path) -> None:
    family, engine = load(save_encoder("bert", tmp_path, "mean"))
    before = embed(family, engine, TEXTS)

    Packing(engine._network).undo()

    np.testing.assert_array_equal(embed(family, engine, TEXTS), before)

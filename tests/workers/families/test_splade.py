"""The sparse vectors are SparseEncoder's own."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sparse_encoder.modules import SpladePooling

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from infinity_pool.workers.files.locate import locate
from infinity_pool.workers.interface import Claim, Engine, Family
from infinity_pool.workers.models.choices import family_module
from infinity_pool.workers.models.detect import detect
from infinity_pool.workers.settings import ModelSettings
from tests.tiny_models import ARCHITECTURES, POSITIONS, transformers
from tests.workers.conftest import ignore_progress, load_here, run

TINY = "package:cognition/model"  # SPLADE-tiny-msmarco, a plain *ForMaskedLM folder
TEXTS = [
    "hello world",
    "",
    "What is the capital of France?",
    "the quick brown fox jumps over the lazy dog " * 40,
    "数千年 ﬁne 👩‍👩‍👧",
    "a",
    "le chat est assis sur le tapis; 12% (a)",
]
KINDS = {"bert": "BertForMaskedLM", "distilbert": "DistilBertForMaskedLM", "xlm_roberta": "XLMRobertaForMaskedLM"}


def save_masked_lm(kind: str, folder: Path) -> Path:
    """Write one of the tiny architectures with a random head that guesses words."""
    torch.manual_seed(0)
    network, tokenizer = ARCHITECTURES[kind]()
    masked = getattr(transformers, KINDS[kind])(network.config)
    for weights in masked.parameters():
        torch.nn.init.normal_(weights, std=0.2)
    masked.save_pretrained(folder)
    tokenizer.model_max_length = POSITIONS
    tokenizer.save_pretrained(folder)
    return folder


def save_sparse_encoder(folder: Path, kind: str = "bert", **options: Any) -> Path:
    """Pack a tiny network as SparseEncoder does; `options` are those of SpladePooling."""
    network = Transformer(str(save_masked_lm(kind, folder / "network")), transformer_task="fill-mask")
    prompts = {"query": "the fox: ", "document": ""}
    model = SparseEncoder(modules=[network, SpladePooling(**options)], prompts=prompts, device="cpu")
    model.save_pretrained(str(folder / "saved"), create_model_card=False)
    return folder / "saved"


def reference(folder: Path | str, texts: list[str] = TEXTS, **options: Any) -> Array:
    model = SparseEncoder(str(folder), device="cpu", local_files_only=True)
    return np.asarray(model.encode(texts, show_progress_bar=False, convert_to_sparse_tensor=False, **options))


def dense(vectors: list[list[Array]], width: int) -> Array:
    """Write sparse vectors out in full."""
    rows = np.zeros((len(vectors), width), np.float32)
    for row, (indices, values) in zip(rows, vectors, strict=True):
        assert [array.dtype.name for array in (indices, values)] == ["int32", "float32"]
        assert (values > 0).all()
        assert (np.diff(indices) > 0).all()
        row[indices] = values
    return rows


def sparse(family: Family, engine: Engine, texts: list[str], **options: Any) -> Array:
    return dense(run(family, engine, "sparse", texts, **options), family.dimensions)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("engine", ["torch", "onnx"])
def test_in_any_mixture(kind: str, engine: str, tmp_path: Path) -> None:
    folder = save_sparse_encoder(tmp_path, kind)
    family, loaded = load_here(folder, engine)
    expected = reference(folder)
    order = np.random.default_rng(0).permutation(len(TEXTS))

    assert (expected > 0).any(1).all()
    np.testing.assert_allclose(sparse(family, loaded, TEXTS), expected, atol=1e-5)
    np.testing.assert_allclose(sparse(family, loaded, [TEXTS[at] for at in order]), expected[order], atol=1e-5)
    alone = np.concatenate([sparse(family, loaded, [text]) for text in TEXTS])
    np.testing.assert_allclose(alone, expected, atol=1e-5)


@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
@pytest.mark.parametrize("strategy", ["max", "sum"])
@pytest.mark.parametrize("engine", ["torch", "onnx"])
def test_every_pooling(strategy: str, activation: str, engine: str, tmp_path: Path) -> None:
    folder = save_sparse_encoder(tmp_path, pooling_strategy=strategy, activation_function=activation)
    family, loaded = load_here(folder, engine)

    np.testing.assert_allclose(sparse(family, loaded, TEXTS), reference(folder), atol=1e-5, rtol=1e-5)


def test_the_layout_of_older_versions(tmp_path: Path) -> None:
    folder = save_masked_lm("bert", tmp_path)
    kinds = ["sentence_transformers.sparse_encoder.models.MLMTransformer"]
    kinds += ["sentence_transformers.sparse_encoder.models.SpladePooling"]
    places = ["", "1_SpladePooling"]
    modules = [{"idx": at, "name": str(at), "path": places[at], "type": kind} for at, kind in enumerate(kinds)]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / places[1]).mkdir()
    (folder / places[1] / "config.json").write_text('{"pooling_strategy": "sum", "word_embedding_dimension": null}')
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 20, "do_lower_case": false}')
    (folder / "config_sentence_transformers.json").write_text('{"model_type": "SparseEncoder", "max_active_dims": 9}')
    family, engine = load_here(folder)

    assert family.max_length == 20
    np.testing.assert_allclose(sparse(family, engine, TEXTS), reference(folder), atol=1e-5)
    assert ((sparse(family, engine, TEXTS) > 0).sum(1) <= 9).all()


def test_prompts_come_first(tmp_path: Path) -> None:
    folder = save_sparse_encoder(tmp_path)
    family, engine = load_here(folder)

    named = sparse(family, engine, TEXTS, prompt_name="query")
    np.testing.assert_allclose(named, reference(folder, prompt_name="query"), atol=1e-5)
    own = sparse(family, engine, TEXTS, prompt="a cat ")
    np.testing.assert_allclose(own, reference(folder, prompt="a cat "), atol=1e-5)
    assert np.abs(named - own).max() > 0.01


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Family, Engine]:
    """A real one, which only `--family splade` tells from any other network with such a head."""
    folder = tmp_path_factory.mktemp("tiny") / "model"
    shutil.copytree(locate(ModelSettings(model=TINY), ignore_progress).path, folder)
    return load_here(folder, family="splade")


def test_a_real_model(tiny: tuple[Family, Engine]) -> None:
    expected = reference(locate(ModelSettings(model=TINY), ignore_progress).path)

    np.testing.assert_allclose(sparse(*tiny, TEXTS), expected, atol=1e-5)
    question, answer, other = sparse(
        *tiny, ["What is the capital of France?", "Paris is the capital city of France.", "My cat sleeps all day."]
    )
    assert question @ answer > 3 * (question @ other)


@pytest.mark.parametrize("count", [1, 5, 10_000])
def test_top_k_keeps_the_heaviest(count: int, tiny: tuple[Family, Engine]) -> None:
    whole = run(*tiny, "sparse", TEXTS[:3])

    cut = run(*tiny, "sparse", TEXTS[:3], top_k=count)

    for (indices, values), (all_indices, all_values) in zip(cut, whole, strict=True):
        assert len(values) == min(count, len(all_values))
        assert sorted(values) == sorted(all_values)[-len(values) :]
        assert set(indices) <= set(all_indices)


def test_a_plain_masked_lm_is_splade_only_where_it_is_said() -> None:
    files = locate(ModelSettings(model=TINY), ignore_progress)

    assert family_module("splade").serves(files) is Claim.NONE
    assert detect(files) != "splade"


def test_a_network_of_another_kind_is_refused(tmp_path: Path) -> None:
    network, tokenizer = ARCHITECTURES["bert"]()
    network.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)

    with pytest.raises(InvalidInput, match=r"is no \*ForMaskedLM, which splade needs"):
        load_here(tmp_path, family="splade")


@pytest.mark.parametrize("config", [{"pooling_strategy": "mean"}, {"activation_function": "gelu"}])
def test_pooling_that_is_not_served_is_refused(config: dict[str, str], tmp_path: Path) -> None:
    folder = save_sparse_encoder(tmp_path)
    (folder / "1_SpladePooling" / "config.json").write_text(json.dumps(config))

    with pytest.raises(InvalidInput, match=f"{next(iter(config.values()))}' is not served"):
        load_here(folder)


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"top_k": 0}, "top_k"),
        ({"top_k": True}, "top_k"),
        ({"top_k": 30523}, "top_k"),
        ({"top_k": "5"}, "top_k"),
        ({"prompt": 3}, "prompt"),
        ({"prompt_name": "nope"}, "prompt_name"),
        ({"prompt_name": ["query"]}, "prompt_name"),
        ({"prompt_name": "query", "prompt": "a"}, "prompt_name"),
        ({"dimensions": 5}, "dimensions"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], param: str, tiny: tuple[Family, Engine]) -> None:
    with pytest.raises(InvalidInput) as caught:
        tiny[0].head("sparse", options)

    assert caught.value.param == param
    assert param in caught.value.message


def test_another_task_is_refused(tiny: tuple[Family, Engine]) -> None:
    with pytest.raises(InvalidInput, match="cannot embed, only sparse"):
        tiny[0].head("embed", {})

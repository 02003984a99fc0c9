import json
from pathlib import Path
from typing import Any

import pytest

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.interface import ModelFiles
from infinity_pool.workers.models.choices import ENGINES, FAMILIES
from infinity_pool.workers.models.detect import detect, family_of

TRANSFORMER = "sentence_transformers.models.Transformer"


def model(folder: Path, config: dict[str, Any], modules: list[str] | None = None, **described: Any) -> ModelFiles:
    if modules:
        listed = [{"idx": idx, "name": str(idx), "path": "", "type": kind} for idx, kind in enumerate(modules)]
        (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "config_sentence_transformers.json").write_text(json.dumps(described))
    return ModelFiles(folder, config, "some/model")


def test_the_dummy_family_has_no_network_for_an_engine(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="runs on engine dummy alone") as caught:
        family_of(model(tmp_path, {}), "dummy")
    assert caught.value.param == "family"


def test_files_are_choices() -> None:
    assert {"dummy", "sentence_transformer"} <= set(FAMILIES)
    assert {"dummy", "onnx", "torch"} <= set(ENGINES)


@pytest.mark.parametrize(
    ("config", "modules"),
    [
        ({"model_type": "bert", "architectures": ["BertModel"]}, [TRANSFORMER, "sentence_transformers.models.Pooling"]),
        ({"model_type": "bert"}, ["sentence_transformers.base.modules.transformer.Transformer"]),
        ({"model_type": "bert", "architectures": ["BertModel"]}, None),
        ({"model_type": "bert"}, None),
        ({"model_type": "xlm-roberta", "architectures": ["XLMRobertaForMaskedLM"]}, None),
        ({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}, None),
    ],
)
def test_text_encoders(config: dict[str, Any], modules: list[str] | None, tmp_path: Path) -> None:
    assert detect(model(tmp_path, config, modules)) == "sentence_transformer"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ('{"a": 1}', "is no list of modules"),
        ('[{"path": ""}]', "is no list of modules"),
        (json.dumps([{"type": TRANSFORMER, "path": "../elsewhere"}]), "leads out of it"),
    ],
)
def test_modules_that_are_none(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text(text)

    with pytest.raises(InvalidInput, match=words):
        detect(ModelFiles(tmp_path, {"model_type": "bert"}, "some/model"))


@pytest.mark.parametrize(
    ("config", "modules", "described", "words"),
    [
        (
            {"model_type": "bert", "architectures": ["BertForQuestionAnswering"]},
            None,
            {},
            "architectures BertForQuestionAnswering; model_type bert",
        ),
        ({"model_type": "siglip2", "architectures": ["Siglip2Model"], "text_config": {}}, None, {}, "Siglip2Model"),
        ({"model_type": "t5", "architectures": ["T5Model"], "is_encoder_decoder": True}, None, {}, "T5Model"),
        ({"model_type": "bert"}, ["sentence_transformers.models.WordEmbeddings"], {}, "modules WordEmbeddings"),
        ({"model_type": "bert"}, ["their.own.Transformer"], {}, "modules Transformer"),
        ({"model_type": "bert"}, [TRANSFORMER], {"model_type": "SparseEncoder"}, "modules Transformer"),
        ({}, None, {}, "architectures none; model_type none"),
        ({}, ["sentence_transformers.base.modules.router.Router"], {}, "modules Router"),
    ],
)
def test_what_no_family_serves_is_refused_with_what_was_found(
    config: dict[str, Any], modules: list[str] | None, described: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput) as caught:
        detect(model(tmp_path, config, modules, **described))

    assert "some/model" in caught.value.message
    assert "sentence_transformer" in caught.value.message
    assert words in caught.value.message

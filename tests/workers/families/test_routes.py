"""SparseEncoders whose queries run no network, and Routers that are not served."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Router, Transformer
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.interface import Engine, Family
from infinity_pool.workers.models.loading import load_model
from infinity_pool.workers.settings import ModelSettings
from tests.workers.conftest import ignore_progress, load_here, prepare_here
from tests.workers.families.test_splade import TEXTS, save_masked_lm, sparse

WORDS = [text for text in TEXTS if text]


def save(folder: Path) -> Path:
    """Let sentence-transformers write an encoder whose queries' tokens have weights of their own."""
    network = Transformer(str(save_masked_lm("bert", folder / "network")), transformer_task="fill-mask")
    weights = torch.rand(len(network.tokenizer.get_vocab()))
    router = Router.for_query_document(
        query_modules=[SparseStaticEmbedding(network.tokenizer, weights, frozen=True)],
        document_modules=[network, SpladePooling(activation_function="log1p_relu")],
    )
    model = SparseEncoder(modules=[router], prompts={"query": "the fox: ", "document": ""}, device="cpu")
    model.save_pretrained(str(folder / "saved"), create_model_card=False)
    return folder / "saved"


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Family, Engine]:
    folder = save(tmp_path_factory.mktemp("routes"))
    return folder, *load_here(folder)


def test_each_side_is_theirs(loaded: tuple[Path, Family, Engine]) -> None:
    folder, family, engine = loaded
    model = SparseEncoder(str(folder), device="cpu", local_files_only=True)
    dense: dict[str, Any] = {"convert_to_sparse_tensor": False, "show_progress_bar": False}

    for side, method in (("query", model.encode_query), ("document", model.encode_document)):
        expected = np.asarray(method(WORDS, **dense))
        np.testing.assert_allclose(sparse(family, engine, WORDS, input_type=side), expected, atol=1e-5)
        np.testing.assert_allclose(sparse(family, engine, WORDS[:1], input_type=side), expected[:1], atol=1e-5)
    np.testing.assert_allclose(sparse(family, engine, WORDS), np.asarray(model.encode(WORDS, **dense)), atol=1e-5)


@pytest.mark.usefixtures("made_here")
def test_its_weights_are_part_of_what_it_is(tmp_path: Path) -> None:
    folder = save(tmp_path)

    def fingerprint() -> str:
        settings = ModelSettings(model=str(folder), engine="torch", cache_dir=str(tmp_path / "cache"))
        return load_model(settings, "cpu", ignore_progress).fingerprint

    before = fingerprint()
    file = folder / "query_0_SparseStaticEmbedding" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-4] + b"\0\0\0\0")

    assert fingerprint() != before


def test_other_routers_are_refused(tmp_path: Path) -> None:
    folder = save(tmp_path)
    file = folder / "router_config.json"
    config = json.loads(file.read_text())

    def refused(words: str, **changed: Any) -> None:
        file.write_text(json.dumps(config | changed))
        with pytest.raises(InvalidInput, match=words):
            prepare_here(folder)

    refused("no choice of query and document", parameters={"default_route": "query"})
    refused("no choice of query and document", parameters={"route_mappings": {"(None, 'text')": "document"}})
    refused("modules Router", structure={"query": config["structure"]["document"], "document": []})
    refused("leads out of it", structure={"query": ["../../x"], "document": []})

"""Folders that sentence-transformers' MultiVectorEncoder wrote: matrices are those of its `encode`."""

import json
import string
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

from infinity_pool.broker.errors import InvalidInput
from tests.tiny_late_interaction import DIM, network_with
from tests.tiny_models import WIDTH
from tests.workers.conftest import load_here, prepare_here, run
from tests.workers.families.test_colbert import TEXTS, assert_alike

TOKENS = "token_embeddings"
SIDES = {"query": "encode_query", "document": "encode_document"}


def save(folder: Path, mask: Any = None, dense: int = 1, kind: str = "bert", **settings: Any) -> Path:
    """Let sentence-transformers write a folder; `settings` are those of its Transformer, and `prompts`."""
    network, tokenizer = network_with(kind, "[Q] ", "[D] ")
    network.save_pretrained(folder / "network")
    tokenizer.save_pretrained(folder / "network")
    prompts = settings.pop("prompts", {"query": "[Q] ", "document": "[D] "})
    widths = [WIDTH, *[DIM] * dense]
    layers = [
        Dense(before, after, bias=False, activation_function=torch.nn.Identity(), module_input_name=TOKENS)
        for before, after in pairwise(widths)
    ]
    modules = [
        Transformer(str(folder / "network"), **settings),
        *layers,
        MultiVectorMask(**(mask or {"skiplist_words": list(string.punctuation)})),
        Normalize(module_input_name=TOKENS),
    ]
    MultiVectorEncoder(modules=modules, prompts=prompts, device="cpu").save_pretrained(str(folder / "model"))
    return folder / "model"


SETTINGS: list[dict[str, Any]] = [
    {"query_expansion": {"strategy": "fixed", "length": 16}, "document_length": 40},
    {"query_expansion": {"strategy": "min", "length": 12, "attend": True}, "query_length": 20},
    {"query_expansion": {"strategy": "min", "length": 12, "token": "[CLS]"}},
    {"query_length": 10, "dense": 2, "mask": {"skiplist_words": [".", "the", "no word"]}},
    {"dense": 0, "prompts": {}, "mask": {"skiplist_words": ["a"], "skiplist_tasks": ["query", "document"]}},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=["fixed", "min", "token", "short", "bare"])
def test_matrices_are_theirs(settings: dict[str, Any], tmp_path: Path) -> None:
    folder = save(tmp_path, **settings)
    family, engine = load_here(folder)
    model = MultiVectorEncoder(str(folder), device="cpu", local_files_only=True)

    for side, method in SIDES.items():
        expected = [matrix.numpy() for matrix in getattr(model, method)(TEXTS)]
        assert_alike(run(family, engine, "multivector", TEXTS, input_type=side), expected)
        assert_alike(run(family, engine, "multivector", TEXTS[:1], input_type=side), expected[:1])


def test_onnx_has_the_same(tmp_path: Path) -> None:
    folder = save(tmp_path, query_expansion={"strategy": "min", "length": 12})

    expected = run(*load_here(folder), "multivector", TEXTS, input_type="query")

    assert_alike(run(*load_here(folder, "onnx"), "multivector", TEXTS, input_type="query"), expected)


def _changed(folder: Path, number: int, **config: Any) -> None:
    place = json.loads((folder / "modules.json").read_text())[number]["path"]
    own = json.loads((folder / place / "config.json").read_text())
    (folder / place / "config.json").write_text(json.dumps(own | config))


def test_what_is_not_served_is_refused(tmp_path: Path) -> None:
    folder = save(tmp_path)
    listed = json.loads((folder / "modules.json").read_text())

    def refused(modules: list[Any], words: str) -> None:
        (folder / "modules.json").write_text(json.dumps(modules))
        with pytest.raises(InvalidInput, match=words):
            prepare_here(folder)

    pooling = "sentence_transformers.multi_vector_encoder.modules.token_pooling.HierarchicalTokenPooling"
    refused([*listed, {**listed[-1], "type": pooling}], "HierarchicalTokenPooling are not served")
    refused(listed[:-1], "are not served, only a Transformer")
    _changed(folder, 2, keep_only_token_ids=[7])
    refused(listed, "keep_only_token_ids")
    _changed(folder, 3, module_input_name="sentence_embedding")
    refused(listed, "Normalize in .* is served on token_embeddings alone")

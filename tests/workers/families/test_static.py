"""Static models: sentence-transformers' StaticEmbedding, and model2vec's way of storing one."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding
from tokenizers import Tokenizer

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from tests.tiny_models import save_network
from tests.workers.conftest import embed, load_here

WIDTH = 24
TEXTS = ["hello world", "the quick brown fox jumps over the lazy dog " * 30, "a", "le chat; 12% (a)"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = save_network("bert", tmp_path_factory.mktemp("bert"))
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def save(folder: Path, tokenizer: Tokenizer, *more: Any) -> Path:
    module = StaticEmbedding(tokenizer, embedding_dim=WIDTH)
    SentenceTransformer(modules=[module, *more], device="cpu").save(str(folder))
    return folder


def reference(folder: Path) -> Array:
    return np.asarray(SentenceTransformer(str(folder), device="cpu").encode(TEXTS, show_progress_bar=False))


@pytest.mark.parametrize("engine", ["torch", "onnx"])
@pytest.mark.parametrize("more", [(), (Normalize(),)])
def test_vectors_are_the_reference(tmp_path: Path, tokenizer: Tokenizer, engine: str, more: tuple[Any, ...]) -> None:
    folder = save(tmp_path, tokenizer, *more)
    family, loaded = load_here(folder, engine)

    together = embed(family, loaded, TEXTS)
    alone = np.concatenate([embed(family, loaded, [text]) for text in TEXTS])

    np.testing.assert_allclose(together, reference(folder), atol=1e-5)
    np.testing.assert_allclose(alone, together, atol=1e-6)
    assert family.dimensions == WIDTH


def test_vectors_that_tokens_share(tmp_path: Path, tokenizer: Tokenizer) -> None:
    folder = save(tmp_path, tokenizer)
    (file,) = folder.rglob("model.safetensors")
    random = np.random.default_rng(0)
    count = tokenizer.get_vocab_size()
    stored: dict[str, Array] = {
        "embeddings": random.normal(size=(10, WIDTH)).astype(np.float32),
        "mapping": random.integers(0, 10, count),
        "weights": random.uniform(size=count).astype(np.float32),
    }
    save_file(stored, file)
    family, loaded = load_here(folder)

    np.testing.assert_allclose(embed(family, loaded, TEXTS), reference(folder), atol=1e-5)


def test_what_is_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    folder = save(tmp_path, tokenizer)
    family, _ = load_here(folder)
    with pytest.raises(InvalidInput, match="has no tokens"):
        family.prepare(family.head("embed", {}), ["text", ""], {})

    modules = json.loads((folder / "modules.json").read_text())
    dense = {"idx": 1, "name": "1", "path": "1_Dense", "type": "sentence_transformers.models.Dense"}
    (folder / "modules.json").write_text(json.dumps([*modules, dense]))
    with pytest.raises(InvalidInput, match="not served after StaticEmbedding"):
        load_here(folder)

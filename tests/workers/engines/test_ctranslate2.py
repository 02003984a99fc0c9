"""CTranslate2 beside torch: the same vectors in float32, near ones in int8, and what it refuses."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
import torch
import transformers

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from infinity_pool.workers.engines.ctranslate2 import CTranslate2Engine, convert
from infinity_pool.workers.families.dummy import Dummy
from infinity_pool.workers.files.cache import Damaged
from infinity_pool.workers.interface import Engine, ModelFiles
from infinity_pool.workers.models.choices import engine_module, make_family
from infinity_pool.workers.models.loading import load_model
from infinity_pool.workers.settings import ModelSettings
from tests.tiny_models import pooling, save_modules, save_network
from tests.workers.conftest import MINILM, embed, ignore_progress, load_here, prepare_here

TEXTS = ["hello world", "What is the capital of France?", "the quick brown fox " * 20, "a"]
INT8_COSINE = 0.98  # of MiniLM's vectors to those of float32, at least


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_modules(save_network("bert", tmp_path / "model"), pooling("mean"), ("Normalize", {}))


def load(folder: Path, device: str, dtype: str) -> Engine:
    files = prepare_here(folder, "ctranslate2").files
    return engine_module("ctranslate2").load(files, make_family("sentence_transformer", files), device, dtype)


@pytest.mark.parametrize("kind", ["bert", "distilbert", "roberta", "xlm_roberta"])
def test_float32_gives_torchs_vectors_alone_and_in_mixtures(kind: str, tmp_path: Path) -> None:
    folder = save_modules(save_network(kind, tmp_path), pooling("mean", "cls", "max"))
    family, engine = load_here(folder, "ctranslate2")
    expected = embed(*load_here(folder, "torch"), TEXTS)

    mixed, backwards = embed(family, engine, TEXTS), embed(family, engine, TEXTS[::-1])[::-1]
    alone = np.concatenate([embed(family, engine, [text]) for text in TEXTS])

    assert (engine.device, engine.dtype) == ("cpu", "float32")
    for vectors in (mixed, backwards, alone):
        np.testing.assert_allclose(vectors, expected, atol=1e-5)


def test_camembert_is_roberta_by_another_name(tmp_path: Path) -> None:
    folder = save_network("roberta", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    named = {"model_type": "camembert", "architectures": ["CamembertModel"]}
    (folder / "config.json").write_text(json.dumps(config | named))

    vectors = embed(*load_here(folder, "ctranslate2"), TEXTS)

    np.testing.assert_allclose(vectors, embed(*load_here(folder, "torch"), TEXTS), atol=1e-5)


def minilm(cache_dir: str, engine: str, dtype: str, texts: list[str]) -> tuple[Array, str, float | None]:
    settings = ModelSettings(model=MINILM, engine=engine, dtype=dtype, cache_dir=cache_dir)
    loaded = load_model(settings, "cpu", ignore_progress)
    assert loaded.engine.dtype == dtype
    return embed(loaded.family, loaded.engine, texts), loaded.fingerprint, loaded.cosine


def test_minilm(cache_dir: str, caplog: pytest.LogCaptureFixture) -> None:
    texts = [*TEXTS, "数千年来,人们一直在观察星空。", "Il pleut sur la ville. " * 30]
    expected, name, _ = minilm(cache_dir, "torch", "float32", texts)

    whole, same_name, unknown = minilm(cache_dir, "ctranslate2", "float32", texts)
    with caplog.at_level("INFO"):
        small, other_name, cosine = minilm(cache_dir, "ctranslate2", "int8", texts)

    np.testing.assert_allclose(whole, expected, atol=1e-5)
    assert (same_name, unknown) == (name, None)
    assert INT8_COSINE <= (small * expected).sum(1).min() < 1 - 1e-5
    assert other_name != name
    assert cosine is not None
    assert cosine >= INT8_COSINE
    assert f"int8, whose cosine to float32 is at least {cosine:.4f}" in caplog.text


def test_loading_and_running_needs_no_torch(folder: Path, tmp_path: Path) -> None:
    built = prepare_here(folder, "ctranslate2").files.built
    code = (
        "import sys; from pathlib import Path; import numpy as np;"
        "from infinity_pool.workers.engines.ctranslate2 import CTranslate2Engine;"
        "engine = CTranslate2Engine(Path(sys.argv[1]), [], 'cpu', 'float32');"
        "ones = np.ones((2, 5), np.int64);"
        "print(engine.run({'input_ids': ones, 'attention_mask': ones}, lambda output, _: output).shape);"
        "print([name for name in ('torch', 'transformers') if name in sys.modules])"
    )

    command = [sys.executable, "-c", code, str(built / "ctranslate2")]

    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "(2, 5, 64)\n[]\n"


class Pairs(Dummy):
    """A family of classifiers, with nothing around their network."""

    output = "logits"
    auto_class = "AutoModelForSequenceClassification"
    inputs = ("input_ids", "attention_mask", "token_type_ids")


def classifier(kind: str, folder: Path) -> tuple[Any, ModelFiles]:
    save_network(kind, folder)
    network: Any = transformers.AutoModelForSequenceClassification.from_pretrained(folder, num_labels=3).eval()
    network.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    return network, ModelFiles(folder, config, "a classifier", built=folder)


@pytest.mark.parametrize("kind", ["bert", "distilbert", "roberta", "xlm_roberta"])
def test_a_classifiers_head_and_token_types(kind: str, tmp_path: Path) -> None:
    network, files = classifier(kind, tmp_path)
    (tmp_path / "ctranslate2").mkdir()
    head = convert(files, Pairs(files), tmp_path / "ctranslate2", ignore_progress)["head"]
    engine = CTranslate2Engine(tmp_path / "ctranslate2", head, "cpu", "float32")
    ids = np.random.default_rng(0).integers(5, 100, (3, 12))
    mask = (np.arange(12) < np.array([[12], [4], [9]])).astype(np.int64)
    batch = {"input_ids": np.where(mask, ids, network.config.pad_token_id or 0), "attention_mask": mask}
    if kind == "bert":
        batch["token_type_ids"] = mask * (np.arange(12) > 2)

    with torch.inference_mode():
        expected = network(**{name: torch.from_numpy(array) for name, array in batch.items()}).logits.numpy()
    scores = engine.run(batch, lambda output, _: output)

    assert scores.shape == (3, 3)
    np.testing.assert_allclose(scores, expected, atol=1e-5)


class Wider(Pairs):
    """A family that does something with its network itself."""

    output = "last_hidden_state"

    def call(self, network: Any, inputs: dict[str, Any]) -> Any:
        return network(**inputs)[1]


@pytest.mark.parametrize(
    ("config", "family", "words"),
    [
        ({"model_type": "mpnet"}, Pairs, "mpnet is none of bert, camembert, distilbert, roberta, xlm-roberta"),
        ({"position_embedding_type": "relative_key"}, Pairs, "its positions are not absolute"),
        ({"is_decoder": True}, Pairs, "it is a decoder"),
        ({"hidden_act": "gelu_10"}, Pairs, "it has no 'gelu_10'"),
        ({}, Wider, "its family needs more of the network"),
    ],
)
def test_what_cannot_be_converted(config: dict[str, Any], family: type[Dummy], words: str, tmp_path: Path) -> None:
    _, files = classifier("bert", tmp_path)
    changed = files.config | config
    (tmp_path / "config.json").write_text(json.dumps(changed))

    with pytest.raises(InvalidInput, match=f"'a classifier' cannot be converted for ctranslate2: {words}") as caught:
        convert(replace(files, config=changed), family(files), tmp_path, ignore_progress)

    assert caught.value.param == "engine"


@pytest.mark.parametrize(
    ("device", "dtype", "words"),
    [
        ("cpu", "bfloat16", r"the ctranslate2 engine runs float32(, float16)?, int8 on cpu, not bfloat16"),
        ("mps", "auto", "the ctranslate2 engine has no device 'mps'"),
        ("cuda:0", "auto", "ctranslate2 cannot use cuda:0 here"),
    ],
)
def test_what_the_device_has_not(device: str, dtype: str, words: str, folder: Path) -> None:
    if device == "cuda:0" and ctranslate2.get_cuda_device_count():
        device, words = "cuda:99", "ctranslate2 cannot use cuda:99 here"

    with pytest.raises(InvalidInput, match=words):
        load(folder, device, dtype)


def test_a_damaged_conversion_is_told_apart(folder: Path) -> None:
    files = prepare_here(folder, "ctranslate2").files
    weights = files.built / "ctranslate2" / "model.bin"
    weights.write_bytes(weights.read_bytes()[:1000])

    with pytest.raises(Damaged):
        engine_module("ctranslate2").load(files, make_family("sentence_transformer", files), "cpu", "auto")

"""The vectors are sentence-transformers' own."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from infinity_pool.workers.models.loading import LoadedModel
from tests.tiny_models import ARCHITECTURES, POSITIONS, WIDTH, pooling, save_modules, save_network
from tests.workers.conftest import embed, load_here, run

TEXTS = [
    "hello world",
    "",
    "What is the capital of France?",
    "the quick brown fox jumps over the lazy dog " * 40,
    "数千年 \0 ﬁne\u0301 👩‍👩‍👧",
    "a",
    "le chat est assis sur le tapis; 12% (a)",
    "\u202e \t\n  spaces   everywhere \n",
]
NORMALIZE: tuple[str, dict[str, Any]] = ("Normalize", {})
MODES = ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]


def reference(folder: Path | str, texts: list[str] = TEXTS, **options: Any) -> Array:
    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    return np.asarray(model.encode(texts, show_progress_bar=False, **options))


@pytest.fixture
def network(tmp_path: Path) -> Path:
    return save_network("bert", tmp_path)


@pytest.mark.parametrize("kind", ARCHITECTURES)
@pytest.mark.parametrize("engine", ["torch", "onnx"])
def test_every_architecture_in_any_mixture(kind: str, engine: str, tmp_path: Path) -> None:
    folder = save_network(kind, tmp_path, model_max_length=POSITIONS)
    save_modules(folder, pooling("mean"), NORMALIZE)
    family, loaded = load_here(folder, engine)
    expected = reference(folder)

    together = embed(family, loaded, TEXTS)
    order = np.random.default_rng(0).permutation(len(TEXTS))
    shuffled = embed(family, loaded, [TEXTS[place] for place in order])
    alone = np.concatenate([embed(family, loaded, [text]) for text in TEXTS])

    np.testing.assert_allclose(together, expected, atol=1e-5)
    np.testing.assert_allclose(shuffled, expected[order], atol=1e-5)
    np.testing.assert_allclose(alone, expected, atol=1e-5)


@pytest.mark.parametrize("modules", [[], [NORMALIZE]], ids=["raw", "normalized"])
@pytest.mark.parametrize("modes", [[mode] for mode in MODES] + [["cls", "mean"], MODES], ids="+".join)
@pytest.mark.parametrize("kind", ["bert", "qwen3"])
def test_every_pooling(kind: str, modes: list[str], modules: list[Any], tmp_path: Path) -> None:
    folder = save_modules(save_network(kind, tmp_path), pooling(*modes), *modules)
    family, engine = load_here(folder)

    vectors = embed(family, engine, TEXTS)

    assert vectors.shape == (len(TEXTS), WIDTH * len(modes))
    np.testing.assert_allclose(vectors, reference(folder), atol=1e-5)


def test_pooling_on_numpy_is_pooling_on_torch(network: Path) -> None:
    family, _ = load_here(save_modules(network, pooling(*MODES), NORMALIZE))
    batch = family.collate([family.prepare(family.head("embed", {}), TEXTS, {})])
    output = np.random.default_rng(0).standard_normal((*batch["input_ids"].shape, WIDTH), np.float32)

    tensors = {name: torch.from_numpy(array) for name, array in batch.items()}
    on_torch = family.reduce(torch.from_numpy(output), tensors)

    np.testing.assert_allclose(family.reduce(output, batch), on_torch.numpy(), atol=1e-6)


@pytest.mark.parametrize("activation", ["Identity", "Tanh", "ReLU", "Sigmoid", "SiLU", "GELU"])
@pytest.mark.parametrize("engine", ["torch", "onnx"])
def test_dense_modules(activation: str, engine: str, network: Path) -> None:
    kind = "linear.Identity" if activation == "Identity" else f"activation.{activation}"
    first = {"in_features": WIDTH, "out_features": 32, "activation_function": f"torch.nn.modules.{kind}", "bias": True}
    second = {"in_features": 32, "out_features": 24, "activation_function": f"torch.nn.modules.{kind}", "bias": False}
    save_modules(network, pooling("mean"), ("Dense", first), NORMALIZE, ("Dense", second))
    save_file(
        {"linear.weight": torch.randn(32, WIDTH), "linear.bias": torch.randn(32)}, network / "2_Dense/model.safetensors"
    )
    torch.save({"linear.weight": torch.randn(24, 32)}, network / "4_Dense/pytorch_model.bin")
    family, loaded = load_here(network, engine)

    np.testing.assert_allclose(embed(family, loaded, TEXTS), reference(network), atol=1e-5)


def test_layer_norm_and_residual_dense_as_saved_today(tmp_path: Path) -> None:
    from sentence_transformers.sentence_transformer.modules import Dense, LayerNorm, Normalize, Pooling, Transformer

    network = Transformer(str(save_network("bert", tmp_path / "network")))
    norm = LayerNorm(WIDTH)
    torch.nn.init.normal_(norm.norm.weight)
    dense = Dense(WIDTH, 16, use_residual=True)
    model = SentenceTransformer(
        modules=[network, Pooling(WIDTH, "mean"), norm, dense, Normalize()],
        prompts={"query": "query: "},
        device="cpu",
    )
    model.save_pretrained(str(tmp_path / "saved"), create_model_card=False)
    family, engine = load_here(tmp_path / "saved")

    np.testing.assert_allclose(embed(family, engine, TEXTS), reference(tmp_path / "saved"), atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["bert", "qwen3"])
def test_a_prompt_left_out_of_pooling(kind: str, mode: str, tmp_path: Path) -> None:
    prompts = {"query": "query: the quick ", "long": "fox " * 200}
    folder = save_network(kind, tmp_path)
    save_modules(folder, pooling(mode, include_prompt=False), NORMALIZE, prompts=prompts, default_prompt_name="query")
    family, engine = load_here(folder)
    texts = [text for text in TEXTS if text]

    np.testing.assert_allclose(embed(family, engine, texts), reference(folder, texts), atol=1e-5)
    own = reference(folder, texts, prompt="passage: ")
    np.testing.assert_allclose(embed(family, engine, texts, prompt="passage: "), own, atol=1e-5)
    none = reference(folder, texts, prompt="")
    np.testing.assert_allclose(embed(family, engine, texts, prompt=""), none, atol=1e-5)


def test_the_side_of_a_search_chooses_a_prompt(network: Path) -> None:
    save_modules(network, pooling("mean"), prompts={"query": "query: ", "passage": "passage: "})
    family, engine = load_here(network)

    for side, name in {"query": "query", "document": "passage", "passage": "passage"}.items():
        expected = reference(network, prompt_name=name)
        np.testing.assert_allclose(embed(family, engine, TEXTS, input_type=side), expected, atol=1e-5)


def test_prompts_are_put_first(network: Path) -> None:
    save_modules(network, pooling("mean"), prompts={"query": "query: ", "passage": None})
    family, engine = load_here(network)

    for name in ("query", "passage", "document"):
        expected = reference(network, prompt_name=name)
        np.testing.assert_allclose(embed(family, engine, TEXTS, prompt_name=name), expected, atol=1e-5)


@pytest.mark.parametrize("settings", [{"max_seq_length": 16}, {"max_seq_length": 16, "do_lower_case": True}, {}])
def test_the_models_own_limit(settings: dict[str, Any], tmp_path: Path) -> None:
    folder = save_modules(save_network("roberta", tmp_path, model_max_length=100), pooling("mean"), **settings)
    family, engine = load_here(folder)
    limit = settings.get("max_seq_length", 100)
    texts = ["The QUICK Brown fox " * 30, "The " + "x" * 500, "The quick"]

    rows = family.prepare(family.head("embed", {}), texts, {})

    assert family.max_length == SentenceTransformer(str(folder), device="cpu").max_seq_length == limit
    assert rows.lengths[:2].tolist() == [limit, limit]
    assert rows.truncated.tolist() == [True, True, False]
    np.testing.assert_allclose(embed(family, engine, texts), reference(folder, texts), atol=1e-5)


def test_a_limit_beyond_the_positions_there_are_is_theirs(tmp_path: Path) -> None:
    family, engine = load_here(save_modules(save_network("xlm_roberta", tmp_path), pooling("mean")))

    assert family.max_length == POSITIONS
    assert np.isfinite(embed(family, engine, ["fox " * 1000])).all()


def test_the_users_own_limit(network: Path) -> None:
    save_modules(network, pooling("mean"), max_seq_length=16)

    family, _ = load_here(network, max_length=64)

    assert family.prepare(family.head("embed", {}), ["fox " * 1000], {}).lengths.tolist() == [64]
    with pytest.raises(InvalidInput, match="max_length 1000 is over the 128 positions"):
        load_here(network, max_length=1000)
    with pytest.raises(InvalidInput, match="max_length must be over 2"):
        load_here(network, max_length=2)


def test_without_modules_pooling_is_the_mean(network: Path, caplog: pytest.LogCaptureFixture) -> None:
    family, engine = load_here(network)

    assert "pooling is mean, and vectors are not normalised" in caplog.text
    np.testing.assert_allclose(embed(family, engine, TEXTS), reference(network), atol=1e-5)


def test_without_modules_a_decoders_pooling_is_its_last_token(tmp_path: Path) -> None:
    folder = save_network("qwen3", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["Qwen3ForCausalLM"]}))
    family, engine = load_here(folder)

    np.testing.assert_allclose(embed(family, engine, TEXTS), reference(folder), atol=1e-5)


def test_minilm(minilm: LoadedModel) -> None:
    expected = reference(minilm.files.path)

    np.testing.assert_allclose(embed(minilm.family, minilm.engine, TEXTS), expected, atol=1e-5)
    assert (minilm.family.dimensions, minilm.family.max_length) == (384, 256)


def test_vectors_of_tokens(minilm: LoadedModel) -> None:
    folder = minilm.files.path
    expected = SentenceTransformer(str(folder), device="cpu", local_files_only=True).encode(
        TEXTS, output_value="token_embeddings"
    )

    matrices = run(minilm.family, minilm.engine, "embed", TEXTS, pooling="none")
    narrow = run(minilm.family, minilm.engine, "embed", TEXTS, pooling="none", normalize=True, dimensions=8)

    for matrix, short, tokens in zip(matrices, narrow, expected, strict=True):
        np.testing.assert_allclose(matrix, tokens.numpy(), atol=1e-5)
        cut = matrix[:, :8]
        np.testing.assert_allclose(short, cut / np.linalg.norm(cut, axis=1, keepdims=True), atol=1e-5)


def test_dimensions_are_cut_and_normalised_again(minilm: LoadedModel) -> None:
    whole = reference(minilm.files.path)

    cut = embed(minilm.family, minilm.engine, TEXTS, dimensions=100)

    np.testing.assert_allclose(cut, whole[:, :100] / np.linalg.norm(whole[:, :100], axis=1, keepdims=True), atol=1e-5)


def test_dimensions_of_vectors_that_are_not_normalised(network: Path) -> None:
    save_modules(network, pooling("mean"))
    family, engine = load_here(network)
    whole = reference(network)

    np.testing.assert_allclose(embed(family, engine, TEXTS, dimensions=10), whole[:, :10], atol=1e-5)
    unit = embed(family, engine, TEXTS, dimensions=10, normalize=True)
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, atol=1e-5)


def test_a_models_own_normalize_can_be_left_out(network: Path) -> None:
    raw = reference(save_modules(network, pooling("mean")))
    for place in network.glob("*_*"):
        if place.is_dir():
            (place / "config.json").unlink()
            place.rmdir()
    save_modules(network, pooling("mean"), NORMALIZE)
    family, engine = load_here(network)

    np.testing.assert_allclose(embed(family, engine, TEXTS, normalize=False), raw, atol=1e-5)
    np.testing.assert_allclose(embed(family, engine, TEXTS, normalize=False, dimensions=9), raw[:, :9], atol=1e-5)
    assert family.head("embed", {"normalize": False}) != family.head("embed", {})


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"dimensions": 0}, "dimensions"),
        ({"dimensions": 385}, "dimensions"),
        ({"dimensions": True}, "dimensions"),
        ({"dimensions": "10"}, "dimensions"),
        ({"prompt_name": "nope"}, "prompt_name"),
        ({"prompt": "a", "prompt_name": "query"}, "prompt_name"),
        ({"prompt": 3}, "prompt"),
        ({"input_type": "other"}, "input_type"),
        ({"prompt_name": "query", "input_type": "query"}, "input_type"),
        ({"normalize": "yes"}, "normalize"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], param: str, minilm: LoadedModel) -> None:
    with pytest.raises(InvalidInput) as caught:
        minilm.family.head("embed", options)

    assert caught.value.param == param
    assert param in caught.value.message


def test_another_task_is_refused(minilm: LoadedModel) -> None:
    with pytest.raises(InvalidInput, match="cannot rerank, only embed"):
        minilm.family.head("rerank", {})


@pytest.mark.parametrize("bad", [None, 7, b"bytes", "half an emoji \ud83d", ["a"]])
def test_a_bad_item_is_named(bad: Any, minilm: LoadedModel) -> None:
    for options in ({}, {"prompt": "query: "}):
        with pytest.raises(InvalidInput, match=r"^item 1: "):
            minilm.family.prepare(minilm.family.head("embed", options), ["good", bad, "good"], options)


def test_an_item_without_tokens_is_named(tmp_path: Path) -> None:
    folder = save_modules(save_network("qwen3", tmp_path), pooling("lasttoken"))
    backend = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(backend | {"post_processor": None}))
    family, _ = load_here(folder)

    with pytest.raises(InvalidInput, match="item 1: has no tokens"):
        family.prepare(family.head("embed", {}), ["good", "", "good"], {})


@pytest.mark.parametrize(
    ("modules", "words"),
    [
        ([("Pooling", {"pooling_mode": "median"})], "pooling mode 'median'"),
        ([("Pooling", {"pooling_mode_median_tokens": True})], "pooling mode 'pooling_mode_median_tokens'"),
        ([pooling("mean"), ("CNN", {})], "sentence_transformers.models.CNN"),
        ([NORMALIZE], "is not Pooling"),
        (
            [pooling("mean"), ("Dense", {"out_features": 3, "activation_function": "os.system"})],
            "activation 'os.system'",
        ),
        (
            [pooling("mean"), ("Dense", {"out_features": 3, "module_input_name": "token_embeddings"})],
            "token_embeddings",
        ),
        ([pooling("mean"), ("Dense", {"out_features": 3})], "no model.safetensors"),
    ],
)
def test_modules_that_are_not_served_are_refused(modules: list[Any], words: str, network: Path) -> None:
    with pytest.raises(InvalidInput, match=words):
        load_here(save_modules(network, *modules))


@pytest.mark.parametrize(
    "settings",
    [
        {"modality_config": {"message": {"method": "forward"}}},
        {"processing_kwargs": {"text": {"max_length": 3}}},
        {"query_length": 32},
    ],
)
def test_settings_that_are_not_served_are_refused(settings: dict[str, Any], network: Path) -> None:
    save_modules(network, pooling("mean"))
    (network / "sentence_bert_config.json").write_text(json.dumps(settings))

    with pytest.raises(InvalidInput, match=r"is not served|only plain text"):
        load_here(network)


def test_a_chat_model_without_modules_is_refused(tmp_path: Path) -> None:
    folder = save_network("qwen3", tmp_path, chat_template="{{ messages[0].content }}")

    with pytest.raises(InvalidInput, match="chat template"):
        load_here(folder)


def test_the_oldest_layout(tmp_path: Path) -> None:
    """The network in a folder of its own, and its settings under an older name."""
    save_network("bert", tmp_path / "0_Transformer")
    save_modules(tmp_path, pooling("mean"), NORMALIZE)
    modules = json.loads((tmp_path / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "sentence_bert_config.json").unlink()
    (tmp_path / "0_Transformer" / "sentence_roberta_config.json").write_text('{"max_seq_length": 20}')

    for engine_name in ("torch", "onnx"):
        family, engine = load_here(tmp_path, engine_name)

        assert family.max_length == 20
        np.testing.assert_allclose(embed(family, engine, TEXTS), reference(tmp_path), atol=1e-5)


def test_a_models_own_truncation_of_its_vectors(network: Path) -> None:
    save_modules(network, pooling("mean"), NORMALIZE, truncate_dim=24)
    family, engine = load_here(network)

    np.testing.assert_allclose(embed(family, engine, TEXTS), reference(network), atol=1e-5)
    with pytest.raises(InvalidInput, match="dimensions must be from 1 to 24"):
        family.head("embed", {"dimensions": 25})


REMOTE = """
from transformers import BertModel
class Doubled(BertModel):
    def forward(self, **inputs):
        output = super().forward(**inputs)
        output.last_hidden_state = output.last_hidden_state[..., :40] * 2
        return output
"""


def test_code_that_comes_with_a_model_is_run_only_if_asked(
    network: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path_factory.mktemp("modules")))
    monkeypatch.setattr("sys.path", list(sys.path))
    save_modules(network, pooling("mean"))
    config = json.loads((network / "config.json").read_text())
    config |= {"auto_map": {"AutoModel": "remote.Doubled"}, "model_type": "bert"}
    (network / "config.json").write_text(json.dumps(config))
    plain = embed(*load_here(network), TEXTS)
    (network / "remote.py").write_text(REMOTE)

    family, engine = load_here(network, trust_remote_code=True)

    np.testing.assert_allclose(embed(family, engine, TEXTS), plain[:, :40] * 2, atol=1e-5)
    np.testing.assert_allclose(embed(*load_here(network), TEXTS), plain, atol=1e-5)

"""The matrices are those of PyLate's published rules, token by token."""

import json
import string
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import MultiVectorEncoder
from torch.nn import functional

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from infinity_pool.workers.interface import Engine, Family
from tests.tiny_late_interaction import DIM, PYLATE, network_with, save_pylate
from tests.tiny_models import WIDTH, transformers
from tests.workers.conftest import load_here, prepare_here, run

TEXTS = [
    "hello world",
    "",
    "What is the capital of France?",
    "the quick brown fox jumps over the lazy dog. " * 40,
    "(by 3.4%) ... !?",
    "a",
    "le chat est assis sur le tapis; die Katze",
]


def save_stanford(folder: Path, pickled: bool = False, **metadata: Any) -> Path:
    """Write a folder as the Stanford implementation does: all weights in one file, and its own settings."""
    network, tokenizer = network_with("bert", "[unused0]", "[unused1]", "[QueryMarker]", "[DocumentMarker]")
    tokenizer.save_pretrained(folder)
    network.config.architectures = ["HF_ColBERT"]
    network.config.save_pretrained(folder)
    weights = {f"bert.{name}": tensor for name, tensor in network.state_dict().items()}
    weights["linear.weight"] = torch.randn(DIM, WIDTH) / 8
    if pickled:
        torch.save(weights, folder / "pytorch_model.bin")
    else:
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    if metadata:
        (folder / "artifact.metadata").write_text(json.dumps(metadata))
    return folder


@torch.inference_mode()
def pylate(folder: Path, weights: list[Any], settings: dict[str, Any], query: bool) -> list[Array]:
    """Do what PyLate does with one batch of all texts, with transformers alone; `weights` are those of the layers."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    network = transformers.AutoModel.from_pretrained(folder).eval()
    prefix = settings["query_prefix" if query else "document_prefix"]
    length = settings["query_length" if query else "document_length"]
    expand = query and settings["do_query_expansion"]
    tokenizer.pad_token_id = tokenizer.mask_token_id
    features = tokenizer(
        TEXTS,
        padding="max_length" if expand else True,
        truncation=True,
        max_length=length - bool(prefix),
        return_tensors="pt",
    )
    if prefix:
        fills = {"input_ids": tokenizer.convert_tokens_to_ids(prefix), "attention_mask": 1, "token_type_ids": 0}
        for name, rows in features.items():
            marker = torch.full((len(rows), 1), fills[name])
            features[name] = torch.cat([rows[:, :1], marker, rows[:, 1:]], dim=1)
    if query and settings["attend_to_expansion_tokens"]:
        features["attention_mask"].fill_(1)
    vectors = network(**features).last_hidden_state
    for layer in weights:
        vectors = layer(vectors)
    kept = features["attention_mask"].bool()
    if expand:
        kept = torch.ones_like(kept)
    if not query:
        skipped = torch.tensor([tokenizer.convert_tokens_to_ids(word) for word in settings["skiplist_words"]])
        kept &= ~torch.isin(features["input_ids"], skipped.long())
    return [functional.normalize(rows[mask], dim=-1).numpy() for rows, mask in zip(vectors, kept, strict=True)]


def linear(folder: Path) -> Any:
    weight = load_file(folder / "1_Dense" / "model.safetensors")["linear.weight"]
    return lambda vectors: vectors @ weight.T


def assert_alike(ours: list[Array], theirs: list[Array]) -> None:
    assert [matrix.shape for matrix in ours] == [matrix.shape for matrix in theirs]
    assert {matrix.dtype.name for matrix in ours} == {"float32"}
    for mine, reference in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, reference, atol=1e-5)


@pytest.mark.parametrize("engine", ["torch", "onnx"])
@pytest.mark.parametrize("kind", ["bert", "modernbert", "xlm_roberta"])
def test_pylate_in_any_mixture(kind: str, engine: str, tmp_path: Path) -> None:
    short: dict[str, Any] = {"query_length": 8} if kind == "modernbert" else {}  # its tokens see 8 others to each side
    folder = save_pylate(tmp_path, kind, **short)
    family, loaded = load_here(folder, engine)
    order = np.random.default_rng(0).permutation(len(TEXTS)).tolist()

    def matrices(texts: list[str], side: str) -> list[Array]:
        return list(run(family, loaded, "multivector", texts, input_type=side))

    for side in ("query", "document"):
        expected = pylate(folder, [linear(folder)], PYLATE | short, query=side == "query")
        assert_alike(matrices(TEXTS, side), expected)
        assert_alike(matrices([TEXTS[at] for at in order], side), [expected[at] for at in order])
        assert_alike([matrices([text], side)[0] for text in TEXTS], expected)


def test_expansions_beyond_a_window_are_torchs(tmp_path: Path) -> None:
    folder = save_pylate(tmp_path, "modernbert")
    family, engine = load_here(folder)

    queries = run(family, engine, "multivector", TEXTS, input_type="query")

    assert_alike(queries, pylate(folder, [linear(folder)], PYLATE, query=True))
    with pytest.raises(InvalidInput, match="torch only"):
        load_here(folder, "onnx")


def test_what_passes_over_padding_cannot_run_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be converted for ctranslate2"):
        load_here(save_pylate(tmp_path), "ctranslate2")


SETTINGS: list[dict[str, Any]] = [
    {"attend_to_expansion_tokens": True},
    {"do_query_expansion": False},
    {"skiplist_words": [".", "the"]},
    {"skiplist_words": []},
    {"query_prefix": "", "document_prefix": ""},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: "+".join(settings))
def test_pylates_settings(settings: dict[str, Any], tmp_path: Path) -> None:
    folder = save_pylate(tmp_path, **settings)
    family, engine = load_here(folder)

    for side in ("query", "document"):
        expected = pylate(folder, [linear(folder)], PYLATE | settings, query=side == "query")
        assert_alike(run(family, engine, "multivector", TEXTS, input_type=side), expected)


def test_settings_that_are_not_named_are_pylates_own(tmp_path: Path) -> None:
    nothing: dict[str, Any] = dict.fromkeys(PYLATE)
    folder = save_pylate(tmp_path, **nothing)
    family, engine = load_here(folder)
    usual = PYLATE | {"query_length": 32, "document_length": 128}  # 180, but the network has no more places

    for side in ("query", "document"):
        expected = pylate(folder, [linear(folder)], usual, query=side == "query")
        assert_alike(run(family, engine, "multivector", TEXTS, input_type=side), expected)


def test_it_is_sentence_transformers_own_too(tmp_path: Path) -> None:
    folder = save_pylate(tmp_path, skiplist_words=[".", "the"])
    family, engine = load_here(folder)
    model = MultiVectorEncoder(str(folder), device="cpu", local_files_only=True)

    queries, documents = model.encode_query(TEXTS), model.encode_document(TEXTS)

    assert_alike(run(family, engine, "multivector", TEXTS, input_type="query"), [matrix.numpy() for matrix in queries])
    assert_alike(run(family, engine, "multivector", TEXTS), [matrix.numpy() for matrix in documents])


def test_several_dense_layers(tmp_path: Path) -> None:
    folder = save_pylate(tmp_path)
    first, residual = torch.nn.Linear(WIDTH, 2 * DIM), torch.nn.Linear(WIDTH, 2 * DIM, bias=False)
    last = torch.nn.Linear(2 * DIM, 2 * DIM)
    config = {"activation_function": "torch.nn.modules.activation.GELU", "use_residual": True}
    modules = json.loads((folder / "modules.json").read_text())
    for number, layer in ((1, first), (2, last)):
        place = folder / f"{number}_Dense"
        place.mkdir(exist_ok=True)
        weights = {f"linear.{name}": tensor for name, tensor in layer.state_dict().items()}
        extra = {"residual.weight": residual.weight.detach()} if layer is first else {}
        save_file(weights | extra, place / "model.safetensors")
        (place / "config.json").write_text(json.dumps(config))
    modules.append(modules[1] | {"path": "2_Dense", "type": "sentence_transformers.models.Dense"})
    (folder / "modules.json").write_text(json.dumps(modules))

    def wider(vectors: Any) -> Any:
        return functional.gelu(first(vectors)) + residual(vectors)

    def same(vectors: Any) -> Any:
        return functional.gelu(last(vectors)) + vectors

    for engine in ("torch", "onnx"):
        family, loaded = load_here(folder, engine)
        assert family.dimensions == 2 * DIM
        expected = pylate(folder, [wider, same], PYLATE, query=False)
        assert_alike(run(family, loaded, "multivector", TEXTS), expected)


STANFORD: list[tuple[bool, dict[str, Any]]] = [
    (False, {}),
    (True, {"query_maxlen": 20, "doc_maxlen": 50, "query_token_id": "[unused0]", "doc_token_id": "[unused1]"}),
    (
        False,
        {
            "query_maxlen": 20,
            "doc_maxlen": 60,
            "query_token_id": "[QueryMarker]",
            "doc_token_id": "[DocumentMarker]",
            "attend_to_mask_tokens": True,
            "mask_punctuation": False,
        },
    ),
]


@pytest.mark.parametrize(("pickled", "metadata"), STANFORD, ids=["bare", "colbertv2", "jina"])
def test_the_stanford_layout(pickled: bool, metadata: dict[str, Any], tmp_path: Path) -> None:
    folder = save_stanford(tmp_path, pickled, **metadata)
    weight = torch.load(folder / "pytorch_model.bin") if pickled else load_file(folder / "model.safetensors")
    settings = PYLATE | {
        "query_prefix": metadata.get("query_token_id", "[unused0]"),
        "document_prefix": metadata.get("doc_token_id", "[unused1]"),
        "query_length": metadata.get("query_maxlen", 32),
        "document_length": metadata.get("doc_maxlen", 128),
        "attend_to_expansion_tokens": metadata.get("attend_to_mask_tokens", False),
        "skiplist_words": list(string.punctuation) if metadata.get("mask_punctuation", True) else [],
    }
    family, engine = load_here(folder)

    for side in ("query", "document"):
        layer = lambda vectors: vectors @ weight["linear.weight"].T  # noqa: E731
        expected = pylate(folder, [layer], settings, query=side == "query")
        assert_alike(run(family, engine, "multivector", TEXTS, input_type=side), expected)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Family, Engine]:
    return load_here(save_pylate(tmp_path_factory.mktemp("colbert")))


def test_dimensions_cut_the_width_and_no_token(loaded: tuple[Family, Engine]) -> None:
    whole = run(*loaded, "multivector", TEXTS)

    narrow = run(*loaded, "multivector", TEXTS, dimensions=8)

    expected = [matrix[:, :8] / np.linalg.norm(matrix[:, :8], axis=1, keepdims=True) for matrix in whole]
    assert_alike(narrow, expected)


def test_what_is_said_of_it(loaded: tuple[Family, Engine]) -> None:
    family, _ = loaded
    rows = family.prepare(family.head("multivector", {"input_type": "query"}), TEXTS, {})

    assert (family.tasks, family.dimensions, family.max_length) == (("multivector",), DIM, 40)
    assert rows.lengths.tolist() == [16] * len(TEXTS)
    assert rows.truncated.tolist() == [text == TEXTS[3] for text in TEXTS]
    assert family.head("multivector", {}) == family.head("multivector", {"input_type": "document"})
    assert family.head("multivector", {}) != family.head("multivector", {"input_type": "query"})


def test_the_users_own_limit_is_that_of_documents(tmp_path: Path) -> None:
    folder = save_pylate(tmp_path)
    family, _ = load_here(folder, max_length=100)

    assert family.prepare(family.head("multivector", {}), TEXTS[3:4], {}).lengths.tolist() == [100]
    with pytest.raises(InvalidInput, match="max_length 1000 is over the 128 positions"):
        load_here(folder, max_length=1000)


def test_the_engine_is_chosen_by_its_matrices(tmp_path: Path) -> None:
    assert "onnx differs from torch by" in prepare_here(save_pylate(tmp_path), "auto").reason


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"dimensions": 0}, "dimensions"),
        ({"dimensions": DIM + 1}, "dimensions"),
        ({"dimensions": True}, "dimensions"),
        ({"input_type": "passage"}, "input_type"),
        ({"input_type": ["query"]}, "input_type"),
        ({"top_k": 5}, "top_k"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], param: str, loaded: tuple[Family, Engine]) -> None:
    with pytest.raises(InvalidInput) as caught:
        loaded[0].head("multivector", options)

    assert caught.value.param == param
    assert param in caught.value.message


@pytest.mark.parametrize("bad", [None, 7, b"bytes", "half an emoji \ud83d"])
def test_a_bad_item_is_named(bad: Any, loaded: tuple[Family, Engine]) -> None:
    with pytest.raises(InvalidInput, match=r"^item 1: "):
        loaded[0].prepare(loaded[0].head("multivector", {}), ["good", bad, "good"], {})


def test_a_marker_that_was_never_trained_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r'the marker "\[Query\] " is no token of this model'):
        load_here(save_pylate(tmp_path, query_prefix="[Query] "))


def test_a_checkpoint_without_its_layer_is_refused(tmp_path: Path) -> None:
    folder = save_stanford(tmp_path)
    weights = load_file(folder / "model.safetensors")
    del weights["linear.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    with pytest.raises(InvalidInput, match=r"has no linear\.weight"):
        load_here(folder)


def test_a_folder_without_a_projection_is_refused(tmp_path: Path) -> None:
    folder = save_pylate(tmp_path, model_type="ColBERT")
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps(modules[:1]))

    with pytest.raises(InvalidInput, match="has no Dense module"):
        load_here(folder)

"""The scores are those of the recipe on Qwen3-Reranker's model card, in plain transformers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import processors

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from infinity_pool.workers.files.locate import locate
from infinity_pool.workers.models.detect import detect
from infinity_pool.workers.settings import ModelSettings
from tests.tiny_models import ARCHITECTURES, transformers
from tests.workers.conftest import ignore_progress, load_here, run

SYSTEM = (
    "Judge whether the Document meets the requirements based on the Query and the Instruct provided. "
    'Note that the answer can only be "yes" or "no".'
)
PREFIX = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n"
SUFFIX = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
TASK = "Given a web search query, retrieve relevant passages that answer the query"
LIMIT = 300
LIMITS = {"qwen3": LIMIT, "qwen2": 600}
PAIRS = [
    ["What is the capital of France?", "Paris is the capital of France."],
    ["a cat", ""],
    ["a cat", "the quick brown fox jumps over the lazy dog " * 40],
    ["", "数千年 \0 ﬁne\u0301 👩‍👩‍👧"],
]


def save_causal_reranker(folder: Path, kind: str = "qwen3") -> Path:
    """Write a tiny language model whose name says that it reranks, and whose tokenizer adds nothing to a text."""
    place = folder / "tiny-Reranker"
    torch.manual_seed(0)
    network, tokenizer = ARCHITECTURES[kind]()
    tokenizer.add_tokens(["yes", "no"])
    tokenizer.backend_tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.model_max_length = LIMITS[kind]
    network.config.vocab_size, network.config.max_position_embeddings = len(tokenizer), 1024
    network.config.tie_word_embeddings = True
    causal = transformers.AutoModelForCausalLM.from_config(network.config)
    for weights in causal.parameters():
        if weights.dim() == 2:
            torch.nn.init.normal_(weights, std=0.15)
    causal.save_pretrained(place)
    tokenizer.save_pretrained(place)
    return place


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_causal_reranker(tmp_path)


def reference(folder: Path, instruction: str = TASK, raw: bool = False) -> Array:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, padding_side="left")
    network = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    prefix, suffix = (tokenizer.encode(text, add_special_tokens=False) for text in (PREFIX, SUFFIX))
    texts = [f"<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}" for query, document in PAIRS]
    room = LIMIT - len(prefix) - len(suffix)
    inputs = tokenizer(texts, truncation="longest_first", return_attention_mask=False, max_length=room)
    inputs["input_ids"] = [prefix + ids + suffix for ids in inputs["input_ids"]]
    batch = tokenizer.pad(inputs, padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = network(**batch).logits[:, -1, :]
    words = torch.stack([logits[:, tokenizer.convert_tokens_to_ids(word)] for word in ("no", "yes")], dim=1)
    scores = words[:, 1] - words[:, 0] if raw else torch.nn.functional.log_softmax(words, dim=1)[:, 1].exp()
    return np.asarray(scores)


@pytest.mark.parametrize("engine", ["torch", "onnx"])
def test_in_any_mixture(engine: str, folder: Path) -> None:
    family, loaded = load_here(folder, engine)
    expected = reference(folder)

    together = run(family, loaded, "rerank", PAIRS)
    turned = run(family, loaded, "rerank", PAIRS[::-1])
    alone = np.concatenate([run(family, loaded, "rerank", [pair]) for pair in PAIRS])

    assert family.max_length == LIMIT
    assert np.ptp(expected) > 0.02
    np.testing.assert_allclose(together, expected, atol=1e-5)
    np.testing.assert_allclose(turned, expected[::-1], atol=1e-5)
    np.testing.assert_allclose(alone, expected, atol=1e-5)


def test_options(folder: Path) -> None:
    family, engine = load_here(folder)

    own = run(family, engine, "rerank", PAIRS, instruction="Find cats")
    np.testing.assert_allclose(own, reference(folder, "Find cats"), atol=1e-5)
    raw = run(family, engine, "rerank", PAIRS, raw_scores=True)
    np.testing.assert_allclose(raw, reference(folder, raw=True), atol=1e-4)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"instruction": 1}, "instruction"),
        ({"raw_scores": "yes"}, "raw_scores"),
        ({"colour": "blue"}, "colour"),
    ]
    for options, param in wrong:
        with pytest.raises(InvalidInput) as caught:
            family.head("rerank", options)
        assert caught.value.param == param


def test_what_cannot_be_ranked(folder: Path) -> None:
    family, _ = load_here(folder)
    head = family.head("rerank", {})

    with pytest.raises(InvalidInput, match="leaves no room") as long:
        family.prepare(head, [PAIRS[0], ["word " * 300, "a"]], {})
    assert (long.value.param, long.value.item) == ("query", 1)
    with pytest.raises(InvalidInput, match="a pair of two texts") as lone:
        family.prepare(head, [PAIRS[0], "alone"], {})
    assert lone.value.item == 1
    assert family.prepare(head, PAIRS, {}).truncated.tolist() == [False, False, True, False]


def test_which_are_rerankers(folder: Path) -> None:
    assert detect(locate(ModelSettings(model=str(folder)), ignore_progress)) == "causal_reranker"
    other = folder.rename(folder.parent / "tiny-language-model")
    assert detect(locate(ModelSettings(model=str(other)), ignore_progress)) == "sentence_transformer"


MXBAI_SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
MXBAI_TASK = (
    "You are a search relevance expert who evaluates how well documents match search queries. For each query-document "
    "pair, carefully analyze the semantic relationship between them, then provide your binary relevance judgment "
    "(0 for not relevant, 1 for relevant).\nRelevance:"
)


def mxbai_reference(folder: Path, instruction: str = "") -> Array:
    """Score the pairs as mxbai-rerank-v2's card does: each part tokenized by itself, the difference of two logits."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    network = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()

    def ids(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False))

    before = ids(f"<|im_start|>system\n{MXBAI_SYSTEM}<|im_end|>\n<|im_start|>user\n")
    after = ids("\n") + ids(MXBAI_TASK) + ids("<|im_end|>\n<|im_start|>assistant\n")
    scores = []
    for query, document in PAIRS:
        asked = f"instruction: {instruction}\nquery: {query}" if instruction else f"query: {query}"
        pair = (ids(asked) + ids("\n") + ids(f"document: {document}"))[: LIMITS["qwen2"] - len(before) - len(after)]
        with torch.no_grad():
            logits = network(torch.tensor([before + pair + after])).logits[0, -1]
        scores.append(float(logits[ids("1")[0]] - logits[ids("0")[0]]))
    return np.array(scores)


@pytest.mark.parametrize("engine", ["torch", "onnx"])
def test_the_recipe_of_mxbai(engine: str, tmp_path: Path) -> None:
    folder = save_causal_reranker(tmp_path, "qwen2")
    family, loaded = load_here(folder, engine)
    expected = mxbai_reference(folder)

    assert family.max_length == LIMITS["qwen2"]
    assert np.ptp(expected) > 0.02
    np.testing.assert_allclose(run(family, loaded, "rerank", PAIRS), expected, atol=1e-4)
    alone = np.concatenate([run(family, loaded, "rerank", [pair]) for pair in PAIRS])
    np.testing.assert_allclose(alone, expected, atol=1e-4)
    own = run(family, loaded, "rerank", PAIRS, instruction="Find cats")
    np.testing.assert_allclose(own, mxbai_reference(folder, "Find cats"), atol=1e-4)
    rows = family.prepare(family.head("rerank", {}), PAIRS, {})
    assert rows.truncated.tolist() == [False, False, True, False]
    assert rows.lengths.max() == LIMITS["qwen2"]
    with pytest.raises(InvalidInput, match="leaves no room"):
        family.prepare(family.head("rerank", {}), [["word " * 900, "a"]], {})

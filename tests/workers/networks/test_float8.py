"""float8 by torchao, on a CPU, where products are computed in the network's own format: the weights are the same."""

import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.engines.torch import TorchEngine
from infinity_pool.workers.interface import Family
from infinity_pool.workers.models.choices import engine_module, make_family
from infinity_pool.workers.networks import float8
from infinity_pool.workers.networks.float8 import Float8Embedding, quantise, refuse_without, weight_bytes
from tests.tiny_models import pooling, save_modules, save_network
from tests.workers.conftest import embed, load_here, prepare_here
from tests.workers.families.test_causal_reranker import save_causal_reranker

TEXTS = ["hello world", "What is the capital of France?", "the quick brown fox " * 20]


@pytest.fixture
def torchao(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have torchao, from a folder of its own if need be: where it is installed transformers imports it each time."""
    if find_spec("torchao") is None:
        monkeypatch.syspath_prepend(str(Path(sys.prefix) / "fp8"))
    assert find_spec("torchao") is not None, "torchao is not installed: `make test` does it"


@pytest.fixture
def model(tmp_path: Path) -> tuple[Family, TorchEngine]:
    folder = save_modules(save_network("bert", tmp_path), pooling("mean"))
    wide = BertConfig.from_pretrained(folder, hidden_size=256, intermediate_size=512)  # so that scales are few
    BertModel(wide).save_pretrained(folder)
    family, engine = load_here(folder)
    assert isinstance(engine, TorchEngine)
    return family, engine


@pytest.mark.usefixtures("torchao")
def test_half_the_bytes_and_nearly_the_same_vectors(model: tuple[Family, TorchEngine]) -> None:
    family, engine = model
    whole = embed(family, engine, TEXTS)
    halves = weight_bytes(engine._network) / 2

    engine.quantise(dynamic=False)

    small = embed(family, engine, TEXTS)
    assert engine.dtype == "float8"
    assert weight_bytes(engine._network) <= float8.MOST_BYTES * halves
    assert 0.99 < np.min((small * whole).sum(1) / np.linalg.norm(small, axis=1) / np.linalg.norm(whole, axis=1)) < 1


@pytest.mark.usefixtures("torchao")
def test_one_that_comes_too_far_is_refused_with_the_figure(
    model: tuple[Family, TorchEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(float8, "LEAST_COSINE", 1.0)

    with pytest.raises(InvalidInput, match=r"in float8 its cosine to float32 is 0\.99\d\d, where 1.0 is wanted"):
        model[1].quantise(dynamic=False)


@pytest.mark.usefixtures("torchao")
def test_one_that_stays_too_large_is_refused_with_the_figure(tmp_path: Path) -> None:
    _, engine = load_here(save_causal_reranker(tmp_path))  # whose table is also what logits are made with
    assert isinstance(engine, TorchEngine)

    with pytest.raises(InvalidInput, match=r"its weights are \d\d\d?% of float16's bytes, and over 55%"):
        engine.quantise(dynamic=False)


def test_a_table_in_float8_gives_rows_near_to_its_own() -> None:
    table = torch.randn(32, 16) * torch.logspace(-6, 6, 32)[:, None]  # each row has a scale
    table[3] = 0
    small = Float8Embedding(table)
    ids = torch.tensor([[0, 3], [31, 7]])

    error = (small(ids) - table[ids]).abs().amax(-1) / table[ids].abs().amax(-1).clamp(min=1e-12)

    assert error.max() < 2**-4  # half of what 3 bits tell apart
    assert small(ids).shape == (2, 2, 16)
    assert Float8Embedding(table.bfloat16())(ids).dtype == torch.bfloat16


def test_without_torchao_it_is_said_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchao.quantization", None)
    monkeypatch.setitem(sys.modules, "torchao", None)

    with pytest.raises(InvalidInput, match=r"float8 needs 'torchao.*', which is not installed: extra fp8"):
        quantise(torch.nn.Linear(16, 16), dynamic=False)


def test_a_cpu_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    files = prepare_here(save_modules(save_network("bert", tmp_path), pooling("mean"))).files

    with pytest.raises(InvalidInput, match="float8 needs a GPU that multiplies in it, which cpu is not"):
        engine_module("torch").load(files, make_family("sentence_transformer", files), "cpu", "float8")


@pytest.mark.parametrize(
    ("hip", "capability", "architecture", "able"),
    [
        (None, (8, 0), "", False),
        (None, (8, 9), "", True),
        (None, (9, 0), "", True),
        ("6.2", (9, 0), "gfx90a:sramecc+", False),  # AMD's numbers are others
        ("6.2", (9, 4), "gfx942:sramecc+", True),
    ],
)
def test_which_gpus_have_it(
    hip: Any, capability: tuple[int, int], architecture: str, able: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(gcnArchName=architecture))

    if able:
        refuse_without("cuda:0")
    else:
        with pytest.raises(InvalidInput, match="float8 needs compute capability"):
            refuse_without("cuda:0")

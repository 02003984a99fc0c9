from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.device.devices import kind_of
from infinity_pool.workers.engines.torch import TorchEngine, _shown
from infinity_pool.workers.interface import Engine
from infinity_pool.workers.models.choices import engine_module, make_family
from infinity_pool.workers.networks.packing import VARLEN
from tests.tiny_models import pooling, save_modules, save_network
from tests.workers.conftest import embed, load_here, prepare_here

TEXTS = ["hello world", "What is the capital of France?", "the quick brown fox " * 20]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_modules(save_network("bert", tmp_path), pooling("mean"), ("Normalize", {}))


def load(folder: Path, dtype: str) -> Engine:
    files = prepare_here(folder).files
    return engine_module("torch").load(files, make_family("sentence_transformer", files), "cpu", dtype)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_near_and_says_so(dtype: str, folder: Path) -> None:
    family, whole = load_here(folder)
    half = load(folder, dtype)

    vectors = embed(family, half, TEXTS)

    assert (whole.dtype, half.dtype) == ("float32", dtype)
    assert vectors.dtype == np.float32
    assert (vectors * embed(family, whole, TEXTS)).sum(1).min() > 0.999
    assert whole.cosine is None
    assert half.cosine is not None
    assert 0.999 < half.cosine < 1


def test_weights_of_half_precision_are_run_in_float32(folder: Path) -> None:
    weights = {name: tensor.bfloat16() for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})

    _, engine = load_here(folder)

    assert engine.dtype == "float32"


def test_no_gradients_are_kept(folder: Path) -> None:
    family, engine = load_here(folder)
    batch = family.collate([family.prepare(family.head("embed", {}), TEXTS, {})])
    seen = []

    engine.run(batch, lambda output, tensors: seen.append(output) or family.reduce(output, tensors))  # type: ignore[func-returns-value]

    assert isinstance(seen[0], torch.Tensor)
    assert not seen[0].requires_grad


def test_missing_weights_are_not_made_up(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    name = next(name for name in weights if "attention" in name)
    save_file({key: tensor for key, tensor in weights.items() if key != name}, folder / "model.safetensors")

    with pytest.raises(InvalidInput, match=f"has no weights for {name}"):
        load_here(folder)


@pytest.mark.parametrize(
    ("dtype", "words"),
    [("float3", "has no dtype 'float3'$"), ("int8", "has no dtype 'int8'; onnx and ctranslate2 have it")],
)
def test_a_dtype_that_it_has_not(dtype: str, words: str, folder: Path) -> None:
    with pytest.raises(InvalidInput, match=f"the torch engine {words}"):
        load(folder, dtype)


def test_a_runtime_of_another_engine_is_refused(folder: Path) -> None:
    files = prepare_here(folder).files

    with pytest.raises(InvalidInput, match="the torch engine has no device 'tensorrt:0'; the onnx engine has"):
        engine_module("torch").load(files, make_family("sentence_transformer", files), "tensorrt:0", "auto")


@pytest.mark.filterwarnings("ignore")  # compilers warn of themselves
def test_compiled_it_gives_the_same_vectors(folder: Path) -> None:
    family, engine = load_here(folder)
    assert isinstance(engine, TorchEngine)
    expected = embed(family, engine, TEXTS)

    engine.compile(backend="eager")  # what is traced is the same for every one of them

    np.testing.assert_allclose(embed(family, engine, TEXTS), expected, atol=1e-5)


def test_what_is_packed_is_compiled_behind_the_packing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    family, engine = load_here(folder)
    assert isinstance(engine, TorchEngine)
    assert engine.pack(VARLEN)
    shapes: list[tuple[int, ...]] = []

    def compiled(function: Any, dynamic: bool, backend: str) -> Any:
        def run(**inputs: Any) -> Any:
            shapes.append(tuple(inputs["input_ids"].shape))
            return function(**inputs)

        return run

    monkeypatch.setattr(torch, "compile", compiled)
    engine.compile()
    shapes.clear()
    embed(family, engine, ["a", "a"])

    assert shapes == [(1, 6)]


@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_compiled_is_refused_with_the_reason(folder: Path) -> None:
    def backend(graph: Any, inputs: Any) -> Any:
        raise RuntimeError("no C++ compiler\nand more")

    _, engine = load_here(folder)
    assert isinstance(engine, TorchEngine)

    with pytest.raises(InvalidInput, match="this model cannot be compiled: it fails: BackendCompilerFailed") as caught:
        engine.compile(backend=backend)

    assert caught.value.param == "compile"


def test_two_threads_get_each_their_own(folder: Path) -> None:
    family, engine = load_here(folder)
    assert isinstance(engine, TorchEngine)
    expected = [embed(family, engine, [text]) for text in TEXTS]
    assert engine.pack(VARLEN)

    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda text: embed(family, engine, [text]), TEXTS * 10))

    for place, vectors in enumerate(found):
        np.testing.assert_allclose(vectors, expected[place % len(TEXTS)], atol=1e-5)


def test_a_model_that_is_to_be_compiled_is_at_load(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    def compiler(function: Any, dynamic: bool, backend: str) -> Any:
        compiled.append(backend)
        return function

    monkeypatch.setattr(torch, "compile", compiler)

    load_here(folder)
    assert compiled == []
    load_here(folder, compile=True)

    assert compiled == ["inductor"]


@pytest.mark.parametrize(("hip", "shown"), [(None, "cuda:1"), ("6.2.41133", "cuda:1 ROCm")])
def test_rocm_is_shown(hip: str | None, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", hip)

    assert _shown("cuda:1") == shown
    assert kind_of(shown) == "cuda"
    assert _shown("cpu") == "cpu"

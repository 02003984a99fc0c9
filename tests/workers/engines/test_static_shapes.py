"""The engines for Inferentia and TPUs, without either: what their libraries are asked for, and that nothing is lost."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.interface import Family, ModelFiles
from infinity_pool.workers.models.check import absent
from infinity_pool.workers.models.choices import engine_module, make_family
from infinity_pool.workers.models.choose import _rivals
from infinity_pool.workers.networks.buckets import bucket, doubling, fill
from tests.tiny_models import pooling, save_modules, save_network, save_scorer
from tests.workers.conftest import embed, ignore_progress, load_here, prepare_here, run

TEXTS = ["hello world", "a", "What is the capital of France?", "the quick brown fox " * 20] * 3
ENGINES = {"neuron": "optimum-neuron", "tpu": "torch_xla"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_modules(save_network("bert", tmp_path, model_max_length=128), pooling("mean"))


class Programs:
    """Stands for optimum-neuron's classes: one shape each, and saved and loaded by folder."""

    auto_class: Any = None

    def __init__(self, network: Any, shape: tuple[int, int]) -> None:
        self.network = network
        self.shape = shape

    @classmethod
    def from_pretrained(cls, path: str, export: bool = False, **options: Any) -> "Programs":
        if not export:
            return cls(cls.auto_class.from_pretrained(path).eval(), tuple(np.load(Path(path) / "shape.npy")))
        assert options["auto_cast_type"] == "bf16"
        return cls(cls.auto_class.from_pretrained(path).eval(), (options["batch_size"], options["sequence_length"]))

    def save_pretrained(self, path: Path) -> None:
        self.network.save_pretrained(path)
        np.save(path / "shape.npy", self.shape)

    def __call__(self, **inputs: torch.Tensor) -> Any:
        assert {tuple(array.shape) for array in inputs.values()} == {self.shape}
        with torch.inference_mode():
            return self.network(**inputs)


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int]]]:
    """Have both libraries installed; gives the shapes that the TPU was asked to compile."""
    neuron: Any = ModuleType("optimum.neuron")
    for name in ("FeatureExtraction", "SequenceClassification"):
        auto = getattr(transformers, {"FeatureExtraction": "AutoModel"}.get(name, f"AutoModelFor{name}"))
        setattr(neuron, f"NeuronModelFor{name}", type(name, (Programs,), {"auto_class": auto}))
    xla: Any = ModuleType("torch_xla")
    shapes: list[tuple[int, int]] = []
    xla.device, xla.sync = lambda: torch.device("cpu"), lambda: None
    xla.shapes = shapes
    for name, module in {"optimum": ModuleType("optimum"), "optimum.neuron": neuron, "torch_xla": xla}.items():
        monkeypatch.setitem(sys.modules, name, module)
    yield shapes
    for engine in ENGINES:
        sys.modules.pop(f"infinity_pool.workers.engines.{engine}", None)


@pytest.mark.parametrize("engine", ENGINES)
def test_without_its_library_it_is_refused_and_auto_passes_over_it(engine: str) -> None:
    with pytest.raises(
        InvalidInput, match=f"engine '{engine}' needs {ENGINES[engine]}, which does not import"
    ) as caught:
        engine_module(engine)

    assert caught.value.param == "engine"
    assert absent(engine, caught.value)
    assert engine not in _rivals()


def load(folder: Path, engine: str, device: str = "cpu", dtype: str = "auto") -> tuple[Family, Any]:
    found = prepare_here(folder, engine)
    files: ModelFiles = found.files
    family = make_family("cross_encoder" if "labels" in files.extra else "sentence_transformer", files)
    return family, engine_module(engine).load(files, family, device, dtype)


@pytest.mark.usefixtures("libraries")
@pytest.mark.parametrize("engine", ENGINES)
def test_vectors_are_those_of_torch(engine: str, folder: Path) -> None:
    family, loaded = load(folder, engine, dtype="float32" if engine == "tpu" else "auto")
    expected = embed(*load_here(folder), TEXTS)

    np.testing.assert_allclose(embed(family, loaded, TEXTS), expected, atol=1e-5)
    assert loaded.device == engine


@pytest.mark.usefixtures("libraries")
def test_scores_are_those_of_torch(tmp_path: Path) -> None:
    folder = save_scorer("bert", tmp_path)
    pairs = [["a query", text] for text in TEXTS]
    expected = run(*load_here(folder), "rerank", pairs, raw_scores=True)

    np.testing.assert_allclose(run(*load(folder, "neuron"), "rerank", pairs, raw_scores=True), expected, atol=1e-4)


@pytest.mark.usefixtures("libraries")
@pytest.mark.parametrize(
    ("engine", "device", "dtype", "words"),
    [
        ("neuron", "cuda:0", "auto", "the neuron engine has a device of its own"),
        ("neuron", "cpu", "float16", "the neuron engine runs bfloat16, not float16"),
        ("tpu", "mps", "auto", "the tpu engine has a device of its own"),
        ("tpu", "cpu", "int8", "the tpu engine runs auto, bfloat16, float32, not int8"),
    ],
)
def test_what_they_have_not_is_named(engine: str, device: str, dtype: str, words: str, folder: Path) -> None:
    with pytest.raises(InvalidInput, match=words):
        load(folder, engine, device, dtype)


@pytest.mark.usefixtures("libraries")
def test_a_family_of_several_towers_is_refused_by_both(folder: Path) -> None:
    family, _ = load_here(folder)
    family.modalities, family.auto_class = ("text", "image"), "AutoModelForMaskedLM"
    files = prepare_here(folder).files

    with pytest.raises(InvalidInput, match="does not run on neuron"):
        engine_module("neuron").convert(files, family, folder, ignore_progress)
    with pytest.raises(InvalidInput, match="does not run on tpu"):
        engine_module("tpu").load(files, family, "cpu", "auto")


def test_there_are_few_shapes() -> None:
    assert doubling(32, 128) == [32, 64, 128]
    assert doubling(32, 100) == [32, 64, 100]
    assert [bucket(size, [1, 2, 4]) for size in (1, 3, 4, 9)] == [1, 4, 4, 4]

    ids = np.arange(1, 16).reshape(5, 3)
    batch = {"input_ids": ids, "attention_mask": np.ones_like(ids), "pool_weights": np.ones((5, 1, 3))}
    pieces = list(fill(batch, ("input_ids", "attention_mask", "token_type_ids"), 4, [2, 8]))

    assert [(real, *piece["input_ids"].shape, sorted(piece)) for piece, real in pieces] == [
        (4, 4, 8, ["attention_mask", "input_ids"]),
        (1, 4, 8, ["attention_mask", "input_ids"]),
    ]
    assert pieces[1][0]["attention_mask"].sum(1).tolist() == [3, 1, 1, 1]

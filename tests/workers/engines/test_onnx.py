"""Whose ONNX file is run, and where."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.quantization import QuantType, quantize_dynamic

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.engines.onnx import OnnxEngine
from infinity_pool.workers.files.content import graphs_for, own_graph
from infinity_pool.workers.interface import Engine
from infinity_pool.workers.models import build
from infinity_pool.workers.models.choices import engine_module, make_family
from infinity_pool.workers.models.loading import load_model
from infinity_pool.workers.networks.providers import Runtime
from infinity_pool.workers.networks.sessions import OnnxGraph
from infinity_pool.workers.settings import ModelSettings
from tests.tiny_models import WIDTH, pooling, save_modules, save_network
from tests.workers.conftest import MINILM, embed, ignore_progress, load_here, prepare_here

TEXTS = ["hello world", "What is the capital of France?", "the quick brown fox " * 20]
INT8_COSINE = 0.97  # of MiniLM's vectors to those of float32, at least


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_modules(save_network("bert", tmp_path / "model"), pooling("mean"), ("Normalize", {}))


@pytest.fixture
def exported(folder: Path, tmp_path: Path) -> Path:
    """An ONNX file of that model."""
    graph = tmp_path / "exported.onnx"
    shutil.copy(prepare_here(folder, "onnx").files.built / "onnx" / "model.onnx", graph)
    return graph


def graph_file(engine: Engine) -> str:
    assert isinstance(engine, OnnxEngine)
    (graph,) = engine.graphs
    return str(graph.path)


def facts_of(found: build.Found) -> dict[str, Any]:
    """Give what is known of the only graph."""
    about = found.files.extra["onnx"]
    return {**about, **about["graphs"]["model"]}


def test_the_names_a_graph_may_have() -> None:
    variants = [
        "onnx/model_O4.onnx",
        "onnx/model_qint8_arm64.onnx",
        "onnx/model_quint8_avx2.onnx",
        "model_quantized.onnx",
    ]

    assert own_graph(variants) == []
    assert own_graph([*variants, "model.onnx"]) == ["model.onnx"]
    assert own_graph([*variants, "model.onnx", "onnx/model.onnx"]) == ["onnx/model.onnx"]
    assert own_graph(["onnx/model.onnx", "onnx/model.onnx_data"]) == ["onnx/model.onnx", "onnx/model.onnx_data"]


def test_the_graphs_that_are_looked_at() -> None:
    names = ["onnx/model.onnx", "onnx/model_O3.onnx", "onnx/model_quint8_avx2.onnx", "onnx/model_quantized.onnx"]

    assert graphs_for(names) == ["onnx/model.onnx"]
    assert graphs_for(names, "onnx/model_O3.onnx") == names[:2]
    assert graphs_for(names, quantised=True) == ["onnx/model.onnx", "onnx/model_quantized.onnx"]
    assert graphs_for(names[:3], quantised=True) == ["onnx/model.onnx", "onnx/model_quint8_avx2.onnx"]


def test_int8_is_made_where_the_model_has_none(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = embed(*load_here(folder), TEXTS)

    with caplog.at_level("INFO"):
        family, engine = load_here(folder, "onnx", dtype="int8")

    assert engine.dtype == "int8"
    assert [path.name for path in Path(graph_file(engine)).parent.glob("*.onnx*")] == ["model_int8.onnx"]
    assert re.search(
        r"running an export, which is int8; its cosine to float32 is at least [01]\.\d{4}$", caplog.text, re.M
    )
    assert (embed(family, engine, TEXTS) * whole).sum(1).min() > 0.98
    assert np.abs(embed(family, engine, TEXTS) - whole).max() > 1e-5


def test_a_models_own_int8_graph_is_run_where_int8_is_wanted(folder: Path, exported: Path) -> None:
    quantize_dynamic(exported, folder / "model_quantized.onnx", weight_type=QuantType.QInt8)

    found = prepare_here(folder, "onnx", "int8")

    facts = facts_of(found)
    assert (facts["graph"], facts["own"], facts["dtype"]) == ("model_quantized.onnx", True, "int8")
    assert 0.98 < facts["cosine"] < 1
    assert not list((found.files.built / "onnx").glob("*.onnx"))


def test_a_graph_alone_can_be_quantised(folder: Path, exported: Path) -> None:
    shutil.copy(exported, folder / "model.onnx")
    (folder / "model.safetensors").unlink()

    _, engine = load_here(folder, "onnx", dtype="int8")

    assert (engine.dtype, Path(graph_file(engine)).name) == ("int8", "model_int8.onnx")


def test_int8_alone_has_nothing_to_be_compared_with(
    folder: Path, exported: Path, caplog: pytest.LogCaptureFixture
) -> None:
    quantize_dynamic(exported, folder / "model_quantized.onnx", weight_type=QuantType.QInt8)
    (folder / "model.safetensors").unlink()

    found = prepare_here(folder, "onnx", "int8")

    assert found.files.extra["onnx"]["cosine"] is None
    assert "there is no float32 to compare with" in caplog.text


def test_the_graph_that_is_named_is_run(folder: Path, exported: Path) -> None:
    expected = embed(*load_here(folder), TEXTS)
    shutil.copy(exported, folder / "model_O3.onnx")
    quantize_dynamic(exported, folder / "model_small.onnx", weight_type=QuantType.QInt8)

    family, engine = load_here(folder, "onnx", onnx_file="model_O3.onnx")
    small = facts_of(prepare_here(folder, "onnx", onnx_file="model_small.onnx"))

    assert graph_file(engine) == str(folder / "model_O3.onnx")
    np.testing.assert_allclose(embed(family, engine, TEXTS), expected, atol=1e-5)
    assert (small["graph"], small["dtype"], small["cosine"] > 0.98) == ("model_small.onnx", "int8", True)


def test_a_named_graph_that_cannot_be_run(folder: Path, exported: Path) -> None:
    shutil.copy(exported, folder / "model_O3.onnx")
    model = onnx.load(exported)
    del model.graph.output[:]
    onnx.save(model, folder / "nothing.onnx")

    with pytest.raises(InvalidInput, match=r"has no file model_O4\.onnx, but model_O3\.onnx, nothing\.onnx") as caught:
        load_here(folder, "onnx", onnx_file="model_O4.onnx")
    with pytest.raises(InvalidInput, match=r"its own nothing\.onnx gives no vector for each token"):
        load_here(folder, "onnx", onnx_file="nothing.onnx")

    assert caught.value.param == "onnx_file"


def test_a_file_is_named_for_this_engine_only() -> None:
    with pytest.raises(InvalidInput, match="--onnx-file is for the onnx engine, not torch"):
        ModelSettings(model="m", engine="torch", onnx_file="model_O3.onnx").check()


@pytest.mark.usefixtures("made_here")
def test_minilm_in_int8(cache_dir: str) -> None:
    whole, small = (
        load_model(ModelSettings(model=MINILM, engine="onnx", dtype=dtype, cache_dir=cache_dir), "cpu", ignore_progress)
        for dtype in ("float32", "int8")
    )

    cosines = (embed(small.family, small.engine, TEXTS) * embed(whole.family, whole.engine, TEXTS)).sum(1)

    assert cosines.min() >= INT8_COSINE
    assert small.cosine is not None
    assert small.cosine >= INT8_COSINE
    assert small.fingerprint != whole.fingerprint


@pytest.mark.parametrize("place", ["onnx/model.onnx", "model.onnx"])
def test_a_models_own_graph_is_run(place: str, folder: Path, exported: Path, caplog: pytest.LogCaptureFixture) -> None:
    expected = embed(*load_here(folder, "torch"), TEXTS)
    (folder / "onnx").mkdir()
    shutil.copy(exported, folder / place)
    (folder / "onnx" / "model_quantized.onnx").write_bytes(b"another")

    with caplog.at_level("INFO"):
        family, engine = load_here(folder, "onnx")

    assert graph_file(engine) == str(folder / place)
    assert f"running its own {place}, which is float32" in caplog.text
    np.testing.assert_allclose(embed(family, engine, TEXTS), expected, atol=1e-5)


def test_a_graph_with_other_inputs_than_the_tokenizers(folder: Path, exported: Path) -> None:
    """Some exports lack token types, some have them for tokenizers that do not make them, and 32-bit ones exist."""
    config = folder / "tokenizer_config.json"
    settings = json.loads(config.read_text()) | {"model_input_names": ["input_ids", "attention_mask"]}
    config.write_text(json.dumps(settings))
    model = onnx.load(exported)
    assert {node.name for node in model.graph.input} == {"input_ids", "attention_mask", "token_type_ids"}
    (folder / "onnx").mkdir()
    onnx.save(model, folder / "onnx" / "model.onnx")

    family, engine = load_here(folder, "onnx")

    assert family.inputs == ("input_ids", "attention_mask")
    np.testing.assert_allclose(embed(family, engine, TEXTS), embed(*load_here(folder), TEXTS), atol=1e-5)


def test_a_quantised_graph_is_not_run_where_there_are_weights(
    folder: Path, exported: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = embed(*load_here(folder), TEXTS)
    quantize_dynamic(exported, folder / "model.onnx", weight_type=QuantType.QInt8)

    family, engine = load_here(folder, "onnx")

    assert graph_file(engine) != str(folder / "model.onnx")
    assert "its own model.onnx is int8, not float32" in caplog.text
    np.testing.assert_allclose(embed(family, engine, TEXTS), expected, atol=1e-5)


@pytest.mark.parametrize("engine_name", ["onnx", "auto"])
def test_a_quantised_graph_alone_says_so(
    engine_name: str, folder: Path, exported: Path, caplog: pytest.LogCaptureFixture
) -> None:
    quantize_dynamic(exported, folder / "model.onnx", weight_type=QuantType.QInt8)
    (folder / "model.safetensors").unlink()

    family, engine = load_here(folder, engine_name)

    assert (engine.dtype, graph_file(engine)) == ("int8", str(folder / "model.onnx"))
    assert "running its own model.onnx, which is int8" in caplog.text
    assert embed(family, engine, TEXTS).shape == (3, WIDTH)


def test_a_graph_that_pools_itself_is_replaced(folder: Path, exported: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = onnx.load(exported)
    hidden = model.graph.output[0].name
    model.graph.node.append(onnx.helper.make_node("ReduceMean", [hidden], ["sentence_embedding"], axes=[1], keepdims=0))
    del model.graph.output[:]
    vector = onnx.helper.make_tensor_value_info("sentence_embedding", onnx.TensorProto.FLOAT, ["batch", WIDTH])
    model.graph.output.append(vector)
    onnx.save(model, folder / "model.onnx")

    load_here(folder, "onnx")

    assert "gives no vector for each token; exporting another" in caplog.text


def test_a_graph_that_takes_more_than_texts_have(
    folder: Path, exported: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = onnx.load(exported)
    pixels = onnx.helper.make_tensor_value_info("pixel_values", onnx.TensorProto.FLOAT, ["batch", 3])
    model.graph.input.append(pixels)
    onnx.save(model, folder / "model.onnx")

    load_here(folder, "onnx")

    assert "takes pixel_values, which no text has; exporting another" in caplog.text


@pytest.mark.parametrize("engine_name", ["torch", "onnx", "auto"])
def test_variants_alone_are_named(engine_name: str, folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model_quantized.onnx")

    with pytest.raises(InvalidInput, match=r"has no .*safetensors or .*bin, only model_quantized\.onnx"):
        load_here(folder, engine_name)


def test_a_file_that_is_no_graph(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(b"not a graph")

    with pytest.raises(InvalidInput, match=r"model\.onnx is no ONNX file"):
        load_here(folder, "onnx")


@pytest.mark.parametrize(
    ("device", "dtype", "words"),
    [
        ("cuda:0", "auto", "this onnxruntime has no CUDAExecutionProvider"),
        ("tensorrt:0", "auto", "has no TensorrtExecutionProvider; tensorrt:0 needs onnxruntime-gpu and TensorRT"),
        ("rocm:0", "float32", "has no MIGraphXExecutionProvider or ROCMExecutionProvider"),
        ("openvino:GPU", "float16", "has no OpenVINOExecutionProvider; openvino:GPU needs onnxruntime-openvino"),
        ("tensorrt:0", "int8", "the onnx engine runs float32, float16, bfloat16 here, not int8$"),
        ("mps", "auto", "the onnx engine has no device 'mps'"),
        ("cpu", "int8", "the onnx engine runs float32 here, not int8$"),
        ("cpu", "bfloat16", "the onnx engine runs float32 here, not bfloat16; torch does"),
    ],
)
def test_what_it_cannot_run_is_refused(device: str, dtype: str, words: str, folder: Path) -> None:
    files = prepare_here(folder, "onnx").files
    family = make_family("sentence_transformer", files)
    if device == "cuda:0" and "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        words = "onnxruntime cannot use cuda:0 here"

    with pytest.raises(InvalidInput, match=words):
        engine_module("onnx").load(files, family, device, dtype)


def test_a_batch_is_run_in_parts_where_the_device_bounds_its_items(folder: Path, exported: Path) -> None:
    family = load_here(folder)[0]
    batch = family.collate([family.prepare(family.head("embed", {}), TEXTS, {})])
    (spec,) = family.graphs()

    whole, parts = (OnnxGraph(exported, spec, Runtime("cpu", "float32", items=items), batch) for items in (0, 2))

    np.testing.assert_allclose(parts.run(batch), whole.run(batch), atol=1e-6)


def test_one_cpu_is_enough(folder: Path, exported: Path) -> None:
    """A process that is bound to one CPU gets one thread, and no complaint about the others."""
    code = (
        "import os, sys; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
        "from pathlib import Path;"
        "from infinity_pool.workers.interface import GraphSpec;"
        "from infinity_pool.workers.networks.providers import Runtime;"
        "from infinity_pool.workers.networks.sessions import OnnxGraph;"
        "OnnxGraph(Path(sys.argv[1]), GraphSpec('model', 'last_hidden_state', ()), Runtime('cpu', 'float32'));"
        "print(len(os.listdir('/proc/self/task')))"
    )

    done = subprocess.run([sys.executable, "-c", code, str(exported)], capture_output=True, text=True, check=True)

    assert done.stderr == ""

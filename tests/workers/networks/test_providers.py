"""What ONNX Runtime is asked for on each device, and how its answer is read; none of that hardware is needed."""

from pathlib import Path

import pytest

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.networks.providers import (
    Options,
    Runtime,
    formats_of,
    most_items,
    placed,
    provider_of,
    providers_for,
)

CUDA, ROCM, MIGRAPHX, OPENVINO, TENSORRT = (
    f"{name}ExecutionProvider" for name in ("CUDA", "ROCM", "MIGraphX", "OpenVINO", "Tensorrt")
)
CACHE = Path("/cache")
SHAPES = {"input_ids": (4, 80), "pixel_values": (2, 3, 224, 224)}


@pytest.mark.parametrize(
    ("device", "available", "provider"),
    [
        ("cpu", [CUDA, "CPUExecutionProvider"], "CPUExecutionProvider"),
        ("cuda:1", [TENSORRT, CUDA], CUDA),
        ("tensorrt:0", [TENSORRT, CUDA], TENSORRT),
        ("rocm:0", [ROCM], ROCM),
        ("rocm:0", [ROCM, MIGRAPHX], MIGRAPHX),
        ("openvino:GPU.1", [OPENVINO], OPENVINO),
        ("coreml", ["CoreMLExecutionProvider"], "CoreMLExecutionProvider"),
    ],
)
def test_the_provider_of_a_device(device: str, available: list[str], provider: str) -> None:
    assert provider_of(device, available) == provider


def test_a_provider_that_is_not_there_is_named_with_what_brings_it() -> None:
    with pytest.raises(InvalidInput, match=f"has no {MIGRAPHX}; migraphx:0 needs onnxruntime-migraphx") as caught:
        provider_of("migraphx:0", [ROCM, CUDA])

    assert caught.value.param == "device"


@pytest.mark.parametrize(
    ("provider", "runtime", "options"),
    [
        ("CPUExecutionProvider", Runtime("cpu", "float32"), {}),
        (CUDA, Runtime("cuda:1", "float32"), {"device_id": "1"}),
        (ROCM, Runtime("rocm:0", "float32", CACHE), {"device_id": "0"}),
        (
            MIGRAPHX,
            Runtime("rocm:2", "float16", CACHE),
            {"device_id": "2", "migraphx_model_cache_dir": "/cache", "migraphx_fp16_enable": "1"},
        ),
        (
            OPENVINO,
            Runtime("openvino:GPU.1", "float16", CACHE),
            {"device_type": "GPU.1", "cache_dir": "/cache", "precision": "FP16"},
        ),
        (OPENVINO, Runtime("openvino:CPU", "int8"), {"device_type": "CPU"}),
        (
            "CoreMLExecutionProvider",
            Runtime("coreml", "float32", CACHE),
            {"ModelFormat": "MLProgram", "MLComputeUnits": "ALL", "ModelCacheDirectory": "/cache"},
        ),
    ],
)
def test_a_providers_options(provider: str, runtime: Runtime, options: Options) -> None:
    assert providers_for(provider, runtime, {}) == [(provider, options)]


@pytest.mark.parametrize(
    ("dtype", "precision"),
    [("float32", {}), ("float16", {"trt_fp16_enable": "1"}), ("bfloat16", {"trt_bf16_enable": "1"})],
)
def test_tensorrt_builds_once_for_all_shapes_and_cuda_runs_what_it_cannot(dtype: str, precision: Options) -> None:
    runtime = Runtime("tensorrt:1", dtype, CACHE, length=512, items=256)

    (provider, options), cuda = providers_for(TENSORRT, runtime, SHAPES)

    assert (provider, cuda) == (TENSORRT, (CUDA, {"device_id": "1"}))
    assert options == precision | {
        "device_id": "1",
        "trt_engine_cache_enable": "1",
        "trt_engine_cache_path": "/cache",
        "trt_timing_cache_enable": "1",
        "trt_timing_cache_path": "/cache",
        "trt_profile_min_shapes": "input_ids:1x1,pixel_values:1x3x224x224",
        "trt_profile_opt_shapes": "input_ids:256x64,pixel_values:256x3x224x224",
        "trt_profile_max_shapes": "input_ids:256x512,pixel_values:256x3x224x224",
    }


def test_a_run_is_bounded_where_engines_are_built_for_shapes() -> None:
    assert [most_items("tensorrt:0", tokens) for tokens in (None, 8192, 16)] == [256, 128, 1]
    assert most_items("cuda:0", 8192) == 0


def test_half_precision_of_a_graph_in_float32_is_what_some_runtimes_can() -> None:
    assert formats_of("cpu", "float32") == formats_of("openvino:CPU", "float32") == ("float32",)
    assert formats_of("tensorrt:0", "float32") == ("float32", "float16", "bfloat16")
    assert formats_of("openvino:NPU", "float32") == ("float32", "float16")
    assert formats_of("tensorrt:0", "int8") == ("int8",)


@pytest.mark.parametrize(
    ("operators", "said"),
    [
        ({TENSORRT: 290}, "tensorrt:0"),
        ({TENSORRT: 290, CUDA: 0}, "tensorrt:0"),
        ({TENSORRT: 999, "CPUExecutionProvider": 1}, "tensorrt:0 (of its operators, 1% on cpu)"),
        (
            {TENSORRT: 90, CUDA: 7, "CPUExecutionProvider": 3},
            "tensorrt:0 (of its operators, 3% on cpu, 7% on cuda)",
        ),
    ],
)
def test_what_runs_elsewhere_is_said(operators: dict[str, int], said: str) -> None:
    assert placed("tensorrt:0", TENSORRT, operators) == said


@pytest.mark.parametrize("operators", [{}, {"CPUExecutionProvider": 290}, {CUDA: 290, TENSORRT: 0}])
def test_a_device_that_runs_nothing_is_refused(operators: dict[str, int]) -> None:
    with pytest.raises(InvalidInput, match="cannot use tensorrt:0 here"):
        placed("tensorrt:0", TENSORRT, operators)

"""
From --device to ONNX Runtime's execution providers and their options, and where operators run; all of it pure.

Options are those of onnxruntime.ai/docs/execution-providers.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.device.devices import kind_of

CPU = "CPUExecutionProvider"
_CUDA = "CUDAExecutionProvider"

_PROVIDERS = {
    "coreml": ("CoreMLExecutionProvider",),
    "cpu": (CPU,),
    "cuda": (_CUDA,),
    "migraphx": ("MIGraphXExecutionProvider",),
    "openvino": ("OpenVINOExecutionProvider",),
    "rocm": ("MIGraphXExecutionProvider", "ROCMExecutionProvider"),  # the one that this onnxruntime has
    "tensorrt": ("TensorrtExecutionProvider",),
}
_PACKAGES = {
    "coreml": "macOS",
    "cuda": "onnxruntime-gpu",
    "migraphx": "onnxruntime-migraphx",
    "openvino": "onnxruntime-openvino",
    "rocm": "onnxruntime-migraphx or onnxruntime-rocm",
    "tensorrt": "onnxruntime-gpu and TensorRT",
}
_HALVES = {
    "migraphx": ("float16", "bfloat16"),
    "openvino": ("float16",),
    "tensorrt": ("float16", "bfloat16"),
}
"""Number formats in which a runtime itself can run a graph of float32."""

_TYPICAL = 64  # tokens of an item, by which a profile bounds the items of one run
_BUDGET = 16_384  # padded tokens, where the user names no budget

Shapes = Mapping[str, Sequence[int]]
Options = dict[str, str]


class Runtime(NamedTuple):
    """How graphs are opened: `cache` is the folder for what a runtime compiles; `items` the most of one run, 0: any."""

    device: str
    dtype: str
    cache: Path | None = None
    length: int = 0  # the most tokens of an item
    items: int = 0


def provider_of(device: str, available: Collection[str]) -> str:
    """Name the provider for a device; raises InvalidInput if there is none, or this onnxruntime has it not."""
    kind = kind_of(device)
    if kind not in _PROVIDERS:
        known = ", ".join(_PROVIDERS)
        raise InvalidInput(f"the onnx engine has no device {device!r}; there are {known}", param="device")
    for provider in _PROVIDERS[kind]:
        if provider in available:
            return provider
    wanted = " or ".join(_PROVIDERS[kind])
    raise InvalidInput(f"this onnxruntime has no {wanted}; {device} needs {_PACKAGES[kind]}", param="device")


def formats_of(device: str, dtype: str) -> tuple[str, ...]:
    """Give the number formats in which a graph of one dtype can be run on a device, its own first."""
    halves = () if device == "openvino:CPU" else _HALVES.get(kind_of(device), ())
    return (dtype, *(halves if dtype == "float32" else ()))


def most_items(device: str, batch_tokens: int | None) -> int:
    """Say how many items a run may have at most: a bound only where engines are built for shapes; 0: none."""
    return max(1, (batch_tokens or _BUDGET) // _TYPICAL) if kind_of(device) == "tensorrt" else 0


def providers_for(provider: str, runtime: Runtime, shapes: Shapes) -> list[tuple[str, Options]]:
    """
    List the providers to ask for, each with its options, the wanted one first.

    `shapes` are those of one batch of what the graph takes, by name.
    """
    number = {"device_id": _part(runtime.device) or "0"}
    chosen = (provider, _OPTIONS[provider](runtime, shapes))
    return [chosen, (_CUDA, number)] if provider == "TensorrtExecutionProvider" else [chosen]


def _part(device: str) -> str:
    return device.partition(":")[2]


def _of_cpu(runtime: Runtime, shapes: Shapes) -> Options:
    return {}


def _of_gpu(runtime: Runtime, shapes: Shapes) -> Options:
    return {"device_id": _part(runtime.device) or "0"}


def _of_tensorrt(runtime: Runtime, shapes: Shapes) -> Options:
    """Keep engines and timings, and build for all shapes that will come, so that no request waits for a build."""
    halves = {"float16": "trt_fp16_enable", "bfloat16": "trt_bf16_enable"}
    kept = {
        "trt_engine_cache_enable": "1",
        "trt_engine_cache_path": str(runtime.cache),
        "trt_timing_cache_enable": "1",
        "trt_timing_cache_path": str(runtime.cache),
    }
    precision = {halves[runtime.dtype]: "1"} if runtime.dtype in halves else {}
    return _of_gpu(runtime, shapes) | (kept if runtime.cache else {}) | precision | _profile(runtime, shapes)


def _profile(runtime: Runtime, shapes: Shapes) -> Options:
    """Give the least, the usual and the greatest shape of each input: of two axes the second is that of tokens."""
    usual = min(_TYPICAL, runtime.length)
    sizes = {"min": (1, 1), "opt": (runtime.items, usual), "max": (runtime.items, runtime.length)}
    return {
        f"trt_profile_{name}_shapes": ",".join(
            f"{each}:{'x'.join(map(str, (items, *((tokens,) if len(shape) == 2 else shape[1:]))))}"
            for each, shape in shapes.items()
        )
        for name, (items, tokens) in sizes.items()
    }


def _of_migraphx(runtime: Runtime, shapes: Shapes) -> Options:
    halves = {"float16": "migraphx_fp16_enable", "bfloat16": "migraphx_bf16_enable"}
    precision = {halves[runtime.dtype]: "1"} if runtime.dtype in halves else {}
    kept = {"migraphx_model_cache_dir": str(runtime.cache)} if runtime.cache else {}
    return _of_gpu(runtime, shapes) | kept | precision


def _of_openvino(runtime: Runtime, shapes: Shapes) -> Options:
    """Say the precision too: by itself, it takes less than float32 on processors that are faster so."""
    kept = {"cache_dir": str(runtime.cache)} if runtime.cache else {}
    precision = {"float32": "FP32", "float16": "FP16"}.get(runtime.dtype)
    return {"device_type": _part(runtime.device) or "CPU"} | kept | ({"precision": precision} if precision else {})


def _of_coreml(runtime: Runtime, shapes: Shapes) -> Options:
    kept = {"ModelCacheDirectory": str(runtime.cache)} if runtime.cache else {}
    return {"ModelFormat": "MLProgram", "MLComputeUnits": "ALL"} | kept


_OPTIONS: dict[str, Callable[[Runtime, Shapes], Options]] = {
    CPU: _of_cpu,
    _CUDA: _of_gpu,
    "CoreMLExecutionProvider": _of_coreml,
    "MIGraphXExecutionProvider": _of_migraphx,
    "OpenVINOExecutionProvider": _of_openvino,
    "ROCMExecutionProvider": _of_gpu,
    "TensorrtExecutionProvider": _of_tensorrt,
}


def placed(device: str, provider: str, operators: Mapping[str, int]) -> str:
    """
    Say what really runs a graph: the device, and the part of its operators, counted by provider, that run elsewhere.

    Raises InvalidInput if none runs there, which happens without a word.
    """
    if not operators.get(provider):
        raise InvalidInput(f"onnxruntime cannot use {device} here; it would run on the CPU", param="device")
    total = sum(operators.values())
    others = {name: count for name, count in operators.items() if name != provider and count}
    if not others:
        return device
    parts = (f"{max(1, round(100 * count / total))}% on {_short(name)}" for name, count in sorted(others.items()))
    return f"{device} (of its operators, {', '.join(parts)})"


def _short(provider: str) -> str:
    return provider.removesuffix("ExecutionProvider").lower()

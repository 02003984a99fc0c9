"""Rewrites an ONNX graph into fewer and larger operators, with ONNX Runtime's own tool for transformers."""

import logging
from pathlib import Path
from typing import Any

from onnxruntime.transformers import optimizer

LEVELS = ("O1", "O2", "O3", "O4")
"""
What optimum means by them: general rewriting; operators fused; GELU by its approximation; half precision, for GPUs.
"""

_LARGEST = 2**31 - 2**20  # bytes; what one protobuf file can hold


def optimise(source: Path, target: Path, level: str, config: dict[str, Any]) -> None:
    """Write an optimised graph of one in float32; `config` is the network's. Inputs and outputs stay as they are."""
    logging.getLogger(optimizer.__name__.rpartition(".")[0]).setLevel(logging.WARNING)
    depth = LEVELS.index(level)
    # attention is fused where the graph has it in the form of BERT's, whatever the model is called
    model = optimizer.optimize_model(
        str(source),
        model_type="bert",
        num_heads=config.get("num_attention_heads") or config.get("n_heads") or 0,
        hidden_size=config.get("hidden_size") or config.get("dim") or 0,
        opt_level=1 if depth == 0 else 2,
        only_onnxruntime=depth == 0,
    )
    if depth >= 2:
        model.gelu_approximation()
    if depth == 3:
        model.convert_float_to_float16(keep_io_types=True)
    model.save_model_to_file(str(target), use_external_data_format=source.stat().st_size > _LARGEST)

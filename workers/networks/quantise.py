"""Quantises an ONNX graph: the weights of its products to int8 once, what they are multiplied with in each run."""

import logging
from pathlib import Path
from typing import NamedTuple

from onnx import TensorProto
from onnxruntime.quantization import QuantType, quantize_dynamic

_OPERATORS = ["MatMul", "Gemm", "Attention", "Gather"]  # products of weights, and tables of embeddings


class Scheme(NamedTuple):
    """
    How weights are quantised, each output with a scale of its own.

    `signed` weights are what processors with VNNI, and ARM's, multiply fastest; others may overflow with them, unless
    `reduced` leaves one of the 8 bits unused. Unsigned ones are right everywhere, and slower on the former.
    """

    signed: bool
    reduced: bool = False


ANYWHERE = Scheme(signed=True, reduced=True)
"""Fast where it can be, and the same numbers on every processor, so that different machines may serve one model."""

SCHEMES = {"arm64": Scheme(signed=True), "avx2": Scheme(signed=False), "avx512_vnni": Scheme(signed=True)}
"""The best for one kind of processor."""


def quantise(source: Path, target: Path, scheme: Scheme = ANYWHERE) -> None:
    """Write an int8 graph of a float32 one."""
    logger = logging.getLogger()  # the library logs there, a line for each operator
    logger.addFilter(_is_news)
    try:
        quantize_dynamic(
            source,
            target,
            op_types_to_quantize=_OPERATORS,
            per_channel=True,
            reduce_range=scheme.reduced,
            weight_type=QuantType.QInt8 if scheme.signed else QuantType.QUInt8,
            extra_options={
                "DefaultTensorType": TensorProto.FLOAT
            },  # of what fused operators give, which it cannot tell
        )
    finally:
        logger.removeFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    """Leave out what it says of each operator, and its advice to fuse operators first, which loses some that it has."""
    return record.levelno > logging.INFO and not record.getMessage().startswith("Please consider to run pre-processing")

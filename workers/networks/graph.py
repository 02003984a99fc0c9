"""Looks into an ONNX file, without its weights: whether it can stand for a network, and what its numbers are."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import onnx

from infinity_pool.broker.errors import InvalidInput

HIDDEN_STATES = ("last_hidden_state", "token_embeddings")
"""Names of the output that has one vector a token; another name will do if it has three axes."""

_QUANTISED = {
    "DequantizeLinear",
    "DynamicQuantizeLinear",
    "DynamicQuantizeMatMul",
    "MatMulInteger",
    "MatMulIntegerToFloat",
    "MatMulNBits",
    "QAttention",
    "QGemm",
    "QLinearMatMul",
    "QuantizeLinear",
}
_DTYPES = {
    onnx.TensorProto.FLOAT: "float32",
    onnx.TensorProto.FLOAT16: "float16",
    onnx.TensorProto.BFLOAT16: "bfloat16",
}


class Graph(NamedTuple):
    """What an ONNX file takes and gives: `output` is the one with a vector a token, None if there is none."""

    inputs: tuple[str, ...]
    output: str | None
    dtype: str

    def fault(self, known: Sequence[str], any_dtype: bool) -> str | None:
        """Say what keeps it from giving the network's own output for these inputs, in float32; None if nothing does."""
        if self.output is None:
            return "gives no vector for each token"
        if strange := sorted(set(self.inputs) - set(known)):
            return f"takes {', '.join(strange[:3])}, which no text has"
        return None if any_dtype or self.dtype == "float32" else f"is {self.dtype}, not float32"


def look(path: Path) -> Graph:
    """Read an ONNX file; raises InvalidInput if it is none."""
    try:
        graph = onnx.load(path, load_external_data=False).graph
    except Exception as error:  # the parser's own class is of protobuf's, which changes it
        raise InvalidInput(f"{path} is no ONNX file: {error}", param="model") from error
    stored = {tensor.name for tensor in graph.initializer}
    ranks = {node.name: len(node.type.tensor_type.shape.dim) for node in graph.output}
    named = [name for name in (*HIDDEN_STATES, *ranks) if ranks.get(name) == 3]
    inputs = tuple(node.name for node in graph.input if node.name not in stored)
    return Graph(inputs, named[0] if named else None, _dtype(graph))


def _dtype(graph: onnx.GraphProto) -> str:
    if any(node.op_type in _QUANTISED for node in graph.node):
        return "int8"
    kinds = [_DTYPES[tensor.data_type] for tensor in graph.initializer if tensor.data_type in _DTYPES and tensor.dims]
    return max(set(kinds), key=kinds.count, default="float32")

"""Looks into an ONNX file, without its weights: whether it can stand for a network, and what its numbers are."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import onnx

from infinity_pool.broker.errors import InvalidInput

_OUTPUTS = {"last_hidden_state": ("token_embeddings",), "pooler_output": ("text_embeds", "image_embeds")}
"""Other names that an output goes by."""

_AXES = {"last_hidden_state": 3, "logits": 2, "text_embeds": 2, "image_embeds": 2, "pooler_output": 2}
_MEANING = {"last_hidden_state": "vector for each token", "logits": "score for each item"}
_BY_ANY_NAME = _MEANING.keys()
"""Outputs of which there is one with as many axes; a tower may also give vectors that are not projected."""

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
    """What an ONNX file takes and gives: `output` is the one that is `wanted`, None if there is none."""

    inputs: tuple[str, ...]
    output: str | None
    wanted: str
    dtype: str

    def fault(self, known: Sequence[str], any_dtype: bool) -> str | None:
        """Say what keeps it from giving the network's own output for these inputs, in float32; None if nothing does."""
        if self.output is None:
            return f"gives no {_MEANING.get(self.wanted, self.wanted)}"
        if strange := sorted(set(self.inputs) - set(known)):
            return f"takes {', '.join(strange[:3])}, which no text has"
        return None if any_dtype or self.dtype == "float32" else f"is {self.dtype}, not float32"


def look(path: Path, wanted: str) -> Graph:
    """Read an ONNX file, for what a family calls its output; raises InvalidInput if it is none."""
    try:
        graph = onnx.load(path, load_external_data=False).graph
    except Exception as error:  # the parser's own class is of protobuf's, which changes it
        raise InvalidInput(f"{path} is no ONNX file: {error}", param="model") from error
    stored = {tensor.name for tensor in graph.initializer}
    ranks = {node.name: len(node.type.tensor_type.shape.dim) for node in graph.output}
    names = (wanted, *_OUTPUTS.get(wanted, ()), *(ranks if wanted in _BY_ANY_NAME else ()))
    named = [name for name in names if ranks.get(name) == _AXES[wanted]]
    inputs = tuple(node.name for node in graph.input if node.name not in stored)
    return Graph(inputs, named[0] if named else None, wanted, _dtype(graph))


def _dtype(graph: onnx.GraphProto) -> str:
    if any(node.op_type in _QUANTISED for node in graph.node):
        return "int8"
    kinds = [_DTYPES[tensor.data_type] for tensor in graph.initializer if tensor.data_type in _DTYPES and tensor.dims]
    return max(set(kinds), key=kinds.count, default="float32")

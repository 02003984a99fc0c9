"""Which ONNX files run a network: the model's own, where they can stand for it, else an export, quantised if wanted."""

import logging
from pathlib import Path
from typing import Any

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.files.content import file_names, has_weights, int8_files, own_graph, whole_files
from infinity_pool.workers.interface import Family, GraphSpec, ModelFiles, Progress
from infinity_pool.workers.networks.sessions import DERIVED, check

_log = logging.getLogger(__name__)

Facts = dict[str, Any]
"""Of one graph: its file's name, whether that is the model's `own`, its output and dtype."""


def exported_file(spec: GraphSpec) -> str:
    """Name the file of an export."""
    return f"{spec.name}.onnx"


def path_of(facts: Facts, files: ModelFiles, folder: Path) -> Path:
    """Find a graph: with the model, or in the folder of what was made of it."""
    return Path((files.path if facts["own"] else folder) / facts["graph"])


def whole(files: ModelFiles, family: Family, spec: GraphSpec, folder: Path, progress: Progress) -> Facts:
    """Take the model's own graph if it is the float32 network's; else export one. Raises InvalidInput if it cannot."""
    from infinity_pool.workers.networks.export import export

    names = file_names(files.path)
    for name in own_graph(names, whole_files(spec.name))[:1]:
        facts, fault = _look(files, spec, name, any_dtype=not has_weights(names))
        if fault is None:
            return facts
        _log.warning("model %r: its own %s %s; exporting another", files.spec, name, fault)
    progress("exporting to ONNX", None)
    graph = folder / exported_file(spec)
    export(files, family, spec, graph)
    check(graph)
    return _facts(graph.name, False, spec.output, "float32")


def named(files: ModelFiles, spec: GraphSpec) -> Facts:
    """Take the graph that the user names; raises InvalidInput if there is none such, or it cannot be run."""
    names = file_names(files.path)
    if files.onnx_file not in names:
        graphs = ", ".join(name for name in names if name.endswith(".onnx")) or "none"
        raise InvalidInput(f"model {files.spec!r} has no file {files.onnx_file}, but {graphs}", param="onnx_file")
    facts, fault = _look(files, spec, files.onnx_file, any_dtype=True)
    if fault:
        raise InvalidInput(f"model {files.spec!r}: its own {files.onnx_file} {fault}", param="onnx_file")
    return facts


def own_int8(files: ModelFiles, spec: GraphSpec) -> Facts | None:
    """Take the model's own graph in int8; None if it has none that can be run."""
    for name in own_graph(file_names(files.path), (*int8_files(spec.name), *whole_files(spec.name)))[:1]:
        facts, fault = _look(files, spec, name, any_dtype=True)
        if fault is None and facts["dtype"] == "int8":
            return facts
        _log.info("model %r: its own %s %s", files.spec, name, fault or f"is {facts['dtype']}, not int8")
    return None


def quantised(files: ModelFiles, spec: GraphSpec, source: Facts, folder: Path, progress: Progress) -> Facts:
    """Make an int8 graph of a float32 one."""
    from infinity_pool.workers.networks.quantise import quantise

    progress("quantising", None)
    name = f"{spec.name}_int8.onnx"
    quantise(path_of(source, files, folder), folder / name)
    return _facts(name, False, source["output"], "int8")


def _look(files: ModelFiles, spec: GraphSpec, name: str, *, any_dtype: bool) -> tuple[Facts, str | None]:
    """Look into one of the model's own graphs, and say what keeps it from being run."""
    from infinity_pool.workers.networks.graph import look

    graph = look(files.path / name, spec.output)
    derived = DERIVED if "input_ids" in spec.inputs else ()
    fault = graph.fault((*spec.inputs, *derived), any_dtype=any_dtype)
    return _facts(name, True, graph.output, graph.dtype), fault


def _facts(name: str, own: bool, output: str | None, dtype: str) -> Facts:
    return {"graph": name, "own": own, "output": output, "dtype": dtype}

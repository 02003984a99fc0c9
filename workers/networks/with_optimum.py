"""Exports and optimises a network with optimum, where that imports; it lags behind transformers at times."""

from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.interface import Family, ModelFiles

_TASKS = {"last_hidden_state": "feature-extraction", "logits": "text-classification"}


def why_not(family: Family) -> str:
    """Say why optimum cannot be used for a family; empty if it can."""
    if find_spec("optimum") is None:
        return "optimum is not installed"
    if family.output not in _TASKS or type(family).call is not Family.call:
        return "optimum has no such network"
    try:
        import optimum.exporters.onnx
        import optimum.onnxruntime  # noqa: F401 - whether they import is what is asked
    except ImportError as error:
        return f"optimum does not import: {str(error).strip().splitlines()[-1][:120]}"
    return ""


def name() -> str:
    """Give the name and version to be shown."""
    return f"optimum {metadata.version('optimum')}"


def make_graph(files: ModelFiles, family: Family, folder: Path, level: str) -> Path:
    """Write a graph to `folder`, optimised if there is a `level`; gives its file. Raises InvalidInput if it cannot."""
    try:
        graph = _export(files, family, folder / "exported")
        return _optimise(graph, folder / "optimised", level) if level else graph
    except (KeyError, NotImplementedError, ValueError) as error:  # what it says of models and options it has not
        raise InvalidInput(f"optimum cannot export model {files.spec!r}: {error}", param="model") from error


def _export(files: ModelFiles, family: Family, folder: Path) -> Path:
    from optimum.exporters.onnx import main_export

    main_export(
        str(files.network),
        output=folder,
        task=_TASKS[family.output],
        library_name="transformers",  # sentence-transformers' graph would pool, which is for the family to do
        trust_remote_code=files.trust_remote_code,
        do_validation=False,
        local_files_only=True,
    )
    return folder / "model.onnx"


def _optimise(graph: Path, folder: Path, level: str) -> Path:
    from optimum.onnxruntime import ORTOptimizer
    from optimum.onnxruntime.configuration import AutoOptimizationConfig

    config = getattr(AutoOptimizationConfig, level)(for_gpu=level == "O4")
    ORTOptimizer.from_pretrained(graph.parent, file_names=[graph.name]).optimize(config, folder, file_suffix="")
    return next(folder.glob("*.onnx"))

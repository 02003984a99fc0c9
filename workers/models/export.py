"""Makes of a model a folder that ONNX Runtime serves as it is: no export, no torch, no weights but the graph's."""

import dataclasses
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.engines.onnx import OnnxEngine
from infinity_pool.workers.files.cache import surroundings, whole_folder
from infinity_pool.workers.files.content import definition, file_names, has_weights, network_weights, whole_files
from infinity_pool.workers.files.locate import locate
from infinity_pool.workers.interface import ModelFiles, Progress
from infinity_pool.workers.models.loading import LoadedModel, load_model
from infinity_pool.workers.networks import with_optimum
from infinity_pool.workers.networks.optimise import optimise
from infinity_pool.workers.networks.probes import worst_cosine
from infinity_pool.workers.networks.quantise import SCHEMES, quantise
from infinity_pool.workers.settings import ModelSettings

_BESIDE = ("README", "LICENSE", "LICENCE", "NOTICE")  # what a copy has to bring along


class Exported(NamedTuple):
    """What was made: `maker` names the tools, and `why` says why not optimum; `cosine` is the least to the source."""

    maker: str
    why: str
    dtype: str
    cosine: float


class _Work(NamedTuple):
    settings: ModelSettings
    progress: Progress


def export_model(settings: ModelSettings, out: Path, level: str, processor: str, progress: Progress) -> Exported:
    """
    Write the folder `out`, load it and compare it with the model; `level` and `processor` may be empty.

    Raises InvalidInput if the folder is not empty, or the model cannot be exported so, or what was made does not load.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InvalidInput(f"{out} is there already", param="out")
    if level == "O4" and processor:
        raise InvalidInput("O4 is half precision, which cannot be quantised", param="optimize")
    work = _Work(settings, progress)
    source = _source(settings, progress)
    why = with_optimum.why_not(source.family)
    with surroundings(out.parent), tempfile.TemporaryDirectory() as scratch, whole_folder(out) as folder:
        _copy(source.files, folder)
        for name, graph in (_by_ourselves if why else _by_optimum)(source, Path(scratch), level, work).items():
            _place(_quantised(graph, Path(scratch), processor, work), folder / whole_files(name)[0])
        made = _load(settings, folder, progress)
        cosine = worst_cosine(made.engine, source.engine, source.family)
    maker = "torch.onnx" if why else with_optimum.name()
    return Exported(f"{maker} and onnxruntime", why, made.engine.dtype, cosine)


def _source(settings: ModelSettings, progress: Progress) -> LoadedModel:
    """Load the model as its own files have it: in torch if there are weights, else its own graph."""
    files = locate(dataclasses.replace(settings, engine="onnx"), progress)
    engine = "torch" if has_weights(file_names(files.path)) else "onnx"
    return load_model(dataclasses.replace(settings, engine=engine), "cpu", progress)


def _copy(files: ModelFiles, folder: Path) -> None:
    """Copy what tokenizing and pooling need, without the network's weights."""
    names = file_names(files.path)
    weights = set(network_weights(names))
    kept = [name for name in definition(names) if name not in weights and not name.endswith(".index.json")]
    for name in (*kept, *(name for name in names if name.startswith(_BESIDE))):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(files.path / name, folder / name)


def _by_optimum(source: LoadedModel, scratch: Path, level: str, work: _Work) -> dict[str, Path]:
    work.progress(f"exporting with {with_optimum.name()}", None)
    (spec,) = source.family.graphs()
    return {spec.name: with_optimum.make_graph(source.files, source.family, scratch, level)}


def _by_ourselves(source: LoadedModel, scratch: Path, level: str, work: _Work) -> dict[str, Path]:
    engine = load_model(dataclasses.replace(work.settings, engine="onnx"), "cpu", work.progress).engine
    assert isinstance(engine, OnnxEngine)
    if engine.dtype != "float32":
        raise InvalidInput(f"the model's own graph is {engine.dtype}, and nothing is made of that", param="model")
    made = {}
    for graph in engine.graphs:
        made[graph.spec.name] = graph.path
        if level:
            work.progress(f"optimising ({level})", None)
            made[graph.spec.name] = scratch / f"optimised_{graph.spec.name}.onnx"
            optimise(graph.path, made[graph.spec.name], level, source.files.config)
    return made


def _quantised(graph: Path, scratch: Path, processor: str, work: _Work) -> Path:
    if not processor:
        return graph
    work.progress(f"quantising ({processor})", None)
    target = scratch / f"quantised_{graph.name}"
    quantise(graph, target, SCHEMES[processor])
    return target


def _place(graph: Path, target: Path) -> None:
    """Copy a graph, with the files of its weights if they lie beside it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(graph, target)
    for end in ("_data", ".data"):
        for beside in graph.parent.glob(f"{graph.name}{end}*"):  # the graph has this name in it
            shutil.copy(beside, target.parent / beside.name)


def _load(settings: ModelSettings, folder: Path, progress: Progress) -> LoadedModel:
    made = dataclasses.replace(settings, model=str(folder), revision="", engine="onnx", onnx_file="")
    return load_model(made, "cpu", progress)

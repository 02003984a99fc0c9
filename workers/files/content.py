"""Which files make a model what it is, and their hash: the same on every machine that has the same files."""

import hashlib
import logging
import re
from collections.abc import Iterable
from pathlib import Path

from infinity_pool.workers.files.cache import Damaged, key_of, read_json, write_json

_log = logging.getLogger(__name__)

_TEXTS = (".json", ".txt", ".model", ".py", ".jinja", ".tiktoken", "artifact.metadata")
_ELSEWHERE = ("onnx/", "openvino/", "coreml/", "original/")  # the same model for other programs
_WEIGHTS = re.compile(
    r"(?P<folder>((query|document)_)?\d+_[^/]+/)?(pytorch_)?model(-\d+-of-\d+)?\.(?P<kind>safetensors|bin)"
)
"""Weights of the network, and of the modules of a sentence-transformers folder, whose Router has two routes."""

RANGES = "calibration_ranges.npy"
"""The least and the largest value of each dimension of a model's vectors, by which int8 and uint8 are made."""

HEADS = ("sparse_linear.pt", "colbert_linear.pt")
"""Weights that bge-m3 has beside those of its network."""

_VARIANTS = ("quantized", "int8", "quint8_avx2", "qint8_avx512_vnni", "qint8_avx512", "qint8_arm64", "uint8")
_TOWERS = ("text_model", "vision_model")


def whole_files(graph: str = "model") -> tuple[str, ...]:
    """Give the ONNX files that may hold a graph itself, in order; others are variants, quantised or for one chip."""
    return f"onnx/{graph}.onnx", f"{graph}.onnx"


def int8_files(graph: str = "model") -> tuple[str, ...]:
    """Give the ONNX files that may hold a graph in int8, in order: first those that suit every processor."""
    return tuple(f"{folder}{graph}_{name}.onnx" for folder in ("onnx/", "") for name in _VARIANTS)


def definition(names: Iterable[str]) -> list[str]:
    """Choose, from the files of a model, what loading it in torch or tokenizing for it may need."""
    names = list(names)
    texts = [name for name in names if name.endswith(_TEXTS) and not name.startswith(_ELSEWHERE)]
    return sorted({*texts, *_weights(names), *(name for name in names if name in (*HEADS, RANGES))})


def size_of(folder: Path) -> int:
    """Give the bytes of what loading a model may need."""
    return sum((folder / name).stat().st_size for name in definition(file_names(folder)))


def has_weights(names: Iterable[str]) -> bool:
    """Whether there are weights of the network that torch can load."""
    return bool(network_weights(names))


def network_weights(names: Iterable[str]) -> list[str]:
    """Choose the weights of the network, without those of the modules that follow it."""
    return [name for name in _weights(names) if "/" not in name or name.startswith(("0_", "document_0_"))]


def _weights(names: Iterable[str]) -> list[str]:
    """Choose the weights: in each folder safetensors, or PyTorch's own if there are none."""
    found = [match for name in names if (match := _WEIGHTS.fullmatch(name))]
    safe = {match["folder"] for match in found if match["kind"] == "safetensors"}
    return [match[0] for match in found if match["kind"] == "safetensors" or match["folder"] not in safe]


def own_graph(names: Iterable[str], wanted: Iterable[str] = whole_files()) -> list[str]:
    """Choose the first of the ONNX files that are wanted, with the files of its weights; empty if there is none."""
    names = set(names)
    for name in wanted:
        if name in names:
            return [name, *sorted(other for other in names if other.startswith((f"{name}_data", f"{name}.data")))]
    return []


def graphs_for(names: Iterable[str], onnx_file: str = "", quantised: bool = False) -> list[str]:
    """Choose all ONNX files that may be looked at, where one or int8 is asked for; two towers rather than a whole."""
    names = list(names)
    towers = all(own_graph(names, (*whole_files(graph), *int8_files(graph))) for graph in _TOWERS)
    found = own_graph(names, (onnx_file,))
    for graph in _TOWERS if towers else ("model",):
        found += own_graph(names, whole_files(graph)) + (own_graph(names, int8_files(graph)) if quantised else [])
    return sorted({*found})


def file_names(folder: Path) -> list[str]:
    """Give the names of a folder's files, relative to it, without hidden ones."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(path.as_posix() for path in found if not any(part.startswith(".") for part in path.parts))


def content_hash(folder: Path, names: Iterable[str], memory: Path) -> str:
    """
    Hash names and contents.

    A file is read once: `memory` keeps its hash, by path, size and time of change.
    """
    known = _remembered(memory)
    marks = {name: _mark(folder / name) for name in names}
    hashes = {name: known.get(mark) or _file_hash(folder / name) for name, mark in marks.items()}
    fresh = {marks[name]: found for name, found in hashes.items()}
    if not fresh.items() <= known.items():
        write_json(memory, known | fresh)
    return key_of(sorted(hashes.items()))


def _remembered(memory: Path) -> dict[str, str]:
    """Read the hashes that are known; none, if they cannot be read, since they only save time."""
    try:
        known = read_json(memory) or {}
    except (Damaged, PermissionError) as error:
        _log.warning("%s; reading the model's files anew", error)
        return {}
    return {mark: found for mark, found in known.items() if isinstance(found, str)}


def _mark(path: Path) -> str:
    stat = path.stat()
    return f"{path.resolve()}:{stat.st_size}:{stat.st_mtime_ns}"


def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

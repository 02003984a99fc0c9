"""
The table of families in docs/models.md: what runs each, and how near it comes to torch in float32.

    python -m tests.quality.families

writes it anew, for the CPU and the GPUs that are here. MiniLM stands for the text encoders, tiny random models for the
rest.
"""

import re
import tempfile
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array, Item
from infinity_pool.workers.device.devices import expand, kind_of
from infinity_pool.workers.interface import Engine, Family
from infinity_pool.workers.models.choices import ENGINES, FAMILIES, engine_module, make_family
from infinity_pool.workers.models.detect import detect
from infinity_pool.workers.settings import DTYPES
from tests.docker.conftest import ROOT
from tests.tiny_late_interaction import save_bge_m3, save_pylate
from tests.tiny_models import save_scorer
from tests.tiny_towers import save_clap, save_clip
from tests.tiny_vision_language import save_vision_language
from tests.workers.conftest import MINILM, prepare_here
from tests.workers.families.test_causal_reranker import save_causal_reranker
from tests.workers.families.test_colpali import colpali
from tests.workers.families.test_splade import save_sparse_encoder

PAGE = ROOT / "docs/models.md"
BLOCK = re.compile(r"(?<=<!-- families -->\n).*?(?=\n<!-- /families -->)", re.DOTALL)
COLUMNS = [(engine, dtype) for engine, dtype in product(ENGINES, DTYPES) if engine != "dummy" and dtype != "auto"]
REFERENCE = ("torch", "float32")
DEVICES = {
    "cuda": "CUDA (Blackwell and others)",
    "tensorrt": "TensorRT",
    "rocm": "ROCm and MIGraphX (MI300 and others)",
    "mps": "MPS and CoreML",
    "openvino": "OpenVINO",
}
"""What else there is to run on, by `--device`."""
TEXTS = ("hello", "What is the capital of France?", "the quick brown fox jumps over the lazy dog " * 8)


def _colpali(folder: Path) -> Path:
    colpali(folder)
    return folder


def _minilm(folder: Path) -> Path:
    package, *inside = MINILM.removeprefix("package:").split("/")
    found = __import__(package).__file__
    assert found is not None
    (folder / "model").symlink_to(Path(found).parent.joinpath(*inside))
    return folder / "model"


MODELS: dict[str, Callable[[Path], Path]] = {
    "bge_m3": save_bge_m3,
    "causal_reranker": save_causal_reranker,
    "clap": save_clap,
    "classifier": lambda folder: save_scorer("bert", folder, labels=3),
    "clip": save_clip,
    "colbert": save_pylate,
    "colpali": _colpali,
    "cross_encoder": lambda folder: save_scorer("bert", folder),
    "sentence_transformer": _minilm,
    "splade": save_sparse_encoder,
    "vision_language": lambda folder: save_vision_language(folder, "qwen3_vl"),
}
"""A model of each family, written to a folder."""


def table() -> str:
    """Measure everything, and draw the table."""
    devices = [*dict.fromkeys(["cpu", *expand("auto")])]
    pairs = [*product(MODELS, devices)]
    rows = {pair: dict(_cosines(*pair)) for pair in track(pairs, "families")}
    columns = [column for column in COLUMNS if any(column in row for row in rows.values())]
    names = [f"{engine} {dtype}" for engine, dtype in columns]
    lines = [f"| family | device | {' | '.join(names)} |", "|---|---|" + "---|" * len(names)]
    for (name, device), row in rows.items():
        cells = (f"{row[column]:.6f}" if column in row else "no" for column in columns)
        lines.append(f"| `{name}` | tested on {device} | {' | '.join(cells)} |")
    tested = {kind_of(device) for device in devices}
    untested = [shown for kind, shown in DEVICES.items() if kind not in tested]
    return "\n".join([*lines, *(f"| every | untested on {device} |{' |' * len(names)}" for device in untested)])


def _cosines(name: str, device: str) -> Iterator[tuple[tuple[str, str], float]]:
    with tempfile.TemporaryDirectory() as place:
        folder = MODELS[name](Path(place))
        reference = _outputs(folder, *REFERENCE, "cpu")
        for engine, dtype in COLUMNS:
            try:
                outputs = _outputs(folder, engine, dtype, device)
            except InvalidInput:  # it says at start that it cannot
                continue
            yield (engine, dtype), min(map(_cosine, outputs, reference))


def _outputs(folder: Path, engine: str, dtype: str, device: str) -> list[Array]:
    """Give each item's output as one row of numbers, by the first task of the family: texts, and what else it takes."""
    found = prepare_here(folder, engine, dtype)
    family = make_family(detect(found.files), found.files)
    loaded = engine_module(found.engine).load(found.files, family, device, dtype)
    items: list[tuple[dict[str, Any], Item]] = [({}, family.example(text)) for text in TEXTS]
    return [_output(family, loaded, options, item) for options, item in [*items, *family.probes()]]


def _output(family: Family, engine: Engine, options: dict[str, Any], item: Item) -> Array:
    batch = family.collate([family.prepare(family.head(family.tasks[0], options), [item], options)])
    return np.asarray(engine.run(batch, family.reduce), np.float64).ravel()


def _cosine(one: Array, other: Array) -> float:
    """Compare by the angle; two single numbers by their difference."""
    if one.size == 1:
        return 1 - abs(one - other).item() / max(1.0, abs(other).item())
    return float(one @ other / (np.linalg.norm(one) * np.linalg.norm(other)))


if __name__ == "__main__":
    assert set(MODELS) == set(FAMILIES) - {"dummy"}
    measured = table()
    PAGE.write_text(BLOCK.sub(lambda _: measured, PAGE.read_text()))

"""What is made once, and found again: by later starts, by several at once, and without a network."""

import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
import pytest

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.interface import Family
from infinity_pool.workers.models.choices import make_family
from infinity_pool.workers.models.loading import LoadedModel, load_model
from infinity_pool.workers.settings import ModelSettings
from tests.tiny_models import pooling, save_modules, save_network
from tests.workers.conftest import MINILM, embed, ignore_progress, prepare_here

LOAD = """
import json, sys, time
start = time.perf_counter()
from infinity_pool.workers.models.loading import load_model
from infinity_pool.workers.settings import ModelSettings

if __name__ == "__main__":
    stages = []
    model = load_model(ModelSettings(**json.loads(sys.argv[1])), "cpu", lambda stage, part: stages.append(stage))
    print(json.dumps({
        "engine": model.engine_name,
        "fingerprint": model.fingerprint,
        "stages": stages,
        "heavy": [name for name in ("torch", "transformers", "huggingface_hub") if name in sys.modules],
        "seconds": time.perf_counter() - start,
    }))
"""
NO_NETWORK = """
import sys

def refuse(event, args):
    if event == "socket.getaddrinfo" or (event == "socket.connect" and isinstance(args[1], tuple)):
        print("network:", event, args[1:], file=sys.stderr)
        sys.stderr.flush()
        import os
        os._exit(99)

sys.addaudithook(refuse)
"""


class Starts:
    """Starts of a worker's loading, each in a process of its own, as a user has them."""

    def __init__(self, folder: Path) -> None:
        self._program = folder / "load.py"
        self._program.write_text(LOAD)

    def begin(self, model: str, cache_dir: Path, **more: Any) -> subprocess.Popen[str]:
        settings = json.dumps({"model": model, "cache_dir": str(cache_dir)} | more)
        environment = os.environ | {"PYTHONPATH": str(self._program.parent)}
        command = [sys.executable, str(self._program), settings]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)

    def end(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        found: dict[str, Any] = json.loads(output)
        return found

    def run(self, model: str, cache_dir: Path, **more: Any) -> dict[str, Any]:
        return self.end(self.begin(model, cache_dir, **more))


@pytest.fixture
def starts(tmp_path: Path) -> Starts:
    return Starts(tmp_path)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return save_modules(save_network("bert", tmp_path / "tiny"), pooling("mean"), ("Normalize", {}))


def test_auto_compares_once_and_remembers(starts: Starts, tmp_path: Path) -> None:
    first = starts.run(MINILM, tmp_path / "cache")
    later = starts.run(MINILM, tmp_path / "cache")

    assert first["stages"] == [
        "finding the model",
        "reading the model",
        "converting for ctranslate2",
        "exporting to ONNX",
        "comparing ctranslate2, onnx with torch",
        f"loading with {first['engine']}",
    ]
    assert first["seconds"] < 90
    assert (engine := first["engine"]) in ("ctranslate2", "onnx")
    assert later["stages"] == ["finding the model", f"loading with {engine}"]
    assert later["seconds"] < first["seconds"] / 2
    assert (first["heavy"], later["heavy"], later["engine"]) == ([], [], engine)
    assert first["fingerprint"] == later["fingerprint"]


def test_auto_is_never_an_engine_that_differs(tiny: Path) -> None:
    """A graph in the right form, with other weights."""
    graph = onnx.load(prepare_here(tiny, "onnx").files.built / "onnx" / "model.onnx")
    largest = max(graph.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    other_weights = np.roll(onnx.numpy_helper.to_array(largest), 1)
    largest.CopyFrom(onnx.numpy_helper.from_array(other_weights, largest.name))
    onnx.save(graph, tiny / "model.onnx")

    found = prepare_here(tiny, "auto")

    assert found.engine in ("ctranslate2", "torch")
    assert re.search(r"onnx differs from torch by \d\S+$", found.reason)


def test_auto_tells_all_figures(tiny: Path) -> None:
    figures = r"differs from torch by \d\.\de-\d\d and runs at \d+\.\d times its speed"

    assert re.fullmatch(f"ctranslate2 {figures}; onnx {figures}", prepare_here(tiny, "auto").reason)


def test_auto_is_torch_for_half_precision(tiny: Path) -> None:
    assert prepare_here(tiny, "auto", "bfloat16").engine == "torch"


def test_auto_in_int8_is_the_engine_nearest_to_float32(tiny: Path) -> None:
    assert prepare_here(tiny, "auto", "int8").engine == "ctranslate2"


def test_auto_in_int8_is_onnx_where_ctranslate2_has_no_such_network(tmp_path: Path) -> None:
    found = prepare_here(save_network("mpnet", tmp_path), "auto", "int8")

    assert found.engine == "onnx"
    assert "mpnet is none of" in found.reason


def test_several_starts_at_once_make_everything_once(tiny: Path, starts: Starts, tmp_path: Path) -> None:
    running = [starts.begin(str(tiny), tmp_path / "cache", engine="onnx") for _ in range(3)]

    done = [starts.end(process) for process in running]

    stages = [stage for start in done for stage in start["stages"]]
    assert stages.count("exporting to ONNX") == 1
    assert len({start["fingerprint"] for start in done}) == 1
    assert not [path for path in (tmp_path / "cache" / "models").rglob(".*") if path.is_dir()]


def test_a_start_that_is_killed_leaves_the_work_to_the_next(tiny: Path, starts: Starts, tmp_path: Path) -> None:
    killed = starts.begin(str(tiny), tmp_path / "cache", engine="onnx")
    parent = psutil.Process(killed.pid)
    until = time.monotonic() + 30
    while not any("spawn_main" in " ".join(one.cmdline()) for one in parent.children()):
        assert time.monotonic() < until
        time.sleep(0.02)
    children = parent.children()

    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    done = starts.run(str(tiny), tmp_path / "cache", engine="onnx")

    assert "loading with onnx" in done["stages"]
    assert psutil.wait_procs(children, timeout=10)[1] == []


def test_a_local_folder_never_touches_the_network(tiny: Path, starts: Starts, tmp_path: Path) -> None:
    """`auto` runs all there is: the tokenizer's making, torch, the export and onnxruntime."""
    (tmp_path / "sitecustomize.py").write_text(NO_NETWORK)  # every process started with this folder on its path

    assert "comparing ctranslate2, onnx with torch" in starts.run(str(tiny), tmp_path / "cache")["stages"]


def test_the_network_would_have_been_seen(starts: Starts, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(NO_NETWORK)
    process = starts.begin("org/name", tmp_path / "cache")

    assert "network:" in process.communicate(timeout=60)[1]
    assert process.returncode == 99


def load(model: Path | str, cache_dir: str, engine: str = "onnx", **more: Any) -> LoadedModel:
    return load_model(
        ModelSettings(model=str(model), engine=engine, cache_dir=cache_dir, **more), "cpu", ignore_progress
    )


@pytest.mark.usefixtures("made_here")
def test_the_fingerprint_is_of_what_makes_the_vectors(tiny: Path, tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    original = load(tiny, cache)
    copy = load(shutil.copytree(tiny, tmp_path / "copy"), cache)
    other_limit = load(tiny, cache, max_length=9)
    other_engine = load(tiny, cache, engine="torch")
    other_dtype = load(tiny, cache, engine="torch", dtype="bfloat16")
    (tiny / "README.md").write_text("This changes nothing.")
    other_words = load(tiny, cache)
    pooled = json.loads((tiny / "1_Pooling" / "config.json").read_text())
    changed = pooled | {"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True}
    (tiny / "1_Pooling" / "config.json").write_text(json.dumps(changed))
    other_pooling = load(tiny, cache)

    assert original.fingerprint == copy.fingerprint == other_engine.fingerprint == other_words.fingerprint
    others = {model.fingerprint for model in (original, other_limit, other_dtype, other_pooling)}
    assert len(others) == 4


def test_files_make_the_family_elsewhere(minilm: LoadedModel) -> None:
    files = pickle.loads(pickle.dumps(minilm.files))
    family = make_family(minilm.family_name, files)

    here = minilm.family.prepare(minilm.family.head("embed", {}), ["a text"], {})
    there = family.prepare(family.head("embed", {}), ["a text"], {})

    assert here.ragged["input_ids"].tolist() == there.ragged["input_ids"].tolist()


def test_making_a_family_is_light(minilm: LoadedModel, tmp_path: Path) -> None:
    (tmp_path / "files").write_bytes(pickle.dumps(minilm.files))
    code = (
        "import pickle, sys, time; files = pickle.load(open(sys.argv[1], 'rb'));"
        "from infinity_pool.workers.models.choices import make_family;"
        "family = make_family(sys.argv[2], files);"
        "family.prepare(family.head('embed', {}), ['a text'], {});"
        "print([name for name in ('torch', 'transformers', 'onnxruntime', 'scipy') if name in sys.modules])"
    )

    command = [sys.executable, "-c", code, str(tmp_path / "files"), minilm.family_name]

    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_rows_selection_keeps_the_vectors(minilm: LoadedModel) -> None:
    texts = ["one", "two and some more", "three", "four " * 30]
    family: Family = minilm.family
    rows = family.prepare(family.head("embed", {}), texts, {})

    picked = family.collate([rows.select([3, 0]), rows.select([1])])
    vectors = minilm.engine.run(picked, family.reduce)

    np.testing.assert_allclose(vectors, embed(family, minilm.engine, [texts[3], texts[0], texts[1]]), atol=1e-6)


def test_a_cache_that_cannot_be_written(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(InvalidInput, match="nothing can be kept in") as caught:
        load(tiny, str(tmp_path / "file" / "cache"))

    assert caught.value.param == "cache_dir"


def test_what_a_model_lacks_is_told_by_the_other_process(tiny: Path, tmp_path: Path) -> None:
    (tiny / "tokenizer.json").unlink()

    with pytest.raises(InvalidInput, match="no tokenizer for"):
        load(tiny, str(tmp_path / "cache"))


def test_an_unknown_engine_is_named(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(
        InvalidInput, match="no engine 'abacus'; there are auto, ctranslate2, dummy, neuron, onnx, torch, tpu"
    ) as caught:
        load(tiny, str(tmp_path / "cache"), engine="abacus")

    assert caught.value.param == "engine"

"""CLAP: the vectors of transformers' own processor and model, whatever the batch."""

import pickle
import subprocess
import sys
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import soxr
import torch

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from infinity_pool.workers.families.clap import serves
from infinity_pool.workers.files.locate import locate
from infinity_pool.workers.interface import Claim, Engine, Family, Head
from infinity_pool.workers.models.choices import engine_module, make_family
from infinity_pool.workers.models.detect import detect
from infinity_pool.workers.settings import ModelSettings
from tests.tiny_towers import WIDTH, clap_extractor, save_clap, sound, tone, transformers
from tests.workers.conftest import ignore_progress, load_here, prepare_here, run

TEXTS = ["a dog barks", "rain", "the quick brown fox jumps over the lazy dog " * 9, "a beep"]
SOUNDS = [
    sound(tone(0.3)),
    sound(tone(0.7, 44_100, 900, channels=2), 44_100, "FLAC", "PCM_16"),
    sound(tone(1.0, hertz=300), subtype="PCM_U8"),
    sound(tone(0.05, 48_000, 200), 48_000, subtype="PCM_24"),
]

Model = tuple[Path, Family, Engine]


@pytest.fixture(scope="module", params=[False, True], ids=["one view", "fused"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = save_clap(tmp_path_factory.mktemp("clap"), fusion=request.param)
    return folder, *load_here(folder)


def reference(folder: Path, modality: str, items: list[Any]) -> Array:
    """What transformers gives, each item alone."""
    network = transformers.AutoModel.from_pretrained(folder).eval()
    processor = transformers.AutoProcessor.from_pretrained(folder)
    rows = []
    with torch.inference_mode():
        for item in items:
            if modality == "text":
                inputs = processor.tokenizer([item], truncation=True, return_tensors="pt")
                rows.append(network.get_text_features(**inputs).pooler_output)
            else:
                samples, rate = soundfile.read(BytesIO(item), dtype="float32", always_2d=True)
                mono = soxr.resample(samples.mean(axis=1), rate, 8000, "HQ")
                inputs = processor.feature_extractor(mono, sampling_rate=8000, return_tensors="pt")
                rows.append(network.get_audio_features(**inputs).pooler_output)
    return torch.cat(rows).numpy()


@pytest.mark.parametrize(("modality", "items"), [("text", TEXTS), ("audio", SOUNDS)])
def test_equals_transformers(model: Model, modality: str, items: list[Any]) -> None:
    folder, family, engine = model
    wanted = reference(folder, modality, items)
    assert np.abs(wanted[0] - wanted[1]).max() > 1e-3  # else what follows says nothing

    for order in (slice(None), slice(None, None, -1)):
        vectors = run(family, engine, "embed", items[order], modality=modality)
        np.testing.assert_allclose(vectors, wanted[order], atol=1e-5)
    for item, vector in zip(items, wanted, strict=True):
        np.testing.assert_allclose(run(family, engine, "embed", [item], modality=modality)[0], vector, atol=1e-5)


def test_a_long_sound_has_one_vector_where_transformers_draws(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, family, engine = model
    long = sound(tone(2.7, hertz=700))
    rows = family.prepare(family.head("embed", {"modality": "audio"}), [long, SOUNDS[0]], {"modality": "audio"})
    fused = rows.fixed["input_features"].shape[1] == 4
    assert rows.truncated.tolist() == [not fused, False]  # a fused model hears all of it

    monkeypatch.setattr(np.random, "choice", lambda values: values[len(values) // 2])
    monkeypatch.setattr(np.random, "randint", lambda low, high: low)
    wanted = reference(folder, "audio", [long])

    for _ in range(2):
        vectors = run(family, engine, "embed", [SOUNDS[0], long], modality="audio")
        np.testing.assert_allclose(vectors[1:], wanted, atol=1e-5)


def test_heads_and_options(model: Model) -> None:
    _, family, engine = model
    assert family.head("embed", {}) == Head("embed", "text") != family.head("embed", {"modality": "audio"})
    assert family.dimensions == WIDTH
    cut = run(family, engine, "embed", SOUNDS[:2], modality="audio", dimensions=8)
    whole = run(family, engine, "embed", SOUNDS[:2], modality="audio")
    np.testing.assert_allclose(cut, whole[:, :8] / np.linalg.norm(whole[:, :8], axis=1, keepdims=True), rtol=1e-5)
    for options, param in (({"modality": "image"}, "modality"), ({"normalize": False}, "normalize")):
        with pytest.raises(InvalidInput) as caught:
            family.head("embed", options)
        assert caught.value.param == param


def test_a_broken_file_is_named(model: Model) -> None:
    _, family, engine = model
    for broken in (b"nothing", SOUNDS[0][:500], "a text"):
        with pytest.raises(InvalidInput) as caught:
            run(family, engine, "embed", [SOUNDS[0], broken], modality="audio")
        assert caught.value.item == 1


def test_refused_at_start(tmp_path: Path) -> None:
    clap_extractor("fusion").save_pretrained(save_clap(tmp_path))
    with pytest.raises(InvalidInput, match="other views than its network takes"):
        load_here(tmp_path)


def test_one_tower_alone_is_not_claimed(model: Model) -> None:
    files = locate(ModelSettings(model=str(model[0])), ignore_progress)
    assert detect(files) == "clap"
    assert serves(replace(files, config=files.config | {"architectures": ["ClapAudioModel"]})) is Claim.NONE


def test_half_precision(tmp_path: Path) -> None:
    found = prepare_here(save_clap(tmp_path, fusion=True))
    family = make_family("clap", found.files)
    engine = engine_module("torch").load(found.files, family, "cpu", "bfloat16")
    for modality, items in (("text", TEXTS), ("audio", SOUNDS)):
        vectors = run(family, engine, "embed", items, modality=modality)
        assert (vectors * reference(tmp_path, modality, items)).sum(axis=1).min() > 0.99


def test_sounds_are_prepared_without_torch(tmp_path: Path) -> None:
    (tmp_path / "files").write_bytes(pickle.dumps((prepare_here(save_clap(tmp_path)).files, SOUNDS)))
    code = (
        "import pathlib, pickle, sys\n"
        "from infinity_pool.workers.families import clap\n"
        "files, sounds = pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())\n"
        "family = clap.make(files)\n"
        "options = {'modality': 'audio'}\n"
        "print(len(family.prepare(family.head('embed', options), sounds, options).lengths))\n"
        "assert not {'torch', 'transformers'} & sys.modules.keys()\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "files")], capture_output=True, text=True)
    assert done.stdout == f"{len(SOUNDS)}\n", done.stderr

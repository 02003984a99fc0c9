"""Vectors of texts and images are those of sentence-transformers, by vision-language networks."""

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import transformer

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from infinity_pool.workers.interface import Engine, Family
from tests.tiny_models import WIDTH, pooling
from tests.tiny_vision_language import image, processor, save_vision_language
from tests.workers.conftest import load_here, prepare_here, run

PROMPTS = {"prompts": {"query": "Find what answers the question.", "document": ""}}
TEXTS = ["what is on the page?", "a longer text, about the table of figures in the annual report", "x", "", " ja\n"]
IMAGES = [image(64, 48), image(40, 70), image(200, 131), image(33, 32)]
BOTH: list[str | bytes] = [*TEXTS, *IMAGES]
LONG = "one two three, " * 100


class _Loader:
    """Loads processors without torchvision."""

    @staticmethod
    def from_pretrained(folder: str, **options: Any) -> Any:
        names = ("cache_dir", "local_files_only", "revision", "subfolder", "token", "trust_remote_code")
        return processor(folder, **{name: value for name, value in options.items() if name not in names})


def theirs(folder: Path) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transformer, "AutoProcessor", _Loader)
        return SentenceTransformer(str(folder), device="cpu")


def encode(reference: Any, items: Sequence[str | bytes], **options: Any) -> Array:
    """Give sentence-transformers' own vectors; bytes are those of image files."""
    inputs = [Image.open(io.BytesIO(item)).convert("RGB") if isinstance(item, bytes) else item for item in items]
    return np.asarray(reference.encode(inputs, **options))


class Loaded(NamedTuple):
    family: Family
    engine: Engine
    reference: Any

    def run(self, items: Sequence[str | bytes], **options: Any) -> Array:
        """Embed, as images if they are bytes."""
        modality = {"modality": "image"} if isinstance(items[0], bytes) else {}
        return np.asarray(run(self.family, self.engine, "embed", items, **modality, **options))


def loaded(folder: Path) -> Loaded:
    return Loaded(*load_here(folder), theirs(folder))


def tiny(factory: pytest.TempPathFactory, kind: str) -> Loaded:
    return loaded(save_vision_language(factory.mktemp(kind), kind, **PROMPTS))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return tiny(tmp_path_factory, "qwen3_vl")


@pytest.mark.parametrize("kind", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_vectors_are_theirs_alone_and_in_mixtures(kind: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    model = tiny(tmp_path_factory, kind)
    expected = encode(model.reference, BOTH)

    np.testing.assert_allclose(np.concatenate([model.run(TEXTS), model.run(IMAGES)]), expected, atol=1e-5)
    for place in range(1, len(BOTH), 2):
        np.testing.assert_allclose(model.run([BOTH[place]])[0], expected[place], atol=1e-5)


@pytest.mark.parametrize("prompt", [{"prompt_name": "query"}, {"prompt": "Anything else."}], ids=["named", "given"])
def test_a_prompt_is_the_systems_message(model: Loaded, prompt: dict[str, str]) -> None:
    expected = encode(model.reference, [*TEXTS, *IMAGES[:2]], **prompt)

    ours = np.concatenate([model.run(TEXTS, **prompt), model.run(IMAGES[:2], **prompt)])

    np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_images_of_several_takes_share_a_batch(model: Loaded) -> None:
    family, engine, _ = model
    head = family.head("embed", {"modality": "image"})
    rows = family.prepare(head, IMAGES, {})

    batch = family.collate([rows.select([3, 1]), family.prepare(head, IMAGES[:1], {}), rows.select([2])])

    expected = model.run([IMAGES[at] for at in (3, 1, 0, 2)])
    np.testing.assert_allclose(engine.run(batch, family.reduce), expected, atol=1e-5)


def test_what_a_template_puts_behind_a_text_stays_where_that_is_cut(model: Loaded) -> None:
    rows = model.family.prepare(model.family.head("embed", {}), [LONG, "short"], {})

    assert (rows.lengths[0], rows.truncated.tolist()) == (256, [True, False])
    np.testing.assert_allclose(model.run([LONG, "short"]), encode(model.reference, [LONG, "short"]), atol=1e-5)


def test_options_of_vectors(model: Loaded) -> None:
    cut = encode(model.reference, IMAGES)[:, :8]

    vectors = model.run(IMAGES, dimensions=8)

    np.testing.assert_allclose(vectors, cut / np.linalg.norm(cut, axis=1, keepdims=True), atol=1e-5)
    assert np.abs(np.linalg.norm(model.run(IMAGES, normalize=False), axis=1) - 1).min() > 0.01
    assert model.run(TEXTS, pooling="mean").shape == (len(TEXTS), WIDTH)


def test_a_models_own_settings(tmp_path: Path) -> None:
    processing = {
        "chat_template": {"add_generation_prompt": True},
        "image": {"size": {"shortest_edge": 3136, "longest_edge": 3136}},
        "text": {"max_length": 64},
    }
    settings = {"processing_kwargs": processing, "processor_kwargs": {"model_max_length": 128}}
    described = PROMPTS | {"default_prompt_name": "query", "truncate_dim": 48}
    mean = pooling("mean", include_prompt=False)
    model = loaded(save_vision_language(tmp_path, "qwen2_vl", mean, settings=settings, **described))

    for items in ([*TEXTS, LONG], IMAGES[:2]):
        np.testing.assert_allclose(model.run(items), encode(model.reference, items), atol=1e-5)


def test_a_folder_of_older_versions_takes_texts_alone(tmp_path: Path) -> None:
    save_vision_language(tmp_path, "qwen2_vl")
    (tmp_path / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 64}))
    model = loaded(tmp_path)

    assert model.family.modalities == ("text",)
    np.testing.assert_allclose(model.run(TEXTS[:3]), encode(model.reference, TEXTS[:3]), atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"processing_kwargs": {"video": {"fps": 1}}}, "video are not served"),
        ({"processing_kwargs": {"chat_template": {"padding": True}}}, "padding are not served"),
        ({"query_length": 8}, "query_length"),
        ({"modality_config": {"message": {"method": "forward", "format": "flat"}}}, "flat messages"),
        ({"modality_config": {"message": {"method": "get_text_features"}}}, "only messages by its forward method"),
    ],
)
def test_settings_that_are_not_served(settings: dict[str, Any], words: str, tmp_path: Path) -> None:
    save_vision_language(tmp_path, "qwen2_vl", settings=settings)

    with pytest.raises(InvalidInput, match=words):
        prepare_here(tmp_path)


def test_other_networks_that_take_messages_are_refused(tmp_path: Path) -> None:
    save_vision_language(tmp_path, "qwen2_vl")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "qwen3_5"}))

    with pytest.raises(InvalidInput, match="takes text, image, video, message, and only plain text"):
        prepare_here(tmp_path)
    with pytest.raises(InvalidInput, match="serves qwen2_5_vl, qwen2_vl, qwen3_vl"):
        prepare_here(tmp_path, family="vision_language")


@pytest.mark.parametrize(
    ("options", "items", "message"),
    [
        ({"modality": "audio"}, [b""], "text and image"),
        ({"modality": "image", "truncation_side": "left"}, [IMAGES[0]], "no option 'truncation_side'"),
        ({"modality": "image"}, [IMAGES[0], b"no image"], "no image that can be read"),
        ({"modality": "image"}, [IMAGES[0], image(1, 300)], "aspect ratio"),
        ({"modality": "image", "prompt": "<|image_pad|>"}, [IMAGES[0]], "must not have"),
        ({"modality": "image", "prompt": LONG}, [IMAGES[0]], "over 256 tokens"),
        ({}, ["text", b"bytes"], "must be a text"),
        ({}, ["text", np.array([1, 2])], "must be a text"),
        ({"prompt_name": "other"}, ["text"], "no prompt_name 'other'"),
        ({"dimensions": WIDTH + 1}, ["text"], f"from 1 to {WIDTH}"),
    ],
)
def test_bad_input(model: Loaded, options: dict[str, Any], items: list[Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        model.family.prepare(model.family.head("embed", options), items, options)

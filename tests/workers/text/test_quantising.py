"""Embeddings in other number formats are sentence-transformers' own."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers.util import quantize_embeddings

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.files.content import RANGES
from infinity_pool.workers.interface import Engine, Family, ModelFiles
from infinity_pool.workers.models.calibrate import calibrate
from infinity_pool.workers.models.choices import make_family
from infinity_pool.workers.models.loading import load_model
from infinity_pool.workers.settings import ModelSettings
from infinity_pool.workers.text.quantising import NumberFormats
from tests.tiny_late_interaction import DIM, save_bge_m3
from tests.tiny_models import WIDTH, pooling, save_modules, save_network
from tests.workers.conftest import embed, ignore_progress, load_here, run

TEXTS = ["hello world", "What is the capital of France?", "a cat sits on the mat", "3.14!"]
FORMATS = ["float32", "int8", "uint8", "binary", "ubinary"]


def files_with(folder: Path, ranges: Any = None, usual: str = "float32") -> ModelFiles:
    if ranges is not None:
        np.save(folder / RANGES, ranges)
    return ModelFiles(folder, {}, "some/model", embedding_dtype=usual)


@pytest.mark.parametrize("wanted", FORMATS)
@pytest.mark.parametrize("width", [8, 13, 64])
def test_every_format(wanted: Any, width: int, tmp_path: Path) -> None:
    source = np.random.default_rng(0)
    vectors = source.standard_normal((50, width), np.float32)
    vectors[:2, 0] = 0.0, -0.0
    ranges = np.stack([vectors[:20].min(0), vectors[:20].max(0)])  # others lie outside
    ranges[1, 1] = ranges[0, 1]
    formats = NumberFormats(files_with(tmp_path, ranges), width)

    ours = formats.apply(vectors, {"embedding_dtype": wanted})
    theirs: Any = quantize_embeddings(vectors, wanted, ranges=ranges)

    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)
    narrow = formats.apply(vectors[:, :5], {"embedding_dtype": wanted})
    np.testing.assert_array_equal(narrow, quantize_embeddings(vectors[:, :5], wanted, ranges=ranges[:, :5]))


def test_matrices_and_nothing() -> None:
    formats = NumberFormats(ModelFiles(Path(), {}, "m"), 13, steps=False)
    matrix = np.random.default_rng(0).standard_normal((3, 13), np.float32)

    for wanted in ("binary", "ubinary"):
        [theirs] = quantize_embeddings([matrix], wanted)
        np.testing.assert_array_equal(formats.apply(matrix, {"embedding_dtype": wanted}), theirs)
    assert formats.apply(matrix[:0], {"embedding_dtype": "binary"}).shape == (0, 2)
    half = formats.apply(matrix, {"embedding_dtype": "float16"})
    assert half.dtype == np.float16
    np.testing.assert_array_equal(half, matrix.astype(np.float16))
    with pytest.raises(InvalidInput, match="one of float32, float16, binary, ubinary, not 'int8'"):
        formats.check({"embedding_dtype": "int8"})


def test_the_default_is_the_workers(tmp_path: Path) -> None:
    vectors = np.ones((1, 8), np.float32)

    assert NumberFormats(files_with(tmp_path, usual="ubinary"), 8).apply(vectors, {}).tolist() == [[255]]
    assert NumberFormats(files_with(tmp_path, usual="int8"), 8, steps=False).apply(vectors, {}).dtype == np.float32


@pytest.mark.parametrize(
    ("ranges", "words"),
    [
        (np.zeros((2, 9), np.float32), r"must hold floating-point numbers \[2, 8\]"),
        (np.zeros((2, 8), np.int32), "floating-point"),
        (np.full((2, 8), np.nan, np.float32), "a range that is none"),
        (np.stack([np.ones(8), np.zeros(8)]), "a range that is none"),
    ],
)
def test_ranges_that_are_none(ranges: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=words):
        NumberFormats(files_with(tmp_path, ranges), 8)

    (tmp_path / RANGES).write_bytes(b"no array")
    with pytest.raises(InvalidInput, match="cannot be read"):
        NumberFormats(files_with(tmp_path), 8)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> tuple[Family, Engine]:
    folder = save_network("bert", tmp_path_factory.mktemp("bert"))
    save_modules(folder, pooling("mean"), ("Normalize", {}))
    np.save(folder / RANGES, np.stack([np.full(WIDTH, -0.2), np.full(WIDTH, 0.2)]).astype(np.float32))
    return load_here(folder)


@pytest.mark.parametrize("wanted", FORMATS)
def test_vectors_of_a_model(wanted: Any, bert: tuple[Family, Engine]) -> None:
    ranges = np.stack([np.full(WIDTH, -0.2), np.full(WIDTH, 0.2)]).astype(np.float32)
    for dimensions in (WIDTH, 20):
        plain = embed(*bert, TEXTS, dimensions=dimensions)
        ours = embed(*bert, TEXTS, dimensions=dimensions, embedding_dtype=wanted)
        np.testing.assert_array_equal(ours, quantize_embeddings(plain, wanted, ranges=ranges[:, :dimensions]))


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"embedding_dtype": "int4"}, "embedding_dtype"),
        ({"embedding_dtype": 8}, "embedding_dtype"),
        ({"embedding_dtype": "int8", "normalize": False}, "normalize"),
        ({"embedding_dtype": "uint8", "pooling": "cls"}, "pooling"),
    ],
)
def test_what_is_refused(options: dict[str, Any], param: str, bert: tuple[Family, Engine]) -> None:
    with pytest.raises(InvalidInput, match=param) as caught:
        bert[0].head("embed", options)
    assert caught.value.param == param


def test_what_changes_nothing_is_taken(bert: tuple[Family, Engine]) -> None:
    bert[0].head("embed", {"embedding_dtype": "int8", "normalize": True, "pooling": "mean"})


def test_all_that_one_network_gives(tmp_path: Path) -> None:
    family, engine = load_here(save_bge_m3(tmp_path))

    assert run(family, engine, "embed", TEXTS, embedding_dtype="ubinary").shape == (len(TEXTS), WIDTH // 8)
    assert run(family, engine, "multivector", TEXTS, embedding_dtype="float16")[0].dtype == np.float16
    assert run(family, engine, "multivector", TEXTS, embedding_dtype="binary")[0].shape[1] == DIM // 8
    with pytest.raises(InvalidInput, match="no option 'embedding_dtype'"):
        family.head("sparse", {"embedding_dtype": "float16"})


def test_ranges_are_measured_once_and_found_by_workers(tmp_path: Path) -> None:
    folder = save_modules(save_network("bert", tmp_path / "model"), pooling("mean"), ("Normalize", {}))
    settings = ModelSettings(model=str(folder), engine="torch", device="cpu", cache_dir=str(tmp_path / "cache"))
    texts = tmp_path / "texts.txt"
    texts.write_text("\n\n".join(TEXTS))
    before = load_model(settings, "cpu", ignore_progress)
    with pytest.raises(InvalidInput, match=f"int8 needs ranges: infinity calibrate --model {folder} --texts FILE"):
        before.family.head("embed", {"embedding_dtype": "int8"})

    made = calibrate(settings, texts, ignore_progress)
    after = load_model(dataclasses.replace(settings, embedding_dtype="int8"), "cpu", ignore_progress)

    plain = embed(before.family, before.engine, TEXTS)
    ranges = np.stack([plain.min(0), plain.max(0)])
    assert (made.texts, made.width) == (len(TEXTS), WIDTH)
    np.testing.assert_allclose(np.load(made.path), ranges, atol=1e-6)
    ours = embed(make_family("sentence_transformer", after.files), after.engine, TEXTS)
    np.testing.assert_array_equal(ours, quantize_embeddings(plain, "int8", ranges=np.load(made.path)))
    assert before.fingerprint != after.fingerprint


@pytest.mark.parametrize(("text", "words"), [(None, "cannot be read"), ("one\n \n", "has 1 lines of text")])
def test_texts_that_are_too_few(text: str | None, words: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "texts").write_text(text)
    with pytest.raises(InvalidInput, match=words):
        calibrate(ModelSettings(model="x"), tmp_path / "texts", ignore_progress)

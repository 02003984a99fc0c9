"""Every token's vector is that of transformers' own classes, for queries and page images."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from infinity_pool.workers.interface import Engine, Family
from infinity_pool.workers.models.detect import detect
from tests.tiny_vision_language import QUERIES, TEXT, byte_tokenizer, image, qwen_config, qwen_tokenizer
from tests.workers.conftest import load_here, prepare_here, run

WIDTH = 32
_VISION = {**TEXT, "hidden_size": 32, "image_size": 32, "patch_size": 8, "model_type": "siglip_vision_model"}
PAGES = [image(64, 48), image(40, 70), image(100, 31)]


def colpali(folder: Path) -> None:
    tokenizer = byte_tokenizer(transformers.PreTrainedTokenizerFast, "<image>")
    image_id = tokenizer.image_token_id = tokenizer.convert_tokens_to_ids("<image>")
    tokenizer.image_token = "<image>"
    text = {"model_type": "gemma", "vocab_size": len(tokenizer), "num_key_value_heads": 1, "head_dim": 16, **TEXT}
    vision = {**_VISION, "projection_dim": 64, "vision_use_head": False, "num_image_tokens": 16}
    config: Any = transformers.PaliGemmaConfig(  # type: ignore[call-arg] # the stub has its older name
        text_config={**text, "num_image_tokens": 16, "max_position_embeddings": 512},
        vision_config=vision,
        image_token_id=image_id,
        projection_dim=64,
    )
    both = transformers.ColPaliConfig(vlm_config=config, embedding_dim=WIDTH)
    transformers.ColPaliForRetrieval(both).save_pretrained(folder)
    images: Any = transformers.SiglipImageProcessor(size={"height": 32, "width": 32})
    images.image_seq_length = 16
    transformers.ColPaliProcessor(images, tokenizer).save_pretrained(folder)


def colqwen2(folder: Path) -> None:
    tokenizer = qwen_tokenizer()
    config = qwen_config("qwen2_vl", tokenizer)
    transformers.ColQwen2ForRetrieval(
        transformers.ColQwen2Config(vlm_config=config, embedding_dim=WIDTH)
    ).save_pretrained(folder)
    images = transformers.Qwen2VLImageProcessor(size={"shortest_edge": 56 * 56, "longest_edge": 112 * 112})
    transformers.ColQwen2Processor(images, tokenizer).save_pretrained(folder)


def colmodernvbert(folder: Path) -> None:
    tiles = [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]
    marks = ("<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>", *tiles)
    tokenizer = byte_tokenizer(transformers.PreTrainedTokenizerFast, *marks)
    ids = {f"{name}_token_id": 0 for name in ("pad", "bos", "eos", "cls", "sep")}
    text = {"vocab_size": len(tokenizer), "max_position_embeddings": 512, "local_attention": 16, **TEXT, **ids}
    config = transformers.ModernVBertConfig(
        text_config={"model_type": "modernbert", **text},
        vision_config={**_VISION, "vision_use_head": False},
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        pixel_shuffle_factor=2,
    )
    both = transformers.ColModernVBertConfig(vlm_config=config, embedding_dim=WIDTH)
    transformers.ColModernVBertForRetrieval(both).save_pretrained(folder)
    images = transformers.Idefics3ImageProcessor(size={"longest_edge": 64}, max_image_size={"longest_edge": 32})
    transformers.ColModernVBertProcessor(images, tokenizer, image_seq_len=4).save_pretrained(folder)


KINDS: dict[str, Callable[[Path], None]] = {
    "ColPaliForRetrieval": colpali,
    "ColQwen2ForRetrieval": colqwen2,
    "ColModernVBertForRetrieval": colmodernvbert,
}


@pytest.fixture(scope="module", params=KINDS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Family, Engine]:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp(request.param)
    KINDS[request.param](folder)
    return folder, *load_here(folder)


def reference(folder: Path, **items: Any) -> Array:
    """Give one item's token vectors by the class itself, run alone."""
    processor = transformers.AutoProcessor.from_pretrained(folder)  # type: ignore[no-untyped-call]
    kind = transformers.AutoConfig.from_pretrained(folder).architectures[0]
    network = getattr(transformers, kind).from_pretrained(folder).eval()
    inputs = processor.process_images(**items) if "images" in items else processor.process_queries(**items)
    with torch.inference_mode():
        return np.asarray(network(**inputs).embeddings[0])


def test_queries(model: tuple[Path, Family, Engine]) -> None:
    folder, family, engine = model
    expected = [reference(folder, text=[text]) for text in QUERIES]

    together = run(family, engine, "multivector", QUERIES)
    reverse = run(family, engine, "multivector", QUERIES[::-1])[::-1]

    for theirs, ours, again in zip(expected, together, reverse, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
        np.testing.assert_allclose(again, theirs, atol=1e-5)


def test_pages(model: tuple[Path, Family, Engine]) -> None:
    folder, family, engine = model
    expected = [reference(folder, images=[Image.open(io.BytesIO(page)).convert("RGB")]) for page in PAGES]

    together = run(family, engine, "multivector", PAGES, modality="image")
    reverse = run(family, engine, "multivector", PAGES[::-1], modality="image")[::-1]

    for theirs, ours, again in zip(expected, together, reverse, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
        np.testing.assert_allclose(again, theirs, atol=1e-5)


def test_items_of_several_takes_share_a_batch(model: tuple[Path, Family, Engine]) -> None:
    _, family, engine = model
    head = family.head("multivector", {"modality": "image"})
    rows = [family.prepare(head, [page], {}) for page in PAGES]

    batch = family.collate(rows)
    together = family.split(engine.run(batch, family.reduce), batch)

    for ours, alone in zip(together, run(family, engine, "multivector", PAGES, modality="image"), strict=True):
        np.testing.assert_allclose(ours, alone, atol=1e-5)


def test_dimensions_cut_the_width_and_no_token(model: tuple[Path, Family, Engine]) -> None:
    _, family, engine = model
    whole = run(family, engine, "multivector", QUERIES)

    cut = run(family, engine, "multivector", QUERIES, dimensions=8)

    for ours, theirs in zip(cut, whole, strict=True):
        np.testing.assert_allclose(
            ours, theirs[:, :8] / np.linalg.norm(theirs[:, :8], axis=1, keepdims=True), atol=1e-5
        )


def test_an_image_that_is_too_thin_is_named_or_taken(model: tuple[Path, Family, Engine]) -> None:
    folder, family, _ = model
    head, items = family.head("multivector", {"modality": "image"}), [PAGES[0], image(1, 300)]
    if "Qwen2" not in folder.name:
        assert len(family.prepare(head, items, {}).lengths) == 2
        return

    with pytest.raises(InvalidInput, match="aspect ratio") as caught:
        family.prepare(head, items, {})

    assert caught.value.item == 1


def test_a_long_query_is_cut_and_said_to_be(model: tuple[Path, Family, Engine]) -> None:
    _, family, _ = model
    rows = family.prepare(family.head("multivector", {}), ["word " * 5000, "short"], {})

    assert rows.lengths[0] <= family.max_length + 16  # ColPali leaves room for an image that is not there
    assert rows.truncated.tolist() == [True, False]


@pytest.mark.parametrize("side", ["left", "right"])
def test_queries_are_cut_where_a_request_says(model: tuple[Path, Family, Engine], side: str) -> None:
    folder, family, _ = model
    options = {"truncate_prompt_tokens": 9, "truncation_side": side}
    processor: Any = transformers.AutoProcessor.from_pretrained(folder)  # type: ignore[no-untyped-call]
    whole = np.asarray(processor.process_queries(text=["a b c d e f g h " * 9])["input_ids"][0]).tolist()

    rows = family.prepare(family.head("multivector", options), ["a b c d e f g h " * 9], options)

    ids = rows.ragged["input_ids"].tolist()
    assert (len(ids), rows.truncated.tolist()) == (9, [True])
    assert ids == (whole[-9:] if side == "left" else whole[:9])


@pytest.mark.parametrize(
    ("task", "options", "items", "message"),
    [
        ("embed", {}, ["text"], "cannot embed"),
        ("multivector", {"modality": "audio"}, [b""], "text and image"),
        ("multivector", {"dimensions": WIDTH + 1}, ["text"], f"from 1 to {WIDTH}"),
        ("multivector", {"other": 1}, ["text"], "no option 'other'"),
        ("multivector", {}, ["text", b"bytes"], "must be a text"),
        ("multivector", {"modality": "image"}, [PAGES[0], b"no image"], "no image that can be read"),
    ],
)
def test_bad_input(
    model: tuple[Path, Family, Engine], task: str, options: dict[str, Any], items: list[Any], message: str
) -> None:
    _, family, _ = model
    with pytest.raises(InvalidInput, match=message):
        family.prepare(family.head(task, options), items, options)


@pytest.mark.parametrize("kept", [None, [4, 5]])
def test_of_sentence_transformers_modules_none_may_leave_out_tokens(kept: list[int] | None, tmp_path: Path) -> None:
    colqwen2(tmp_path)
    kinds = ["base.modules.transformer.Transformer", "multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask"]
    places = ["", "1_MultiVectorMask"]
    listed = [{"type": f"sentence_transformers.{kind}", "path": places[at]} for at, kind in enumerate(kinds)]
    (tmp_path / "modules.json").write_text(json.dumps(listed))
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps({"model_type": "MultiVectorEncoder"}))
    (tmp_path / "sentence_bert_config.json").write_text(json.dumps({"transformer_task": "retrieval"}))
    (tmp_path / places[1]).mkdir()
    (tmp_path / places[1] / "config.json").write_text(json.dumps({"skiplist_words": [], "keep_only_token_ids": kept}))

    if kept is None:
        assert detect(prepare_here(tmp_path).files) == "colpali"
        return
    with pytest.raises(InvalidInput, match="leaves out tokens"):
        prepare_here(tmp_path)

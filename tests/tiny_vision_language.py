"""Makes tiny networks that see images and read texts, with random weights, in folders like those of real ones."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from tests.tiny_models import pooling, save_modules

TEXT = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
QUERIES = ["what is on the page?", "a longer query, about the table of figures in the annual report", "x"]
QWEN_MARKS = ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
CHAT = (
    "{%- if messages[0].role != 'system' %}<|im_start|>system\nRepresent the user's input.<|im_end|>\n{% endif -%}"
    "{%- for message in messages %}<|im_start|>{{ message.role + '\\n' }}"
    "{%- for part in message.content %}"
    "{%- if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif -%}"
    "{%- endfor %}<|im_end|>\n{% endfor -%}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""A template of the kind that Qwen's models have."""

_CORPUS = [*QUERIES, "Describe the image. Question: Query: system user assistant 0123456789 <>|:\n"] * 3
_KINDS = {"qwen2_vl": "Qwen2VL", "qwen2_5_vl": "Qwen2_5_VL", "qwen3_vl": "Qwen3VL"}


def image(width: int, height: int) -> bytes:
    """Give a PNG file of noise, of its own for each width."""
    noise = np.random.default_rng(width).integers(0, 256, (height, width, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, "PNG")
    return file.getvalue()


def byte_tokenizer(kind: Any, *special: str, **options: Any) -> Any:
    """Train a tiny tokenizer of bytes on the queries, with some special tokens."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    names = ["<pad>", "<eos>", "<bos>", "<unk>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=names, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(_CORPUS, trainer)
    made = kind(
        tokenizer_object=backend,
        pad_token="<pad>",
        eos_token="<eos>",
        bos_token="<bos>",
        unk_token="<unk>",
        model_max_length=256,
        **options,
    )
    made.add_special_tokens({"additional_special_tokens": list(special)})
    return made


def qwen_tokenizer() -> Any:
    """Make a tokenizer with the marks of Qwen's models."""
    return byte_tokenizer(transformers.Qwen2Tokenizer, *QWEN_MARKS, "<|endoftext|>", padding_side="left")


def qwen_config(kind: str, tokenizer: Any) -> Any:
    """Make the configuration of a tiny Qwen network, by its model_type."""
    marks = {"image": "image_pad", "video": "video_pad", "vision_start": "vision_start", "vision_end": "vision_end"}
    ids = {f"{name}_token_id": tokenizer.convert_tokens_to_ids(f"<|{mark}|>") for name, mark in marks.items()}
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 3, 3]}
    text = {"vocab_size": len(tokenizer), "num_key_value_heads": 2, "max_position_embeddings": 512, **TEXT}
    newer = {"hidden_size": 32, "intermediate_size": 64, "out_hidden_size": 64, "num_heads": 2, "depth": 2}
    vision = {
        "qwen2_vl": {"depth": 2, "embed_dim": 32, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 2, "patch_size": 14},
        "qwen2_5_vl": {**newer, "patch_size": 14, "fullatt_block_indexes": [1], "window_size": 56},
        "qwen3_vl": {**newer, "patch_size": 16, "deepstack_visual_indexes": [0], "num_position_embeddings": 16},
    }[kind]
    own = {"head_dim": 16} if kind == "qwen3_vl" else {}
    made = getattr(transformers, f"{_KINDS[kind]}Config")
    return made(text_config={**text, **own, "rope_parameters": rope}, vision_config=vision, **ids)


def save_vision_language(folder: Path, kind: str, *modules: Any, settings: Any = None, **described: Any) -> Path:
    """
    Write a folder as sentence-transformers does: a Qwen network by its model_type, what prepares images, and modules.

    `settings` are those of sentence_bert_config.json, `described` of config_sentence_transformers.json.
    """
    torch.manual_seed(0)
    tokenizer = qwen_tokenizer()
    config = qwen_config(kind, tokenizer)
    network: Any = transformers.AutoModel.from_config(config)  # type: ignore[no-untyped-call]
    network.save_pretrained(folder)
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(folder)
    patch = config.vision_config.patch_size
    size = {"shortest_edge": (4 * patch) ** 2, "longest_edge": (8 * patch) ** 2}
    transformers.Qwen2VLImageProcessor(patch_size=patch, size=size).save_pretrained(folder)
    save_modules(folder, *(modules or (pooling("lasttoken"), ("Normalize", {}))), **described)
    (folder / "sentence_bert_config.json").write_text(json.dumps(SETTINGS | (settings or {})))
    return folder


_FORWARD = {"method": "forward", "method_output_name": "last_hidden_state"}
SETTINGS: dict[str, Any] = {
    "transformer_task": "feature-extraction",
    "modality_config": {
        **dict.fromkeys(("text", "image", "video"), _FORWARD),
        "message": {**_FORWARD, "format": "structured"},
    },
    "module_output_name": "token_embeddings",
}
"""What sentence-transformers writes of a network that takes messages."""


def processor(folder: str, **options: Any) -> Any:
    """Give the processor of a folder, without its part for videos, which cannot be made without torchvision."""
    kind = _KINDS[transformers.AutoConfig.from_pretrained(folder).model_type]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **options)
    images = transformers.AutoImageProcessor.from_pretrained(folder)  # type: ignore[no-untyped-call]
    whole = getattr(transformers, f"{kind}Processor")
    made = type(whole.__name__, (whole,), {"check_argument_for_proper_class": lambda *_: None})
    return made(images, tokenizer, None, chat_template=tokenizer.chat_template)

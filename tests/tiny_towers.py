"""Makes tiny models of two towers with random weights, with their processors, in folders like those of real ones."""

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import soundfile
import torch
import transformers as real_transformers
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tests.tiny_models import _byte_bpe, _sentencepiece_bpe

transformers: Any = real_transformers  # its own types refuse what its own documentation shows

WIDTH = 32
_SHAPE: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}
_SENTENCES = ["a photo of a cat that sits on a red mat", "the quick brown fox jumps over the lazy dog"] * 4
_VISION = _SHAPE | {"image_size": 32, "patch_size": 8}


def save_clip(folder: Path, **processor: Any) -> Path:
    """Write a CLIP model: images of 32 x 32 in 16 patches, texts of at most 20 tokens."""
    torch.manual_seed(0)
    tokenizer = _clip_tokenizer()
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    text = _SHAPE | ids | {"vocab_size": len(tokenizer), "max_position_embeddings": 20, "projection_dim": WIDTH}
    config = transformers.CLIPConfig(
        text_config=text, vision_config=_VISION | {"projection_dim": WIDTH}, projection_dim=WIDTH
    )
    options = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}} | processor
    return _save(folder, transformers.CLIPModel(config), tokenizer, transformers.CLIPImageProcessorPil(**options))


def save_siglip(folder: Path, padding_side: str = "right") -> Path:
    """Write a SigLIP model with the tokenizer of SigLIP 2: texts are padded to 16 tokens."""
    torch.manual_seed(0)
    vocab, merges = _sentencepiece_bpe("<pad>", "<eos>", "<bos>", "<unk>", "<mask>")
    tokenizer = transformers.GemmaTokenizer(vocab=vocab, merges=merges, padding_side=padding_side)
    tokenizer.model_input_names = ["input_ids"]
    return _save(folder, *_siglip(len(tokenizer)), tokenizer)


def _siglip(vocab_size: int) -> tuple[Any, Any]:
    text = _SHAPE | {"vocab_size": vocab_size, "max_position_embeddings": 16, "projection_size": 64}
    config = transformers.SiglipConfig(text_config=text, vision_config=_VISION)
    return transformers.SiglipModel(config), transformers.SiglipImageProcessorPil(size={"height": 32, "width": 32})


def save_siglip_sentencepiece(folder: Path) -> Path:
    """Write a SigLIP model with the tokenizer of the first SigLIP, which only sentencepiece can run."""
    torch.manual_seed(0)
    source = folder / "spiece.model"
    with source.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(_SENTENCES),
            model_writer=file,
            vocab_size=60,
            hard_vocab_limit=False,
            pad_id=-1,
            bos_id=-1,
            eos_id=1,
            unk_id=0,
            minloglevel=2,
        )
    tokenizer = transformers.SiglipTokenizer(str(source), model_max_length=16, model_input_names=["input_ids"])
    return _save(folder, *_siglip(len(tokenizer)), tokenizer)


def save_clap(folder: Path, *, fusion: bool = False) -> Path:
    """Write a CLAP model that hears a second at 8 kHz."""
    torch.manual_seed(0)
    vocab, merges = _byte_bpe("<s>", "<pad>", "</s>", "<unk>", "<mask>")
    tokenizer = transformers.RobertaTokenizer(vocab=vocab, merges=merges, model_max_length=40)
    text = _SHAPE | {"vocab_size": len(tokenizer), "max_position_embeddings": 42, "projection_dim": WIDTH}
    audio = {
        "hidden_size": 64,
        "patch_embeds_hidden_size": 8,
        "depths": [1, 1, 1, 1],
        "num_attention_heads": [1, 1, 2, 2],
        "spec_size": 128,
        "window_size": 4,
        "num_mel_bins": 64,
        "projection_dim": WIDTH,
        "enable_fusion": fusion,
        "aff_block_r": 1,
    }
    config = transformers.ClapConfig(text_config=text, audio_config=audio, projection_dim=WIDTH)
    return _save(
        folder, transformers.ClapModel(config), tokenizer, clap_extractor("fusion" if fusion else "rand_trunc")
    )


def clap_extractor(truncation: str) -> Any:
    """Give the feature extractor of `save_clap`'s model, with one view or four."""
    return transformers.ClapFeatureExtractor(
        sampling_rate=8000,
        max_length_s=1,
        hop_length=80,
        fft_window_size=256,
        feature_size=64,
        frequency_max=3800,
        truncation=truncation,
    )


def png(width: int, height: int, mode: str = "RGB", seed: int = 0) -> bytes:
    """Give a PNG file of noise."""
    channels = len(Image.new(mode, (1, 1)).getbands())
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, channels), np.uint8)
    return encoded(Image.fromarray(noise if channels > 1 else noise[:, :, 0], mode), "PNG")


def encoded(image: Any, kind: str, **options: Any) -> bytes:
    """Give a PIL image as a file of a format."""
    file = BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def _save(folder: Path, *parts: Any) -> Path:
    for part in parts:
        part.save_pretrained(folder)
    return folder


def _clip_tokenizer() -> Any:
    trained = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=700, end_of_word_suffix="</w>", show_progress=False, initial_alphabet=alphabet
    )
    trained.train_from_iterator(_SENTENCES, trainer)
    model = json.loads(trained.to_str())["model"]
    vocab = model["vocab"]
    for special in ("<|startoftext|>", "<|endoftext|>"):
        vocab[special] = len(vocab)
    merges = [tuple(merge) for merge in model["merges"]]
    return transformers.CLIPTokenizer(vocab=vocab, merges=merges, model_max_length=20)


def tone(seconds: float, rate: int = 8000, hertz: float = 440.0, channels: int = 1, seed: int = 0) -> Any:
    """Give float32 samples [n, channels] of a tone in noise, another one in each channel."""
    times = np.arange(int(seconds * rate)) / rate
    noise = np.random.default_rng(seed)
    tones = [np.sin(2 * np.pi * hertz * (1 + each) * times) for each in range(channels)]
    return np.stack([0.4 * one + noise.normal(0, 0.02, len(times)) for one in tones], axis=1).astype(np.float32)


def sound(samples: Any, rate: int = 8000, kind: str = "WAV", subtype: str = "FLOAT") -> bytes:
    """Give samples as a file of a format."""
    file = BytesIO()
    soundfile.write(file, samples, rate, format=kind, subtype=subtype)
    return file.getvalue()

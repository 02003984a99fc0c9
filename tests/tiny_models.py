"""Makes tiny models with random weights, in folders like those of real ones: two layers, 64 wide, in milliseconds."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers as real_transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

WIDTH = 64
POSITIONS = 128

transformers: Any = real_transformers  # its own types refuse what its own documentation shows
transformers.logging.disable_progress_bar()

_CORPUS = [
    "the quick brown fox jumps over the lazy dog",
    "a cat sits on the mat while a kitten sleeps on a rug",
    "What is the capital of France? Paris is the capital of France.",
    "le chat est assis sur le tapis; die Katze sitzt auf der Matte",
    "Stock markets fell sharply (by 3.4%) after today's report!",
    "0123456789 .,;:!?()[]{}<>|'\"-+=*/ query: passage: Instruct:",
] * 4
_SHAPE: dict[str, Any] = {
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}

Builder = Callable[[], tuple[Any, Any]]  # gives a network and its tokenizer


def save_network(kind: str, folder: Path, **tokenizer_options: Any) -> Path:
    """Write the network and the tokenizer of one of ARCHITECTURES."""
    torch.manual_seed(0)
    network, tokenizer = ARCHITECTURES[kind]()
    for name, value in tokenizer_options.items():
        setattr(tokenizer, name, value)
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_scorer(kind: str, folder: Path, labels: int = 1, **settings: Any) -> Path:
    """Write a network that scores texts for some labels, with its tokenizer; `settings` are those of config.json."""
    torch.manual_seed(0)
    network, tokenizer = ARCHITECTURES[kind]()
    for name, value in {"num_labels": labels, **settings}.items():
        setattr(network.config, name, value)
    scorer = transformers.AutoModelForSequenceClassification.from_config(network.config)
    for weights in scorer.parameters():
        if weights.dim() == 2:
            torch.nn.init.normal_(weights, std=0.15)  # so that scores are far apart
    scorer.save_pretrained(folder)
    tokenizer.model_max_length = POSITIONS
    tokenizer.save_pretrained(folder)
    return folder


def save_modules(folder: Path, *modules: tuple[str, dict[str, Any]], **settings: Any) -> Path:
    """
    Write the files that sentence-transformers puts beside a network, in the form of its versions 2 to 5.

    A module is its class's name and its config; `settings` are those of config_sentence_transformers.json, but for
    `max_seq_length` and `do_lower_case`, which are the network's.
    """
    listed = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    for number, (kind, config) in enumerate(modules, start=1):
        place = f"{number}_{kind}"
        (folder / place).mkdir()
        (folder / place / "config.json").write_text(json.dumps(config))
        listed.append(
            {"idx": number, "name": str(number), "path": place, "type": f"sentence_transformers.models.{kind}"}
        )
    own = {"max_seq_length": None, "do_lower_case": False}
    own |= {name: settings.pop(name) for name in own.keys() & settings.keys()}
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "sentence_bert_config.json").write_text(json.dumps(own))
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    return folder


def pooling(*modes: str, include_prompt: bool = True) -> tuple[str, dict[str, Any]]:
    """Give a Pooling module for `save_modules`."""
    names = {
        "cls": "cls_token",
        "max": "max_tokens",
        "mean": "mean_tokens",
        "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
        "weightedmean": "weightedmean_tokens",
        "lasttoken": "lasttoken",
    }
    chosen = {f"pooling_mode_{name}": mode in modes for mode, name in names.items()}
    return "Pooling", {"word_embedding_dimension": WIDTH, "include_prompt": include_prompt} | chosen


def _bert() -> tuple[Any, Any]:
    tokenizer = transformers.BertTokenizer(vocab=_wordpiece("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"))
    return transformers.BertModel(_config(transformers.BertConfig, tokenizer)), tokenizer


def _distilbert() -> tuple[Any, Any]:
    tokenizer = transformers.DistilBertTokenizer(vocab=_wordpiece("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"))
    shape = {"dim": WIDTH, "n_layers": 2, "n_heads": 4, "hidden_dim": 128}
    config = transformers.DistilBertConfig(vocab_size=len(tokenizer), max_position_embeddings=POSITIONS, **shape)
    return transformers.DistilBertModel(config), tokenizer


def _mpnet() -> tuple[Any, Any]:
    tokenizer = transformers.MPNetTokenizer(vocab=_wordpiece("<s>", "<pad>", "</s>", "[UNK]", "<mask>"))
    config = _config(transformers.MPNetConfig, tokenizer, max_position_embeddings=POSITIONS + 2)
    return transformers.MPNetModel(config), tokenizer


def _gemma3() -> tuple[Any, Any]:
    vocab, merges = _sentencepiece_bpe("<pad>", "<eos>", "<bos>", "<unk>", "<mask>")
    tokenizer = transformers.GemmaTokenizer(vocab=vocab, merges=merges)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A <eos>",
        pair="<bos> $A $B <eos>",
        special_tokens=[(token, vocab[token]) for token in ("<bos>", "<eos>")],
    )
    more = {"num_key_value_heads": 1, "head_dim": 16, "sliding_window": 32, "use_bidirectional_attention": True}
    ids = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}
    return transformers.Gemma3TextModel(_config(transformers.Gemma3TextConfig, tokenizer, **more, **ids)), tokenizer


def _roberta() -> tuple[Any, Any]:
    vocab, merges = _byte_bpe("<s>", "<pad>", "</s>", "<unk>", "<mask>")
    tokenizer = transformers.RobertaTokenizer(vocab=vocab, merges=merges)
    config = _config(transformers.RobertaConfig, tokenizer, max_position_embeddings=POSITIONS + 2)
    return transformers.RobertaModel(config), tokenizer


def _xlm_roberta() -> tuple[Any, Any]:
    tokenizer = transformers.XLMRobertaTokenizer(vocab=_unigram("<s>", "<pad>", "</s>", "<unk>", "<mask>"))
    config = _config(transformers.XLMRobertaConfig, tokenizer, max_position_embeddings=POSITIONS + 2)
    return transformers.XLMRobertaModel(config), tokenizer


def _modernbert() -> tuple[Any, Any]:
    vocab, merges = _byte_bpe("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[(token, vocab[token]) for token in ("[CLS]", "[SEP]")],
    )
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "cls", "sep", "pad", "mask")}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, model_input_names=["input_ids", "attention_mask"], **names
    )
    ids = {f"{name}_token_id": vocab[f"[{name.upper()}]"] for name in ("cls", "sep", "pad")}
    ids |= {"bos_token_id": vocab["[CLS]"], "eos_token_id": vocab["[SEP]"]}
    config = _config(transformers.ModernBertConfig, tokenizer, local_attention=16, **ids)
    return transformers.ModernBertModel(config), tokenizer


def _qwen3() -> tuple[Any, Any]:
    vocab, merges = _byte_bpe("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    tokenizer = transformers.Qwen2Tokenizer(vocab=vocab, merges=merges, padding_side="left")
    tokenizer.backend_tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single="$A <|endoftext|>",
                pair="$A $B <|endoftext|>",
                special_tokens=[("<|endoftext|>", vocab["<|endoftext|>"])],
            ),
        ]
    )
    more = {"num_key_value_heads": 2, "head_dim": 16, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}
    return transformers.Qwen3Model(_config(transformers.Qwen3Config, tokenizer, **more)), tokenizer


def _qwen2() -> tuple[Any, Any]:
    _, tokenizer = _qwen3()
    more = {"num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}
    return transformers.Qwen2Model(_config(transformers.Qwen2Config, tokenizer, **more)), tokenizer


def _deberta_v2() -> tuple[Any, Any]:
    tokenizer = transformers.DebertaV2Tokenizer(vocab=_unigram("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"))
    more = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False}
    buckets = {"position_buckets": 16, "norm_rel_ebd": "layer_norm", "share_att_key": True}
    config = _config(transformers.DebertaV2Config, tokenizer, pooler_hidden_size=WIDTH, **more, **buckets)
    return transformers.DebertaV2Model(config), tokenizer


def _nomic_bert() -> tuple[Any, Any]:
    _, tokenizer = _bert()
    return transformers.NomicBertModel(_config(transformers.NomicBertConfig, tokenizer, head_dim=16)), tokenizer


def _gte() -> tuple[Any, Any]:
    _, tokenizer = _xlm_roberta()
    return transformers.GteModel(_config(transformers.GteConfig, tokenizer)), tokenizer


ARCHITECTURES: dict[str, Builder] = {
    "bert": _bert,
    "deberta_v2": _deberta_v2,
    "distilbert": _distilbert,
    "gemma3": _gemma3,
    "gte": _gte,
    "modernbert": _modernbert,
    "mpnet": _mpnet,
    "nomic_bert": _nomic_bert,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "roberta": _roberta,
    "xlm_roberta": _xlm_roberta,
}


def _config(kind: Any, tokenizer: Any, **more: Any) -> Any:
    return kind(**({"vocab_size": len(tokenizer), "max_position_embeddings": POSITIONS} | _SHAPE | more))


def _wordpiece(*special: str) -> dict[str, int]:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(
        _CORPUS, trainers.WordPieceTrainer(vocab_size=500, special_tokens=list(special), show_progress=False)
    )
    return dict(tokenizer.get_vocab())


def _byte_bpe(*special: str) -> tuple[dict[str, int], list[tuple[str, str]]]:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=list(special), show_progress=False, initial_alphabet=alphabet
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return _vocab_and_merges(tokenizer)


def _sentencepiece_bpe(*special: str) -> tuple[dict[str, int], list[tuple[str, str]]]:
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    every_byte = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=[*special, *every_byte], show_progress=False)
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return _vocab_and_merges(tokenizer)


def _vocab_and_merges(tokenizer: Tokenizer) -> tuple[dict[str, int], list[tuple[str, str]]]:
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def _unigram(*special: str) -> list[tuple[str, float]]:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    unknown = next(token for token in special if "unk" in token.lower())
    trainer = trainers.UnigramTrainer(
        vocab_size=400, special_tokens=list(special), show_progress=False, unk_token=unknown
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return [tuple(piece) for piece in json.loads(tokenizer.to_str())["model"]["vocab"]]

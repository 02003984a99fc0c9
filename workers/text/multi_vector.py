"""
sentence-transformers' own folders for late interaction (MultiVectorEncoder): what they say of queries and documents.

Markers are prompts there, in front of a text; the network's settings tell how queries are expanded, and a module of its
own which tokens are skipped.
"""

from pathlib import Path
from typing import Any

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.files.locate import read_object
from infinity_pool.workers.interface import ModelFiles
from infinity_pool.workers.text.modules import modules_of
from infinity_pool.workers.text.options import INPUT_TYPES
from infinity_pool.workers.text.prompts import read_prompts

Facts = dict[str, Any]

_DENSE, _MASK, _NORMALIZE = "Dense", "MultiVectorMask", "Normalize"
_TOKENS = "token_embeddings"


def is_multi_vector(path: Path) -> bool:
    """Say whether a folder is such a one, with a plain network of text."""
    modules = modules_of(path)
    if not modules or read_object(path / "config_sentence_transformers.json").get("model_type") != "MultiVectorEncoder":
        return False
    settings = _settings(path)
    return bool(settings.get("transformer_task", "feature-extraction") == "feature-extraction")


def read_multi_vector(files: ModelFiles, tokenizer: Any, limit: int) -> dict[str, Facts]:
    """
    Read what the two sides' tokens are, in plain values; `limit` is the length where the files name none.

    Raises InvalidInput on modules, or settings of theirs, that are not served.
    """
    settings, mask = _settings(files.path), _mask(files.path)
    if mask.get("keep_only_token_ids"):
        raise InvalidInput(f"keep_only_token_ids in {files.spec!r} is not served", param="model")
    prompts = read_prompts(files.path)["prompts"]
    skipped = _ids(tokenizer, mask.get("skiplist_words") or [])
    skipping = mask.get("skiplist_tasks", ["document"])
    common: Facts = {"marker": None, "expanded": False, "attended": False, "filler": 0}
    sides = {
        side: common
        | {
            "prompt": prompts[side],
            "length": settings.get(f"{side}_length") or limit,
            "skipped": skipped if side in skipping else [],
        }
        for side in INPUT_TYPES
    }
    if settings.get("query_expansion"):
        sides["query"] |= _expansion(settings, tokenizer, limit)
    return sides


def _settings(path: Path) -> Facts:
    return read_object(path / modules_of(path)[0][1] / "sentence_bert_config.json")


def _mask(path: Path) -> Facts:
    """Give the settings of the module that skips tokens; raises InvalidInput on modules that are not served."""
    modules = modules_of(path)
    kinds = [kind.rpartition(".")[2] for kind, _ in modules if kind.startswith("sentence_transformers.")]
    ends = kinds[1 + kinds.count(_DENSE) :]
    if sorted(ends) != [_MASK, _NORMALIZE] or len(kinds) < len(modules):
        found = ", ".join(kind for kind, _ in modules)
        raise InvalidInput(
            f"modules {found} are not served, only a Transformer, then {_DENSE}, {_MASK} and {_NORMALIZE}",
            param="model",
        )
    configs = [read_object(path / place / "config.json") for _, place in modules]
    for kind, config in zip(kinds[1:], configs[1:], strict=True):
        usual = _TOKENS if kind == _DENSE else None
        names = (config.get("module_input_name", usual), config.get("module_output_name") or _TOKENS)
        if kind != _MASK and names != (_TOKENS, _TOKENS):
            raise InvalidInput(f"{kind} in {path} is served on {_TOKENS} alone", param="model")
    return configs[kinds.index(_MASK)]


def _ids(tokenizer: Any, words: list[str]) -> list[int]:
    """Give the tokens that are whole words; of others there is nothing to skip."""
    found = {word: tokenizer.convert_tokens_to_ids(word) for word in words}
    unknown = tokenizer.unk_token_id
    return sorted({number for word, number in found.items() if number != unknown or word == tokenizer.unk_token})


def _expansion(settings: Facts, tokenizer: Any, limit: int) -> Facts:
    """Give how queries are filled up: all to one length, or (`min`) those that are shorter."""
    expansion = settings["query_expansion"]
    if tokenizer.padding_side != "right":
        raise InvalidInput("queries that are expanded on their left are not served", param="model")
    floor = int(expansion.get("length", 32))
    fillers = (tokenizer.mask_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id)
    named = [tokenizer.convert_tokens_to_ids(expansion["token"])] if expansion.get("token") else []
    return {
        "length": floor if expansion.get("strategy") == "fixed" else max(floor, settings.get("query_length") or limit),
        "floor": floor,
        "expanded": True,
        "attended": bool(expansion.get("attend")),
        "filler": int(next(number for number in (*named, *fillers, 0) if number is not None)),
    }

"""A model's tokenizer as transformers makes it, once, written down for those who run without transformers."""

import json
from pathlib import Path
from typing import Any

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.interface import ModelFiles

_BACKEND = "tokenizer.json"
_FACTS = "tokenizer_facts.json"


def save(files: ModelFiles, folder: Path, options: dict[str, Any], lower_case: bool) -> Any:
    """
    Let transformers make a model's tokenizer with `options`, write it to `folder`, and give it.

    Raises InvalidInput if the model has no tokenizer, or one whose token types are not all 0.
    """
    tokenizer = load(files, options)
    if tokenizer.is_fast:
        if tokenizer.vocab_size <= len(tokenizer.all_special_ids):  # made of nothing, since there are no files
            raise InvalidInput(
                f"no tokenizer for {files.spec!r}: there is no tokenizer.json or vocabulary", param="model"
            )
        if lower_case:
            _lower_case(tokenizer.backend_tokenizer)
        (folder / _BACKEND).write_text(tokenizer.backend_tokenizer.to_str(), encoding="utf-8")
    if any(tokenizer("a text", return_token_type_ids=True)["token_type_ids"]):
        raise InvalidInput(f"the tokenizer of {files.spec!r} gives token types other than 0", param="model")
    facts = {
        "fast": tokenizer.is_fast,
        "options": options,
        "pad_id": tokenizer.pad_token_id or 0,
        "special_ids": sorted(set(tokenizer.all_special_ids)),
        "split_special_tokens": tokenizer.split_special_tokens,
        "truncation_side": tokenizer.truncation_side,
        "added": tokenizer.num_special_tokens_to_add(),
    }
    (folder / _FACTS).write_text(json.dumps(facts))
    return tokenizer


def save_backend(file: Path, folder: Path) -> int | None:
    """
    Write a tokenizer that is a file of the `tokenizers` library to `folder`; give its own limit in tokens, if any.

    Raises InvalidInput if there is no such file, or it cannot be read.
    """
    from tokenizers import Tokenizer as Backend

    try:
        backend = Backend.from_file(str(file))
    except Exception as error:  # its own class is Exception itself
        raise InvalidInput(f"no tokenizer in {file}: {error}", param="model") from error
    (folder / _BACKEND).write_text(backend.to_str(), encoding="utf-8")
    truncation = backend.truncation or {}
    facts = {
        "fast": True,
        "options": {},
        "pad_id": 0,
        "special_ids": [number for number, token in backend.get_added_tokens_decoder().items() if token.special],
        "split_special_tokens": False,
        "truncation_side": truncation.get("direction", "right"),
        "added": 0,
    }
    (folder / _FACTS).write_text(json.dumps(facts))
    return truncation.get("max_length")


def read_backend(folder: Path, facts: dict[str, Any]) -> Any:
    """Give the `tokenizers` library's tokenizer that `save` wrote to a folder, which pads nothing."""
    from tokenizers import Tokenizer as Backend

    backend = Backend.from_file(str(folder / _BACKEND))
    backend.encode_special_tokens = facts["split_special_tokens"]
    backend.no_padding()
    return backend


def saved_options(folder: Path) -> dict[str, Any]:
    """Give the options that a tokenizer was made with which `save` wrote to a folder."""
    return dict(saved_facts(folder)["options"])


def saved_facts(folder: Path) -> dict[str, Any]:
    """Give what was written down of a tokenizer; nothing where there is none."""
    file = folder / _FACTS
    return dict(json.loads(file.read_text())) if file.exists() else {}


def load(files: ModelFiles, options: dict[str, Any]) -> Any:
    """Let transformers make a model's tokenizer; raises InvalidInput if it cannot."""
    from transformers import AutoTokenizer

    common = {"trust_remote_code": files.trust_remote_code, "local_files_only": True}
    try:
        return AutoTokenizer.from_pretrained(files.network, **common, **options)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"no tokenizer for {files.spec!r}: {error}", param="model") from error


def _lower_case(backend: Any) -> None:
    from tokenizers import normalizers

    before: Any = backend.normalizer
    steps = list(iter(before)) if isinstance(before, normalizers.Sequence) else [before] if before else []
    if not any(isinstance(step, normalizers.Lowercase) for step in steps):
        backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *steps])

"""
Reads what only transformers can tell of a text model: its tokenizer, its limits, its inputs.

The rules are those of sentence-transformers' Transformer module, so that the same files mean the same here. It runs
once a model, in a process of its own.
"""

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.files.locate import read_object
from infinity_pool.workers.interface import ModelFiles
from infinity_pool.workers.text import saved_tokenizer

_SETTINGS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
_UNLIMITED = 32_768  # tokens, for the few models that name no limit at all
_NOT_TAKEN = ("trust_remote_code", "torch_dtype", "dtype", "device_map", "device", "provider", "file_name", "export")
_SIDES = ("query_expansion", "query_length", "document_length")
_TEXT = "text"
MESSAGE = "message"
"""What sentence-transformers calls an item that a chat template puts into words."""


def read_text_model(
    files: ModelFiles, folder: Path, auto_class: str, takes: str = _TEXT, sides: bool = False
) -> dict[str, Any]:
    """
    Write a model's tokenizer to `folder`; give its limits, its inputs, its hidden size and its loading options.

    `takes` is what its items must be: texts, or messages, whose `processing` is then given too;
    `sides` says that the family knows the settings of queries and documents.
    Raises InvalidInput if transformers cannot load it or its files ask for what is not served.
    """
    from infinity_pool.workers.networks.network import empty_network

    settings = _settings(files.network)
    _check(settings, files.network, takes, sides)
    options = {"model_options": _options(settings, "model"), "config_options": _options(settings, "config")}
    network = empty_network(replace(files, extra=files.extra | options), auto_class)
    tokenizer_options = _tokenizer_options(settings)
    made = saved_tokenizer.save(files, folder, tokenizer_options, lower_case=bool(settings.get("do_lower_case")))
    positions = _positions(network)
    limit = _limit(made.model_max_length, network.config, "model_max_length" in tokenizer_options)
    return options | {
        "max_length": min(limit, positions or limit),
        "positions": positions,
        "inputs": _inputs(made, network),
        "hidden_size": _width(network),
        "vocab_size": getattr(network.config, "vocab_size", None),
        "chat_template": bool(made.chat_template),
        **({} if takes == _TEXT else {"processing": settings.get("processing_kwargs") or {}}),
    }


def _settings(network: Path) -> dict[str, Any]:
    """Read sentence_bert_config.json, or one of its older names."""
    for name in _SETTINGS:
        settings = read_object(network / f"sentence_{name}_config.json")
        if settings:
            return settings
    return {}


def _modalities(settings: dict[str, Any]) -> dict[str, Any]:
    return settings.get("modality_config") or {_TEXT: {"method": "forward"}}


def _check(settings: dict[str, Any], network: Path, takes: str, sides: bool) -> None:
    for key in (*(() if sides else _SIDES), *(("processing_kwargs",) if takes == _TEXT else ())):
        if settings.get(key):
            raise InvalidInput(f"{key} in the settings of {network} is not served", param="model")
    modalities = _modalities(settings)
    others = takes == _TEXT and MESSAGE in modalities
    if others or modalities.get(takes, {}).get("method") != "forward":
        plain = "plain text" if takes == _TEXT else "messages by its forward method"
        raise InvalidInput(f"{network} takes {', '.join(modalities)}, and only {plain} is served", param="model")


def _options(settings: dict[str, Any], kind: str) -> dict[str, Any]:
    """Give the keyword arguments that the files name for loading one thing; `…_args` is their older name."""
    named = settings.get(f"{kind}_kwargs") or settings.get(f"{kind}_args") or {}
    if not isinstance(named, dict):
        raise InvalidInput(f"{kind}_kwargs in the model's settings is not a JSON object", param="model")
    return {key: value for key, value in named.items() if key not in _NOT_TAKEN}


def _tokenizer_options(settings: dict[str, Any]) -> dict[str, Any]:
    options = _options(settings, "processor") or _options(settings, "tokenizer")
    if settings.get("max_seq_length") is not None:
        options.setdefault("model_max_length", settings["max_seq_length"])
    return options


def _limit(tokenizer_limit: int, config: Any, named: bool) -> int:
    """Apply sentence-transformers' rule: what the files name counts, else no more than the positions there are."""
    positions = getattr(config, "max_position_embeddings", -1)
    limit = tokenizer_limit if named or positions in (-1, None) else min(tokenizer_limit, positions)
    return int(min(limit, _UNLIMITED))


def _width(network: Any) -> int:
    """Ask the empty network how wide its vectors are, since some end with a projection that no setting names."""
    import torch

    try:
        return int(network(input_ids=torch.ones(1, 4, dtype=torch.long, device="meta"))[0].shape[-1])
    except (NotImplementedError, RuntimeError):  # it looks at values, which are not there
        return int(network.config.get_text_config().hidden_size)


def _positions(network: Any) -> int | None:
    """Count the places of learned positions, beyond which a network cannot run; RoBERTa's kin start after padding."""
    import torch

    for module in network.modules():
        table = getattr(module, "position_embeddings", None)
        if isinstance(table, torch.nn.Embedding):
            padding = getattr(module, "padding_idx", None)
            return table.num_embeddings - (padding + 1 if isinstance(padding, int) else 0)
    return None


def _inputs(made: Any, network: Any) -> list[str]:
    """Give the arrays that the tokenizer makes and the network takes."""
    parameters = inspect.signature(network.forward).parameters
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    made_here = [name for name in ("input_ids", "attention_mask", "token_type_ids") if name in made.model_input_names]
    return [name for name in made_here if open_ended or name in parameters]

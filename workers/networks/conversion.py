"""Turns a network of transformers into CTranslate2's form; imports torch, so it runs in a process of its own."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from ctranslate2.converters import transformers as converters
from ctranslate2.specs.transformer_spec import TransformerEncoderModelSpec

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.interface import Family, ModelFiles
from infinity_pool.workers.networks.network import load_network

Linear = tuple[torch.nn.Linear, str]  # a layer of a head, and the activation after it


class _Architecture(NamedTuple):
    loader: type[converters.ModelLoader]
    head: Any  # from a classifier's network to its layers over the first token


def _bert_head(network: Any) -> list[Linear]:
    return [(network.base_model.pooler.dense, "tanh"), (network.classifier, "")]


def _roberta_head(network: Any) -> list[Linear]:
    return [(network.classifier.dense, "tanh"), (network.classifier.out_proj, "")]


def _distilbert_head(network: Any) -> list[Linear]:
    return [(network.pre_classifier, "relu"), (network.classifier, "")]


_ROBERTA = _Architecture(converters.RobertaLoader, _roberta_head)
_ARCHITECTURES = {
    "bert": _Architecture(converters.BertLoader, _bert_head),
    "camembert": _ROBERTA,
    "distilbert": _Architecture(converters.DistilBertLoader, _distilbert_head),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,  # the library's own takes classifiers only, and differs in nothing else
}


def check(files: ModelFiles, family: Family) -> None:
    """Raise InvalidInput, naming the engine, for a network that CTranslate2 has not; reads no weights."""
    kind = files.config.get("model_type")
    why = ""
    if kind not in _ARCHITECTURES:
        why = f"{kind} is none of {', '.join(_ARCHITECTURES)}"
    elif files.config.get("position_embedding_type", "absolute") != "absolute":
        why = "its positions are not absolute"
    elif files.config.get("is_decoder"):
        why = "it is a decoder"
    elif not _is_served(family):
        why = "its family needs more of the network than vectors of tokens, or scores"
    if why:
        raise InvalidInput(f"model {files.spec!r} cannot be converted for ctranslate2: {why}", param="engine")


def is_classifier(family: Family) -> bool:
    """Whether the family wants the scores of a network for sequence classification."""
    return family.output == "logits" and family.auto_class == "AutoModelForSequenceClassification"


def _is_served(family: Family) -> bool:
    plain = type(family).call is Family.call  # what else a family does with the network happens in torch
    return plain and (family.output == "last_hidden_state" or is_classifier(family))


def convert_network(files: ModelFiles, family: Family, folder: Path) -> list[str]:
    """
    Write a network in float32 to `folder`, and its head if it is a classifier's.

    Gives the activation after each of the head's layers. Raises InvalidInput if CTranslate2 cannot hold the network.
    """
    check(files, family)
    network = load_network(files, family.auto_class, torch.float32)
    architecture = _ARCHITECTURES[network.config.model_type]
    encoder = network.base_model
    encoder.config.position_embedding_type = "absolute"  # as checked; newer configurations lack the key
    try:
        spec = architecture.loader().get_model_spec(encoder)
    except (AttributeError, KeyError) as error:  # an activation or a part that it has not
        message = f"model {files.spec!r} cannot be converted for ctranslate2: it has no {error}"
        raise InvalidInput(message, param="engine") from error
    _save(spec, encoder.config, folder)
    head = architecture.head(network) if is_classifier(family) else []
    np.savez(folder / "head.npz", **_arrays([layer for layer, _ in head]))
    return [activation for _, activation in head]


def _save(spec: TransformerEncoderModelSpec, config: Any, folder: Path) -> None:
    spec.config.layer_norm_epsilon = getattr(config, "layer_norm_eps", 1e-12)  # DistilBERT's is fixed
    spec.config.unk_token = "0"  # noqa: S105 - texts come as ids, but a vocabulary there must be
    spec.register_vocabulary([str(number) for number in range(config.vocab_size)])
    spec.validate()
    spec.optimize()
    spec.save(str(folder))


def _arrays(layers: list[torch.nn.Linear]) -> dict[str, Any]:
    weights = {f"weight{number}": layer.weight.numpy() for number, layer in enumerate(layers)}
    return weights | {f"bias{number}": layer.bias.numpy() for number, layer in enumerate(layers)}

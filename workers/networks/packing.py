"""
Batches without padding: the texts of a batch one after another in a single row, each seeing only itself.

The body of a network is packed, not what follows it: it takes and gives padded arrays as before, so that heads, pooling
and families see nothing of it. The layout, and the names of its arguments, are those of FlashAttention's varlen
functions (https://arxiv.org/abs/2307.08691), as transformers hands them from a network to its attention.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from infinity_pool.broker.messages import Array
from infinity_pool.workers.interface import Family

VARLEN = "infinity_varlen"
FLASH = "flash_attention_2"

_HEADS = ("AutoModel", "AutoModelForSequenceClassification", "AutoModelForCausalLM")
"""What is loaded for networks whose heads take one vector a text; one that runs on each token would run on padding."""


class Plan(NamedTuple):
    """
    Where the tokens of a padded batch [n, length] are in its row, made before anything is on the device.

    `places` is int64 [total], into the flattened batch; `bounds` int32 [n + 1], the first token of each text and the
    end; `longest` the tokens of the longest text. Arrays of numpy, or tensors on the device.
    """

    places: Any
    bounds: Any
    longest: int


def plan(mask: Array) -> Plan:
    """Plan for an attention mask [n, length]."""
    lengths = np.count_nonzero(mask, axis=1)
    bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return Plan(np.flatnonzero(mask), bounds, int(lengths.max()))


def why_padded(network: Any, family: Family) -> str:
    """Say why a network cannot be packed; empty if it can be tried."""
    if family.modalities != ("text",) or "attention_mask" not in family.inputs:
        return "it is no network of text with an attention mask"
    if family.counts_unattended:
        return "its family reads what is not attended to"
    if family.auto_class not in _HEADS:
        return "its head runs on every token"
    if not getattr(network.base_model, "_supports_attention_backend", False):
        return "its attention is its own"
    return ""


class Packing:
    """Replaces the body of a network by one that packs; `attention` is VARLEN, or FLASH where that is installed."""

    def __init__(self, network: Any, attention: str = VARLEN) -> None:
        self.plan: Plan | None = None  # of the batch that comes next, with tensors on the device
        self._network = network
        self._usual = network.config._attn_implementation
        body = network.base_model
        self._body = body
        self._run: Callable[..., Any] = body.forward
        self._offsets = getattr(getattr(body, "embeddings", None), "create_position_ids_from_input_ids", None)
        network.set_attn_implementation(attention)
        body.forward = self._forward
        pooler = getattr(body, "pooler", None)
        self._hook = pooler.register_forward_pre_hook(self._first_tokens) if pooler is not None else None

    def undo(self) -> None:
        """Give the network its own body and attention back."""
        self._body.forward = self._run
        self._network.set_attn_implementation(self._usual)
        if self._hook is not None:
            self._hook.remove()

    def compile(self, compiler: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Compile what runs on the packed row."""
        self._run = compiler(self._run)

    def _forward(self, input_ids: Any, attention_mask: Any = None, **more: Any) -> Any:
        """Run padded arrays [n, length] as one row; what is padding in the hidden states is 0."""
        assert self.plan is not None
        places, bounds, longest = self.plan
        packed = {name: _pack(more.pop(name), places) for name in ("token_type_ids",) if more.get(name) is not None}
        output = self._run(
            input_ids=_pack(input_ids, places),
            attention_mask=None,
            position_ids=self._positions(input_ids),
            cu_seq_lens_q=bounds,
            cu_seq_lens_k=bounds,
            max_length_q=longest,
            max_length_k=longest,
            **packed,
            **{name: value for name, value in more.items() if value is not None},
        )
        output.last_hidden_state = _unpack(output.last_hidden_state, places, input_ids.shape)
        return output

    def _positions(self, input_ids: Any) -> Any:
        """Give the position of each token in its text; RoBERTa and its kin count in a way of their own."""
        assert self.plan is not None
        places = self.plan.places
        if self._offsets is None:
            return (places % input_ids.shape[1])[None]
        return _pack(self._offsets(input_ids, self._body.embeddings.padding_idx), places)

    def _first_tokens(self, pooler: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Give a pooler, which looks at the first token of each row, one row a text."""
        assert self.plan is not None
        return (inputs[0][0, self.plan.bounds[:-1]][:, None], *inputs[1:])


def _pack(array: Any, places: Any) -> Any:
    """[n, length] to [1, total]."""
    return array.reshape(-1)[places][None]


def _unpack(hidden: Any, places: Any, shape: Any) -> Any:
    """[1, total, hidden] to [n, length, hidden]."""
    rows = hidden.new_zeros((shape[0] * shape[1], hidden.shape[-1]))
    return rows.index_copy_(0, places, hidden[0]).view(*shape, -1)


def varlen_attention(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    *,
    cu_seq_lens_q: Any,
    max_length_q: int,
    scaling: float | None = None,
    sliding_window: int | None = None,
    is_causal: bool | None = None,
    **more: Any,
) -> tuple[Any, None]:
    """
    Attend within each text of a packed row: [1, heads, total, size] to [1, total, heads, size].

    Raises NotImplementedError for what varlen_attn has not.
    """
    for name in ("softcap", "position_bias", "s_aux"):
        if more.get(name) is not None:
            raise NotImplementedError(f"attention with {name}")
    window = _window(module.is_causal if is_causal is None else is_causal, sliding_window)
    attend = _kernel() if query.device.type == "cuda" else _attend_one_by_one
    rows = (array[0].transpose(0, 1) for array in (query, key, value))
    grouped = query.shape[1] != key.shape[1]
    lengths = (cu_seq_lens_q, cu_seq_lens_q, max_length_q, max_length_q)
    return attend(*rows, *lengths, scale=scaling, window_size=window, enable_gqa=grouped)[None], None


def _kernel() -> Callable[..., Any]:
    from torch.nn.attention.varlen import varlen_attn  # late: older versions of torch have it not

    return varlen_attn


def _window(causal: bool, sliding: int | None) -> tuple[int, int]:
    """Give how many tokens to the left and to the right are seen besides a token itself; -1: all."""
    reach = -1 if sliding is None else sliding - 1
    return (reach, 0 if causal else reach)


@torch.compiler.disable  # type: ignore[untyped-decorator]  # each number of texts would be another program
def _attend_one_by_one(
    query: Any,
    key: Any,
    value: Any,
    bounds: Any,
    key_bounds: Any,
    longest: int,
    longest_key: int,
    *,
    scale: float | None,
    window_size: tuple[int, int],
    enable_gqa: bool,
) -> Any:
    """Do what varlen_attn does, where it has no kernel: [total, heads, size] to the same."""
    ends = bounds.tolist()
    parts = [
        torch.nn.functional.scaled_dot_product_attention(
            query[start:end].transpose(0, 1),
            key[start:end].transpose(0, 1),
            value[start:end].transpose(0, 1),
            attn_mask=_sees(end - start, window_size, query.device),
            scale=scale,
            enable_gqa=enable_gqa,
        ).transpose(0, 1)
        for start, end in pairwise(ends)
    ]
    return torch.cat(parts)


def _sees(length: int, window: tuple[int, int], device: Any) -> Any:
    """Give bool [length, length], which tokens each one sees; None if all."""
    left, right = (length if reach < 0 else reach for reach in window)
    if min(left, right) >= length:
        return None
    places = torch.arange(length, device=device)
    distance = places[None] - places[:, None]
    return (distance >= -left) & (distance <= right)


ALL_ATTENTION_FUNCTIONS.register(VARLEN, varlen_attention)

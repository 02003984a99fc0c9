"""
The limit of what a server can reach: the same texts through the bare model, in one process, with no server at all.

It is run as a process of its own, since a load generator should hold no model, and prints one JSON object.
Texts are sorted by length and run in batches of 32; the output is averaged over the tokens and normalised.
"""

import argparse
import json
import random
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray
from transformers import AutoModel, AutoTokenizer

from infinity_pool.cli.bench.corpus import texts
from infinity_pool.workers.device.devices import usable_cpus
from infinity_pool.workers.files.locate import locate, read_json
from infinity_pool.workers.settings import ModelSettings

_BATCH = 32
_OPSET = 17

Batch = dict[str, NDArray[np.int64]]
Run = Callable[[Batch], NDArray[np.float32]]
"""What maps tokens, [n, length], to the network's output, [n, length, width]."""


class Loop:
    """A tokenizer and a network, and nothing else."""

    def __init__(self, folder: Path, run: Run) -> None:
        self._tokenize = AutoTokenizer.from_pretrained(folder)
        self._max_length = min(
            512, (read_json(folder / "sentence_bert_config.json") or {}).get("max_seq_length") or 512
        )
        self._run = run

    def embed(self, batch: Sequence[str]) -> NDArray[np.float32]:
        """Embed one batch: float32 [n, width]."""
        tokens = self._tokenize(
            list(batch), padding=True, truncation=True, max_length=self._max_length, return_tensors="np"
        )
        mask = tokens["attention_mask"][..., None].astype(np.float32)
        vectors = (self._run(dict(tokens)) * mask).sum(1) / mask.sum(1)
        normed: NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return normed

    def items_per_second(self, batch: Sequence[str]) -> float:
        """Embed many texts in sorted batches, and give their rate."""
        ordered = sorted(batch, key=len)
        started = time.perf_counter()
        for start in range(0, len(ordered), _BATCH):
            self.embed(ordered[start : start + _BATCH])
        return len(ordered) / (time.perf_counter() - started)

    def median_ms(self, batch: Sequence[str]) -> float:
        """Embed texts one by one, and give the median time in milliseconds."""
        times = []
        for text in batch:
            started = time.perf_counter()
            self.embed([text])
            times.append(time.perf_counter() - started)
        return 1e3 * statistics.median(times)


def torch_run(folder: Path) -> Run:
    """Run the network in torch, float32."""
    model = AutoModel.from_pretrained(folder).eval()

    def run(batch: Batch) -> NDArray[np.float32]:
        with torch.inference_mode():
            hidden = model(**{name: torch.from_numpy(array) for name, array in batch.items()}).last_hidden_state
        result: NDArray[np.float32] = hidden.numpy()
        return result

    return run


def onnx_run(folder: Path) -> Run:
    """Run the network in onnxruntime, float32, exported here."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "model.onnx"
        _export(folder, file)
        session = onnxruntime.InferenceSession(file, _options(), providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]

    def run(batch: Batch) -> NDArray[np.float32]:
        output: NDArray[np.float32] = session.run(None, {name: batch[name].astype(np.int64) for name in names})[0]
        return output

    return run


def _options() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = usable_cpus()  # its own choice binds a thread to each core, those not ours too
    return options


class _LastHidden(torch.nn.Module):
    def __init__(self, model: Any, names: Sequence[str]) -> None:
        super().__init__()
        self._model = model
        self._names = names

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self._model(**dict(zip(self._names, inputs, strict=True))).last_hidden_state


def _export(folder: Path, file: Path) -> None:
    sample = AutoTokenizer.from_pretrained(folder)(["a", "a longer text"], padding=True, return_tensors="pt")
    names = list(sample)
    model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    warnings.simplefilter("ignore")  # this exporter is an old one, and the quickest
    torch.onnx.export(
        _LastHidden(model, names),
        tuple(sample[name] for name in names),
        file,
        input_names=names,
        output_names=["hidden"],
        dynamic_axes={name: {0: "n", 1: "length"} for name in [*names, "hidden"]},
        opset_version=_OPSET,
        dynamo=False,
    )


def measure(loop: Loop, count: int, seed: int) -> dict[str, float]:
    """Measure what the scenarios are compared with."""
    rng = random.Random(seed)  # noqa: S311 - texts, not secrets
    loop.items_per_second(texts(rng, "mixed", 4 * _BATCH))  # warm up
    return {
        "short": loop.items_per_second(texts(rng, "short", count)),
        "mixed": loop.items_per_second(texts(rng, "mixed", count)),
        "single_ms": loop.median_ms(texts(rng, "short", 200)),
    }


def main() -> None:
    """Measure one model and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--engine", choices=["torch", "onnx"], default="onnx")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    folder = locate(ModelSettings(model=args.model), lambda stage, part: None).path
    run = torch_run(folder) if args.engine == "torch" else onnx_run(folder)
    print(json.dumps(measure(Loop(folder, run), args.count, args.seed)))  # noqa: T201


if __name__ == "__main__":
    main()

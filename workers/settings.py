"""What a worker is told."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.keys import check_name
from infinity_pool.broker.settings import CommonSettings, option
from infinity_pool.workers.device.sizes import parse_size

DTYPES = ("auto", "float32", "bfloat16", "float16", "float8", "int8")
"""The number formats there are to choose from."""

EMBEDDING_DTYPES = ("float32", "float16", "int8", "uint8", "binary", "ubinary")
"""The number formats that embeddings are answered in."""

_PACKAGE = "package:"
_GENERIC = frozenset(("model", "models", "onnx", "openvino", "torch", "pytorch", "checkpoint", "snapshots", "main"))


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """One model, and how it is run."""

    model: str = option(
        "A folder, a hub id (org/name), or package:NAME/path for a folder inside an installed package.",
        aliases=("--model-id",),
    )
    served_model_name: str = option(
        "The name clients ask for; default: the hub id, or what the folder or package is called.", default=""
    )
    revision: str = option("Branch, tag or commit on the hub.", default="")
    family: str = option("What kind of model it is; auto: its files say.", default="auto", choices=("@families",))
    engine: str = option("What runs the network; auto measures.", default="auto", choices=("@engines",))
    device: str = option(
        "auto, cpu, cuda (every visible GPU), cuda:0,cuda:1, mps; for onnx also tensorrt, rocm, migraphx, coreml, "
        "openvino, openvino:GPU.",
        default="auto",
    )
    dtype: str = option(
        "Number format; auto: float32 on CPU, half precision on a GPU. int8 is quantised, on onnx and ctranslate2; "
        "float8 too, on torch and GPUs that have it.",
        default="auto",
        choices=DTYPES,
    )
    embedding_dtype: str = option(
        "Number format of embeddings, unless a request names another; int8 and uint8 need `infinity calibrate`.",
        default="float32",
        choices=EMBEDDING_DTYPES,
    )
    onnx_file: str = option("Which of the model's own ONNX files to run, as onnx/model_O3.onnx.", default="")
    compile: bool = option("Have torch compile the network at the start; it needs a C++ compiler.", default=False)
    replicas: int = option("Workers of this model on each device.", default=1, minimum=1)
    max_length: int = option("Cut items to so many tokens; 0: the model's own limit.", default=0, minimum=0)
    max_image_pixels: int = option(
        "Pixels that an image may have; a large one takes a second to decode.",
        default=2**26,
        minimum=2**18,
        maximum=2**28,
    )
    device_share: float = option(
        "Its weight among the models that take turns on its device; 0: it takes none, or 1 where others here do.",
        default=0.0,
        minimum=0,
    )
    max_running: int = option(
        "Batches at once on a device whose models take turns; 0: one, where there are turns.", default=0, minimum=0
    )
    memory_limit: str = option(
        "Memory of the device for one worker, as 4GiB or 500MB: a start that needs more is refused, and a worker that "
        "comes to have more is replaced; default: none.",
        default="",
    )
    batch_tokens: str = option("Padded tokens in one batch; auto measures at warm-up.", default="auto")
    preprocess_workers: int = option("Processes that tokenize beside each worker; 0: a thread.", default=1, minimum=0)
    trust_remote_code: bool = option("Run Python code that comes with the model.", default=False)
    allow_mixed: bool = option("Serve beside workers of the same name whose vectors differ.", default=False)
    cache_dir: str = option("Where downloads and exports are kept; default: the user's cache.", default="")

    def check(self) -> None:
        """Refuse, before anything is loaded, what could never be served; raises InvalidInput, naming the option."""
        if not self.model.strip():
            raise InvalidInput("--model names no model", param="model")
        parse_size(self.memory_limit)
        if self.batch_tokens != "auto" and not (self.batch_tokens.isdigit() and int(self.batch_tokens) > 0):
            raise InvalidInput(
                f"--batch-tokens is auto or a number of tokens, not {self.batch_tokens!r}", param="batch_tokens"
            )
        if self.onnx_file and self.engine not in ("auto", "onnx"):
            raise InvalidInput(f"--onnx-file is for the onnx engine, not {self.engine}", param="onnx_file")
        if self.compile and (self.engine not in ("auto", "torch") or self.onnx_file):
            raise InvalidInput("--compile is for the torch engine", param="compile")
        try:
            check_name(self.name)
        except InvalidInput as error:
            raise InvalidInput(f"it cannot be served as {self.name!r}: {error}", param="served_model_name") from error

    @property
    def shares_device(self) -> bool:
        """Whether it takes turns on its device."""
        return self.device_share > 0 or self.max_running > 0

    @property
    def weight(self) -> float:
        """Its weight on a device that is shared; 0 if it takes no turns."""
        return (self.device_share or 1.0) if self.shares_device else 0.0

    @property
    def name(self) -> str:
        """The name clients ask for: the one that was given, a hub id as it is, or the telling part of a path."""
        if self.served_model_name:
            return self.served_model_name
        if self.model.startswith(_PACKAGE):
            package, *inside = PurePosixPath(self.model.removeprefix(_PACKAGE)).parts or ("",)
            return _telling([package, *inside[-1:]])
        path = Path(self.model).expanduser()
        is_path = self.model.startswith(("/", ".", "~")) or path.exists()
        return _telling(path.resolve().parts) if is_path else self.model


def _telling(parts: Sequence[str]) -> str:
    """Give the last part of a path that is not what anyone's model is called, or the last if all are."""
    named = [part for part in parts if part.lower() not in _GENERIC and part != os.sep]
    return (named or list(parts))[-1]


@dataclass(frozen=True, kw_only=True)
class ProcessSettings:
    """How worker processes begin and end."""

    preload_only: bool = option("Download, export and check the model, then exit.", default=False)
    stall_timeout: float = option(
        "Seconds without a finished batch, while work waits, after which a worker is replaced.",
        default=60.0,
        minimum=0.1,
    )
    drain_timeout: float = option("Seconds to finish work in hand after SIGTERM.", default=30.0, minimum=0)


@dataclass(frozen=True, kw_only=True)
class WorkerSettings(ModelSettings, ProcessSettings, CommonSettings):
    """What one worker process is told."""

    admin_port: int = option(
        "Port for a worker's /health, /ready and /metrics; of several workers the first one's, and the others have "
        "those that follow; 0: none.",
        default=0,
        minimum=0,
        maximum=65535,
    )

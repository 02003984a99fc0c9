"""What a worker is told."""

from dataclasses import dataclass

from infinity_pool.broker.settings import CommonSettings, option


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """One model, and how it is run."""

    model: str = option(
        "A folder, a hub id (org/name), or package:NAME/path for a folder inside an installed package.",
        aliases=("--model-id",),
    )
    served_model_name: str = option("The name clients ask for; default: the model's own.", default="")
    revision: str = option("Branch, tag or commit on the hub.", default="")
    engine: str = option("What runs the network; auto measures.", default="auto", choices=("@engines",))
    device: str = option("auto, cpu, cuda (every visible GPU), cuda:0,cuda:1, mps.", default="auto")
    dtype: str = option(
        "Number format; auto: float32 on CPU, half precision on a GPU.",
        default="auto",
        choices=("auto", "float32", "bfloat16", "float16"),
    )
    replicas: int = option("Workers of this model on each device.", default=1, minimum=1)
    max_length: int = option("Cut items to so many tokens; 0: the model's own limit.", default=0, minimum=0)
    batch_tokens: str = option("Padded tokens in one batch; auto measures at warm-up.", default="auto")
    preprocess_workers: int = option(
        "Processes that tokenize beside each worker; 0: a thread.", default=1, minimum=0
    )
    trust_remote_code: bool = option("Run Python code that comes with the model.", default=False)
    cache_dir: str = option("Where downloads and exports are kept; default: the user's cache.", default="")


@dataclass(frozen=True, kw_only=True)
class WorkerSettings(ModelSettings, CommonSettings):
    """What one worker process is told."""

    preload_only: bool = option("Download, export and check the model, then exit.", default=False)
    drain_timeout: float = option("Seconds to finish work in hand after SIGTERM.", default=30.0, minimum=0)

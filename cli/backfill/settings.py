"""What `infinity embed`, `rerank` and `classify` are told, beside the options of the model."""

from dataclasses import dataclass
from functools import partial

from infinity_pool.broker.mapping import MAX_IN_FLIGHT
from infinity_pool.broker.settings import option
from infinity_pool.cli.backfill.formats import READ
from infinity_pool.workers.settings import ModelSettings

own = partial(option, scope="backfill")


@dataclass(frozen=True, kw_only=True)
class BackfillSettings(ModelSettings):
    """Files through a model."""

    out: str = own("Where results go: a .jsonl or .npy file, or a folder or URL of Parquet shards, NAME.parquet.")
    format: str = own("What the input is; auto: its names say.", default="auto", choices=("auto", *READ))
    id_field: str = own("The field with each row's id; default: ids are the rows' places, from 0.", default="")
    unique_ids: bool = own("Refuse a row whose id an earlier one has, by an index on the disk.", default=True)
    url: str = own("A server to use, http:// or https://, which serves the model under that name.", default="")
    api_key: str = option("The key to show to that server, as a Bearer token.", default="", secret=True)
    redis_url: str = option(
        "Redis of the workers to use; default: a private server and a worker of its own, started here.",
        default="",
        secret=True,
    )
    max_in_flight: int = own("Documents that are open at a time.", default=MAX_IN_FLIGHT, minimum=1)
    shard_rows: int = own("Rows of a Parquet shard.", default=16384, minimum=1)
    commit_seconds: float = own("Seconds of work that a kill may cost.", default=15.0, minimum=0)
    restart: bool = own("Begin anew: what an earlier run wrote is removed.", default=False)
    truncate_prompt_tokens: int = own("Tokens that a document is cut to; 0: the model's limit.", default=0, minimum=0)
    truncation_side: str = own("The end at which documents are cut.", default="right", choices=("right", "left"))
    log_level: str = option(
        "How much to log.",
        default="warning",
        choices=("critical", "error", "warning", "info", "debug"),
    )
    log_format: str = option("How a log line looks.", default="text", choices=("text", "json"))

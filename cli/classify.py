"""infinity classify: files of texts to files of labels."""

from infinity_pool.cli.backfill.command import make

command = make(
    "classify",
    """
    Classify the texts of files, and go on where it was killed.

    INPUT is a file or URL of JSON lines, CSV, plain text (a document a line) or Parquet, a pattern of them, or - for
    standard input. Without --redis-url or --url, a queue and a worker are started here, and stopped at the end.

    \b
      infinity classify texts.txt --model SamLowe/roberta-base-go_emotions --out labels.jsonl
    """,
)

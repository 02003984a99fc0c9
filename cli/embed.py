"""infinity embed: files of texts to files of vectors."""

from infinity_pool.cli.backfill.command import make

command = make(
    "embed",
    """
    Embed the texts of files, and go on where it was killed.

    INPUT is a file or URL of JSON lines, CSV, plain text (a document a line) or Parquet, a pattern of them, or - for
    standard input. Images and sounds are not read. Without --redis-url or --url, a queue and a worker are started
    here, and stopped at the end.

    \b
      infinity embed texts.jsonl --model BAAI/bge-small-en-v1.5 --out vectors.parquet
    """,
)

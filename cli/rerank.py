"""infinity rerank: files of queries and documents to files of scores."""

from infinity_pool.cli.backfill.command import make

command = make(
    "rerank",
    """
    Score pairs of files, and go on where it was killed.

    INPUT is a file or URL of JSON lines, CSV or Parquet, a pattern of them, or - for standard input. Without
    --redis-url or --url, a queue and a worker are started here, and stopped at the end.

    \b
      infinity rerank pairs.jsonl --model BAAI/bge-reranker-base --out scores.jsonl
    """,
)

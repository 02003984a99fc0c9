"""
What a backfill costs, and whom: `python -m tests.benchmarks.backfill PART`, on a machine that does nothing else.

    rate      items/s of a whole backfill over those of the bare loop on the same documents
    singles   single requests idle and beside a backfill, in times of one batch
    waiting   the queue's memory while documents wait
    memory    the memory of `infinity embed`, by the number of documents
    workers   items/s, the queue's CPU and what is left of perfect scaling, by the number of workers

Each prints a table. A part's options: `python -m tests.benchmarks.backfill PART --help`.
"""

import argparse
import importlib

PARTS = ("rate", "singles", "waiting", "memory", "workers")


def main() -> None:
    """Run the part that is named."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = options.add_subparsers(dest="part", required=True)
    for name in PARTS:
        part = importlib.import_module(f"tests.benchmarks.backfill.{name}")
        own = parts.add_parser(name, description=part.__doc__)
        part.add_options(own)
        own.set_defaults(run=part.run)
    asked = options.parse_args()
    asked.run(asked)


if __name__ == "__main__":
    main()

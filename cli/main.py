"""infinity: everything on one machine, and a look at what runs."""

import importlib

import click

COMMANDS = (
    *("serve", "embed", "rerank", "classify"),
    *("check", "export", "calibrate", "status", "dead", "keys", "usage", "bench"),
)
ALIASES = {"v2": "serve"}
_OWN_OPTIONS = ("--help", "--version")


class Commands(click.Group):
    """Commands that are imported when they are called; options without a command are for `serve`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"infinity_pool.cli.{name}").command
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take `infinity --model …` for `infinity serve --model …`."""
        if args and args[0].startswith("-") and args[0] not in _OWN_OPTIONS:
            args = ["serve", *args]
        return super().parse_args(ctx, args)


@click.command(cls=Commands, context_settings={"max_content_width": 120})
@click.version_option(package_name="infinity-pool")
def command() -> None:
    """
    Serve embeddings and their kin over HTTP, by a pool of worker processes behind a message queue.

    \b
      infinity serve --model BAAI/bge-small-en-v1.5    start here: everything on one machine
      infinity COMMAND --help                          what a command takes

    Without a command, options are those of serve. On several machines, infinity-worker and infinity-api run the parts
    apart, around a Redis.
    """  # noqa: D301 - click's mark for lines that it should not join


def main() -> None:
    """Run the console script."""
    command(prog_name="infinity")


if __name__ == "__main__":
    main()

"""`kwire config` and `kwire dump-log`: commands that read files."""

from __future__ import annotations

import click

from kwire.cli.common import config_option, example, override_option, run


@click.command(epilog=example("kwire config --unused --config server.properties"))
@config_option
@override_option
@click.option(
    "--unused",
    is_flag=True,
    help="Keys that Kafka knows and kwire does not act on: those given, else all.",
)
def config(config_path: str | None, overrides: dict[str, str], unused: bool) -> None:
    """Print the broker's configuration as kwire would use it."""
    from kwire.tools.show_config import show_config

    run("config", lambda: show_config(config_path, overrides, unused))


@click.command("dump-log", epilog=example("kwire dump-log data/orders-0/00000000000000000000.log"))
@click.argument("files", metavar="FILE…", nargs=-1, required=True)
@click.option("--records/--no-records", default=True, help="Print the records of each batch, too.")
def dump_log(files: tuple[str, ...], records: bool) -> None:
    """Print the batches and records of log segments (.log), and what is in the files beside them.

    Those are .index, .timeindex, .txnindex, .snapshot and the checkpoints."""
    from kwire.tools.dump_log import dump_file

    def dump() -> int:
        return max([dump_file(path, records) for path in files])

    run("dump-log", dump)

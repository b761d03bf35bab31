"""`kwire config` and `kwire dump-log`: commands that read files."""

from __future__ import annotations

import click

from kwire.cli.common import config_option, example, fail, override_option, run


@click.command(
    epilog="\b\nExamples:\n  kwire config num.partitions\n  kwire config --unused --config server.properties"
)
@click.argument("keys", metavar="[KEY]…", nargs=-1)
@config_option
@override_option
@click.option(
    "--unused",
    is_flag=True,
    help="Keys that Kafka knows and kwire does not act on: those given, else all.",
)
def config(
    keys: tuple[str, ...], config_path: str | None, overrides: dict[str, str], unused: bool
) -> None:
    """Print the broker's configuration as kwire would use it, or the values of some keys."""
    from kwire.tools.show_config import show_config

    if keys and unused:
        fail(2, "kwire config: give keys or --unused, not both")
    run("config", lambda: show_config(config_path, overrides, keys, unused))


@click.command("dump-log", epilog=example("kwire dump-log data/orders-0"))
@click.argument("paths", metavar="PATH…", nargs=-1, required=True)
@click.option("--records/--no-records", default=True, help="Print the records of each batch, too.")
def dump_log(paths: tuple[str, ...], records: bool) -> None:
    """Print batches and records of log segments: of a file, a partition, a data directory.

    A directory: all segments (.log) in it and below it, partition by partition. A file may also be a
    segment's index (.index, .timeindex, .txnindex), .snapshot, or a checkpoint."""
    from kwire.tools.dump_log import dump_path

    run("dump-log", lambda: max([dump_path(path, records) for path in paths]))

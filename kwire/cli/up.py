"""`kwire up`: starts a cluster."""

from __future__ import annotations

import sys

import click

from kwire.cli.common import config_option, example, file_path, override_option
from kwire.cli.parameters import parse_host, parse_topics, spec_options
from kwire.launch.spec import ClusterSpec, NodeSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.control.routes import Handler
    from kwire.launch.supervisor import Supervisor


@click.command(epilog=example("kwire up --port 9092 --topic orders:3 -c log.retention.ms=60000"))
@spec_options(ClusterSpec, until="isolation", of_up=True)
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port; 0 lets the kernel choose.  [default: 9092]"
)
@click.option(
    "--advertise",
    metavar="HOST",
    callback=parse_host,
    help="Host name that is advertised to clients.",
)
@click.option(
    "--data-dir",
    metavar="DIR",
    help="Where logs live, DIR,DIR for several; a temporary directory when not given.",
)
@spec_options(ClusterSpec, "isolation", of_up=True)
@config_option
@override_option
@click.option(
    "--topic",
    "topics",
    metavar="NAME[:PARTITIONS[:REPLICATION]]",
    multiple=True,
    callback=parse_topics,
    help="Topic to create unless it exists; repeatable.",
)
@spec_options(NodeSpec, until="recent_requests", of_up=True)
@click.option(
    "--control-port",
    type=click.IntRange(0, 65535),
    help="Port of the HTTP control API of several brokers, on 127.0.0.1.  [default: the kernel's choice]",
)
@spec_options(NodeSpec, "recent_requests", "log_level", of_up=True)
@click.option(
    "--ready-file",
    metavar="PATH",
    type=file_path,
    help="Write the ready line as JSON to this file.",
)
@click.option(
    "--first-id",
    metavar="ID",
    type=click.IntRange(0, 2**31 - 1),
    help="Node id of the first broker.  [default: 1]",
)
@spec_options(NodeSpec, "log_level", of_up=True)
def up(
    topics: list[tuple[str, int, int]],
    ready_file: str | None,
    control_port: int | None,
    **options: Any,
) -> None:
    """Start a cluster in the foreground; Ctrl-C stops it cleanly.

    Prints one line when it is ready: "ready bootstrap=127.0.0.1:9092", all brokers with commas between;
    of several, also "control=http://127.0.0.1:41234", for `kwire ctl` and docs/control.md.
    """
    from kwire.launch.configuration import cluster_spec
    from kwire.launch.up import Surroundings, run_up
    from kwire.server import logs

    def make_control(supervisor: Supervisor) -> Handler:
        from kwire.aio import Cluster
        from kwire.control.routes import cluster_handler

        return cluster_handler(Cluster.of(supervisor))

    logs.configure(options["log_level"], options["log_json"])
    surroundings = Surroundings(
        topics=topics, ready_file=ready_file, control_port=control_port, make_control=make_control
    )
    status = run_up(lambda: cluster_spec(**options), surroundings)
    # Nothing is left to be cleaned up that the kernel does not clean up faster.
    sys.exit(status)

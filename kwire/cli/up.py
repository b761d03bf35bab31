"""`kwire up`: starts a cluster."""

from __future__ import annotations

import sys

import click

from kwire.cli.common import config_option, example, file_path, folder_path, override_option
from kwire.cli.parameters import parse_host, parse_topics, parse_user, spec_options
from kwire.cli.start import run
from kwire.launch.spec import ClusterSpec, NodeSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


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
@click.option(
    "--snapshot",
    metavar="DIR",
    type=folder_path,
    help="Start with what a snapshot holds, and with as many brokers (kwire ctl snapshot save --to DIR).",
)
@spec_options(ClusterSpec, "isolation", of_up=True)
@click.option(
    "--rack",
    "racks",
    metavar="NAME",
    multiple=True,
    help="Rack of the brokers in turn (broker.rack); repeatable.",
)
@click.option(
    "--sasl",
    type=click.Choice(("plain", "scram-sha-256", "scram-sha-512", "oauthbearer")),
    help="Clients have to log in, by this mechanism (SASL_PLAINTEXT; with TLS, SASL_SSL).",
)
@click.option(
    "--user",
    "users",
    metavar="NAME:SECRET",
    multiple=True,
    callback=parse_user,
    help="A user that may log in; repeatable.",
)
@click.option(
    "--tls",
    "tls",
    flag_value="tls",
    help="Clients speak TLS; makes a certificate authority and certificates, unless there is a key store.",
)
@click.option(
    "--mtls", "tls", flag_value="mtls", help="The same, and clients need a certificate, too."
)
@click.option(
    "--acl",
    is_flag=True,
    help="Clients may do what access rules allow (kafka-acls), and nothing else.",
)
@click.option(
    "--super-user",
    "super_users",
    metavar="NAME",
    multiple=True,
    help="A user that may do everything in spite of --acl; repeatable.",
)
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
    help="Port of the HTTP control API.  [default: the kernel's choice]",
)
@click.option(
    "--control-host",
    metavar="HOST",
    callback=parse_host,
    help="Address that the control API listens on; it has no password.  [default: 127.0.0.1]",
)
@click.option(
    "--open",
    "open_page",
    is_flag=True,
    help="Open the page that shows the cluster live in a browser, when it is ready.",
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
@click.option(
    "--detach",
    is_flag=True,
    help="Return when it is ready and let it run in the background, until `kwire down`.",
)
@spec_options(NodeSpec, "log_level", of_up=True)
def up(detach: bool, **options: Any) -> None:
    """Start a cluster in the foreground; Ctrl-C stops it cleanly.

    Prints one line when it is ready: "ready bootstrap=127.0.0.1:9092 control=http://127.0.0.1:41234": all
    brokers with commas between, and the control API, for `kwire ctl` and HTTP (GET /v1 there). A browser at that
    address shows the cluster live.
    """
    if not detach:
        sys.exit(run(options, None))
    from kwire.launch.detach import run_detached

    sys.exit(run_detached(lambda detached: run(options, detached)))

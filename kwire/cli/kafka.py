"""`kwire topics`, `partitions`, `groups`, `produce`, `consume`: any Kafka, by its protocol."""

from __future__ import annotations

import os

import click

from kwire.cli.common import Commands, example, fail, json_option, key_value, run
from kwire.cli.parameters import parse_topics

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kwire.client.blocking import Client
    from kwire.tools.kafka import Target

ADMINISTRATION, _CLIENT = "kwire-admin", "kwire"
"""Client ids: requests of the first are left out of `kwire requests`."""
_VARIABLES = {
    name: f"KWIRE_{name.upper()}"
    for name in ("bootstrap", "user", "sasl", "ca", "cert", "cert_key")
}
_PLAIN = "plain"
_OTHERS = ("scram-sha-256", "scram-sha-512", "oauthbearer")
_internal = click.option("--internal", is_flag=True, help="Kafka's own topics, too.")


def cluster_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name a cluster; `on_cluster` reads them."""
    mechanisms, file = click.Choice((_PLAIN, *_OTHERS)), "FILE"
    own = f"The client's own certificate (PEM).  [env var: {_VARIABLES['cert']}]"
    key = f"Its private key, unless it is in the same file.  [env var: {_VARIABLES['cert_key']}]"
    ca = f"Speak TLS, and trust this authority (PEM).  [env var: {_VARIABLES['ca']}]"
    sasl = f"Mechanism of --user.  [env var: {_VARIABLES['sasl']}; default: {_PLAIN}]"
    user = f"Log in, where the brokers ask for it; oauthbearer: NAME alone.  [env var: {_VARIABLES['user']}]"
    at = (
        f"Brokers to ask, of any Kafka.  [env var: {_VARIABLES['bootstrap']}; default: those of the"
    )
    for option in (
        _option(
            "--port",
            "Port of the kwire up to ask, if several run.",
            type=click.IntRange(1, 65535),
        ),
        _option("--cert-key", key, metavar=file),
        _option("--cert", own, metavar=file),
        _option("--ca", ca, metavar=file),
        _option("--sasl", sasl, type=mechanisms),
        _option("--user", user, metavar="NAME:SECRET"),
        _option(
            "-b",
            f"{at} running kwire up, else localhost:9092]",
            "--bootstrap",
            metavar="HOST:PORT[,…]",
        ),
    ):
        function = option(function)
    return function


def _option(name: str, text: str, *names: str, **more: Any) -> Callable[..., Any]:
    remembered: Any = {"expose_value": False, "is_eager": True, "callback": _remember}
    return click.option(name, *names, help=text, **remembered, **more)


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value is not None:  # an option of the command wins over one of its group
        context.find_root().meta[f"kwire.{parameter.name}"] = value


def on_target(command: str, work: Callable[[Target], int]) -> None:
    """Run a command on the cluster that the options name, and exit."""
    given = click.get_current_context().find_root().meta
    bootstrap, port = given.get("kwire.bootstrap"), given.get("kwire.port")
    if bootstrap is not None and port is not None:
        fail(2, f"kwire {command}: give --bootstrap or --port, not both")
    texts = {
        name: given.get(f"kwire.{name}") or os.environ.get(variable)
        for name, variable in _VARIABLES.items()
    }
    if port is None:
        bootstrap = texts["bootstrap"]
    user, mechanism, ca, own = (texts[name] for name in ("user", "sasl", "ca", "cert"))
    if own and not ca:
        fail(2, f"kwire {command}: --cert needs --ca FILE: whom to trust")

    def ask() -> int:
        from kwire.tools.kafka import credentials_of, find_target, trust_of

        credentials = credentials_of(user, mechanism or _PLAIN) if user else None
        trust = trust_of(ca, own, texts["cert_key"]) if ca else None
        return work(find_target(bootstrap, port, credentials, trust))

    run(command, ask)


def on_cluster(command: str, work: Callable[[Client], int], client_id: str) -> None:
    """Run a command with a client of that cluster, and exit."""

    def ask(target: Target) -> int:
        from kwire.tools.kafka import connected

        with connected(target, client_id) as client:
            return work(client)

    on_target(command, ask)


# --- topics


class _TopicCommands(Commands):
    """The commands of `kwire topics`; for the name of a topic in place of one, where it is shown."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            text = error.format_message()
            if text.endswith("?"):  # did you mean …
                raise
            topic = args[0]
            if topic == "describe":
                topic = args[1] if len(args) > 1 else "TOPIC"
            hint = f"kwire partitions {topic} shows a topic"
            raise click.UsageError(f"{text.removesuffix('.')}; {hint}", ctx) from None


@click.group(
    cls=_TopicCommands,
    invoke_without_command=True,
    epilog="\b\nExamples:\n  kwire topics\n  kwire topics create orders:3 audit\n"
    "  kwire topics delete orders",
)
@cluster_options
@_internal
@json_option
@click.pass_context
def topics(context: click.Context, internal: bool, as_json: bool) -> None:
    """List the topics, create or delete some."""
    if context.invoked_subcommand is None:
        _print_topics(internal=internal, as_json=as_json)


def _print_topics(*, internal: bool, as_json: bool) -> None:
    from kwire.tools import topics as work

    on_cluster(
        "topics",
        lambda client: work.list_topics(client, internal=internal, as_json=as_json),
        ADMINISTRATION,
    )


@topics.command("list", epilog=example("kwire topics list --json"))
@cluster_options
@_internal
@json_option
@click.pass_context
def list_topics(context: click.Context, internal: bool, as_json: bool) -> None:
    """List the topics, as without a command."""
    assert context.parent is not None
    before = context.parent.params  # options may stand before the command, too
    _print_topics(internal=internal or before["internal"], as_json=as_json or before["as_json"])


@topics.command("create", epilog=example("kwire topics create orders:3 -c retention.ms=60000"))
@click.argument(
    "names",
    metavar="NAME[:PARTITIONS[:REPLICATION]]…",
    nargs=-1,
    required=True,
    callback=parse_topics,
)
@click.option(
    "-c",
    "config",
    metavar="KEY=VALUE",
    multiple=True,
    callback=key_value,
    help="One configuration key of the topics; repeatable.",
)
@click.option("--if-not-exists", is_flag=True, help="No error for a topic that exists.")
@cluster_options
def create(names: list[tuple[str, int, int]], config: dict[str, str], if_not_exists: bool) -> None:
    """Create topics; returns when all partitions have leaders."""
    from kwire.tools import topics as work

    on_cluster(
        "topics create",
        lambda client: work.create_topics(client, names, config, if_not_exists=if_not_exists),
        ADMINISTRATION,
    )


@topics.command("delete", epilog=example("kwire topics delete orders"))
@click.argument("names", metavar="NAME…", nargs=-1, required=True)
@click.option("--if-exists", is_flag=True, help="No error for a topic that does not exist.")
@cluster_options
def delete(names: tuple[str, ...], if_exists: bool) -> None:
    """Delete topics; returns when no broker lists them any more."""
    from kwire.tools import topics as work

    on_cluster(
        "topics delete",
        lambda client: work.delete_topics(client, names, if_exists=if_exists),
        ADMINISTRATION,
    )


@click.command(epilog=example("kwire partitions orders"))
@click.argument("topic", required=False)
@cluster_options
@_internal
@json_option
def partitions(topic: str | None, internal: bool, as_json: bool) -> None:
    """Show leader, replicas, ISR and offsets of the partitions of one topic, or of all."""
    from kwire.tools import topics as work

    on_cluster(
        "partitions",
        lambda client: work.list_partitions(client, topic, internal=internal, as_json=as_json),
        ADMINISTRATION,
    )


@click.command(epilog=example("kwire groups shop"))
@click.argument("group", required=False)
@cluster_options
@json_option
def groups(group: str | None, as_json: bool) -> None:
    """List the consumer groups, or show one with its members, offsets and lag."""
    from kwire.tools import groups as work

    def show(client: Client) -> int:
        if group is None:
            return work.show_groups(client, as_json=as_json)
        return work.show_group(client, group, as_json=as_json)

    on_cluster("groups", show, ADMINISTRATION)


# --- records


def _headers(
    _context: click.Context, _parameter: click.Parameter, items: tuple[str, ...]
) -> list[tuple[str, bytes | None]]:
    for item in items:
        if "=" not in item:
            raise click.BadParameter(f"expected NAME=VALUE, not {item!r}")
    pairs = [item.partition("=") for item in items]
    return [(name, value.encode("utf-8", "surrogateescape")) for name, _, value in pairs]


@click.command(
    epilog="\b\nExamples:\n  kwire produce orders tea coffee\n"
    "  printf 'ann:tea\\nbob:coffee\\n' | kwire produce orders -K :"
)
@click.argument("topic")
@click.argument("values", metavar="[VALUE]…", nargs=-1)
@click.option("-k", "--key", help="Key of all records.")
@click.option("-K", "--key-separator", metavar="TEXT", help="Ends the key in each line of stdin.")
@click.option(
    "-H",
    "--header",
    "headers",
    metavar="NAME=VALUE",
    multiple=True,
    callback=_headers,
    help="A header of all records; repeatable.",
)
@click.option("-p", "--partition", type=click.IntRange(0), help="Partition; else by the key.")
@click.option("-Z", "--null", is_flag=True, help="An empty value is null, a tombstone.")
@cluster_options
@click.option("--json", "as_json", is_flag=True, help="Print where each record is as JSON.")
def produce(
    topic: str,
    values: tuple[str, ...],
    key: str | None,
    key_separator: str | None,
    headers: list[tuple[str, bytes | None]],
    partition: int | None,
    null: bool,
    as_json: bool,
) -> None:
    """Write a record for each VALUE, or for each line of stdin, with acks=all.

    Prints partition and offset of each VALUE. Keys are partitioned as by Java's clients."""
    from kwire.tools import records as work

    if key is not None and key_separator is not None:
        fail(2, "kwire produce: give --key or --key-separator, not both")
    if key_separator == "":
        fail(2, "kwire produce: --key-separator is empty")
    lines = work.Lines(key, key_separator, headers, null_if_empty=null)
    on_cluster(
        "produce",
        lambda client: work.produce(
            client, topic, values, lines, partition=partition, as_json=as_json
        ),
        _CLIENT,
    )


def _start(_context: click.Context, _parameter: click.Parameter, text: str) -> int | None:
    if text in ("beginning", "end"):
        return 0 if text == "beginning" else None
    try:
        return int(text)
    except ValueError:
        raise click.BadParameter(
            f"expected beginning, end, an offset, or -N for the last N, not {text!r}"
        ) from None


@click.command(
    epilog="\b\nExamples:\n  kwire consume orders -K :\n  kwire consume orders --from -10 --json\n"
    "  kwire consume orders --from end --follow --count 1 --timeout 10"
)
@click.argument("topic")
@click.option(
    "--from",
    "start",
    metavar="WHERE",
    default="beginning",
    show_default=True,
    callback=_start,
    help="beginning, end, an offset, or -N: the last N of each partition.",
)
@click.option("-f", "--follow", is_flag=True, help="Go on with the records that come.")
@click.option("-n", "--count", type=click.IntRange(1), help="End after so many records.")
@click.option("--timeout", type=click.FloatRange(0), help="Seconds to follow; then status 1.")
@click.option("-p", "--partition", type=click.IntRange(0), help="Only this one.")
@click.option("-K", "--key-separator", metavar="TEXT", help="Print the key and this first.")
@click.option(
    "--format",
    "template",
    metavar="TEXT",
    help="As kcat's: %t topic, %p partition, %o offset, %k key, %s value, %T timestamp,"
    " %h headers, \\n.",
)
@cluster_options
@click.option("--json", "as_json", is_flag=True, help="A JSON object a line, with everything.")
def consume(
    topic: str,
    start: int | None,
    follow: bool,
    count: int | None,
    timeout: float | None,
    partition: int | None,
    key_separator: str | None,
    template: str | None,
    as_json: bool,
) -> None:
    """Print the values of the records of a topic, without a group.

    By partition and offset; ends with the last record unless --follow is given."""
    from kwire.tools import records as work

    if (key_separator is not None) + (template is not None) + as_json > 1:
        fail(2, "kwire consume: give one of --key-separator, --format, --json")
    if timeout is not None and not follow:
        fail(2, "kwire consume: --timeout is for --follow")

    def read(client: Client) -> int:
        to_bytes = work.as_json_line if as_json else work.as_line(key_separator)
        return work.consume(
            client,
            topic,
            partition,
            start,
            follow=follow,
            count=count,
            seconds=timeout,
            to_bytes=to_bytes if template is None else work.as_format(template),
        )

    on_cluster("consume", read, _CLIENT)

"""kafka-log-dirs, -leader-election, -delete-records and -reassign-partitions of the image.

Corresponds to org.apache.kafka.tools.LogDirsCommand, LeaderElectionCommand, DeleteRecordsCommand
and reassign.ReassignPartitionsCommand, in their words. Left out: `--generate`, throttles, moves
between the log directories of a broker.
"""

from __future__ import annotations

import json
import sys

from kwire.client import maintenance
from kwire.client.admin import PREFERRED, UNCLEAN
from kwire.docker.client import ToolError
from kwire.protocol.errors import ErrorCode, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.docker.client import Client
    from kwire.docker.options import Options

    Key = tuple[str, int]
    """Topic and partition."""

_KINDS = {"preferred": PREFERRED, "unclean": UNCLEAN}


def log_dirs(options: Options) -> None:
    """Print each broker's directories and replicas, as JSON in the last line."""
    if "describe" not in options:
        raise ToolError("Missing required argument --describe")
    topics = _words(options.get("topic-list"))
    client = options.client()
    sys.stdout.write("Querying brokers for log directories information\n")
    brokers = options.numbers("broker-list")
    found = client.run(lambda admin: maintenance.log_dirs(admin, brokers))
    names = ",".join(map(str, found))
    sys.stdout.write(f"Received log directory information from brokers {names}\n")
    described = [
        {"broker": broker, "logDirs": [_log_dir(each, topics) for each in directories]}
        for broker, directories in found.items()
    ]
    sys.stdout.write(_json({"brokers": described, "version": 1}) + "\n")


def _log_dir(directory: Any, topics: list[str]) -> dict[str, Any]:
    """A directory as Kafka describes it. `topics`: empty for all."""
    replicas = [
        {
            "partition": f"{topic.name}-{each.partition_index}",
            "size": each.partition_size,
            "offsetLag": each.offset_lag,
            "isFuture": each.is_future_key,
        }
        for topic in directory.topics
        if not topics or topic.name in topics
        for each in topic.partitions
    ]
    error = ErrorCode(directory.error_code).name if directory.error_code else None
    return {"partitions": replicas, "error": error, "logDir": directory.log_dir}


def leader_election(options: Options) -> None:
    """Elect preferred or unclean leaders, of partitions that are named or of all."""
    given = options.need("election-type").lower()
    if given not in _KINDS:
        raise ToolError(f"--election-type {given}: expected preferred or unclean")
    keys: list[Key] | None
    if "all-topic-partitions" in options:
        keys = None
    elif options.get("path-to-json-file") is not None:
        keys = [_key(each) for each in _partitions_in(options, "path-to-json-file")]
    else:
        options.need("partition")
        keys = [(options.need("topic"), options.number("partition", 0))]
    client = options.client()
    outcomes = client.run(lambda admin: maintenance.elect_leaders(admin, keys, _KINDS[given]))
    _print_elections(outcomes, given.upper())


def _print_elections(outcomes: dict[Key, KafkaError | None], kind: str) -> None:
    elected = [key for key, error in outcomes.items() if error is None]
    failed = {key: error for key, error in outcomes.items() if error is not None}
    not_needed = [k for k, e in failed.items() if e.code == ErrorCode.ELECTION_NOT_NEEDED]
    if elected:
        sys.stdout.write(
            f"Successfully completed leader election ({kind}) for partitions {_names(elected)}\n"
        )
    if not_needed:
        sys.stdout.write(f"Valid replica already elected for partitions {_names(not_needed)}\n")
    wrong = {key: error for key, error in failed.items() if key not in not_needed}
    for key, error in wrong.items():
        sys.stdout.write(
            f"Error completing leader election ({kind}) for partition: {_name(key)}: {error}\n"
        )
    if wrong:
        raise ToolError(f"{len(wrong)} replica(s) could not be elected")


def delete_records(options: Options) -> None:
    """Delete the records before the offsets in a file."""
    wanted = _partitions_in(options, "offset-json-file")
    before = {_key(each): _number(each, "offset") for each in wanted}
    client = options.client()
    sys.stdout.write("Executing records delete operation\n")
    outcomes = client.run(lambda admin: maintenance.delete_records(admin, before))
    sys.stdout.write("Records delete operation completed:\n")
    for key, outcome in sorted(outcomes.items()):
        what = "error" if isinstance(outcome, KafkaError) else "low_watermark"
        sys.stdout.write(f"partition: {_name(key)}\t{what}: {outcome}\n")


def reassign_partitions(options: Options) -> None:
    """List, start, verify or cancel moves of replicas."""
    ways = [name for name in ("list", "execute", "verify", "cancel") if name in options]
    if len(ways) != 1:
        raise ToolError(
            "exactly one of --list, --execute, --verify, --cancel is expected; --generate is not"
            " supported: write the replicas into the file"
        )
    if ways == ["list"]:
        _list_reassignments(options.client())
        return
    file = _partitions_in(options, "reassignment-json-file")
    replicas = {_key(each): _broker_ids(each) for each in file}
    client = options.client()
    if ways == ["execute"]:
        _execute(client, replicas)
    elif ways == ["verify"]:
        _verify(client, replicas)
    else:
        outcomes = client.run(lambda admin: maintenance.reassign(admin, dict.fromkeys(replicas)))
        _check(outcomes)
        names = _names(list(outcomes))
        sys.stdout.write(f"Successfully cancelled partition reassignments for: {names}\n")


def _list_reassignments(client: Client) -> None:
    moves = client.run(maintenance.reassignments)
    if not moves:
        sys.stdout.write("No partition reassignments found.\n")
        return
    sys.stdout.write("Current partition reassignments:\n")
    for key, move in sorted(moves.items()):
        replicas, adding, removing = (
            ",".join(map(str, ids))
            for ids in (move.replicas, move.adding_replicas, move.removing_replicas)
        )
        line = f"{_name(key)}: replicas: {replicas}. adding: {adding}. removing: {removing}."
        sys.stdout.write(f"{line}\n")


def _execute(client: Client, replicas: dict[Key, list[int]]) -> None:
    now = _replicas_now(client, replicas)
    before = [
        {"topic": topic, "partition": index, "replicas": ids, "log_dirs": ["any"] * len(ids)}
        for (topic, index), ids in sorted(now.items())
    ]
    sys.stdout.write(
        "Current partition replica assignment\n\n"
        + _json({"version": 1, "partitions": before})
        + "\n\nSave this to use as the --reassignment-json-file option during rollback\n"
    )
    _check(client.run(lambda admin: maintenance.reassign(admin, replicas)))
    plural = "s" if len(replicas) > 1 else ""
    names = _names(list(replicas))
    sys.stdout.write(f"Successfully started partition reassignment{plural} for {names}\n")


def _verify(client: Client, replicas: dict[Key, list[int]]) -> None:
    moves = client.run(maintenance.reassignments)
    now = _replicas_now(client, replicas)
    sys.stdout.write("Status of partition reassignment:\n")
    for key, wanted in sorted(replicas.items()):
        if key in moves:
            state = "is still in progress."
        elif now[key] == wanted:
            state = "is completed."
        else:
            ids = ",".join(map(str, now[key]))
            state = f"is not what was asked for: the replicas are {ids}."
        sys.stdout.write(f"Reassignment of partition {_name(key)} {state}\n")


def _replicas_now(client: Client, wanted: dict[Key, list[int]]) -> dict[Key, list[int]]:
    found = {
        (str(topic.name), each.partition_index): list(each.replica_nodes)
        for topic in client.metadata(sorted({topic for topic, _ in wanted})).topics
        for each in topic.partitions
    }
    for key in wanted:
        if key not in found:
            raise ToolError(f"partition {_name(key)} does not exist")
    return {key: found[key] for key in wanted}


def _check(outcomes: dict[Key, KafkaError | None]) -> None:
    for key, error in outcomes.items():
        if error is not None:
            raise ToolError(f"{_name(key)}: {error}")


# --- files and texts


def _partitions_in(options: Options, option: str) -> list[dict[str, Any]]:
    """The items of "partitions" in a JSON file. ToolError."""
    path = options.need(option)
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except OSError as error:
        raise ToolError(f"--{option} {path}: {error.strerror}") from None
    except ValueError as error:
        raise ToolError(f"--{option} {path}: no JSON: {error}") from None
    items = found.get("partitions") if isinstance(found, dict) else None
    if not isinstance(items, list) or not all(isinstance(each, dict) for each in items):
        raise ToolError(f'--{option} {path}: expected {{"partitions": [{{"topic": …}}, …]}}')
    return items


def _key(item: dict[str, Any]) -> Key:
    topic = item.get("topic")
    if not isinstance(topic, str):
        raise ToolError(f"{_json(item)}: the topic is missing")
    return topic, _number(item, "partition")


def _number(item: dict[str, Any], name: str) -> int:
    found = item.get(name)
    if not isinstance(found, int) or isinstance(found, bool):
        raise ToolError(f"{_json(item)}: {name} is missing, or no number")
    return found


def _broker_ids(item: dict[str, Any]) -> list[int]:
    found = item.get("replicas")
    if not isinstance(found, list) or not all(isinstance(each, int) for each in found):
        raise ToolError(f"{_json(item)}: replicas are missing, or no list of broker ids")
    return found


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _name(key: Key) -> str:
    return f"{key[0]}-{key[1]}"


def _names(keys: list[Key]) -> str:
    return ", ".join(_name(key) for key in sorted(keys))


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))

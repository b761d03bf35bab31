"""`kwire groups`: the groups of any Kafka, and one with its members, offsets and lag."""

from __future__ import annotations

import json
import sys

from kwire.client.groups import describe_group, find_group, list_groups
from kwire.client.views import NO_SUCH_GROUP
from kwire.server.errors import NodeError
from kwire.tools.kafka import table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.client.blocking import Client
    from kwire.client.views import Group


def show_groups(client: Client, *, as_json: bool) -> int:
    """Print all groups."""
    found = [client.run(describe_group(client, name)) for name in client.run(list_groups(client))]
    if as_json:
        sys.stdout.write(json.dumps([group_object(each) for each in found], indent=1) + "\n")
    elif found:
        rows = [group_row(each) for each in found]
        sys.stdout.write(table(GROUP_HEAD, rows))
    else:
        sys.stderr.write("no groups\n")
    return 0


def show_group(client: Client, name: str, *, as_json: bool) -> int:
    """Print one group. NodeError when it does not exist."""
    group = client.run(find_group(client, name))
    if group.state == NO_SUCH_GROUP and not group.offsets:
        meant = "" if group.similar is None else f"; did you mean {group.similar}?"
        raise NodeError(f"there is no group {name}{meant}")
    if as_json:
        sys.stdout.write(json.dumps(group_object(group), indent=1) + "\n")
    else:
        sys.stdout.write(f"{group}\n")
    return 0


GROUP_HEAD = ("GROUP", "STATE", "MEMBERS", "LAG", "TOPICS")


def group_row(group: Group) -> tuple[object, ...]:
    """A row of the table."""
    topics = ",".join(dict.fromkeys(each.topic for each in group.offsets))
    return group.id, group.state, len(group.members), group.known_lag, topics


def group_object(group: Group) -> dict[str, Any]:
    """A group as a JSON object."""
    from dataclasses import asdict

    return {**asdict(group), "lag": group.known_lag}

"""What the events of a cluster mean on its timeline: the mark, lane and label of each.

An event is the JSON object of `kwire.server.event_history`. A lane is the id of a node as text, or
"test", "network", "group:ID", "client:ID".
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TEST, NETWORK = "test", "network"

_KINDS = {
    "KILL_REQUESTED": "kill",
    "STOP_REQUESTED": "stop",
    "START_REQUESTED": "start",
    "PAUSE_REQUESTED": "pause",
    "RESUME_REQUESTED": "resume",
    "CUT_REQUESTED": "cut",
    "DELAY_REQUESTED": "delay",
    "HEAL_REQUESTED": "heal",
    "ELECTION_REQUESTED": "election",
    "RESET_REQUESTED": "reset",
    "SNAPSHOT_RESTORED": "reset",
    "NODE_DIED": "died",
    "BROKER_HALTED": "died",
    "LEADER_ELECTED": "leader",
    "UNCLEAN_LEADER_ELECTED": "unclean",
    "PARTITION_OFFLINE": "offline",
    "PARTITION_WAITING": "offline",
    "ISR_SHRUNK": "isr_out",
    "ISR_EXPANDED": "isr_in",
    "LOG_TRUNCATED": "truncated",
    "LOG_TRUNCATED_BELOW_HIGH_WATERMARK": "truncated",
    "CONTROLLER_ELECTED": "controller",
    "CONTROLLER_STANDBY": "detail",
    "BROKER_REGISTERED": "registered",
    "BROKER_FENCED": "fenced",
    "BROKER_RUN_ENDED": "detail",
    "BROKER_SHUTTING_DOWN": "detail",
    "BROKER_SHUT_DOWN": "fenced",
    "TOPIC_CREATED": "topic",
    "TOPIC_DELETED": "topic",
    "GROUP_REBALANCE_STARTED": "rebalance",
    "GROUP_STABLE": "group",
    "GROUP_EMPTY": "group",
    "GROUP_MEMBER_FAILED": "failed",
    "ISR_SHRINK_PROPOSED": "detail",
    "ISR_EXPAND_PROPOSED": "detail",
    "ISR_UPDATED": "detail",
    "ISR_UPDATE_REFUSED": "detail",
    "PARTITION_FETCH_FAILED": "detail",
    "LEADER_UNREACHABLE": "detail",
    "LEADER_REACHABLE": "detail",
    "FOLLOWER_FENCED": "detail",
    "ROLES_CHANGED": "detail",
}
_NAME_CHARACTERS = 24  # of a topic in a label
_AT_A_NODE = {"kill", "stop", "start", "pause", "resume", "died"}
_LABELS = {
    "kill": "killed",
    "stop": "stopped",
    "start": "started",
    "pause": "paused",
    "resume": "resumed",
    "died": "died",
    "registered": "registered",
    "fenced": "fenced",
}


def kind_of(event: dict[str, Any]) -> str:
    """The kind of mark of an event."""
    kind = _KINDS.get(event["event"])
    if kind is None:
        kind = event["level"] if event["level"] in ("warning", "error") else "other"
    return kind


def lanes_of(event: dict[str, Any], kind: str) -> list[str]:
    """The lanes in which an event is marked."""
    fields, node = event["fields"], event["node"]
    at = TEST if node is None else str(node)
    if kind in ("topic", "reset", "election"):
        return [TEST]
    if kind in ("cut", "delay", "heal"):
        return [NETWORK]
    if kind in _AT_A_NODE and fields.get("node_id") is not None:
        return [str(fields["node_id"])]
    if "group" in fields:
        return [f"group:{fields['group']}"]
    if kind in ("leader", "unclean"):
        return [str(fields["leader"])]
    if kind == "offline":
        leader = fields.get("previous_leader")
        return [at if leader is None else str(leader)]
    if kind in ("isr_out", "isr_in"):
        changed = set(fields["isr"]) ^ set(fields["previous_isr"])
        return [str(each) for each in sorted(changed)] or [at]
    if kind in ("registered", "fenced"):
        return [str(fields["broker_id"])]
    return [at]


def label_of(event: dict[str, Any], kind: str) -> str:
    """A few words beside a mark; "": none."""
    fields = event["fields"]
    name = ""
    if "topic" in fields and "partition" in fields:
        name = f"{shorten(fields['topic'])}-{fields['partition']}"
    match kind:
        case "leader":
            return f"leads {name}, e{fields['leader_epoch']}"
        case "unclean":
            return f"leads {name} (unclean), e{fields['leader_epoch']}"
        case "offline":
            return f"{name} has no leader"
        case "isr_out":
            return f"out of ISR: {name}"
        case "isr_in":
            return f"in ISR: {name}"
        case "truncated":
            cut = f"{fields['previous_log_end_offset']}→{fields['log_end_offset']}"
            return f"{name} truncated {cut}"
        case "controller":
            return f"elected, epoch {fields['controller_epoch']}"
        case "topic":
            verb = "created" if event["event"] == "TOPIC_CREATED" else "deleted"
            return f"{shorten(fields['topic'])} {verb}"
        case "rebalance":
            return str(fields["reason"]).replace("_", " ")
        case "group":
            return ""  # the bar above it says it
        case "failed":
            return f"{fields['client_id']} failed"
        case "cut" | "delay" | "heal" | "election" | "reset":
            return str(event["message"]).removeprefix("control: ")
        case "warning" | "error":
            return str(event["event"]).lower().replace("_", " ")
    return _LABELS.get(kind, "")


def shorten(name: object) -> str:
    """A long name without its middle: ends tell names apart."""
    name = str(name)
    if len(name) <= _NAME_CHARACTERS:
        return name
    half = _NAME_CHARACTERS // 2
    return f"{name[: half - 1]}…{name[-half:]}"


def mark(event: dict[str, Any], where: str) -> dict[str, Any]:
    """An event as the page draws it. `where`: its node in words."""
    kind = kind_of(event)
    return {
        "n": event["number"],
        "t": event["time_ms"],
        "where": where,
        "name": event["event"],
        "level": event["level"],
        "text": event["message"],
        "kind": kind,
        "lanes": lanes_of(event, kind),
        "label": label_of(event, kind),
    }

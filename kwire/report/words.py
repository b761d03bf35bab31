"""What an event says to people who watch a cluster: shorter than its sentence, which is for logs.

An event is the JSON object of `kwire.server.event_history`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_REQUEST = "control: "
_WORDS = {
    "CONTROLLER_ELECTED": "controller {controller_id} is active with epoch {controller_epoch}",
    "BROKER_REGISTERED": "broker {broker_id} is up",
    "BROKER_FENCED": "broker {broker_id} is down: {detail}",
    "BROKER_SHUT_DOWN": "broker {broker_id} has shut down",
    "TOPIC_CREATED": "{topic}: created with {partitions} partition(s)",
    "TOPIC_DELETED": "{topic}: deleted",
    "LEADER_ELECTED": "{name}: broker {leader} leads in epoch {leader_epoch}",
    "UNCLEAN_LEADER_ELECTED": (
        "{name}: broker {leader}, which was not in sync, leads in epoch {leader_epoch}:"
        " records may be lost"
    ),
    "PARTITION_OFFLINE": "{name}: nobody leads, none of the ISR {isr} is up",
    "PARTITION_WAITING": "{name}: nobody leads until one of the ISR {isr} is up",
    "ISR_SHRUNK": "{name}: {changed} out of the ISR, which is {isr}",
    "ISR_EXPANDED": "{name}: {changed} in sync again, the ISR is {isr}",
    "LOG_TRUNCATED": "{name}: broker {node} truncated from {previous_log_end_offset} to {log_end_offset}",
    "LOG_TRUNCATED_BELOW_HIGH_WATERMARK": (
        "{name}: broker {node} truncated from {previous_log_end_offset} to {log_end_offset},"
        " below its high watermark {high_watermark}"
    ),
}


def words(event: Mapping[str, Any]) -> str:
    """The event in a few words; its sentence, where that is as good."""
    pattern = _WORDS.get(event["event"])
    fields = event["fields"]
    if pattern is None:
        return str(event["message"]).removeprefix(_REQUEST)
    values = {**fields, "node": event["node"]}
    if "partition" in fields:
        values["name"] = f"{fields['topic']}-{fields['partition']}"
    if "isr" in fields:
        changed = set(fields["isr"]) ^ set(fields.get("previous_isr") or ())
        values["changed"] = f"broker {_listed(sorted(changed))}"
        values["isr"] = _listed(fields["isr"])
    return pattern.format_map(values)


def _listed(ids: list[int]) -> str:
    return ",".join(map(str, ids)) or "nobody"

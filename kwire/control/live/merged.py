"""What all nodes of a cluster have told, put together, so that a page that comes late gets all of it at once."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Json = dict[str, Any]

_STATE = 6  # numbers of one replica: its own, log start, high watermark, log end, leader epoch, whether it leads
PART = 1000
"""Partitions, or replicas of one broker, in one part."""
_MAX_REQUESTS = 200
_LISTS = ("groups", "transactions", "rates", "requests", "offline")


class Merged:
    """The state of a cluster: nodes, partitions at the controller, replicas at the brokers, and what is in them."""

    def __init__(self) -> None:
        self._nodes: list[Json] = []
        self._active: tuple[int, int] | None = None  # epoch and id of the active controller
        self._partitions: dict[tuple[str, int], list[Any]] = {}
        self._names: dict[int, dict[int, list[Any]]] = {}  # by broker and number of the replica
        self._offsets: dict[int, dict[int, list[int]]] = {}
        self._lists: dict[int, dict[str, Any]] = {}  # of each broker
        self._last: Json = {}  # what was last told, by key

    def take(self, answers: list[Json], nodes: list[Json]) -> Json:
        """Add what nodes have told, and how all of them are; return what is new to pages."""
        part: Json = {}
        for answer in answers:
            if "controller" in answer:
                self._take_controller(answer, part)
        for answer in answers:
            if "replicas" in answer:
                self._take_replicas(answer, part)
            if "groups" in answer:
                self._lists[answer["id"]] = {name: answer[name] for name in _LISTS}
        running = {each["id"] for each in nodes if each["running"]}
        for node_id in self._lists.keys() - running:
            del self._lists[node_id]
        part |= self.changed(self._of_lists())
        active = (
            self._active[1] if self._active is not None and self._active[1] in running else None
        )
        epoch = None if self._active is None else self._active[0]
        new = {"nodes": nodes, "controller": {"id": active, "epoch": epoch}}
        return part | self.changed(new)

    def changed(self, values: Json) -> Json:
        """Those of these values that are others than the last time."""
        found = {name: value for name, value in values.items() if self._last.get(name) != value}
        self._last |= found
        return found

    def _take_controller(self, answer: Json, part: Json) -> None:
        told = answer["controller"]
        at = told["epoch"], answer["id"]
        if not told["active"] or (self._active is not None and self._active > at):
            return
        if self._active != at or answer["whole"]:  # one that becomes active tells everything, too
            part["begin"] = True
            self._partitions.clear()
        self._active = at
        for name in told["gone"]:
            for key in [key for key in self._partitions if key[0] == name]:
                del self._partitions[key]
        for each in told["partitions"]:
            self._partitions[each[0], each[1]] = each
        for name in ("partitions", "gone"):
            if told[name]:
                part[name] = told[name]

    def _take_replicas(self, answer: Json, part: Json) -> None:
        broker, told = answer["id"], answer["replicas"]
        names, offsets = self._names.setdefault(broker, {}), self._offsets.setdefault(broker, {})
        if answer["whole"]:
            names.clear()
            offsets.clear()
        for number, *key in told["names"]:
            names[number] = key
        flat = told["offsets"]
        for at in range(0, len(flat), _STATE):
            offsets[flat[at]] = flat[at : at + _STATE]
        for number in told["gone"]:
            names.pop(number, None)
            offsets.pop(number, None)
        if answer["whole"] or flat or told["gone"]:
            more = {"whole": True} if answer["whole"] else {}
            new = {name: value for name, value in told.items() if value}
            part.setdefault("replicas", {})[str(broker)] = new | more

    def _of_lists(self) -> Json:
        found: Json = {}
        for name in _LISTS:
            if name in ("groups", "transactions"):
                found[name] = [each for told in self._lists.values() for each in told[name]]
                found[name].sort(key=lambda each: each["id"])
            else:
                found[name] = [
                    [broker, *each] for broker, told in self._lists.items() for each in told[name]
                ]
        found["requests"].sort(key=lambda each: -each[1])
        del found["requests"][_MAX_REQUESTS:]
        return found

    def parts(self, size: int) -> list[Json]:
        """All of it, at most so many partitions or replicas of one broker in a part."""
        found: list[Json] = [{"begin": True, "all": True, **self._last}]
        partitions = [*self._partitions.values()]
        for at in range(0, len(partitions), size):
            found.append({"partitions": partitions[at : at + size]})
        for broker, names in self._names.items():
            offsets = self._offsets[broker]
            numbers = [*names]
            for at in range(0, len(numbers), size) or (0,):
                some = numbers[at : at + size]
                flat: list[int] = []
                for number in some:
                    flat += offsets[number]
                told: Json = {"names": [[number, *names[number]] for number in some]}
                told |= {"offsets": flat} | ({"whole": True} if at == 0 else {})
                found.append({"replicas": {str(broker): told}})
        return found

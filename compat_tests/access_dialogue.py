"""A dialogue of users with different rights and a broker: every API of the authorization table, asked and answered.

Each user has topics, groups and transactional ids of the user's own, `mine-USER` and `other-USER`, and asks the same of
both, and of `missing-USER`. What answers have in common with Kafka's is in tests/data (record_access.py).
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

from compat_tests.clients import eventually
from compat_tests.test_security import Wire, shake, token
from kwire.protocol import api
from kwire.protocol.api import ApiKey
from kwire.protocol.json_form import from_json, to_json
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record

Json = dict[str, Any]

ADMIN = "admin"
ANY, TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 1, 2, 3, 4, 5
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION = 2, 3, 4, 5, 6, 7, 8, 9
DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 10, 11, 12
DENY, ALLOW = 2, 3
LITERAL, PREFIXED = 3, 4
THE_CLUSTER = "kafka-cluster"
RESOURCES = (TOPIC, GROUP, TRANSACTIONAL_ID)

# Of each user: (resource type, name, operation, permission). "{u}" is the user's name.
Rule = tuple[int, str, int, int]
_EVERYTHING: list[Rule] = [
    *((kind, "*", ALL, ALLOW) for kind in RESOURCES),
    (CLUSTER, THE_CLUSTER, ALL, ALLOW),
]
USERS: dict[str, list[Rule]] = {
    "all": _EVERYTHING,
    "none": [],
    "part": [
        *((kind, "mine-{u}", ALL, ALLOW) for kind in RESOURCES),
        (TOPIC, "new-{u}", CREATE, ALLOW),
    ],
    "seer": [
        *((kind, f"{w}-{{u}}", DESCRIBE, ALLOW) for kind in RESOURCES for w in ("mine", "other")),
        (CLUSTER, THE_CLUSTER, DESCRIBE, ALLOW),
    ],
    "denied": [*_EVERYTHING, *((kind, "mine-{u}", ALL, DENY) for kind in RESOURCES)],
    "reader": [
        (TOPIC, "mine-{u}", READ, ALLOW),
        (GROUP, "mine-{u}", READ, ALLOW),
        (TOPIC, "mine-{u}", DESCRIBE_CONFIGS, ALLOW),
        (CLUSTER, THE_CLUSTER, DESCRIBE_CONFIGS, ALLOW),
    ],
    "writer": [
        (TOPIC, "mine-{u}", WRITE, ALLOW),
        (TRANSACTIONAL_ID, "mine-{u}", WRITE, ALLOW),
        (TOPIC, "mine-{u}", ALTER_CONFIGS, ALLOW),
        (CLUSTER, THE_CLUSTER, ALTER_CONFIGS, ALLOW),
    ],
    "maker": [
        (CLUSTER, THE_CLUSTER, CREATE, ALLOW),
        (TOPIC, "mine-{u}", DELETE, ALLOW),
        (TOPIC, "mine-{u}", ALTER, ALLOW),
        (GROUP, "mine-{u}", DELETE, ALLOW),
    ],
    "manager": [
        (CLUSTER, THE_CLUSTER, ALTER, ALLOW),
        (CLUSTER, THE_CLUSTER, CLUSTER_ACTION, ALLOW),
        (CLUSTER, THE_CLUSTER, IDEMPOTENT_WRITE, ALLOW),
    ],
}
PASSWORD = "secret"
NAMES = ("mine-{u}", "other-{u}")
ALL_NAMES = (*NAMES, "missing-{u}")


def batch(**options: Any) -> str:
    """A record batch in base64."""
    records = [Record(-1, int(time.time() * 1000), None, b"x")]
    return base64.b64encode(build_batch(records, **options)).decode()


def _topics(
    partition: Json | int,
    *,
    topic: str = "name",
    partitions: str = "partitions",
    names: Any = ALL_NAMES,
) -> list[Json]:
    return [{topic: name, partitions: [partition]} for name in names]


def _resources(**more: Any) -> list[Json]:
    found = [{"resourceType": 2, "resourceName": name} for name in ALL_NAMES]
    found.append({"resourceType": 4, "resourceName": "1"})
    return [{**each, **more} for each in found]


_PRODUCER = {"producerId": 4711, "producerEpoch": 0}
_FILTER = {
    "resourceTypeFilter": 2,
    "resourceNameFilter": "nothing-{u}",
    "patternTypeFilter": 3,
    "principalFilter": None,
    "hostFilter": None,
    "operation": 1,
    "permissionType": 1,
}
_COMMIT = {"partitionIndex": 0, "committedOffset": 1}
_MADE = "made"
_LISTED = "listed"
"""In a label: the answer lists all there is, of which only what is the user's is compared."""

REQUESTS: list[tuple[str, ApiKey, int, Json]] = [
    (
        "named",
        ApiKey.METADATA,
        12,
        {
            "topics": [{"name": name} for name in ALL_NAMES],
            "allowAutoTopicCreation": False,
            "includeTopicAuthorizedOperations": True,
        },
    ),
    (
        "by id",
        ApiKey.METADATA,
        12,
        {
            "topics": [{"name": None, "topicId": f"{{id {name}}}"} for name in NAMES],
            "allowAutoTopicCreation": False,
        },
    ),
    (_LISTED, ApiKey.METADATA, 12, {"topics": None, "includeTopicAuthorizedOperations": True}),
    (
        "the cluster's operations",
        ApiKey.METADATA,
        8,
        {"topics": [], "includeClusterAuthorizedOperations": True},
    ),
    (
        _MADE,
        ApiKey.METADATA,
        4,
        {"topics": [{"name": "made-{u}"}], "allowAutoTopicCreation": True},
    ),
    ("", ApiKey.DESCRIBE_CLUSTER, 1, {"includeClusterAuthorizedOperations": True}),
    ("named", ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": [{"name": n} for n in ALL_NAMES]}),
    (_LISTED, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": []}),
    (
        "",
        ApiKey.LIST_OFFSETS,
        7,
        {"replicaId": -1, "topics": _topics({"partitionIndex": 0, "timestamp": -1})},
    ),
    (
        "",
        ApiKey.FETCH,
        12,
        {
            "minBytes": 0,
            "topics": _topics({"partition": 0, "partitionMaxBytes": 1000}, topic="topic"),
        },
    ),
    (
        "by id",
        ApiKey.FETCH,
        13,
        {
            "minBytes": 0,
            "topics": [
                {
                    "topicId": f"{{id {name}}}",
                    "partitions": [{"partition": 0, "partitionMaxBytes": 1000}],
                }
                for name in NAMES
            ],
        },
    ),
    (
        "as a follower",
        ApiKey.FETCH,
        12,
        {
            "replicaId": 7,
            "minBytes": 0,
            "topics": _topics(
                {"partition": 0, "partitionMaxBytes": 1000}, topic="topic", names=NAMES
            ),
        },
    ),
    (
        "",
        ApiKey.PRODUCE,
        9,
        {
            "acks": -1,
            "timeoutMs": 5000,
            "topicData": _topics({"index": 0, "records": "{batch}"}, partitions="partitionData"),
        },
    ),
    (
        "in a transaction",
        ApiKey.PRODUCE,
        9,
        {
            "transactionalId": "other-{u}",
            "acks": -1,
            "timeoutMs": 5000,
            "topicData": _topics(
                {"index": 0, "records": "{transactional batch}"},
                partitions="partitionData",
                names=NAMES,
            ),
        },
    ),
    (
        "",
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        4,
        {"replicaId": -2, "topics": _topics({"partition": 0, "leaderEpoch": 0}, topic="topic")},
    ),
    *(
        (word, ApiKey.OFFSET_COMMIT, 8, {"groupId": f"{word}-{{u}}", "topics": _topics(_COMMIT)})
        for word in ("mine", "other")
    ),
    *(
        (
            word,
            ApiKey.OFFSET_FETCH,
            7,
            {"groupId": f"{word}-{{u}}", "topics": _topics(0, partitions="partitionIndexes")},
        )
        for word in ("mine", "other")
    ),
    ("all topics", ApiKey.OFFSET_FETCH, 7, {"groupId": "mine-{u}", "topics": None}),
    (
        "of groups",
        ApiKey.OFFSET_FETCH,
        8,
        {"groups": [{"groupId": name, "topics": None} for name in NAMES]},
    ),
    ("groups", ApiKey.FIND_COORDINATOR, 4, {"keyType": 0, "coordinatorKeys": list(NAMES)}),
    ("transactions", ApiKey.FIND_COORDINATOR, 4, {"keyType": 1, "coordinatorKeys": list(NAMES)}),
    *((name, ApiKey.FIND_COORDINATOR, 2, {"keyType": 0, "key": name}) for name in NAMES),
    *(
        (
            name,
            ApiKey.JOIN_GROUP,
            7,
            {
                "groupId": name,
                "sessionTimeoutMs": 10_000,
                "memberId": "stranger",
                "protocolType": "consumer",
                "protocols": [{"name": "range"}],
            },
        )
        for name in NAMES
    ),
    *(
        (f"{n}{word}", ApiKey.SYNC_GROUP, 5, {"groupId": n, "memberId": "stranger", **protocol})
        for word, protocol in (
            ("", {"protocolType": "consumer", "protocolName": "range"}),
            (" without a protocol", {}),
        )
        for n in NAMES
    ),
    *((n, ApiKey.HEARTBEAT, 4, {"groupId": n, "memberId": "stranger"}) for n in NAMES),
    *(
        (n, ApiKey.LEAVE_GROUP, 4, {"groupId": n, "members": [{"memberId": "stranger"}]})
        for n in NAMES
    ),
    (
        "",
        ApiKey.DESCRIBE_GROUPS,
        5,
        {"groups": list(ALL_NAMES), "includeAuthorizedOperations": True},
    ),
    (_LISTED, ApiKey.LIST_GROUPS, 4, {}),
    *(
        (
            f"{name}",
            ApiKey.INIT_PRODUCER_ID,
            4,
            {"transactionalId": name, "transactionTimeoutMs": 60_000},
        )
        for name in NAMES
    ),
    ("idempotent", ApiKey.INIT_PRODUCER_ID, 4, {"transactionalId": None}),
    *(
        (
            name,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            {
                "v3AndBelowTransactionalId": name,
                "v3AndBelowProducerId": 4711,
                "v3AndBelowTopics": [{"name": n, "partitions": [0]} for n in NAMES],
            },
        )
        for name in NAMES
    ),
    *(
        (
            f"{name} with {group}",
            ApiKey.ADD_OFFSETS_TO_TXN,
            3,
            {"transactionalId": name, "groupId": group, **_PRODUCER},
        )
        for name in NAMES
        for group in NAMES
    ),
    *(
        (n, ApiKey.END_TXN, 3, {"transactionalId": n, "committed": True, **_PRODUCER})
        for n in NAMES
    ),
    *(
        (
            f"{name} with {group}",
            ApiKey.TXN_OFFSET_COMMIT,
            3,
            {"transactionalId": name, "groupId": group, **_PRODUCER, "topics": _topics(_COMMIT)},
        )
        for name in NAMES
        for group in NAMES
    ),
    (
        "",
        ApiKey.WRITE_TXN_MARKERS,
        1,
        {"markers": [{**_PRODUCER, "topics": [{"name": "missing-{u}", "partitionIndexes": [0]}]}]},
    ),
    ("", ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": _topics(0, partitions="partitionIndexes")}),
    ("", ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactionalIds": list(ALL_NAMES)}),
    (_LISTED, ApiKey.LIST_TRANSACTIONS, 0, {}),
    (
        "",
        ApiKey.CREATE_TOPICS,
        7,
        {
            "topics": [
                {"name": name, "numPartitions": 1, "replicationFactor": 1}
                for name in ("new-{u}", "newer-{u}", "mine-{u}")
            ],
            "validateOnly": True,
        },
    ),
    (
        "",
        ApiKey.CREATE_PARTITIONS,
        3,
        {
            "topics": [{"name": n, "count": 2, "assignments": None} for n in ALL_NAMES],
            "timeoutMs": 5000,
            "validateOnly": True,
        },
    ),
    (
        "",
        ApiKey.DELETE_RECORDS,
        2,
        {"topics": _topics({"partitionIndex": 0, "offset": 0}), "timeoutMs": 5000},
    ),
    (
        "",
        ApiKey.DESCRIBE_CONFIGS,
        4,
        {"resources": _resources(configurationKeys=["retention.ms", "log.retention.ms"])},
    ),
    (
        "",
        ApiKey.ALTER_CONFIGS,
        2,
        {"resources": _resources(configs=[])[:3], "validateOnly": True},
    ),
    (
        "",
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        {
            "resources": _resources(
                configs=[{"name": "retention.ms", "configOperation": 0, "value": "9000"}]
            )[:3],
            "validateOnly": True,
        },
    ),
    (
        "a broker",
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        {
            "resources": [
                {
                    "resourceType": 4,
                    "resourceName": "1",
                    "configs": [
                        {"name": "log.cleaner.threads", "configOperation": 0, "value": "1"}
                    ],
                }
            ],
            "validateOnly": True,
        },
    ),
    ("", ApiKey.DESCRIBE_ACLS, 3, _FILTER),
    ("", ApiKey.DELETE_ACLS, 3, {"filters": [_FILTER]}),
    (
        "",
        ApiKey.CREATE_ACLS,
        3,
        {
            "creations": [
                {
                    "resourceType": 2,
                    "resourceName": "of-{u}",
                    "resourcePatternType": 3,
                    "principal": "User:nobody",
                    "host": "*",
                    "operation": 3,
                    "permissionType": 3,
                }
            ]
        },
    ),
    (
        "",
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        2,
        {"dirs": [{"path": "/nosuch", "topics": _topics(0)}]},
    ),
    (
        "",
        ApiKey.DESCRIBE_LOG_DIRS,
        4,
        {"topics": [{"topic": n, "partitions": [0]} for n in NAMES]},
    ),
    (
        "",
        ApiKey.ELECT_LEADERS,
        2,
        {"topicPartitions": [{"topic": n, "partitions": [0]} for n in ALL_NAMES]},
    ),
    (
        "",
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        {"topics": _topics({"partitionIndex": 0, "replicas": None})},
    ),
    (
        "",
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        0,
        {"topics": _topics(0, partitions="partitionIndexes")},
    ),
    *(
        (n, ApiKey.OFFSET_DELETE, 0, {"groupId": n, "topics": _topics({"partitionIndex": 0})})
        for n in NAMES
    ),
    (
        "",
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        1,
        {"components": [{"entityType": "user", "matchType": 0, "match": "{u}"}]},
    ),
    (
        "",
        ApiKey.ALTER_CLIENT_QUOTAS,
        1,
        {
            "entries": [
                {
                    "entity": [{"entityType": "user", "entityName": "{u}"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}],
                }
            ],
            "validateOnly": True,
        },
    ),
    ("", ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": [{"name": "nobody"}]}),
    (
        "",
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        {"deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": []},
    ),
    ("", ApiKey.UNREGISTER_BROKER, 0, {"brokerId": 99}),
    ("", ApiKey.LIST_CONFIG_RESOURCES, 0, {}),
    ("", ApiKey.DELETE_GROUPS, 2, {"groupsNames": list(ALL_NAMES)}),
    (
        "by id",
        ApiKey.DELETE_TOPICS,
        6,
        {
            "topics": [{"name": None, "topicId": "{id other-{u}}"}],
            "timeoutMs": 10_000,
        },
    ),
    (
        "",
        ApiKey.DELETE_TOPICS,
        5,
        {"topicNames": ["mine-{u}", "missing-{u}"], "timeoutMs": 10_000},
    ),
]

# Of a broker's own, or of the moment: nothing that rights decide.
_LEFT_OUT = {
    "throttleTimeMs",
    "brokers",
    "brokerId",
    "clusterId",
    "controllerId",
    "host",
    "port",
    "nodeId",
    "rack",
    "leaderEpoch",
    "leaderId",
    "epoch",
    "timestamp",
    "logAppendTimeMs",
    "producerId",
    "producerEpoch",
    "activeProducers",
    "logDir",
    "totalBytes",
    "usableBytes",
    "partitionSize",
    "offsetLag",
    "endpointType",
    "replicaNodes",
    "isrNodes",
    "offlineReplicas",
    "transactionStartTimeMs",
    "transactionTimeoutMs",
    "sessionId",
    "records",
    "topicConfigErrorCode",
    "cursor",
    "nextCursor",
    "value",
    "eligibleLeaderReplicas",
    "lastKnownElr",
    "highWatermark",
    "lastStableOffset",
    "isFenced",
}


def is_same(found: Any, wanted: Any) -> bool:
    """Whether an answer is the one that is wanted, which may have ANY_TEXT in it."""
    if wanted == ANY_TEXT:
        return isinstance(found, str) and found != ""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return wanted.keys() == found.keys() and all(is_same(found[k], wanted[k]) for k in wanted)
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        return all(map(is_same, found, wanted))
    return bool(found == wanted)


def compared(value: Any, user: str, *, is_list: bool) -> Any:
    """What is compared of an answer in JSON; `is_list`: of lists only what has the user's name."""
    if isinstance(value, dict):
        found = {}
        for name, item in value.items():
            if name in _LEFT_OUT:
                continue
            if name == "errorMessage":  # of other errors this is not the place to compare texts
                if value.get("errorCode") in _REFUSALS:
                    found[name] = ANY_TEXT if str(item).startswith("Request Request(") else item
                continue
            if name == "topicId":
                found[name] = "none" if item in (None, _NO_ID) else "an id"
            elif name == "configs" and item:
                found[name] = sorted(str(each.get("name")) for each in item)
            else:
                found[name] = compared(item, user, is_list=is_list)
        return found
    if isinstance(value, list):
        items = [compared(each, user, is_list=is_list) for each in value]
        if is_list:
            items = [each for each in items if not isinstance(each, dict) or _is_of(each, user)]
        return sorted(items, key=lambda each: json.dumps(each, sort_keys=True))
    return value


ANY_TEXT = "…"
"""In Kafka's answers: a text that names objects of its own; kwire's answer has another one."""
_REFUSALS = (29, 30, 31, 53, 54, 61, 65)
_ON_THE_WAY = (3, 5)
"""UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE: of a topic that Kafka makes in a moment, kwire at once."""
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"


def _is_of(item: Json, user: str) -> bool:
    names = [str(item[k]) for k in ("name", "groupId", "transactionalId") if item.get(k)]
    return not names or any(n in (f"mine-{user}", f"other-{user}") for n in names)


def filled(value: Any, user: str, ids: Callable[[str], str]) -> Any:
    """A request's JSON with the user's names, topics' ids and records in place of what stands for them."""
    if isinstance(value, dict):
        return {name: filled(item, user, ids) for name, item in value.items()}
    if isinstance(value, list):
        return [filled(item, user, ids) for item in value]
    if not isinstance(value, str):
        return value
    text = value.replace("{u}", user)
    if text.startswith("{id "):
        return ids(text[4:-1])
    if text == "{transactional batch}":
        return batch(is_transactional=True, producer_id=4711, producer_epoch=0, base_sequence=0)
    return batch() if text == "{batch}" else text


def asked(wire: Wire, key: ApiKey, version: int, body: Json) -> Any:
    """The answer in JSON, or what Wire says in place of one."""
    answer = wire.ask(from_json(api.request_class(key), body), version)
    return answer if isinstance(answer, str) else to_json(answer, version)


def logged_in(port: int, user: str) -> Wire:
    wire = Wire(port, 30.0)
    assert shake(wire)[0] == 0
    assert token(wire, f"\0{user}\0{PASSWORD}".encode())[0] == 0
    return wire


def prepare(port: int) -> dict[str, str]:
    """Make topics, offsets, transactional ids and rules; return the topics' ids by name."""
    admin = logged_in(port, ADMIN)
    names = [f"{word}-{user}" for user in USERS for word in ("mine", "other")]
    topics = [{"name": n, "numPartitions": 1, "replicationFactor": 1} for n in names]
    made = asked(admin, ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeoutMs": 20_000})
    assert all(each["errorCode"] == 0 for each in made["topics"]), made
    ids = {each["name"]: each["topicId"] for each in made["topics"]}
    for name in names:
        eventually(lambda name=name: _has_offsets(admin, name), 30)
        eventually(lambda name=name: _has_transaction(admin, name), 30)
    creations = [
        {
            "resourceType": kind,
            "resourceName": name.replace("{u}", user),
            "resourcePatternType": LITERAL,
            "principal": f"User:{user}",
            "host": "*",
            "operation": operation,
            "permissionType": permission,
        }
        for user, rules in USERS.items()
        for kind, name, operation, permission in (*rules, (GROUP, f"last-{user}", DESCRIBE, ALLOW))
    ]
    done = asked(admin, ApiKey.CREATE_ACLS, 3, {"creations": creations})
    assert all(each["errorCode"] == 0 for each in done["results"]), done
    last = {"keyType": 0, "coordinatorKeys": [f"last-{list(USERS)[-1]}"]}
    wire = logged_in(port, list(USERS)[-1])
    eventually(
        lambda: asked(wire, ApiKey.FIND_COORDINATOR, 4, last)["coordinators"][0]["errorCode"] == 0
    )
    wire.close()
    admin.close()
    return ids


def _has_offsets(admin: Wire, name: str) -> bool:
    """Whether the group of this name has an offset of the topic of this name: commit it."""
    asked(admin, ApiKey.FIND_COORDINATOR, 4, {"keyType": 0, "coordinatorKeys": [name]})
    topics = [{"name": name, "partitions": [_COMMIT]}]
    done = asked(admin, ApiKey.OFFSET_COMMIT, 8, {"groupId": name, "topics": topics})
    return all(p["errorCode"] == 0 for t in done["topics"] for p in t["partitions"])


def _has_transaction(admin: Wire, name: str) -> bool:
    """Whether this transactional id is there: make it."""
    asked(admin, ApiKey.FIND_COORDINATOR, 4, {"keyType": 1, "coordinatorKeys": [name]})
    body = {"transactionalId": name, "transactionTimeoutMs": 60_000}
    return bool(asked(admin, ApiKey.INIT_PRODUCER_ID, 4, body)["errorCode"] == 0)


def dialogue(port: int) -> Iterator[tuple[str, Any]]:
    """What each user is answered: a label that is unique, and what is compared of the answer."""
    ids = prepare(port)
    for user in USERS:
        wire = logged_in(port, user)
        for word, key, version, body in REQUESTS:
            label = f"{user}: {key.name} {word}".replace("-{u}", "").rstrip()
            answer = asked(wire, key, version, filled(body, user, ids.__getitem__))
            if isinstance(answer, str):
                wire.close()
                wire = logged_in(port, user)
            else:
                answer = compared(answer, user, is_list=word == _LISTED)
            if word == _MADE:
                code = answer["topics"][0]["errorCode"]
                answer = "made" if code in (0, *_ON_THE_WAY) else code
            yield label, answer
        wire.close()

"""kafka-acls of the image: list, add, remove.

Corresponds to kafka.admin.AclCommand, in its lines, which are sorted here.
"""

from __future__ import annotations

import sys

from kwire.docker.client import Client, ToolError, check
from kwire.protocol.schemas.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from kwire.replication.core.acls import (
    ALL,
    ALLOW,
    ANY,
    CLUSTER,
    CLUSTER_NAME,
    CREATE,
    DELEGATION_TOKEN,
    DENY,
    DESCRIBE,
    GROUP,
    IDEMPOTENT_WRITE,
    LITERAL,
    MATCH,
    OPERATION_NAMES,
    PATTERN_NAMES,
    PERMISSION_NAMES,
    PREFIXED,
    READ,
    RESOURCE_NAMES,
    TOPIC,
    TRANSACTIONAL_ID,
    USER,
    WILDCARD,
    WRITE,
    Entry,
    Pattern,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from kwire.docker.options import Options

    Rules = dict[Pattern, list[Entry]]

_KINDS = {
    "topic": TOPIC,
    "group": GROUP,
    "transactional-id": TRANSACTIONAL_ID,
    "delegation-token": DELEGATION_TOKEN,
    "user-principal": USER,
}
_PATTERNS = {PATTERN_NAMES[each].lower(): each for each in (LITERAL, PREFIXED, ANY, MATCH)}
_OPERATIONS = {
    name.replace("_", "").lower(): code for code, name in OPERATION_NAMES.items() if code > ANY
}
_INFERRED = ("operation", "deny-principal", "deny-host")
_OF_CHANGES = (
    "producer",
    "consumer",
    "allow-host",
    "allow-principal",
    "deny-host",
    "deny-principal",
)
_CLUSTER = Pattern(CLUSTER, LITERAL, CLUSTER_NAME)


def acls(options: Options) -> None:
    """Run kafka-acls. ToolError."""
    ways = [name for name in ("add", "remove", "list") if name in options]
    if len(ways) != 1:
        raise ToolError("Command must include exactly one action: --list, --add, --remove.")
    _check(options, ways[0])
    {"add": _add, "remove": _remove, "list": _list}[ways[0]](options)


def _check(options: Options, way: str) -> None:
    """AclCommandOptions.checkArgs. ToolError."""
    for name, others in (
        ("list", _OF_CHANGES),
        ("producer", _INFERRED),
        ("consumer", _INFERRED),
    ):
        for other in others:
            if name in options and other in options:
                raise ToolError(f'Option "[{other}]" can\'t be used with option "[{name}]"')
    if "principal" in options and way != "list":
        raise ToolError("The --principal option is only available if --list is set")
    if "producer" in options and "topic" not in options:
        raise ToolError("With --producer you must specify a --topic")
    if "idempotent" in options and "producer" not in options:
        raise ToolError("The --idempotent option is only available if --producer is set")
    is_wrong = "topic" not in options or "group" not in options
    if "producer" not in options:
        is_wrong |= "cluster" in options or "transactional-id" in options
    if "consumer" in options and is_wrong:
        raise ToolError(
            "With --consumer you must specify a --topic and a --group and no --cluster or --transactional-id option"
            " should be specified."
        )


# --- what is to be done


def _list(options: Options) -> None:
    client = options.client()
    rules: Rules = {}
    wanted_ones: list[Pattern | None] = [*_patterns(options)]
    for wanted in wanted_ones or [None]:
        for pattern, entries in _described(client, wanted):
            known = rules.setdefault(pattern, [])
            known += [entry for entry in entries if entry not in known]
    principals = options.all("principal")
    if not principals:
        _show("Current", rules)
    for principal in principals:
        sys.stdout.write(f"ACLs for principal `{principal.strip()}`\n")
        hers = {
            pattern: [entry for entry in entries if entry.principal == principal.strip()]
            for pattern, entries in rules.items()
        }
        _show("Current", {pattern: entries for pattern, entries in hers.items() if entries})


def _described(client: Client, wanted: Pattern | None) -> Iterable[tuple[Pattern, list[Entry]]]:
    """The rules of a pattern; of all (None)."""
    kind, pattern_type, name = (ANY, ANY, None) if wanted is None else wanted
    request = DescribeAclsRequest(
        resource_type_filter=kind,
        resource_name_filter=name,
        pattern_type_filter=pattern_type,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    response = client.ask(request)
    check(response.error_code, response.error_message)
    for each in response.resources:
        pattern = Pattern(each.resource_type, each.pattern_type, each.resource_name)
        yield (
            pattern,
            [
                Entry(acl.principal, acl.host, acl.operation, acl.permission_type)
                for acl in each.acls
            ],
        )


def _add(options: Options) -> None:
    pattern_type = _pattern_type(options)
    if pattern_type not in (LITERAL, PREFIXED):
        raise ToolError(
            f"A '--resource-pattern-type' value of '{PATTERN_NAMES[pattern_type]}' is not valid when adding acls."
        )
    rules = _rules(options)
    if not all(rules.values()):
        raise ToolError(
            "You must specify one of: --allow-principal, --deny-principal when trying to add ACLs."
        )
    client = options.client()
    _show("Adding", rules)
    creations = [
        AclCreation(
            resource_type=pattern.resource_type,
            resource_name=pattern.name,
            resource_pattern_type=pattern.pattern_type,
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission,
        )
        for pattern, entries in rules.items()
        for entry in entries
    ]
    for result in client.ask(CreateAclsRequest(creations=creations)).results:
        check(result.error_code, result.error_message)


def _remove(options: Options) -> None:
    rules = _rules(options)
    client = options.client()
    for pattern, entries in rules.items():
        said = f"Are you sure you want to delete all ACLs for resource filter `{_text(pattern)}`? (y/n)"
        if entries:
            lines = "\n".join(f"\t{_entry_text(entry)}" for entry in entries)
            said = (
                f"Are you sure you want to remove ACLs: \n {lines} \n"
                f" from resource filter `{_text(pattern)}`? (y/n)"
            )
        if "force" not in options:
            sys.stdout.write(f"{said}\n")
            sys.stdout.flush()
            if sys.stdin.readline().strip().lower() != "y":
                continue
        wanted: list[Entry | None] = [*entries]
        request = DeleteAclsRequest(
            filters=[
                DeleteAclsFilter(
                    resource_type_filter=pattern.resource_type,
                    resource_name_filter=pattern.name,
                    pattern_type_filter=pattern.pattern_type,
                    principal_filter=None if entry is None else entry.principal,
                    host_filter=None if entry is None else entry.host,
                    operation=ANY if entry is None else entry.operation,
                    permission_type=ANY if entry is None else entry.permission,
                )
                for entry in wanted or [None]
            ]
        )
        for result in client.ask(request).filter_results:
            check(result.error_code, result.error_message)


# --- what the options say


def _pattern_type(options: Options) -> int:
    text = options.get("resource-pattern-type") or "literal"
    if text.lower() not in _PATTERNS:
        raise ToolError(f"Unknown resource-pattern-type: {text}")
    return _PATTERNS[text.lower()]


def _patterns(options: Options) -> list[Pattern]:
    """The resources that are named."""
    pattern_type = _pattern_type(options)
    found = [
        Pattern(kind, pattern_type, name.strip())
        for option, kind in _KINDS.items()
        for name in options.all(option)
    ]
    if pattern_type == LITERAL and ("cluster" in options or "idempotent" in options):
        found.append(_CLUSTER)
    return list(dict.fromkeys(found))


def _rules(options: Options) -> Rules:
    """The rules that the options name, by resource; no rules: all of the resource. ToolError."""
    patterns = _patterns(options)
    if not patterns:
        raise ToolError(
            "You must provide at least one resource: --topic <topic> or --cluster or --group <group> or"
            " --delegation-token <Delegation Token ID>"
        )
    rules: Rules = {}

    def add(kind: int, *operations: int) -> None:
        for pattern in patterns:
            if pattern.resource_type == kind:
                known = rules.setdefault(pattern, [])
                known += [each for each in _entries(options, operations) if each not in known]

    if "producer" in options:
        add(TOPIC, WRITE, DESCRIBE, CREATE)
        add(TRANSACTIONAL_ID, WRITE, DESCRIBE)
        if "idempotent" in options:
            add(CLUSTER, IDEMPOTENT_WRITE)
    if "consumer" in options:
        add(TOPIC, READ, DESCRIBE)
        add(GROUP, READ)
    if not rules:
        operations = [_operation(text) for text in options.all("operation")] or [ALL]
        rules = {pattern: _entries(options, operations) for pattern in patterns}
    return rules


def _entries(options: Options, operations: Iterable[int]) -> list[Entry]:
    found = []
    for kind, permission in (("allow", ALLOW), ("deny", DENY)):
        hosts = [host.strip() for host in options.all(f"{kind}-host")] or [WILDCARD]
        for principal in options.all(f"{kind}-principal"):
            if ":" not in principal:
                raise ToolError(
                    "expected a string in format principalType:principalName but got " + principal
                )
            found += [
                Entry(principal.strip(), host, operation, permission)
                for operation in operations
                for host in hosts
            ]
    return found


def _operation(text: str) -> int:
    code = _OPERATIONS.get(text.strip().replace("_", "").lower())
    if code is None:
        names = ", ".join(_camel(name) for code, name in OPERATION_NAMES.items() if code > ANY)
        raise ToolError(f"--operation: expected one of {names}, not {text}")
    return code


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


# --- lines


def _show(what: str, rules: Rules) -> None:
    for pattern, entries in sorted(rules.items()):
        lines = "\n".join(f"\t{_entry_text(entry)}" for entry in sorted(entries))
        sys.stdout.write(f"{what} ACLs for resource `{_text(pattern)}`: \n {lines} \n\n")


def _text(pattern: Pattern) -> str:
    return (
        f"ResourcePattern(resourceType={RESOURCE_NAMES[pattern.resource_type]}, name={pattern.name},"
        f" patternType={PATTERN_NAMES[pattern.pattern_type]})"
    )


def _entry_text(entry: Entry) -> str:
    return (
        f"(principal={entry.principal}, host={entry.host}, operation={OPERATION_NAMES[entry.operation]},"
        f" permissionType={PERMISSION_NAMES[entry.permission]})"
    )

"""`Cluster.reset`: back to a new cluster, at the same addresses.

Clients that are connected now are those of an earlier test. The brokers keep them from everything
that comes later (`kwire.leftovers`), first of all from making again what is being deleted. Where that
cannot be (a cluster that was started elsewhere), what was made again in between is deleted again.
Topics are told apart by their ids: one that has been made again under its old name is another one.
"""

from __future__ import annotations

from contextlib import suppress

from kwire import errors
from kwire.backends.options import kwire_errors
from kwire.client.admin import REQUEST_SECONDS
from kwire.client.connection import check
from kwire.launch.spec import DOCKER
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.replication.core.types import AUTHORIZER_KEY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from kwire.aio import Cluster
    from kwire.backends.base import Backend
    from kwire.client.admin import Admin, Steps
    from kwire.protocol.schemas.sasl import ScramCredentialUpsertion

_TRIES = 5
"""How often topics are deleted that clients make again."""


async def reset(cluster: Cluster, backend: Backend, *, keep_clients: bool) -> list[str]:
    """Carry out a reset. Returns topics that clients have made again and again."""
    if not cluster.external:
        nodes = (*cluster.controllers, *cluster.brokers)
        for node in nodes:
            await node.resume()
        await cluster.network.undo()  # a paused node could not be told
        await cluster.faults.reset()
        await cluster.clock.restore()
        for node in nodes:
            if not node.running:
                await node.start()
        await cluster.inside.restore()
    admin = backend.admin
    if not cluster.external and cluster.inside.spec.node.values.get(AUTHORIZER_KEY):
        with kwire_errors():
            await admin.run(_delete_rules(admin))
    if not cluster.external:
        with kwire_errors():
            await _restore_security(admin, cluster.inside.spec.node.values)
    for _ in range(_TRIES):
        # Each time: some connect again only when a broker that was killed is back.
        if not (cluster.external or keep_clients):
            await _set_clients_aside(cluster)
        names = list(await backend.topics())
        if not names:
            return []
        with kwire_errors():
            await admin.run(admin.delete_these_topics(names, REQUEST_SECONDS))
    return list(await backend.topics())


def _delete_rules(admin: Admin) -> Steps[None]:
    """Delete all access rules."""
    from kwire.protocol.schemas.acls import DeleteAclsFilter, DeleteAclsRequest
    from kwire.replication.core.acls import ANY

    every = DeleteAclsFilter(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    request = DeleteAclsRequest(filters=[every])
    (result,) = (yield from admin.ask_controller(request, REQUEST_SECONDS)).filter_results
    check(result.error_code, result.error_message)


async def _restore_security(admin: Any, values: Mapping[str, str]) -> None:
    """Delete client quotas and restore users."""
    for steps in (_delete_quotas(admin), _restore_users(admin, values)):
        try:
            await admin.run(steps)
        except KafkaError as error:
            # An older image, or a release that is imitated: nobody can have changed them.
            if error.code != ErrorCode.UNSUPPORTED_VERSION:
                raise


def _delete_quotas(admin: Admin) -> Steps[None]:
    """Delete all client quotas."""
    from kwire.protocol.schemas.quotas import (
        AlterClientQuotasRequest,
        AlterClientQuotasRequestEntryData,
        DescribeClientQuotasRequest,
        OpData,
    )

    found = yield from admin.ask_any(DescribeClientQuotasRequest())
    check(found.error_code, found.error_message)
    if not found.entries:
        return
    entries = [
        AlterClientQuotasRequestEntryData(
            entity=each.entity, ops=[OpData(key=value.key, remove=True) for value in each.values]
        )
        for each in found.entries
    ]
    request = AlterClientQuotasRequest(entries=entries)
    for result in (yield from admin.ask_controller(request, REQUEST_SECONDS)).entries:
        check(result.error_code, result.error_message)


def _restore_users(admin: Admin, values: Mapping[str, str]) -> Steps[None]:
    """Delete the SCRAM credentials that were added, and give those users theirs again that had them at the start."""
    from kwire.protocol.schemas.sasl import (
        AlterUserScramCredentialsRequest,
        DescribeUserScramCredentialsRequest,
        ScramCredentialDeletion,
    )
    from kwire.replication.config.broker_config import BrokerConfig
    from kwire.replication.config.users import given_scram_users
    from kwire.replication.core.scram_credentials import NUMBERS

    given = given_scram_users(BrokerConfig(values))
    found = yield from admin.ask_any(DescribeUserScramCredentialsRequest(users=None))
    check(found.error_code, found.error_message)
    known = {
        (each.user, info.mechanism) for each in found.results for info in each.credential_infos
    }
    for mechanism, number in NUMBERS.items():  # a request changes a user once
        secrets = {name: secret for name, each, secret in given if each == mechanism}
        deletions = [
            ScramCredentialDeletion(name=name, mechanism=number)
            for name, each in sorted(known)
            if each == number and name not in secrets
        ]
        upsertions = [_credential(name, mechanism, secret) for name, secret in secrets.items()]
        if deletions or upsertions:
            request = AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)
            for result in (yield from admin.ask_controller(request, REQUEST_SECONDS)).results:
                check(result.error_code, result.error_message)


def _credential(name: str, mechanism: str, secret: str) -> ScramCredentialUpsertion:
    from random import SystemRandom

    from kwire.protocol.schemas.sasl import ScramCredentialUpsertion
    from kwire.replication.core.scram_credentials import (
        MIN_ITERATIONS,
        NUMBERS,
        new_salt,
        salted_password,
    )

    salt = new_salt(SystemRandom())
    return ScramCredentialUpsertion(
        name=name,
        mechanism=NUMBERS[mechanism],
        iterations=MIN_ITERATIONS,
        salt=salt,
        salted_password=salted_password(mechanism, secret, salt, MIN_ITERATIONS),
    )


async def _set_clients_aside(cluster: Cluster) -> None:
    for handle in cluster.inside.handles.values():
        try:
            with kwire_errors():
                await handle.ask("POST", "/v1/leftovers")
        except errors.RequestError:
            if cluster.inside.spec.isolation != DOCKER:
                raise
            return  # an older image, which has no such request


async def leftovers(cluster: Cluster, made_again: Iterable[str]) -> list[str]:
    """Sentences on what earlier users have left behind. `made_again`: the result of `reset`."""
    clients: list[dict[str, Any]] = []
    if cluster.started and not cluster.external:
        for handle in cluster.inside.handles.values():
            if handle.running and not handle.paused:
                with suppress(errors.KwireError), kwire_errors():
                    clients += (await handle.ask("GET", "/v1/leftovers"))["clients"]
    found = [count_clients(clients)] if clients else []
    if made_again:
        names = ", ".join(made_again)
        found.append(f"clients of an earlier test keep making topics that were deleted ({names})")
    return found


def count_clients(clients: list[dict[str, Any]]) -> str:
    """A line for people: "2 clients of an earlier test are still connected (…)"."""
    several = len(clients) != 1
    shown = []
    for each in clients:
        text = f"{each['client_id'] or 'unknown'} {each['address']}"
        shown.append(f"{text}, group {each['group']}" if each["group"] else text)
    return (
        f"{len(clients)} client{'s' if several else ''} of an earlier test {'are' if several else 'is'}"
        f" still connected ({'; '.join(shown)})"
    )

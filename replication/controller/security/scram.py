"""SCRAM credentials of users: AlterUserScramCredentials, and those that are given at the start.

Answers to org.apache.kafka.controller.ScramControlManager. A credential is a record
`scram/<mechanism>/<user>` with the fields of Kafka's UserScramCredentialRecord; brokers get a user's
credentials like a dynamic configuration, by mechanism, in the text that Kafka kept in ZooKeeper.
"""

from __future__ import annotations

from base64 import b64decode, b64encode

from kwire.protocol.errors import ErrorCode
from kwire.replication.config.users import given_scram_users
from kwire.replication.core.metadata import SCRAM_RESOURCE
from kwire.replication.core.scram_credentials import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    NAMES,
    NUMBERS,
    Credential,
    new_salt,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from random import Random

    from kwire.protocol.schemas.sasl import (
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponse,
        ScramCredentialUpsertion,
    )
    from kwire.replication.controller.batch import Orders
    from kwire.replication.controller.changes import ChangeLog
    from kwire.replication.controller.context import ControllerContext
    from kwire.replication.controller.state import ControllerState, Record

    Problem = tuple[ErrorCode, str]

_TWICE = (
    ErrorCode.DUPLICATE_RESOURCE,
    "A user credential cannot be altered twice in the same request",
)


class ScramControl:
    """Handles AlterUserScramCredentials."""

    def __init__(self, context: ControllerContext, changelog: ChangeLog, orders: Orders) -> None:
        self._context = context
        self._changelog = changelog
        self._orders = orders

    def alter(
        self, request: AlterUserScramCredentialsRequest, version: int
    ) -> AlterUserScramCredentialsResponse:
        """Handle AlterUserScramCredentials v0: all credentials that are allowed, in one journal write."""
        from kwire.protocol.schemas.sasl import (
            AlterUserScramCredentialsResponse,
            AlterUserScramCredentialsResult,
        )

        problems: dict[str, Problem | None] = {}
        changes: dict[str, Record] = {}
        for deletion in request.deletions:
            _add(problems, deletion.name, self._deletion_problem(deletion.name, deletion.mechanism))
            changes[deletion.name] = scram_record(deletion.name, deletion.mechanism, None)
        for upsertion in request.upsertions:
            name, problem = upsertion.name, _upsertion_problem(upsertion)
            _add(problems, name, problem)
            if problem is None:
                credential = Credential.of_salted(
                    NAMES[upsertion.mechanism],
                    upsertion.salt,
                    upsertion.salted_password,
                    upsertion.iterations,
                )
                changes[name] = scram_record(name, upsertion.mechanism, credential)
        self._commit({name: changes[name] for name, why in problems.items() if why is None})
        return AlterUserScramCredentialsResponse(
            results=[
                AlterUserScramCredentialsResult(
                    user=name,
                    error_code=int(ErrorCode.NONE if why is None else why[0]),
                    error_message=None if why is None else why[1],
                )
                for name, why in problems.items()
            ]
        )

    def start(self, random: Random) -> None:
        """Let the brokers know all credentials; give the configuration's users theirs, unless they have them."""
        state = self._context.state
        keys = [key.split("/", 2) for key in state.security if key.startswith("scram/")]
        for name in dict.fromkeys(name for _, _, name in keys):
            self._send(name)
        for name, mechanism, secret in given_scram_users(self._context.config):
            known = credential_of(state, name, mechanism)
            if known is None or not known.is_of(mechanism, secret):
                made = Credential.of_password(mechanism, secret, new_salt(random))
                self._commit({name: scram_record(name, NUMBERS[mechanism], made)})

    def _commit(self, changes: dict[str, Record]) -> None:
        if changes:
            self._changelog.commit(list(changes.values()))
            for name in changes:
                self._send(name)

    def texts_of(self, name: str) -> dict[str, str]:
        """The credentials of a user as texts, by mechanism."""
        found = credentials_of(self._context.state, name)
        return {mechanism: each.to_text() for mechanism, each in found.items()}

    def _send(self, name: str) -> None:
        self._orders.config_changed(SCRAM_RESOURCE, name, self.texts_of(name))

    def _deletion_problem(self, name: str, mechanism: int) -> Problem | None:
        problem = _user_problem(name, mechanism)
        if problem is None and scram_key(name, mechanism) not in self._context.state.security:
            text = "Attempt to delete a user credential that does not exist"
            return ErrorCode.RESOURCE_NOT_FOUND, text
        return problem


def credentials_of(state: ControllerState, name: str) -> dict[str, Credential]:
    """The credentials of a user, by mechanism."""
    found = ((each, credential_of(state, name, each)) for each in NUMBERS)
    return {mechanism: each for mechanism, each in found if each is not None}


def credential_of(state: ControllerState, name: str, mechanism: str) -> Credential | None:
    """A credential as its record has it."""
    value = state.security.get(scram_key(name, NUMBERS[mechanism]))
    if value is None:
        return None
    salt, stored, server = (b64decode(value[each]) for each in ("salt", "storedKey", "serverKey"))
    return Credential(salt, stored, server, value["iterations"])


def scram_key(name: str, mechanism: int) -> str:
    return f"scram/{mechanism}/{name}"


def scram_record(name: str, mechanism: int, credential: Credential | None) -> Record:
    """The record of a credential; None: it is deleted."""
    key = scram_key(name, mechanism)
    if credential is None:
        return key, None
    parts = {
        "salt": credential.salt,
        "storedKey": credential.stored_key,
        "serverKey": credential.server_key,
    }
    value = {field: b64encode(part).decode() for field, part in parts.items()}
    return key, {**value, "iterations": credential.iterations}


def _add(problems: dict[str, Problem | None], name: str, problem: Problem | None) -> None:
    """Note what is wrong with a change; one that was fine is wrong once there is a second one."""
    if name not in problems:
        problems[name] = problem
    elif problems[name] is None:
        problems[name] = _TWICE


def _user_problem(name: str, mechanism: int) -> Problem | None:
    if not name:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    if mechanism not in NAMES:
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    return None


def _upsertion_problem(upsertion: ScramCredentialUpsertion) -> Problem | None:
    problem = _user_problem(upsertion.name, upsertion.mechanism)
    if problem is None and upsertion.iterations < MIN_ITERATIONS:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"
    if problem is None and upsertion.iterations > MAX_ITERATIONS:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"
    return problem

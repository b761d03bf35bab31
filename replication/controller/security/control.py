"""The parts of a controller that have to do with users, made when they are first needed."""

from __future__ import annotations

from kwire.replication.core.types import TOKEN_KEYS, USER_KEYS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from kwire.replication.controller.batch import Orders
    from kwire.replication.controller.changes import ChangeLog
    from kwire.replication.controller.context import ControllerContext
    from kwire.replication.controller.security.acls import AclControl
    from kwire.replication.controller.security.scram import ScramControl
    from kwire.replication.controller.security.tokens import TokenControl


class SecurityControl:
    """Users, tokens and access rules: their requests, and what the brokers are to know of them."""

    def __init__(
        self,
        context: ControllerContext,
        changelog: ChangeLog,
        orders: Orders,
        random: Random,
        step_or_resign: Callable[[Callable[[], None]], None],
    ) -> None:
        """`random`: of salts and ids."""
        self._parts = context, changelog, orders
        self._context = context
        self._random = random
        self._step_or_resign = step_or_resign
        self._tokens: TokenControl | None = None
        self._scram: ScramControl | None = None
        self._acls: AclControl | None = None

    @property
    def scram(self) -> ScramControl:
        if self._scram is None:
            from kwire.replication.controller.security.scram import ScramControl

            self._scram = ScramControl(*self._parts)
        return self._scram

    @property
    def acls(self) -> AclControl:
        if self._acls is None:
            from kwire.replication.controller.security.acls import AclControl

            self._acls = AclControl(*self._parts)
        return self._acls

    @property
    def tokens(self) -> TokenControl:
        if self._tokens is None:
            from kwire.replication.controller.security.tokens import TokenControl

            self._tokens = TokenControl(*self._parts, self._random, self._step_or_resign)
        return self._tokens

    def start(self) -> None:
        """Let the brokers know what the journal has."""
        kinds = {key.partition("/")[0] for key in self._context.state.security}
        if "acl" in kinds:
            self.acls.start()
        given = self._context.config.static.keys()
        if "scram" in kinds or not given.isdisjoint(USER_KEYS):
            self.scram.start(self._random)
        if "token" in kinds or not given.isdisjoint(TOKEN_KEYS):
            self.tokens.start()

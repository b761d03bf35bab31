"""The parts of a controller that have to do with users, made when they are first needed."""

from __future__ import annotations

from kwire.replication.core.types import USERS_KEY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from random import Random

    from kwire.replication.controller.batch import Orders
    from kwire.replication.controller.changes import ChangeLog
    from kwire.replication.controller.context import ControllerContext
    from kwire.replication.controller.security.acls import AclControl
    from kwire.replication.controller.security.scram import ScramControl


class SecurityControl:
    """Users and access rules: their requests, and what the brokers are to know of them."""

    def __init__(self, context: ControllerContext, changelog: ChangeLog, orders: Orders) -> None:
        self._parts = context, changelog, orders
        self._context = context
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

    def start(self, random: Random) -> None:
        """Let the brokers know what the journal has. `random`: of salts."""
        kinds = {key.partition("/")[0] for key in self._context.state.security}
        if "acl" in kinds:
            self.acls.start()
        if "scram" in kinds or USERS_KEY in self._context.config.static:
            self.scram.start(random)

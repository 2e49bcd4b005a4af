"""For whom a function acts."""

from dataclasses import dataclass
from uuid import UUID

from forgeflow.errors import PermissionDenied


@dataclass(frozen=True, slots=True)
class AuthContext:
    """A user and roles; nobody, without any, unless a function says otherwise by `ctx.with_auth`."""

    user_id: UUID | None = None
    roles: frozenset[str] = frozenset()

    @property
    def is_authenticated(self) -> bool:
        return self.user_id is not None

    def has_role(self, role: str) -> bool:
        return role in self.roles

    def require_role(self, role: str) -> None:
        """Raises PermissionDenied without it."""
        if not self.has_role(role):
            raise PermissionDenied(role)


NOBODY = AuthContext()

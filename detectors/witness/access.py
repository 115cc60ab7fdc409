"""Who may ask what: bearer tokens and roles of the witness's HTTP interface."""

import hmac
from enum import StrEnum

from outrider.config.security import SecuritySection
from outrider.errors import InputError


class Role(StrEnum):
    """`agent` sends signals and fetches orders; `viewer` looks; `operator` looks and decides. `anyone` needs no token."""

    ANYONE = "anyone"
    AGENT = "agent"
    VIEWER = "viewer"
    OPERATOR = "operator"


class Access:
    """The tokens of one site. A role without tokens cannot be had."""

    def __init__(self, tokens: dict[Role, tuple[str, ...]]) -> None:
        self._tokens = [(token.encode(), role) for role, some in tokens.items() for token in some]

    @classmethod
    def from_section(cls, section: SecuritySection) -> "Access":
        """Reads the files that are configured; that of the agents must be.

        Raises:
            InputError: a file cannot be used.
        """
        tokens = {Role.AGENT: section.agent_tokens()}
        if section.operator_token_file:
            tokens[Role.OPERATOR] = section.operator_tokens()
        if section.viewer_token_file:
            tokens[Role.VIEWER] = section.viewer_tokens()
        return cls(tokens)

    def roles(self, header: str | None) -> set[Role]:
        """Roles that an `Authorization` header proves; every token is compared, in constant time."""
        roles = {Role.ANYONE}
        kind, _, given = (header or "").partition(" ")
        if kind.lower() != "bearer":
            return roles
        said = given.strip().encode()
        for token, role in self._tokens:
            if hmac.compare_digest(token, said):
                roles.add(role)
        if Role.OPERATOR in roles:
            roles.add(Role.VIEWER)
        return roles


def token_for(section: SecuritySection, role: Role) -> str:
    """The token with which a command of this machine asks.

    Raises:
        InputError: it is not configured or not readable here.
    """
    if role is Role.OPERATOR:
        return section.operator_tokens()[0]
    try:
        return section.viewer_tokens()[0]
    except InputError:
        return section.operator_tokens()[0]

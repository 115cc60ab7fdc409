"""Raw log text is redacted by rule before it leaves: the site's rules after a few that always hold."""

import json
import re
from typing import Any, Final

from outrider.config.alerts import Redaction

_NAMES: Final = r"(?:password|passwd|secret|token|api[_-]?key|access[_-]?key)"
#: What never leaves, whatever the site says: values that name themselves a secret (`name=value`, JSON, options of a command),
#: bearer tokens, credentials in addresses, AWS access key ids. The name stays, the value goes. Nothing that repeats stands before
#: what must match: each look is linear in the text, which others write.
ALWAYS: Final = (
    (rf"(?i)({_NAMES}\\?[\"']?\s*[=:]\s*)(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|\S+)", r"\1[redacted]"),
    (rf"(?i)(--(?:[\w-]{{0,40}}[_-])?{_NAMES}\s+)([^\s-]\S*)", r"\1[redacted]"),
    (r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}", r"\1 [redacted]"),
    (r"(?i)(\b[a-z][a-z0-9+.-]{0,30}://)[^\s/:@]+:[^\s/@]+@", r"\1[redacted]@"),
    (r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b", "[redacted]"),
)
#: Longest piece of text that is looked at; the rest is cut. A log line of 10 MB must not stop a page.
TEXT_MAX: Final = 4000


#: Fields of a webhook's body that may hold raw text; the others are names and numbers that a scheduler needs as they are.
TEXT_FIELDS: Final = ("explanation", "reason")


class Redactor:
    """Applies the rules to texts, and to every text inside a structure."""

    def __init__(self, rules: tuple[Redaction, ...] = ()) -> None:
        self._rules = [(re.compile(pattern), to) for pattern, to in ALWAYS]
        self._rules += [(re.compile(rule.pattern), rule.to) for rule in rules]

    def text(self, text: str) -> str:
        """`text` without what must not leave, cut to `TEXT_MAX`."""
        if len(text) > TEXT_MAX:
            text = text[:TEXT_MAX] + f".. ({len(text) - TEXT_MAX} characters more)"
        for pattern, to in self._rules:
            text = pattern.sub(to, text)
        return text

    def body(self, body: str) -> str:
        """A webhook's body with its free texts redacted; the same body always gives the same."""
        try:
            message = json.loads(body)
            data = message["data"]
        except (ValueError, KeyError, TypeError):
            return body
        clean = {name: self.text(data[name]) for name in TEXT_FIELDS if isinstance(data.get(name), str)}
        if all(data[name] == value for name, value in clean.items()):
            return body
        return json.dumps({**message, "data": {**data, **clean}}, separators=(",", ":"))

    def within(self, value: Any) -> Any:
        """The same structure with every text in it redacted (keys are ours and stay)."""
        match value:
            case str():
                return self.text(value)
            case dict():
                return {key: self.within(item) for key, item in value.items()}
            case list() | tuple():
                return [self.within(item) for item in value]
            case _:
                return value

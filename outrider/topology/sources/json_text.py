"""JSON from other programs, as a reader of topology gets it."""

import json
from typing import Any

from outrider.errors import InputError


def read_json(text: str, file: str) -> Any:
    """What `text` says. Raises InputError with the file, and the line where there is one."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"is not JSON: {error.msg}", file=file, line=error.lineno) from None
    except (RecursionError, ValueError):
        raise InputError("is not JSON: nested too deep, or with a number that is none", file=file) from None

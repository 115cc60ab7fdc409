"""Errors that a person caused or must mend: each is one clear line, and the command ends with exit status 2."""


class OutriderError(Exception):
    """Base of all expected errors. `str(error)` is one line that says what is wrong and where."""


class InputError(OutriderError):
    """A file or value that cannot be used.

    Args:
        message: what is wrong, without the place.
        file: path of the file, if there is one.
        line: line number, 1-based, if it is known.
        key: dotted key inside the file, if there is one.
    """

    def __init__(self, message: str, *, file: str | None = None, line: int | None = None, key: str | None = None) -> None:
        place = file or ""
        if line is not None:
            place += f":{line}"
        if key is not None:
            place += f": {key}" if place else key
        super().__init__(f"{place}: {message}" if place else message)
        self.file, self.line, self.key = file, line, key


class MissingExtraError(OutriderError):
    """A command needs a package of an extra that is not installed."""

    def __init__(self, what: str, extra: str, package: str) -> None:
        super().__init__(f"{what} needs the package {package}: install outrider[{extra}]")

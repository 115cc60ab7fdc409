"""`outrider`: a shell that finds each room's commands through the entry-point group `outrider.commands`.

A command's module is imported only when the command is used or listed with its help, so that `outrider inspect` does not pay for
what it does not need. Every expected error is one line on standard error and exit status 2.
"""

import sys
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from outrider import __version__
from outrider.errors import OutriderError

try:
    import click
except ImportError:  # the SDK alone is installed: say so in one line
    sys.exit("outrider: the command line needs the package click: install outrider[cli]")


#: Characters of a sentence of help; longer ones end in dots, and none is.
SENTENCE_MAX: Final = 200
#: Commands by what people do with them, in the order of the help. A third party's stand under the last heading.
GROUPS: Final = {
    "Watch": ("top", "status", "incidents", "audit"),
    "Look into it": ("inspect", "explain", "explain-incident", "journal", "export", "topology", "outbox"),
    "Act": ("ack", "approve", "false-alarm", "release", "maintenance", "pause", "resume"),
    "Try it beforehand, or afterwards": ("replay", "simulate", "plan", "would-have", "drill"),
    "Set up": ("doctor", "test", "rules", "dashboards", "targets", "runbooks"),
    "Run": ("up", "agent", "witness", "deliver"),
}
OTHERS: Final = "Others"


class Shell(click.Group):
    """A click group whose commands are entry points."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, grouped; the first sentence of each one's help, whole."""
        left = set(self._points())
        for heading, names in [*GROUPS.items(), (OTHERS, tuple(sorted(left.difference(*GROUPS.values()))))]:
            rows = [(name, self._sentence(ctx, name)) for name in names if name in left]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def _sentence(self, ctx: click.Context, name: str) -> str:
        try:
            command = self.get_command(ctx, name)
        except OutriderError as error:  # a command whose extra is not installed must not take the help away
            return f"({str(error).partition(': ')[2]})"
        return command.get_short_help_str(SENTENCE_MAX) if command is not None else ""

    def _points(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group="outrider.commands")}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self._points())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        point = self._points().get(cmd_name)
        if point is None:
            return None
        try:
            command = point.load()
        except ModuleNotFoundError as error:
            raise OutriderError(
                f"{cmd_name}: needs the package {error.name}: install the extra that README.md names for this command"
            ) from None
        if not isinstance(command, click.Command):
            raise OutriderError(f"{cmd_name}: entry point {point.value} is not a command")
        return command


@click.group(cls=Shell, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="outrider")
def outrider() -> None:
    """Watches GPU training clusters, confirms real faults by quorum, and brings jobs back."""


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line and exits: 0 fine, 1 found what it looks for, 2 bad usage or input."""
    try:
        status = outrider.main(arguments, prog_name="outrider", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        status = 0
    except click.Abort:
        click.echo("outrider: interrupted", err=True)
        status = 130
    except click.ClickException as error:
        click.echo(f"outrider: {error.format_message()}", err=True)
        status = 2
    except OutriderError as error:
        for line in str(error).splitlines():
            click.echo(f"outrider: {line}", err=True)
        status = 2
    except BrokenPipeError:
        sys.stderr.close()
        status = 141
    sys.exit(status if isinstance(status, int) else 0)


if __name__ == "__main__":
    main()

"""Writes the three files."""

from pathlib import Path

from alerts.rules.alertmanager import configuration
from alerts.rules.prometheus import rules
from alerts.rules.unit_tests import unit_tests
from alerts.rules.yaml import dump
from outrider import __version__
from outrider.config.alerts import AlertsConfig
from outrider.config.site import SiteSection, read_config
from outrider.errors import InputError

RULES, TESTS, ALERTMANAGER = "outrider.rules.yml", "outrider.rules.test.yml", "alertmanager.yml"


def write(directory: str, config: Path | None) -> list[str]:
    """Makes the files in `directory` (made if it is not there). Returns their paths.

    Raises:
        InputError: they cannot be written.
    """
    read = read_config(config)
    settings, site = read.get(AlertsConfig), read.get(SiteSection).name
    head = f"Made by `outrider rules` {__version__} from the catalogue of fault classes. Change the configuration, not this file."
    texts = {
        RULES: dump(rules(site, settings), f"{head}\nCheck: promtool check rules {RULES}"),
        TESTS: dump(unit_tests(RULES, site, settings), f"{head}\nRun: promtool test rules {TESTS}"),
        ALERTMANAGER: dump(configuration(settings), f"{head}\nCheck: amtool check-config {ALERTMANAGER}"),
    }
    folder = Path(directory)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=str(folder)) from None
    return [str(folder / name) for name in texts]

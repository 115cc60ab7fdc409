"""A real browser for the console's tests, where there is one."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from console_stage import Stage, fleet_of


def open_chromium() -> Any:
    """A headless Chromium whose console's messages are kept; skips the test where there is none."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("chromium or its driver is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--lang=en", "--window-size=1280,900",
        "--hide-scrollbars",
    ):  # fmt: skip
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    browser.set_script_timeout(30)
    return browser


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """One browser for the session."""
    browser = open_chromium()
    yield browser
    browser.quit()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """One small site of two witnesses, all nodes heard."""
    with Stage(tmp_path, fleet_of(40), witnesses=2) as made:
        made.beat_all()
        yield made

"""What a person does with the page: log in, look, press; and what a test wants to know of it."""

import base64
from pathlib import Path
from typing import Any

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

#: Pixels of a picture: a long list shows nothing new further down.
HEIGHT_MAX = 3000
PICTURES = Path(__file__).resolve().parents[2] / "out" / "screenshots"


class Person:
    """Drives one browser at one address."""

    def __init__(self, browser: Any, url: str) -> None:
        self.browser, self.url = browser, url

    def log_in(self, token: str, name: str = "ada", at: str = "#/") -> "Person":
        """Opens the page anew as somebody who was never here."""
        self.browser.get(f"{self.url}/console/")
        self.browser.execute_script("sessionStorage.clear(); localStorage.clear()")
        self.browser.get("about:blank")
        self.browser.get(f"{self.url}/console/{at}")
        self.browser.get_log("browser")
        self.find("#token").send_keys(token)
        self.find("#name").send_keys(name)
        self.find("#enter").click()
        return self

    def go(self, at: str) -> "Person":
        self.browser.execute_script("location.hash = arguments[0]", at)
        return self

    def find(self, selector: str, seconds: float = 15.0) -> Any:
        return WebDriverWait(self.browser, seconds, 0.05).until(lambda one: one.find_element(By.CSS_SELECTOR, selector))

    def count(self, selector: str) -> int:
        return len(self.browser.find_elements(By.CSS_SELECTOR, selector))

    def sees(self, text: str, seconds: float = 15.0) -> bool:
        """Waits until a text stands on the page."""
        return bool(WebDriverWait(self.browser, seconds, 0.05, ignored_exceptions=[Exception]).until(lambda _: text in self.text()))

    def text(self) -> str:
        return str(self.browser.execute_script("return document.body.innerText"))

    def press(self, selector: str, why: str | None = None) -> None:
        """Presses a button; with `why` also the one of its dialogue, after giving the reason."""
        self.find(f"#do-{selector}").click()
        if why is not None:
            self.find(f"#why-{selector}").send_keys(why)
            self.find(f"#send-{selector}").click()

    def keys(self, *keys: str) -> None:
        self.find("body").send_keys(*keys)

    def picture(self, name: str) -> None:
        """Keeps a picture of the whole page as it is; there are as many as there are names in the tests."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        ask = "return [document.documentElement.clientWidth, Math.min(document.documentElement.scrollHeight, arguments[0])]"
        width, height = self.browser.execute_script(ask, HEIGHT_MAX)
        whole = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        taken = self.browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": whole})
        (PICTURES / f"{name}.png").write_bytes(base64.b64decode(taken["data"]))

    def size(self, width: int, height: int) -> None:
        """Sets the page's size as a telephone of that size would have it."""
        self.browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 700}
        )

    def complaints(self) -> list[str]:
        """Errors that the browser's console has shown since the last look; a broken connection is no fault of the page."""
        return [
            entry["message"] for entry in self.browser.get_log("browser")
            if entry["level"] == "SEVERE" and "net::ERR_" not in entry["message"] and "favicon" not in entry["message"]
        ]  # fmt: skip


__all__ = ["PICTURES", "Keys", "Person"]

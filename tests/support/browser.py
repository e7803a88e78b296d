"""A real browser for tests: opens files and returns console messages and network requests."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
needs_chromium = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium is not on the PATH")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Browser:
    """A browser window."""

    def __init__(self, driver: Any) -> None:
        from selenium.webdriver.support.wait import WebDriverWait

        self.driver, self.wait = driver, WebDriverWait(driver, 60)

    def open(self, page: Path) -> None:
        """Opens a file and clears the logs."""
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get(page.absolute().as_uri())
        # At a high load a script may run before the end of the page is read.
        self.wait.until(lambda _: self.run("return document.readyState") == "complete")

    def run(self, script: str, *args: object) -> Any:
        """The return value of a script."""
        return self.driver.execute_script(script, *args)

    def errors(self) -> list[str]:
        """Console messages since the page was opened."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Requested URLs since then, without the page itself and data URLs."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [each["params"] for each in events if each["method"] == "Network.requestWillBeSent"]
        urls = [each["request"]["url"] for each in sent if each["type"] != "Document"]
        return [url for url in urls if not url.startswith("data:")]

    def set_view(self, width: int, *, dark: bool = False, height: int = 900) -> None:
        """Sets the window size and the preferred color scheme."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def cells(self, name: str) -> list[list[str]]:
        """The cells of a table, names in full: its heading in SQL, then its visible rows."""
        script = """
        for (const table of document.querySelectorAll('table'))
          if (table.dataset.name === arguments[0])
            return [...table.rows].filter(row => !row.hidden)
              .map(row => [...row.cells]
                .map(cell => cell.dataset.sql ?? cell.dataset.full ?? cell.textContent));
        return [];
        """
        cells: list[list[str]] = self.run(script, name)
        return cells


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser with its profile in the folder."""
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = CHROMIUM or ""
    for flag in (*_FLAGS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield Browser(driver)
    finally:
        driver.quit()

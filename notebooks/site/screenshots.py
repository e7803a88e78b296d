"""Takes the pictures of the documentation in Chromium: pages of a simulated job with a slow rank.

pip install -e '.[docs]'
python notebooks/site/screenshots.py FOLDER
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

TW = (sys.executable, "-m", "tracewarehouse")
JOB = ("--ranks=64", "--steps=5", "--layers=2", "--network-gb-per-s=400", "--seed=2")


def main() -> None:
    """Takes them into the folder."""
    take(Path(sys.argv[1]))


def take(folder: Path) -> None:
    """Writes `report.png`, `timeline.png`, `diff.png` and `live_view.png`."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--window-size=1280,900", "--hide-scrollbars"):
        options.add_argument(flag)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, webdriver.Chrome(options=options) as window:
        where = Path(scratch)
        _tw(where, "simulate", "good", *JOB)
        _tw(where, "simulate", "slow", *JOB, "--inject", "slow-rank:rank=37,factor=1.4")
        _tw(where, "ingest", "good", "slow")
        _tw(where, "report", "slow", "-o", "report.html")
        _tw(where, "report", "good", "slow", "-o", "diff.html")
        _shoot(window, (where / "report.html").as_uri(), folder / "report.png")
        window.execute_script("document.querySelector('[data-jump]').click()")
        window.save_screenshot(str(folder / "timeline.png"))
        _shoot(window, (where / "diff.html").as_uri(), folder / "diff.png")
        _live_view(window, where, folder / "live_view.png")


def _tw(where: Path, *words: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "tracewarehouse", *words], cwd=where, check=True, capture_output=True
    )


def _shoot(window: Any, url: str, picture: Path) -> None:
    window.get(url)
    window.save_screenshot(str(picture))


def _live_view(window: Any, where: Path, picture: Path) -> None:
    from selenium.webdriver.support.wait import WebDriverWait

    command = [sys.executable, "-m", "tracewarehouse", "serve", "--port", "0", "--no-browser"]
    with subprocess.Popen(
        command, cwd=where, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as server:
        assert server.stdout is not None
        (url,) = next(found for line in server.stdout if (found := re.findall(r"http://\S+", line)))
        window.get(url)
        WebDriverWait(window, 60).until(lambda page: len(page.find_elements("css selector", "tbody tr")) == 2)
        # Step times and findings come after the rows.
        WebDriverWait(window, 60).until(
            lambda page: "…" not in page.find_element("css selector", "tbody").text.split()
        )
        window.save_screenshot(str(picture))
        server.terminate()


if __name__ == "__main__":
    main()

"""Debian's chromium through Playwright; where either is missing tests are skipped, unless `make page` has asked for them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from tests.needs import require

CHROMIUM = shutil.which("chromium")


def require_browser() -> None:
    """Skip, or fail if the browser is the point."""
    lacks = [name for name, there in (("chromium", CHROMIUM), ("playwright", find_spec("playwright"))) if not there]
    if lacks:
        require(f"no {' and no '.join(lacks)} here: apt-get install chromium, then make page")


@contextmanager
def open_browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def open_page(browser: Any, url: str, width: int = 1280, scheme: str = "light") -> tuple[Any, list[str]]:
    """A page, and what its console says."""
    page, said = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme), list[str]()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(url)
    return page, said


def wait_for_batch(page: Any, batch: int) -> None:
    """The page's rules forbid `eval`, by which Playwright waits for functions; a selector needs none."""
    page.wait_for_selector(f"body[data-batch='{batch}']", timeout=20_000)

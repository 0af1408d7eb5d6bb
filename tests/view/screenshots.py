"""The pictures of the documentation, from the batches that tests use: `python -m tests.view.screenshots`."""

from __future__ import annotations

from pathlib import Path

from tests.view.batches import hub
from tests.view.browser import open_browser, open_page, wait_for_batch
from watersmeet.view.server import Page

IMAGES = Path(__file__).parents[2] / "docs" / "images"


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with Page(hub()) as served, open_browser() as browser:
        for width, scheme in ((1280, "light"), (1280, "dark"), (400, "light")):
            page, _ = open_page(browser, served.url, width, scheme)
            wait_for_batch(page, 39)
            page.screenshot(path=IMAGES / f"page-{scheme}-{width}.png")


if __name__ == "__main__":
    main()

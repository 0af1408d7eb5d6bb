"""The site's pages that are not in docs/: README, CHANGELOG and CONTRIBUTING, with links that hold on the site.

On GitHub these lie one folder above docs/, on the site beside its pages. The README is the site's first page: docs/index.md, which says
who should read what, stands after its introduction.

Invariant: a link to a file that the site has leads to its page. A link to another file of the repository becomes plain text. All else is
left to `mkdocs build --strict`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from pymdownx.slugs import slugify

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
ABOVE = {"README.md": "index.md", "CHANGELOG.md": "CHANGELOG.md", "CONTRIBUTING.md": "CONTRIBUTING.md"}
"""Pages by the files above docs/ that they show."""
_LINK = re.compile(r"\[([^\]]+)\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """Headings get the anchors that GitHub gives them."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")
    return config


def on_files(files: Files, config: Any) -> Files:
    for name in set(ABOVE) - {"README.md"}:
        files.append(File.generated(config, name, content=relink((ROOT / name).read_text(), ROOT, DOCS)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    if page.file.generated_by is not None:
        return markdown
    at = (DOCS / page.file.src_uri).parent
    own = relink(markdown, at, at)
    if page.file.src_uri != "index.md":
        return own
    introduction, rest = relink((ROOT / "README.md").read_text(), ROOT, DOCS).split("\n## ", 1)
    return f"{introduction}\n{own.split(chr(10), 1)[1]}\n## {rest}"


def relink(text: str, at: Path, page: Path) -> str:
    """A text whose links start from folder `at`, for a page of the site in folder `page`."""

    def link(found: re.Match[str]) -> str:
        target = Path(os.path.normpath(at / found[2]))
        if not target.exists():
            return found[0]
        if not target.is_relative_to(DOCS):
            if target.parent != ROOT or target.name not in ABOVE:
                return found[1]
            target = DOCS / ABOVE[target.name]
        return f"[{found[1]}]({Path(os.path.relpath(target, page)).as_posix()}{found[3] or ''})"

    return _LINK.sub(link, text)

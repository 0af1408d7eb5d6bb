"""The tables of docs/reproductions.md and docs/reproductions/, written from the results saved in lab/results/.

Run it at the root of the repository:

    python -m watersmeet_lab.reproduce.tables                        # write the tables of all pages
    python -m watersmeet_lab.reproduce.tables bistream found.json    # first save what `reproduce bistream --json` wrote

A table stands between two markers, `<!-- results NAME -->` and `<!-- end of results -->`; NAME is a paper, or `summary`.
Invariant: what stands between markers depends on the saved results alone. Text outside of them is left as it is.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from watersmeet.cli.failure import report_errors
from watersmeet.errors import OptionError
from watersmeet_lab.reproduce.report import Reproduction

PAPERS = ("bistream", "wjoin", "driver", "semijoin", "rjoin")
"""In the order of the summary."""
_BLOCK = re.compile(r"(<!-- results (\w+) -->\n).*?(<!-- end of results -->\n)", re.DOTALL)

Results = Mapping[str, Reproduction]


def read_results(folder: Path) -> Results:
    """The saved results of every paper."""
    return {name: Reproduction.read(folder / f"{name}.json") for name in PAPERS}


def save_result(name: str, found: Path, folder: Path) -> None:
    """Keep the claims and the machine of a file that `--json` wrote, without raw numbers and plots."""
    if name not in PAPERS:
        raise OptionError(f"there is no reproduction {name!r}; there are: {', '.join(PAPERS)}")
    result = Reproduction.read(found)
    claims = [{key: getattr(c, key) for key in Reproduction.COLUMNS} for c in result.claims]
    saved = {"paper": result.paper, "machine": dict(result.machine), "claims": claims}
    (folder / f"{name}.json").write_text(json.dumps(saved, indent=1, ensure_ascii=False) + "\n")


def fill_page(text: str, results: Results) -> str:
    """A page with its tables written anew.

    >>> fill_page("before\\n<!-- results summary -->\\nold\\n<!-- end of results -->\\nafter\\n", {}).splitlines()[-2:]
    ['<!-- end of results -->', 'after']
    """

    def fill(block: re.Match[str]) -> str:
        table = summarise(results) if block[2] == "summary" else tabulate(results[block[2]])
        return f"{block[1]}\n{table}\n\n{block[3]}"

    return _BLOCK.sub(fill, text)


def tabulate(result: Reproduction) -> str:
    """Where it ran, and a row for every claim."""
    return f"{result.describe_run()}\n\n{result.markdown()}"


def summarise(results: Results) -> str:
    """A row for every paper: how many of its claims hold."""
    lines = ["| paper | claims | hold | hold in part | do not hold |", "| --- " * 5 + "|"]
    for name, result in results.items():
        verdicts = Counter(claim.holds for claim in result.claims)
        counts = " | ".join(str(n) for n in (len(result.claims), verdicts["yes"], verdicts["partly"], verdicts["no"]))
        lines.append(f"| [{result.paper}](reproductions/{name}.md) | {counts} |")
    return "\n".join(lines)


def list_pages(docs: Path) -> list[Path]:
    """Every page that may have tables."""
    return [docs / "reproductions.md", *(docs / "reproductions" / f"{name}.md" for name in PAPERS)]


def main(
    name: Annotated[str | None, typer.Argument(help="The paper whose result is saved.", show_default=False)] = None,
    found: Annotated[Path | None, typer.Argument(help="The file that --json wrote.", show_default=False)] = None,
    docs: Annotated[Path, typer.Option(help="The folder of the documentation.")] = Path("docs"),
    saved: Annotated[Path, typer.Option(help="The folder of saved results.")] = Path("lab/results"),
) -> None:
    """Write the tables of the documentation from saved results."""
    with report_errors():
        if name and not found:
            raise OptionError(f"which file has the results of {name}? give what `reproduce {name} --json` wrote")
        if name and found:
            save_result(name, found, saved)
        results = read_results(saved)
        for page in list_pages(docs):
            page.write_text(fill_page(page.read_text(), results))


if __name__ == "__main__":
    typer.run(main)

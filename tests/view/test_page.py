"""The page in a real browser: its figures are those of progress and of /metrics; it names the frozen stream; it fits, light and dark."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.view.batches import batches, hub, query
from tests.view.browser import open_browser, open_page, require_browser, wait_for_batch
from tests.view.test_metrics import parse
from watersmeet.runtime.observing import Events, describe_plan, tell_all, waits_of
from watersmeet.view.hub import Hub
from watersmeet.view.server import Page

SILENT = 5


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    require_browser()
    with open_browser() as made:
        yield made


def figures(page: Any) -> dict[tuple[str, str], float]:
    """What the page shows, by figure and key."""
    found = page.eval_on_selector_all(
        "[data-figure]", "all => all.map(e => [e.dataset.figure, e.dataset.key || '', e.dataset.value])"
    )
    return {(name, key): float(value) for name, key, value in found if value not in ("null", "undefined")}


def test_figures_are_those_of_progress_and_of_metrics(browser: Any) -> None:
    told = batches(12, SILENT)
    made, events = Hub(describe_plan(query().plan, "orders", "rounds")), Events(waits_of(query().plan))
    names = {"batch": "batch", "input_rows": "batch_input_rows", "results": "batch_results", "seconds": "batch_seconds"}
    names |= {"state_bytes": "state_bytes", "rounds": "rounds", "mail_bytes": "mail_bytes", "skew": "skew"}
    names |= {"pruned": "pruned_rows"}
    keyed = {"state_rows": "state_rows", "unit_rows": "unit_rows", "fanout": "fanout", "late": "batch_late_rows"}
    keyed |= {"set_aside": "batch_set_aside_rows"}
    with Page(made) as served:
        page, said = open_page(browser, served.url)
        for progress in told:
            tell_all(made, events, [progress], progress.batch_id - 1)
            wait_for_batch(page, progress.batch_id)
            shown = figures(page)
            metrics = parse(urllib.request.urlopen(served.metrics_url).read().decode())
            for name, metric in names.items():
                own = progress.batch_id if name == "batch" else getattr(progress, name)
                assert shown[name, ""] == metrics[f"watersmeet_{metric}", ""] == own
            for name, metric in keyed.items():
                mine = {k: v for (n, k), v in shown.items() if n == name}
                assert mine == {k: v for (n, k), v in metrics.items() if n == f"watersmeet_{metric}"}
                own = {str(k): v for k, v in getattr(progress, name).items()}
                assert {k: v for k, v in mine.items() if v} == {k: v for k, v in own.items() if v}
            marks = {k: v / 1e6 for (n, k), v in shown.items() if n == "watermarks"}
            assert marks == {k: v for (n, k), v in metrics.items() if n == "watersmeet_watermark_seconds"}
            assert marks == {s: m.timestamp() for s, m in progress.watermarks.items()}  # type: ignore[union-attr]
            spans = {"lag_us": "watermark_lag_seconds", "held_us": "holds_back_seconds"}
            for name, metric in spans.items():
                mine = {k: v / 1e6 for (n, k), v in shown.items() if n == name}
                assert mine == {k: v for (n, k), v in metrics.items() if n == f"watersmeet_{metric}"}
            lost = {k: v for (n, k), v in shown.items() if n == "late_total" and v}
            assert lost == {k: v for (n, k), v in metrics.items() if n == "watersmeet_late_rows_total"}
            oldest = {k: v / 1e6 for (n, k), v in shown.items() if n == "oldest"}
            assert oldest == {a: m.timestamp() for a, m in progress.oldest.items()}  # type: ignore[union-attr]
            assert {k: v / 1e6 for (n, k), v in shown.items() if n == "age_us"} == {
                a: max(marks.values()) - ts for a, ts in oldest.items()
            }
            asked = {q.id: (q.cost_share, q.batch_answers) for q in progress.dearest}
            assert asked == {q: (shown["cost_share", q], shown["batch_answers", q]) for q in asked}
            assert shown["late_sum", ""] == sum(progress.late.values())
            assert shown["set_aside_sum", ""] == sum(progress.set_aside.values())
            assert shown["state_rows_sum", ""] == sum(progress.state_rows.values())
            assert shown["rows_per_second", ""] == pytest.approx(progress.rows_per_second)
            sums = {"late_sum", "set_aside_sum", "state_rows_sum", "rows_per_second", "cost_share", "batch_answers"}
            compared = {*names, *keyed, *spans, *sums, "watermarks", "late_total", "oldest", "age_us"}
            assert {name for name, _ in shown} <= compared, "a figure that nobody has compared"
        assert said == []


def test_changes_stand_on_the_time_line_of_every_chart(browser: Any) -> None:
    made, events = Hub(describe_plan(query().plan, "orders", "rounds")), Events(waits_of(query().plan))
    with Page(made) as served:
        page, _ = open_page(browser, served.url)
        tell_all(made, events, batches(17, SILENT))
        wait_for_batch(page, 16)
        assert page.locator("[data-change]").count() == 0
        tell_all(made, events, batches(20, SILENT), 16)
        wait_for_batch(page, 19)
        for chart in ("rates", "phases", "lags", "states"):
            assert page.locator(f"#{chart} [data-change='17'] title").text_content() == (
                "batch 17: payloads of c are sent for matches only: one row in 40 matches"
            )
        assert page.locator("[data-change]").count() == 4
        assert page.inner_text("#changes").startswith("batch 17: payloads of c")


def test_the_frozen_stream_is_named_within_two_batches(browser: Any) -> None:
    made, events = Hub(describe_plan(query().plan, "orders", "rounds")), Events(waits_of(query().plan))
    with Page(made) as served:
        page, _ = open_page(browser, served.url)
        for progress in batches(SILENT + 3, SILENT):
            tell_all(made, events, [progress], progress.batch_id - 1)
            wait_for_batch(page, progress.batch_id)
            named = page.eval_on_selector_all("#holds [data-holds]", "all => all.map(e => e.dataset.holds)")
            assert page.is_visible("#holds") == bool(named)
            if progress.batch_id <= SILENT:
                assert "payments" not in named
            if progress.batch_id >= SILENT + 2:
                assert named[0] == "payments"
                assert "payments holds state back" in page.inner_text("#holds")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_it_fits_and_can_be_read(browser: Any, width: int, scheme: str) -> None:
    with Page(hub()) as served:
        page, said = open_page(browser, served.url, width, scheme)
        wait_for_batch(page, 39)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(LEAST_CONTRAST) >= 4.5
        assert (
            page.evaluate(
                "Math.min(...[...document.querySelectorAll('td, th, p, b, h2')].map(e => parseFloat(getComputedStyle(e).fontSize)))"
            )
            >= 11
        )
        for chart in ("rates", "phases", "lags", "states"):
            assert page.locator(f"#{chart} polyline, #{chart} rect").count() > 0
        assert page.locator("[data-sample='clicks']").count() == 12
        assert page.locator("[data-sample='clicks']").first.inner_text() == '{"user":38,"v":"<b>"}'
        for drawing in ("dataflow", "windows"):
            assert page.locator(f"#{drawing} svg rect").count() >= 3
        assert said == []


def test_the_plan_cannot_smuggle_a_script_in(browser: Any) -> None:
    made = hub(title="<img src=x onerror=window.hit=1>")
    made.about["query"] = "SELECT '<script>window.hit = 1</script>'"
    with Page(made) as served:
        page, _ = open_page(browser, served.url)
        wait_for_batch(page, 39)
        assert page.evaluate("window.hit") is None
        assert "<script>" in page.inner_text("#query")


def test_a_page_that_lost_its_server_says_so(browser: Any) -> None:
    served = Page(hub())
    page, _ = open_page(browser, served.url)
    wait_for_batch(page, 39)
    assert page.inner_text("#status") == "running"
    served.hub.end("failed")
    page.wait_for_selector("#status:text-is('failed')")
    served.close()
    page.wait_for_selector("#status:text-is('connection lost')", timeout=20_000)


LEAST_CONTRAST = """() => {
  const parse = c => c.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
  return Math.min(...[...document.querySelectorAll('h1, h2, td, th, p, b, #figures span, .legend span, #query, #status')].filter(e => e.textContent.trim()).map(e => {
    const a = light(parse(getComputedStyle(e).color)), b = light(ground(e)); return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05); }));
}"""
"""The least contrast of a text with what is behind it."""

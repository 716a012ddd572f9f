"""The HTML page in a real browser: drawn, silent, offline, and strangers' names as text."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudoctor.harness.result import Column, Plot, Result, Series
from gpudoctor.report import html
from gpudoctor.report.experiments import join
from tests.report.samples import HOSTILE, sample

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytest.importorskip("vl_convert", reason="needs vl-convert-python, of the extra html")


def page_text() -> str:
    report = sample()
    curve = Series("all-reduce <b>", [1e3, 1e6], [2e-5, 3e-3])
    join(report, [Result("aggregate", "Adding gradients", "ours is <i>faster</i>", "bad", [Column("way"), Column("rate", "B/s")], [["ours", 2e9]],
                         [Plot("Time", "elements", "seconds", [curve], "xy"), Plot("Loss", "step", "loss", [Series("one", [0.0, 1.0], [2.0, 1.5])])])])
    stream = io.StringIO()
    html.render(report, stream)
    return stream.getvalue()


def test_one_file_under_three_megabytes_and_without_links() -> None:
    text = page_text()
    assert len(text.encode()) < 3_000_000
    assert "<link" not in text
    assert "<script src" not in text
    assert "<script>alert(1)" not in text
    assert "<td>2 GB/s</td>" in text
    assert "bad: ours is &lt;i&gt;faster&lt;/i&gt;" in text
    assert "1 experiment: 1 bad" in text


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    if CHROMIUM is None:
        pytest.skip("needs chromium on PATH (Debian's package chromium)")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
        )
        yield started
        started.close()


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (390, "dark")])
def test_every_chart_is_drawn_and_nothing_complains(browser, tmp_path: Path, width: int, scheme: str) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "report.html"
    file.write_text(page_text(), "utf-8")
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda m: said.append(m.text))
    page.on("pageerror", lambda e: said.append(str(e)))
    page.on("request", lambda r: asked.append(r.url))
    page.goto(file.as_uri())
    page.wait_for_function("document.documentElement.dataset.ready")
    assert said == []
    assert asked == [file.as_uri()]
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    colours = page.evaluate("""() => [...document.querySelectorAll('[data-chart]')].map((place) => {
        const canvas = place.querySelector('canvas'), data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        const seen = new Set();
        for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 250) seen.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
        return [place.dataset.chart, seen.size];
    })""")
    assert {name for name, _ in colours} == {"timeline", "phases", "memory", "ridges", "harness-aggregate", "harness-aggregate-2"}
    assert all(count > 5 for _, count in colours), colours
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "the page must not scroll sideways"
    context.close()


def test_hostile_names_are_text_and_tables_sort_by_keyboard(browser, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "report.html"
    file.write_text(page_text(), "utf-8")
    page = browser.new_page()
    page.goto(file.as_uri())
    page.wait_for_function("document.documentElement.dataset.ready")
    assert HOSTILE[:25] in page.inner_text("#findings")
    header = page.locator("section:has(h2:text('Gradient agreement')) th button").nth(2)
    first = "section:has(h2:text('Gradient agreement')) tbody tr:first-child td:nth-child(3)"
    header.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    assert page.inner_text(first) == "+1.000"
    assert page.get_attribute("section:has(h2:text('Gradient agreement')) th:nth-child(3)", "aria-sort") == "descending"
    page.close()

"""The HTML report: one file, no network, charts by Vega-Lite with its code inlined."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from importlib import resources
from typing import Any, TextIO

from gpudoctor import __version__
from gpudoctor.errors import MissingExtraError
from gpudoctor.model import Finding, Report
from gpudoctor.report import experiments
from gpudoctor.report.charts import Chart, charts
from gpudoctor.report.plain import plain
from gpudoctor.report.source_lines import source_lines
from gpudoctor.report.tables import busy_title
from gpudoctor.units import duration, number, share, size

_TABLE_ROWS = 200


def render(report: Report, stream: TextIO) -> None:
    """Write the page. MissingExtraError if there are charts and vl-convert is absent."""
    drawn = charts(report.plots)
    page = _asset("page.html")
    parts = {
        "title": f"gpudoctor: {_headline(report)}", "style": _asset("page.css"), "headline": _headline(report), "verdict": report.verdict,
        "subject": ", ".join(report.subject.paths) or report.subject.kind, "version": __version__,
        "findings": "".join(map(_finding, report.findings)), "tables": "".join(_tables(report)), "figures": "".join(map(_figure, drawn)),
        "abstained": _abstained(report), "charts": _charts_data(drawn), "script": _asset("page.js"), "vega": _vega() if drawn else "",
    }
    raw = {"style", "findings", "tables", "figures", "abstained", "charts", "script", "vega"}
    stream.write(re.sub(r"\{\{(\w+)\}\}", lambda m: parts[m[1]] if m[1] in raw else _text(parts[m[1]]), page))


def _asset(name: str) -> str:
    return (resources.files("gpudoctor.report") / "assets" / name).read_text("utf-8")


def _vega() -> str:
    try:
        import vl_convert
    except ImportError:
        raise MissingExtraError("the HTML report draws its charts with vl-convert; pip install 'gpudoctor[html]'") from None
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return bundle.replace("</script", "<\\/script")


def _text(value: object) -> str:
    return html.escape(plain(value))


def _prose(text: str) -> str:
    """Escaped, with what stands between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", _text(text))


def _headline(report: Report) -> str:
    found = report.tally or ("no findings" if report.verdict == "clean" else "inconclusive")
    results = report.summary.get("harness")
    return f"{found}; {experiments.tally(results)}" if results else found


def _finding(f: Finding) -> str:
    place = f'<code class="place">{_text(f.location.path)}:{f.location.line}</code>' if f.location else ""
    cost = f'<span class="cost">{duration(f.cost_ns)} per {_text(f.values.get("cost_per", "capture"))}</span>' if f.cost_ns else ""
    ranks = f"<span>rank{'s' if len(f.ranks) > 1 else ''} {', '.join(map(str, f.ranks[:16]))}</span>" if f.ranks else ""
    seen = f"<span>seen {number(f.count)}×</span>" if f.count > 1 else ""
    lines = "".join(
        f'<li value="{n}"{" class=hit" if n == (f.location and f.location.line) else ""}><code>{_text(text) or " "}</code></li>'
        for n, text in (source_lines(f.location) if f.location else [])
    )
    return (
        f'<article class="finding {f.severity.name}"><h3><span class="badge">{f.severity.name}</span> {_text(f.rule)} {_text(f.name)} {place}</h3>'
        f'<p class="facts">{cost}{ranks}{seen}<span>{f.confidence.name}</span></p>'
        f"<p>{_prose(f.message)}</p>{f'<ol class=source>{lines}</ol>' if lines else ''}<p class=cure><strong>Cure:</strong> {_prose(f.fix)}</p></article>"
    )


def _figure(chart: Chart) -> str:
    rows = chart.rows[:_TABLE_ROWS]
    columns = list(rows[0])
    cells = "".join("<tr>" + "".join(f"<td>{_text(_cell(r.get(c)))}</td>" for c in columns) + "</tr>" for r in rows)
    more = f"<caption>the first {_TABLE_ROWS} of {len(chart.rows)} rows</caption>" if len(chart.rows) > _TABLE_ROWS else ""
    head = "".join(f"<th scope=col>{_text(c)}</th>" for c in columns)
    return (
        f'<figure id="{_text(chart.id)}"><figcaption><h2>{_text(chart.title)}</h2><p>{_text(chart.describe)}</p></figcaption>'
        f'<div class="chart" tabindex="0" role="img" aria-label="{_text(chart.title)}. {_text(chart.describe)}" data-chart="{_text(chart.id)}"></div>'
        f"<details><summary>the same as a table</summary><div class=scroll><table class=sortable>{more}<thead><tr>{head}</tr></thead><tbody>{cells}</tbody></table></div></details></figure>"
    )


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)


def _tables(report: Report) -> Iterator[str]:
    summary = report.summary
    if rows := summary.get("steps"):
        yield _table("Steps", ("rank", "steps", "median", "p10", "p90", "waits for data"), [
            (r["rank"], r["steps"], *(_ns(r[k]) for k in ("median_ns", "p10_ns", "p90_ns")), share((r.get("data_ns") or 0) / r["median_ns"]) if r["median_ns"] else "")
            for r in rows])
    if rows := summary.get("memory"):
        yield _table("Memory (peak)", ("rank", "where", "allocated", "reserved", "of"), [
            (r["rank"], "host" if r["device"] == -1 else f"GPU {r['device']}", size(r["peak_allocated"] or 0), size(r["peak_reserved"]) if r["peak_reserved"] else "", size(r["total"]) if r["total"] else "")
            for r in rows])
    if rows := summary.get("gradients"):
        yield _table("Gradient agreement between ranks", ("parameter", "elements", "agreement", "first norm", "last norm"), [
            (r["param"], number(r["numel"] or 0), f"{r['agreement']:+.3f}" if r["agreement"] is not None else "", f"{r['norm_first']:.3g}", f"{r['norm_last']:.3g}")
            for r in rows])
    if rows := summary.get("devices"):
        yield _table("GPUs", ("rank", "GPU", "span", busy_title(rows), "kernels", "collectives"), [
            (r["rank"], r["device"], duration(r["span_ns"]), share(r["busy"]), r["kernels"], r["comm_kernels"]) for r in rows])
    for result in summary.get("harness", []):
        words = "; ".join((f"{result['state']}: {result['verdict']}", *result["limits"]))
        yield _table(result["title"], tuple(c["name"] for c in result["columns"]), [tuple(cells) for cells in experiments.table_cells(result)], words)


def _ns(value: float | None) -> str:
    return "" if value is None else duration(value)


def _table(title: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]], words: str = "") -> str:
    head = "".join(f"<th scope=col>{_text(c)}</th>" for c in columns)
    body = "".join("<tr>" + "".join(f"<td>{_text(v)}</td>" for v in row) + "</tr>" for row in rows)
    table = f"<div class=scroll><table class=sortable><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>" if rows else ""
    return f"<section><h2>{_text(title)}</h2>{f'<p>{_text(words)}</p>' if words else ''}{table}</section>"


def _abstained(report: Report) -> str:
    if not report.abstained:
        return ""
    items = "".join(f"<li><strong>{_text(a.name)}</strong>: {_prose(a.reason)}; {_prose(a.needs)} would tell</li>" for a in report.abstained)
    return f"<section><h2>Could not be judged</h2><ul>{items}</ul></section>"


def _charts_data(drawn: list[Chart]) -> str:
    cleaned = [{"id": c.id, "spec": c.spec, "rows": [{k: plain(v) if isinstance(v, str) else v for k, v in r.items()} for r in c.rows]} for c in drawn]
    return json.dumps(cleaned, separators=(",", ":"), default=str).replace("<", "\\u003c").replace("&", "\\u0026")

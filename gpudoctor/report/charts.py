"""Vega-Lite specifications of the page's charts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Spec = dict[str, Any]
Rows = list[dict[str, Any]]

PHASES = ["data", "forward", "backward", "optimizer"]
_KINDS = ["kernel", "comm", "memcpy", "memset", "finding"]
_COLOURS = ["#4c78a8", "#f58518", "#54a24b", "#b279a2", "#d62728"]


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart: its place in the page, words for everybody, a specification and the rows it shows."""

    id: str
    title: str
    describe: str
    spec: Spec
    rows: Rows


def charts(plots: dict[str, Rows]) -> list[Chart]:
    """Charts for the plots at hand, in the order of the page."""
    makers = {"timeline": timeline, "phases": phases, "memory": memory, "ridges": ridges, "comparison": comparison}
    made = [makers[name](plots[name]) for name in makers if plots.get(name)]
    return made + [generic(name.removeprefix("harness:"), rows) for name, rows in plots.items() if name.startswith("harness:") and rows]


def timeline(rows: Rows) -> Chart:
    """Work of a typical step: a lane per rank and stream, findings thin and red over it; scroll to zoom, drag to move."""
    lanes = list(dict.fromkeys(_lane(r) for r in sorted(rows, key=lambda r: (r["rank"] or 0, -1 if r["stream"] is None else r["stream"]))))
    shown = [{**r, "lane": _lane(r)} for r in rows]
    x = {
        "x": {"field": "start_us", "type": "quantitative", "title": "µs from the step's start", "scale": {"zero": False}}, "x2": {"field": "end_us"},
        "y": {"field": "lane", "type": "nominal", "title": None, "sort": lanes},
        "color": {"field": "kind", "type": "nominal", "scale": {"domain": _KINDS, "range": _COLOURS}, "title": None},
        "tooltip": [{"field": f, "type": t} for f, t in (("name", "nominal"), ("kind", "nominal"), ("start_us", "quantitative"), ("end_us", "quantitative"), ("bytes", "quantitative"))],
    }
    zoom = [{"name": "zoom", "select": {"type": "interval", "encodings": ["x"]}, "bind": "scales"}]
    spec = _base(shown, 26 * len(lanes) + 20) | {
        "encoding": x,
        "layer": [
            {"params": zoom, "mark": {"type": "bar", "height": {"band": 0.8}, "clip": True}, "transform": [{"filter": "datum.kind != 'finding'"}]},
            {"mark": {"type": "bar", "height": {"band": 0.25}, "clip": True, "minBandSize": 2}, "transform": [{"filter": "datum.kind == 'finding'"}]},
        ],
    }
    return Chart("timeline", "A typical step on each stream", f"{len(rows)} operations on {len(lanes)} lanes. Scroll to zoom, drag to move.", spec, shown)


def _lane(row: dict[str, Any]) -> str:
    return f"rank {row['rank'] or 0} · " + ("host" if row["stream"] is None else f"stream {row['stream']}")


def phases(rows: Rows) -> Chart:
    """Median time of each phase of a step, a bar per rank."""
    ranks = len({r["rank"] for r in rows})
    rows = [{**r, "order": PHASES.index(r["phase"])} for r in rows]
    spec = _base(rows, 30 * ranks + 20) | {
        "mark": "bar",
        "encoding": {
            "x": {"field": "ms", "type": "quantitative", "title": "ms a step", "stack": "zero"},
            "y": {"field": "rank", "type": "ordinal", "title": "rank"},
            "color": {"field": "phase", "type": "nominal", "scale": {"domain": PHASES}, "title": None},
            "order": {"field": "order"},
            "tooltip": [{"field": "rank"}, {"field": "phase"}, {"field": "ms", "type": "quantitative", "format": ".3f"}],
        },
    }
    return Chart("phases", "Where a step's time goes", "Median milliseconds of each phase, a bar for each rank.", spec, rows)


def memory(rows: Rows) -> Chart:
    """Allocated memory over steps or time, a line per rank and device."""
    x = "step" if "step" in rows[0] else "ms"
    shown = [{**r, "where": f"rank {r['rank']}, " + ("host" if r["device"] == -1 else f"GPU {r['device']}")} for r in rows]
    spec = _base(shown, 220) | {
        "params": [{"name": "zoom", "select": {"type": "interval", "encodings": ["x"]}, "bind": "scales"}],
        "mark": {"type": "line", "point": len(rows) < 60, "clip": True},
        "encoding": {
            "x": {"field": x, "type": "quantitative", "title": "step" if x == "step" else "ms"},
            "y": {"field": "allocated_mib", "type": "quantitative", "title": "allocated, MiB"},
            "color": {"field": "where", "type": "nominal", "title": None},
            "tooltip": [{"field": "where"}, {"field": x}, {"field": "allocated_mib", "type": "quantitative", "format": ",.1f"}],
        },
    }
    return Chart("memory", "Memory of each card", "Allocated MiB over the run, a line for each rank and card.", spec, shown)


def ridges(rows: Rows) -> Chart:
    """Histograms of log2 gradient magnitudes as ridges: one panel a layer, one ridge a step, early ones on top."""
    steps = sorted({r["step"] for r in rows})
    params = list(dict.fromkeys(r["param"] for r in rows))
    tallest = max(r["share"] for r in rows) or 1.0
    shown = [{**r, "base": -steps.index(r["step"]), "top": -steps.index(r["step"]) + 2.2 * r["share"] / tallest} for r in rows]
    panel: Spec = {
        "width": 200, "height": 14 * len(steps) + 40,
        "mark": {"type": "area", "interpolate": "monotone", "fillOpacity": 0.75, "line": {"strokeWidth": 1}},
        "encoding": {
            "x": {"field": "bin", "type": "quantitative", "title": "log2 |gradient|", "axis": {"grid": False, "tickCount": 6}},
            "y": {"field": "top", "type": "quantitative", "title": None, "axis": None}, "y2": {"field": "base"},
            "color": {"field": "step", "type": "quantitative", "scale": {"scheme": "viridis"}, "title": "step", "legend": {"format": "d", "values": steps}},
            "detail": {"field": "step"},
            "tooltip": [{"field": "param"}, {"field": "step"}, {"field": "bin"}, {"field": "share", "type": "quantitative", "format": ".1%"}],
        },
    }
    panels = [panel | {"title": {"text": name[-34:], "anchor": "start", "fontSize": 11}, "transform": [{"filter": {"field": "param", "equal": name}}]} for name in params]
    spec: Spec = {"data": {"name": "rows"}, "concat": panels, "columns": 4}
    words = f"Share of elements by log2 magnitude for {len(params)} layers: one ridge a step, {len(steps)} steps from top to bottom."
    return Chart("ridges", "Gradient histograms over steps", words, spec, shown)


def comparison(rows: Rows) -> Chart:
    """A measure of two runs over steps: rows {measure, step, value, run}."""
    spec = _base(rows, 200) | {
        "mark": {"type": "line", "clip": True},
        "encoding": {
            "x": {"field": "step", "type": "quantitative"}, "y": {"field": "value", "type": "quantitative", "scale": {"zero": False}, "title": None},
            "color": {"field": "run", "type": "nominal", "title": None}, "row": {"field": "measure", "title": None},
            "tooltip": [{"field": "run"}, {"field": "measure"}, {"field": "step"}, {"field": "value", "type": "quantitative"}],
        },
        "resolve": {"scale": {"y": "independent"}},
    }
    del spec["width"]
    return Chart("comparison", "The two runs side by side", "Each measure over steps, one line a run.", spec, rows)


def generic(name: str, rows: Rows) -> Chart:
    """A harness experiment: rows {x, y, series} with axis words x_title and y_title in the first."""
    first = rows[0]
    spec = _base(rows, 220) | {
        "mark": {"type": "line", "point": True},
        "encoding": {
            "x": {"field": "x", "type": "quantitative" if isinstance(first.get("x"), (int, float)) else "nominal", "title": first.get("x_title"),
                  **({"scale": {"type": "log"}} if first.get("x_log") else {})},
            "y": {"field": "y", "type": "quantitative", "title": first.get("y_title"), **({"scale": {"type": "log"}} if first.get("y_log") else {})},
            "color": {"field": "series", "type": "nominal", "title": None},
            "tooltip": [{"field": "series"}, {"field": "x"}, {"field": "y", "type": "quantitative"}],
        },
    }
    return Chart(f"harness-{name.replace(' ', '-')}", first.get("title") or f"Experiment: {name}", f"{first.get('y_title', 'value')} by {first.get('x_title', 'x')}.", spec, rows)


def _base(rows: Rows, height: int) -> Spec:
    return {"data": {"name": "rows"}, "width": "container", "height": height, "autosize": {"type": "fit-x", "contains": "padding"}}

(() => {
  "use strict";
  const root = document.documentElement;
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const media = window.matchMedia("(prefers-color-scheme: dark)");
  let theme = media.matches ? "dark" : "light";

  const config = (dark) => {
    const ink = dark ? "#e6edf3" : "#1b1f24", line = dark ? "#30363d" : "#d1d9e0";
    return { background: "transparent", view: { stroke: line }, title: { color: ink },
      axis: { labelColor: ink, titleColor: ink, gridColor: line, domainColor: line, tickColor: line },
      header: { labelColor: ink, titleColor: ink }, legend: { labelColor: ink, titleColor: ink, orient: "top" } };
  };

  const draw = () => Promise.all(charts.map(async (chart) => {
    const place = document.querySelector(`[data-chart="${CSS.escape(chart.id)}"]`);
    const spec = { ...chart.spec, data: { name: "rows", values: chart.rows } };
    if (spec.concat) spec.columns = Math.max(1, Math.floor(place.clientWidth / 240));
    await window.vegaEmbed(place, spec, { mode: "vega-lite", actions: false, renderer: "canvas", config: config(theme === "dark"), tooltip: { theme } });
    place.dataset.drawn = "true";
  }));

  const show = (name) => { theme = name; root.dataset.theme = name; return draw(); };

  const value = (row, column) => {
    const text = row.cells[column].textContent.trim();
    const match = /^([-+]?[\d,.]+(?:e[-+]?\d+)?)\s*(ns|µs|ms|s|B|KiB|MiB|GiB|TiB|%)?$/.exec(text);
    if (!match) return text;
    const scale = { ns: 1, "µs": 1e3, ms: 1e6, s: 1e9, B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 };
    return Number(match[1].replaceAll(",", "")) * (scale[match[2]] ?? 1);
  };

  const sort = (header, column) => {
    const body = header.closest("table").tBodies[0];
    const down = header.getAttribute("aria-sort") === "ascending";
    for (const other of header.parentElement.cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", down ? "descending" : "ascending");
    const keyed = [...body.rows].map((row) => [value(row, column), row]);
    const order = ([a], [b]) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
    keyed.sort((a, b) => (down ? order(b, a) : order(a, b)));
    body.append(...keyed.map(([, row]) => row));
  };

  for (const table of document.querySelectorAll("table.sortable"))
    [...table.tHead.rows[0].cells].forEach((header, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = header.textContent;
      button.addEventListener("click", () => sort(header, column));
      header.replaceChildren(button);
    });

  document.getElementById("theme").addEventListener("click", () => show(theme === "dark" ? "light" : "dark"));
  media.addEventListener("change", (event) => show(event.matches ? "dark" : "light"));
  show(theme).then(() => { root.dataset.ready = "true"; }, (error) => { root.dataset.ready = "failed"; console.error(error); });
})();

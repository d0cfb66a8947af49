"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("data").textContent);
  const config = { displaylogo: false, responsive: true, 
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]] };
  const severities = ["", "out of range", "huge", "Inf", "NaN"];

  // The style sheet's colours, which differ in light, dark and print.
  const colored = (value, style) => {
    if (typeof value === "string") return value.startsWith("var(--") ? style.getPropertyValue(value.slice(4, -1)).trim() : value;
    if (Array.isArray(value)) return value.map((item) => colored(item, style));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, colored(item, style)]));
  };

  // What one cell of a heat map says, and the bad cells as a second layer. Texts are made here: they would be most of the file.
  const expanded = ({ data, layout, rows, columns, bad, ranks, quantity }) => {
    const [all, worst] = data;
    const said = all.z.map((line, row) =>
      line.map((z, column) => {
        const magnitude = z === null ? "nothing finite" : z < -300 ? "all zero" : `${quantity} ${(10 ** z).toPrecision(3)}`;
        return `${rows[row]}<br>step ${columns[column]}<br>${magnitude}`;
      }));
    const z = all.z.map((line) => line.map(() => null));
    const text = all.z.map((line) => line.map(() => ""));
    for (const [row, column, severity, nans, infs, huge, numel, rank] of bad) {
      z[row][column] = severity;
      const counts = [[nans, "NaN"], [infs, "Inf"], [huge, "huge"]].filter(([count]) => count).map((pair) => pair.join(" "));
      const what = `<b>${counts.join(", ") || severities[severity]}</b> of ${numel}`;
      text[row][column] = `${said[row][column]}<br>${what}${ranks > 1 ? `<br>worst on rank ${rank}` : ""}`;
    }
    return { data: [{ ...all, text: said, hoverongaps: false }, { ...worst, z, text, hoverongaps: false }], layout };
  };

  const narrow = (figure, width) => {
    if (width >= 560) return figure;
    const margin = { ...figure.layout.margin, l: 40, r: 8 };
    const yaxis = { ...figure.layout.yaxis, title: undefined };
    if (figure.data[0].type !== "heatmap") { // a line of the legend for each
      const height = figure.layout.height + 16 * figure.data.filter((trace) => trace.showlegend !== false).length;
      return { data: figure.data, layout: { ...figure.layout, margin, height, yaxis } };
    }
    figure.data[0].showscale = false;
    return { data: figure.data, layout: { ...figure.layout, margin: { ...margin, l: 12 }, yaxis: { ...yaxis, showticklabels: false } } };
  };

  const drawn = new Set();
  const draw = (element) => {
    const figure = figures[element.id];
    if (!figure || element.offsetParent === null) return;
    const full = narrow(figure.rows ? expanded(figure) : figure, element.clientWidth);
    const { data, layout } = colored(full, getComputedStyle(document.documentElement));
    layout.font.family = getComputedStyle(document.body).fontFamily;
    Plotly.react(element, data, layout, config);
    drawn.add(element);
  };
  const plots = [...document.querySelectorAll(".plot")];
  const again = () => drawn.forEach(draw);

  // A chart is drawn when it comes near the screen: some pages have dozens.
  const watcher = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting && !drawn.has(target)) draw(target);
    }
  }, { rootMargin: "600px" });
  plots.forEach((plot) => watcher.observe(plot));

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  const open = [];
  addEventListener("beforeprint", () => {
    document.documentElement.classList.add("print");
    document.querySelectorAll("details:not([open])").forEach((details) => { details.open = true; open.push(details); });
    plots.forEach(draw);
  });
  addEventListener("afterprint", () => {
    document.documentElement.classList.remove("print");
    open.splice(0).forEach((details) => { details.open = false; });
    again();
  });

  const unfold = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (target instanceof HTMLDetailsElement) { target.open = true; target.scrollIntoView(); }
  };
  addEventListener("hashchange", unfold);
  document.querySelectorAll('a[href^="#"]').forEach((link) => link.addEventListener("click", () => setTimeout(unfold)));
  unfold();

  const table = document.getElementById("verdicts");
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const value = (row, index) => row.cells[index].dataset.value ?? row.cells[index].textContent.trim();
  [...table.tHead.rows[0].cells].forEach((head, index) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      [...table.tHead.rows[0].cells].forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const sorted = [...rows].sort((one, other) => {
        const [a, b] = [value(one, index), value(other, index)];
        if (a === "" || b === "") return (a === "") - (b === ""); // without a value: last, in both directions
        return a.localeCompare(b, undefined, { numeric: true }) * (down ? -1 : 1);
      });
      body.append(...sorted);
    });
  });
  const filter = document.getElementById("filter");
  filter.parentElement.hidden = rows.length < 2;
  filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    rows.forEach((row) => { row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word)); });
    document.getElementById("shown").textContent = words.length ? `${rows.filter((row) => !row.hidden).length} of ${rows.length}` : "";
  });
})();

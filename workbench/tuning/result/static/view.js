// The browser's half of workbench.tuning.result.view: draws what Python says, sends back what was chosen. No dependencies.

const SVG = "http://www.w3.org/2000/svg";

function element(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

function shape(tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

// One path per outcome, centred on 0, 0.
const MARKS = {
  ok: "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0",
  restricted: "M-5 -1.5H5V1.5H-5Z",
  compile_error: "M0 -5L5 4H-5Z",
  launch_error: "M-4 -4H4V4H-4Z",
  wrong_result: "M0 -6L6 0L0 6L-6 0Z",
  timeout: "M0 5L5 -4H-5Z",
  crash: "M-5 -3L-3 -5L0 -2L3 -5L5 -3L2 0L5 3L3 5L0 2L-3 5L-5 3L-2 0Z",
};
const colourOf = (model, outcome) => (outcome === "crash" ? "currentColor" : model.get("styles")[outcome]);
const mark = (model, outcome, x, y, scale = 1) => {
  const transform = `translate(${x} ${y}) scale(${scale})`;
  return shape("path", { d: MARKS[outcome], fill: colourOf(model, outcome), transform });
};

// -- the scatter: attempts from left to right, time upwards (logarithmic), what failed on a line above it ------------

const W = 460, H = 300, LEFT = 58, RIGHT = 10, TOP = 44, BOTTOM = 36;
const MANY = 300; // more points than so many are drawn smaller

function ticks(low, high) {
  const found = [];
  for (let decade = Math.floor(Math.log10(low)); decade <= Math.ceil(Math.log10(high)); decade += 1)
    for (const step of [1, 2, 5]) {
      const value = step * 10 ** decade;
      if (value >= low && value <= high) found.push(value);
    }
  const thinned = found.filter((_, i) => i % Math.ceil(found.length / 6) === 0);
  return thinned.length > 1 ? thinned : [low, high];
}
const figure = (value) => (value >= 1000 ? Math.round(value).toLocaleString("en") : Number(value.toPrecision(3)));

function drawScatter(model, svg) {
  const points = model.get("points"), selected = model.get("selected");
  const times = points.filter((p) => p[1] !== null).map((p) => p[1]);
  const low = (times.length ? Math.min(...times) : 1) / 1.08, high = (times.length ? Math.max(...times) : 10) * 1.08;
  const last = Math.max(points.length, 2);
  const x = (number) => LEFT + 8 + ((number - 1) / Math.max(1, last - 1)) * (W - LEFT - RIGHT - 16);
  const y = (time) => H - BOTTOM - (Math.log(time / low) / Math.log(high / low)) * (H - TOP - BOTTOM);
  const parts = [];
  for (const value of ticks(low, high)) {
    parts.push(shape("line", { x1: LEFT, x2: W - RIGHT, y1: y(value), y2: y(value), class: "tv-grid" }));
    parts.push(shape("text", { x: LEFT - 6, y: y(value) + 4, class: "tv-tick tv-right" }, figure(value)));
  }
  const step = Math.ceil(last / 6);
  for (let number = 1; number <= last; number += step)
    parts.push(shape("text", { x: x(number), y: H - BOTTOM + 16, class: "tv-tick tv-middle" }, number));
  parts.push(shape("text", { x: (LEFT + W) / 2, y: H - 4, class: "tv-label tv-middle" }, "attempt"));
  parts.push(shape("text", { x: 4, y: 14, class: "tv-label" }, `${model.get("unit")} (logarithmic)`));
  if (points.some((p) => p[1] === null)) {
    parts.push(shape("line", { x1: LEFT, x2: W - RIGHT, y1: TOP - 7, y2: TOP - 7, class: "tv-axis" }));
    parts.push(shape("text", { x: LEFT - 6, y: TOP - 14, class: "tv-tick tv-right" }, "no time"));
  }
  let best = Infinity, path = "";
  for (const [number, time] of points) {
    if (time !== null && time < best) path += `${path ? `H${x(number)}V` : `M${x(number)} `}${y((best = time))}`;
  }
  if (path) parts.push(shape("path", { d: `${path}H${x(points.length)}`, class: "tv-best-line" }));
  for (const [number, time, outcome] of points) {
    const height = time === null ? TOP - 18 : y(time);
    const node = mark(model, outcome, x(number), height, points.length > MANY ? 0.55 : 1);
    node.dataset.number = number;
    node.classList.add("tv-point");
    parts.push(node);
  }
  const chosen = points[selected - 1];
  if (chosen) {
    const cy = chosen[1] === null ? TOP - 18 : y(chosen[1]);
    parts.push(shape("circle", { cx: x(selected), cy, r: 9, class: "tv-chosen" }));
  }
  svg.replaceChildren(...parts);
}

// -- the heat map: the darker the faster --------------------------------------------------------------------------

const FAST = [0, 32, 76], MIDDLE = [124, 123, 120], SLOW = [255, 234, 70]; // cividis

function shade(fraction) {
  const [from, to, part] = fraction < 0.5 ? [FAST, MIDDLE, fraction * 2] : [MIDDLE, SLOW, fraction * 2 - 1];
  return from.map((value, i) => Math.round(value + (to[i] - value) * part));
}

function heatCell(model, cell, low, high, where) {
  const [time, outcome, tried, legal] = cell;
  const node = element("td", "tv-cell");
  node.dataset.outcome = outcome;
  if (time !== null) {
    const fraction = high > low ? Math.log(time / low) / Math.log(high / low) : 0;
    node.style.background = `rgb(${shade(fraction).join()})`;
    node.style.color = fraction < 0.55 ? "#fff" : "#000";
    node.textContent = figure(time);
    node.classList.toggle("tv-best-cell", time === low);
  } else if (outcome === "untried") {
    node.textContent = "·";
  } else if (outcome === "restricted") {
    node.classList.add("tv-restricted");
  } else {
    const icon = shape("svg", { viewBox: "-8 -8 16 16", width: 16, height: 16 });
    icon.append(mark(model, outcome, 0, 0));
    node.append(icon);
  }
  const what = outcome === "ok" ? `best ${figure(time)} µs` : outcome.replace("_", " ");
  node.title = `${where}: ${what}; ${tried} of ${legal} legal configurations tried`;
  return node;
}

function drawHeat(model, table) {
  const heat = model.get("heat"), values = model.get("variants")[model.get("variant")] ?? {};
  const [x, y] = [model.get("x"), model.get("y")];
  const times = heat.flat().map((cell) => cell[0]).filter((time) => time !== null);
  const low = Math.min(...times), high = Math.max(...times);
  const head = element("tr");
  const corner = element("th", "tv-corner", `${y} ↓  ${x} →`);
  head.append(corner, ...(values[x] ?? []).map((value) => element("th", "", String(value))));
  const rows = heat.map((cells, i) => {
    const row = element("tr");
    row.append(element("th", "", String(values[y][i])));
    cells.forEach((cell, j) =>
      row.append(heatCell(model, cell, low, high, `${x}=${values[x][j]} ${y}=${values[y][i]}`)),
    );
    return row;
  });
  table.replaceChildren(...(heat.length ? [head, ...rows] : []));
}

// -- parallel coordinates: a line per configuration through its values to its time, the stronger the faster -----------

const LINES_W = 940, LINES_H = 250, SPREAD = 9;
const MOST_LINES = 200; // more would be a black ball: a table of quantiles stands in for them

// A row for each value of a parameter: quantiles of the times of the configurations that have it.
function drawQuantiles(model, table, points, names, values) {
  const at = (times, share) => figure(times[Math.round(share * (times.length - 1))]);
  const rows = [element("tr")];
  for (const text of ["", "", "configurations", "best", "quarter", "median", "three quarters"])
    rows[0].append(element("th", "", text));
  names.forEach((name, i) => {
    for (const [place, value] of values[name].entries()) {
      const times = points.filter((p) => p[3][i] === value).map((p) => p[1]).sort((a, b) => a - b);
      if (values[name].length < 2 || !times.length) continue;
      const row = element("tr");
      row.append(element("th", "", place ? "" : name), element("th", "", String(value)));
      const cells = [times.length, ...[0, 0.25, 0.5, 0.75].map((share) => at(times, share))];
      for (const text of cells) row.append(element("td", "", String(text)));
      rows.push(row);
    }
  });
  table.replaceChildren(...rows);
}

function drawLines(model, svg, table) {
  const values = model.get("variants")[model.get("variant")] ?? {}, names = Object.keys(values);
  const shown = names.map((_, i) => i).filter((i) => values[names[i]].length > 1);
  const points = model.get("points").filter((p) => p[1] !== null).sort((a, b) => b[1] - a[1]); // the fast on top
  svg.parentNode.hidden = shown.length < 3 || points.length < 2;
  if (svg.parentNode.hidden) return;
  const many = points.length > MOST_LINES;
  svg.toggleAttribute("hidden", many);
  svg.style.display = many ? "none" : "";
  table.hidden = !many;
  svg.nextSibling.textContent = many
    ? `${model.get("unit")}, by the value of each parameter, over all values of the others`
    : "one line for each configuration that has a time, the stronger the faster, the best in orange; choose one by a click";
  if (many) {
    drawQuantiles(model, table, points, names, values);
    return;
  }
  const [high, low] = [points[0][1], points.at(-1)[1]];
  const slowness = (time) => (high > low ? Math.log(time / low) / Math.log(high / low) : 0);
  const x = (axis) => 40 + (axis / shown.length) * (LINES_W - 120);
  const [top, bottom] = [34, LINES_H - 16];
  const y = (place, count) => bottom - 8 - (count > 1 ? place / (count - 1) : 0.5) * (bottom - top - 16);
  const parts = [];
  for (const [number, time, , config] of points) {
    // Within a value the lines lie in the order of their times: a fast bundle stays together.
    const aside = (0.5 - slowness(time)) * 2 * SPREAD;
    const at = shown.map((i, axis) => {
      const candidates = values[names[i]];
      return [x(axis), y(candidates.indexOf(config[i]), candidates.length) + aside];
    });
    at.push([x(shown.length), y(slowness(time), 2)]);
    const best = number === points.at(-1)[0], chosen = number === model.get("selected");
    const line = shape("polyline", { points: at.map((p) => p.join()).join(" "), class: "tv-line" });
    if (!best) line.style.setProperty("--tv-strength", `${Math.round(100 - 75 * slowness(time))}%`);
    line.classList.toggle("tv-line-best", best);
    line.classList.toggle("tv-line-chosen", chosen);
    line.dataset.number = number;
    parts.push(line);
  }
  shown.forEach((i, axis) => {
    parts.push(shape("text", { x: x(axis), y: 14, class: "tv-label tv-middle" }, names[i]));
    values[names[i]].forEach((value, place, all) => {
      const attributes = { x: x(axis) - 7, y: y(place, all.length) + 4, class: "tv-tick tv-right tv-halo" };
      parts.push(shape("line", { x1: x(axis), x2: x(axis), y1: attributes.y - 4 - SPREAD, y2: attributes.y - 4 + SPREAD,
        class: "tv-node" }));
      parts.push(shape("text", attributes, String(value)));
    });
  });
  const end = x(shown.length);
  parts.push(shape("text", { x: end, y: 14, class: "tv-label tv-middle" }, model.get("unit")));
  parts.push(shape("line", { x1: end, x2: end, y1: y(0, 2), y2: y(1, 2), class: "tv-node" }));
  for (const value of ticks(low, high))
    parts.push(shape("text", { x: end + 6, y: y(slowness(value), 2) + 4, class: "tv-tick" }, figure(value)));
  svg.replaceChildren(...parts);
}

// -- the controls -------------------------------------------------------------------------------------------------

function menu(model, name, label) {
  const node = element("label", "tv-menu", `${label} `);
  const select = element("select");
  select.setAttribute("aria-label", label);
  select.dataset.name = name;
  select.addEventListener("change", () => {
    model.set(name, select.value);
    model.save_changes();
  });
  node.append(select);
  const fill = (options) => {
    const same = options.length === select.options.length && options.every((o, i) => o === select.options[i].value);
    if (!same) select.replaceChildren(...options.map((option) => new Option(option, option)));
    select.value = model.get(name);
    node.hidden = options.length < 2;
  };
  return [node, fill];
}

function drawLegend(model, legend) {
  const counts = {};
  for (const [, , outcome] of model.get("points")) counts[outcome] = (counts[outcome] ?? 0) + 1;
  const entries = Object.keys(MARKS).filter((outcome) => counts[outcome]).map((outcome) => {
    const entry = element("span", "tv-entry");
    const icon = shape("svg", { viewBox: "-8 -8 16 16", width: 16, height: 16 });
    icon.append(mark(model, outcome, 0, 0));
    entry.append(icon, element("span", "", `${counts[outcome]} ${outcome.replace("_", " ")}`));
    return entry;
  });
  if (counts.ok) {
    const line = element("span", "tv-entry");
    const icon = shape("svg", { viewBox: "0 0 20 16", width: 20, height: 16 });
    icon.append(shape("path", { d: "M0 8H20", class: "tv-best-line" }));
    line.append(icon, element("span", "", "best so far"));
    entries.push(line);
  }
  legend.replaceChildren(...entries);
}

function render({ model, el }) {
  const root = element("div", "tv-root");
  root.dataset.lmSuppressShortcuts = "true"; // JupyterLab would take the arrow keys for its own commands
  const top = element("div", "tv-top");
  const title = element("b", "tv-title");
  const stop = element("button", "tv-stop", "Stop");
  stop.type = "button";
  stop.title = "end after the present attempt; everything finished is kept";
  stop.addEventListener("click", () => model.send({ action: "stop" }));
  top.append(title, stop);
  const bar = element("div", "tv-bar");
  const filled = element("div", "tv-filled");
  bar.setAttribute("role", "progressbar");
  bar.append(filled);
  const headline = element("div", "tv-headline");
  headline.setAttribute("role", "status");
  const best = element("div", "tv-best");
  const menus = element("div", "tv-menus");
  const [variantMenu, fillVariant] = menu(model, "variant", "variant");
  const [caseMenu, fillCase] = menu(model, "case", "case");
  const [xMenu, fillX] = menu(model, "x", "columns");
  const [yMenu, fillY] = menu(model, "y", "rows");
  const panels = element("div", "tv-panels");
  const svg = shape("svg", { viewBox: `0 0 ${W} ${H}`, class: "tv-scatter", tabindex: 0, role: "img" });
  const heatPanel = element("div", "tv-heat");
  const heatMenus = element("div", "tv-menus");
  const table = element("table", "tv-table");
  heatPanel.append(heatMenus, table, element("div", "tv-note"));
  const linesPanel = element("div", "tv-lines");
  const lines = shape("svg", { viewBox: `0 0 ${LINES_W} ${LINES_H}`, role: "img" });
  lines.setAttribute("aria-label", "parallel coordinates of the parameters and the time");
  const quantiles = element("table", "tv-table");
  linesPanel.append(lines, element("div", "tv-note"), quantiles);
  const detail = element("div", "tv-detail");
  detail.setAttribute("role", "status");
  const legend = element("div", "tv-legend");
  menus.append(variantMenu, caseMenu);
  heatMenus.append(xMenu, yMenu);
  panels.append(svg, heatPanel, linesPanel);
  root.append(top, bar, headline, best, menus, panels, detail, legend);
  el.append(root);

  const select = (number) => {
    model.set("selected", Math.min(Math.max(number, 1), model.get("points").length));
    model.save_changes();
  };
  for (const picture of [svg, lines])
    picture.addEventListener("click", (event) => {
      const number = event.target.dataset?.number;
      if (number) select(Number(number));
    });
  svg.addEventListener("keydown", (event) => {
    const now = model.get("selected"), last = model.get("points").length;
    const to = { ArrowRight: now + 1, ArrowLeft: now - 1, Home: 1, End: last }[event.key];
    if (to === undefined || !last) return;
    event.preventDefault();
    select(to);
  });

  function drawHead() {
    const [phase, done, total] = [model.get("phase"), model.get("done"), model.get("total")];
    title.textContent = model.get("title");
    stop.hidden = !["running", "stopping"].includes(phase);
    stop.disabled = phase === "stopping";
    bar.dataset.phase = phase;
    const share = total ? Math.min(1, done / total) : phase === "running" ? 0 : 1;
    filled.style.width = `${100 * share}%`;
    bar.classList.toggle("tv-unknown", !total && phase === "running");
    bar.setAttribute("aria-valuenow", Math.round(100 * share));
    headline.textContent = model.get("headline");
    headline.classList.toggle("tv-failed", phase === "failed");
    best.textContent = model.get("best");
  }
  function drawPictures() {
    const names = Object.keys(model.get("variants")[model.get("variant")] ?? {});
    fillVariant(Object.keys(model.get("variants")));
    fillCase(model.get("cases"));
    fillX(names);
    fillY(names);
    menus.hidden = variantMenu.hidden && caseMenu.hidden;
    heatPanel.hidden = !model.get("heat").length;
    heatPanel.lastChild.textContent = `best ${model.get("unit")} over all values of the other parameters`;
    drawScatter(model, svg);
    svg.setAttribute("aria-label", `${model.get("points").length} attempts; arrow keys step through them`);
    drawHeat(model, table);
    drawLines(model, lines, quantiles);
    drawLegend(model, legend);
    detail.textContent = model.get("detail") || "Choose a point, by a click or the arrow keys, to read about it.";
  }
  const heads = ["title", "phase", "done", "total", "headline", "best"];
  const pictures = ["variant", "case", "x", "y", "points", "heat", "detail", "selected"];
  // An update changes many traits at once; it is drawn once.
  let asked = false;
  function drawSoon() {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      drawHead();
      drawPictures();
    });
  }
  for (const name of [...heads, ...pictures]) model.on(`change:${name}`, drawSoon);
  drawHead();
  drawPictures();
  return () => {
    for (const name of [...heads, ...pictures]) model.off(`change:${name}`, drawSoon);
  };
}

export default { render };

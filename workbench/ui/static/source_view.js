// The browser part of workbench.ui.source_widget: it draws `state` for `fact`, sends the selection to Python, and shows
// the `detail` that Python returns. It has no dependencies.

function element(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

// Comments are muted: // in CUDA, where # starts a preprocessor line, and # in Python, where // divides.
const COMMENTS = { cuda: /^(.*?)(\/\/.*)$/, python: /^(.*?)(#.*)$/ };

function codeOf(row) {
  const node = element("span", "sv-code");
  const parts = row.text.match(row.path.endsWith(".py") ? COMMENTS.python : COMMENTS.cuda);
  if (parts) node.append(parts[1], element("span", "sv-comment", parts[2]));
  else node.textContent = row.text || " ";
  return node;
}

function rowOf(colours, row) {
  if (row.head !== undefined) return element("div", "sv-head", row.head);
  if (row.skip !== undefined) return element("div", "sv-skip", `⋯ ${row.skip} lines without instructions`);
  const node = element("div", "sv-row");
  node.setAttribute("role", "option");
  node.dataset.line = row.line;
  node.dataset.path = row.path;
  const bar = element("span", "sv-bar");
  bar.append(element("span", "sv-fill"));
  node.style.setProperty("--sv-colour", colours.get(nameOf(row.path, row.line)) ?? "transparent");
  const number = element("span", "sv-number", row.line ? String(row.line) : "–");
  node.append(number, element("span", "sv-value"), bar, codeOf(row));
  return node;
}

// -- stages of the compiler: lines that come from a source line have its colour -----------------------------------

const COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C6D00", "#666666"];
const nameOf = (path, line) => `${path}:${line}`;

// Lines with facts take the colours in turn, so that neighbours differ.
function coloursOf(rows) {
  const active = rows.filter((row) => row.line && Object.keys(row.values).length);
  return new Map(active.map((row, at) => [nameOf(row.path, row.line), COLOURS[at % COLOURS.length]]));
}

function codeRowOf(colours, [text, path, line, runs]) {
  const node = element("div", "sv-code-row");
  node.dataset.line = line;
  node.dataset.path = path;
  node.style.setProperty("--sv-colour", colours.get(nameOf(path, line)) ?? "transparent");
  node.append(element("span", "sv-number", line ? String(line) : ""));
  if (runs !== null) node.append(element("span", "sv-runs", runs.toLocaleString("en-US")));
  node.append(element("span", "sv-code", text));
  return node;
}

function detailOf(detail) {
  const node = element("div");
  if (!detail.line) {
    node.append(element("div", "sv-hint", "Select a line to see its facts, its PTX and its machine code."));
    return node;
  }
  node.append(element("div", "sv-title", `${detail.file}:${detail.line}  ${detail.text.trim()}`));
  const facts = element("dl", "sv-facts");
  for (const [label, text] of detail.facts) facts.append(element("dt", "", label), element("dd", "", text));
  facts.append(element("dt", "", "machine code (static)"), element("dd", "", detail.sass));
  node.append(facts);
  for (const text of detail.findings) node.append(element("div", "sv-finding", `✗ ${text}`));
  const table = element("table", "sv-ptx");
  const head = element("tr");
  for (const name of ["PTX line", "ran", "instruction", "cost (of all that ran)"]) head.append(element("th", "", name));
  table.append(head);
  for (const row of detail.ptx) {
    const line = element("tr");
    const cells = [row.line, row.executions.toLocaleString("en-US"), row.text, row.cost];
    cells.forEach((cell, at) => line.append(element("td", at === 2 ? "sv-mono" : "", String(cell))));
    table.append(line);
  }
  node.append(detail.ptx.length ? table : element("div", "sv-hint", "No PTX instruction of this line ran."));
  return node;
}

function render({ model, el }) {
  const root = element("div", "sv-root");
  root.dataset.lmSuppressShortcuts = "true"; // JupyterLab would take arrows and Enter for its own commands
  const title = element("div", "sv-title");
  const choice = element("div", "sv-choice");
  choice.setAttribute("role", "radiogroup");
  choice.setAttribute("aria-label", "what the gutter shows");
  const meaning = element("div", "sv-hint");
  meaning.setAttribute("role", "status");
  const list = element("div", "sv-list");
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "source lines");
  list.tabIndex = 0;
  const stages = element("div", "sv-choice sv-stages");
  stages.setAttribute("role", "radiogroup");
  stages.setAttribute("aria-label", "stage of the compiler");
  const code = element("div", "sv-made");
  const detail = element("div", "sv-detail");
  root.append(title, choice, meaning, list, stages, code, detail);
  el.append(root);

  let colours = new Map();
  const send = (values) => {
    for (const [name, value] of Object.entries(values)) model.set(name, value);
    model.save_changes();
  };
  const select = (node) => send({ selected_file: node.dataset.path, selected_line: Number(node.dataset.line) });
  const selectable = () => [...list.querySelectorAll(".sv-row")].filter((node) => node.dataset.line !== "0");

  function drawState() {
    const state = model.get("state");
    title.textContent = state.title;
    choice.replaceChildren(
      ...state.facts.map((fact) => {
        const node = element("button", "sv-button", fact.label);
        node.type = "button";
        node.title = fact.meaning;
        node.dataset.fact = fact.name;
        node.setAttribute("role", "radio");
        node.addEventListener("click", () => send({ fact: fact.name }));
        return node;
      }),
    );
    colours = coloursOf(state.rows);
    list.replaceChildren(...state.rows.map((row) => rowOf(colours, row)));
    drawFact();
    drawSelection();
  }
  function drawFact() {
    const state = model.get("state");
    const fact = model.get("fact");
    meaning.textContent = state.facts.find((one) => one.name === fact)?.meaning ?? "";
    for (const node of choice.children) node.setAttribute("aria-checked", String(node.dataset.fact === fact));
    const widths = state.rows.map((row) => row.values?.[fact]?.[0].length ?? 0);
    list.style.setProperty("--sv-width", `${Math.max(0, ...widths) + 1}ch`);
    state.rows.forEach((row, at) => {
      if (!row.values) return;
      const [text, heat] = row.values[fact] ?? ["", 0];
      const node = list.children[at];
      node.querySelector(".sv-value").textContent = text;
      node.querySelector(".sv-fill").style.width = `${Math.round(1000 * heat) / 10}%`;
      node.style.setProperty("--sv-heat", `${Math.round(45 * heat)}%`);
      node.classList.toggle("sv-quiet", !text);
    });
  }
  function drawStages() {
    const known = model.get("stages"), shown = model.get("stage");
    stages.hidden = !known.length;
    stages.replaceChildren(
      element("span", "sv-hint", "compiled to:"),
      ...known.map(([name, label]) => {
        const node = element("button", "sv-button", label);
        node.type = "button";
        node.dataset.stage = name;
        node.setAttribute("role", "radio");
        node.setAttribute("aria-checked", String(name === shown));
        node.addEventListener("click", () => send({ stage: name === model.get("stage") ? "" : name }));
        return node;
      }),
    );
    root.classList.toggle("sv-linked", Boolean(shown));
  }
  function drawCode() {
    const rows = model.get("code");
    code.hidden = !rows.length;
    code.classList.toggle("sv-counted", rows.some((row) => row[3] !== null));
    code.replaceChildren(...rows.map((row) => codeRowOf(colours, row)));
    drawSelection();
  }
  function drawSelectedCode(line, path) {
    let first = null;
    for (const node of code.children) {
      const here = line !== "0" && node.dataset.line === line && (!path || node.dataset.path === path);
      node.classList.toggle("sv-chosen", here);
      if (here && !first) first = node;
    }
    if (!first) return;
    const [box, row] = [code.getBoundingClientRect(), first.getBoundingClientRect()];
    if (row.top < box.top || row.bottom > box.bottom) code.scrollTop += row.top - box.top - box.height / 4;
  }
  function drawSelection() {
    const [line, path] = [String(model.get("selected_line")), model.get("selected_file")];
    let chosen = null;
    drawSelectedCode(line, path);
    for (const node of list.querySelectorAll(".sv-row")) {
      const here = line !== "0" && node.dataset.line === line && (!path || node.dataset.path === path) && !chosen;
      node.setAttribute("aria-selected", String(here));
      if (here) chosen = node;
    }
    if (!chosen) return;
    const [box, row] = [list.getBoundingClientRect(), chosen.getBoundingClientRect()];
    if (row.top < box.top || row.bottom > box.bottom) list.scrollTop += row.top - box.top - box.height / 2;
  }
  const drawDetail = () => detail.replaceChildren(detailOf(model.get("detail")));

  code.addEventListener("click", (event) => {
    const node = event.target.closest(".sv-code-row");
    const known = node && [...list.querySelectorAll(".sv-row")].some(
      (row) => row.dataset.line === node.dataset.line && row.dataset.path === node.dataset.path);
    if (known && node.dataset.line !== "0") select(node);
  });
  list.addEventListener("click", (event) => {
    const node = event.target.closest(".sv-row");
    if (node && node.dataset.line !== "0") select(node);
  });
  list.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const nodes = selectable();
    const at = nodes.findIndex((node) => node.getAttribute("aria-selected") === "true");
    const next = nodes[at < 0 ? 0 : Math.min(nodes.length - 1, Math.max(0, at + step))];
    if (next) select(next);
  });
  const listeners = [["change:state", drawState], ["change:fact", drawFact], ["change:detail", drawDetail]];
  listeners.push(["change:selected_line", drawSelection], ["change:selected_file", drawSelection]);
  listeners.push(["change:stage", drawStages], ["change:stages", drawStages], ["change:code", drawCode]);
  for (const [event, draw] of listeners) model.on(event, draw);
  drawState();
  drawStages();
  drawCode();
  drawDetail();
  return () => {
    for (const [event, draw] of listeners) model.off(event, draw);
  };
}

export default { render };

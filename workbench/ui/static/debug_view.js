// The browser part of workbench.ui.debugger: it draws `state` and sends orders to Python. With a recorded `history` it
// needs no Python: it applies what each step changed. It has no dependencies.

// Name, key, text, what it does, and whether a recording can do it.
const BUTTONS = [
  ["start", "0", "start", "to the beginning", true],
  ["go_back", "g", "go back", "back to the latest stop: the text at the right, or the red lines", true],
  ["back", "ArrowLeft", "back", "back to the line before", true],
  ["step", "ArrowRight", "step", "to the next line of this warp", true],
  ["go", "G", "go", "to the next stop: the text at the right, or the red lines", true],
  ["to_end", "e", "end", "to the end", true],
  ["previous_instruction", ",", "− instruction", "back by an instruction", false],
  ["next_instruction", ".", "+ instruction", "on by an instruction", false],
  ["next_barrier", "b", "barrier", "to the next place where this warp waits", false],
  ["next_block", "n", "block", "to the beginning of the next block", false],
  ["last_write", "w", "last write", "back to what wrote the chosen element last", true],
];
const SHOWN_KEYS = { ArrowLeft: "←", ArrowRight: "→" };

function render({ model, el }) {
  const root = element("div", "dv-root");
  root.dataset.lmSuppressShortcuts = "true"; // JupyterLab would take the keys for its own commands
  root.tabIndex = 0;
  const states = statesOf(model.get("history") ?? []);
  const live = !states.length;
  let frame = 0, previous = null, state = live ? model.get("state") : states[0];
  let chosen = { target: "", lane: null }, toggled = live ? [] : state.stop_lines, open = false;

  const where = element("div", "dv-where"), bar = element("div", "dv-bar"), time = element("div", "dv-bar");
  const error = element("div", "dv-error"), panes = element("div", "dv-panes"), tables = element("div");
  error.setAttribute("role", "status");
  const source = element("div", "dv-source"), warps = element("div", "dv-warps");
  panes.append(source, warps);
  root.append(element("div", "dv-title", model.get("title")), where, bar, time, error, panes, tables);
  el.append(root);

  const text = element("input", "dv-text");
  text.placeholder = live ? "stop: 12 if lane == 3" : "stop: a line";
  text.setAttribute("aria-label", "where go and go back stop");
  const buttons = new Map();
  for (const [name, key, label, title, offline] of BUTTONS) {
    if (!live && !offline) continue;
    const node = element("button", "dv-button", label);
    node.type = "button";
    node.title = title;
    node.dataset.action = name;
    node.append(element("span", "dv-key", SHOWN_KEYS[key] ?? key));
    node.addEventListener("click", () => order(name));
    buttons.set(name, node);
    bar.append(node);
  }
  bar.append(text);
  const slider = element("input", "dv-time"), clock = element("span", "dv-hint");
  slider.type = "range";
  slider.min = 0;
  slider.setAttribute("aria-label", live ? "instruction" : "step");
  time.append(slider, clock);

  // -- orders: to Python, or within the recorded states -------------------------------------------------------------
  function say(words) {
    error.textContent = words;
    error.hidden = !words;
  }
  function send(values) {
    say("");
    model.set("command", { ...values, number: (model.get("command")?.number ?? 0) + 1 });
    model.save_changes();
  }
  function order(name) {
    if (live) {
      if (name === "start") send({ do: "goto", index: 0 });
      else if (name === "last_write") {
        if (chosen.target) send({ do: name, text: chosen.target, ...(chosen.lane === null ? {} : { lane: chosen.lane }) });
        else say("Click an element, a variable or a register first.");
      } else send({ do: name, ...(name.startsWith("go") ? { text: text.value } : {}) });
      return;
    }
    const last = states.length - 1;
    const to = { start: () => 0, to_end: () => last, step: () => frame + 1, back: () => frame - 1,
      go: () => found(1), go_back: () => found(-1), last_write: written }[name]();
    if (to !== undefined) show(Math.min(last, Math.max(0, to)));
  }
  function found(direction) {
    const lines = text.value.trim() ? [Number(text.value)] : toggled.map((one) => one[1]);
    if (lines.some((line) => !Number.isInteger(line))) {
      say("A recording stops at lines: write a number.");
      return undefined;
    }
    for (let at = frame + direction; at >= 0 && at < states.length; at += direction)
      if (lines.includes(states[at].line)) return at;
    return direction > 0 ? states.length - 1 : 0;
  }
  function written() {
    if (!chosen.target) {
      say("Click an element or a variable first.");
      return undefined;
    }
    for (let at = frame; at > 0; at -= 1) {
      const after = valueOf(states[at], chosen.target);
      if (after !== undefined && after !== valueOf(states[at - 1], chosen.target)) return at - 1;
    }
    say(`${chosen.target} does not change between the first step of the recording and this one.`);
    return undefined;
  }
  function show(at) {
    previous = state;
    frame = at;
    state = states[at];
    say("");
    draw();
  }

  // -- drawing ------------------------------------------------------------------------------------------------------
  function drawSource() {
    const files = model.get("source"), path = files[state.path] ? state.path : source.dataset.path ?? Object.keys(files)[0];
    const file = files[path];
    if (!file) {
      source.replaceChildren(element("div", "dv-hint", state.ptx || "The compiler names no source lines."));
      return;
    }
    if (source.dataset.path !== path) {
      source.dataset.path = path;
      source.replaceChildren(...file.lines.map((code, at) => {
        const number = file.first + at, node = element("div", "dv-line");
        node.dataset.line = number;
        node.classList.toggle("dv-coded", file.code.includes(number));
        node.append(element("span", "dv-number", String(number)), element("span", "dv-at"), element("span", "dv-code", code || " "));
        return node;
      }));
    }
    const stops = live ? state.stop_lines : toggled;
    for (const node of source.children) {
      const line = Number(node.dataset.line);
      const here = state.warps.filter((warp) => warp.groups.some((one) => one.path === path && one.line === line));
      const numbers = here.map((one) => one.warp).join(" ");
      node.querySelector(".dv-at").textContent = numbers ? `w ${numbers}` : "";
      node.querySelector(".dv-at").title = numbers ? `warps ${numbers} stand here` : "";
      node.classList.toggle("dv-here", state.line === line && state.path === path && state.warp >= 0);
      node.classList.toggle("dv-stop", stops.some((one) => path.endsWith(one[0]) && one[1] === line));
    }
    const current = source.querySelector(".dv-here");
    if (!current) return;
    const [box, row] = [source.getBoundingClientRect(), current.getBoundingClientRect()];
    if (row.top < box.top || row.bottom > box.bottom) source.scrollTop += row.top - box.top - box.height / 2;
  }
  function drawWarps() {
    const rows = state.warps.map((warp) => {
      const node = element("div", "dv-warp"), mine = warp.warp === state.warp;
      node.dataset.warp = warp.warp;
      node.setAttribute("aria-selected", String(warp.warp === state.shown));
      const lines = warp.groups.map((one) => `${one.line || "PTX"}${one.waits ? ` (${one.waits})` : ""}`);
      node.append(element("span", "", `warp ${warp.warp}`), strip(warp, mine ? state.lanes : 0));
      node.append(element("span", "", lines.length ? `line ${lines.join(", ")}` : "ended"));
      return node;
    });
    const legend = "blue: lanes that execute; orange: lanes that stand elsewhere; empty: ended";
    warps.replaceChildren(...rows, element("div", "dv-hint", rows.length ? legend : "No block runs: the launch has ended."),
      ...state.waits.map((one) => element("div", "dv-error", one)),
      ...(live && state.stops.length ? [element("div", "dv-hint", `stops: ${state.stops.join("; ")}`)] : []));
  }
  function arrows(name, data) {
    const moves = [["▲", -data.cells.length / data.columns, 0], ["▼", 16, 0], ["◀", 0, -32], ["▶", 0, 32]];
    const rows = Math.ceil(data.cells.length / data.columns);
    const possible = [data.row > 0, data.row + rows < data.height, data.column > 0, data.column + data.columns < data.width];
    return moves.filter((_, at) => live && possible[at]).map(([label, down, right]) => {
      const node = element("button", "dv-button", label);
      node.type = "button";
      const [row, column] = [data.row + (down < 0 ? -16 : down), data.column + right];
      node.addEventListener("click", () => send({ do: "window", name, row, column }));
      return node;
    });
  }
  function section(title, hint, table, ...more) {
    const head = element("div", "dv-head"), box = element("div", "dv-frame");
    head.append(element("span", "", title), element("span", "dv-hint", hint), ...more);
    box.append(table);
    return [head, box];
  }
  function drawTables() {
    const scrolled = [...tables.querySelectorAll(".dv-frame")].map((one) => [one.scrollTop, one.scrollLeft]);
    const before = previous ?? state, comparable = before.shown === state.shown && String(before.block) === String(state.block);
    const old = comparable ? before : { variables: {}, registers: {}, shared: {} };
    const lanes = state.shown === state.warp ? state.lanes : state.warps[state.shown]?.groups[0]?.lanes ?? 0;
    const parts = [];
    if (state.warps.length) {
      parts.push(...section("Variables", `of warp ${state.shown}; orange: changed by the last command`,
        lanesTable(state.variables, old.variables, lanes)));
      if (Object.keys(state.registers).length) {
        const box = element("details"), inner = element("div", "dv-frame");
        box.open = open;
        box.addEventListener("toggle", () => (open = box.open));
        inner.append(lanesTable(state.registers, old.registers, lanes));
        box.append(element("summary", "", `Registers without a name (${Object.keys(state.registers).length})`), inner);
        parts.push(box);
      }
    }
    for (const [name, data] of Object.entries(state.arrays))
      parts.push(...section(name, `${data.dtype}, ${data.shape.join(" x ") || "a number"}`,
        memoryTable(name, data, before.arrays[name]), ...arrows(name, data)));
    for (const [name, data] of Object.entries(state.shared)) {
      const more = arrows(name, data);
      if (live) more.push(dtypeChoice(data.dtype));
      parts.push(...section(name, `shared memory of the block, as ${data.dtype}`, memoryTable(name, data, old.shared[name]), ...more));
    }
    tables.replaceChildren(...parts);
    [...tables.querySelectorAll(".dv-frame")].forEach((one, at) => {
      [one.scrollTop, one.scrollLeft] = scrolled[at] ?? [0, 0];
    });
    drawChosen();
  }
  function dtypeChoice(dtype) {
    const node = element("select", "dv-select");
    node.setAttribute("aria-label", "type of shared memory");
    for (const name of ["float32", "float16", "bfloat16", "int32", "uint32"]) node.append(element("option", "", name));
    node.value = dtype;
    node.addEventListener("change", () => send({ do: "dtype", text: node.value }));
    return node;
  }
  function drawChosen() {
    for (const node of tables.querySelectorAll("[data-target]"))
      node.classList.toggle("dv-chosen", node.dataset.target === chosen.target
        && (chosen.lane === null || node.dataset.lane === String(chosen.lane)));
    const button = buttons.get("last_write"), lane = chosen.lane === null ? "" : `, lane ${chosen.lane}`;
    button.firstChild.textContent = chosen.target ? `last write of ${chosen.target}${lane}` : "last write";
  }
  function draw() {
    const why = state.why ? ` (${state.why})` : "";
    where.textContent = state.warp < 0 ? `${state.status} after ${state.index.toLocaleString("en-US")} instructions${why}`
      : `${state.place}${why}: block (${state.block.join(", ")}), warp ${state.warp}`;
    if (state.warp >= 0) where.append(element("div", "dv-hint", state.ptx));
    slider.max = live ? model.get("furthest") : states.length - 1;
    slider.value = live ? state.index : frame;
    const count = state.index.toLocaleString("en-US");
    clock.textContent = live ? `instruction ${count}` : `step ${frame} of ${states.length - 1}, instruction ${count}`;
    buttons.get("back").disabled = buttons.get("start").disabled = !live && frame === 0;
    buttons.get("step").disabled = buttons.get("to_end").disabled = live ? state.status === "ended" : frame === states.length - 1;
    drawSource();
    drawWarps();
    drawTables();
  }

  // -- mouse and keys -----------------------------------------------------------------------------------------------
  source.addEventListener("click", (event) => {
    const node = event.target.closest(".dv-coded");
    if (!node) return;
    const [path, line] = [source.dataset.path, Number(node.dataset.line)];
    if (live) {
      send({ do: "toggle", path, line });
      return;
    }
    const rest = toggled.filter((one) => one[1] !== line || one[0] !== path);
    toggled = rest.length < toggled.length ? rest : [...toggled, [path, line]];
    drawSource();
  });
  warps.addEventListener("click", (event) => {
    const node = event.target.closest(".dv-warp");
    if (node && live) send({ do: "warp", warp: Number(node.dataset.warp) });
  });
  tables.addEventListener("click", (event) => {
    const node = event.target.closest("[data-target]");
    if (!node) return;
    chosen = { target: node.dataset.target, lane: node.dataset.lane === undefined ? null : Number(node.dataset.lane) };
    drawChosen();
  });
  slider.addEventListener("change", () => (live ? send({ do: "goto", index: Number(slider.value) }) : show(Number(slider.value))));
  root.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.target === text) {
      if (event.key === "Enter") order(event.shiftKey ? "go_back" : "go");
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.target === slider || event.target.tagName === "SELECT") return;
    const name = BUTTONS.find((one) => one[1] === event.key)?.[0];
    if (!name || !buttons.has(name) || buttons.get(name).disabled) return;
    event.preventDefault();
    order(name);
  });

  const drawState = () => {
    previous = state;
    state = model.get("state");
    draw();
  };
  const drawMessage = () => say(model.get("message"));
  const listeners = live ? [["change:state", drawState], ["change:message", drawMessage]] : [];
  for (const [event, tell] of listeners) model.on(event, tell);
  say(live ? model.get("message") : "");
  draw();
  return () => {
    for (const [event, tell] of listeners) model.off(event, tell);
  };
}

export default { render };

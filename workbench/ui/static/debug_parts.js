// Parts of debug_view.js, which follows this text in one module: recorded states, names of elements, tables.

function element(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

// -- recorded states: workbench.ui.debugger.history.difference says what a change is -------------------------------

function changed(before, change) {
  const after = Array.isArray(before) ? [...before] : { ...before };
  for (const [key, value] of Object.entries(change)) {
    const part = value !== null && typeof value === "object" && !Array.isArray(value);
    if (value === null) delete after[key];
    else if (part && after[key] !== null && typeof after[key] === "object") after[key] = changed(after[key], value);
    else after[key] = value;
  }
  return after;
}

function statesOf(history) {
  const states = history.slice(0, 1);
  for (const change of history.slice(1)) states.push(changed(states.at(-1), change));
  return states;
}

// -- names of elements -----------------------------------------------------------------------------------------------

function elementName(name, table, flat) {
  if (table.offset !== undefined) {
    const begin = table.offset + flat * table.bytes;
    return `shared[${begin}:${begin + table.bytes}]`;
  }
  const index = [];
  for (const extent of [...table.shape].reverse()) {
    index.unshift(flat % extent);
    flat = Math.floor(flat / extent);
  }
  return index.length ? `${name}[${index.join(", ")}]` : name;
}

function flatOf(table, cell) {
  return (table.row + Math.floor(cell / table.columns)) * table.width + table.column + (cell % table.columns);
}

// The text of what `target` names in a state; undefined where it is not there.
function valueOf(state, target) {
  for (const [name, table] of Object.entries({ ...state.arrays, ...state.shared })) {
    const cell = table.cells.findIndex((_, at) => elementName(name, table, flatOf(table, at)) === target);
    if (cell >= 0) return table.cells[cell];
  }
  return (state.variables[target] ?? state.registers[target])?.values.join(" ");
}

// -- parts of the view -----------------------------------------------------------------------------------------------

const at32 = (row, lane) => row.values[row.values.length === 1 ? 0 : lane];
const has = (mask, lane) => Math.floor(mask / 2 ** lane) % 2 === 1;
const LANES = [...Array(32).keys()];

function lanesTable(rows, before, lanes) {
  const table = element("table", "dv-table"), head = element("tr"), top = element("thead"), body = element("tbody");
  head.append(element("th", "", "lane"));
  for (const lane of LANES) head.append(element("th", has(lanes, lane) ? "dv-lit" : "", String(lane)));
  top.append(head);
  for (const [name, row] of Object.entries(rows)) {
    const line = element("tr"), label = element("th", "", name), old = before[name];
    label.dataset.target = name;
    label.title = `${row.register}, ${row.type}${row.place ? `, written at ${row.place}` : ""}`;
    line.append(label);
    const one = row.values.length === 1;
    for (const lane of one ? [0] : LANES) {
      const cell = element("td", "", at32(row, lane) + (one ? " in all lanes" : ""));
      if (one) cell.colSpan = 32;
      cell.classList.toggle("dv-same", one);
      cell.classList.toggle("dv-quiet", !one && !has(lanes, lane));
      cell.classList.toggle("dv-changed", Boolean(old) && (one ? old.values.join() !== row.values.join()
        : at32(old, lane) !== at32(row, lane)));
      cell.dataset.target = name;
      if (!one) cell.dataset.lane = lane;
      line.append(cell);
    }
    body.append(line);
  }
  table.append(top, body);
  return table;
}

function memoryTable(name, data, before) {
  const table = element("table", "dv-table"), head = element("tr"), top = element("thead"), body = element("tbody");
  const same = before && before.row === data.row && before.column === data.column && before.dtype === data.dtype;
  head.append(element("th", "", ""));
  for (let at = 0; at < data.columns; at += 1) head.append(element("th", "", String(data.column + at)));
  top.append(head);
  for (let at = 0; at < data.cells.length; at += data.columns) {
    const line = element("tr"), index = elementName(name, data, flatOf(data, at));
    const label = data.shape.length > 1 ? index.replace(/, \d+\]$/, "]") : index;
    line.append(element("th", "", label));
    data.cells.slice(at, at + data.columns).forEach((text, column) => {
      const cell = element("td", "", text);
      cell.classList.toggle("dv-changed", Boolean(same) && before.cells[at + column] !== text);
      cell.dataset.target = cell.title = elementName(name, data, flatOf(data, at + column));
      line.append(cell);
    });
    body.append(line);
  }
  table.append(top, body);
  return table;
}

function strip(warp, current) {
  const node = element("span", "dv-strip");
  for (const lane of LANES) {
    const group = warp.groups.find((one) => has(one.lanes, lane));
    const kind = has(current, lane) ? "dv-on" : group ? "dv-off" : "dv-gone";
    node.append(element("span", `dv-lane ${kind}`));
  }
  return node;
}

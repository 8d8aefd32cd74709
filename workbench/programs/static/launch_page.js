// The page of `workbench run --trace`: a row of the table opens its launch in the source view. The file holds all data.

function modelOf(view) {
  // The compiler's stages are left out, as they would be most of the page: the details of a line have its PTX.
  const data = { state: view.state, fact: "instructions", selected_line: 0, selected_file: "", detail: {}, stage: "",
    stages: [], code: [] };
  if (view.state.findings) data.fact = "findings";
  const listeners = {};
  const tell = (name) => (listeners[`change:${name}`] ?? []).forEach((one) => one());
  return {
    get: (name) => data[name],
    set: (name, value) => {
      data[name] = value;
      tell(name);
    },
    save_changes: () => {
      const found = view.details[`${data.selected_file}:${data.selected_line}`];
      const row = view.state.rows.find((one) => one.line === data.selected_line && one.path === data.selected_file);
      const name = data.selected_file.split("/").pop();
      data.detail = found ?? (row ? { line: row.line, file: name, text: row.text, facts: [], ptx: [], findings: [],
        sass: "" } : {});
      tell("detail");
    },
    on: (event, call) => (listeners[event] ??= []).push(call),
    off: (event, call) => (listeners[event] = (listeners[event] ?? []).filter((one) => one !== call)),
  };
}

const rows = [...document.querySelectorAll(".launches tbody tr")];
const place = document.getElementById("view");

function open(row) {
  const view = views[row.dataset.view];
  if (!view) return;
  for (const one of rows) one.setAttribute("aria-selected", String(one === row));
  place.replaceChildren();
  sourceView.render({ model: modelOf(view), el: place });
}

for (const row of rows) {
  row.addEventListener("click", () => open(row));
  row.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      open(row);
    }
  });
}
const first = rows.find((row) => views[row.dataset.view]);
if (first) open(first);

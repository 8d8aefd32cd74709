// A source view on a page without Python: the page holds the data, and the details of each line are looked up there.

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

function showSource(place, view) {
  place.replaceChildren();
  sourceView.render({ model: modelOf(view), el: place });
}

// Each place with a view of its own has its data in the script element that follows.
for (const place of document.querySelectorAll(".source-view")) {
  showSource(place, JSON.parse(place.nextElementSibling.textContent));
}

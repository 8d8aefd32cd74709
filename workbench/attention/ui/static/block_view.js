// The browser part of workbench.attention.ui.cache.block_view: it draws `state` and sends the buttons to Python. It has
// no dependencies.

function element(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

const STYLES = 8;
const MOST_SHADES = 3; // reference counts 0, 1, 2, and 3 or more have a frame each
const styleOf = (owner) => `bv-owner bv-s${owner.style % STYLES}`;

function button(model, text, hint, action, args) {
  const node = element("button", "bv-button", text);
  node.type = "button";
  node.title = hint;
  node.setAttribute("aria-label", `${text}: ${hint}`);
  node.dataset.action = action;
  node.addEventListener("click", () => model.send({ action, arguments: args() }));
  return node;
}

function sequenceRow(model, seq) {
  const row = element("div", "bv-seq");
  row.dataset.seq = seq.name;
  row.setAttribute("role", "group");
  row.setAttribute("aria-label", `sequence ${seq.name}`);
  const name = element("span", "bv-name");
  name.append(element("span", `bv-chip ${styleOf(seq)}`), element("b", "", seq.name));
  const plural = seq.num_tokens === 1 ? "" : "s";
  const length = element("span", "bv-length", `${seq.num_tokens} token${plural}${seq.swapped ? ", on the host" : ""}`);
  const table = element("span", "bv-table");
  for (const block of seq.blocks) {
    const physical = block.physical === null ? "freed" : `${seq.swapped ? "host " : ""}${block.physical}`;
    const cell = element("span", `bv-logical bv-b${seq.style % STYLES}`, `${block.logical} → ${physical}`);
    cell.title = `logical block ${block.logical} is physical block ${physical}`;
    table.append(cell);
  }
  const buttons = element("span", "bv-buttons");
  const self = () => [seq.name];
  buttons.append(
    button(model, "append", `one more token for ${seq.name}`, "append", self),
    button(model, "fork", `a new sequence that shares the blocks of ${seq.name}`, "fork", self),
    seq.swapped
      ? button(model, "swap in", `move ${seq.name} back to the device`, "swap_in", self)
      : button(model, "swap out", `move ${seq.name} to the host`, "swap_out", self),
    button(model, "free", `end ${seq.name}`, "free", self),
  );
  row.append(name, length, ...(model.get("controls") ? [buttons] : []), table);
  return row;
}

function blockCard(block, size, label, changed) {
  const count = Math.min(block.references, MOST_SHADES);
  const card = element("div", `bv-block bv-count${count}${changed ? " bv-changed" : ""}`);
  card.dataset.block = block.number;
  const slots = element("div", "bv-slots");
  for (let slot = 0; slot < size; slot += 1) {
    const cell = element("span", "bv-slot");
    if (slot < block.filled) {
      if (!block.owners.length) cell.classList.add("bv-cached");
      for (const owner of block.owners) cell.append(element("span", styleOf(owner)));
    }
    slots.append(cell);
  }
  const names = block.owners.map((owner) => owner.name).join(", ");
  const refs = `${block.references} ref${block.references === 1 ? "" : "s"}`;
  const owned = names ? `${names} (${refs})` : block.cached ? "cached (0 refs)" : "free";
  card.append(
    element("div", "bv-number", `${label} ${block.number}${changed ? " ✎" : ""}`),
    slots,
    element("div", names ? "bv-refs" : "bv-refs bv-free", owned),
  );
  card.title = `${label} ${block.number}: ${block.filled} of ${size} slots hold a token; ${owned}`;
  return card;
}

function legend() {
  const node = element("div", "bv-legend");
  const entry = (className, text) => {
    const mark = element("span", `bv-mark ${className}`);
    node.append(mark, element("span", "bv-meaning", text));
  };
  entry("bv-count1", "one owner");
  entry("bv-count2", "two share it");
  entry("bv-count3", "three or more");
  entry("bv-cached", "cached, nobody's");
  entry("bv-changed", "written or taken by the last call (✎)");
  return node;
}

// All rows are replaced after each call, but the keyboard focus stays on the button that was pressed. If its sequence is
// gone, the focus goes to the same button of the next row, or else to the button for a new sequence.
function keepFocus(root, container, draw) {
  const active = root.getRootNode().activeElement;
  const held = container.contains(active);
  const place = held && [...container.children].indexOf(active.closest(".bv-seq"));
  const column = held && [...active.parentElement.children].indexOf(active);
  const name = held && active.closest(".bv-seq").dataset.seq;
  draw();
  if (!held) return;
  const rows = [...container.querySelectorAll(".bv-seq")];
  const row = rows.find((one) => one.dataset.seq === name) ?? rows[Math.min(place, rows.length - 1)];
  (row?.querySelectorAll(".bv-button")[column] ?? root.querySelector(".bv-button")).focus({ preventScroll: true });
}

function render({ model, el }) {
  const root = element("div", "bv-root");
  root.dataset.lmSuppressShortcuts = "true"; // JupyterLab would take Enter, and letters, for its own commands
  const toolbar = element("div", "bv-toolbar");
  const tokens = element("input", "bv-tokens");
  Object.assign(tokens, { type: "number", min: 1, value: model.get("state").block_size + 2 });
  tokens.setAttribute("aria-label", "tokens of the new sequence's prompt");
  const allocate = button(model, "new sequence", "allocate a sequence", "allocate", () => [Number(tokens.value)]);
  if (model.get("controls")) {
    toolbar.append(allocate, element("span", "", "with a prompt of "), tokens, element("span", "", " tokens"));
  }
  const free = element("span", "bv-left");
  toolbar.append(free);
  const message = element("div", "bv-message");
  message.setAttribute("role", "status");
  const sequences = element("div", "bv-sequences");
  const device = element("div", "bv-memory");
  const hostTitle = element("div", "bv-title", "host memory (swap space)");
  const host = element("div", "bv-memory");
  const title = element("div", "bv-title", "device memory (physical blocks)");
  root.append(toolbar, message, element("div", "bv-title", "block tables (logical → physical)"), sequences, title);
  root.append(device, hostTitle, host, legend());
  el.append(root);

  function drawState() {
    const state = model.get("state");
    const changed = new Set(model.get("changed"));
    const rows = state.sequences.map((seq) => sequenceRow(model, seq));
    keepFocus(root, sequences, () =>
      sequences.replaceChildren(...(rows.length ? rows : [element("div", "bv-free", "no sequences")])),
    );
    const card = (label) => (block) =>
      blockCard(block, state.block_size, label, label === "block" && changed.has(block.number));
    device.replaceChildren(...state.blocks.map(card("block")));
    host.replaceChildren(...state.host_blocks.map(card("host")));
    hostTitle.hidden = !state.host_blocks.length;
    free.textContent = `${state.num_free_blocks} of ${state.blocks.length} blocks free`;
  }
  function drawMessage() {
    message.textContent = model.get("message");
    message.classList.toggle("bv-refused", model.get("refused"));
  }
  const listeners = [["change:state", drawState], ["change:changed", drawState]];
  listeners.push(["change:message", drawMessage], ["change:refused", drawMessage]);
  for (const [event, draw] of listeners) model.on(event, draw);
  drawState();
  drawMessage();
  return () => {
    for (const [event, draw] of listeners) model.off(event, draw);
  };
}

export default { render };

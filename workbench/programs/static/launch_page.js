// The page of `workbench run --trace`: a row of the table opens its launch in the source view. The file holds all data.

const rows = [...document.querySelectorAll(".launches tbody tr")];
const views = JSON.parse(document.getElementById("views").textContent);
const place = document.getElementById("view");

function open(row) {
  const view = views[row.dataset.view];
  if (!view) return;
  for (const one of rows) one.setAttribute("aria-selected", String(one === row));
  showSource(place, view);
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

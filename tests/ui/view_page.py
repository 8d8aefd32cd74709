"""The browser's half of a view, alone in a page, with a model that only remembers what it is told."""

from __future__ import annotations

import json

_PAGE = """<html><body style="width:900px"><style>%(css)s</style><div id="view"></div><script type="module">
const data = %(data)s, listeners = {};
window.sent = [];
window.model = {
  get: (name) => data[name],
  set: (name, value) => { data[name] = value; (listeners["change:" + name] || []).forEach((tell) => tell()); },
  save_changes: () => window.sent.push({ ...data }),
  on: (event, tell) => { (listeners[event] = listeners[event] || []).push(tell); },
  off: (event, tell) => { listeners[event] = (listeners[event] || []).filter((one) => one !== tell); },
};
const url = URL.createObjectURL(new Blob([%(esm)s], { type: "text/javascript" }));
const module = await import(url);
window.done = module.default.render({ model: window.model, el: document.getElementById("view") });
window.left = () => Object.values(listeners).flat().length;
</script></body></html>"""


def show_view(page, view) -> None:
    """Show an anywidget view with its present state.

    In the page ``model`` stands for Python, ``sent`` has the state each time that the view sent it there, ``done()``
    closes the view, and ``left()`` counts what still listens.
    """
    state = {name: getattr(view, name) for name in view.trait_names(sync=True) if name[0] != "_"}
    texts = (json.dumps(value, default=str).replace("</", "<\\/") for value in (state, str(view._esm)))
    page.set_content(_PAGE % {"css": view._css, **dict(zip(("data", "esm"), texts, strict=True))})

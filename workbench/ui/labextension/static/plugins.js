// Three plugins of JupyterLab, written as the module-federation container that it loads, so no bundler is needed: the tokens
// come from the shared scope.
//
// Cells that begin with %%cuda are highlighted and indented as C++. JupyterLab assigns the kernel's language to all code
// cells; the first plugin gives such a cell's model another MIME type, which the editor follows. The second adds the start
// page to the launcher, in servers that have it; the third has pictures follow the theme.
(() => {
  const CUDA = /^\s*%%cuda(\s|$)/;
  const CPP = "text/x-c++src";

  function colour(notebook, model) {
    const isCuda = CUDA.test(model.sharedModel.getSource());
    if (isCuda && model.mimeType !== CPP) {
      model.mimeType = CPP;
    } else if (!isCuda && model.mimeType === CPP) {
      model.mimeType = notebook.codeMimetype;
    }
  }

  function watchNotebook(notebook) {
    const watched = new WeakSet();
    const watchCells = () => {
      for (const model of notebook.model?.cells ?? []) {
        if (model.type !== "code" || watched.has(model)) {
          continue;
        }
        watched.add(model);
        const again = () => colour(notebook, model);
        model.contentChanged.connect(again);
        model.mimeTypeChanged.connect(again); // the kernel's language arrives after the cells
        again();
      }
    };
    const watchModel = () => {
      notebook.model?.cells.changed.connect(watchCells);
      watchCells();
    };
    notebook.modelChanged.connect(watchModel);
    watchModel();
  }

  // Saved pictures follow the theme also where their own style sheet is taken away: in notebooks that nobody has trusted.
  function followTheme() {
    const style = document.createElement("style");
    style.textContent = "[data-jp-theme-light=false] img.workbench { color-scheme: dark }";
    document.head.append(style);
  }

  const START = ["00_start.ipynb", "notebooks/00_start.ipynb"];

  // Add the first start page that the server has to the launcher.
  async function offerStart(app, launcher) {
    for (const path of START) {
      const found = await app.serviceManager.contents.get(path, { content: false }).catch(() => null);
      if (found === null) {
        continue;
      }
      const command = "kernel-workbench:start";
      app.commands.addCommand(command, {
        label: "Start: a kernel, from wrong to tuned",
        caption: `Open ${path}`,
        execute: () => app.commands.execute("docmanager:open", { path }),
      });
      launcher.add({ command, category: "Kernel workbench" });
      return;
    }
  }

  // A module of the shared scope, in the version of whichever package provides it.
  async function shared(scope, name) {
    const [provided] = Object.values(scope[name]);
    return (await provided.get())();
  }

  let scope;
  const container = {
    init(sharedScope) {
      scope = sharedScope;
    },
    async get(module) {
      if (module !== "./extension") {
        throw new Error(`kernel-workbench has no module ${module}`);
      }
      const { INotebookTracker } = await shared(scope, "@jupyterlab/notebook");
      const plugin = {
        id: "kernel-workbench:cuda-cells",
        description: "Colours cells of %%cuda as C++.",
        autoStart: true,
        requires: [INotebookTracker],
        activate(app, tracker) {
          tracker.forEach((panel) => watchNotebook(panel.content));
          tracker.widgetAdded.connect((_, panel) => watchNotebook(panel.content));
        },
      };
      const { ILauncher } = await shared(scope, "@jupyterlab/launcher");
      const start = {
        id: "kernel-workbench:start",
        description: "Adds the start page to the launcher.",
        autoStart: true,
        optional: [ILauncher], // a page of a single document has none
        activate: (app, launcher) => void (launcher && offerStart(app, launcher)),
      };
      const pictures = {
        id: "kernel-workbench:pictures",
        description: "Has pictures follow the theme.",
        autoStart: true,
        activate: followTheme,
      };
      return () => ({ __esModule: true, default: [plugin, start, pictures] });
    },
  };
  window._JUPYTERLAB = window._JUPYTERLAB ?? {};
  window._JUPYTERLAB["kernel-workbench"] = container;
})();

// Cells that begin with %%cuda are highlighted and indented as C++. JupyterLab assigns the kernel's language to all code
// cells; this extension gives such a cell's model another MIME type, which the editor follows. It is written as the
// module-federation container that JupyterLab loads, so no bundler is needed: the token of the notebook comes from the
// shared scope.
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
      return () => ({ __esModule: true, default: plugin });
    },
  };
  window._JUPYTERLAB = window._JUPYTERLAB ?? {};
  window._JUPYTERLAB["kernel-workbench"] = container;
})();

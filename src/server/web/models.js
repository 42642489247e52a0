// The models of a server with several: which are in memory, according to /metrics.
import {el} from "./dom.js";

const sample = /^sluice:model_(loaded|memory_bytes|waiting_requests)\{model_name="((?:[^"\\]|\\.)*)"\} (\S+)$/gm;
const escapes = {n: "\n"};

// [{name, loaded, memory_bytes, waiting_requests}], in the order of the text; [] if there is only one model.
export function modelsOf(text) {
  const models = new Map();
  for (const [, what, escaped, word] of text.matchAll(sample)) {
    const name = escaped.replace(/\\(.)/g, (_, letter) => escapes[letter] ?? letter);
    if (!models.has(name)) models.set(name, {name});
    models.get(name)[what] = Number(word);
  }
  return [...models.values()];
}

// Shows a line for each model: its name, whether it is loaded, and the number of requests that wait for it.
export class ModelsView {
  // Becomes the first child of `container` if there are several models. `size(bytes)` formats a size.
  constructor(container, size) {
    this.container = container;
    this.size = size;
    this.list = el("ul", {class: "models"});
    this.root = el("section", {class: "card", "aria-label": "Models"}, el("h3", {}, "Models"), this.list);
  }

  take(text) {
    const models = modelsOf(text);
    if (models.length === 0) return;
    if (!this.root.isConnected) this.container.prepend(this.root);
    this.list.replaceChildren(...models.map((model) => {
      const state = model.loaded ? `loaded, ${this.size(model.memory_bytes)}` : model.memory_bytes ? "loading" : "not loaded";
      const waiting = model.waiting_requests ? `, ${model.waiting_requests} waiting` : "";
      return el("li", {}, model.name, " ", el("span", {class: "small"}, state + waiting));
    }));
  }
}

// The models of a server that has several: which are in memory, as /metrics tells it.
import {el} from "./dom.js";

const sample = /^sluice:model_(loaded|memory_bytes|waiting_requests)\{model_name="((?:[^"\\]|\\.)*)"\} (\S+)$/gm;
const escapes = {n: "\n"};

// [{name, loaded, memory_bytes, waiting_requests}], in the order of the text; [] where there is one model.
export function modelsOf(text) {
  const models = new Map();
  for (const [, what, escaped, word] of text.matchAll(sample)) {
    const name = escaped.replace(/\\(.)/g, (_, letter) => escapes[letter] ?? letter);
    if (!models.has(name)) models.set(name, {name});
    models.get(name)[what] = Number(word);
  }
  return [...models.values()];
}

// A line for each: its name, whether it is loaded, and who waits for it.
export class ModelsView {
  // It comes first in `container` where there are several models. `size(bytes)` is the text of a size.
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

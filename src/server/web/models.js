// The models of a server with several: which are in memory, according to /metrics.

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

// The line of a model: whether it is loaded, and the number of requests that wait for it. `size(bytes)` formats a size.
export function lineOfModel(model, size) {
  const state = model.loaded ? `loaded, ${size(model.memory_bytes)}` : model.memory_bytes ? "loading" : "not loaded";
  return [model.name, state + (model.waiting_requests ? `, ${model.waiting_requests} waiting` : "")];
}

// /docs: a form for each route, which sends the request and shows the response.
import {byId, el} from "./dom.js";
import {exampleOf} from "./example.js";

// The page is at BASE/docs; its files are below BASE/docs/.
const base = new URL("..", import.meta.url);
const shownCharacters = 100_000;

let description = null;

async function describe() {
  description ??= fetch(new URL("openapi.json", base), {headers: keyHeader()}).then((response) => {
    if (!response.ok) throw new Error(`openapi.json: ${response.status}`);
    return response.json();
  }).catch((error) => {
    description = null;
    throw error;
  });
  return description;
}

const keyHeader = () => byId("key").value ? {Authorization: `Bearer ${byId("key").value}`} : {};

async function modelName() {
  try {
    const response = await fetch(new URL("v1/models", base), {headers: keyHeader()});
    return (await response.json()).data[0].id;
  } catch {
    return "";
  }
}

async function buildForm(route) {
  const {path, methods} = route.dataset;
  const place = el("div", {class: "try"});
  route.append(place);
  try {
    const api = await describe();
    const method = el("select", {"aria-label": "Method"}, ...methods.split(" ").map((name) => el("option", {}, name)));
    const parameters = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => (
      el("input", {name, required: true, spellcheck: "false", "aria-label": name})));
    const schema = api.paths[path]?.post?.requestBody?.content["application/json"].schema;
    const body = schema && el("textarea", {rows: 10, spellcheck: "false",
                                           value: JSON.stringify(exampleOf(path, schema, api, await modelName()), null, 2)});
    const answer = el("div", {class: "answer"});
    const form = el("form", {onsubmit: (event) => {
      event.preventDefault();
      const filled = parameters.reduce((text, field) => text.replace(`{${field.name}}`, encodeURIComponent(field.value)), path);
      send(form, method.value, filled, body?.value, answer);
    }, class: "answer"},
      el("div", {class: "row"}, ...(method.length > 1 ? [el("label", {class: "field"}, el("span", {}, "Method"), method)] : []),
         ...parameters.map((field) => el("label", {class: "field"}, el("span", {}, field.name), field))),
      ...(body ? [el("label", {class: "field"}, el("span", {}, "Body"), body)] : []),
      el("p", {class: "actions"}, el("button", {type: "submit", class: "primary"}, "Send"),
         el("button", {type: "button", class: "quiet stop", hidden: true}, "Stop")));
    place.append(form, answer);
  } catch (error) {
    place.append(el("p", {class: "problem", role: "alert"}, `${error.message}. With --protect-all the description needs the key, too.`));
    route.addEventListener("toggle", () => {
      place.remove();
      delete route.dataset.built;
    }, {once: true});
  }
}

async function send(form, method, path, body, answer) {
  const controller = new AbortController();
  const stop = form.querySelector(".stop");
  const submit = form.querySelector(".primary");
  const status = el("p", {class: "status", role: "status"}, "…");
  const text = document.createTextNode("");
  answer.replaceChildren(status, el("pre", {tabIndex: 0, role: "region", "aria-label": "Answer"}, text));
  stop.onclick = () => controller.abort();
  stop.hidden = false;
  submit.disabled = true;
  const begin = performance.now();
  try {
    const response = await fetch(new URL(path.replace(/^\//, ""), base), {
      method, headers: {...keyHeader(), ...(body === undefined ? {} : {"Content-Type": "application/json"})},
      body: method === "GET" || method === "HEAD" ? undefined : body, signal: controller.signal, cache: "no-store"});
    const type = response.headers.get("content-type") ?? "";
    status.classList.toggle("bad", !response.ok);
    status.textContent = `${response.status} ${response.statusText}`;
    await show(response, type, text);
    status.textContent = `${response.status} ${response.statusText} · ${(performance.now() - begin).toFixed(0)} ms · ${type}`;
  } catch (error) {
    status.classList.add("bad");
    status.textContent = controller.signal.aborted ? "Stopped" : error.message;
  } finally {
    stop.hidden = true;
    submit.disabled = false;
  }
}

// Streams are shown as they arrive, JSON is indented.
async function show(response, type, text) {
  if (response.body && type.startsWith("text/event-stream")) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      if (text.length < shownCharacters) text.appendData(part.value);
    }
    return;
  }
  let content = await response.text();
  if (type.startsWith("application/json")) {
    try {
      content = JSON.stringify(JSON.parse(content), null, 2);
    } catch {
      // Not JSON: shown unchanged.
    }
  }
  text.data = content.length > shownCharacters ? `${content.slice(0, shownCharacters)}\n… (${content.length} characters)` : content;
}

for (const route of document.querySelectorAll("details.route")) {
  route.addEventListener("toggle", () => {
    if (!route.open || route.dataset.built) return;
    route.dataset.built = "1";
    buildForm(route);
  });
}

// Creates elements without parsing markup: every text becomes a text node.

const asProperty = new Set(["hidden", "disabled", "checked", "value", "open", "tabIndex"]);

// el("button", {class: "quiet", onclick: f, "aria-label": "Copy"}, "Copy", child...)
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (asProperty.has(name)) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

const svgNamespace = "http://www.w3.org/2000/svg";

export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS(svgNamespace, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

export const byId = (id) => document.getElementById(id);

// Announces text to screen readers; a call replaces the text of the previous one.
export function announce(text) {
  byId("announcer").textContent = text;
}

let toastTimer;

// Shows a line at the bottom for some seconds, optionally with a button.
export function toast(text, action, onaction) {
  const place = byId("toast");
  place.replaceChildren(el("span", {}, text));
  if (action) {
    place.append(el("button", {type: "button", onclick: () => {
      place.hidden = true;
      onaction();
    }}, action));
  }
  place.hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => { place.hidden = true; }, 6000);
}

// Browsers provide a clipboard only for https pages and localhost.
async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = el("textarea", {class: "off-screen", value: text, "aria-hidden": "true"});
  const holder = document.querySelector("dialog[open]") || document.body;
  const focused = document.activeElement;
  holder.append(field);
  field.select();
  const copied = document.execCommand("copy");
  field.remove();
  if (focused) focused.focus();
  if (!copied) throw new Error("the browser did not copy");
}

// `text`: a function that returns the text to copy.
export function copyButton(text, label = "Copy") {
  const button = el("button", {type: "button", class: "quiet copy", onclick: async () => {
    try {
      await copy(text());
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not copied";
    }
    announce(button.textContent);
    setTimeout(() => { button.textContent = label; }, 1500);
  }}, label);
  return button;
}

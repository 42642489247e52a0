// The panel with a conversation's request settings.
import {el} from "./dom.js";
import {kept} from "./kept.js";
import {numberFields, parseExtra} from "./request.js";

const keptName = "sluice.settings";

// Settings of new conversations: those that were changed last.
export function lastSettings() {
  try {
    return JSON.parse(kept.get(keptName)) ?? {};
  } catch {
    return {};
  }
}

export class SettingsPanel {
  // `onchange` is called with the settings of the visible conversation.
  constructor(form, onchange) {
    this.form = form;
    this.settings = {};
    const note = el("p", {class: "note"}, "What is left empty is the server's to choose.");
    const text = (name, label, rows, placeholder, hint) => el("label", {class: "field tall"},
      el("span", {}, label), el("textarea", {name, rows, placeholder, spellcheck: String(name === "system")}), ...hint);
    const problem = el("span", {class: "problem", role: "alert", id: "extra-problem", hidden: true});
    form.append(
      text("system", "System prompt", 4, "None", []), note,
      el("div", {class: "numbers"}, ...numberFields.map(({name, label, min, max, step}) => (
        el("label", {class: "field"}, el("span", {}, label),
           el("input", {type: "number", name, min, max, step, inputmode: "decimal", placeholder: "default"}))))),
      text("stop", "Stop strings, one a line", 2, "None", []),
      text("extra", "More fields of the request, as JSON", 4, "{\"tools\": […], \"response_format\": …}", [problem]),
      el("p", {class: "actions"}, el("button", {type: "button", class: "quiet", onclick: () => this.#reset(onchange)}, "Reset")));
    form.elements.extra.setAttribute("aria-describedby", problem.id);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", () => {
      this.#read();
      onchange(this.settings);
    });
    this.problem = problem;
  }

  show(settings) {
    this.settings = settings;
    for (const field of this.form.elements) {
      if (field.name) field.value = settings[field.name] ?? "";
    }
    this.#checkExtra();
  }

  // Whether the fields form a valid request.
  get isValid() {
    return this.problem.hidden && this.form.checkValidity();
  }

  #read() {
    for (const field of this.form.elements) {
      if (!field.name) continue;
      if (field.value.trim() === "") delete this.settings[field.name];
      else this.settings[field.name] = field.value;
    }
    this.#checkExtra();
    kept.set(keptName, JSON.stringify(this.settings));
  }

  #checkExtra() {
    try {
      parseExtra(this.settings.extra);
      this.problem.hidden = true;
    } catch (error) {
      this.problem.textContent = error.message;
      this.problem.hidden = false;
    }
    this.form.elements.extra.setAttribute("aria-invalid", String(!this.problem.hidden));
  }

  #reset(onchange) {
    for (const name of Object.keys(this.settings)) delete this.settings[name];
    kept.set(keptName, null);
    this.show(this.settings);
    onchange(this.settings);
  }
}

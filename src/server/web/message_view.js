// One message on the page.
import {describeAnswer} from "./answer.js";
import {thumbnail} from "./attachments.js";
import {copyButton, el} from "./dom.js";
import {MarkdownView} from "./markdown.js";

const speakers = {user: "You", assistant: "Assistant", tool: "Tool result"};

// `actions`: {edit(message, text), retry(message), answerCalls(message, results)}
export class MessageView {
  constructor(message, actions) {
    this.message = message;
    this.actions = actions;
    this.body = el("div", {class: "body"});
    this.tools = el("div", {class: "calls"});
    this.foot = el("footer");
    this.root = el("li", {class: `message ${message.role}`},
                   el("h2", {class: "off-screen"}, speakers[message.role] ?? message.role),
                   this.body, this.tools, this.foot);
    if (message.role === "assistant") this.#beginAnswer();
    else this.#showText();
  }

  // Shows the current state of the message. `isRunning`: more text will arrive; `isLast`: no message follows.
  update(isRunning, isLast) {
    const {message} = this;
    if (message.role !== "assistant") return;
    this.root.setAttribute("aria-busy", String(isRunning));
    this.waiting.hidden = !isRunning || Boolean(message.content || message.reasoning || message.toolCalls?.length);
    if (message.reasoning) {
      this.reasoning.hidden = false;
      this.reasoningText.set(message.reasoning, !isRunning);
      const isThinking = isRunning && !message.content;
      this.reasoningTitle.textContent = isThinking ? "Thinking…" : "Thought";
    }
    this.text.set(message.content, !isRunning);
    this.#showCalls(isRunning, isLast);
    if (isRunning) this.foot.replaceChildren();
    else this.#showFoot();
  }

  #beginAnswer() {
    const thought = el("div", {class: "thought"});
    const content = el("div", {class: "text"});
    this.waiting = el("p", {class: "waiting"}, el("span", {class: "off-screen"}, "Waiting for the first token"));
    this.reasoningTitle = el("summary", {}, "Thought");
    this.reasoning = el("details", {class: "reasoning", hidden: true}, this.reasoningTitle, thought);
    this.reasoningText = new MarkdownView(thought);
    this.text = new MarkdownView(content);
    this.body.append(this.reasoning, content, this.waiting);
  }

  #showText() {
    const {message} = this;
    this.body.replaceChildren(el("div", {class: "text verbatim"}, message.content));
    if (message.images?.length) this.body.prepend(el("p", {class: "thumbnails"}, ...message.images.map(thumbnail)));
    this.foot.replaceChildren(copyButton(() => message.content));
    if (message.role === "user") {
      this.foot.append(el("button", {type: "button", class: "quiet", onclick: () => this.edit()}, "Edit"));
    }
  }

  // Replaces the text by a field; sending it replaces all later messages.
  edit() {
    const {message} = this;
    const field = el("textarea", {value: message.content, rows: Math.min(12, message.content.split("\n").length + 1),
                                  "aria-label": "Edit the message"});
    const form = el("form", {class: "edit", onsubmit: (event) => {
      event.preventDefault();
      if (field.value.trim() || message.images?.length) this.actions.edit(message, field.value);
    }}, field, el("p", {class: "actions"},
                  el("button", {type: "button", class: "quiet", onclick: () => this.#endEdit()}, "Cancel"),
                  el("button", {type: "submit", class: "primary"}, "Send")));
    form.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        this.#endEdit();
      } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        form.requestSubmit();
      }
    });
    this.body.replaceChildren(form);
    this.foot.replaceChildren();
    field.focus();
    field.setSelectionRange(field.value.length, field.value.length);
  }

  #endEdit() {
    this.#showText();
    this.foot.lastElementChild.focus();
  }

  #showFoot() {
    const {message} = this;
    const parts = [];
    if (message.error) parts.push(el("p", {class: "problem", role: "alert"}, message.error));
    if (message.content) parts.push(copyButton(() => message.content));
    parts.push(el("button", {type: "button", class: "quiet", onclick: () => this.actions.retry(message)}, "Retry"),
               el("span", {class: "figures"}, describeAnswer(message)));
    this.foot.replaceChildren(...parts);
  }

  #showCalls(isRunning, isLast) {
    const calls = this.message.toolCalls ?? [];
    const state = JSON.stringify([calls, isRunning, isLast]);
    if (calls.length === 0 || state === this.callsShown) return;
    this.callsShown = state;
    const cards = calls.map((call) => el("figure", {class: "call"},
      el("figcaption", {}, el("span", {}, "calls ", el("code", {}, call.name)), copyButton(() => call.arguments)),
      el("pre", {tabIndex: 0, "aria-label": `Arguments of ${call.name}`}, pretty(call.arguments))));
    if (!isRunning && isLast) cards.push(this.#resultsForm(calls));
    this.tools.replaceChildren(...cards);
  }

  // The user enters the tools' results: this page runs no tools.
  #resultsForm(calls) {
    const fields = calls.map((call) => el("textarea", {rows: 2, required: true, placeholder: "What the tool returned",
                                                       "aria-label": `Result of ${call.name}`}));
    return el("form", {class: "results", onsubmit: (event) => {
      event.preventDefault();
      this.actions.answerCalls(this.message, fields.map((field) => field.value));
    }}, ...calls.map((call, i) => el("label", {class: "field tall"}, el("span", {}, `Result of ${call.name}`), fields[i])),
              el("p", {class: "actions"}, el("button", {type: "submit", class: "primary"}, "Send results")));
  }
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;  // incomplete: more is arriving
  }
}

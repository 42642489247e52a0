// The list of conversations.
import {byId, el, toast} from "./dom.js";

export class History {
  // `onopen(conversation)`, `onremove(conversation)`
  constructor(conversations, {onopen, onremove}) {
    this.conversations = conversations;
    this.onopen = onopen;
    this.onremove = onremove;
    this.list = byId("conversations");
  }

  show(current) {
    const shown = JSON.stringify([current.id, this.conversations.all.map((one) => [one.id, one.title, one.isRunning])]);
    if (shown === this.shown) return;
    this.shown = shown;
    const focused = document.activeElement?.closest?.("li")?.dataset.id;
    this.list.replaceChildren(...this.conversations.all.map((conversation) => this.#item(conversation, conversation === current)));
    if (focused) this.list.querySelector(`[data-id="${focused}"] button`)?.focus();
  }

  #item(conversation, isCurrent) {
    const open = el("button", {type: "button", class: "open", title: conversation.title, "aria-current": isCurrent ? "true" : undefined,
                               onclick: () => this.onopen(conversation)}, conversation.title);
    if (conversation.isRunning) open.prepend(el("span", {class: "dot", role: "img", "aria-label": "being answered"}));
    const remove = el("button", {type: "button", class: "quiet remove", "aria-label": `Delete “${conversation.title}”`,
                                 onclick: () => this.#remove(conversation)}, "×");
    return el("li", {"data-id": conversation.id}, open, remove);
  }

  #remove(conversation) {
    const at = this.conversations.all.indexOf(conversation);
    this.conversations.remove(conversation);
    this.onremove(conversation);
    (this.list.querySelectorAll(".remove")[Math.min(at, this.conversations.all.length - 1)] ?? byId("new-chat")).focus();
    toast("The conversation was deleted.", "Undo", () => {
      this.conversations.restore(conversation);
      this.onopen(conversation);
    });
  }
}

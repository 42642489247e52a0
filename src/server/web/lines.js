// A card with one line for each of several things: the thing's name and a text about it.
import {el} from "./dom.js";

export class LinesView {
  // Becomes the first child of `container` when there are lines.
  constructor(container, title) {
    this.container = container;
    this.list = el("ul", {class: "models"});
    this.root = el("section", {class: "card", "aria-label": title}, el("h3", {}, title), this.list);
  }

  // `lines`: pairs of a name and a text.
  show(lines) {
    if (lines.length === 0) return;
    if (!this.root.isConnected) this.container.prepend(this.root);
    this.list.replaceChildren(...lines.map(([name, text]) => el("li", {}, name, " ", el("span", {class: "small"}, text))));
  }
}

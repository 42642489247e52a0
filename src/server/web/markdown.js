// Renders Markdown of untrusted origin to elements: all text becomes text nodes, and nothing is loaded from anywhere.
// The time is nearly linear in the length of the text.
import {blocksOf} from "./markdown_blocks.js";
import {appendInline} from "./markdown_inline.js";
import {copyButton, el} from "./dom.js";
import {highlight} from "./highlight.js";
import {mathElement} from "./math.js";

// Shows a growing text. Complete blocks are rendered once; only the last block is rendered again.
export class MarkdownView {
  #root;
  #text = "";
  #done = 0;       // characters whose blocks are complete
  #open = [];      // the elements of the last block
  #fence = null;   // text node of the last block if it is code, which grows in place
  #language = "";  // of that code
  #outline = newOutline();  // headings of the complete blocks

  constructor(root) {
    this.#root = root;
  }

  // `isComplete`: no more text follows.
  set(text, isComplete) {
    if (!text.startsWith(this.#text)) this.#reset();
    if (text === this.#text && !isComplete) return;
    this.#text = text;
    const blocks = blocksOf(text.slice(this.#done));
    const last = isComplete ? null : blocks.pop();
    if (blocks.length > 0 || isComplete) {
      this.#close();
      for (const block of blocks) this.#root.append(...elementsOf(block, 0, this.#outline));
      this.#done = isComplete ? text.length : this.#done + last.begin;
    }
    if (last) this.#grow(last);
  }

  #reset() {
    this.#root.replaceChildren();
    this.#text = "";
    this.#done = 0;
    this.#open = [];
    this.#fence = null;
    this.#outline = newOutline();
  }

  #close() {
    for (const element of this.#open) element.remove();
    this.#open = [];
    this.#fence = null;
  }

  #grow(block) {
    if (block.kind === "code" && this.#fence && block.language === this.#language &&
        block.text.startsWith(this.#fence.data)) {
      this.#fence.appendData(block.text.slice(this.#fence.data.length));
      return;
    }
    this.#close();
    if (block.kind === "code") {
      this.#fence = document.createTextNode(block.text);
      this.#language = block.language;
      this.#open = [codeElement(block.language, this.#fence)];
    } else {
      this.#open = elementsOf(block, 0, {...this.#outline});
    }
    this.#root.append(...this.#open);
  }
}

function codeElement(language, ...content) {
  const code = el("code", {}, ...content);
  return el("figure", {class: "code"},
            el("figcaption", {}, el("span", {}, language || "text"), copyButton(() => code.textContent)),
            el("pre", {tabIndex: 0, role: "region", "aria-label": language ? `Code in ${language}` : "Code"}, code));
}

function inline(tag, text, attributes) {
  const element = el(tag, attributes);
  appendInline(element, text);
  return element;
}

// Headings of an answer are below its message's heading (level 2), and none skips a level, even if the text's headings
// do.
const newOutline = () => ({level: 2});

function headingTag(level, outline) {
  outline.level = Math.min(6, level + 2, outline.level + 1);
  return `h${outline.level}`;
}

function elementsOf(block, depth, outline) {
  const inside = (text) => blocksOf(text, depth + 1).flatMap((inner) => elementsOf(inner, depth + 1, outline));
  switch (block.kind) {
    case "code": return [codeElement(block.language, ...highlight(block.text, block.language))];
    case "heading": return [inline(headingTag(block.level, outline), block.text)];
    case "formula": return [el("p", {class: "formula"}, mathElement(block.text, true, block.written))];
    case "rule": return [el("hr")];
    case "quote": return [el("blockquote", {}, ...inside(block.text))];
    case "list": return [listElement(block, inside)];
    case "table": return [tableElement(block)];
    case "paragraph": return [inline("p", block.text)];
  }
  return [];
}

function listElement(block, inside) {
  const items = block.items.map(({text, checked}) => {
    const content = inside(text);
    // An item that begins with a paragraph shows its text without a <p>, hence without its margins.
    const isLine = content[0]?.tagName === "P";
    const children = isLine ? [...content[0].childNodes, ...content.slice(1)] : content;
    if (checked === null) return el("li", {}, ...children);
    const box = el("input", {type: "checkbox", checked, disabled: true, "aria-label": checked ? "done" : "not done"});
    return el("li", {class: "task"}, box, " ", ...children);
  });
  return block.start === null ? el("ul", {}, ...items) : el("ol", {start: block.start}, ...items);
}

function tableElement({head, rows, alignments}) {
  const cells = (tag, row) => head.map((_, i) => inline(tag, row[i] ?? "", {class: alignments[i] || undefined}));
  return el("div", {class: "table", tabIndex: 0, role: "region", "aria-label": "Table"},
            el("table", {}, el("thead", {}, el("tr", {}, ...cells("th", head))),
               el("tbody", {}, ...rows.map((row) => el("tr", {}, ...cells("td", row))))));
}

// Converts LaTeX formulas to MathML, which browsers render natively. Unknown commands are shown as written: no
// character of a formula is lost. The time is linear in the length of the formula.
import {accents, accentsBelow, alphabets, bigOperators, delimiters, functions, integrals, letters, limits, operators, spaces} from "./math_symbols.js";

const mathNamespace = "http://www.w3.org/1998/Math/MathML";
export const maxFormula = 8192;
// Deeper groups are shown as written.
const maxDepth = 40;

const tokenForm = /\\(?:[A-Za-z]+\*?|[^])|\d+(?:[.,]\d+)*|\s+|[^]/gu;
const textCommands = {text: "", textrm: "", mathrm: "", textnormal: "", mbox: "", operatorname: "", textbf: "bold", textit: "italic", texttt: "monospace", textsf: ""};
const brackets = {matrix: ["", ""], smallmatrix: ["", ""], pmatrix: ["(", ")"], bmatrix: ["[", "]"], Bmatrix: ["{", "}"], vmatrix: ["|", "|"], Vmatrix: ["‖", "‖"],
                  cases: ["{", ""], array: ["", ""]};
const rows = new Set(["aligned", "align", "alignat", "split", "eqnarray"]);
const centred = new Set(["gather", "gathered", "equation", "multline"]);
const ignored = new Set(["displaystyle", "textstyle", "scriptstyle", "limits", "nolimits", "nonumber", "notag", "middle", "mathstrut", "strut"]);
const sizes = /^(?:big|Big|bigg|Bigg)[lrm]?$/;

// Parses a formula to trees [tag, attributes, ...children]; children are trees or strings.
class Reader {
  constructor(source, isDisplay) {
    this.tokens = source.match(tokenForm) ?? [];
    this.at = 0;
    this.depth = 0;
    this.isDisplay = isDisplay;
  }

  get next() {
    return this.tokens[this.at];
  }

  skipSpace() {
    while (this.next !== undefined && /^\s/.test(this.next)) ++this.at;
  }

  // Reads until a token for which `ends` is true; that token is not consumed.
  sequence(ends) {
    const items = [];
    for (this.skipSpace(); this.next !== undefined && !ends(this.next); this.skipSpace()) {
      const base = this.next === "^" || this.next === "_" ? row([]) : this.atom();
      if (base) items.push(this.scripts(base));
    }
    return items;
  }

  scripts(base) {
    let below = null;
    let above = null;
    let primes = "";
    for (this.skipSpace(); ; this.skipSpace()) {
      if (this.next === "_" && below === null) {
        ++this.at;
        below = this.argument();
      } else if (this.next === "^" && above === null) {
        ++this.at;
        above = this.argument();
      } else if (this.next === "'") {
        ++this.at;
        primes += "′";
      } else {
        break;
      }
    }
    if (primes) above = above ? row([["mo", {}, primes], above]) : ["mo", {}, primes];
    const hasBounds = base.hasBounds && (this.isDisplay || base.always);
    const [both, low, high] = hasBounds ? ["munderover", "munder", "mover"] : ["msubsup", "msub", "msup"];
    if (below && above) return [both, {}, base, below, above];
    if (below) return [low, {}, base, below];
    return above ? [high, {}, base, above] : base;
  }

  // The argument of a command or of ^: a group or one token.
  argument() {
    this.skipSpace();
    if (this.next === undefined || this.next === "}" || this.next === "&") return row([]);
    if (/^\d\d/.test(this.next)) {
      const digit = this.next[0];
      this.tokens[this.at] = this.next.slice(1);
      return ["mn", {}, digit];
    }
    return this.atom() ?? row([]);
  }

  group() {
    ++this.at;
    const items = this.sequence((token) => token === "}");
    const isClosed = this.next === "}";
    if (isClosed) ++this.at;
    return isClosed ? row(items) : row([["mo", {}, "{"], ...items]);
  }

  // The source text of a group.
  verbatim() {
    this.skipSpace();
    if (this.next !== "{") return this.next === undefined ? "" : this.tokens[this.at++];
    ++this.at;
    let text = "";
    for (let open = 0; this.next !== undefined; ++this.at) {
      if (this.next === "}" && open === 0) break;
      if (this.next === "{") ++open;
      if (this.next === "}") --open;
      text += this.next;
    }
    ++this.at;
    return text;
  }

  optional() {
    this.skipSpace();
    if (this.next !== "[") return null;
    ++this.at;
    const items = this.sequence((token) => token === "]");
    if (this.next === "]") ++this.at;
    return row(items);
  }

  atom() {
    if (this.depth >= maxDepth) {
      const rest = this.tokens.slice(this.at).join("");
      this.at = this.tokens.length;
      return ["mtext", {}, rest];
    }
    ++this.depth;
    const found = this.next === "{" ? this.group() : this.token();
    --this.depth;
    return found;
  }

  token() {
    const token = this.tokens[this.at++];
    if (token[0] === "\\" && token.length > 1) return this.command(token.slice(1), token);
    if (/^\d/.test(token)) return ["mn", {}, token];
    if (/^\p{L}/u.test(token)) return ["mi", {}, token];
    if (token === "~") return ["mtext", {}, " "];
    if (token === "'") return ["mo", {}, "′"];
    if (token === "%") return ["mo", {}, token];
    return ["mo", /^[()[\]|]$/.test(token) ? {stretchy: "false"} : {}, token === "-" ? "−" : token === "*" ? "∗" : token];
  }

  command(name, written) {
    if (letters[name]) return ["mi", {}, letters[name]];
    if (bigOperators[name]) return bounded(["mo", {largeop: "true", movablelimits: "false"}, bigOperators[name]], false);
    if (integrals[name]) return ["mo", {largeop: "true"}, integrals[name]];
    if (limits.has(name)) return bounded(["mo", {movablelimits: "false"}, name], name === "lim");
    if (functions.has(name)) return ["mi", {}, name];
    if (operators[name]) return ["mo", {}, operators[name]];
    if (delimiters[name]) return ["mo", {stretchy: "false"}, delimiters[name]];
    if (spaces[name]) return ["mspace", {width: `${spaces[name]}em`}];
    if (name in textCommands) return textOf(name, this.verbatim());
    if (alphabets[name]) return withAlphabet(this.argument(), alphabets[name]);
    if (accents[name]) return bounded(["mover", {accent: "true"}, this.argument(), ["mo", {}, accents[name]]], true, name === "overbrace");
    if (accentsBelow[name]) return bounded(["munder", {accentunder: "true"}, this.argument(), ["mo", {}, accentsBelow[name]]], true, name === "underbrace");
    if (/^[dtc]?frac$/.test(name)) return ["mfrac", {}, this.argument(), this.argument()];
    if (/^[dt]?binom$/.test(name)) return row([["mo", {}, "("], ["mfrac", {linethickness: "0"}, this.argument(), this.argument()], ["mo", {}, ")"]]);
    if (name === "sqrt") return this.root();
    if (name === "left") return this.fenced();
    if (sizes.test(name)) return ["mo", {}, this.delimiter()];
    if (name === "begin") return this.environment();
    if (name === "overset" || name === "stackrel") return this.stacked("mover");
    if (name === "underset") return this.stacked("munder");
    if (name === "boxed" || name === "fbox") return ["mrow", {class: "boxed"}, this.argument()];
    if (name === "not") return negated(this.argument());
    if (name === "pmod") return row([["mspace", {width: "0.5em"}], ["mo", {}, "("], ["mi", {}, "mod"], ["mspace", {width: "0.3em"}], this.argument(), ["mo", {}, ")"]]);
    if (name === "mod") return row([["mspace", {width: "0.5em"}], ["mi", {}, "mod"]]);
    if (name === "tag") return ["mtext", {}, `\u2003(${this.verbatim()})`];
    if (name === "label") return void this.verbatim();
    if (ignored.has(name)) return null;
    if (name === "\\" || name === "newline") return ["mspace", {linebreak: "newline"}];
    if (name === "|") return ["mo", {stretchy: "false"}, "‖"];
    if (/^[{}$%&#_]$/.test(name)) return ["mo", {stretchy: "false"}, name];
    return ["mtext", {}, written];
  }

  root() {
    const index = this.optional();
    const content = this.argument();
    return index ? ["mroot", {}, content, index] : ["msqrt", {}, content];
  }

  stacked(tag) {
    const above = this.argument();
    return [tag, {}, this.argument(), above];
  }

  delimiter() {
    this.skipSpace();
    if (this.next === undefined) return "";
    const token = this.tokens[this.at++];
    if (token === ".") return "";
    if (token[0] !== "\\") return token;
    const name = token.slice(1);
    return delimiters[name] ?? {"{": "{", "}": "}", "|": "‖"}[name] ?? token;
  }

  fenced() {
    const open = this.delimiter();
    const items = this.sequence((token) => token === "\\right");
    const isClosed = this.next !== undefined;
    if (isClosed) ++this.at;
    return row([fence(open), ...items, fence(isClosed ? this.delimiter() : "")]);
  }

  environment() {
    const name = this.verbatim();
    const base = name.replace(/\*$/, "");
    if (!(base in brackets) && !rows.has(base) && !centred.has(base)) return ["mtext", {}, `\\begin{${name}}`];
    if (base === "array" || base === "alignat") this.verbatim();  // the alignment of the columns
    const lines = [[]];
    while (this.next !== undefined && this.next !== "\\end") {
      const items = this.sequence((token) => token === "&" || token === "\\\\" || token === "\\end" || token === "\\hline");
      lines.at(-1).push(["mtd", {}, ...items]);
      if (this.next === "\\\\") lines.push([]);
      if (this.next === "\\hline") lines.at(-1).pop();
      if (this.next !== undefined && this.next !== "\\end") ++this.at;
    }
    if (this.next === "\\end") {
      ++this.at;
      this.verbatim();
    }
    if (lines.length > 1 && lines.at(-1).every((cell) => cell.length === 2)) lines.pop();
    const kind = rows.has(base) ? {class: "aligned"} : base === "cases" ? {class: "cases"} : {};
    const table = ["mtable", kind, ...lines.map((cells) => ["mtr", {}, ...cells])];
    const [open, close] = brackets[base] ?? ["", ""];
    return row([fence(open), table, fence(close)]);
  }
}

// Sets whether scripts are placed below and above the tree in a display (`hasBounds`), and also within a line
// (`always`).
function bounded(tree, always, hasBounds = true) {
  if (hasBounds) Object.defineProperties(tree, {hasBounds: {value: true}, always: {value: always}});
  return tree;
}

const fence = (text) => (text === "" ? ["mrow", {}] : ["mo", {stretchy: "true", fence: "true"}, text]);

function row(items) {
  return items.length === 1 ? items[0] : ["mrow", {}, ...items];
}

function textOf(name, text) {
  const tag = name === "mathrm" || name === "operatorname" ? "mi" : "mtext";
  const attributes = tag === "mi" ? {mathvariant: "normal"} : textCommands[name] ? {class: textCommands[name]} : {};
  return [tag, attributes, text.replace(/^\s|\s$/g, "\u00a0")];
}

function withAlphabet(tree, change) {
  const [tag, attributes, ...children] = tree;
  return [tag, tag === "mi" ? {...attributes, mathvariant: "normal"} : attributes,
          ...children.map((child) => (typeof child === "string" ? [...child].map(change).join("") : withAlphabet(child, change)))];
}

function negated(tree) {
  const [tag, attributes, ...children] = tree;
  const known = {"=": "≠", "∈": "∉", "<": "≮", ">": "≯", "∃": "∄", "⊂": "⊄", "≡": "≢", "∼": "≁"};
  const text = typeof children[0] === "string" ? children[0] : null;
  return text === null ? tree : [tag, attributes, known[text] ?? `${text}\u0338`];
}

// The tree of a formula without its delimiters.
export function treeOf(source, isDisplay) {
  const reader = new Reader(source, isDisplay);
  const items = [];
  while (reader.next !== undefined) {
    items.push(...reader.sequence((token) => token === "}" || token === "\\right" || token === "\\end" || token === "&"));
    if (reader.next !== undefined) items.push(["mtext", {}, reader.tokens[reader.at++]]);  // an unmatched closing token
  }
  return row(items);
}

function build(tree) {
  if (typeof tree === "string") return document.createTextNode(tree);
  const [tag, attributes, ...children] = tree;
  const element = document.createElementNS(mathNamespace, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.map(build));
  return element;
}

// The element of a formula. `written`: the source with its delimiters, which is what is copied.
export function mathElement(source, isDisplay, written) {
  const semantics = ["semantics", {}, ["mrow", {}, treeOf(source, isDisplay)],
                     ["annotation", {encoding: "application/x-tex"}, source.trim()]];
  const math = build(["math", isDisplay ? {display: "block"} : {}, semantics]);
  math.dataset.written = written;
  return math;
}

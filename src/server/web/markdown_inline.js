// Renders the text of a line or paragraph: code, emphasis, links.
import {el} from "./dom.js";
import {mathElement, maxFormula} from "./math.js";

const maxDepth = 8;
const maxLink = 2048;
// Without brackets: they may begin a formula whose end has not arrived or is missing.
const escapable = /[!-'*-/:-@\\^-`{-~]/;
const wordCharacter = /[\p{L}\p{N}]/u;
const space = /\s/;
// Characters at which markup may begin.
const special = /[\\`*_~[!<\n$]|https?:\/\//g;

export function appendInline(parent, text, depth = 0) {
  if (depth > maxDepth) return parent.append(text);
  const missing = new Set();  // marks without a further occurrence in the text
  let plain = "";
  const flush = () => {
    if (plain) parent.append(plain);
    plain = "";
  };
  for (let at = 0; at < text.length;) {
    special.lastIndex = at;
    const next = special.exec(text);
    const stop = next ? next.index : text.length;
    plain += text.slice(at, stop);
    if (!next) break;
    const found = formula(text, stop, missing) ?? escape(text, stop) ?? lineEnd(text, stop) ?? codeSpan(text, stop, missing) ??
      emphasis(text, stop, missing, depth) ?? link(text, stop, depth) ?? address(text, stop);
    if (found === null) {
      plain += text[stop];
      at = stop + 1;
    } else {
      if (found.node === undefined) {
        plain += found.text;
      } else {
        flush();
        parent.append(found.node);
      }
      at = found.end;
    }
  }
  flush();
}

// False for words between two prices.
const isLikeFormula = (text) => !text.includes("\n") && (!space.test(text) || /[\\^_{}=+<>*/|-]/.test(text));

const formulaMarks = [["$$", "$$", true], ["\\[", "\\]", true], ["\\(", "\\)", false], ["$", "$", false]];

// \(a\), \[a\], $a$ and $$a$$. A dollar sign delimits a formula only if it cannot belong to a price: no space on its
// inner side, and no digit after the closing one.
function formula(text, at, missing) {
  for (const [open, close, isDisplay] of formulaMarks) {
    if (!text.startsWith(open, at)) continue;
    const begin = at + open.length;
    const isDollar = open === "$";
    if (missing.has(close + open) || (isDollar && space.test(text[begin] ?? " "))) continue;
    let end = text.indexOf(close, begin);
    while (isDollar && end >= 0 && (space.test(text[end - 1]) || text[end - 1] === "\\" || /\d/.test(text[end + 1] ?? ""))) {
      end = text.indexOf(close, end + 1);
    }
    if (end < 0) {
      missing.add(close + open);
      continue;
    }
    const source = text.slice(begin, end);
    if (!source.trim() || source.length > maxFormula || (isDollar && !isLikeFormula(source))) continue;
    return {node: mathElement(source, isDisplay, text.slice(at, end + close.length)), end: end + close.length};
  }
  return null;
}

function escape(text, at) {
  if (text[at] !== "\\" || !escapable.test(text[at + 1] ?? "")) return null;
  return {text: text[at + 1], end: at + 2};
}

function lineEnd(text, at) {
  return text[at] === "\n" ? {node: el("br"), end: at + 1} : null;
}

function runLength(text, at) {
  let end = at;
  while (text[end] === text[at]) ++end;
  return end - at;
}

// The index of the next `mark` that is not part of a longer run; -1 if there is none.
function findMark(text, mark, from) {
  for (let at = text.indexOf(mark, from); at >= 0;) {
    const length = runLength(text, at);
    if (length === mark.length) return at;
    at = text.indexOf(mark, at + length);
  }
  return -1;
}

function codeSpan(text, at, missing) {
  if (text[at] !== "`") return null;
  const mark = "`".repeat(runLength(text, at));
  const begin = at + mark.length;
  const close = missing.has(mark) ? -1 : findMark(text, mark, begin);
  if (close < 0) {
    missing.add(mark);
    return {text: mark, end: begin};
  }
  let content = text.slice(begin, close).replaceAll("\n", " ");
  if (content.startsWith(" ") && content.endsWith(" ") && content.trim()) content = content.slice(1, -1);
  return {node: el("code", {}, content), end: close + mark.length};
}

const emphasisTags = {"*": ["em", "strong"], "_": ["em", "strong"], "~": [null, "del"]};

function emphasis(text, at, missing, depth) {
  const sign = text[at];
  const tags = emphasisTags[sign];
  if (!tags) return null;
  const run = runLength(text, at);
  const verbatim = {text: text.slice(at, at + run), end: at + run};
  const isLetterBefore = wordCharacter.test(text[at - 1] ?? "");
  if (space.test(text[at + run] ?? " ") || (sign === "_" && isLetterBefore) || run > 3) return verbatim;
  if (run === 3 && sign !== "~") return emphasisOf(text, at, 3, missing, depth) ?? verbatim;
  if (run === 3 || !tags[run - 1]) return verbatim;
  return emphasisOf(text, at, run, missing, depth) ?? verbatim;
}

function emphasisOf(text, at, run, missing, depth) {
  const mark = text.slice(at, at + run);
  if (missing.has(mark)) return null;
  for (let close = findMark(text, mark, at + run); close >= 0; close = findMark(text, mark, close + run)) {
    const after = text[close + run] ?? "";
    if (space.test(text[close - 1]) || (mark[0] === "_" && wordCharacter.test(after))) continue;
    const content = text.slice(at + run, close);
    const tags = emphasisTags[mark[0]];
    let node = el(run === 1 ? tags[0] : tags[1]);
    appendInline(node, content, depth + 1);
    if (run === 3) node = el("em", {}, node);
    return {node, end: close + run};
  }
  missing.add(mark);
  return null;
}

// The address if it leads to another page or to mail; otherwise null.
function safeAddress(text) {
  try {
    const url = new URL(text);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

const linkTo = (href) => el("a", {href, target: "_blank", rel: "noopener noreferrer nofollow"});

// Pictures become links: loading one would reveal the reader to its server.
function link(text, at, depth) {
  const begin = text[at] === "!" && text[at + 1] === "[" ? at + 1 : at;
  if (text[begin] !== "[") return null;
  const limit = Math.min(text.length, begin + maxLink);
  let nesting = 0;
  let close = begin;
  for (; close < limit; ++close) {
    if (text[close] === "[") ++nesting;
    else if (text[close] === "]" && --nesting === 0) break;
  }
  if (close >= limit || text[close + 1] !== "(") return null;
  let end = close + 2;
  for (nesting = 1; end < limit; ++end) {
    if (text[end] === "(") ++nesting;
    else if (text[end] === ")" && --nesting === 0) break;
  }
  if (end >= limit) return null;
  const target = text.slice(close + 2, end).trim().split(/\s/)[0].replace(/^<|>$/g, "");
  const href = safeAddress(target);
  if (href === null) return null;
  const node = linkTo(href);
  appendInline(node, text.slice(begin + 1, close) || target, Math.max(depth + 1, maxDepth - 1));
  return {node, end: end + 1};
}

function address(text, at) {
  const inAngles = text[at] === "<";
  const begin = inAngles ? at + 1 : at;
  const found = /^https?:\/\/[^\s<>"`]+/.exec(text.slice(begin, begin + maxLink));
  if (!found) return null;
  let shown = found[0];
  if (inAngles && text[begin + shown.length] !== ">") return null;
  if (!inAngles) shown = shown.replace(/[.,:;!?'*_)\]]+$/, "");
  const href = safeAddress(shown);
  if (href === null) return null;
  const node = linkTo(href);
  node.append(shown);
  return {node, end: begin + shown.length + (inAngles ? 1 : 0)};
}

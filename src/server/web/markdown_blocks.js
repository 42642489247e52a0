// The blocks of a Markdown text: [{kind, begin, ...}], `begin` in characters from the start of the text.

// Deeper quotes and lists remain text.
const maxDepth = 6;
// A longer paragraph is split, so that appending to it costs little.
const maxParagraph = 8192;

// A longer formula remains text. Formulas contain no empty line.
const maxFormulaLines = 100;

const fenceLine = /^ {0,3}(`{3,}|~{3,})[ \t]*([^`\s]*)[^`]*$/;
const headingLine = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/;
const ruleLine = /^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const itemLine = /^( {0,3})([-*+]|\d{1,9}[.)])([ \t]+(.*)|)$/;
const delimiterCell = /^:?-+:?$/;

export function blocksOf(text, depth = 0) {
  const lines = linesOf(text);
  const blocks = [];
  for (let at = 0; at < lines.length;) {
    if (lines[at].text.trim() === "") {
      ++at;
      continue;
    }
    const begin = lines[at].begin;
    const found = fence(lines, at) ?? formula(lines, at) ?? heading(lines, at) ?? rule(lines, at) ??
      (depth < maxDepth ? quote(lines, at) ?? list(lines, at) : null) ?? table(lines, at) ??
      paragraph(lines, at, depth);
    blocks.push({begin, ...found.block});
    at = found.next;
  }
  return blocks;
}

function linesOf(text) {
  const lines = [];
  let begin = 0;
  for (const line of text.split("\n")) {
    for (let cut = 0; cut === 0 || cut < line.length; cut += maxParagraph) {
      lines.push({text: line.slice(cut, cut + maxParagraph).replace(/\r$/, ""), begin: begin + cut});
    }
    begin += line.length + 1;
  }
  return lines;
}

function fence(lines, at) {
  const open = fenceLine.exec(lines[at].text);
  if (!open) return null;
  const mark = open[1];
  const content = [];
  let next = at + 1;
  for (; next < lines.length; ++next) {
    const line = lines[next].text.trim();
    if (line.length >= mark.length && line === mark[0].repeat(line.length)) break;
    content.push(lines[next].text);
  }
  return {block: {kind: "code", language: open[2], text: content.join("\n")}, next: next + 1};
}

const formulaMarks = {"$$": "$$", "\\[": "\\]"};

// A formula on separate lines, which may look like lists and headings. It is a single paragraph until its end
// arrives.
function formula(lines, at) {
  const first = lines[at].text.trimStart();
  const close = formulaMarks[first.slice(0, 2)];
  if (!close) return null;
  let written = first;
  for (let next = at + 1; ; ++next) {
    const end = written.indexOf(close, 2);
    if (end >= 0) {
      if (written.slice(end + 2).trim() !== "" || !written.slice(2, end).trim()) return null;
      return {block: {kind: "formula", text: written.slice(2, end), written: written.slice(0, end + 2)}, next};
    }
    const isEnd = next >= lines.length || (next === lines.length - 1 && lines[next].text === "");
    if (isEnd) return {block: {kind: "paragraph", text: written}, next};
    if (next - at > maxFormulaLines || lines[next].text.trim() === "") return null;
    written += `\n${lines[next].text}`;
  }
}

function heading(lines, at) {
  const found = headingLine.exec(lines[at].text);
  if (!found) return null;
  const text = (found[2] ?? "").replace(/[ \t]#+[ \t]*$/, "");
  return {block: {kind: "heading", level: found[1].length, text}, next: at + 1};
}

function rule(lines, at) {
  return ruleLine.test(lines[at].text) ? {block: {kind: "rule"}, next: at + 1} : null;
}

function quote(lines, at) {
  const content = [];
  let next = at;
  for (; next < lines.length; ++next) {
    const found = /^ {0,3}> ?(.*)$/.exec(lines[next].text);
    if (!found) break;
    content.push(found[1]);
  }
  return next === at ? null : {block: {kind: "quote", text: content.join("\n")}, next};
}

const isOrdered = (found) => /\d/.test(found[2]);

function list(lines, at) {
  const first = itemLine.exec(lines[at].text);
  if (!first) return null;
  const items = [];
  let next = at;
  while (next < lines.length) {
    const found = itemLine.exec(lines[next].text);
    if (!found || isOrdered(found) !== isOrdered(first) || ruleLine.test(lines[next].text)) break;
    const indent = found[1].length + found[2].length + 1;
    const content = [found[4] ?? ""];
    for (++next; next < lines.length; ++next) {
      const line = lines[next].text;
      const spaces = line.length - line.trimStart().length;
      if (line.trim() === "") content.push("");
      else if (spaces >= Math.min(indent, 2)) content.push(line.slice(Math.min(spaces, indent)));
      else if (content.at(-1) !== "" && !startsBlock(line)) content.push(line);
      else break;
    }
    items.push(itemOf(content.join("\n").trimEnd()));
  }
  return {block: {kind: "list", start: isOrdered(first) ? parseInt(first[2], 10) : null, items}, next};
}

function itemOf(text) {
  const task = /^\[([ xX])\] /.exec(text);
  return {text: task ? text.slice(4) : text, checked: task ? task[1] !== " " : null};
}

const cellsOf = (line) => line.trim().replace(/^\|/, "").replace(/\|$/, "").split("|").map((cell) => cell.trim());

function table(lines, at) {
  if (at + 1 >= lines.length || !lines[at].text.includes("|")) return null;
  const head = cellsOf(lines[at].text);
  const delimiters = cellsOf(lines[at + 1].text);
  if (delimiters.length !== head.length || !delimiters.every((cell) => delimiterCell.test(cell))) return null;
  const alignments = delimiters.map((cell) => (
    cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : ""));
  const rows = [];
  let next = at + 2;
  for (; next < lines.length && lines[next].text.includes("|"); ++next) rows.push(cellsOf(lines[next].text));
  return {block: {kind: "table", head, alignments, rows}, next};
}

function startsBlock(line) {
  return fenceLine.test(line) || headingLine.test(line) || ruleLine.test(line) || /^ {0,3}>/.test(line) ||
    itemLine.test(line) || /^\s*(?:\$\$|\\\[)/.test(line);
}

function paragraph(lines, at, depth) {
  const content = [lines[at].text];
  let size = content[0].length;
  let next = at + 1;
  for (; next < lines.length; ++next) {
    const line = lines[next].text;
    size += line.length;
    if (line.trim() === "" || size > maxParagraph || (startsBlock(line) && depth < maxDepth)) break;
    content.push(line);
  }
  return {block: {kind: "paragraph", text: content.join("\n")}, next};
}

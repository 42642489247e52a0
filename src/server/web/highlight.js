// Colours code: comments, strings, numbers and keywords that many languages share. A visual hint, not a parser.
import {el} from "./dom.js";

const maxCharacters = 20_000;
const hashComments = new Set(["python", "py", "bash", "sh", "shell", "console", "yaml", "yml", "toml", "ruby", "rb", "r", "make",
                              "makefile", "dockerfile", "perl", "cmake", "ini"]);
const dashComments = new Set(["sql", "lua", "haskell", "hs"]);
const plainLanguages = new Set(["", "text", "txt", "plain", "markdown", "md", "diff", "html", "xml"]);
const words = new Set((
  "and as assert async await auto bool break case catch char class const constexpr continue def default del delete do " +
  "double elif else end enum except export extends extern false False finally float fn for from func function goto if " +
  "impl import in include inline instanceof int interface is lambda let long match module mut namespace new nil None not " +
  "null operator or package pass private protected pub public raise return self short signed sizeof static struct super " +
  "switch template then this throw throws trait true True try type typedef typename typeof union unsigned use using var " +
  "virtual void volatile when where while with yield echo fi done esac local SELECT FROM WHERE INSERT INTO UPDATE SET " +
  "CREATE TABLE JOIN LEFT ON GROUP ORDER BY LIMIT AND OR NOT NULL AS VALUES").split(" "));

const strings = "\"(?:\\\\.|[^\"\\\\\\n])*\"|'(?:\\\\.|[^'\\\\\\n])*'|`(?:\\\\.|[^`\\\\])*`";
const others = "\\b\\d[\\w.]*|[A-Za-z_]\\w*";

function patternOf(language) {
  const comment = hashComments.has(language) ? "#[^\\n]*"
    : dashComments.has(language) ? "--[^\\n]*" : "//[^\\n]*|/\\*[^]*?\\*/";
  return new RegExp(`(${comment})|(${strings})|(${others})`, "g");
}

function classOf(comment, string, other) {
  if (comment) return "comment";
  if (string) return "string";
  if (/^\d/.test(other)) return "number";
  return words.has(other) ? "word" : null;
}

// The nodes of the highlighted code.
export function highlight(text, language) {
  const name = language.toLowerCase();
  if (text.length > maxCharacters || plainLanguages.has(name)) return [text];
  const nodes = [];
  let plain = 0;
  for (const found of text.matchAll(patternOf(name))) {
    const kind = classOf(found[1], found[2], found[3]);
    if (!kind) continue;
    nodes.push(text.slice(plain, found.index), el("span", {class: `code-${kind}`}, found[0]));
    plain = found.index + found[0].length;
  }
  return [...nodes, text.slice(plain)];
}

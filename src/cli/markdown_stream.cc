#include "cli/markdown_stream.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/ascii.h"
#include "base/utf8.h"

namespace sluice::cli {
namespace {

constexpr unsigned kBold = 1;
constexpr unsigned kItalic = 2;
constexpr unsigned kUnderlined = 4;
constexpr unsigned kDim = 8;
constexpr unsigned kCode = 16;
constexpr unsigned kStruck = 32;
constexpr std::array<std::pair<unsigned, std::string_view>, 6> kSequences = {{
    {kBold, "\x1b[1m"},
    {kDim, "\x1b[2m"},
    {kItalic, "\x1b[3m"},
    {kUnderlined, "\x1b[4m"},
    {kStruck, "\x1b[9m"},
    {kCode, "\x1b[36m"},
}};

// An opening mark that is not closed within this many bytes is plain text.
constexpr size_t kMostInSpan = 200;
constexpr size_t kMostInLink = 1000;
constexpr size_t kMostInTable = size_t{16} << 10;
constexpr int kDeepest = 4;
constexpr int kRuleColumns = 40;

constexpr std::string_view kSpecial = "\\`*_~[!";
// Special results of functions that consume a part of a line: more text is needed, or the mark is
// plain text.
constexpr size_t kMore = static_cast<size_t>(-1);
constexpr size_t kPlain = 0;

bool IsSpace(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

bool IsWord(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         static_cast<unsigned char>(c) >= 0x80;
}

bool IsPunctuation(char c) {
  return c > ' ' && c < 0x7f && !IsWord(c);
}

size_t RunLength(std::string_view text, size_t at) {
  size_t end = at;
  while (end < text.size() && text[end] == text[at]) ++end;
  return end - at;
}

// Returns the position of the first run of exactly `length` characters `mark` at or after `at`.
size_t FindRun(std::string_view text, char mark, size_t length, size_t at) {
  while ((at = text.find(mark, at)) != std::string_view::npos) {
    const size_t run = RunLength(text, at);
    if (run == length) return at;
    at += run;
  }
  return std::string_view::npos;
}

// Number of bytes before an incomplete character at the end.
size_t WholeCharacters(std::string_view text) {
  const size_t tail = std::min<size_t>(text.size(), 3);
  for (size_t back = 1; back <= tail; ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;
    const size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return length > back ? text.size() - back : text.size();
  }
  return text.size();
}

// Width in terminal columns.
size_t WidthOf(std::string_view text) {
  size_t width = 0;
  while (!text.empty()) {
    utf8proc_int32_t code = 0;
    const auto size = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                       static_cast<utf8proc_ssize_t>(text.size()), &code);
    if (size <= 0) {
      ++width;
      text.remove_prefix(1);
      continue;
    }
    width += static_cast<size_t>(std::max(utf8proc_charwidth(code), 0));
    text.remove_prefix(static_cast<size_t>(size));
  }
  return width;
}

// Width of rendered text in columns, without its escape sequences.
size_t ShownWidth(std::string_view rendered) {
  std::string shown;
  for (size_t at = 0; at < rendered.size(); ++at) {
    if (rendered[at] == '\x1b') {
      at = rendered.find('m', at);
      continue;
    }
    shown += rendered[at];
  }
  return WidthOf(shown);
}

std::vector<std::string> CellsOf(std::string_view row) {
  row = AsciiTrim(row);
  if (row.starts_with('|')) row.remove_prefix(1);
  if (row.ends_with('|') && !row.ends_with("\\|")) row.remove_suffix(1);
  std::vector<std::string> cells(1);
  bool is_code = false;
  for (size_t at = 0; at < row.size(); ++at) {
    if (row[at] == '`') is_code = !is_code;
    if (row[at] == '\\' && at + 1 < row.size() && row[at + 1] == '|') {
      cells.back() += row[++at];
    } else if (row[at] == '|' && !is_code) {
      cells.emplace_back();
    } else {
      cells.back() += row[at];
    }
  }
  for (std::string& cell : cells) cell = std::string(AsciiTrim(cell));
  return cells;
}

// Whether the row is like "|---|:-:|".
bool IsDelimiterRow(std::string_view row) {
  return row.find('-') != std::string_view::npos &&
         row.find_first_not_of("|-: \t\r") == std::string_view::npos;
}

}  // namespace

std::string MarkdownStream::Add(std::string_view piece) {
  pending_ += piece;
  std::string out;
  while (Step(out, /*ended=*/false)) {
  }
  return out;
}

std::string MarkdownStream::End() {
  std::string out;
  while (Step(out, /*ended=*/true)) {
  }
  PrintTable(out);
  SetStyle(out, 0);
  BeginText();
  widths_.clear();
  fence_.clear();
  return out;
}

bool MarkdownStream::Step(std::string& out, bool ended) {
  const size_t line_end = pending_.find('\n');
  Known line{.text = std::string_view(pending_).substr(0, line_end),
             .whole = line_end != std::string::npos};
  if (!line.whole && ended) line.whole = true;
  if (!line.whole) line.text = line.text.substr(0, WholeCharacters(line.text));
  // Removes the '\r' of "\r\n". At the end of the text it is an ordinary control character.
  if (line.text.ends_with('\r') && (!line.whole || line_end != std::string::npos))
    line.text.remove_suffix(1);
  if (line.text.empty() && line_end == std::string::npos) {
    if (ended) pending_.clear();
    return false;
  }
  if (line_begins_) return BeginLine(out, line);
  const size_t taken = fence_.empty() ? Inline(out, line, line_style_, 0) : line.text.size();
  if (!fence_.empty()) Text(out, line.text, kCode);
  const bool all = line_end != std::string::npos && taken == line.text.size();
  Drop(all ? line_end + 1 : taken);
  if (all) EndLine(out);
  return all || taken > 0;
}

bool MarkdownStream::BeginLine(std::string& out, const Known& line) {
  if (!fence_.empty()) return TakeCodeLine(out, line);
  const size_t indent = std::min(line.text.find_first_not_of(" \t"), line.text.size());
  if (indent == line.text.size() && !line.whole && indent < kMostInSpan) return false;
  const bool is_row =
      indent < kMostInSpan && !is_quote_ && indent < line.text.size() && line.text[indent] == '|';
  if (is_row) return TakeTableLine(out, line);
  PrintTable(out);
  widths_.clear();
  return BeginBlock(out, line, indent);
}

bool MarkdownStream::BeginBlock(std::string& out, const Known& line, size_t indent) {
  const std::string_view text = line.text;
  const auto begin = [&](size_t bytes) {
    Drop(bytes);
    line_begins_ = false;
    return true;
  };
  if (indent == text.size() || indent >= kMostInSpan) {
    Text(out, text.substr(0, indent), 0);
    return begin(indent);
  }
  const char mark = text[indent];
  const size_t run = RunLength(text, indent);
  const size_t behind = indent + run;
  const bool is_open = behind == text.size() && !line.whole && run < kMostInSpan;
  if (mark == '#' && run <= 6) {
    if (is_open) return false;
    if (behind == text.size() || !IsSpace(text[behind])) return begin(0);
    line_style_ = run == 1 ? kBold | kUnderlined : kBold;
    if (!options_.styles) Text(out, text.substr(indent, run + 1), 0);
    return begin(behind + 1);
  }
  if (mark == '`' || mark == '~') {
    const bool is_short = text.size() < kMostInSpan;
    if (is_open || (run >= 3 && !line.whole && is_short)) return false;
    if (run < 3 || !is_short || is_quote_ ||
        (mark == '`' && text.find('`', behind) != std::string_view::npos)) {
      Text(out, text.substr(0, indent), 0);
      return begin(indent);
    }
    fence_ = std::string(text.substr(indent, run));
    Text(out, text, kDim);
    return begin(text.size());
  }
  if (mark == '>') {
    if (is_open && run == 1) return false;
    const bool has_space = indent + 1 < text.size() && text[indent + 1] == ' ';
    Text(out, text.substr(0, indent), 0);
    Text(out, options_.styles ? "│ " : "> ", kDim);
    is_quote_ = true;
    Drop(indent + (has_space ? 2 : 1));
    return true;  // another block begins after this line
  }
  if (mark == '-' || mark == '*' || mark == '+' || mark == '_') {
    const char others[] = {mark, ' ', '\t', '\0'};
    const bool is_rule = text.size() < kMostInSpan &&
                         text.find_first_not_of(others, indent) == std::string_view::npos;
    if (is_rule && !line.whole) return false;
    if (is_rule && mark != '+' && std::count(text.begin(), text.end(), mark) >= 3) {
      std::string rule;
      for (int i = 0; i < std::min(kRuleColumns, options_.columns); ++i) rule += "─";
      Text(out, rule, kDim);
      return begin(text.size());
    }
    Text(out, text.substr(0, indent), 0);
    if (mark == '_' || run > 1 || behind == text.size() || !IsSpace(text[behind]))
      return begin(indent);
    Text(out, "• ", 0);
    return begin(behind + 1);
  }
  Text(out, text.substr(0, indent), 0);
  return begin(indent);
}

bool MarkdownStream::TakeCodeLine(std::string& out, const Known& line) {
  const size_t indent = std::min(line.text.find_first_not_of(" \t"), line.text.size());
  const bool may_end = indent == line.text.size() || line.text[indent] == fence_[0];
  const size_t run = indent == line.text.size() ? 0 : RunLength(line.text, indent);
  const bool is_bare =
      may_end && line.text.find_first_not_of(" \t", indent + run) == std::string_view::npos;
  if (is_bare && !line.whole && line.text.size() < kMostInSpan) return false;
  const bool ends = is_bare && line.whole && run >= fence_.size();
  Text(out, line.text, ends ? kDim : kCode);
  Drop(line.text.size());
  line_begins_ = false;
  if (ends) fence_.clear();
  return true;
}

bool MarkdownStream::TakeTableLine(std::string& out, const Known& line) {
  if (line.text.size() >= kMostInTable) {
    PrintTable(out);
    widths_.clear();
    line_begins_ = false;
    return true;
  }
  if (!line.whole) return false;
  const std::string row(line.text);
  const size_t line_end = pending_.find('\n');
  Drop(line_end == std::string::npos ? pending_.size() : line_end + 1);
  if (!widths_.empty()) {  // a row of a table that was too long to hold back
    PrintRow(out, row, 0);
    EndLine(out);
  } else {
    rows_.push_back(row);
    table_bytes_ += row.size();
    if (table_bytes_ > kMostInTable || line_end == std::string::npos ||
        (rows_.size() == 2 && !IsDelimiterRow(row)))
      PrintTable(out);
  }
  if (line_end == std::string::npos) out.pop_back();  // the text ends without a line break
  return true;
}

void MarkdownStream::PrintTable(std::string& out) {
  const std::vector<std::string> rows = std::exchange(rows_, {});
  table_bytes_ = 0;
  if (rows.size() < 2 || !IsDelimiterRow(rows[1])) {  // lines that begin with a bar but are not a
                                                      // table
    for (const std::string& row : rows) {
      before_ = ' ';
      Inline(out, {.text = row, .whole = true}, 0, 0);
      EndLine(out);
    }
    return;
  }
  const size_t columns = CellsOf(rows[0]).size();
  widths_.assign(columns, 1);
  size_t whole = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i == 1) continue;
    const std::vector<std::string> cells = CellsOf(rows[i]);
    for (size_t c = 0; c < std::min(cells.size(), columns); ++c) {
      std::string shown;
      before_ = ' ';
      const Style before = std::exchange(current_, 0);
      Inline(shown, {.text = cells[c], .whole = true}, 0, 1);
      current_ = before;
      widths_[c] = std::max(widths_[c], ShownWidth(shown));
    }
  }
  for (const size_t width : widths_) whole += width + 3;
  // If the table does not fit, columns are not aligned, only separated by bars.
  if (whole > static_cast<size_t>(options_.columns)) std::fill(widths_.begin(), widths_.end(), 1);
  for (size_t i = 0; i < rows.size(); ++i) {
    PrintRow(out, rows[i], i == 0 ? kBold : i == 1 ? kDim : 0);
    EndLine(out);
  }
}

void MarkdownStream::PrintRow(std::string& out, const std::string& row, Style style) {
  if (IsDelimiterRow(row)) {
    std::string rule;
    for (size_t c = 0; c < widths_.size(); ++c) {
      if (c > 0) rule += "─┼─";
      for (size_t i = 0; i < widths_[c]; ++i) rule += "─";
    }
    Text(out, rule, kDim);
    return;
  }
  const std::vector<std::string> cells = CellsOf(row);
  for (size_t c = 0; c < std::max(cells.size(), widths_.size()); ++c) {
    if (c > 0) Text(out, " │ ", kDim);
    const size_t begin = out.size();
    before_ = ' ';
    if (c < cells.size()) Inline(out, {.text = cells[c], .whole = true}, style, 1);
    const size_t width = ShownWidth(std::string_view(out).substr(begin));
    const bool is_last = c + 1 >= std::max(cells.size(), widths_.size());
    if (c < widths_.size() && width < widths_[c] && !is_last)
      Text(out, std::string(widths_[c] - width, ' '), 0);
  }
}

size_t MarkdownStream::Inline(std::string& out, const Known& line, Style style, int depth) {
  const std::string_view text = line.text;
  size_t at = 0;
  while (at < text.size()) {
    const size_t special = std::min(text.find_first_of(kSpecial, at), text.size());
    if (special > at) {
      Text(out, text.substr(at, special - at), style);
      at = special;
      continue;
    }
    const size_t taken = Span(out, line, at, style, depth);
    if (taken == kMore) return at;
    if (taken != kPlain) {
      at += taken;
      continue;
    }
    const size_t run = text[at] == '*' || text[at] == '_' || text[at] == '~' || text[at] == '`'
                           ? RunLength(text, at)
                           : 1;
    Text(out, text.substr(at, run), style);
    at += run;
  }
  return at;
}

size_t MarkdownStream::Span(std::string& out, const Known& line, size_t at, Style style,
                            int depth) {
  const std::string_view text = line.text;
  const bool is_last = at + 1 == text.size();
  // The rest of a run of marks that was too long to be held back.
  if (text[at] == before_ && (before_ == '`' || before_ == '*' || before_ == '_' || before_ == '~'))
    return kPlain;
  switch (text[at]) {
    case '\\':
      if (is_last) return line.whole ? kPlain : kMore;
      if (!IsPunctuation(text[at + 1])) return kPlain;
      Text(out, text.substr(at + 1, 1), style);
      return 2;
    case '!':
      if (is_last) return line.whole ? kPlain : kMore;
      if (text[at + 1] != '[') return kPlain;
      {
        const size_t taken = Link(out, line, at + 1, style, depth);
        return taken == kMore || taken == kPlain ? taken : taken + 1;
      }
    case '[': return Link(out, line, at, style, depth);
    case '`': return CodeSpan(out, line, at, style);
    default: return Emphasis(out, line, at, style, depth);
  }
}

size_t MarkdownStream::CodeSpan(std::string& out, const Known& line, size_t at, Style style) {
  const size_t run = RunLength(line.text, at);
  const std::string_view text = line.text.substr(at, kMostInSpan);
  const bool may_grow = !line.whole && at + text.size() == line.text.size();
  if (run >= text.size()) return may_grow && run < kMostInSpan ? kMore : kPlain;
  const size_t close = FindRun(text, '`', run, run);
  if (close == std::string_view::npos)
    return may_grow && text.size() < kMostInSpan ? kMore : kPlain;
  if (may_grow && close + run == text.size()) return kMore;
  std::string_view content = text.substr(run, close - run);
  if (content.size() > 2 && content.front() == ' ' && content.back() == ' ')
    content = content.substr(1, content.size() - 2);
  if (options_.styles) {
    Text(out, content, style | kCode);
    before_ = '`';
  } else {
    Text(out, text.substr(0, close + run), style);
  }
  return close + run;
}

size_t MarkdownStream::Emphasis(std::string& out, const Known& line, size_t at, Style style,
                                int depth) {
  const char mark = line.text[at];
  const size_t run = RunLength(line.text, at);
  const std::string_view text = line.text.substr(at, kMostInSpan);
  const bool may_grow = !line.whole && at + text.size() == line.text.size();
  if (run >= text.size()) return may_grow && run <= 3 ? kMore : kPlain;
  if (run > 3 || (mark == '~' && run != 2) || IsSpace(text[run]) || depth >= kDeepest)
    return kPlain;
  // In 2*3*4 and snake_case_names, the marks are plain text.
  if (run == 1 && IsWord(before_)) return kPlain;
  size_t close = run;
  while (true) {
    close = FindRun(text, mark, run, close);
    if (close == std::string_view::npos) break;
    if (may_grow && close + run == text.size()) return kMore;
    const bool is_inside = run == 1 && close + 1 < text.size() && IsWord(text[close + 1]);
    if (!IsSpace(text[close - 1]) && !is_inside) break;
    close += run;
  }
  if (close == std::string_view::npos)
    return may_grow && text.size() < kMostInSpan ? kMore : kPlain;
  const Style added = mark == '~' ? kStruck
                      : run == 1  ? kItalic
                      : run == 2  ? kBold
                                  : kBold | kItalic;
  const std::string_view content = text.substr(run, close - run);
  if (!options_.styles) Text(out, text.substr(0, run), style);
  before_ = ' ';
  Inline(out, {.text = content, .whole = true}, style | added, depth + 1);
  if (!options_.styles) Text(out, text.substr(0, run), style);
  before_ = mark;
  return close + run;
}

size_t MarkdownStream::Link(std::string& out, const Known& line, size_t at, Style style,
                            int depth) {
  const std::string_view text = line.text.substr(at, kMostInLink);
  const bool may_grow =
      !line.whole && at + text.size() == line.text.size() && text.size() < kMostInLink;
  const size_t undecided = may_grow ? kMore : kPlain;
  size_t close = 0;
  for (int open = 0; close < text.size() && close < kMostInSpan; ++close) {
    if (text[close] == '[') ++open;
    if (text[close] == ']' && --open == 0) break;
  }
  if (close >= kMostInSpan) return kPlain;
  if (close + 1 >= text.size()) return undecided;
  if (text[close + 1] != '(' || depth >= kDeepest) return kPlain;
  size_t end = close + 1;
  for (int open = 0; end < text.size(); ++end) {
    if (text[end] == '(') ++open;
    if (text[end] == ')' && --open == 0) break;
  }
  if (end == text.size()) return undecided;
  const std::string_view label = text.substr(1, close - 1);
  std::string_view target = AsciiTrim(text.substr(close + 2, end - close - 2));
  target = target.substr(0, target.find(' '));
  before_ = ' ';
  if (!label.empty() && label != target) {
    Inline(out, {.text = label, .whole = true}, style | kUnderlined, depth + 1);
    Text(out, " (", style);
    Text(out, target, style | kDim);
    Text(out, ")", style);
  } else {
    Text(out, target, style | kUnderlined);
  }
  return end + 1;
}

void MarkdownStream::Text(std::string& out, std::string_view text, Style style) {
  if (text.empty()) return;
  SetStyle(out, style);
  out += EscapeControls(text, "\t");
  before_ = text.back();
}

void MarkdownStream::SetStyle(std::string& out, Style style) {
  if (!options_.styles || style == current_) return;
  if (current_ != 0) out += "\x1b[0m";
  for (const auto& [bit, sequence] : kSequences) {
    if ((style & bit) != 0) out += sequence;
  }
  current_ = style;
}

void MarkdownStream::EndLine(std::string& out) {
  SetStyle(out, 0);
  out += '\n';
  BeginText();
}

void MarkdownStream::BeginText() {
  line_begins_ = true;
  is_quote_ = false;
  line_style_ = 0;
  before_ = ' ';
}

}  // namespace sluice::cli

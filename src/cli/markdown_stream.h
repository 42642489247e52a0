// Renders streamed Markdown on a terminal. Printed text is never rewritten.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice::cli {

struct MarkdownOptions {
  bool styles = true;  // whether to style with SGR sequences; false: marks of emphasis and code are
                       // kept
  int columns = 80;    // width of the terminal; wider tables are not aligned
};

// Renders headings, emphasis, code, lists, quotes, links and tables. Text is returned as soon as
// its appearance is certain: after an opening mark, at most some hundred bytes of the line are held
// back, then the mark counts as plain text. A table is held back until it ends. The result does not
// depend on how the text is cut into pieces. Control characters except line breaks and tabs are
// escaped, so that an answer cannot control the terminal. Thread safety: one thread.
class MarkdownStream {
 public:
  explicit MarkdownStream(MarkdownOptions options) : options_(options) {}

  // Adds text. Returns the text that can be printed.
  std::string Add(std::string_view piece);
  // Returns the text held back so far. Another text may follow.
  std::string End();

  // Number of bytes held back, not counting a table's rows.
  size_t held() const { return pending_.size(); }

 private:
  using Style = unsigned;
  // The available text of the current line.
  struct Known {
    std::string_view text;  // up to the end of the line, or of the available text
    bool whole;             // whether the text reaches the end of the line
  };

  // Each of these functions consumes the beginning of pending_, and returns false if it needs more
  // text.
  bool Step(std::string& out, bool ended);
  bool BeginLine(std::string& out, const Known& line);
  bool TakeCodeLine(std::string& out, const Known& line);
  bool TakeTableLine(std::string& out, const Known& line);

  bool BeginBlock(std::string& out, const Known& line, size_t indent);
  // Renders text whose appearance is certain. Returns the number of bytes consumed.
  size_t Inline(std::string& out, const Known& line, Style style, int depth);
  size_t Span(std::string& out, const Known& line, size_t at, Style style, int depth);
  size_t CodeSpan(std::string& out, const Known& line, size_t at, Style style);
  size_t Emphasis(std::string& out, const Known& line, size_t at, Style style, int depth);
  size_t Link(std::string& out, const Known& line, size_t at, Style style, int depth);
  void PrintTable(std::string& out);
  void PrintRow(std::string& out, const std::string& row, Style style);

  void Text(std::string& out, std::string_view text, Style style);
  void SetStyle(std::string& out, Style style);
  void EndLine(std::string& out);
  void BeginText();
  void Drop(size_t bytes) { pending_.erase(0, bytes); }

  const MarkdownOptions options_;
  std::string pending_;
  bool line_begins_ = true;
  bool is_quote_ = false;          // whether this line is a quote
  Style line_style_ = 0;           // style of a heading
  std::string fence_;              // the marks that opened the code block; "" outside of one
  std::vector<std::string> rows_;  // rows of the table that is held back
  std::vector<size_t> widths_;     // column widths of the table being printed
  size_t table_bytes_ = 0;
  Style current_ = 0;  // the terminal's current style
  char before_ = ' ';  // the last character rendered
};

}  // namespace sluice::cli

// Renders streamed Markdown on a terminal; printed text is never rewritten.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice::cli {

struct MarkdownOptions {
  bool styles =
      true;  // bold, colours and so on by SGR sequences; false: marks of emphasis and code stay
  int columns = 80;  // of the terminal; tables that are wider are not aligned
};

// Renders headings, emphasis, code, lists, quotes, links and tables. Text is given back as soon as
// it is certain how it looks: an open mark holds back what follows for at most some hundred bytes
// of its line, then it is text like any other; a table is held back until it ends. The result does
// not depend on where the text is cut into pieces. Control characters but line breaks and tabs come
// out as escapes, so that an answer cannot steer the terminal.
// Thread safety: one thread.
class MarkdownStream {
 public:
  explicit MarkdownStream(MarkdownOptions options) : options_(options) {}

  // What can be printed now.
  std::string Add(std::string_view piece);
  // What was held back. Another text may follow.
  std::string End();

  // Bytes that are held back, a table's rows left out.
  size_t held() const { return pending_.size(); }

 private:
  using Style = unsigned;
  // The known text from the current position.
  struct Known {
    std::string_view text;  // up to the end of the line, or of what came
    bool whole;             // the line ends there
  };

  // Each takes from the beginning of pending_; false if it needs more.
  bool Step(std::string& out, bool ended);
  bool BeginLine(std::string& out, const Known& line);
  bool TakeCodeLine(std::string& out, const Known& line);
  bool TakeTableLine(std::string& out, const Known& line);

  bool BeginBlock(std::string& out, const Known& line, size_t indent);
  // Renders what is certain; returns its bytes.
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
  bool is_quote_ = false;          // this line is one
  Style line_style_ = 0;           // of a heading
  std::string fence_;              // the marks that the block of code began with; "" outside of one
  std::vector<std::string> rows_;  // of the table that is held back
  std::vector<size_t> widths_;     // of the columns of a table that is printed
  size_t table_bytes_ = 0;
  Style current_ = 0;  // what the terminal was set to
  char before_ = ' ';  // the character before what comes next
};

}  // namespace sluice::cli

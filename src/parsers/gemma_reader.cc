#include "parsers/gemma_reader.h"

#include <array>
#include <string_view>
#include <utility>

#include "base/ascii.h"
#include "base/json.h"

namespace sluice {
namespace {

constexpr std::string_view kQuote = "<|\"|>";
constexpr int kMaxGemmaDepth = 64;
const std::array<std::string, 2> kGemmaTextMarkers = {"<|tool_call>", "<tool_call|>"};
const std::array<std::string, 2> kGemmaNameEnds = {"{", "<tool_call|>"};
const std::array<std::string, 1> kGemmaEnd = {"<tool_call|>"};
const std::array<std::string, 1> kGemmaQuote = {std::string(kQuote)};
const std::array<std::string, 8> kGemmaStructure = {
    std::string(kQuote), "{", "}", "[", "]", ",", "<tool_call|>", "<|tool_call>"};

// Converts one value to JSON. Nested values without quotes become strings.
class GemmaValue {
 public:
  explicit GemmaValue(std::string_view text) : text_(text) {}

  bool Whole(std::string& out) { return Read(out, 0) && AsciiTrim(text_).empty(); }

 private:
  void SkipBlanks() {
    text_.remove_prefix(std::min(text_.size(), text_.find_first_not_of(" \t\r\n")));
  }

  bool Take(char c) {
    SkipBlanks();
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }

  std::string_view Word(std::string_view ends) {
    const std::string_view word = text_.substr(0, text_.find_first_of(ends));
    text_.remove_prefix(word.size());
    return AsciiTrim(word);
  }

  bool Quoted(std::string& out) {
    text_.remove_prefix(kQuote.size());
    const size_t end = text_.find(kQuote);
    if (end == std::string_view::npos) return false;
    json::AppendString(out, text_.substr(0, end));
    text_.remove_prefix(end + kQuote.size());
    return true;
  }

  bool Read(std::string& out, int depth) {
    if (depth > kMaxGemmaDepth) return false;
    SkipBlanks();
    if (text_.starts_with(kQuote)) return Quoted(out);
    const bool object = Take('{');
    if (!object && !Take('[')) {
      json::AppendString(out, Word(",]}"));
      return true;
    }
    const char close = object ? '}' : ']';
    out += object ? '{' : '[';
    for (bool first = true; !Take(close); first = false) {
      if (!first && !Take(',')) return false;
      if (!first) out += ", ";
      SkipBlanks();
      if (text_.empty()) return false;
      if (object) {
        if (text_.starts_with(kQuote)) {
          if (!Quoted(out)) return false;
        } else {
          json::AppendString(out, Word(":"));
        }
        if (!Take(':')) return false;
        out += ": ";
      }
      if (!Read(out, depth + 1)) return false;
    }
    out += close;
    return true;
  }

  std::string_view text_;
};

}  // namespace

void GemmaReader::EndArgument(ParserOutput& output) {
  const std::string argument = std::exchange(argument_, "");
  const size_t colon = argument.find(':');
  if (colon == std::string::npos) return;
  const std::string_view key = AsciiTrim(std::string_view(argument).substr(0, colon));
  const std::string_view value = AsciiTrim(std::string_view(argument).substr(colon + 1));
  std::string text = has_argument_ ? ", " : "";
  json::AppendString(text, key);
  text += ": ";
  const bool bare =
      !value.starts_with(kQuote) && !value.starts_with('{') && !value.starts_with('[');
  std::string converted;
  if (bare || !GemmaValue(value).Whole(converted)) {
    converted = TypedValue(value, types_->Find(name_, key), /*scalars_only=*/false);
  }
  has_argument_ = true;
  output.Arguments(text + converted);
}

bool GemmaReader::ReadArgument(TextInput& input, ParserOutput& output) {
  if (argument_.size() > kMaxHeldBytes) argument_.resize(kMaxHeldBytes);
  if (in_string_) {
    if (input.PassUntil(kGemmaQuote, argument_) >= 0) {
      argument_ += kQuote;
      in_string_ = false;
      return true;
    }
  } else {
    const int found = input.PassUntil(kGemmaStructure, argument_);
    if (found >= 0) {
      const std::string& mark = kGemmaStructure[found];
      const bool outside = depth_ == 0;
      if (found >= 6 || (outside && mark == "}")) {
        EndArgument(output);
        output.Arguments("}");
        if (found >= 6) input.Unread(mark);
        state_ = found == 7 ? State::kText : State::kClose;
      } else if (outside && mark == ",") {
        EndArgument(output);
      } else {
        argument_ += mark;
        in_string_ = mark == kQuote;
        if (mark == "{" || mark == "[") ++depth_;
        if (depth_ > 0 && (mark == "}" || mark == "]")) --depth_;
      }
      return true;
    }
  }
  // A value that is cut off is dropped.
  if (input.ended()) output.Arguments("}");
  return false;
}

void GemmaReader::Read(TextInput& input, ParserOutput& output) {
  for (;;) {
    std::string passed;
    int found = 0;
    switch (state_) {
      case State::kText:
        found = input.PassUntil(kGemmaTextMarkers, passed);
        if (output.calls() == 0) output.Content(passed);
        if (found == 0) {
          name_.clear();
          state_ = State::kName;
        }
        break;
      case State::kName:
        found = input.PassUntil(kGemmaNameEnds, name_);
        if (name_.size() > kMaxHeldBytes) name_.resize(kMaxHeldBytes);
        if (found < 0) return;
        name_ = AsciiTrim(name_);
        if (name_.starts_with("call:")) name_.erase(0, 5);
        if (!name_.empty()) {
          output.BeginCall(name_);
          output.Arguments(found == 0 ? "{" : "{}");
        }
        argument_.clear();
        in_string_ = has_argument_ = false;
        depth_ = 0;
        state_ = found == 0 && !name_.empty() ? State::kArgument : State::kText;
        break;
      case State::kArgument:
        if (!ReadArgument(input, output)) return;
        break;
      case State::kClose:
        found = input.PassUntil(kGemmaEnd, passed);
        if (found == 0) state_ = State::kText;
        break;
    }
    if (found < 0) return;
  }
}

}  // namespace sluice

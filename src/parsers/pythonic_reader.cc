#include "parsers/pythonic_reader.h"

#include <algorithm>
#include <utility>

#include "base/ascii.h"
#include "base/json.h"
#include "parsers/python_literal.h"
#include "parsers/tool_types.h"

namespace sluice {
namespace {

bool IsCallBlank(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '-';
}

}  // namespace

PythonicReader::PythonicReader(const PythonicFormat* format)
    : format_(format), state_(format->begin.empty() ? State::kOpen : State::kText) {}

void PythonicReader::Emit(std::string_view text, ParserOutput& output) {
  if (output.calls() == 0 || format_->keeps_text_after) output.Content(text);
}

void PythonicReader::NoCall(ParserOutput& output) {
  state_ = format_->begin.empty() ? State::kPlain : State::kText;
  Emit(std::exchange(held_, ""), output);
}

void PythonicReader::Cut(TextInput& input, ParserOutput& output) {
  ToolReader::Cut(input, output);
  if (block_calls_ > 0 || (state_ != State::kOpen && state_ != State::kName)) return;
  const bool has_prefix = std::ranges::any_of(format_->prefix, [&](const std::string& prefix) {
    return held_.find(prefix) != std::string::npos;
  });
  if (!format_->begin.empty() || has_prefix) held_.clear();
}

bool PythonicReader::ReadMarked(TextInput& input, ParserOutput& output) {
  std::string passed;
  if (state_ == State::kClose) {
    if (!format_->end.empty() && input.PassUntil(format_->end, passed) < 0) return false;
    state_ = format_->begin.empty() ? State::kPlain : State::kText;
    return true;
  }
  const int found = input.PassUntil(format_->begin, passed);
  Emit(passed, output);
  if (found < 0) return false;
  held_ = format_->begin[found];
  name_.clear();
  named_ = false;
  block_calls_ = 0;
  state_ = format_->brackets ? State::kOpen : State::kName;
  return true;
}

void PythonicReader::Open(char c, ParserOutput& output) {
  held_ += c;
  if (IsCallBlank(c) && held_.size() < kMaxHeldBytes) return;
  if (c == '[') {
    state_ = State::kName;
    return;
  }
  const std::string_view prefix = AsciiTrim(held_);
  const bool may_open = std::any_of(format_->prefix.begin(), format_->prefix.end(),
                                    [&](const std::string& p) { return p.starts_with(prefix); });
  if (!may_open) NoCall(output);
}

void PythonicReader::Name(char c, TextInput& input, ParserOutput& output) {
  if (block_calls_ == 0) held_ += c;
  const bool between = IsCallBlank(c) || (c == ',' && name_.empty() && block_calls_ > 0);
  if (between && held_.size() < kMaxHeldBytes) {
    named_ |= !name_.empty();
    return;
  }
  if (IsNameByte(c) && !named_ && name_.size() < kMaxHeldBytes) {
    name_ += c;
    return;
  }
  if (c == '(' && !name_.empty()) {
    held_.clear();
    ++block_calls_;
    output.BeginCall(std::exchange(name_, ""));
    output.Arguments("{");
    named_ = has_argument_ = false;
    state_ = State::kArgument;
    return;
  }
  if (block_calls_ == 0) {
    NoCall(output);
    return;
  }
  if (c != ']' || !format_->brackets) input.Unread({&c, 1});
  name_.clear();
  state_ = State::kClose;
}

void PythonicReader::EndArgument(ParserOutput& output) {
  const std::string argument = std::exchange(argument_, "");
  const size_t equals = argument.find('=');
  if (equals == std::string::npos) return;
  const std::string_view key = AsciiTrim(std::string_view(argument).substr(0, equals));
  const std::string_view value = AsciiTrim(std::string_view(argument).substr(equals + 1));
  if (key.empty() || value.empty()) return;
  std::string text = has_argument_ ? ", " : "";
  json::AppendString(text, key);
  text += ": ";
  if (auto literal = PythonLiteralToJson(value)) {
    text += *literal;
  } else {
    json::AppendString(text, value);
  }
  has_argument_ = true;
  output.Arguments(text);
}

void PythonicReader::Argument(char c, ParserOutput& output) {
  if (quote_ != '\0') {
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == quote_) {
      quote_ = '\0';
    }
  } else if (c == '\'' || c == '"') {
    quote_ = c;
  } else if (c == '(' || c == '[' || c == '{') {
    ++depth_;
  } else if (depth_ > 0 && (c == ')' || c == ']' || c == '}')) {
    --depth_;
  } else if (depth_ == 0 && (c == ',' || c == ')')) {
    EndArgument(output);
    if (c == ')') {
      output.Arguments("}");
      state_ = State::kName;
    }
    return;
  }
  if (argument_.size() < kMaxHeldBytes) argument_ += c;
}

void PythonicReader::Read(TextInput& input, ParserOutput& output) {
  for (;;) {
    if (state_ == State::kText || state_ == State::kClose) {
      if (!ReadMarked(input, output)) return;
      continue;
    }
    const std::optional<char> c = input.Next();
    if (!c) {
      if (!input.ended()) return;
      if (state_ == State::kArgument) output.Arguments("}");
      if (block_calls_ == 0 && (state_ == State::kOpen || state_ == State::kName)) NoCall(output);
      state_ = State::kPlain;
      return;
    }
    switch (state_) {
      case State::kOpen: Open(*c, output); break;
      case State::kName: Name(*c, input, output); break;
      case State::kArgument: Argument(*c, output); break;
      case State::kPlain: Emit({&*c, 1}, output); break;
      case State::kText:
      case State::kClose: break;
    }
  }
}

}  // namespace sluice

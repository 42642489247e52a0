#include "parsers/tagged_reader.h"

#include <utility>

#include "base/ascii.h"
#include "base/json.h"

namespace sluice {
namespace {

std::vector<std::string> With(std::vector<std::string> markers,
                              const std::vector<std::string>& more) {
  for (const std::string& marker : more) {
    if (!marker.empty()) markers.push_back(marker);
  }
  return markers;
}

std::string Unescaped(std::string_view name) {
  std::string plain;
  while (!name.empty()) {
    const bool quote = name.starts_with("&quot;");
    const bool ampersand = name.starts_with("&amp;");
    plain += quote ? '"' : name.front();  // the escape begins with the character that it represents
    name.remove_prefix(quote ? 6 : ampersand ? 5 : 1);
  }
  return plain;
}

}  // namespace

TaggedReader::TaggedReader(const TaggedFormat* format, const ToolTypes* types)
    : format_(format),
      types_(types),
      text_markers_(With(format->begin, format->dropped)),
      block_markers_({format->end, format->call_open}),
      call_markers_(With({format->parameter_open, format->end}, {format->call_close})),
      parameter_markers_({format->parameter_name_end}),
      value_open_markers_({format->value_open}),
      value_markers_({format->value_close}) {}

void TaggedReader::Arguments(std::string_view text, ParserOutput& output) {
  if (!dropped_call_) output.Arguments(text);
}

void TaggedReader::BeginCall(ParserOutput& output) {
  name_ = AsciiTrim(name_);
  if (format_->escapes_names) name_ = Unescaped(name_);
  in_call_ = true;
  has_parameter_ = false;
  dropped_call_ =
      name_.empty() || (format_->known_tools_only && !types_->empty() && !types_->HasTool(name_));
  if (!dropped_call_) output.BeginCall(name_);
  Arguments("{", output);
}

void TaggedReader::EndCall(ParserOutput& output) {
  if (in_call_) Arguments("}", output);
  in_call_ = false;
  name_.clear();
}

bool TaggedReader::ReadText(TextInput& input, ParserOutput& output) {
  std::string passed;
  const int found = input.PassUntil(text_markers_, passed);
  if (output.calls() == 0 || format_->keeps_text_after) output.Content(passed);
  if (found < 0) return false;
  if (found < static_cast<int>(format_->begin.size())) {
    // The block begins directly with the mark that opens its first call.
    const bool opens_call = text_markers_[found] == format_->call_open;
    state_ = format_->call_open.empty() || opens_call ? State::kName : State::kBlock;
    name_.clear();
  }
  return true;
}

bool TaggedReader::ReadName(TextInput& input, ParserOutput& output) {
  const int found = input.PassUntil(format_->name_end, name_);
  if (name_.size() > kMaxHeldBytes) name_.resize(kMaxHeldBytes);
  if (found < 0) return false;
  BeginCall(output);
  state_ = State::kCall;
  const std::string& mark = format_->name_end[found];
  if (mark == format_->parameter_open || mark == format_->end) input.Unread(mark);
  return true;
}

bool TaggedReader::ReadCall(TextInput& input, ParserOutput& output) {
  std::string dropped;
  const int found = input.PassUntil(call_markers_, dropped);
  if (found == TextInput::kMore) return false;
  if (found == 0) {
    parameter_.clear();
    state_ = State::kParameter;
    return true;
  }
  EndCall(output);
  state_ = found == 2 ? State::kBlock : State::kText;
  return found >= 0;
}

bool TaggedReader::ReadParameter(TextInput& input, ParserOutput& output) {
  if (input.PassUntil(parameter_markers_, parameter_) < 0) {
    if (parameter_.size() > kMaxHeldBytes) parameter_.resize(kMaxHeldBytes);
    if (input.ended()) EndCall(output);
    return false;
  }
  state_ = format_->value_open.empty() ? State::kValue : State::kValueOpen;
  if (state_ == State::kValue) BeginValue(output);
  return true;
}

void TaggedReader::BeginValue(ParserOutput& output) {
  std::string_view key = parameter_;
  bool is_string = false;
  bool is_json = false;
  if (!format_->is_string_mark.empty()) {
    is_string = key.find(format_->is_string_mark) != std::string_view::npos;
    is_json = key.find(format_->is_json_mark) != std::string_view::npos;
    key = key.substr(0, key.find('"'));
  }
  key = AsciiTrim(key);
  std::string plain_key;
  if (format_->escapes_names) key = plain_key = Unescaped(key);
  value_types_ = types_->Find(name_, key);
  if (is_json)
    value_types_ = {.string = true,
                    .integer = true,
                    .number = true,
                    .boolean = true,
                    .null = true,
                    .object = true,
                    .array = true};
  streams_value_ = !value_types_.is_choice &&
                   (is_string || value_types_.unknown() || value_types_.only_string());
  value_.clear();
  at_value_start_ = true;
  std::string text = has_parameter_ ? ", " : "";
  json::AppendString(text, key);
  text += streams_value_ ? ": \"" : ": ";
  has_parameter_ = true;
  // A value of another type than string may turn out to be missing, so the key is held back until
  // the value is complete.
  if (streams_value_) {
    Arguments(text, output);
  } else {
    parameter_ = text;
  }
}

void TaggedReader::PassValue(ParserOutput& output, bool last) {
  if (format_->trims_newline) {
    if (at_value_start_ && !value_.empty()) {
      if (value_.front() == '\n') value_.erase(0, 1);
      at_value_start_ = false;
    }
    // Holds back the last line break, which is not part of the value if the closing tag follows.
    if (last && !value_.empty() && value_.back() == '\n') value_.pop_back();
  }
  if (!streams_value_) return;
  size_t size = value_.size();
  if (!last && format_->trims_newline && size > 0 && value_.back() == '\n') --size;
  std::string text;
  AppendEscaped(text, std::string_view(value_).substr(0, size));
  value_.erase(0, size);
  if (last) text += '"';
  Arguments(text, output);
}

bool TaggedReader::ReadValue(TextInput& input, ParserOutput& output) {
  const int found = input.PassUntil(value_markers_, value_);
  if (found == TextInput::kMore) {
    if (!streams_value_ && value_.size() > kMaxHeldBytes) value_.resize(kMaxHeldBytes);
    PassValue(output, /*last=*/false);
    return false;
  }
  PassValue(output, /*last=*/true);
  if (found == TextInput::kEnd) {
    EndCall(output);
    return false;
  }
  if (!streams_value_) {
    const std::string_view value = value_types_.is_choice ? AsciiTrim(value_) : value_;
    Arguments(parameter_ + TypedValue(value, value_types_, format_->scalars_only), output);
  }
  state_ = State::kCall;
  return true;
}

bool TaggedReader::Step(TextInput& input, ParserOutput& output) {
  switch (state_) {
    case State::kText: return ReadText(input, output);
    case State::kName: return ReadName(input, output);
    case State::kCall: return ReadCall(input, output);
    case State::kParameter: return ReadParameter(input, output);
    case State::kValue: return ReadValue(input, output);
    case State::kValueOpen: {
      std::string dropped;
      if (input.PassUntil(value_open_markers_, dropped) < 0) {
        if (input.ended()) EndCall(output);
        return false;
      }
      BeginValue(output);
      state_ = State::kValue;
      return true;
    }
    case State::kBlock: {
      std::string dropped;
      const int found = input.PassUntil(block_markers_, dropped);
      if (found < 0) return false;
      state_ = found == 0 ? State::kText : State::kName;
      name_.clear();
      return true;
    }
  }
  return false;
}

void TaggedReader::Read(TextInput& input, ParserOutput& output) {
  while (Step(input, output)) {
  }
}

}  // namespace sluice

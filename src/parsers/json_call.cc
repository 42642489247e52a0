#include "parsers/json_call.h"

#include <algorithm>
#include <utility>

#include "base/ascii.h"
#include "base/json.h"
#include "parsers/tool_reader.h"

namespace sluice {
bool JsonCall::IsArguments(std::string_view key) const {
  return std::find(keys_->arguments.begin(), keys_->arguments.end(), key) != keys_->arguments.end();
}

void JsonCall::BeginIfKnown(ParserOutput& output) {
  if (begun_ || !has_name_ || !has_arguments_) return;
  begun_ = true;
  output.BeginCall(name_);
  output.Arguments(std::exchange(arguments_, ""));
}

JsonCall::Step JsonCall::Feed(char c, ParserOutput& output) {
  if (!begun_) {
    held_ += c;
    if (held_.size() > kMaxHeldBytes) return Step::kNoCall;
  }
  return Read(c, output);
}

bool JsonCall::BeginCut(bool certain, ParserOutput& output) {
  if (!has_name_ || has_arguments_ || begun_) return false;
  const bool in_key = state_ == State::kKey || state_ == State::kColon || state_ == State::kValue;
  const bool is_other_key =
      in_key && std::ranges::none_of(keys_->arguments, [&](const std::string& key) {
        return state_ == State::kKey ? key.starts_with(key_) : key == key_;
      });
  const bool in_other_value = state_ == State::kInValue && meaning_ != Meaning::kName;
  if (!certain && (is_other_key || in_other_value)) return false;
  begun_ = true;
  output.BeginCall(name_);
  return true;
}

bool JsonCall::InArgumentString() const {
  return begun_ && state_ == State::kInValue && meaning_ == Meaning::kArguments &&
         scan_.InString() && !scan_.AfterBackslash();
}

void JsonCall::PassArguments(char c, bool in_string, ParserOutput& output) {
  if (!in_string) {
    const bool is_first = arguments_.empty() && !after_colon_;
    has_value_ |= is_first ? c != '{' : after_colon_ && !IsAsciiBlank(c);
    after_colon_ |= c == ':';
  }
  arguments_ += c;
  if (begun_ && (has_value_ || !keys_->wait_for_value))
    output.Arguments(std::exchange(arguments_, ""));
}

JsonCall::Step JsonCall::CloseValue(ParserOutput& output) {
  state_ = State::kAfterValue;
  if (meaning_ == Meaning::kName) {
    const auto name = json::Parse(name_);
    if (!name || !name->is_string() || name->as_string().empty()) return Step::kNoCall;
    name_ = name->as_string();
    has_name_ = true;
    BeginIfKnown(output);
  }
  if (meaning_ == Meaning::kArguments && begun_) output.Arguments(std::exchange(arguments_, ""));
  return Step::kInside;
}

JsonCall::Step JsonCall::Read(char c, ParserOutput& output) {
  const Step wrong = begun_ ? Step::kBroken : Step::kNoCall;
  switch (state_) {
    case State::kOpen: state_ = State::kKeyOrEnd; return c == '{' ? Step::kInside : wrong;
    case State::kKeyOrEnd:
      if (IsAsciiBlank(c)) return Step::kInside;
      if (c == '"') {
        key_.clear();
        state_ = State::kKey;
        return Step::kInside;
      }
      if (c != '}') return wrong;
      if (!begun_ && has_name_ && keys_->may_lack_arguments) {
        has_arguments_ = true;
        arguments_ = "{}";
        BeginIfKnown(output);
      }
      return begun_ ? Step::kDone : Step::kNoCall;
    case State::kKey:
      if (!escaped_ && c == '"') {
        state_ = State::kColon;
      } else {
        escaped_ = !escaped_ && c == '\\';
        if (key_.size() < kMaxHeldBytes) key_ += c;
      }
      return Step::kInside;
    case State::kColon:
      if (c == ':') state_ = State::kValue;
      return c == ':' || IsAsciiBlank(c) ? Step::kInside : wrong;
    case State::kValue:
      if (IsAsciiBlank(c)) return Step::kInside;
      if (c == ',' || c == '}' || c == ']' || c == ':') return wrong;
      meaning_ = key_ == "name" && !has_name_           ? Meaning::kName
                 : IsArguments(key_) && !has_arguments_ ? Meaning::kArguments
                                                        : Meaning::kOther;
      scan_ = JsonValueScan();
      state_ = State::kInValue;
      has_arguments_ |= meaning_ == Meaning::kArguments;
      BeginIfKnown(output);
      [[fallthrough]];
    case State::kInValue: {
      const bool in_string = scan_.InString();
      const JsonValueScan::Step step = scan_.Feed(c);
      if (step == JsonValueScan::Step::kOver) {
        const Step closed = CloseValue(output);
        return closed == Step::kInside ? Read(c, output) : closed;
      }
      if (meaning_ == Meaning::kName) name_ += c;
      if (meaning_ == Meaning::kArguments) PassArguments(c, in_string, output);
      return step == JsonValueScan::Step::kLast ? CloseValue(output) : Step::kInside;
    }
    case State::kAfterValue:
      if (IsAsciiBlank(c)) return Step::kInside;
      if (c == ',') {
        state_ = State::kKeyOrEnd;
        return Step::kInside;
      }
      if (c != '}') return wrong;
      state_ = State::kKeyOrEnd;
      return Read(c, output);
  }
  return wrong;
}

}  // namespace sluice

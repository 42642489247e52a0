#include "parsers/json_reader.h"

#include <algorithm>
#include <utility>

#include "base/ascii.h"
#include "parsers/tool_types.h"

namespace sluice {
JsonReader::JsonReader(const JsonFormat* format)
    : format_(format), state_(format->at_start ? State::kOpen : State::kText) {}

void JsonReader::Emit(std::string_view text, ParserOutput& output) {
  if (output.calls() == 0 || format_->keeps_text_after) output.Content(text);
}

ParserOutput& JsonReader::CallOutput(ParserOutput& output) {
  return format_->closed_only ? unclosed_ : output;
}

void JsonReader::ReleaseClosed(ParserOutput& output) {
  for (ParserEvent& event : unclosed_.Take()) {
    if (event.kind == ParserEvent::Kind::kCallBegin) {
      output.BeginCall(std::move(event.text), std::move(event.id));
    } else if (event.kind == ParserEvent::Kind::kCallArguments) {
      output.Arguments(event.text);
    }
  }
}

void JsonReader::NoCall(ParserOutput& output) {
  std::string held = std::exchange(held_, "");
  if (call_ && !call_->begun()) held += call_->held();
  call_.reset();
  state_ = format_->drops_broken ? State::kDropped
           : format_->at_start   ? State::kPlain
                                 : State::kText;
  if (!format_->drops_broken) Emit(held, output);
}

bool JsonReader::ReadText(TextInput& input, ParserOutput& output) {
  std::string passed;
  const int found = input.PassUntil(format_->begin, passed);
  Emit(passed, output);
  if (found < 0) return false;
  held_ = format_->begin[found];
  // The brace or bracket is read again, as part of the call or list.
  if (held_.ends_with('{') || held_.ends_with('[')) {
    input.Unread(held_.substr(held_.size() - 1));
    held_.pop_back();
  }
  state_ = State::kOpen;
  return true;
}

void JsonReader::Open(char c, ParserOutput& output) {
  if (IsAsciiBlank(c)) {
    held_ += c;
    if (held_.size() > kMaxHeldBytes) NoCall(output);
    return;
  }
  if (format_->list && c == '[') {
    held_ += c;
    state_ = State::kBetween;
    return;
  }
  held_ += c;
  // Drops the marker, but not the text after the marker: it may be content.
  if (format_->drops_broken) held_.assign(1, c);
  call_.reset();
  state_ = format_->at_start ? State::kPlain : State::kText;
  Emit(std::exchange(held_, ""), output);
}

void JsonReader::FeedCall(char c, TextInput& input, ParserOutput& output) {
  switch (call_->Feed(c, CallOutput(output))) {
    case JsonCall::Step::kInside: break;
    case JsonCall::Step::kDone:
      held_.clear();
      state_ = format_->list ? State::kBetween : State::kClose;
      break;
    case JsonCall::Step::kBroken:
      held_.clear();
      input.Unread({&c, 1});
      state_ = State::kClose;
      break;
    case JsonCall::Step::kNoCall: NoCall(output); break;
  }
}

// Whether `text` is the brace and the marker that end a call; unless `complete`, whether `text` may
// be the beginning of these.
bool JsonReader::MayEndCall(std::string_view text, bool complete) const {
  if (text.starts_with('}')) {
    text.remove_prefix(1);
    while (!text.empty() && IsAsciiBlank(text.front())) text.remove_prefix(1);
    if (text.empty()) return !complete;
  }
  return std::ranges::any_of(format_->end, [&](const std::string& marker) {
    if (text.starts_with(marker)) return AsciiTrim(text.substr(marker.size())).empty();
    return !complete && marker.starts_with(text);
  });
}

// Reads a byte of a call. A marker inside a string is text, unless the answer ends with it. In that
// case the model forgot the closing quote, and the text that ends the call does not belong to the
// arguments.
void JsonReader::ReadCall(char c, TextInput& input, ParserOutput& output) {
  if (format_->end.empty() || !call_->InArgumentString()) {
    FeedCall(c, input, output);
    return;
  }
  if (MayEndCall(tail_ + c, /*complete=*/false)) {
    tail_ += c;
    return;
  }
  // The held bytes do not end the call, so they belong to the string.
  for (const char byte : std::exchange(tail_, "")) FeedCall(byte, input, output);
  if (MayEndCall({&c, 1}, /*complete=*/false)) {
    tail_ = c;
  } else {
    FeedCall(c, input, output);
  }
}

void JsonReader::Cut(TextInput& input, ParserOutput& output) {
  ToolReader::Cut(input, output);
  const bool marked = format_->drops_broken || (!held_.empty() && !format_->at_start);
  const bool certain = marked || (format_->list && output.calls() > 0);
  const bool waits = state_ == State::kOpen || state_ == State::kCall || state_ == State::kBetween;
  if (waits && (!call_ || !call_->begun())) {
    const bool named = call_ && call_->BeginCut(certain, CallOutput(output));
    if (named || marked) {
      held_.clear();
      call_.reset();
      state_ = State::kText;
    }
  }
  ReleaseClosed(output);
}

bool JsonReader::ReadClose(TextInput& input, ParserOutput& output) {
  if (!format_->end.empty()) {
    std::string dropped;
    if (input.PassUntil(format_->end, dropped) < 0) return false;
  }
  ReleaseClosed(output);
  call_.reset();
  state_ = State::kText;
  return true;
}

void JsonReader::Read(TextInput& input, ParserOutput& output) {
  for (;;) {
    if (state_ == State::kText) {
      if (!ReadText(input, output)) return;
      continue;
    }
    if (state_ == State::kClose) {
      if (!ReadClose(input, output)) return;
      continue;
    }
    const std::optional<char> c = input.Next();
    if (!c) {
      const bool waits =
          state_ == State::kOpen || state_ == State::kCall || state_ == State::kBetween;
      if (input.ended() && waits && (!call_ || !call_->begun())) NoCall(output);
      if (input.ended() && !tail_.empty() && !MayEndCall(tail_, /*complete=*/true)) {
        for (const char byte : std::exchange(tail_, "")) FeedCall(byte, input, output);
      }
      return;
    }
    switch (state_) {
      case State::kOpen:
        if (!format_->list && *c == '{') {
          call_.emplace(&format_->keys);
          state_ = State::kCall;
          FeedCall(*c, input, output);
        } else {
          Open(*c, output);
        }
        break;
      case State::kBetween:
        if (*c == '{') {
          call_.emplace(&format_->keys);
          state_ = State::kCall;
          FeedCall(*c, input, output);
        } else if (*c == ']') {
          if (call_) {
            state_ = State::kClose;
          } else {
            held_ += *c;
            NoCall(output);
          }
        } else if (IsAsciiBlank(*c) || (*c == ',' && call_)) {
          if (!call_) held_ += *c;
        } else if (call_) {
          state_ = State::kClose;
        } else {
          held_ += *c;
          NoCall(output);
        }
        break;
      case State::kCall: ReadCall(*c, input, output); break;
      case State::kPlain: Emit({&*c, 1}, output); break;
      case State::kDropped: break;
      case State::kText:
      case State::kClose: break;
    }
  }
}

}  // namespace sluice

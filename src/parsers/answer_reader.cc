#include "parsers/answer_reader.h"

#include <algorithm>
#include <utility>

#include "base/ascii.h"
#include "parsers/forced_call_readers.h"
#include "parsers/parser_table.h"

namespace sluice {
namespace {

size_t LastOf(std::string_view text, const std::vector<std::string>& marks) {
  size_t last = 0;  // one past the beginning; 0: not there
  for (const std::string& mark : marks) {
    const size_t at = text.rfind(mark);
    if (at != std::string_view::npos) last = std::max(last, at + 1);
  }
  return last;
}

bool StartsInside(const ReasoningFormat& format, const AnswerReaderOptions& options) {
  if (format.can_be_off && options.thinking == false) return false;
  if (format.reads_prompt) {
    const size_t start = LastOf(options.prompt, format.start);
    const size_t end = LastOf(options.prompt, format.end);
    if (start > end) return true;
    // A closed thought counts only at the very end: those of earlier answers do not.
    if (end > start || (end > 0 && end == start)) {
      std::string_view rest = options.prompt.substr(end - 1);
      for (const std::string& mark : format.end) {
        if (rest.starts_with(mark) && AsciiTrim(rest.substr(mark.size())).empty()) return false;
      }
    }
  }
  return format.starts_inside;
}

bool IsBegin(const ParserEvent& event) {
  return event.kind == ParserEvent::Kind::kCallBegin;
}

// Neighbours of one kind are one event, but for breaks.
void AppendEvent(ParserEvent event, std::vector<ParserEvent>& events) {
  const bool joins = !events.empty() && !IsBegin(event) && events.back().kind == event.kind &&
                     events.back().call == event.call && !event.is_break && !events.back().is_break;
  if (joins) {
    events.back().text += event.text;
  } else {
    events.push_back(std::move(event));
  }
}

MakeChannelReader ChannelsOf(const AnswerReaderOptions& options) {
  if (options.tools != nullptr && options.tools->channels != nullptr)
    return options.tools->channels;
  return options.reasoning == nullptr ? nullptr : options.reasoning->channels;
}

void Append(std::vector<std::string>& marks, const std::vector<std::string>& more) {
  marks.insert(marks.end(), more.begin(), more.end());
}

}  // namespace

std::optional<bool> ThinkingSwitch(const json::Value& template_kwargs) {
  std::optional<bool> on;
  for (const char* key : {"enable_thinking", "thinking"}) {
    const json::Value* value = template_kwargs.Find(key);
    if (value != nullptr && value->is_bool()) on = value->as_bool() && on.value_or(true);
  }
  return on;
}

AnswerReader::AnswerReader(const AnswerReaderOptions& options)
    : types_(options.types == nullptr ? std::make_shared<const ToolTypes>() : options.types) {
  const MakeChannelReader channels = ChannelsOf(options);
  if (options.form == CallForm::kList) {
    tools_ = MakeCallListReader();
  } else if (options.form == CallForm::kArguments) {
    tools_ = MakeArgumentsReader(std::string(options.named));
  } else if (channels != nullptr) {
    tools_ =
        channels({.calls = options.tools != nullptr, .thoughts = options.reasoning != nullptr});
  } else if (options.tools != nullptr) {
    tools_ = options.tools->make(*types_);
  }
  holds_calls_ = options.whole && tools_ != nullptr;
  keeps_broken_text_ = options.form == CallForm::kOwn;
  tells_cut_calls_ = options.streamed && tools_ != nullptr && options.form == CallForm::kOwn;
  if (options.reasoning == nullptr || channels != nullptr) return;
  const ReasoningFormat& format = options.reasoning->format;
  if (!format.content_prefix.empty()) PassContent(format.content_prefix);
  if (format.must_be_on ? options.thinking != true : !format.content_prefix.empty()) return;
  format_ = &format;
  inside_ = StartsInside(format, options);
  Append(inside_marks_, format.end);
  if (!format.keeps_start) Append(inside_marks_, format.start);
  Append(inside_marks_, format.call_marks);
  Append(outside_marks_, format.start);
  Append(outside_marks_, format.end);
}

AnswerReader::~AnswerReader() = default;

void AnswerReader::PassContent(std::string_view text) {
  if (text.empty() && !content_.ended()) return;
  if (tools_ == nullptr) {
    output_.Content(text);
    return;
  }
  content_.Add(text);
  if (holds_calls_) unsettled_ += text;
  tools_->Read(content_, output_);
}

bool AnswerReader::StepInside() {
  std::string passed;
  const int found = input_.PassUntil(inside_marks_, passed);
  output_.Reasoning(passed);
  if (!passed.empty() || found >= 0) bare_start_.clear();
  if (found < 0) return false;
  const size_t mark = static_cast<size_t>(found);
  const size_t ends = format_->end.size();
  if (mark < ends) {
    inside_ = false;
    had_thought_ = true;
  } else if (mark >= ends + (format_->keeps_start ? 0 : format_->start.size())) {
    inside_ = false;
    had_thought_ = true;
    PassContent(inside_marks_[mark]);
  }
  return true;
}

bool AnswerReader::StepOutside() {
  std::string passed;
  const bool looks =
      format_ != nullptr && (format_->repeats || !(had_thought_ || format_->starts_inside));
  const int found = input_.PassUntil(looks ? outside_marks_ : std::vector<std::string>(), passed);
  PassContent(passed);
  if (found < 0) return false;
  const size_t mark = static_cast<size_t>(found);
  const bool in_call = tools_ != nullptr && !tools_->InText();
  const bool is_start = mark < format_->start.size();
  if (!in_call && is_start) {
    inside_ = true;
    if (format_->needs_words) bare_start_ = outside_marks_[mark];
  } else if (in_call || !format_->repeats) {
    PassContent(outside_marks_[mark]);
  }
  return true;
}

void AnswerReader::Advance() {
  while (inside_ ? StepInside() : StepOutside()) {
  }
}

// Moves what was read to `events_`, and holds calls back until they are complete.
void AnswerReader::Collect() {
  for (ParserEvent& event : output_.Take()) {
    const bool of_call = event.kind == ParserEvent::Kind::kCallBegin ||
                         event.kind == ParserEvent::Kind::kCallArguments;
    AppendEvent(std::move(event), holds_calls_ && of_call ? held_ : events_);
  }
  if (!holds_calls_) return;
  if (!tools_->LastCallIsBroken()) {
    for (ParserEvent& event : held_) AppendEvent(std::move(event), events_);
    held_.clear();
  }
  if (tools_->InText() && content_.empty() && output_.has_words()) unsettled_.clear();
}

// The last call, which is no call after all, is the text that it was read from.
void AnswerReader::DropBrokenCall() {
  held_.clear();
  const bool is_first = std::ranges::none_of(events_, IsBegin) && calls_ == 0;
  if (keeps_broken_text_ && is_first)
    AppendEvent({ParserEvent::Kind::kContent, 0, unsettled_, ""}, events_);
}

std::vector<ParserEvent> AnswerReader::Give() {
  calls_ += static_cast<int>(std::ranges::count_if(events_, IsBegin));
  return std::exchange(events_, {});
}

std::vector<ParserEvent> AnswerReader::Push(std::string_view text) {
  for (const char& byte : text) {
    input_.Add({&byte, 1});
    Advance();
    if (holds_calls_) Collect();
  }
  Collect();
  return Give();
}

std::vector<ParserEvent> AnswerReader::Finish() {
  input_.End();
  Advance();
  PassContent(bare_start_);
  Collect();
  if (!held_.empty() && tools_->LastCallIsBroken()) {
    DropBrokenCall();
    return Give();
  }
  if (tells_cut_calls_) tools_->TellCutCall(output_);
  content_.End();
  PassContent("");
  output_.End();
  Collect();
  return Give();
}

}  // namespace sluice

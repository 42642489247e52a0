#include "parsers/answer_reader.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/ascii.h"
#include "parsers/forced_call_readers.h"
#include "parsers/parser_table.h"

namespace sluice {
namespace {

size_t LastOf(std::string_view text, const std::vector<std::string>& marks) {
  size_t last = 0;  // end of the last mark found so far; 0: none
  for (const std::string& mark : marks) {
    const size_t at = text.rfind(mark);
    if (at != std::string_view::npos) last = std::max(last, at + 1);
  }
  return last;
}

// Whether the prompt leaves a thought open; nullopt if it contains no marks.
std::optional<bool> OpenInPrompt(const ReasoningFormat& format, std::string_view turn) {
  const size_t start = LastOf(turn, format.start);
  const size_t end = LastOf(turn, format.end);
  if (start == 0 && end == 0) return std::nullopt;
  return start > end;
}

bool StartsInside(const ReasoningFormat& format, const AnswerReaderOptions& options) {
  const std::optional<bool> open = OpenInPrompt(format, options.prompt);
  if (options.constrained) return open == true;
  if (format.can_be_off && options.thinking == false) return false;
  return format.reads_prompt && open ? *open : format.starts_inside;
}

bool IsBegin(const ParserEvent& event) {
  return event.kind == ParserEvent::Kind::kCallBegin;
}

// Appends an event. Joins it with the previous one if both have the same kind, except at breaks.
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

bool LeavesThoughtOpen(const ReasoningFormat& format, std::string_view turn) {
  return OpenInPrompt(format, turn) == true;
}

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
    tools_ = channels({.calls = options.tools != nullptr,
                       .thoughts = options.reasoning != nullptr,
                       .constrained = options.constrained});
    searches_events_ = true;
  } else if (options.tools != nullptr) {
    tools_ = options.tools->make(*types_);
  }
  constrained_ = options.constrained;
  if (!options.stops.strings.empty()) stops_.emplace(options.stops);
  if (options.reasoning == nullptr || channels != nullptr) return;
  const ReasoningFormat& format = options.reasoning->format;
  if (constrained_) {
    format_ = &format;
    inside_ = marked_ = StartsInside(format, options);
    // No mark can begin the answer if the turn has already closed its thought, or if the request
    // turns thinking off.
    if (!OpenInPrompt(format, options.prompt) && options.thinking != false) first_ = "";
    // Recognizes only end marks, as the grammar's matcher does.
    inside_marks_ = format.end;
    return;
  }
  if (!format.content_prefix.empty()) GiveContent(format.content_prefix);
  if (format.must_be_on ? options.thinking != true : !format.content_prefix.empty()) return;
  format_ = &format;
  inside_ = StartsInside(format, options);
  marked_ = inside_ && LeavesThoughtOpen(format, options.prompt);
  Append(inside_marks_, format.end);
  if (!format.keeps_start) Append(inside_marks_, format.start);
  Append(inside_marks_, format.call_marks);
  Append(outside_marks_, format.start);
  Append(outside_marks_, format.end);
}

AnswerReader::~AnswerReader() = default;

// Passes on text outside thoughts, where stop strings are searched for.
void AnswerReader::PassContent(std::string_view text) {
  if (!stops_ || searches_events_) return GiveContent(text);
  if (stopped_by_) return;
  stopped_by_ = stops_->Add(text, may_stop_);
  GiveContent(stops_->Take());
}

void AnswerReader::GiveContent(std::string_view text) {
  if (text.empty() && !content_.ended()) return;
  if (tools_ == nullptr) {
    output_.Content(text);
    return;
  }
  content_.Add(text);
  tools_->Read(content_, output_);
}

bool AnswerReader::StepInside() {
  std::string passed;
  const size_t starts = format_->keeps_start ? 0 : format_->start.size();
  std::span<const std::string> marks = inside_marks_;
  if (marked_ && !constrained_) marks = marks.first(format_->end.size() + starts);
  const int found = input_.PassUntil(marks, passed);
  // A thought without a begin mark may be the whole answer, so the thought is searched for stop
  // strings.
  if (stops_ && !marked_ && !stopped_by_) {
    stopped_by_ = stops_->Add(passed, may_stop_);
    output_.Reasoning(found < 0 || stopped_by_ ? stops_->Take() : stops_->TakeAll());
    if (stopped_by_) return false;
  } else {
    output_.Reasoning(passed);
  }
  if (!passed.empty() || found >= 0) bare_start_.clear();
  if (found < 0) return false;
  const size_t mark = static_cast<size_t>(found);
  const size_t ends = format_->end.size();
  if (mark < ends) {
    inside_ = false;
    had_thought_ = true;
  } else if (mark >= ends + starts) {
    inside_ = false;
    had_thought_ = true;
    PassContent(inside_marks_[mark]);
  } else {
    marked_ = true;
  }
  return true;
}

// Reads the beginning of a constrained answer, which may be a mark that begins a thought.
bool AnswerReader::StepFirst() {
  const std::optional<char> c = input_.Next();
  if (!c && !input_.ended()) return false;
  if (c) *first_ += *c;
  for (const std::string& mark : format_->start) {
    if (!c || !mark.starts_with(*first_)) continue;
    if (mark != *first_) return true;
    if (format_->keeps_start) output_.Reasoning(mark);
    inside_ = marked_ = true;
    first_.reset();
    return true;
  }
  PassContent(*std::exchange(first_, std::nullopt));
  return true;
}

bool AnswerReader::StepOutside() {
  if (first_) return StepFirst();
  std::string passed;
  const bool looks = format_ != nullptr && !constrained_ &&
                     (format_->repeats || !(had_thought_ || format_->starts_inside));
  const int found = input_.PassUntil(looks ? outside_marks_ : std::vector<std::string>(), passed);
  PassContent(passed);
  if (found < 0) return false;
  const size_t mark = static_cast<size_t>(found);
  const bool in_call = tools_ != nullptr && !tools_->InText();
  const bool is_start = mark < format_->start.size();
  if (!in_call && is_start) {
    if (stops_ && !searches_events_ && !stopped_by_) GiveContent(stops_->TakeAll());
    inside_ = marked_ = true;
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

// Searches an event of a channel reader for stop strings. Returns false if its text is held back or
// cut off.
bool AnswerReader::SearchEvent(ParserEvent& event) {
  if (stopped_by_) return false;
  if (event.kind != ParserEvent::Kind::kContent || event.is_break) {
    if (std::string held = stops_->TakeAll(); !held.empty())
      AppendEvent({ParserEvent::Kind::kContent, 0, std::move(held), ""}, events_);
    return true;
  }
  stopped_by_ = stops_->Add(event.text, may_stop_);
  event.text = stops_->Take();
  return !event.text.empty();
}

// Moves new events to `events_`.
void AnswerReader::Collect() {
  for (ParserEvent& event : output_.Take()) {
    if (searches_events_ && stops_ && !SearchEvent(event)) continue;
    AppendEvent(std::move(event), events_);
  }
}

std::vector<ParserEvent> AnswerReader::Give() {
  calls_ += static_cast<int>(std::ranges::count_if(events_, IsBegin));
  return std::exchange(events_, {});
}

std::vector<ParserEvent> AnswerReader::Push(std::string_view text, bool may_stop) {
  may_stop_ = may_stop;
  for (const char& byte : text) {
    if (stopped_by_) break;
    input_.Add({&byte, 1});
    Advance();
  }
  Collect();
  return Give();
}

std::vector<ParserEvent> AnswerReader::Finish(bool is_cut) {
  if (is_cut && first_) *first_ = "";
  if (is_cut) input_.Clear();
  input_.End();
  if (!stopped_by_) {
    Advance();
    PassContent(bare_start_);
  }
  if (stops_ && inside_ && !marked_) {
    output_.Reasoning(stops_->TakeAll());
  } else if (stops_ && !searches_events_) {
    GiveContent(stops_->TakeAll());
  }
  if (is_cut) content_.Clear();
  if (tools_ != nullptr) tools_->Cut(content_, output_);
  // A channel reader may hold back the beginning of its first mark. If the answer was cut off, the
  // held text is dropped.
  if (!is_cut || !constrained_ || !searches_events_) {
    content_.End();
    GiveContent("");
  }
  output_.End();
  Collect();
  if (stops_ && searches_events_) {
    if (std::string held = stops_->TakeAll(); !held.empty())
      AppendEvent({ParserEvent::Kind::kContent, 0, std::move(held), ""}, events_);
  }
  return Give();
}

}  // namespace sluice

// Splits an answer's text into reasoning, content and calls while it arrives.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "parsers/parser_output.h"
#include "parsers/reasoning_format.h"
#include "parsers/stop_search.h"
#include "parsers/text_input.h"
#include "parsers/tool_reader.h"
#include "parsers/tool_types.h"

namespace sluice {

struct ToolParser;
struct ReasoningParser;

// How the calls of an answer are written.
enum class CallForm {
  kOwn,       // in the model's own format
  kList,      // the answer is a JSON list of calls
  kArguments  // the answer is the arguments of one call
};

// The settings of a request for the reader of its answer.
struct AnswerReaderOptions {
  const ToolParser* tools = nullptr;           // null: calls are content
  const ReasoningParser* reasoning = nullptr;  // null: thoughts are content
  std::shared_ptr<const ToolTypes> types;      // null: none are known
  CallForm form = CallForm::kOwn;              // REQUIRES: kOwn without `tools`
  std::string_view named = {};                 // the tool that kArguments calls
  // A grammar constrains the answer. It has a thought only if the prompt has left one open or, if
  // `prompt` has no mark and `thinking` is not false, if the answer begins with a mark. Everything
  // after the thought is content and calls, even marks.
  bool constrained = false;
  StopRules stops = {};  // searched for outside thoughts with a begin mark
  // The part of the prompt in the turn that the answer continues; read only by the constructor.
  std::string_view prompt;
  std::optional<bool> thinking;  // result of ThinkingSwitch()
};

// Whether `turn`, the part of the prompt in the answer's turn, leaves a thought open.
bool LeavesThoughtOpen(const ReasoningFormat& format, std::string_view turn);

// Returns enable_thinking or thinking of chat_template_kwargs if boolean; false if either is false;
// nullopt if neither is set.
std::optional<bool> ThinkingSwitch(const json::Value& template_kwargs);

// Reads one answer. The inner readers receive one byte at a time, so that the events, with adjacent
// ones of one kind joined, do not depend on how the text is cut into pieces. If the text ends
// within a call, the call is reported only if its name is known, with the arguments so far. Not
// thread-safe.
class AnswerReader {
 public:
  explicit AnswerReader(const AnswerReaderOptions& options);
  ~AnswerReader();

  // Returns the events that `text` completes. An event may end inside a character if `text` does.
  // Text after a stop string is dropped. `may_stop`: a stop string may end in `text`.
  std::vector<ParserEvent> Push(std::string_view text, bool may_stop = true);
  // Ends the text. `is_cut`: a limit ended it, so the possible beginning of a mark, or of the
  // thought of a constrained answer, is dropped. REQUIRES: called once, as the last call.
  std::vector<ParserEvent> Finish(bool is_cut = false);

  // Whether thoughts are recognized by their marks; if not, the marks are content, too.
  bool reads_thoughts() const { return format_ != nullptr; }
  // Whether the current text is a thought that began with a mark.
  bool in_marked_thought() const { return inside_ && marked_; }
  // The stop string that ended the answer, if any.
  const std::optional<std::string>& stopped_by() const { return stopped_by_; }
  // Whether the current text is content: neither a thought nor part of a call.
  bool in_content() const { return !inside_ && (tools_ == nullptr || tools_->InText()); }
  // The number of calls returned so far.
  int calls() const { return calls_; }

 private:
  void Collect();
  std::vector<ParserEvent> Give();
  void Advance();
  bool StepInside();
  bool StepOutside();
  bool StepFirst();
  void PassContent(std::string_view text);
  void GiveContent(std::string_view text);
  bool SearchEvent(ParserEvent& event);

  const ReasoningFormat* format_ = nullptr;  // null: does not look for thoughts
  std::shared_ptr<const ToolTypes> types_;
  std::unique_ptr<ToolReader> tools_;
  std::vector<std::string> inside_marks_;   // ends, starts, calls
  std::vector<std::string> outside_marks_;  // starts, ends
  bool inside_ = false;
  bool marked_ = false;  // the thought has a begin mark: a call inside it is text
  bool had_thought_ = false;
  bool constrained_ = false;
  std::optional<std::string> first_;  // possible beginning of a constrained answer's begin mark
  std::string bare_start_;  // begin mark of a thought that is still empty, if `needs_words`
  TextInput input_;
  std::optional<StopSearch> stops_;  // nullopt: no stop strings
  bool searches_events_ = false;     // searches events instead of text: tools_ reads thoughts, too
  bool may_stop_ = true;
  std::optional<std::string> stopped_by_;
  TextInput content_;  // input of tools_
  ParserOutput output_;
  std::vector<ParserEvent> events_;  // not yet returned
  int calls_ = 0;
};

}  // namespace sluice

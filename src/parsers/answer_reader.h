// Splits the text of an answer into reasoning, content and calls as it arrives. A thought is a part
// of the text that contains reasoning; marks are the texts that begin and end it.
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

// The form of the answer's tool calls.
enum class CallForm {
  kOwn,       // in the model's own format
  kList,      // the whole answer is a JSON list of calls
  kArguments  // the whole answer is the arguments of a single call
};

// The parts of a request that the reader of an answer needs.
struct AnswerReaderOptions {
  const ToolParser* tools = nullptr;           // null: calls are treated as content
  const ReasoningParser* reasoning = nullptr;  // null: thoughts are treated as content
  std::shared_ptr<const ToolTypes> types;      // parameter types of the tools; null: unknown
  CallForm form = CallForm::kOwn;              // REQUIRES: kOwn if `tools` is null
  std::string_view named = {};                 // kArguments: the tool that is called
  // Whether a grammar constrains the answer. If so, the answer has a thought in two cases only: the
  // prompt ends inside a thought; or the answer begins with a mark, `prompt` has no mark and
  // `thinking` is not false. All text after the thought is content and calls, even if it contains
  // marks.
  bool constrained = false;
  StopRules stops = {};  // stop strings; thoughts that have a begin mark are not searched
  // The part of the prompt in the turn that the answer continues. Only the constructor reads it.
  std::string_view prompt;
  std::optional<bool> thinking;  // the result of ThinkingSwitch()
};

// Whether `turn` leaves a thought open. `turn`: the part of the prompt in the turn that the answer
// continues.
bool LeavesThoughtOpen(const ReasoningFormat& format, std::string_view turn);

// Returns the boolean enable_thinking or thinking of chat_template_kwargs; false if at least one of
// them is false; nullopt if there is none.
std::optional<bool> ThinkingSwitch(const json::Value& template_kwargs);

// Reads one answer. The inner readers receive one byte at a time. So, once adjacent events of the
// same kind are joined, the events do not depend on how the text is cut into pieces. If the text
// ends inside a call, the call is reported only if its name is known, with the arguments so far.
// Thread safety: one thread.
class AnswerReader {
 public:
  explicit AnswerReader(const AnswerReaderOptions& options);
  ~AnswerReader();

  // Returns the events that `text` completes. An event may end inside a character if `text` does.
  // Text after a stop string is dropped. `may_stop`: whether a stop string may end in `text`.
  std::vector<ParserEvent> Push(std::string_view text, bool may_stop = true);
  // Ends the text. `is_cut`: whether a limit ended the answer. If so, a possible beginning of a
  // mark, or of a constrained answer's thought, is dropped. REQUIRES: called once, as the last
  // call.
  std::vector<ParserEvent> Finish(bool is_cut = false);

  // Whether thoughts are recognized by their marks. If not, marks are content.
  bool reads_thoughts() const { return format_ != nullptr; }
  // Whether the current text is a thought that began with a mark.
  bool in_marked_thought() const { return inside_ && marked_; }
  // The stop string that ended the answer, if any.
  const std::optional<std::string>& stopped_by() const { return stopped_by_; }
  // Whether the current text is content, not a thought or part of a call.
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

  const ReasoningFormat* format_ = nullptr;  // null: the reasoning is not separated from the
                                             // content
  std::shared_ptr<const ToolTypes> types_;
  std::unique_ptr<ToolReader> tools_;
  std::vector<std::string> inside_marks_;   // marks that are recognized inside a thought: its end,
                                            // starts, calls
  std::vector<std::string> outside_marks_;  // marks that are recognized outside of thoughts:
                                            // starts, ends
  bool inside_ = false;
  bool marked_ = false;  // whether the thought has a begin mark; if so, a call inside it is text
  bool had_thought_ = false;
  bool constrained_ = false;
  std::optional<std::string> first_;  // text that may become the begin mark of a constrained answer
  std::string bare_start_;  // with `needs_words`: the begin mark of a thought that has no text yet
  TextInput input_;
  std::optional<StopSearch> stops_;  // nullopt if there are no stop strings
  bool searches_events_ = false;     // whether stop strings are searched for in events, because
                                     // tools_ also reads thoughts
  bool may_stop_ = true;
  std::optional<std::string> stopped_by_;
  TextInput content_;  // the input of tools_
  ParserOutput output_;
  std::vector<ParserEvent> events_;  // not returned yet
  int calls_ = 0;
};

}  // namespace sluice

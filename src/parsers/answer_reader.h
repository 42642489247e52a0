// Takes an answer's text apart as it comes: reasoning, content, calls.
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

// How an answer's calls are written.
enum class CallForm {
  kOwn,       // as the model's own format has them
  kList,      // as a JSON list of calls, and nothing else
  kArguments  // as the bare arguments of one call
};

// What an answer's reader has to know of its request.
struct AnswerReaderOptions {
  const ToolParser* tools = nullptr;           // null: calls are content
  const ReasoningParser* reasoning = nullptr;  // null: thoughts are content
  std::shared_ptr<const ToolTypes> types;      // null: none are known
  CallForm form = CallForm::kOwn;              // REQUIRES: kOwn without `tools`
  std::string_view named = {};                 // the tool of kArguments
  // A grammar holds the answer to a form. It has a thought only where the prompt has left one open,
  // or, if `prompt` has no mark and `thinking` is not false, where the answer begins with a mark;
  // what follows is content and calls, whatever it holds.
  bool constrained = false;
  StopRules stops = {};  // looked for outside thoughts that a mark has begun
  // What the prompt has of the turn that the answer continues; read by the constructor only.
  std::string_view prompt;
  std::optional<bool> thinking;  // as ThinkingSwitch() says
};

// Whether `turn`, what a prompt has of the answer's turn, leaves a thought open.
bool LeavesThoughtOpen(const ReasoningFormat& format, std::string_view turn);

// enable_thinking or thinking of chat_template_kwargs, if they are booleans; false wins.
std::optional<bool> ThinkingSwitch(const json::Value& template_kwargs);

// One answer. The readers get one byte at a time, so that the events, with neighbours of one kind
// joined, are the same however the text is cut into pieces. Of a call that the end of the text cuts
// nothing is given before its name is known; after that it is a call with the arguments as far as
// they go. Not thread-safe.
class AnswerReader {
 public:
  explicit AnswerReader(const AnswerReaderOptions& options);
  ~AnswerReader();

  // The events that `text` completes. A piece that ends inside a character may end an event there.
  // Text after a stop string is dropped. `may_stop`: a stop string may end in `text`.
  std::vector<ParserEvent> Push(std::string_view text, bool may_stop = true);
  // The text has ended; `is_cut`: by a limit, so that an end which may begin a mark, or the thought
  // of a constrained answer, is dropped. REQUIRES: it is called once, and last.
  std::vector<ParserEvent> Finish(bool is_cut = false);

  // False if all text is content or calls, marks of thoughts too.
  bool reads_thoughts() const { return format_ != nullptr; }
  // True while the text that comes is a thought that a mark has begun.
  bool in_marked_thought() const { return inside_ && marked_; }
  // The stop string that has ended the answer, if one has.
  const std::optional<std::string>& stopped_by() const { return stopped_by_; }
  // True while the text that comes is content: no thought, and no part of a call.
  bool in_content() const { return !inside_ && (tools_ == nullptr || tools_->InText()); }
  // The number of calls that were returned.
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

  const ReasoningFormat* format_ = nullptr;  // null: no thoughts are looked for
  std::shared_ptr<const ToolTypes> types_;
  std::unique_ptr<ToolReader> tools_;
  std::vector<std::string> inside_marks_;   // ends, starts, calls
  std::vector<std::string> outside_marks_;  // starts, ends
  bool inside_ = false;
  bool marked_ = false;  // a mark has begun the thought: a call inside it is text
  bool had_thought_ = false;
  bool constrained_ = false;
  std::optional<std::string> first_;  // may become the mark that a constrained answer begins with
  std::string bare_start_;  // of a thought without words so far, of a format that needs some
  TextInput input_;
  std::optional<StopSearch> stops_;  // none: no stop strings
  bool searches_events_ = false;     // its text is that of events, as tools_ reads thoughts, too
  bool may_stop_ = true;
  std::optional<std::string> stopped_by_;
  TextInput content_;  // what tools_ reads
  ParserOutput output_;
  std::vector<ParserEvent> events_;  // to be given out
  int calls_ = 0;
};

}  // namespace sluice

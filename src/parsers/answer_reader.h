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
  // The answer is given as a whole: a last call that is cut or broken is text, not a call. In a
  // stream it was given away by then.
  bool whole = false;
  // The answer is given to a client as it comes: of a last call that is cut before it is certain to
  // be one the name stands, if it is known, and the text that its mark began is dropped.
  bool streamed = false;
  std::string_view prompt;       // its end is enough; read by the constructor only
  std::optional<bool> thinking;  // as ThinkingSwitch() says
};

// enable_thinking or thinking of chat_template_kwargs, if they are booleans; false wins.
std::optional<bool> ThinkingSwitch(const json::Value& template_kwargs);

// One answer. The readers get one byte at a time, so that the events, with neighbours of one kind
// joined, are the same however the text is cut. Not thread-safe.
class AnswerReader {
 public:
  explicit AnswerReader(const AnswerReaderOptions& options);
  ~AnswerReader();

  // The events that `text` completes. A piece that ends inside a character may end an event there.
  std::vector<ParserEvent> Push(std::string_view text);
  // The text has ended. REQUIRES: it is called once, and last.
  std::vector<ParserEvent> Finish();

  // True while the text that comes is a thought.
  bool reasoning() const { return inside_; }
  // Of the calls that were given out.
  int calls() const { return calls_; }

 private:
  void Collect();
  void DropBrokenCall();
  std::vector<ParserEvent> Give();
  void Advance();
  bool StepInside();
  bool StepOutside();
  void PassContent(std::string_view text);

  const ReasoningFormat* format_ = nullptr;  // null: no thoughts are looked for
  std::shared_ptr<const ToolTypes> types_;
  std::unique_ptr<ToolReader> tools_;
  std::vector<std::string> inside_marks_;   // ends, starts, calls
  std::vector<std::string> outside_marks_;  // starts, ends
  bool inside_ = false;
  bool had_thought_ = false;
  std::string bare_start_;  // of a thought without words so far, of a format that needs some
  TextInput input_;
  TextInput content_;  // what tools_ reads
  ParserOutput output_;
  std::vector<ParserEvent> events_;  // to be given out
  int calls_ = 0;

  // Of AnswerReaderOptions::whole.
  bool holds_calls_ = false;
  bool tells_cut_calls_ = false;  // of AnswerReaderOptions::streamed
  bool keeps_broken_text_ = true;
  std::vector<ParserEvent> held_;  // of calls that are not complete yet
  std::string unsettled_;          // text that `held_` was read from
};

}  // namespace sluice

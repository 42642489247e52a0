// The output of parsers: events with content, reasoning and tool calls.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// A part of an answer. Calls are numbered from 0 in the order in which they begin. A call has
// exactly one kCallBegin, and no kCallArguments after the next call has begun.
struct ParserEvent {
  enum class Kind { kContent, kReasoning, kCallBegin, kCallArguments };
  Kind kind = Kind::kContent;
  int call = 0;      // the call's number; only for the last two kinds
  std::string text;  // the text; kCallBegin: the tool's name; kCallArguments: a part of the JSON
  std::string id;    // kCallBegin: the id that the model wrote; "" in most formats
  // Whether the text is a line break that separates two messages of the model.
  bool is_break = false;
};

// Collects events. White space before the first word of the content is held back until that word,
// and is dropped if a call begins instead. Thread safety: one thread.
class ParserOutput {
 public:
  void Content(std::string_view text);
  void Reasoning(std::string_view text);
  // Separate the next message from the previous one of the same kind.
  void BreakContent();
  void BreakReasoning();
  void BeginCall(std::string name, std::string id = "");
  // REQUIRES: a call has begun.
  void Arguments(std::string_view text);
  // Ends the text: white space held back becomes content, unless there are calls.
  void End();

  int calls() const { return calls_; }
  bool has_words() const { return has_words_; }
  // Returns the events since the last call. Adjacent events of one kind are joined, except at
  // breaks.
  std::vector<ParserEvent> Take();

 private:
  void Add(ParserEvent::Kind kind, std::string_view text);

  int calls_ = 0;
  bool has_words_ = false;
  std::string blanks_;
  std::vector<ParserEvent> events_;
};

}  // namespace sluice

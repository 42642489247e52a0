// What parsers make of a model's text: content, reasoning, and the calls of tools.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// A piece of an answer. Calls are numbered from 0 in the order in which they begin; a call begins
// with its one kCallBegin, and none continues after the next began.
struct ParserEvent {
  enum class Kind { kContent, kReasoning, kCallBegin, kCallArguments };
  Kind kind = Kind::kContent;
  int call = 0;      // of the last two kinds
  std::string text;  // the text; of kCallBegin the tool's name; of kCallArguments a piece of JSON
  std::string id;    // of kCallBegin: the id that the model wrote, empty in most formats
  // The text, a line break, parts two messages that the model wrote as such.
  bool is_break = false;
};

// Collects events. White space before the first word of the content waits for that word, and is
// dropped if a call begins instead. Not thread-safe.
class ParserOutput {
 public:
  void Content(std::string_view text);
  void Reasoning(std::string_view text);
  // Another message of the kind begins.
  void BreakContent();
  void BreakReasoning();
  void BeginCall(std::string name, std::string id = "");
  // REQUIRES: a call has begun.
  void Arguments(std::string_view text);
  // The text has ended: white space that waited is content, unless there are calls.
  void End();

  int calls() const { return calls_; }
  bool has_words() const { return has_words_; }
  // The events since the last call; neighbours of one kind are one event, but for
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

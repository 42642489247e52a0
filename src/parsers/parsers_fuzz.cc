// Fuzz target: passes arbitrary bytes through every parser. The result must not depend on how the
// text is cut into pieces. Calls must be in order. The end of the text may begin at most one call:
// the one that it cuts off.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/fuzz_input.h"
#include "parsers/answer_reader.h"
#include "parsers/parser_table.h"

namespace sluice {
namespace {

// Writes events as one text, joining adjacent ones of one kind.
class Joined {
 public:
  void Add(const std::vector<ParserEvent>& events) {
    for (const ParserEvent& event : events) {
      if (event.kind == ParserEvent::Kind::kCallBegin) {
        fuzz::Require(event.call == calls_++);
      } else if (event.kind == ParserEvent::Kind::kCallArguments) {
        fuzz::Require(event.call == calls_ - 1);
      }
      if (event.kind != last_ || event.kind == ParserEvent::Kind::kCallBegin) {
        text_ += '\0';
        text_ += static_cast<char>('0' + static_cast<int>(event.kind));
      }
      last_ = event.kind;
      text_ += event.text;
    }
  }
  const std::string& text() const { return text_; }
  int calls() const { return calls_; }

 private:
  std::string text_;
  ParserEvent::Kind last_ = ParserEvent::Kind::kCallBegin;
  int calls_ = 0;
};

void CheckCuts(const AnswerReaderOptions& options, std::string_view text, bool cut) {
  Joined whole;
  AnswerReader whole_reader(options);
  whole.Add(whole_reader.Push(text));
  whole.Add(whole_reader.Finish(cut));
  Joined pieces;
  AnswerReader piece_reader(options);
  for (size_t at = 0, size = 1; at < text.size(); at += size, size = size % 5 + 1) {
    pieces.Add(piece_reader.Push(text.substr(at, size)));
  }
  const int calls = pieces.calls();
  pieces.Add(piece_reader.Finish(cut));
  fuzz::Require(whole.text() == pieces.text());
  fuzz::Require(pieces.calls() <= calls + 1 && pieces.calls() == piece_reader.calls());
}

// Checks the parser on the text, and on a prefix of it that is cut off.
void CheckParser(AnswerReaderOptions options, std::string_view text) {
  CheckCuts(options, text, /*cut=*/false);
  CheckCuts(options, text.substr(0, text.size() * 2 / 3), /*cut=*/true);
  options.constrained = true;
  CheckCuts(options, text, /*cut=*/false);
  options.constrained = false;
  options.stops = {{"a", "in", "}"}, /*include_in_output=*/text.size() % 2 == 0, 0};
  CheckCuts(options, text, /*cut=*/false);
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  static const auto types = std::make_shared<const ToolTypes>(
      json::Parse(R"([{"function": {"name": "set_flag", "parameters": {"properties": {
          "on": {"type": "boolean"}, "level": {"type": "number"}, "tag": {"type": ["string", "null"]},
          "city": {"type": "string"}, "filters": {"type": "object"}, "stops": {"type": "array"}}}}}])")
          .value(),
      /*keeps_schemas=*/true);
  const std::string_view text = fuzz::Text(data, size);
  for (const ToolParser& parser : ToolParsers()) {
    CheckParser(
        {.tools = &parser, .reasoning = nullptr, .types = types, .prompt = {}, .thinking = {}},
        text);
  }
  for (const CallForm form : {CallForm::kList, CallForm::kArguments}) {
    CheckParser({.tools = FindToolParser("hermes"),
                 .reasoning = nullptr,
                 .types = types,
                 .form = form,
                 .named = "set_flag",
                 .prompt = {},
                 .thinking = {}},
                text);
  }
  for (const ReasoningParser& parser : ReasoningParsers()) {
    CheckParser({.tools = FindToolParser("hermes"),
                 .reasoning = &parser,
                 .types = types,
                 .prompt = text,
                 .thinking = {}},
                text);
  }
  return 0;
}

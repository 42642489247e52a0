// Test helper that reads an answer in pieces and joins the events.
#pragma once

#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "parsers/answer_reader.h"
#include "parsers/parser_table.h"

namespace sluice {

struct ReadParts {
  std::string content;
  std::string reasoning;
  std::vector<std::pair<std::string, std::string>> calls;

  friend bool operator==(const ReadParts&, const ReadParts&) = default;
};

inline void AddParts(const std::vector<ParserEvent>& events, ReadParts& answer) {
  for (const ParserEvent& event : events) {
    switch (event.kind) {
      case ParserEvent::Kind::kContent: answer.content += event.text; break;
      case ParserEvent::Kind::kReasoning: answer.reasoning += event.text; break;
      case ParserEvent::Kind::kCallBegin:
        ASSERT_EQ(event.call, static_cast<int>(answer.calls.size()));
        answer.calls.emplace_back(event.text, "");
        break;
      case ParserEvent::Kind::kCallArguments:
        ASSERT_EQ(event.call, static_cast<int>(answer.calls.size()) - 1);
        answer.calls.back().second += event.text;
        break;
    }
  }
}

// Cuts `text` into pieces of at most `most` bytes; 0: a single piece. `is_cut`: as in
// AnswerReader::Finish.
inline ReadParts ReadInPieces(const AnswerReaderOptions& options, std::string_view text,
                              size_t most, std::mt19937& random, bool is_cut = false) {
  ReadParts answer;
  AnswerReader reader(options);
  while (!text.empty()) {
    const size_t size = most == 0 ? text.size() : std::min(text.size(), 1 + random() % most);
    AddParts(reader.Push(text.substr(0, size)), answer);
    text.remove_prefix(size);
  }
  AddParts(reader.Finish(is_cut), answer);
  return answer;
}

inline AnswerReaderOptions ParserOptions(std::string_view tools, std::string_view reasoning = "") {
  return {.tools = FindToolParser(tools),
          .reasoning = FindReasoningParser(reasoning),
          .types = nullptr,
          .prompt = {},
          .thinking = {}};
}

}  // namespace sluice

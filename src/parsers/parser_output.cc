#include "parsers/parser_output.h"

#include <utility>

#include "base/check.h"

namespace sluice {

void ParserOutput::Add(ParserEvent::Kind kind, std::string_view text) {
  if (text.empty()) return;
  const int call = kind == ParserEvent::Kind::kCallArguments ? calls_ - 1 : 0;
  if (!events_.empty() && events_.back().kind == kind && events_.back().call == call &&
      !events_.back().is_break) {
    events_.back().text += text;
    return;
  }
  events_.push_back({kind, call, std::string(text), ""});
}

void ParserOutput::Content(std::string_view text) {
  if (!has_words_) {
    const size_t word = text.find_first_not_of(" \t\r\n");
    blanks_ += text.substr(0, word);
    if (word == std::string_view::npos) return;
    has_words_ = true;
    Add(ParserEvent::Kind::kContent, std::exchange(blanks_, ""));
    text.remove_prefix(word);
  }
  Add(ParserEvent::Kind::kContent, text);
}

void ParserOutput::Reasoning(std::string_view text) {
  Add(ParserEvent::Kind::kReasoning, text);
}

void ParserOutput::BreakContent() {
  if (!has_words_) return Content("\n");
  events_.push_back({ParserEvent::Kind::kContent, 0, "\n", "", true});
}

void ParserOutput::BreakReasoning() {
  events_.push_back({ParserEvent::Kind::kReasoning, 0, "\n", "", true});
}

void ParserOutput::BeginCall(std::string name, std::string id) {
  blanks_.clear();
  events_.push_back({ParserEvent::Kind::kCallBegin, calls_++, std::move(name), std::move(id)});
}

void ParserOutput::Arguments(std::string_view text) {
  CHECK(calls_ > 0);
  Add(ParserEvent::Kind::kCallArguments, text);
}

void ParserOutput::End() {
  if (calls_ == 0) Add(ParserEvent::Kind::kContent, std::exchange(blanks_, ""));
}

std::vector<ParserEvent> ParserOutput::Take() {
  return std::exchange(events_, {});
}

}  // namespace sluice

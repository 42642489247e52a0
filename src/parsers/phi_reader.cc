#include "parsers/phi_reader.h"

#include <array>

#include "base/json.h"

namespace sluice {
namespace {

const std::array<std::string, 1> kPhiBegin = {"functools["};
const std::array<std::string, 1> kPhiEnd = {"]"};

void AddPhiCalls(const std::string& list, ParserOutput& output) {
  const auto calls = json::Parse("[" + list + "]");
  if (!calls) return;
  for (const json::Value& call : calls->as_array()) {
    const json::Value* name = call.Find("name");
    const json::Value* arguments = call.Find("arguments");
    if (arguments == nullptr) arguments = call.Find("parameters");
    if (name == nullptr || !name->is_string() || arguments == nullptr) continue;
    output.BeginCall(name->as_string());
    output.Arguments(json::Write(*arguments));
  }
}

}  // namespace

void PhiReader::Read(TextInput& input, ParserOutput& output) {
  for (;;) {
    std::string passed;
    if (!in_list_) {
      const int found = input.PassUntil(kPhiBegin, passed);
      if (!had_list_) output.Content(passed);
      if (found < 0) return;
      in_list_ = had_list_ = true;
      list_.clear();
      continue;
    }
    if (input.PassUntil(kPhiEnd, list_) < 0) {
      if (list_.size() > kMaxHeldBytes) list_.resize(kMaxHeldBytes);
      return;
    }
    in_list_ = false;
    AddPhiCalls(list_, output);
  }
}

}  // namespace sluice

#include "parsers/mistral_reader.h"

#include <array>
#include <utility>

#include "base/ascii.h"
#include "parsers/tool_types.h"

namespace sluice {
namespace {

const std::array<std::string, 1> kCallMarkers = {"[TOOL_CALLS]"};
const std::array<std::string, 4> kNameEnds = {"[ARGS]", "[CALL_ID]", "{", "[TOOL_CALLS]"};
const std::array<std::string, 1> kIdEnds = {"[ARGS]"};

const JsonFormat& ListFormat() {
  static const JsonFormat kFormat = {
      .begin = {kCallMarkers[0]}, .end = {}, .list = true, .keys = {}};
  return kFormat;
}

}  // namespace

MistralReader::MistralReader() : json_(&ListFormat()) {}

void MistralReader::Cut(TextInput& input, ParserOutput& output) {
  if (state_ == State::kJson) return json_.Cut(input, output);
  ToolReader::Cut(input, output);
  if (state_ == State::kId) id_.clear();  // drops the id, which may be incomplete
  if (state_ == State::kId || state_ == State::kBeforeArguments) BeginCall(output);
}

void MistralReader::BeginCall(ParserOutput& output) {
  output.BeginCall(std::string(AsciiTrim(name_)), std::string(AsciiTrim(id_)));
  scan_ = JsonValueScan();
  state_ = State::kArguments;
}

void MistralReader::Read(TextInput& input, ParserOutput& output) {
  for (;;) {
    std::string passed;
    switch (state_) {
      case State::kJson: json_.Read(input, output); return;
      case State::kText:
        if (input.PassUntil(kCallMarkers, passed) >= 0) state_ = State::kOpen;
        if (output.calls() == 0) output.Content(passed);
        if (state_ == State::kText) return;
        break;
      case State::kOpen: {
        const std::optional<char> c = input.Next();
        if (!c) return;
        if (AsciiTrim({&*c, 1}).empty()) break;
        input.Unread({&*c, 1});
        if (*c == '[' || *c == '{') {
          input.Unread(kCallMarkers[0]);
          state_ = State::kJson;
        } else {
          name_.clear();
          id_.clear();
          state_ = State::kName;
        }
        break;
      }
      case State::kName: {
        const int found = input.PassUntil(kNameEnds, name_);
        if (name_.size() > kMaxHeldBytes) name_.resize(kMaxHeldBytes);
        if (found < 0) return;
        if (found == 2) input.Unread("{");
        state_ = found == 1 ? State::kId : found == 3 ? State::kOpen : State::kBeforeArguments;
        break;
      }
      case State::kId:
        if (input.PassUntil(kIdEnds, id_) < 0) {
          if (id_.size() > kMaxHeldBytes) id_.resize(kMaxHeldBytes);
          return;
        }
        state_ = State::kBeforeArguments;
        break;
      case State::kBeforeArguments: {
        const std::optional<char> c = input.Next();
        if (!c) return;
        if (AsciiTrim({&*c, 1}).empty()) break;
        input.Unread({&*c, 1});
        BeginCall(output);
        break;
      }
      case State::kArguments: {
        const std::optional<char> c = input.Next();
        if (!c) return;
        const JsonValueScan::Step step = scan_.Feed(*c);
        if (step == JsonValueScan::Step::kOver) {
          input.Unread({&*c, 1});
        } else {
          output.Arguments({&*c, 1});
        }
        if (step != JsonValueScan::Step::kInside) state_ = State::kText;
        break;
      }
    }
  }
}

}  // namespace sluice

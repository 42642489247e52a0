#include "parsers/forced_call_readers.h"

#include <optional>
#include <utility>

#include "parsers/json_reader.h"

namespace sluice {
namespace {

class ArgumentsReader final : public ToolReader {
 public:
  explicit ArgumentsReader(std::string name) : name_(std::move(name)) {}

  void Read(TextInput& input, ParserOutput& output) override {
    while (const std::optional<char> c = input.Next()) {
      if (output.calls() == 0) output.BeginCall(name_);
      output.Arguments({&*c, 1});
    }
  }
  bool InText() const override { return false; }

 private:
  const std::string name_;
};

}  // namespace

std::unique_ptr<ToolReader> MakeCallListReader() {
  static const JsonFormat kFormat = {.begin = {"["},
                                     .end = {},
                                     .list = true,
                                     .keys = {.arguments = {"parameters"}},
                                     .at_start = true,
                                     .drops_broken = true};
  return std::make_unique<JsonReader>(&kFormat);
}

std::unique_ptr<ToolReader> MakeArgumentsReader(std::string name) {
  return std::make_unique<ArgumentsReader>(std::move(name));
}

}  // namespace sluice

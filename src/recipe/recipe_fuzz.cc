// Fuzz target: parses arbitrary bytes as a recipe in Markdown and as a shell script.
#include "base/fuzz_input.h"
#include "base/json.h"
#include "recipe/lint.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  LintOptions options;
  options.find_shape = [](const std::string&) { return std::nullopt; };
  for (const char* name : {"recipe.md", "launch.sh"}) {
    const auto report = LintRecipe(name, fuzz::Text(data, size), options);
    if (!report) continue;
    (void)FormatReport(*report);
    fuzz::Require(json::Parse(json::Write(ReportJson(*report))).has_value());
  }
  return 0;
}

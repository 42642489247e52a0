// Fuzz target: parses arbitrary arguments, one per line, as a command line of each dialect.
#include "base/fuzz_input.h"
#include "options/option.h"
#include "options/sources.h"
#include "options/values.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const auto lines = options::Split(fuzz::Text(data, size), '\n');
  const std::vector<std::string> words(lines.begin(), lines.end());
  for (const options::Dialect dialect : {options::Dialect::kVllm, options::Dialect::kTrtllm}) {
    const auto line = options::ReadCommandLine(words, options::kServe, dialect);
    fuzz::Require(line.has_value() || !line.error().message.empty());
  }
  return 0;
}

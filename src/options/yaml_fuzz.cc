// Fuzz target: parses arbitrary bytes as an option file of this server and of trtllm-serve.
#include "base/fuzz_input.h"
#include "options/option.h"
#include "options/sources.h"
#include "options/yaml_values.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const auto file = fuzz::File(".yaml", fuzz::Text(data, size));
  for (const options::Dialect dialect : {options::Dialect::kVllm, options::Dialect::kTrtllm}) {
    const auto assignments = options::ReadYaml(file, options::kServe, dialect);
    fuzz::Require(assignments.has_value() || !assignments.error().message.empty());
  }
  const auto found = options::ReadTrtllmYaml(file);
  fuzz::Require(found.has_value() || !found.error().message.empty());
  (void)options::ReadYamlObject(file);
  return 0;
}

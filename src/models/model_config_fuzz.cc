// Fuzz target: parses arbitrary JSON as config.json, as Mistral's params.json and as
// generation_config.json. Accepted configurations have plausible sizes.
#include "base/fuzz_input.h"
#include "checkpoint/generation_config.h"
#include "checkpoint/mistral_format.h"
#include "models/model_config.h"

namespace {

void ReadConfig(const sluice::json::Value& value) {
  using namespace sluice;
  const auto shape = ParseModelShape(value);
  const auto config = ParseModelConfig(value);
  if (!config) {
    fuzz::Require(!config.error().message.empty());
    return;
  }
  fuzz::Require(shape.has_value());
  fuzz::Require(config->vocab_size > 0 && config->hidden_size > 0 && config->head_dim > 0);
  fuzz::Require(config->num_key_value_heads > 0 &&
                config->num_attention_heads % config->num_key_value_heads == 0);
  fuzz::Require(config->spec.layers.size() == static_cast<size_t>(config->num_hidden_layers));
  fuzz::Require(config->scheme != nullptr);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const auto json = json::Parse(fuzz::Text(data, size));
  if (!json) return 0;
  if (const auto generation = ParseGenerationConfig(*json); !generation)
    fuzz::Require(!generation.error().message.empty());
  ReadConfig(*json);
  if (!json->is_object()) return 0;
  if (const auto own = ConfigOfMistralParams(*json)) {
    ReadConfig(*own);
  } else {
    fuzz::Require(!own.error().message.empty());
  }
  return 0;
}

// Fields that only trtllm-serve knows.
#include "server/api/sampling_fields.h"

namespace sluice {
namespace {

struct Refusal {
  const char* field;
  const char* feature;
};

constexpr Refusal kRefused[] = {
    {"return_context_logits", "giving the logits of the prompt back"},
    {"lora_request", "a LoRA adapter for one request"},
    {"disaggregated_params", "computing prompt and answer on different servers"},
    {"prompt_ignore_length", "penalties that leave a part of the prompt out"},
    {"top_p_min", "a top_p that decays"},
    {"early_stopping", "beam search"},
    {"mm_processor_kwargs", "images and sound"},
};

}  // namespace

ApiStatus RefuseTrtllmFields(const FieldReader& reader) {
  for (const auto& [field, feature] : kRefused) {
    if (IsTruthy(reader.Raw(field))) return Unsupported(feature, field);
  }
  return {};
}

}  // namespace sluice

#include "cli/arithmetic_profile.h"

#include <algorithm>

#include <fmt/format.h>

#include "kernels/dispatch.h"
#include "kernels/numeric_fingerprint.h"

namespace sluice::cli {
namespace {

// Options whose values change results.
constexpr std::string_view kValueOptions[] = {"activation-format", "quantization", "head-format",
                                              "hf-overrides",      "rope-scaling", "rope-theta"};

// Returns whether the model needs a function of the math library that differs between
// architectures: the softplus of states, gates and routers, or the tanh that caps logits.
bool NeedsOtherMath(const DecoderSpec& spec) {
  const auto needs = [](const LayerSpec& layer) {
    return layer.attention.gate_is_softplus || layer.attention.temperature_tuning.has_value() ||
           (layer.moe &&
            (layer.moe->soft_cap != 0 || layer.moe->score != kernels::RouterScore::kSoftmax));
  };
  return spec.KeepsStates() || spec.logit_soft_cap != 0 || std::ranges::any_of(spec.layers, needs);
}

uint64_t FingerprintOf(const EngineInfo& info) {
  const bool is_portable = info.isa == kernels::IsaName(kernels::Isa::kPortable);
  return is_portable && !NeedsOtherMath(info.model.spec) ? kernels::PortableFingerprint()
                                                         : kernels::NumericFingerprint();
}

}  // namespace

json::Value ArithmeticProfile(const options::Settings& settings, const EngineInfo& info) {
  json::Value profile{json::Value::Object{}};
  const bool is_cpu = !info.device.has_value();
  profile.Set("device", is_cpu ? "cpu" : DeviceKindName(*info.device));
  profile.Set("isa", info.isa);
  if (is_cpu) profile.Set("fingerprint", fmt::format("{:016x}", FingerprintOf(info)));
  profile.Set("dtype", DtypeName(info.dtype));
  profile.Set("kv_cache_dtype", DtypeName(info.kv_cache_dtype));
  for (const std::string_view name : kValueOptions) {
    if (settings.Given(name)) profile.Set(name, settings.TextOr(name));
  }
  // With cuBLASLt and hipBLASLt, a row's result may depend on the size of the batch.
  if (!is_cpu) profile.Set("batch-invariant", settings.Flag("batch-invariant") ? "yes" : "no");
  return profile;
}

std::string DifferenceOfProfiles(const json::Value& in_receipt, const json::Value& here) {
  const auto text = [](const json::Value* value) {
    return value == nullptr     ? "nothing"
           : value->is_string() ? value->as_string()
                                : json::Write(*value);
  };
  for (const auto* profile : {&in_receipt, &here}) {
    for (const auto& [name, ignored] : profile->as_object()) {
      const json::Value* const a = in_receipt.Find(name);
      const json::Value* const b = here.Find(name);
      if (a == nullptr || b == nullptr || !(*a == *b))
        return fmt::format("{}: {} in the receipt, {} here", name, text(a), text(b));
    }
  }
  return "";
}

}  // namespace sluice::cli

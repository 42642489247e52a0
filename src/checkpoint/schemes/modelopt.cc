// Reads ModelOpt's hf_quant_config.json, or quantization_config with quant_method "modelopt", or
// both.
#include <algorithm>
#include <array>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/log.h"
#include "checkpoint/schemes/linear_layout.h"
#include "checkpoint/schemes/module_pattern.h"
#include "checkpoint/schemes/settings.h"

namespace sluice {
namespace {

constexpr std::array<std::string_view, 5> kAlgorithms = {"FP8", "FP8_PER_CHANNEL_PER_TOKEN",
                                                         "FP8_PB_WO", "NVFP4", "W4A16_NVFP4"};

Result<LinearLayout> LayoutOf(std::string_view algorithm, std::optional<int64_t> group_size,
                              const std::string& where) {
  LinearLayout layout;
  int64_t expected_group = 0;
  if (algorithm == "FP8") {
    layout = Fp8PerTensorLayout();
  } else if (algorithm == "FP8_PER_CHANNEL_PER_TOKEN") {
    layout = Fp8PerRowLayout();
  } else if (algorithm == "FP8_PB_WO") {
    layout = Fp8BlockLayout(128, 128);
    layout.activations = {};
    expected_group = 128;
  } else if (algorithm == "NVFP4" || algorithm == "W4A16_NVFP4") {
    layout = Nvfp4Layout();
    expected_group = 16;
    if (algorithm != "NVFP4") {
      layout.activations = {};
      layout.input_scales = {};
    }
  } else {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{}.quant_algo '{}' is not supported; supported are {} and "
                            "MIXED_PRECISION of them",
                            where, ShortName(algorithm), fmt::join(kAlgorithms, ", ")),
                where + ".quant_algo");
  }
  layout.name = algorithm;
  if (expected_group != 0 && group_size && *group_size != 0 && *group_size != expected_group) {
    return UnsupportedSetting(where, "group_size", json::Value(*group_size),
                              fmt::format("{} for {}", expected_group, algorithm));
  }
  return layout;
}

// The settings from config.json or from the sidecar file.
struct Facts {
  std::string where;
  std::optional<std::string> algorithm;  // "" means plain weights
  std::optional<int64_t> group_size;
  std::optional<bool> fp8_kv;
  std::optional<std::vector<std::string>> excluded;
  std::map<std::string, LinearLayout, std::less<>> layouts;  // for MIXED_PRECISION: the layout of
                                                             // each module
};

// Returns the algorithm that config_groups describes, as a quant_algo name.
Result<std::optional<std::string>> AlgorithmOfGroups(const json::Value& groups,
                                                     const std::string& where, Facts& facts) {
  if (groups.as_object().empty()) return std::nullopt;
  if (groups.as_object().size() > 1) return std::string("MIXED_PRECISION");
  const auto& [name, group] = groups.as_object().front();
  const std::string inside = fmt::format("{}.config_groups.{}", where, name);
  if (!group.is_object()) return UnsupportedSetting(where, "config_groups", group, "objects");
  RETURN_IF_ERROR(CheckKeys(group, inside, {"input_activations", "weights", "targets", "format"}));
  ASSIGN_OR_RETURN(const json::Value* weights, JsonFields(group, inside + ".").Object("weights"));
  if (weights == nullptr) return std::nullopt;
  const std::string spec = inside + ".weights";
  RETURN_IF_ERROR(CheckKeys(*weights, spec,
                            {"dynamic", "num_bits", "type", "group_size", "strategy", "symmetric",
                             "block_structure", "scale_dtype"}));
  RETURN_IF_ERROR(CheckBool(*weights, spec, "dynamic", false));
  RETURN_IF_ERROR(CheckBool(*weights, spec, "symmetric", true));
  RETURN_IF_ERROR(CheckString(*weights, spec, "type", {"float"}));
  const JsonFields fields(*weights, spec + ".");
  ASSIGN_OR_RETURN(const auto bits, fields.Integer("num_bits", 1, 64));
  ASSIGN_OR_RETURN(const auto group_size, fields.Integer("group_size", 0, 1 << 20));
  if (group_size && *group_size != 0) facts.group_size = group_size;
  const json::Value* inputs = group.Find("input_activations");
  const bool has_inputs = inputs != nullptr && !IsEmptySetting(*inputs);
  if (bits == 8 && !facts.group_size) return std::string("FP8");
  if (bits == 8 && !has_inputs) return std::string("FP8_PB_WO");
  if (bits == 4) return std::string(has_inputs ? "NVFP4" : "W4A16_NVFP4");
  return UnsupportedSetting(inside, "weights", *weights, "8 or 4 bits of type float");
}

Status ReadMixed(const json::Value& layers, const std::string& where, Facts& facts) {
  for (const auto& [module, entry] : layers.as_object()) {
    const std::string inside = fmt::format("{}.quantized_layers.{}", where, module);
    if (!entry.is_object())
      return UnsupportedSetting(where, "quantized_layers", entry, "an object for each layer");
    RETURN_IF_ERROR(CheckKeys(entry, inside, {"quant_algo", "group_size"}));
    const JsonFields fields(entry, inside + ".");
    ASSIGN_OR_RETURN(const auto algorithm, fields.String("quant_algo"));
    ASSIGN_OR_RETURN(const auto group_size, fields.Integer("group_size", 0, 1 << 20));
    if (!algorithm) return fields.Missing("quant_algo");
    ASSIGN_OR_RETURN(LinearLayout layout, LayoutOf(*algorithm, group_size, inside));
    facts.layouts.insert_or_assign(CanonicalName(module), std::move(layout));
  }
  return {};
}

Result<Facts> ReadFacts(const QuantizationSettings& settings) {
  Facts facts;
  facts.where = settings.where;
  const json::Value* block = &settings.block;
  // The sidecar and some config.json files nest the settings one level deeper.
  if (const json::Value* inner = block->Find("quantization"); inner != nullptr) {
    RETURN_IF_ERROR(CheckKeys(*block, facts.where, {"quantization", "producer", "quant_method"}));
    if (!inner->is_object())
      return UnsupportedSetting(facts.where, "quantization", *inner, "an object");
    block = inner;
    facts.where += ".quantization";
  }
  const std::string& where = facts.where;
  RETURN_IF_ERROR(CheckKeys(*block, where,
                            {"quant_method", "quant_algo", "kv_cache_quant_algo", "kv_cache_scheme",
                             "group_size", "exclude_modules", "ignore", "config_groups", "producer",
                             "quantized_layers", "has_zero_point", "pre_quant_scale"}));
  RETURN_IF_ERROR(CheckEmpty(*block, where, "has_zero_point", "weights are symmetric"));
  RETURN_IF_ERROR(
      CheckEmpty(*block, where, "pre_quant_scale",
                 "inputs that are scaled beforehand, as AWQ does, are not implemented"));
  const JsonFields fields(*block, where + ".");
  ASSIGN_OR_RETURN(facts.group_size, fields.Integer("group_size", 0, 1 << 20));
  if (facts.group_size == 0) facts.group_size.reset();
  ASSIGN_OR_RETURN(facts.algorithm, fields.String("quant_algo"));
  if (facts.algorithm) {
    for (char& c : *facts.algorithm) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  } else if (block->Find("quant_algo") != nullptr) {
    facts.algorithm = "";  // null means plain weights
  }
  ASSIGN_OR_RETURN(const json::Value* groups, fields.Object("config_groups"));
  if (groups != nullptr) {
    ASSIGN_OR_RETURN(const auto described, AlgorithmOfGroups(*groups, where, facts));
    if (!facts.algorithm) facts.algorithm = described;
    const bool fits = !described || *described == *facts.algorithm ||
                      facts.algorithm == "MIXED_PRECISION" ||
                      (*described == "FP8" && facts.algorithm->starts_with("FP8"));
    // Unknown algorithms are refused below.
    if (!fits &&
        std::find(kAlgorithms.begin(), kAlgorithms.end(), *facts.algorithm) != kAlgorithms.end()) {
      return Fail(ErrorCode::kInvalidData,
                  fmt::format("{}: quant_algo says {}, config_groups describes {}", where,
                              *facts.algorithm, *described),
                  where + ".quant_algo");
    }
  }
  ASSIGN_OR_RETURN(const json::Value* layers, fields.Object("quantized_layers"));
  if (facts.algorithm == "MIXED_PRECISION") {
    if (layers == nullptr) return fields.Missing("quantized_layers");
    RETURN_IF_ERROR(ReadMixed(*layers, where, facts));
  }
  for (const char* name : {"kv_cache_quant_algo", "kv_cache_scheme"}) {
    const json::Value* value = block->Find(name);
    if (value == nullptr) continue;
    ASSIGN_OR_RETURN(const bool fp8, ReadKvCacheScheme(value, where, name));
    facts.fp8_kv = facts.fp8_kv.value_or(false) || fp8;
  }
  for (const char* name : {"exclude_modules", "ignore"}) {
    ASSIGN_OR_RETURN(const auto names, fields.Strings(name));
    if (!names) continue;
    if (!facts.excluded) facts.excluded.emplace();
    facts.excluded->insert(facts.excluded->end(), names->begin(), names->end());
  }
  return facts;
}

tl::unexpected<Error> Contradiction(const Facts& a, const Facts& b, std::string_view what,
                                    std::string_view in_a, std::string_view in_b) {
  return Fail(ErrorCode::kInvalidData,
              fmt::format("{} and {} contradict each other: {} is {} in the first and {} in the "
                          "second; remove the wrong one",
                          a.where, b.where, what, in_a, in_b),
              b.where);
}

// Merges both sources: each provides what the other lacks; values in both must agree.
Status Merge(Facts& facts, const Facts& other) {
  if (!facts.algorithm) facts.algorithm = other.algorithm;
  if (other.algorithm && *other.algorithm != *facts.algorithm) {
    return Contradiction(facts, other, "quant_algo",
                         facts.algorithm->empty() ? "null" : *facts.algorithm,
                         other.algorithm->empty() ? "null" : *other.algorithm);
  }
  if (!facts.group_size) facts.group_size = other.group_size;
  if (other.group_size && other.group_size != facts.group_size) {
    return Contradiction(facts, other, "group_size", fmt::format("{}", *facts.group_size),
                         fmt::format("{}", *other.group_size));
  }
  if (!facts.fp8_kv) facts.fp8_kv = other.fp8_kv;
  if (other.fp8_kv && other.fp8_kv != facts.fp8_kv) {
    return Contradiction(facts, other, "the KV cache", *facts.fp8_kv ? "FP8" : "not quantized",
                         *other.fp8_kv ? "FP8" : "not quantized");
  }
  if (facts.layouts.empty()) facts.layouts = other.layouts;
  if (!facts.excluded) {
    facts.excluded = other.excluded;
  } else if (other.excluded) {
    const std::set<std::string> a(facts.excluded->begin(), facts.excluded->end());
    const std::set<std::string> b(other.excluded->begin(), other.excluded->end());
    if (a != b) {
      LOG_WARNING("checkpoint", "{} and {} name different excluded modules; the first list is used",
                  facts.where, other.where);
    }
  }
  return {};
}

class ModelOpt : public PlannedScheme {
 public:
  ModelOpt(const SchemeSource& source, Facts facts, std::optional<LinearLayout> layout,
           ModuleList excluded)
      : PlannedScheme(source.plain_type, facts.fp8_kv.value_or(false)),
        algorithm_(*facts.algorithm),
        layout_(std::move(layout)),
        layouts_(std::move(facts.layouts)),
        excluded_(std::move(excluded)) {}

  std::string Name() const override {
    return algorithm_.empty() ? "ModelOpt, plain weights" : "ModelOpt " + algorithm_;
  }
  std::string_view Method() const override {
    if (algorithm_ == "MIXED_PRECISION") return "modelopt_mixed";
    return algorithm_.ends_with("NVFP4") ? "modelopt_fp4" : "modelopt";
  }

 protected:
  ModulePlan PlanOf(std::string_view module) const override {
    if (layout_) return {&*layout_, excluded_.Contains(module)};
    const auto found = layouts_.find(module);
    if (found == layouts_.end()) return {};
    return {&found->second, excluded_.Contains(module)};
  }

 private:
  std::string algorithm_;
  std::optional<LinearLayout> layout_;
  std::map<std::string, LinearLayout, std::less<>> layouts_;
  ModuleList excluded_;
};

}  // namespace

SchemeResult ReadModelOpt(const SchemeSource& source) {
  Facts facts;
  if (source.config) {
    ASSIGN_OR_RETURN(facts, ReadFacts(*source.config));
    if (source.sidecar) {
      ASSIGN_OR_RETURN(const Facts other, ReadFacts(*source.sidecar));
      RETURN_IF_ERROR(Merge(facts, other));
    }
  } else {
    ASSIGN_OR_RETURN(facts, ReadFacts(*source.sidecar));
  }
  if (!facts.algorithm) {
    return Fail(ErrorCode::kInvalidData, fmt::format("{}.quant_algo is missing", facts.where),
                facts.where + ".quant_algo");
  }
  std::optional<LinearLayout> layout;
  if (!facts.algorithm->empty() && *facts.algorithm != "MIXED_PRECISION") {
    ASSIGN_OR_RETURN(layout, LayoutOf(*facts.algorithm, facts.group_size, facts.where));
  }
  ModuleList excluded;
  if (facts.excluded)
    RETURN_IF_ERROR(excluded.Add(*facts.excluded, ModuleList::Syntax::kRegexPrefix));
  return std::make_shared<ModelOpt>(source, std::move(facts), std::move(layout),
                                    std::move(excluded));
}

}  // namespace sluice

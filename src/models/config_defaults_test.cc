// Tests the defaults of absent fields of config.json against transformers' configuration classes.
// Data: tests/data/configs, written by tools/checkpoints/make_config_defaults.py.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json_testing.h"
#include "base/source_path_testing.h"
#include "models/model_config.h"
#include "models/registry.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

json::Value ReadConfigs(const char* name) {
  const auto text = ReadFile(std::filesystem::path(SourcePath("tests/data/configs")) / name);
  EXPECT_TRUE(text) << (text ? "" : text.error().message);
  return testing::Json(*text);
}

// Returns the values that the data files contain, as this program derives them.
json::Value Derived(const ModelConfig& config) {
  json::Value values{json::Value::Object{}};
  values.Set("vocab_size", config.vocab_size);
  values.Set("hidden_size", config.hidden_size);
  values.Set("intermediate_size", config.intermediate_size);
  values.Set("num_hidden_layers", config.num_hidden_layers);
  values.Set("num_attention_heads", config.num_attention_heads);
  values.Set("num_key_value_heads", config.num_key_value_heads);
  values.Set("head_dim", config.head_dim);
  values.Set("rms_norm_eps", config.rms_norm_eps);
  values.Set("max_position_embeddings", config.max_position_embeddings);
  values.Set("tie_word_embeddings", config.tie_word_embeddings);
  values.Set("bos_token_id",
             config.bos_token_id ? json::Value(int64_t{*config.bos_token_id}) : json::Value());
  json::Value::Array eos, windows;
  for (const int32_t id : config.eos_token_ids) eos.emplace_back(int64_t{id});
  values.Set("eos_token_id", eos.empty()       ? json::Value()
                             : eos.size() == 1 ? eos.front()
                                               : json::Value(eos));
  values.Set("rope_theta", config.rope.theta);
  values.Set("rope_type",
             config.rope.scaling ? RopeKindName(config.rope.scaling->kind) : "default");
  for (const LayerSpec& layer : config.spec.layers) {
    const AttentionSpan& span = layer.attention.span;
    windows.emplace_back(int64_t{span.window + span.chunk});
  }
  values.Set("windows", windows);
  if (const LayerSpec* layer = config.spec.FirstMoeLayer()) {
    values.Set("num_experts", layer->moe->num_experts);
    values.Set("num_experts_per_tok", layer->moe->top_k);
    values.Set("expert_intermediate_size", layer->moe->intermediate_size);
  }
  return values;
}

bool IsSame(const json::Value& a, const json::Value& b) {
  if (a.is_number() && b.is_number()) return a.as_double() == b.as_double();
  return json::Write(a) == json::Write(b);
}

void ExpectDerived(const json::Value& config, const json::Value& expected,
                   const std::string& what) {
  const auto parsed = ParseModelShape(config);
  ASSERT_TRUE(parsed) << what << ": " << parsed.error().message;
  const json::Value derived = Derived(*parsed);
  for (const auto& [name, value] : expected.as_object()) {
    // Gemma 4's reader makes its own tables. This program's number of positions includes the
    // positions that RoPE scaling adds.
    const bool has_ropes_of_kinds =
        parsed->model_type.starts_with("gemma4_") || parsed->model_type == "lfm3";
    if (name.starts_with("rope_") && has_ropes_of_kinds) continue;
    if (name == "max_position_embeddings" && parsed->rope.scaling) continue;
    const json::Value* found = derived.Find(name);
    ASSERT_NE(found, nullptr) << what << ": " << name;
    EXPECT_TRUE(IsSame(*found, value)) << what << ": " << name << " is " << json::Write(*found)
                                       << ", expected " << json::Write(value);
  }
}

json::Value Overlaid(json::Value base, const json::Value& changes) {
  for (const auto& [name, value] : changes.as_object()) base.Set(name, value);
  return base;
}

TEST(ConfigDefaultsTest, EveryFieldThatIsMissingHasTheClasssDefault) {
  int variants = 0;
  const json::Value families = ReadConfigs("defaults.json");
  for (const auto& [type, family] : families.as_object()) {
    json::Value config = *family.Find("config");
    config.Set("model_type", type);
    ExpectDerived(config, *family.Find("derived"), type);
    for (const auto& [field, differences] : family.Find("missing")->as_object()) {
      json::Value without = config;
      std::erase_if(without.as_object(),
                    [&, &name = field](const auto& member) { return member.first == name; });
      ExpectDerived(without, Overlaid(*family.Find("derived"), differences),
                    fmt::format("{} without {}", type, field));
      ++variants;
    }
    if (const json::Value* nothing = family.Find("nothing")) {
      json::Value alone{json::Value::Object{}};
      alone.Set("model_type", type);
      ExpectDerived(alone, *nothing, type + " alone");
    }
  }
  EXPECT_GT(variants, 300);
}

TEST(ConfigDefaultsTest, EveryFamilyIsInTheTable) {
  const json::Value table = ReadConfigs("defaults.json");
  for (const ModelFamily* family : ModelFamilies()) {
    if (family->defaults.is_nested) continue;
    // Transformers has no configuration class for this model.
    if (family->model_type == "mimo") continue;
    EXPECT_NE(table.Find(family->model_type), nullptr) << family->model_type;
  }
}

// A null num_key_value_heads means as many KV heads as query heads, unlike an absent field.
TEST(ConfigDefaultsTest, ANullOfKeyValueHeadsIsNoDefault) {
  for (const char* type : {"mistral", "qwen2", "qwen3", "smollm3"}) {
    json::Value config = testing::Json(R"({"num_attention_heads": 64, "hidden_size": 4096})");
    config.Set("model_type", type);
    config.Set("num_key_value_heads", json::Value());
    const auto parsed = ParseModelShape(config);
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(parsed->num_key_value_heads, 64) << type;
  }
}

TEST(PublishedConfigTest, IsReadAsByTransformersOrRefusedByName) {
  int read = 0;
  const json::Value published = ReadConfigs("published.json");
  for (const auto& [name, entry] : published.as_object()) {
    const json::Value& config = *entry.Find("config");
    if (const json::Value* derived = entry.Find("derived")) {
      ExpectDerived(config, *derived, name);
      ++read;
      continue;
    }
    const auto parsed = ParseModelShape(config);
    const json::Value* refused = entry.Find("refused");
    if (refused == nullptr) {  // the model is an encoder
      EXPECT_TRUE(parsed) << name << ": " << parsed.error().message;
      continue;
    }
    ASSERT_FALSE(parsed) << name;
    EXPECT_EQ(parsed.error().code, ErrorCode::kUnsupported) << name;
    EXPECT_THAT(parsed.error().message, HasSubstr(refused->as_string())) << name;
  }
  EXPECT_EQ(read, 25);
}

}  // namespace
}  // namespace sluice

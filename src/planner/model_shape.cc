#include "planner/model_shape.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/ascii.h"

namespace sluice {
namespace {

struct PublishedModel {
  std::string_view part;  // part of the lower-case id, without the organization
  ModelShape shape;
};

// The shapes of published models, from their config.json. Sorted so that a longer `part` precedes
// the parts that it contains.
const PublishedModel kPublished[] = {
    {"llama-4-scout",
     {"Llama 4 Scout", 48, 5120, 40, 8, 128, 202048, false, 48, 0, 8192, 8192, 16, 1, 10485760}},
    {"llama-4-maverick",
     {"Llama 4 Maverick", 48, 5120, 40, 8, 128, 202048, false, 24, 16384, 8192, 8192, 128, 1,
      1048576}},
    {"llama-3.1-405b",
     {"Llama 3.1 405B", 126, 16384, 128, 8, 128, 128256, false, 0, 53248, 0, 0, 0, 0, 131072}},
    {"llama-3.3-70b",
     {"Llama 3.3 70B", 80, 8192, 64, 8, 128, 128256, false, 0, 28672, 0, 0, 0, 0, 131072}},
    {"llama-3.1-70b",
     {"Llama 3.1 70B", 80, 8192, 64, 8, 128, 128256, false, 0, 28672, 0, 0, 0, 0, 131072}},
    {"llama-3.1-8b",
     {"Llama 3.1 8B", 32, 4096, 32, 8, 128, 128256, false, 0, 14336, 0, 0, 0, 0, 131072}},
    {"llama-3.2-3b",
     {"Llama 3.2 3B", 28, 3072, 24, 8, 128, 128256, true, 0, 8192, 0, 0, 0, 0, 131072}},
    {"llama-3.2-1b",
     {"Llama 3.2 1B", 16, 2048, 32, 8, 64, 128256, true, 0, 8192, 0, 0, 0, 0, 131072}},
    {"qwen3-30b-a3b",
     {"Qwen3 30B-A3B", 48, 2048, 32, 4, 128, 151936, false, 48, 0, 768, 0, 128, 8, 40960}},
    {"qwen3-32b", {"Qwen3 32B", 64, 5120, 64, 8, 128, 151936, false, 0, 25600, 0, 0, 0, 0, 40960}},
    {"qwen3-8b", {"Qwen3 8B", 36, 4096, 32, 8, 128, 151936, false, 0, 12288, 0, 0, 0, 0, 40960}},
};

std::string LowerName(std::string_view id) {
  while (id.ends_with('/')) id.remove_suffix(1);
  if (const size_t slash = id.rfind('/'); slash != std::string_view::npos)
    id.remove_prefix(slash + 1);
  return AsciiLower(id);
}

class ConfigReader {
 public:
  // Multimodal models have the dimensions of their text model in text_config.
  explicit ConfigReader(const json::Value& config) : config_(config) {
    if (const json::Value* text = config.Find("text_config"); text != nullptr && text->is_object())
      text_ = text;
  }

  const json::Value* Find(std::string_view key) const {
    const json::Value* value = text_ != nullptr ? text_->Find(key) : nullptr;
    return value != nullptr ? value : config_.Find(key);
  }

  int64_t Integer(std::string_view key, int64_t otherwise) const {
    const json::Value* value = Find(key);
    return value != nullptr && value->is_integer() ? value->as_integer() : otherwise;
  }

  Result<int64_t> Positive(std::string_view key) const {
    const int64_t value = Integer(key, 0);
    if (value > 0) return value;
    return Fail(ErrorCode::kInvalidData,
                fmt::format("config.json: expected a positive integer {}, found none", key),
                std::string(key));
  }

 private:
  const json::Value& config_;
  const json::Value* text_ = nullptr;
};

}  // namespace

int64_t ModelShape::AttentionWeights() const {
  const int64_t query = num_heads * head_dim, key_value = num_kv_heads * head_dim;
  return num_layers * hidden_size * (2 * query + 2 * key_value);
}

int64_t ModelShape::DenseMlpWeights() const {
  return (num_layers - num_moe_layers) * 3 * hidden_size * dense_intermediate_size;
}

int64_t ModelShape::SharedExpertWeights() const {
  return num_moe_layers * 3 * hidden_size * shared_intermediate_size;
}

int64_t ModelShape::OneExpertWeights() const {
  return num_moe_layers * 3 * hidden_size * expert_intermediate_size;
}

int64_t ModelShape::LinearWeights() const {
  return AttentionWeights() + DenseMlpWeights() + SharedExpertWeights() +
         num_experts * OneExpertWeights();
}

int64_t ModelShape::EmbeddingWeights() const {
  return vocab_size * hidden_size;
}

int64_t ModelShape::TotalWeights() const {
  return LinearWeights() + (tied_embeddings ? 1 : 2) * EmbeddingWeights();
}

int64_t ModelShape::ActiveWeights() const {
  return AttentionWeights() + DenseMlpWeights() + SharedExpertWeights() +
         experts_per_token * OneExpertWeights();
}

std::optional<ModelShape> PublishedShape(std::string_view model_id) {
  const std::string name = LowerName(model_id);
  for (const PublishedModel& model : kPublished) {
    if (name.find(model.part) != std::string::npos) return model.shape;
  }
  return std::nullopt;
}

Result<ModelShape> ShapeOfConfig(const json::Value& config, std::string name) {
  const ConfigReader reader(config);
  ModelShape shape;
  shape.name = std::move(name);
  ASSIGN_OR_RETURN(shape.num_layers, reader.Positive("num_hidden_layers"));
  ASSIGN_OR_RETURN(shape.hidden_size, reader.Positive("hidden_size"));
  ASSIGN_OR_RETURN(shape.num_heads, reader.Positive("num_attention_heads"));
  ASSIGN_OR_RETURN(shape.vocab_size, reader.Positive("vocab_size"));
  ASSIGN_OR_RETURN(shape.dense_intermediate_size, reader.Positive("intermediate_size"));
  shape.num_kv_heads = reader.Integer("num_key_value_heads", shape.num_heads);
  shape.head_dim = reader.Integer("head_dim", shape.hidden_size / shape.num_heads);
  shape.max_positions = reader.Integer("max_position_embeddings", 0);
  const json::Value* tied = reader.Find("tie_word_embeddings");
  shape.tied_embeddings = tied != nullptr && tied->is_bool() && tied->as_bool();
  const json::Value* type = reader.Find("model_type");
  shape.norms_whole_rows = type != nullptr && type->is_string() &&
                           (type->as_string() == "olmo2" || type->as_string() == "olmo3");
  shape.num_experts = reader.Integer("num_local_experts", reader.Integer("num_experts", 0));
  if (shape.num_experts == 0) return shape;
  shape.num_moe_layers =
      shape.num_layers / std::max<int64_t>(1, reader.Integer("interleave_moe_layer_step", 1));
  shape.expert_intermediate_size =
      reader.Integer("moe_intermediate_size", shape.dense_intermediate_size);
  shape.experts_per_token = reader.Integer("num_experts_per_tok", 1);
  // Llama 4 has a shared expert of the same size as other experts, and dense layers of a different
  // size.
  if (reader.Find("intermediate_size_mlp") != nullptr) {
    shape.shared_intermediate_size = shape.expert_intermediate_size;
    shape.dense_intermediate_size = reader.Integer("intermediate_size_mlp", 0);
  }
  return shape;
}

}  // namespace sluice

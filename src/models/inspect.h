// Describes a model's folder from its configuration and tensor headers, without loading it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "models/model.h"
#include "models/model_config.h"
#include "models/shard.h"

namespace sluice {

// Totals of the tensors with the same stored type.
struct TensorGroup {
  std::string type;
  int64_t count = 0;
  int64_t elements = 0;
  int64_t bytes = 0;
};

// The share of the model that one rank has.
struct RankReport {
  RankPlace place;
  RowRange layers;
  HeadCut heads;
  RowRange hidden_rows;
  RowRange mlp_rows;  // width of the first layer's MLP, or of its experts
  RowRange words;     // rows of the embedding and the head; empty if the rank has neither of them
  ModelMemory memory;
};

struct InspectReport {
  std::filesystem::path folder;
  std::string architecture;  // the name in config.json, whether or not this program supports it
  std::string model_type;
  std::optional<std::string> refusal;  // why this program cannot load it; nullopt if it can
  // Operators that a refused configuration needs and this program lacks (unknown_operators.h).
  std::vector<std::string> missing_operators;
  bool is_unknown = false;            // whether no family has this architecture
  std::optional<ModelConfig> config;  // nullopt if the architecture is unknown
  std::string quantization;  // format of the weights, according to the files; "" for plain weights
  // Name of the scheme with which this program reads them: "ModelOpt NVFP4"; "" if unsupported.
  std::string scheme;
  std::string method;              // the value of --quantization; "" for plain weights
  bool fp8_kv_cache = false;       // whether the checkpoint specifies an FP8 KV cache
  std::vector<std::string> files;  // files with tensors, without the folder
  // Names of missing files, derived from the index or from the names of the other files.
  std::vector<std::string> missing_files;
  std::vector<TensorGroup> groups;  // by descending bytes
  int64_t parameters = 0;  // elements of all tensors except scales; packed FP4 counts as two
  int64_t tensor_bytes = 0;
  bool has_tokenizer = false;
  bool has_chat_template = false;
  bool has_generation_config = false;
  ModelOptions options;               // the options for which `memory` is planned
  std::optional<ModelMemory> memory;  // set if the model can be loaded
  int64_t kv_bytes_per_token = 0;
  std::vector<RankReport> ranks;  // set if several ranks were requested
};

// Describes the folder. Also describes unsupported models, unknown architectures and checkpoints
// with missing files, with the reason why they are refused. Returns an error if there is no
// config.json, if files are damaged, or if the model cannot be divided into this many ranks
// (CheckRanks).
Result<InspectReport> InspectModel(const std::filesystem::path& folder, int tensor_size = 1,
                                   int num_stages = 1);

std::string FormatText(const InspectReport& report);
json::Value ToJson(const InspectReport& report);

}  // namespace sluice

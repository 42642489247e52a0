// What a model's folder holds, found out from its configuration and headers without loading it.
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

// The tensors of one stored type.
struct TensorGroup {
  std::string type;
  int64_t count = 0;
  int64_t elements = 0;
  int64_t bytes = 0;
};

// What one of several ranks holds.
struct RankReport {
  RankPlace place;
  RowRange layers;
  HeadCut heads;
  RowRange hidden_rows;
  RowRange mlp_rows;  // of the first layer's MLP, or of its experts
  RowRange words;     // of embedding and head; empty where the rank has none
  ModelMemory memory;
};

struct InspectReport {
  std::filesystem::path folder;
  std::string architecture;  // as config.json names it, supported or not
  std::string model_type;
  std::optional<std::string> refusal;  // why this program cannot load it; nullopt if it can
  // What a refused configuration asks for and no operator computes (unknown_operators.h).
  std::vector<std::string> missing_operators;
  bool is_unknown = false;            // no family has this architecture
  std::optional<ModelConfig> config;  // where the architecture is known
  std::string quantization;           // as the files say it; "" for plain weights
  std::string scheme;              // as this program reads it: "ModelOpt NVFP4"; "" where it cannot
  std::string method;              // the word of --quantization; "" for plain weights
  bool fp8_kv_cache = false;       // whether the checkpoint asks for one
  std::vector<std::string> files;  // of tensors, with no folder
  std::vector<std::string> missing_files;  // that the index, or the others' names, tell of
  std::vector<TensorGroup> groups;         // by falling bytes
  int64_t parameters = 0;  // elements of all tensors but scales; packed FP4 counts as two
  int64_t tensor_bytes = 0;
  bool has_tokenizer = false;
  bool has_chat_template = false;
  bool has_generation_config = false;
  ModelOptions options;               // what `memory` is planned for
  std::optional<ModelMemory> memory;  // for a model that can be loaded
  int64_t kv_bytes_per_token = 0;
  std::vector<RankReport> ranks;  // where several are asked for
};

// Describes the folder. Quantized models, unknown architectures and checkpoints that lack some
// files are described too, with their refusal: the latter by the files that are there. Errors: no
// config.json, files that are damaged, or more ranks than the model has parts (CheckRanks).
Result<InspectReport> InspectModel(const std::filesystem::path& folder, int tensor_size = 1,
                                   int num_stages = 1);

std::string FormatText(const InspectReport& report);
json::Value ToJson(const InspectReport& report);

}  // namespace sluice

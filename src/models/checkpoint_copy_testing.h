// For tests of loading: copies of checkpoints to be modified, and the size of loaded weights.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/json.h"
#include "base/json_file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_testing.h"
#include "models/model_testing.h"
#include "models/weight_loader.h"

namespace sluice::testing {

// Reads all tensors of a checkpoint.
inline std::vector<TestTensor> ReadTensors(const std::filesystem::path& folder) {
  const auto checkpoint = Checkpoint::Open(folder);
  EXPECT_TRUE(checkpoint);
  std::vector<TestTensor> tensors;
  for (const auto& [name, tensor] : checkpoint->tensors()) {
    const auto bytes = tensor.bytes();
    tensors.push_back({name, std::string(ElementTypeName(tensor.info->type)), tensor.info->shape,
                       std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())});
  }
  return tensors;
}

// A copy of a checkpoint with changed tensors and config.
class CheckpointCopy {
 public:
  explicit CheckpointCopy(const std::string& name)
      : config_(*ReadJsonObject(DataFolder(name) / "config.json")),
        tensors_(ReadTensors(DataFolder(name))) {}
  json::Value& config() { return config_; }
  std::vector<TestTensor>& tensors() { return tensors_; }
  TestTensor& tensor(std::string_view name) {
    for (TestTensor& tensor : tensors_) {
      if (tensor.name == name) return tensor;
    }
    ADD_FAILURE() << name;
    return tensors_.front();
  }
  void Remove(std::string_view name) {
    std::erase_if(tensors_, [&](const TestTensor& tensor) { return tensor.name == name; });
  }
  const std::filesystem::path& Write() {
    WriteFile(folder_.path() / "config.json", json::Write(config_));
    WriteFile(folder_.path() / "model.safetensors", MakeSafetensors(tensors_));
    return folder_.path();
  }
  // Returns the error message of an attempt to load it.
  std::string Failure(bool allow_nonfinite = false) {
    const auto config = LoadModelConfig(Write());
    if (!config) return config.error().message;
    ThreadPool pool(1);
    ModelOptions options = SmallOptions(ElementType::kBF16, ElementType::kBF16);
    options.allow_nonfinite = allow_nonfinite;
    const auto model = LoadModel(pool, folder_.path(), *config, options);
    return model ? "loaded" : model.error().message;
  }

 private:
  TemporaryFolder folder_;
  json::Value config_;
  std::vector<TestTensor> tensors_;
};

// Returns the bytes of the weights of a test checkpoint, loaded for BF16 products.
inline int64_t LoadedWeightBytes(const std::string& name, const ModelConfig& config) {
  ThreadPool pool(2);
  DecoderWeights weights;
  const ParameterList list = ListParameters(config.spec, weights);
  const auto checkpoint = Checkpoint::Open(DataFolder(name));
  EXPECT_TRUE(LoadParameters(pool, list, *checkpoint, *config.scheme, ElementType::kBF16, {}));
  int64_t bytes = 0;
  for (const MatrixParameter& matrix : list.matrices)
    bytes += static_cast<int64_t>(matrix.target->data.size_bytes());
  for (const VectorParameter& vector : list.vectors)
    bytes += static_cast<int64_t>(vector.target->size() * sizeof(float));
  return bytes;
}

}  // namespace sluice::testing

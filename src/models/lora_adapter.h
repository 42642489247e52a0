// An adapter in peft's layout: adapter_config.json and adapter_model.safetensors of a folder,
// checked against the model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "base/result.h"
#include "checkpoint/safetensors.h"
#include "models/lora_config.h"
#include "models/lora_layout.h"

namespace sluice {

// Ownership: owns the mapping of the file; the layout's modules outlive it. Move-only.
class LoraAdapter {
 public:
  // Its factors for one module.
  struct Factors {
    const LoraModule* module = nullptr;
    const TensorInfo* a = nullptr;
    const TensorInfo* b = nullptr;
    int64_t rank = 0;
    float scale = 0;
  };

  // Reads the configuration and the file's head, and checks that every tensor is a factor of a
  // module of the model, of its shape and of no larger rank than the layout has room for. Errors
  // name file and tensor; kNotFound where the folder has no adapter.
  static Result<LoraAdapter> Open(const std::filesystem::path& folder, const LoraLayout& layout);

  const std::filesystem::path& path() const { return file_.path(); }
  const std::vector<Factors>& factors() const { return factors_; }
  int64_t rank() const { return rank_; }  // the largest
  std::span<const std::byte> Bytes(const TensorInfo& tensor) const { return file_.Bytes(tensor); }

 private:
  LoraAdapter(SafetensorsFile file, LoraConfig config)
      : file_(std::move(file)), config_(std::move(config)) {}
  Status AddTensor(const TensorInfo& tensor, const LoraLayout& layout);
  Status CheckFactors(Factors& factors, const LoraLayout& layout);

  SafetensorsFile file_;
  LoraConfig config_;
  std::vector<Factors> factors_;
  int64_t rank_ = 0;
};

}  // namespace sluice

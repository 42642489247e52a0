// A LoRA adapter in peft's format: adapter_config.json and adapter_model.safetensors in a folder,
// checked against the model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/safetensors.h"
#include "models/lora_config.h"
#include "models/lora_layout.h"

namespace sluice {

// Ownership: owns the file's mapping; the layout's modules must outlive the adapter. Move-only.
class LoraAdapter {
 public:
  // The factors of one module.
  struct Factors {
    const LoraModule* module = nullptr;
    const TensorInfo* a = nullptr;
    const TensorInfo* b = nullptr;
    int64_t rank = 0;
    float scale = 0;
    // For tensors that contain all experts (LoraExperts): the expert's index in these tensors, and
    // the module's first row in B.
    int64_t expert = 0, num_experts = 1;
    int64_t first_row = 0;
  };

  // A tensor of the adapter that replaces a tensor of the base.
  struct Replacement {
    const LoraReplaceable* replaced = nullptr;
    const TensorInfo* tensor = nullptr;
  };

  // Reads the configuration and the file's header. Checks every tensor. It must be a factor of a
  // module of the model, with the module's shape and a rank within the layout's limit; or it must
  // replace a tensor of the model for which the layout has room. Errors name file and tensor;
  // kNotFound if the folder has no adapter.
  static Result<LoraAdapter> Open(const std::filesystem::path& folder, const LoraLayout& layout);

  const std::filesystem::path& path() const { return file_.path(); }
  std::filesystem::path folder() const { return path().parent_path(); }
  const std::vector<Factors>& factors() const { return factors_; }
  const std::vector<Replacement>& replacements() const { return replacements_; }
  int64_t rank() const { return rank_; }  // the largest rank of any module
  std::span<const std::byte> Bytes(const TensorInfo& tensor) const { return file_.Bytes(tensor); }
  // These functions return the module's A [rank, cols] and B [rows, rank], in the types of their
  // tensors. Rows that are not contiguous in the file are copied to `scratch`.
  const std::byte* ABytes(const Factors& factors) const;
  const std::byte* BBytes(const Factors& factors, std::vector<std::byte>& scratch) const;

 private:
  LoraAdapter(SafetensorsFile file, LoraConfig config)
      : file_(std::move(file)), config_(std::move(config)) {}
  // The two factors for all experts of a layer. They belong to module "...experts", or to a wrapper
  // inside it.
  struct OfAllExperts {
    const TensorInfo* a = nullptr;
    const TensorInfo* b = nullptr;
  };

  Status AddTensor(const TensorInfo& tensor, const LoraLayout& layout);
  // Adds a tensor that replaces one of the base. `name`: its canonical name.
  Status AddReplacement(const TensorInfo& tensor, const std::string& name,
                        const LoraLayout& layout);
  Status CheckRoom(const LoraLayout& layout) const;
  // Checks that the file contains the modules listed in modules_to_save.
  Status CheckSavedModules(const LoraLayout& layout) const;
  Status CheckFactors(Factors& factors, const LoraLayout& layout);
  // Sets the rank and the scale of the module. `name`: the name to match patterns with.
  Status CheckRank(Factors& factors, const std::string& name, int64_t rank,
                   const LoraLayout& layout);
  // Makes the factors of each expert's modules from tensors that contain all experts.
  Status AddExperts(const std::string& module, const OfAllExperts& tensors,
                    const LoraLayout& layout);

  SafetensorsFile file_;
  LoraConfig config_;
  std::vector<Factors> factors_;
  std::map<const LoraModule*, size_t> numbers_;  // index into `factors_`, by module
  std::map<std::string, OfAllExperts> experts_;  // by module name
  std::vector<Replacement> replacements_;
  int64_t rank_ = 0;
};

// Returns whether the adapter in the folder has factors for experts; false if it cannot be read.
bool ChangesExperts(const std::filesystem::path& folder);

// Returns the modules, by the last part of their names, whose weight matrix the adapter in the
// folder replaces; empty if it cannot be read.
std::set<std::string> ReplacedModules(const std::filesystem::path& folder);

}  // namespace sluice

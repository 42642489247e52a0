// An adapter in peft's layout: adapter_config.json and adapter_model.safetensors of a folder,
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
    // Where the tensors are of all experts: which part of them (LoraExperts), and the first of B's
    // rows that are the module's.
    int64_t expert = 0, num_experts = 1;
    int64_t first_row = 0;
  };

  // A tensor that replaces one of the base.
  struct Replacement {
    const LoraReplaceable* replaced = nullptr;
    const TensorInfo* tensor = nullptr;
  };

  // Reads the configuration and the file's head, and checks that every tensor is a factor of a
  // module of the model, of its shape and of no larger rank than the layout has room for, or
  // replaces a tensor of the model for which the layout has room. Errors name file and tensor;
  // kNotFound where the folder has no adapter.
  static Result<LoraAdapter> Open(const std::filesystem::path& folder, const LoraLayout& layout);

  const std::filesystem::path& path() const { return file_.path(); }
  std::filesystem::path folder() const { return path().parent_path(); }
  const std::vector<Factors>& factors() const { return factors_; }
  const std::vector<Replacement>& replacements() const { return replacements_; }
  int64_t rank() const { return rank_; }  // the largest
  std::span<const std::byte> Bytes(const TensorInfo& tensor) const { return file_.Bytes(tensor); }
  // A [rank, cols] and B [rows, rank] of the module, in the types of their tensors. What is not in
  // one piece of the file is brought together in `scratch`.
  const std::byte* ABytes(const Factors& factors) const;
  const std::byte* BBytes(const Factors& factors, std::vector<std::byte>& scratch) const;

 private:
  LoraAdapter(SafetensorsFile file, LoraConfig config)
      : file_(std::move(file)), config_(std::move(config)) {}
  // Two factors of all experts of a layer: of the module "...experts", or of a wrapper inside it.
  struct OfAllExperts {
    const TensorInfo* a = nullptr;
    const TensorInfo* b = nullptr;
  };

  Status AddTensor(const TensorInfo& tensor, const LoraLayout& layout);
  // Adds the tensor with the canonical name `name`.
  Status AddReplacement(const TensorInfo& tensor, const std::string& name,
                        const LoraLayout& layout);
  Status CheckRoom(const LoraLayout& layout) const;
  // Whether the file holds what modules_to_save names.
  Status CheckSavedModules(const LoraLayout& layout) const;
  Status CheckFactors(Factors& factors, const LoraLayout& layout);
  // Sets the rank and the scale of the module that patterns know by `name`.
  Status CheckRank(Factors& factors, const std::string& name, int64_t rank,
                   const LoraLayout& layout);
  // Makes factors of each expert's modules.
  Status AddExperts(const std::string& module, const OfAllExperts& tensors,
                    const LoraLayout& layout);

  SafetensorsFile file_;
  LoraConfig config_;
  std::vector<Factors> factors_;
  std::map<const LoraModule*, size_t> numbers_;  // of the modules, in `factors_`
  std::map<std::string, OfAllExperts> experts_;  // by module
  std::vector<Replacement> replacements_;
  int64_t rank_ = 0;
};

// Whether the adapter in the folder has factors of experts; false where it cannot be read.
bool ChangesExperts(const std::filesystem::path& folder);

// Last parts of the names of modules whose weight, a matrix, the adapter in the folder replaces;
// none where it cannot be read.
std::set<std::string> ReplacedModules(const std::filesystem::path& folder);

}  // namespace sluice

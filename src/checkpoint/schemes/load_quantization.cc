// A scheme that wraps the checkpoint's own scheme. It rounds unquantized weights to a narrow format
// while loading, like vLLM's online quantization.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/ascii.h"
#include "checkpoint/schemes/linear_layout.h"
#include "tensor/encode_rows.h"

namespace sluice {
namespace {

struct Rounding {
  std::string_view name;  // used in messages
  Encoding encoding;
  ActivationFormat activations;
};

constexpr Rounding kFp8 = {
    .name = "FP8 per-row",
    .encoding = {.format = {.type = ElementType::kF8E4M3,
                            .scale_layout = DataFormat::ScaleLayout::kPerRow}},
    .activations = {.kind = ActivationFormat::Kind::kFp8PerToken}};
constexpr Rounding kFp8Block = {
    .name = "FP8 block",
    .encoding = {.format = {.type = ElementType::kF8E4M3,
                            .scale_layout = DataFormat::ScaleLayout::kPerBlock,
                            .group_size = 128,
                            .block_rows = 128}},
    .activations = {.kind = ActivationFormat::Kind::kFp8PerGroup, .group_size = 128}};
constexpr Rounding kInt8 = {
    .name = "INT8",
    .encoding = {.format = {.type = ElementType::kI8,
                            .scale_layout = DataFormat::ScaleLayout::kPerRow}},
    .activations = {.kind = ActivationFormat::Kind::kInt8PerToken}};
// Inputs are not rounded, as in vLLM.
constexpr Rounding kMxfp4 = {
    .name = "MXFP4",
    .encoding = {.format = {.type = ElementType::kF4E2M1,
                            .scale_layout = DataFormat::ScaleLayout::kPerGroup,
                            .scale_type = ElementType::kF8E8M0,
                            .group_size = 32}},
    .activations = {}};

struct Word {
  std::string_view word;
  const Rounding& rounding;
};

// vLLM's names. Where vLLM uses one scale per tensor, Sluice uses one per row, which is more
// accurate.
constexpr std::array<Word, 7> kWords = {
    Word{"fp8", kFp8},      Word{"fp8_per_tensor", kFp8},     Word{"fp8_per_channel", kFp8},
    Word{"ptpc_fp8", kFp8}, Word{"fp8_per_block", kFp8Block}, Word{"int8", kInt8},
    Word{"mxfp4", kMxfp4}};

const Rounding* FindRounding(std::string_view word) {
  const auto* found =
      std::find_if(kWords.begin(), kWords.end(), [&](const Word& row) { return row.word == word; });
  return found == kWords.end() ? nullptr : &found->rounding;
}

bool IsPlain(const DataFormat& format) {
  return format.scale_layout == DataFormat::ScaleLayout::kNone;
}

// Returns whether the module's weights stay unrounded, because it is a small layer with a large
// effect on results. vLLM does not round these layers either.
bool IsKeptPlain(std::string_view module) {
  // The last five compute the decays and rates of recurrent layers' states.
  constexpr std::array<std::string_view, 8> kSuffixes = {
      "lm_head", "score",  "shared_expert_gate", ".in_proj_ba", ".in_proj_a", ".in_proj_b",
      ".a_proj", ".b_proj"};
  return IsNeverQuantized(module) ||
         std::any_of(kSuffixes.begin(), kSuffixes.end(),
                     [&](std::string_view suffix) { return module.ends_with(suffix); });
}

class RoundingScheme : public QuantizationScheme {
 public:
  RoundingScheme(std::shared_ptr<const QuantizationScheme> stored, const Rounding* weights,
                 const Rounding* head, std::string_view head_module)
      : stored_(std::move(stored)), weights_(weights), head_(head), head_module_(head_module) {}

  std::string Name() const override {
    std::string name = stored_->Name();
    if (weights_ != nullptr) name += fmt::format(", rounded to {} while loading", weights_->name);
    if (head_ != nullptr) name += fmt::format(", its head to {}", head_->name);
    return name;
  }
  std::string_view Method() const override { return stored_->Method(); }

  DataFormat PlannedFormat(std::string_view module) const override {
    const DataFormat format = stored_->PlannedFormat(module);
    const Rounding* rounding = RoundingOf(module, format);
    return rounding == nullptr ? format : rounding->encoding.format;
  }
  ActivationFormat PlannedActivations(std::string_view module) const override {
    const Rounding* rounding = RoundingOf(module, stored_->PlannedFormat(module));
    return rounding == nullptr ? stored_->PlannedActivations(module)
                               : ActivationsOf(module, *rounding);
  }

  Result<StoredLinear> Find(const Checkpoint& checkpoint, const std::string& module, int64_t rows,
                            int64_t cols) const override {
    ASSIGN_OR_RETURN(StoredLinear linear, stored_->Find(checkpoint, module, rows, cols));
    RETURN_IF_ERROR(Round(module, linear));
    return linear;
  }
  Result<std::optional<StoredLinear>> FindFusedExpert(const Checkpoint& checkpoint,
                                                      const std::string& module, int64_t expert,
                                                      int64_t num_experts, int64_t rows,
                                                      int64_t cols,
                                                      bool transposed) const override {
    ASSIGN_OR_RETURN(
        std::optional<StoredLinear> linear,
        stored_->FindFusedExpert(checkpoint, module, expert, num_experts, rows, cols, transposed));
    if (linear) RETURN_IF_ERROR(Round(module, *linear));
    return linear;
  }

  bool WantsFp8KvCache() const override { return stored_->WantsFp8KvCache(); }
  Result<KvScales> FindKvScales(const Checkpoint& checkpoint,
                                const std::string& attention) const override {
    return stored_->FindKvScales(checkpoint, attention);
  }
  bool IsSuperfluous(const Checkpoint& checkpoint, std::string_view tensor) const override {
    return stored_->IsSuperfluous(checkpoint, tensor);
  }

 private:
  const Rounding* RoundingOf(std::string_view module, const DataFormat& stored) const {
    if (!IsPlain(stored)) return nullptr;
    if (module == head_module_) return head_;
    return IsKeptPlain(module) ? nullptr : weights_;
  }

  // Inputs of the head are not rounded, because its outputs are the logits themselves.
  ActivationFormat ActivationsOf(std::string_view module, const Rounding& rounding) const {
    return module == head_module_ ? ActivationFormat{} : rounding.activations;
  }

  Status Round(std::string_view module, StoredLinear& linear) const {
    const Rounding* rounding = RoundingOf(module, linear.matrix.format);
    if (rounding == nullptr) return {};
    const DataFormat& format = rounding->encoding.format;
    if (format.scale_layout == DataFormat::ScaleLayout::kPerGroup &&
        linear.matrix.cols % format.group_size != 0) {
      const TensorInfo& info = *linear.tensors.front()->info;
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("tensor '{}' has {} inputs, which is not a multiple of the group "
                              "size {} of {}; load it as fp8 or int8",
                              info.name, linear.matrix.cols, format.group_size, rounding->name),
                  info.name);
    }
    linear.rounded_to = &rounding->encoding;
    linear.activations = ActivationsOf(module, *rounding);
    return {};
  }

  std::shared_ptr<const QuantizationScheme> stored_;
  const Rounding* weights_;  // null: weights are kept as stored
  const Rounding* head_;     // null: the head is kept as stored
  std::string head_module_;
};

}  // namespace

std::string LoadQuantizationNames() {
  std::string names;
  for (const Word& row : kWords) names += (names.empty() ? "" : ", ") + std::string(row.word);
  return names;
}

Result<std::shared_ptr<const QuantizationScheme>> QuantizeAtLoad(
    std::shared_ptr<const QuantizationScheme> stored, const LoadQuantization& wanted,
    bool tied_head) {
  const Rounding* weights = nullptr;
  if (!wanted.weights.empty()) {
    if (stored->Method().empty()) weights = FindRounding(AsciiLower(wanted.weights));
    if (weights == nullptr) RETURN_IF_ERROR(CheckQuantizationOption(*stored, wanted.weights));
  }
  const char* const head_module = tied_head ? "model.embed_tokens" : "lm_head";
  const Rounding* head = nullptr;
  if (!wanted.head.empty()) {
    head = FindRounding(AsciiLower(wanted.head));
    if (head == nullptr) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("--head-format: expected one of {}, found '{}'",
                              LoadQuantizationNames(), wanted.head),
                  "head-format");
    }
    if (!IsPlain(stored->PlannedFormat(head_module))) {
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format(
              "--head-format {}: the checkpoint's head is already quantized ({}). Omit the option",
              wanted.head, stored->Name()),
          "head-format");
    }
  }
  if (weights == nullptr && head == nullptr) return stored;
  return std::make_shared<RoundingScheme>(std::move(stored), weights, head, head_module);
}

}  // namespace sluice

#include "models/weight_loader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/log.h"
#include "kernels/linear.h"

namespace sluice {
namespace {

// Bytes of a tensor packed between two calls of the progress function; then their pages are given
// back.
constexpr int64_t kChunkBytes = int64_t{32} << 20;
constexpr const char* kHead = "lm_head.weight";
constexpr const char* kEmbedding = "model.embed_tokens.weight";

bool IsPlainFloat(ElementType type) {
  return type == ElementType::kF32 || type == ElementType::kF16 || type == ElementType::kBF16;
}

// Tensors that some writers add and no reader needs.
bool IsSuperfluous(std::string_view name, bool tied_head) {
  if (tied_head && name == kHead) return true;
  constexpr std::array<std::string_view, 5> kSuffixes = {
      ".rotary_emb.inv_freq", ".rotary_emb.cos_cached", ".rotary_emb.sin_cached", ".attention.bias",
      ".masked_bias"};
  return std::any_of(kSuffixes.begin(), kSuffixes.end(),
                     [&](std::string_view suffix) { return name.ends_with(suffix); });
}

// A head that stands beside a tied embedding is not used; where it holds other numbers, somebody is
// mistaken.
void WarnOfOtherHead(const Checkpoint& checkpoint) {
  const StoredTensor* head = checkpoint.Find(kHead);
  const StoredTensor* embedding = checkpoint.Find(kEmbedding);
  if (head == nullptr || embedding == nullptr) return;
  const auto a = head->bytes(), b = embedding->bytes();
  bool is_same = a.size() == b.size();
  // A sample of pages: reading all of both would cost as much as loading them.
  constexpr size_t kSamples = 16, kSampleBytes = 4096;
  for (size_t i = 0; is_same && i < kSamples && !a.empty(); ++i) {
    const size_t begin = a.size() / kSamples * i;
    is_same = std::memcmp(a.data() + begin, b.data() + begin,
                          std::min(kSampleBytes, a.size() - begin)) == 0;
  }
  if (!is_same) {
    LOG_WARNING("model",
                "{} differs from the embedding, but tie_word_embeddings is true: it is not used",
                kHead);
  }
}

std::string WeightName(const ParameterPart& part) {
  return part.name + ".weight";
}

ElementType StoredTypeOf(const MatrixParameter& matrix, const Checkpoint& checkpoint) {
  ElementType type = checkpoint.Find(WeightName(matrix.parts.front()))->info->type;
  for (const ParameterPart& part : matrix.parts) {
    if (checkpoint.Find(WeightName(part))->info->type != type)
      type = ElementType::kF32;  // Holds the values of all of them.
  }
  return type;
}

float ElementAt(const std::byte* data, ElementType type, int64_t index) {
  if (type == ElementType::kF32) {
    float value;
    std::memcpy(&value, data + index * 4, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, data + index * 2, 2);
  return type == ElementType::kF16 ? HalfToFloat(bits) : ToFloat(BFloat16{bits});
}

// Counts bytes and tells them on.
class ProgressMeter {
 public:
  ProgressMeter(const LoadProgress& progress, int64_t total) : progress_(progress), total_(total) {
    Add(0);
  }
  void Add(int64_t bytes) {
    done_ += bytes;
    if (progress_) progress_(done_, total_);
  }

 private:
  const LoadProgress& progress_;
  int64_t done_ = 0;
  int64_t total_ = 0;
};

// A problem with one parameter's tensor, or "".
std::string Problem(const Checkpoint& checkpoint, const std::string& name,
                    const std::vector<int64_t>& shape) {
  const StoredTensor* tensor = checkpoint.Find(name);
  if (tensor == nullptr) {
    return fmt::format("tensor '{}' of shape {} is missing{}", name, ShapeText(shape),
                       name == kHead ? " although tie_word_embeddings is false" : "");
  }
  const std::string file = tensor->file->path().filename().string();
  if (tensor->info->shape != shape) {
    return fmt::format("tensor '{}' in {} has shape {}, expected {} from config.json", name, file,
                       ShapeText(tensor->info->shape), ShapeText(shape));
  }
  if (!IsPlainFloat(tensor->info->type)) {
    return fmt::format("tensor '{}' in {} has type {}, expected F32, F16 or BF16", name, file,
                       ElementTypeName(tensor->info->type));
  }
  return "";
}

}  // namespace

ElementType PackedType(ElementType compute_type, ElementType stored_type) {
  if (compute_type == ElementType::kBF16 || stored_type == ElementType::kBF16)
    return ElementType::kBF16;
  return ElementType::kF32;
}

int64_t ParameterBytes(const ParameterList& list, ElementType compute_type,
                       ElementType stored_type) {
  const DataFormat format{.type = PackedType(compute_type, stored_type)};
  int64_t bytes = 0;
  for (const MatrixParameter& matrix : list.matrices)
    bytes += kernels::PackedBytes(format, matrix.rows(), matrix.cols);
  for (const VectorParameter& vector : list.vectors)
    bytes += vector.rows() * static_cast<int64_t>(sizeof(float));
  return bytes;
}

Status CheckParameters(const ParameterList& list, const Checkpoint& checkpoint, bool tied_head) {
  std::set<std::string, std::less<>> expected;
  std::vector<std::string> problems;
  std::string first_name;
  const auto check = [&](const ParameterPart& part, const std::vector<int64_t>& shape) {
    expected.insert(part.name);
    std::string problem = Problem(checkpoint, part.name, shape);
    if (problem.empty()) return;
    if (problems.empty()) first_name = part.name;
    problems.push_back(std::move(problem));
  };
  for (const MatrixParameter& matrix : list.matrices) {
    for (const ParameterPart& part : matrix.parts)
      check({WeightName(part), part.rows}, {part.rows, matrix.cols});
  }
  for (const VectorParameter& vector : list.vectors) {
    for (const ParameterPart& part : vector.parts) check(part, {part.rows});
  }
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (expected.contains(name) || IsSuperfluous(name, tied_head)) continue;
    if (problems.empty()) first_name = name;
    problems.push_back(fmt::format("tensor '{}' in {} belongs to nothing in this architecture",
                                   name, tensor.file->path().filename().string()));
  }
  if (problems.empty()) {
    if (tied_head) WarnOfOtherHead(checkpoint);
    return {};
  }
  constexpr size_t kShown = 8;
  const size_t count = problems.size();
  problems.resize(std::min(count, kShown));
  return Fail(
      ErrorCode::kInvalidData,
      fmt::format("{}: the tensors do not fit config.json: {}{}", checkpoint.folder().string(),
                  fmt::join(problems, "; "),
                  count > kShown ? fmt::format("; and {} more problems", count - kShown) : ""),
      first_name);
}

Status LoadParameters(ThreadPool& pool, const ParameterList& list, const Checkpoint& checkpoint,
                      ElementType compute_type, const LoadProgress& progress) {
  int64_t total = 0;
  const auto count = [&](const std::string& name) {
    total += static_cast<int64_t>(checkpoint.Find(name)->info->size_bytes);
  };
  for (const MatrixParameter& matrix : list.matrices) {
    for (const ParameterPart& part : matrix.parts) count(WeightName(part));
  }
  for (const VectorParameter& vector : list.vectors) {
    for (const ParameterPart& part : vector.parts) count(part.name);
  }
  ProgressMeter meter(progress, total);
  for (const MatrixParameter& matrix : list.matrices) {
    const DataFormat format{.type = PackedType(compute_type, StoredTypeOf(matrix, checkpoint))};
    ASSIGN_OR_RETURN(*matrix.target, kernels::AllocatePacked(format, matrix.rows(), matrix.cols,
                                                             matrix.parts.front().name.c_str()));
    int64_t first_row = 0;
    for (const ParameterPart& part : matrix.parts) {
      const StoredTensor& tensor = *checkpoint.Find(WeightName(part));
      const StoredMatrix source =
          PlainMatrix(tensor.bytes().data(), tensor.info->type, part.rows, matrix.cols);
      const int64_t row_bytes = matrix.cols * BitsPerElement(tensor.info->type) / 8;
      const int64_t chunk_rows =
          std::max<int64_t>(1, kChunkBytes / row_bytes / kernels::PackedMatrix::kPanelRows) *
          kernels::PackedMatrix::kPanelRows;
      for (int64_t row = 0; row < part.rows; row += chunk_rows) {
        const int64_t rows = std::min(chunk_rows, part.rows - row);
        kernels::PackRows(pool, *matrix.target, first_row + row, source, row, rows);
        tensor.Release(static_cast<uint64_t>(row * row_bytes),
                       static_cast<uint64_t>(rows * row_bytes));
        meter.Add(rows * row_bytes);
      }
      first_row += part.rows;
    }
  }
  for (const VectorParameter& vector : list.vectors) {
    vector.target->clear();
    vector.target->reserve(static_cast<size_t>(vector.rows()));
    for (const ParameterPart& part : vector.parts) {
      const StoredTensor& tensor = *checkpoint.Find(part.name);
      for (int64_t i = 0; i < part.rows; ++i) {
        vector.target->push_back(ElementAt(tensor.bytes().data(), tensor.info->type, i));
      }
      meter.Add(static_cast<int64_t>(tensor.info->size_bytes));
    }
  }
  return {};
}

}  // namespace sluice

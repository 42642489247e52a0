#include "models/weight_loader.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <unordered_set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "base/integer.h"
#include "base/log.h"
#include "checkpoint/mistral_format.h"
#include "kernels/linear.h"
#include "models/matrix_source.h"
#include "models/packing_sink.h"
#include "models/rounded_rows.h"
#include "tensor/stored_number.h"

namespace sluice {
namespace {

constexpr const char* kHead = "lm_head.weight";
constexpr const char* kEmbedding = "model.embed_tokens.weight";

bool IsPlainFloat(ElementType type) {
  return type == ElementType::kF32 || type == ElementType::kF16 || type == ElementType::kBF16;
}

// Returns whether a tensor is one that some programs write but no program needs.
bool IsSuperfluous(std::string_view name, const DecoderSpec& spec) {
  if (!spec.LoadsHead() && name.starts_with("lm_head.")) return true;
  if (spec.head.kind == HeadSpec::Kind::kNone && name.starts_with("score.")) return true;
  constexpr std::array<std::string_view, 7> kSuffixes = {".rotary_emb.inv_freq",
                                                         ".rotary_emb.cos_cached",
                                                         ".rotary_emb.sin_cached",
                                                         ".attention.bias",
                                                         ".attn.bias",
                                                         ".attn.causal_mask",
                                                         ".masked_bias"};
  return std::any_of(kSuffixes.begin(), kSuffixes.end(),
                     [&](std::string_view suffix) { return name.ends_with(suffix); });
}

// Returns whether a tensor belongs to the image or audio part of a model, which is not needed for
// text.
bool IsOfImages(std::string_view name) {
  constexpr std::array<std::string_view, 29> kPrefixes = {"vision_model.",
                                                          "visual.",
                                                          "model.visual.",
                                                          "multi_modal_projector.",
                                                          "model.vision_model.",
                                                          "vision_tower.",
                                                          "model.multi_modal_projector.",
                                                          "patch_merge_mlp.",
                                                          "model.vision_tower.",
                                                          "audio_tower.",
                                                          "model.audio_tower.",
                                                          "embed_vision.",
                                                          "model.embed_vision.",
                                                          "embed_audio.",
                                                          "model.embed_audio.",
                                                          "model.vision_embedder.",
                                                          "vit_large_projector.",
                                                          "model.vision_adapter.",
                                                          "model.vision_projection.",
                                                          "mm_projector.",
                                                          "connector.",
                                                          "image_newline",
                                                          "model.image_newline",
                                                          "mlp_AR.",
                                                          "vision_encoder.",
                                                          "vision_language_adapter.",
                                                          "patch_merger.",
                                                          "pre_mm_projector_norm.",
                                                          "model.mm_projector."};
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

// A separate head of a model with a tied embedding is not used. Warns if its numbers differ from
// the embedding, which indicates an error in the checkpoint.
void WarnOfOtherHead(const Checkpoint& checkpoint) {
  const StoredTensor* head = checkpoint.Find(kHead);
  const StoredTensor* embedding = checkpoint.Find(kEmbedding);
  if (head == nullptr || embedding == nullptr) return;
  const auto a = head->bytes(), b = embedding->bytes();
  bool is_same = a.size() == b.size();
  // Compares samples only: reading both tensors in full would cost as much as loading them.
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

// Counts loaded bytes and reports the progress.
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

// Rejects tensors with NaN or infinities, or logs them if they are allowed. These numbers make
// every answer wrong; in a router, the error would otherwise go unnoticed.
class NotFiniteTensors {
 public:
  NotFiniteTensors(const Checkpoint& checkpoint, bool allowed)
      : checkpoint_(checkpoint), allowed_(allowed) {}

  // Records that at least one number in rows [begin, end) of a part is not finite.
  Status Add(const StoredLinear& part, int64_t begin, int64_t end) {
    if (allowed_) return Count(*part.tensors.front());
    std::vector<float> values(static_cast<size_t>(part.matrix.cols));
    for (int64_t row = begin; row < end; ++row) {
      DecodeStoredRow(part.matrix, row, values.data());
      for (size_t k = 0; k < values.size(); ++k) {
        if (!std::isfinite(values[k]))
          return Refuse(*part.tensors.front(), values[k], fmt::format("row {}, column {}", row, k));
      }
    }
    CHECK(false, "all numbers of '{}' are finite", part.tensors.front()->info->name);
    return {};
  }

  // Records that element `index` of a vector is not finite.
  Status Add(const StoredTensor& vector, float value, int64_t index) {
    return allowed_ ? Count(vector) : Refuse(vector, value, fmt::format("element {}", index));
  }

  void LogAllowed() const {
    if (names_.empty()) return;
    LOG_WARNING("model",
                "{} tensors contain NaN or infinite values (the first is {}); they are loaded "
                "because of --allow-nonfinite, and answers may fail or be nonsense",
                names_.size(), first_);
  }

 private:
  Status Refuse(const StoredTensor& tensor, float value, const std::string& place) const {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("{}: tensor '{}' in {} has {} at {}, expected finite numbers; download "
                            "it again, or load it anyway with --allow-nonfinite",
                            checkpoint_.folder().string(), tensor.info->name,
                            tensor.file->path().filename().string(), value, place),
                tensor.info->name);
  }
  Status Count(const StoredTensor& tensor) {
    if (names_.empty()) first_ = tensor.info->name;
    names_.insert(tensor.info->name);
    return {};
  }

  const Checkpoint& checkpoint_;
  const bool allowed_;
  std::set<std::string_view> names_;  // tensor names in the checkpoint
  std::string first_;
};

int64_t HeldBytes(const ParameterPart& part, const StoredTensor& tensor) {
  return part.held_rows().size() * BitsPerElement(tensor.info->type) / 8;
}

// Returns element `i` of a tensor of I64 or I32.
int64_t StoredIndex(const StoredTensor& tensor, int64_t i) {
  const std::byte* const data = tensor.bytes().data();
  if (tensor.info->type == ElementType::kI64) {
    int64_t index = 0;
    std::memcpy(&index, data + i * int64_t{sizeof(index)}, sizeof(index));
    return index;
  }
  int32_t index = 0;
  std::memcpy(&index, data + i * int64_t{sizeof(index)}, sizeof(index));
  return index;
}

// Returns an error message if the tensor violates VectorParameter::num_indices, else "".
std::string IndexProblem(const StoredTensor& tensor, const std::string& name, int64_t num_indices) {
  const ElementType type = tensor.info->type;
  const std::string file = tensor.file->path().filename().string();
  if (type != ElementType::kI64 && type != ElementType::kI32) {
    return fmt::format("tensor '{}' in {} has type {}, expected I64 or I32", name, file,
                       ElementTypeName(type));
  }
  const int64_t count = static_cast<int64_t>(tensor.bytes().size()) * 8 / BitsPerElement(type);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t index = StoredIndex(tensor, i);
    if (index >= 0 && index < num_indices) continue;
    return fmt::format("tensor '{}' in {} has index {} at element {}, expected 0 to {}", name, file,
                       index, i, num_indices - 1);
  }
  return "";
}

std::string VectorProblem(const Checkpoint& checkpoint, const VectorParameter& vector,
                          const ParameterPart& part) {
  std::vector<int64_t> shape = {part.rows};
  if (vector.width != 0) shape = {part.rows / vector.width, vector.width};
  if (vector.taps != 0) shape = {part.rows / vector.taps, 1, vector.taps};
  if (!vector.shape.empty()) shape = vector.shape;
  const StoredTensor* tensor = checkpoint.Find(part.name);
  if (tensor == nullptr) {
    return fmt::format("tensor '{}' of shape {} is missing", part.name, ShapeText(shape));
  }
  const std::string file = tensor->file->path().filename().string();
  // Sizes of 1 are ignored: a single number may have no dimensions, and a vector may have more.
  std::vector<int64_t> stored = tensor->info->shape;
  if (shape.size() == 1) std::erase(stored, 1);
  if (stored.empty()) stored = {1};
  if (stored != shape) {
    return fmt::format("tensor '{}' in {} has shape {}, expected {} from config.json", part.name,
                       file, ShapeText(tensor->info->shape), ShapeText(shape));
  }
  if (vector.num_indices != 0) return IndexProblem(*tensor, part.name, vector.num_indices);
  if (!IsPlainFloat(tensor->info->type)) {
    return fmt::format("tensor '{}' in {} has type {}, expected F32, F16 or BF16", part.name, file,
                       ElementTypeName(tensor->info->type));
  }
  return "";
}

// Returns the names of the tensors that contain a part.
std::vector<std::string> TensorsOf(const VectorParameter& vector, const ParameterPart& part) {
  return vector.joined.empty() ? std::vector<std::string>{part.name} : vector.joined;
}

// Returns whether an optional tensor is missing, so that zeros replace it.
bool IsLackedBy(const Checkpoint& checkpoint, const VectorParameter& vector) {
  return vector.is_optional && checkpoint.Find(vector.parts.front().name) == nullptr;
}

// Returns an error message for the tensors of VectorParameter::joined; "" if they are valid.
std::string JoinedProblem(const Checkpoint& checkpoint, const VectorParameter& vector) {
  int64_t numbers = 0;
  for (const std::string& name : vector.joined) {
    ParameterPart part{name, 0};
    if (const StoredTensor* tensor = checkpoint.Find(name); tensor != nullptr) {
      part.rows = tensor->info->shape.empty() ? 0 : tensor->info->shape[0];
      if (vector.taps != 0) part.rows *= vector.taps;
    }
    std::string problem = VectorProblem(checkpoint, vector, part);
    if (!problem.empty()) return problem;
    numbers += part.rows;
  }
  const int64_t expected = vector.parts.front().rows;
  if (numbers == expected) return "";
  return fmt::format("tensors '{}' have {} numbers together, expected {} from config.json",
                     fmt::join(vector.joined, "', '"), numbers, expected);
}

// Returns element `index` of a part that consists of `tensors`. Sets `tensor` to the one that
// contains it.
float NumberOf(std::span<const StoredTensor* const> tensors, int64_t index,
               const StoredTensor*& tensor) {
  for (const StoredTensor* one : tensors) {
    tensor = one;
    const int64_t count =
        static_cast<int64_t>(one->bytes().size()) * 8 / BitsPerElement(one->info->type);
    if (index < count) break;
    index -= count;
  }
  return StoredNumber(tensor->bytes().data(), tensor->info->type, index);
}

// Number of values that are decoded and rounded together.
constexpr int64_t kRoundedChunkNumbers = int64_t{4} << 20;

// Adds rows of a part. Their values are rounded during loading. Chunks begin at block boundaries of
// the stored tensor, so that the values of a block do not depend on the rows of this rank.
Status AddRounded(MatrixSink& sink, const StoredLinear& part, const RowRange& held,
                  int64_t first_row, const MatrixSink::Done& done,
                  const MatrixSink::NotFinite& not_finite) {
  const StoredMatrix& source = part.matrix;
  const int64_t row_bytes = source.cols * BitsPerElement(source.format.type) / 8;
  const int64_t unit =
      std::max<int64_t>(kernels::PackedMatrix::kPanelRows, part.rounded_to->format.block_rows);
  const int64_t chunk_rows = std::max<int64_t>(1, kRoundedChunkNumbers / source.cols / unit) * unit;
  RoundedRows rounded(*part.rounded_to);
  for (int64_t row = held.begin / unit * unit; row < held.end; row += chunk_rows) {
    // Rounds whole blocks, including rows that this rank does not have.
    const int64_t needed = std::min(chunk_rows, held.end - row);
    const int64_t rows = std::min(RoundUp(needed, unit), source.rows - row);
    const StoredMatrix chunk = rounded.Round(sink.pool(), source, row, rows);
    if (!rounded.are_finite()) RETURN_IF_ERROR(not_finite(row, row + rows));
    const RowRange taken = {std::max(held.begin - row, int64_t{0}), needed};
    RETURN_IF_ERROR(sink.AddMade(chunk, taken, first_row + row + taken.begin - held.begin));
    if (!source.transposed) part.ReleaseRows(row, rows);
    done(taken.size() * row_bytes);
  }
  if (source.transposed) part.ReleaseRows(0, source.rows);
  return {};
}

// Adds rows of a part as a separate matrix, decoded to unquantized numbers.
Status AddTaken(MatrixSink& sink, const StoredLinear& part, const TakenRows& taken,
                const MatrixSink::Done& done, const MatrixSink::NotFinite& not_finite) {
  const StoredMatrix& source = part.matrix;
  const int64_t rows = taken.rows.size(), cols = source.cols;
  std::vector<float> values(static_cast<size_t>(rows * cols));
  std::vector<float> row(static_cast<size_t>(cols));
  bool is_finite = true;
  for (int64_t i = 0; i < rows; ++i) {
    DecodeStoredRow(source, taken.rows.begin + i, row.data());
    for (int64_t k = 0; k < cols; ++k) {
      is_finite = is_finite && std::isfinite(row[static_cast<size_t>(k)]);
      values[static_cast<size_t>(taken.transposed ? k * rows + i : i * cols + k)] =
          row[static_cast<size_t>(k)];
    }
  }
  if (!is_finite) RETURN_IF_ERROR(not_finite(taken.rows.begin, taken.rows.end));
  const RowRange made = {0, taken.transposed ? cols : rows};
  RETURN_IF_ERROR(sink.AddMade(
      PlainMatrix(values.data(), ElementType::kF32, made.size(), taken.transposed ? rows : cols),
      made, 0));
  part.ReleaseRows(taken.rows.begin, rows);
  done(rows * (cols * BitsPerElement(source.format.type) / 8));
  return {};
}

// Collects the problems of a checkpoint and the tensors that are used.
class Inspection {
 public:
  Inspection(const Checkpoint& checkpoint, const QuantizationScheme& scheme,
             const DecoderSpec& spec)
      : checkpoint_(checkpoint), scheme_(scheme), spec_(spec) {}

  void Matrix(const MatrixParameter& matrix) {
    const auto source = FindMatrix(matrix, checkpoint_, scheme_, ElementType::kBF16);
    if (!source) {
      // A part with problems also counts as used; otherwise its tensors would be reported as
      // unexpected.
      for (const ParameterPart& part : matrix.parts) {
        const Result<StoredLinear> found =
            matrix.taken ? Result<StoredLinear>(tl::unexpected<Error>(source.error()))
                         : scheme_.Find(checkpoint_, part.name, part.rows, matrix.cols);
        if (found) {
          Use(found->tensors);
        } else {
          failed_modules_.insert(part.name);
        }
        if (!part.fused.empty()) failed_modules_.insert(part.fused);
      }
      if (matrix.fused) failed_modules_.insert(matrix.fused->module);
      Error error = source.error();
      if (error.param == kHead && checkpoint_.Find(kHead) == nullptr)
        error.message += " although tie_word_embeddings is false";
      Add(error.message, error.param);
      return;
    }
    for (const StoredLinear& part : source->parts) {
      Use(part.tensors);
      ++modules_of_type_[part.matrix.format.type];
      if (part.surprise != nullptr) {
        auto& [count, example] = surprises_[part.surprise];
        if (count++ == 0) example = part.tensors.front()->info->name;
      }
      if (const Status status = CheckScales(part); !status)
        Add(status.error().message, status.error().param);
    }
    if (source->decodes && !matrix.taken) mixed_.push_back(matrix.parts.front().name);
  }

  void Vector(const VectorParameter& vector) {
    if (!vector.joined.empty()) {
      used_.insert(vector.joined.begin(), vector.joined.end());
      const std::string problem = JoinedProblem(checkpoint_, vector);
      if (!problem.empty()) Add(problem, vector.joined.front());
      return;
    }
    for (const ParameterPart& part : vector.parts) {
      used_.insert(part.name);
      if (vector.is_optional && checkpoint_.Find(part.name) == nullptr) continue;
      const std::string problem = VectorProblem(checkpoint_, vector, part);
      if (!problem.empty()) Add(problem, part.name);
    }
  }

  void Scales(const KvScaleParameter& parameter) {
    const auto scales = scheme_.FindKvScales(checkpoint_, parameter.attention);
    if (!scales) return Add(scales.error().message, scales.error().param);
    Use(scales->tensors);
  }

  // Returns an error that lists the problems found so far; success if there are none.
  Status Listed() { return problems_.empty() ? Status() : Failure(); }

  Status Finish(const ParameterList& list) {
    if (list.is_part) return Listed();
    const auto is_unread = [&](const std::string& name) {
      return std::any_of(list.unread.begin(), list.unread.end(),
                         [&](const std::string& prefix) { return name.starts_with(prefix); });
    };
    int64_t images = 0, drafts = 0;
    for (const auto& [name, tensor] : checkpoint_.tensors()) {
      if (used_.contains(name) || IsSuperfluous(name, spec_) || IsOfFailed(name)) continue;
      if (IsOfImages(name)) {
        ++images;
      } else if (is_unread(name)) {
        drafts += name == "d2t" || name == "t2d" ? 0 : 1;
      } else if (!scheme_.IsSuperfluous(checkpoint_, name)) {
        Add(fmt::format("tensor '{}' in {} belongs to no part of this architecture",
                        tensor.info->name, tensor.file->path().filename().string()),
            tensor.info->name);
      }
    }
    if (!problems_.empty()) return Failure();
    if (drafts > 0) {
      LOG_INFO("model",
               "{} tensors are of layers that propose tokens: method mtp of --speculative-config "
               "may use them",
               drafts);
    }
    if (images > 0) LOG_DEBUG("model", "{} tensors are not of the text part", images);
    for (const auto& [surprise, found] : surprises_) {
      LOG_WARNING("model", "{} modules are {} (the first is {}); the stored format is used",
                  found.first, surprise, found.second);
    }
    if (!mixed_.empty()) {
      LOG_WARNING("model",
                  "{} matrices have parts of different formats (the first is {}): they are stored "
                  "unquantized and take more memory",
                  mixed_.size(), mixed_.front());
    }
    std::vector<std::string> counts;
    for (const auto& [type, count] : modules_of_type_)
      counts.push_back(fmt::format("{} of {}", count, ElementTypeName(type)));
    LOG_DEBUG("model", "weights {}: {}", scheme_.Name(), fmt::join(counts, ", "));
    if (spec_.head.kind == HeadSpec::Kind::kVocabulary && spec_.tied_head)
      WarnOfOtherHead(checkpoint_);
    return {};
  }

 private:
  void Add(std::string problem, std::string name) {
    if (problems_.empty()) first_name_ = std::move(name);
    // All experts of a fused tensor report the same problem.
    if (!told_.insert(problem).second) return;
    problems_.push_back(std::move(problem));
  }

  void Use(const std::vector<const StoredTensor*>& tensors) {
    for (const StoredTensor* tensor : tensors)
      used_.insert(CanonicalNameIn(tensor->file->path(), tensor->info->name));
  }

  // Whether the tensor belongs to a module whose failure has already been reported.
  bool IsOfFailed(std::string_view name) const {
    const auto after = failed_modules_.upper_bound(name);
    if (after == failed_modules_.begin()) return false;
    const std::string& module = *std::prev(after);
    return name.starts_with(module) && (name.size() == module.size() ||
                                        name[module.size()] == '.' || name[module.size()] == '_');
  }

  Status Failure() {
    constexpr size_t kShown = 8;
    const size_t count = problems_.size();
    problems_.resize(std::min(count, kShown));
    return Fail(
        ErrorCode::kInvalidData,
        fmt::format("{}: the tensors do not fit config.json: {}{}", checkpoint_.folder().string(),
                    fmt::join(problems_, "; "),
                    count > kShown ? fmt::format("; and {} more problems", count - kShown) : ""),
        first_name_);
  }

  const Checkpoint& checkpoint_;
  const QuantizationScheme& scheme_;
  const DecoderSpec& spec_;
  std::set<std::string, std::less<>> used_;
  std::set<std::string, std::less<>> failed_modules_;
  std::vector<std::string> problems_;
  std::unordered_set<std::string> told_;  // the same problems, for fast look-up
  std::string first_name_;
  // Number of occurrences, and the name of one of them.
  std::map<std::string, std::pair<int64_t, std::string>> surprises_;
  std::vector<std::string> mixed_;
  std::map<ElementType, int64_t> modules_of_type_;
};

// Finds the matrices of a list in sequence. If a rank has only parts of them, only this rank's rows
// of the next matrix are fetched from the disk while the current matrix is loaded.
class MatrixReader {
 public:
  MatrixReader(const ParameterList& list, const Checkpoint& checkpoint,
               const QuantizationScheme& scheme, ElementType compute_type)
      : list_(list), checkpoint_(checkpoint), scheme_(scheme), compute_type_(compute_type) {}

  // Returns the stored bytes of all matrices; kInvalidData names what is missing.
  Result<int64_t> Begin() {
    int64_t total_bytes = 0;
    for (const MatrixParameter& matrix : list_.matrices) {
      ASSIGN_OR_RETURN(const MatrixSource source, Find(matrix));
      total_bytes += source.stored_bytes();
      for (const MatrixSource::Piece& piece : source.pieces)
        sparse_ = sparse_ || piece.rows.size() < source.parts[piece.part].matrix.rows;
    }
    if (sparse_) {
      for (const SafetensorsFile& file : checkpoint_.files()) file.ReadSparsely();
    }
    RETURN_IF_ERROR(FetchNext());
    return total_bytes;
  }

  // Returns the MatrixSource of the next matrix.
  Result<MatrixSource> Next() {
    MatrixSource source = std::move(next_);
    RETURN_IF_ERROR(FetchNext());
    return source;
  }

 private:
  Result<MatrixSource> Find(const MatrixParameter& matrix) const {
    return FindMatrix(matrix, checkpoint_, scheme_, compute_type_);
  }

  Status FetchNext() {
    if (index_ == list_.matrices.size()) return {};
    ASSIGN_OR_RETURN(next_, Find(list_.matrices[index_++]));
    if (!sparse_) return {};
    for (const MatrixSource::Piece& piece : next_.pieces) {
      const StoredLinear& part = next_.parts[piece.part];
      part.FetchRows(piece.rows.begin, piece.rows.size());
      // Scales are small, so they are fetched in full.
      for (size_t i = 1; i < part.tensors.size(); ++i)
        part.tensors[i]->Fetch(0, part.tensors[i]->bytes().size());
    }
    return {};
  }

  const ParameterList& list_;
  const Checkpoint& checkpoint_;
  const QuantizationScheme& scheme_;
  const ElementType compute_type_;
  bool sparse_ = false;
  size_t index_ = 0;
  MatrixSource next_;
};

}  // namespace

int64_t ParameterBytes(const ParameterList& list, const QuantizationScheme& scheme,
                       ElementType compute_type) {
  int64_t bytes = 0;
  for (const MatrixParameter& matrix : list.matrices) {
    bytes += kernels::PackedBytes(PlannedMatrixFormat(matrix, scheme, compute_type), matrix.rows(),
                                  matrix.cols);
  }
  for (const VectorParameter& vector : list.vectors)
    bytes += vector.rows() * static_cast<int64_t>(sizeof(float));
  return bytes;
}

bool OrdersInputs(const ParameterList& list, const QuantizationScheme& scheme,
                  ElementType compute_type) {
  return std::any_of(list.matrices.begin(), list.matrices.end(), [&](const auto& matrix) {
    return PlannedMatrixFormat(matrix, scheme, compute_type).has_input_order;
  });
}

Status CheckParameters(const ParameterList& list, const Checkpoint& checkpoint,
                       const QuantizationScheme& scheme, const DecoderSpec& spec) {
  Inspection inspection(checkpoint, scheme, spec);
  for (const MatrixParameter& matrix : list.matrices) inspection.Matrix(matrix);
  for (const VectorParameter& vector : list.vectors) inspection.Vector(vector);
  for (const KvScaleParameter& scales : list.kv_scales) inspection.Scales(scales);
  return inspection.Finish(list);
}

Status CheckListed(const ParameterList& list, const Checkpoint& checkpoint,
                   const QuantizationScheme& scheme) {
  const DecoderSpec none;
  Inspection inspection(checkpoint, scheme, none);
  for (const MatrixParameter& matrix : list.matrices) inspection.Matrix(matrix);
  for (const VectorParameter& vector : list.vectors) inspection.Vector(vector);
  return inspection.Listed();
}

Status LoadParameters(MatrixSink& sink, const ParameterList& list, const Checkpoint& checkpoint,
                      const QuantizationScheme& scheme, ElementType compute_type,
                      const LoadProgress& progress, bool allow_nonfinite) {
  MatrixReader reader(list, checkpoint, scheme, compute_type);
  ASSIGN_OR_RETURN(int64_t total, reader.Begin());
  for (const VectorParameter& vector : list.vectors) {
    if (IsLackedBy(checkpoint, vector)) continue;
    for (const ParameterPart& part : vector.parts)
      total += HeldBytes(part, *checkpoint.Find(TensorsOf(vector, part).front()));
  }
  ProgressMeter meter(progress, total);
  NotFiniteTensors not_finite(checkpoint, allow_nonfinite);
  for (const MatrixParameter& matrix : list.matrices) {
    ASSIGN_OR_RETURN(const MatrixSource source, reader.Next());
    RETURN_IF_ERROR(sink.Begin(matrix, source.packed));
    if (matrix.inputs != nullptr) *matrix.inputs = source.inputs;
    int64_t first_row = 0;
    for (const MatrixSource::Piece& piece : source.pieces) {
      const StoredLinear& part = source.parts[piece.part];
      const auto done = [&meter](int64_t bytes) { meter.Add(bytes); };
      const auto found = [&](int64_t begin, int64_t end) {
        return not_finite.Add(part, begin, end);
      };
      if (matrix.taken) {
        RETURN_IF_ERROR(AddTaken(sink, part, *matrix.taken, done, found));
      } else if (part.rounded_to != nullptr && !source.decodes) {
        RETURN_IF_ERROR(AddRounded(sink, part, piece.rows, first_row, done, found));
      } else {
        RETURN_IF_ERROR(sink.AddStored(part, piece.rows, source.decodes, first_row, done, found));
      }
      first_row += piece.rows.size();
    }
  }
  for (const VectorParameter& vector : list.vectors) {
    vector.target->clear();
    if (IsLackedBy(checkpoint, vector)) {
      vector.target->assign(static_cast<size_t>(vector.rows()), 0.0f);
      continue;
    }
    vector.target->reserve(static_cast<size_t>(vector.rows()));
    for (const ParameterPart& part : vector.parts) {
      std::vector<const StoredTensor*> tensors;
      for (const std::string& name : TensorsOf(vector, part))
        tensors.push_back(checkpoint.Find(name));
      const RowRange held = part.held_rows();
      for (int64_t i = held.begin; i < held.end; ++i) {
        const StoredTensor* tensor = nullptr;
        if (vector.num_indices != 0) {
          vector.target->push_back(static_cast<float>(StoredIndex(*tensors.front(), i)));
          continue;
        }
        const float value = NumberOf(tensors, i, tensor);
        if (!std::isfinite(value) && (!vector.allows_infinite || std::isnan(value)))
          RETURN_IF_ERROR(not_finite.Add(*tensor, value, i));
        vector.target->push_back(value * vector.factor * part.factor + vector.offset);
      }
      meter.Add(HeldBytes(part, *tensors.front()));
    }
    TransposeTaps(vector);
  }
  for (const KvScaleParameter& parameter : list.kv_scales) {
    ASSIGN_OR_RETURN(*parameter.target, scheme.FindKvScales(checkpoint, parameter.attention));
    // The checkpoint is closed after loading, so pointers to it are dropped.
    parameter.target->tensors.clear();
  }
  not_finite.LogAllowed();
  return {};
}

Status LoadParameters(ThreadPool& pool, const ParameterList& list, const Checkpoint& checkpoint,
                      const QuantizationScheme& scheme, ElementType compute_type,
                      const LoadProgress& progress, bool allow_nonfinite) {
  PackingSink sink(pool);
  return LoadParameters(sink, list, checkpoint, scheme, compute_type, progress, allow_nonfinite);
}

void TransposeTaps(const VectorParameter& vector) {
  if (vector.taps == 0) return;
  const std::vector<float> stored = *vector.target;
  const auto taps = static_cast<size_t>(vector.taps), channels = stored.size() / taps;
  for (size_t channel = 0; channel < channels; ++channel) {
    for (size_t tap = 0; tap < taps; ++tap)
      (*vector.target)[tap * channels + channel] = stored[channel * taps + tap];
  }
}

void LogKvScales(const DecoderWeights& weights) {
  int64_t stored = 0, layers = 0;
  float least = 1, most = 1;
  for (const LayerWeights& layer : weights.layers) {
    if (layer.attention.output.matrix.rows == 0) continue;  // the layer has no attention
    const KvScales& scales = layer.attention.kv_scales;
    const auto [low, high] = std::minmax(scales.k, scales.v);
    least = layers == 0 ? low : std::min(least, low);
    most = layers == 0 ? high : std::max(most, high);
    ++layers;
    stored += scales.stored;
  }
  if (stored == 0) {
    LOG_INFO(
        "models",
        "the KV cache is FP8 with scales of 1.0: the checkpoint has none for its {} layers, so "
        "keys and values beyond 448 are clipped",
        layers);
    return;
  }
  LOG_INFO("models", "the KV cache is FP8 with the checkpoint's scales, {:.4g} to {:.4g}{}", least,
           most,
           stored == layers
               ? ""
               : fmt::format("; {} of {} layers have none and use 1.0", layers - stored, layers));
}

}  // namespace sluice

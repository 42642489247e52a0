#include "quantize/compare_models.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "models/kv_cache.h"
#include "models/kv_layout.h"
#include "models/matrix_source.h"
#include "models/model_config.h"
#include "models/rounded_rows.h"
#include "models/weight_loader.h"

namespace sluice {
namespace {

// A loaded model that computes the logits of one chunk at a time.
class Predictor {
 public:
  static Result<Predictor> Load(ThreadPool& pool, const ComparedModel& model, int64_t longest,
                                ModelOptions::ActivationRounding activations) {
    ASSIGN_OR_RETURN(const ModelConfig config,
                     LoadModelConfig(model.folder, {}, model.quantization));
    const DecoderSpec& spec = config.spec;
    ModelOptions options;
    options.max_rows = longest;
    options.max_slices = 1;
    options.max_context = longest;
    options.max_logit_rows = longest;
    options.activation_format = activations;
    Predictor predictor;
    const int64_t blocks = (longest + options.block_size - 1) / options.block_size;
    ASSIGN_OR_RETURN(predictor.model_, LoadModel(pool, model.folder, config, options));
    ASSIGN_OR_RETURN(KvCache cache,
                     KvCache::Allocate(KvLayoutOf(spec, options), KvGroups::Uniform(spec), blocks));
    RETURN_IF_ERROR(cache.AllocateStates(StateLayout::For(spec), 1));
    predictor.cache_ = std::make_unique<KvCache>(std::move(cache));
    predictor.blocks_.resize(static_cast<size_t>(blocks));
    std::iota(predictor.blocks_.begin(), predictor.blocks_.end(), 0);
    predictor.positions_.resize(static_cast<size_t>(longest));
    std::iota(predictor.positions_.begin(), predictor.positions_.end(), 0);
    predictor.model_->PrepareThread(pool);
    return predictor;
  }

  int64_t vocabulary() const { return model_->config().vocab_size; }

  // Returns logits [tokens, vocabulary].
  const std::vector<float>& Run(ThreadPool& pool, const std::vector<int32_t>& tokens) {
    const kernels::AttentionSlice slice{0, static_cast<int32_t>(tokens.size()), 0, blocks_.data()};
    const std::span<const int32_t> positions(positions_.data(), tokens.size());
    logits_.resize(tokens.size() * static_cast<size_t>(vocabulary()));
    StepInput input{
        .tokens = tokens, .positions = positions, .slices = {&slice, 1}, .logit_rows = positions};
    const StateSlot state{.slot = 0, .is_new = true};
    if (model_->config().spec.KeepsStates()) input.states = {&state, 1};
    model_->Forward(pool, input, *cache_, logits_.data());
    return logits_;
  }

 private:
  std::unique_ptr<Model> model_;
  std::unique_ptr<KvCache> cache_;
  std::vector<int32_t> blocks_, positions_;
  std::vector<float> logits_;
};

// Returns log(sum(exp(logits))).
double LogSum(std::span<const float> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - largest);
  return largest + std::log(sum);
}

ptrdiff_t Argmax(std::span<const float> logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

// A checkpoint's linear layers, keyed by module.
struct OpenedModel {
  ModelConfig config;
  std::unique_ptr<Checkpoint> checkpoint;
  DecoderWeights weights;
  ParameterList list;

  static Result<OpenedModel> Open(const ComparedModel& model) {
    OpenedModel opened;
    ASSIGN_OR_RETURN(opened.config, LoadModelConfig(model.folder, {}, model.quantization));
    ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::Open(model.folder));
    opened.checkpoint = std::make_unique<Checkpoint>(std::move(checkpoint));
    const DecoderSpec& spec = opened.config.spec;
    opened.list = ListParameters(spec, opened.weights);
    RETURN_IF_ERROR(CheckParameters(opened.list, *opened.checkpoint, *opened.config.scheme, spec));
    return opened;
  }
};

// Number of rows compared at a time; a whole number of blocks in all formats.
constexpr int64_t kChunkRows = 1024;

// Decodes rows [row, row + rows) of a matrix in memory. They lie within one stored part [rows,
// cols]. If the part is rounded, its blocks begin at `row`.
void DecodeRowsOf(ThreadPool& pool, const MatrixSource& source, int64_t row, int64_t rows,
                  std::vector<float>& out) {
  const auto* part = source.parts.data();
  for (; row >= part->matrix.rows; ++part) row -= part->matrix.rows;
  const int64_t cols = part->matrix.cols;
  out.resize(static_cast<size_t>(rows * cols));
  std::optional<RoundedRows> rounded;
  StoredMatrix matrix = part->matrix;
  if (part->rounded_to != nullptr) {
    matrix = rounded.emplace(*part->rounded_to).Round(pool, matrix, row, rows);
    row = 0;
  }
  pool.ParallelFor(rows, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) DecodeStoredRow(matrix, row + i, out.data() + i * cols);
  });
}

}  // namespace

void AddPosition(std::span<const float> a, std::span<const float> b, int32_t next,
                 PredictionDifference& sums) {
  const double sum_a = LogSum(a), sum_b = LogSum(b);
  double divergence = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double log_a = a[i] - sum_a;
    divergence += std::exp(log_a) * (log_a - (b[i] - sum_b));
  }
  divergence = std::max(divergence, 0.0);  // rounding may make it negative
  ++sums.positions;
  sums.kl_divergence += divergence;
  sums.max_kl_divergence = std::max(sums.max_kl_divergence, divergence);
  sums.top1_agreement += Argmax(a) == Argmax(b) ? 1 : 0;
  sums.perplexity_a += sum_a - a[static_cast<size_t>(next)];
  sums.perplexity_b += sum_b - b[static_cast<size_t>(next)];
}

Result<PredictionDifference> ComparePredictions(
    ThreadPool& pool, const ComparedModel& a, const ComparedModel& b,
    const std::vector<std::vector<int32_t>>& chunks, ModelOptions::ActivationRounding activations,
    const std::function<void(int64_t done, int64_t total)>& progress) {
  int64_t longest = 0, total = 0;
  for (const auto& chunk : chunks) {
    longest = std::max(longest, static_cast<int64_t>(chunk.size()));
    total += static_cast<int64_t>(chunk.size());
  }
  if (longest < 2) {
    return Fail(ErrorCode::kInvalidArgument, "the text has fewer than two tokens", "text");
  }
  ASSIGN_OR_RETURN(Predictor first, Predictor::Load(pool, a, longest, activations));
  ASSIGN_OR_RETURN(Predictor second, Predictor::Load(pool, b, longest, activations));
  if (first.vocabulary() != second.vocabulary()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("the models have vocabularies of {} and {} tokens and cannot be "
                            "compared",
                            first.vocabulary(), second.vocabulary()));
  }
  const auto width = static_cast<size_t>(first.vocabulary());
  PredictionDifference sums;
  int64_t done = 0;
  for (const std::vector<int32_t>& chunk : chunks) {
    const std::vector<float>& logits_a = first.Run(pool, chunk);
    const std::vector<float>& logits_b = second.Run(pool, chunk);
    for (size_t i = 0; i + 1 < chunk.size(); ++i) {
      AddPosition({logits_a.data() + i * width, width}, {logits_b.data() + i * width, width},
                  chunk[i + 1], sums);
    }
    done += static_cast<int64_t>(chunk.size());
    if (progress) progress(done, total);
  }
  const auto count = static_cast<double>(std::max<int64_t>(sums.positions, 1));
  sums.kl_divergence /= count;
  sums.top1_agreement /= count;
  sums.perplexity_a = std::exp(sums.perplexity_a / count);
  sums.perplexity_b = std::exp(sums.perplexity_b / count);
  return sums;
}

Result<std::vector<WeightDifference>> CompareWeights(ThreadPool& pool, const ComparedModel& a,
                                                     const ComparedModel& b) {
  ASSIGN_OR_RETURN(const OpenedModel first, OpenedModel::Open(a));
  ASSIGN_OR_RETURN(const OpenedModel second, OpenedModel::Open(b));
  if (first.list.matrices.size() != second.list.matrices.size()) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{} and {} are models of different shapes",
                                                         a.folder.string(), b.folder.string()));
  }
  std::vector<WeightDifference> differences;
  std::vector<float> x, y;
  for (size_t i = 0; i < first.list.matrices.size(); ++i) {
    const MatrixParameter& matrix = first.list.matrices[i];
    const MatrixParameter& other = second.list.matrices[i];
    if (matrix.rows() != other.rows() || matrix.cols != other.cols) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} is [{}, {}] in {} and [{}, {}] in {}", matrix.parts.front().name,
                              matrix.rows(), matrix.cols, a.folder.string(), other.rows(),
                              other.cols, b.folder.string()));
    }
    ASSIGN_OR_RETURN(
        const MatrixSource source,
        FindMatrix(matrix, *first.checkpoint, *first.config.scheme, ElementType::kF32));
    ASSIGN_OR_RETURN(
        const MatrixSource changed,
        FindMatrix(other, *second.checkpoint, *second.config.scheme, ElementType::kF32));
    int64_t first_row = 0;
    for (const ParameterPart& part : matrix.parts) {
      double error = 0, norm = 0;
      for (int64_t row = 0; row < part.rows; row += kChunkRows) {
        const int64_t rows = std::min(kChunkRows, part.rows - row);
        DecodeRowsOf(pool, source, first_row + row, rows, x);
        DecodeRowsOf(pool, changed, first_row + row, rows, y);
        for (size_t k = 0; k < x.size(); ++k) {
          const double difference = static_cast<double>(y[k]) - x[k];
          error += difference * difference;
          norm += static_cast<double>(x[k]) * x[k];
        }
      }
      differences.push_back({part.name, norm > 0 ? std::sqrt(error / norm) : std::sqrt(error)});
      first_row += part.rows;
    }
  }
  return differences;
}

}  // namespace sluice

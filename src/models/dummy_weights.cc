// Fills parameters with random numbers for --load-format dummy, with which a model can be run and
// measured without its weights.
#include <algorithm>
#include <vector>

#include "models/dummy_rows.h"
#include "models/packing_sink.h"
#include "models/weight_loader.h"
#include "tensor/float8.h"

namespace sluice {
namespace {

// Returns input scales for random layers, whose inputs have magnitudes of a few units.
LinearInputs PlannedInputs(const MatrixParameter& matrix, const QuantizationScheme& scheme) {
  LinearInputs inputs{.format = scheme.PlannedActivations(matrix.parts.front().name)};
  constexpr float kLargest = 16;
  if (inputs.format.kind == ActivationFormat::Kind::kFp8Static ||
      inputs.format.kind == ActivationFormat::Kind::kInt8Static)
    inputs.scale = kLargest / kFloat8E4M3Max;
  if (inputs.format.kind == ActivationFormat::Kind::kNvfp4)
    inputs.scale = kLargest / (6 * kFloat8E4M3Max);
  return inputs;
}

}  // namespace

DataFormat PlannedMatrixFormat(const MatrixParameter& matrix, const QuantizationScheme& scheme,
                               ElementType compute_type) {
  if (matrix.taken)
    return TakenFormat(scheme.PlannedFormat(matrix.parts.front().name), compute_type);
  std::vector<DataFormat> formats;
  for (const ParameterPart& part : matrix.parts) formats.push_back(scheme.PlannedFormat(part.name));
  return PackedFormat(formats, compute_type);
}

Status FillDummyParameters(MatrixSink& sink, const ParameterList& list, uint64_t seed,
                           const QuantizationScheme& scheme, ElementType compute_type,
                           const LoadProgress& progress) {
  int64_t total = 0, so_far = 0;
  for (const MatrixParameter& matrix : list.matrices) {
    const DataFormat format = PlannedMatrixFormat(matrix, scheme, compute_type);
    total += matrix.rows() * (matrix.cols * BitsPerElement(format.type) / 8);
  }
  const auto done = [&](int64_t bytes) {
    so_far += bytes;
    if (progress) progress(so_far, total);
  };
  for (const MatrixParameter& matrix : list.matrices) {
    RETURN_IF_ERROR(sink.Begin(matrix, PlannedMatrixFormat(matrix, scheme, compute_type)));
    if (matrix.inputs != nullptr) *matrix.inputs = PlannedInputs(matrix, scheme);
    int64_t first_row = 0;
    if (matrix.taken) {
      // Treats each row of the module as matrix.rows() rows, so that no two matrices get the same
      // random rows.
      const int64_t first = matrix.taken->rows.begin * matrix.rows();
      RETURN_IF_ERROR(sink.AddRandom(DummySeed(matrix.parts.front().name, seed),
                                     {first, first + matrix.rows()}, 0, done));
      continue;
    }
    for (const ParameterPart& part : matrix.parts) {
      RETURN_IF_ERROR(
          sink.AddRandom(DummySeed(part.name, seed), part.held_rows(), first_row, done));
      first_row += part.held_rows().size();
    }
  }
  for (const VectorParameter& vector : list.vectors) {
    vector.target->assign(static_cast<size_t>(vector.rows()), 1.0f);
    if (vector.kind != VectorParameter::Kind::kBias) continue;
    if (vector.num_indices != 0) {
      for (size_t i = 0; i < vector.target->size(); ++i)
        (*vector.target)[i] = static_cast<float>(static_cast<int64_t>(i) % vector.num_indices);
      continue;
    }
    // Adds up the sizes of all tensors. first[i]: where part i's tensor begins.
    int64_t stored = 0;
    std::vector<int64_t> first;
    for (size_t i = 0; i < vector.parts.size(); ++i) {
      const bool is_next = i == 0 || vector.parts[i].name != vector.parts[i - 1].name;
      first.push_back(is_next ? stored : first.back());
      if (is_next) stored += vector.parts[i].rows;
    }
    std::vector<float> bias(static_cast<size_t>(stored));
    FillDummyBias(DummySeed(vector.parts.front().name, seed), stored, bias.data());
    auto to = vector.target->begin();
    for (size_t i = 0; i < vector.parts.size(); ++i) {
      const RowRange held = vector.parts[i].held_rows();
      to = std::copy_n(bias.begin() + first[i] + held.begin, held.size(), to);
    }
    TransposeTaps(vector);
  }
  for (const KvScaleParameter& parameter : list.kv_scales) *parameter.target = {};
  return {};
}

Status FillDummyParameters(ThreadPool& pool, const ParameterList& list, uint64_t seed,
                           const QuantizationScheme& scheme, ElementType compute_type,
                           const LoadProgress& progress) {
  PackingSink sink(pool);
  return FillDummyParameters(sink, list, seed, scheme, compute_type, progress);
}

}  // namespace sluice

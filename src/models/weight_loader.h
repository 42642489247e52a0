// Fills a decoder's parameters, from a checkpoint or at random.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/scheme.h"
#include "models/matrix_sink.h"
#include "models/model.h"
#include "models/weights.h"

namespace sluice {

// Returns the format in memory of a matrix whose parts are stored in these formats. Narrow formats
// are kept. Unquantized weights are BF16 if inputs are BF16. In F32 mode, they keep their exact
// values: BF16 as BF16, F16 and F32 as F32. If parts have different formats (q in FP8, k in BF16),
// the matrix is not quantized and has the compute type. REQUIRES: `stored` is not empty.
DataFormat PackedFormat(const std::vector<DataFormat>& stored, ElementType compute_type);

// Like PackedFormat, for values that are taken from a module stored in this format (TakenRows).
// Returns an unquantized format.
DataFormat TakenFormat(const DataFormat& stored, ElementType compute_type);

// Like PackedFormat, for a matrix whose parts have the storage format in the configuration.
DataFormat PlannedMatrixFormat(const MatrixParameter& matrix, const QuantizationScheme& scheme,
                               ElementType compute_type);

// Returns the bytes of the parameters, assuming that everything is stored as configured.
int64_t ParameterBytes(const ParameterList& list, const QuantizationScheme& scheme,
                       ElementType compute_type);

// Returns whether the inputs of any matrix are reordered (PackedMatrix::input_order).
bool OrdersInputs(const ParameterList& list, const QuantizationScheme& scheme,
                  ElementType compute_type);

// Checks that the checkpoint contains these parameters with the right shapes and types and valid
// scales, and no other tensors except ones that are known to be unused. One error lists all
// problems. Reads all scales, but no weights.
Status CheckParameters(const ParameterList& list, const Checkpoint& checkpoint,
                       const QuantizationScheme& scheme, const DecoderSpec& spec);

// Like CheckParameters, but ignores other tensors in the checkpoint.
Status CheckListed(const ParameterList& list, const Checkpoint& checkpoint,
                   const QuantizationScheme& scheme);

// Like CheckParameters, for the model that `config` describes.
Status CheckTensors(const ModelConfig& config, const Checkpoint& checkpoint);

// Reads every parameter directly from the mapped files: matrices into the sink, vectors into their
// targets. A NaN or infinite number causes an error that names the tensor or, if `allow_nonfinite`,
// a warning. REQUIRES: CheckParameters succeeded.
Status LoadParameters(MatrixSink& sink, const ParameterList& list, const Checkpoint& checkpoint,
                      const QuantizationScheme& scheme, ElementType compute_type,
                      const LoadProgress& progress, bool allow_nonfinite = false);

// Like the function above, but packs the matrices into their targets, in parallel.
Status LoadParameters(ThreadPool& pool, const ParameterList& list, const Checkpoint& checkpoint,
                      const QuantizationScheme& scheme, ElementType compute_type,
                      const LoadProgress& progress, bool allow_nonfinite = false);

// Fills the parameters with random values, in the configured formats. Their magnitude keeps
// activations finite; norms are filled with 1. The values depend only on the seed and the modules'
// names, not on the number of threads.
Status FillDummyParameters(MatrixSink& sink, const ParameterList& list, uint64_t seed,
                           const QuantizationScheme& scheme, ElementType compute_type,
                           const LoadProgress& progress);
Status FillDummyParameters(ThreadPool& pool, const ParameterList& list, uint64_t seed,
                           const QuantizationScheme& scheme, ElementType compute_type,
                           const LoadProgress& progress);

// Reorders elements from the tensors' order to the target's order, if it differs
// (VectorParameter::taps).
void TransposeTaps(const VectorParameter& vector);

// Logs whether the scales of an FP8 cache come from the checkpoint.
void LogKvScales(const DecoderWeights& weights);

}  // namespace sluice

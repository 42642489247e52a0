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

// The format that a matrix has in memory when its parts are stored in these formats. Narrow formats
// stay as they are. Plain numbers: inputs of BF16 need weights of BF16; in F32 mode the weights
// keep their exact values, BF16 as BF16, F16 and F32 as F32. Parts of unlike formats in one matrix
// (q in FP8, k in BF16) become plain numbers in the compute type. REQUIRES: `stored` is not empty.
DataFormat PackedFormat(const std::vector<DataFormat>& stored, ElementType compute_type);

// The same of values that are taken of a module stored in that format (TakenRows): plain numbers.
DataFormat TakenFormat(const DataFormat& stored, ElementType compute_type);

// The same of a matrix whose parts are stored as the configuration plans it.
DataFormat PlannedMatrixFormat(const MatrixParameter& matrix, const QuantizationScheme& scheme,
                               ElementType compute_type);

// Bytes that the parameters take when everything is stored as the configuration plans it.
int64_t ParameterBytes(const ParameterList& list, const QuantizationScheme& scheme,
                       ElementType compute_type);

// Whether the inputs of any matrix come in another order (PackedMatrix::input_order).
bool OrdersInputs(const ParameterList& list, const QuantizationScheme& scheme,
                  ElementType compute_type);

// Checks that the checkpoint holds exactly these parameters, of the right shapes and types and with
// sound scales: nothing is missing and nothing is left over that is not known to be superfluous.
// One error names all problems. Reads all scales, no weights.
Status CheckParameters(const ParameterList& list, const Checkpoint& checkpoint,
                       const QuantizationScheme& scheme, const DecoderSpec& spec);

// The same of these parameters alone, whatever else the checkpoint holds.
Status CheckListed(const ParameterList& list, const Checkpoint& checkpoint,
                   const QuantizationScheme& scheme);

// The same for the model that `config` describes.
Status CheckTensors(const ModelConfig& config, const Checkpoint& checkpoint);

// Reads every parameter straight from the mapped files, matrices into the sink, vectors into their
// targets. A number that is NaN or infinite is an error that names the tensor, or a warning where
// `allow_nonfinite`. REQUIRES: CheckParameters succeeded.
Status LoadParameters(MatrixSink& sink, const ParameterList& list, const Checkpoint& checkpoint,
                      const QuantizationScheme& scheme, ElementType compute_type,
                      const LoadProgress& progress, bool allow_nonfinite = false);

// The same with matrices packed into their targets, in parallel.
Status LoadParameters(ThreadPool& pool, const ParameterList& list, const Checkpoint& checkpoint,
                      const QuantizationScheme& scheme, ElementType compute_type,
                      const LoadProgress& progress, bool allow_nonfinite = false);

// Fills the parameters with random numbers of a size that keeps activations finite (norms with 1),
// in the formats that the configuration plans. The values depend on the seed and the modules' names
// alone, not on the number of threads.
Status FillDummyParameters(MatrixSink& sink, const ParameterList& list, uint64_t seed,
                           const QuantizationScheme& scheme, ElementType compute_type,
                           const LoadProgress& progress);
Status FillDummyParameters(ThreadPool& pool, const ParameterList& list, uint64_t seed,
                           const QuantizationScheme& scheme, ElementType compute_type,
                           const LoadProgress& progress);

// Brings numbers that follow each other as in the tensors into the order of the target, where that
// is another (VectorParameter::taps).
void TransposeTaps(const VectorParameter& vector);

// Says where the scales of an FP8 cache come from.
void LogKvScales(const DecoderWeights& weights);

}  // namespace sluice

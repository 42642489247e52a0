// Fills a decoder's parameters, from a checkpoint or at random.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "models/model.h"
#include "models/weights.h"

namespace sluice {

// The type that a matrix has in memory when its tensors are stored as `stored_type`. Inputs of BF16
// need weights of BF16; in F32 mode the weights keep their exact values: BF16 stays as it is, F16
// and F32 become F32.
ElementType PackedType(ElementType compute_type, ElementType stored_type);

// Bytes that the parameters take when all tensors are stored as `stored_type`.
int64_t ParameterBytes(const ParameterList& list, ElementType compute_type,
                       ElementType stored_type);

// Checks that the checkpoint holds exactly these parameters, of the right shapes and of type F32,
// F16 or BF16: nothing is missing and nothing is left over that is not known to be superfluous. One
// error names all problems.
Status CheckParameters(const ParameterList& list, const Checkpoint& checkpoint, bool tied_head);

// The same for the model that `config` describes.
Status CheckTensors(const ModelConfig& config, const Checkpoint& checkpoint);

// Packs every parameter straight from the mapped files, in parallel, and gives their pages back as
// it goes. REQUIRES: CheckParameters succeeded.
Status LoadParameters(ThreadPool& pool, const ParameterList& list, const Checkpoint& checkpoint,
                      ElementType compute_type, const LoadProgress& progress);

// Fills the parameters with random numbers of a size that keeps activations finite (norms with 1).
// The values depend on the seed and the tensors' names alone, not on the number of threads.
Status FillDummyParameters(ThreadPool& pool, const ParameterList& list, uint64_t seed,
                           ElementType compute_type, ElementType stored_type,
                           const LoadProgress& progress);

}  // namespace sluice

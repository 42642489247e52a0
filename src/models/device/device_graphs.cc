#include "models/device/device_graphs.h"

#include <algorithm>

#include "models/device/device_step.h"

namespace sluice {
namespace {

// Returns an upper estimate of the number of operations in a step that DeviceDecoder launches.
// cuBLASLt may launch several kernels per product.
int64_t OperationsOf(const DecoderSpec& spec) {
  constexpr int64_t kOfLayer = 16, kMoreOfExperts = 12, kMoreOfEmbeddings = 8, kBesides = 16;
  constexpr int64_t kMoreOfLatent = 8, kMoreOfIndexer = 8, kMoreOfMixer = 16;
  const int64_t of_layer = kOfLayer + (spec.layer_embeddings.width > 0 ? kMoreOfEmbeddings : 0);
  int64_t of_mixing = 0;
  for (const LayerSpec& layer : spec.layers) {
    of_mixing += layer.mixer ? kMoreOfMixer : 0;
    if (layer.attention.latent)
      of_mixing += kMoreOfLatent + (layer.attention.latent->indexer ? kMoreOfIndexer : 0);
  }
  return of_mixing + std::ssize(spec.layers) * of_layer + spec.NumMoeLayers() * kMoreOfExperts +
         kBesides;
}

}  // namespace

int64_t GraphBytes(const DecoderSpec& spec, const ModelOptions& options) {
  int64_t graphs = 0;
  for (const int64_t sequences : options.recorded.sequences)
    graphs += DeviceStepInputs::NumLevels(spec, options, sequences);
  return graphs * OperationsOf(spec) * kGraphOperationBytes;
}

StepGraphs::StepGraphs(const RecordedSteps& steps, const void* keys)
    : pads_(steps.pads), keys_(keys) {
  for (const int64_t sequences : steps.sequences) sizes_.emplace_back().sequences = sequences;
}

const StepGraphs::Size* StepGraphs::Find(int64_t sequences, const void* keys) const {
  if (keys != keys_) return nullptr;
  const auto found = std::ranges::lower_bound(sizes_, sequences, {}, &Size::sequences);
  if (found == sizes_.end() || found->graphs.empty()) return nullptr;
  return pads_ || found->sequences == sequences ? &*found : nullptr;
}

}  // namespace sluice

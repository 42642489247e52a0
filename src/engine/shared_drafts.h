// Loads a draft model only once, although several models of a process (--models) use it to propose
// tokens.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "base/result.h"
#include "base/thread_pool.h"
#include "models/model.h"

namespace sluice {

// Loads a draft model, on the CPU. `quantization`: the configured quantization of the weights. If
// an engine of this process has loaded the same files with the same quantization, the model shares
// that engine's weights. They stay in memory as long as any of these models exists. Thread safety:
// any thread may call it.
Result<std::unique_ptr<Model>> LoadSharedDraft(ThreadPool& pool,
                                               const std::filesystem::path& folder,
                                               const ModelConfig& config,
                                               const ModelOptions& options,
                                               std::string_view quantization);

}  // namespace sluice

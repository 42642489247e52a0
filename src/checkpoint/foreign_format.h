// Tells by name what a file or folder is that holds a model in a format that is not read.
#pragma once

#include <filesystem>

#include "base/result.h"

namespace sluice {

// kUnsupported, with the way out, where `model` is a GGUF file or another file of weights, or a
// folder without safetensors that holds a LoRA adapter, GGUF files or pickled weights. Names alone
// are looked at, but for a GGUF file's first bytes. Folders that hold none of these are no error
// here: what they lack is told where it is read.
Status RefuseForeignFormat(const std::filesystem::path& model);

}  // namespace sluice

// Recognizes models in unsupported formats, to give a helpful error.
#pragma once

#include <filesystem>

#include "base/result.h"

namespace sluice {

// kUnsupported, with advice, if `model` is a GGUF file, another file of weights, or a folder
// without safetensors that contains a LoRA adapter, GGUF files or pickled weights. Looks only at
// file names and at the first bytes of a GGUF file. Returns no error for other folders: the code
// that reads a folder reports what is missing.
Status RefuseForeignFormat(const std::filesystem::path& model);

}  // namespace sluice

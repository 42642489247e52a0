// The data sets that come from files; use dataset.h.
#pragma once

#include <string>
#include <vector>

#include "bench/dataset.h"

namespace sluice::bench {

Result<Dataset> MakeCustom(const DatasetOptions& options, const PromptTokenizer* tokenizer);
Result<Dataset> MakeShareGpt(const DatasetOptions& options, const PromptTokenizer& tokenizer);
// Prompts with the lengths of the random data set, and text from a ShareGPT file.
Result<Dataset> MakeRandomFromFile(const DatasetOptions& options, const PromptTokenizer& tokenizer);

// The non-empty lines of a text file, each with its newline.
Result<std::vector<std::string>> ReadLines(const std::string& path);

}  // namespace sluice::bench

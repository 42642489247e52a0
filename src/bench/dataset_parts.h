// The data sets that come from files. Callers use dataset.h.
#pragma once

#include <string>
#include <vector>

#include "bench/dataset.h"

namespace sluice::bench {

Result<Dataset> MakeCustom(const DatasetOptions& options, const PromptTokenizer* tokenizer);
Result<Dataset> MakeShareGpt(const DatasetOptions& options, const PromptTokenizer& tokenizer);
// Makes prompts with the lengths of the random data set, from the text in a ShareGPT file.
Result<Dataset> MakeRandomFromFile(const DatasetOptions& options, const PromptTokenizer& tokenizer);

// Returns the non-empty lines of a text file, each with its newline.
Result<std::vector<std::string>> ReadLines(const std::string& path);

}  // namespace sluice::bench

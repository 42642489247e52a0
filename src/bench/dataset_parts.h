// The data sets that come from files; use dataset.h.
#pragma once

#include <string>
#include <vector>

#include "bench/dataset.h"

namespace sluice::bench {

Result<Dataset> MakeCustom(const DatasetOptions& options, const PromptTokenizer* tokenizer);
Result<Dataset> MakeShareGpt(const DatasetOptions& options, const PromptTokenizer& tokenizer);
// Prompts of the random data set's lengths, of the text of a ShareGPT file.
Result<Dataset> MakeRandomFromFile(const DatasetOptions& options, const PromptTokenizer& tokenizer);

// The lines of a text file that are not empty, each with its newline.
Result<std::vector<std::string>> ReadLines(const std::string& path);

}  // namespace sluice::bench

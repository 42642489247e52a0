// Reads texts for calibration and comparison, as chunks of tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

namespace sluice::cli {

// Reads a plain text file or, if the name ends in .jsonl or .json, JSON lines. Their objects have a
// string "text", "prompt" or "question", or "messages" with "content". Tokenizes with the tokenizer
// in `tokenizer_folder`; every document starts with the special tokens that the tokenizer adds.
// Chunks have at most `chunk_tokens` tokens each and at most `max_tokens` together; chunks of a
// single token are omitted. An error names the file and line.
Result<std::vector<std::vector<int32_t>>> ReadTextChunks(
    const std::filesystem::path& file, const std::filesystem::path& tokenizer_folder,
    int64_t chunk_tokens, int64_t max_tokens);

}  // namespace sluice::cli

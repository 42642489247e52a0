// The prompts of a benchmark.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/prompt_tokenizer.h"
#include "bench/random_images.h"
#include "tokenizer/tokenizer.h"

namespace sluice::bench {

struct Prompt {
  std::string text;
  std::vector<int32_t> ids;              // not empty: sent in place of the text
  std::vector<std::string> images = {};  // URLs, after the text of a chat
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;  // most that the answer may have
};

struct DatasetOptions {
  enum class Kind { kRandom, kShareGpt, kCustom, kSonnet, kPrefixRepetition };
  Kind kind = Kind::kRandom;
  std::string path = {};  // of the kinds that read a file
  int64_t num_prompts = 1000;
  uint64_t seed = 0;
  bool shuffle = true;
  bool oversample = true;  // repeat prompts of a file that has too few

  // kRandom, kSonnet, kPrefixRepetition.
  int64_t input_len = 1024;
  int64_t prefix_len = 0;
  int64_t num_prefixes = 10;     // kPrefixRepetition
  double input_range_ratio = 0;  // lengths lie in [len * (1 - ratio), len * (1 + ratio)]
  double output_range_ratio = 0;
  // Prompts go as lists of ids. Those of kRandom are not taken through text then, so that their
  // number is exact whatever the vocabulary.
  bool send_ids = false;
  // Tokens of the answer; absent: as the file says. -1 likewise.
  std::optional<int64_t> output_len = std::nullopt;
  // kRandom: images of each request.
  std::optional<RandomImageOptions> images = std::nullopt;
  // kCustom and kSonnet: makes the prompt that is sent from a message; absent: they are the same.
  std::function<Result<std::string>(const std::string& prompt)> apply_chat_template = nullptr;
};

struct Dataset {
  std::vector<Prompt> prompts;
  std::vector<std::string> notes;  // for the user, a line each
};

// `tokenizer` may be null for kCustom: then every prompt counts 1 token until the server says
// otherwise. kInvalidArgument for options that contradict each other, kInvalidData for a file that
// is not as expected; both say what to do.
Result<Dataset> MakeDataset(const DatasetOptions& options, const Tokenizer* tokenizer);
// The same with a tokenizer that may be a server's: also kUnavailable where that fails.
Result<Dataset> MakeDatasetWith(const DatasetOptions& options, const PromptTokenizer* tokenizer);

}  // namespace sluice::bench

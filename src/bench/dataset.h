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
  std::vector<int32_t> ids;              // if not empty, sent instead of the text
  std::vector<std::string> images = {};  // URLs of images that follow the text of a chat
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;  // maximum length of the answer
};

struct DatasetOptions {
  enum class Kind { kRandom, kShareGpt, kCustom, kSonnet, kPrefixRepetition };
  Kind kind = Kind::kRandom;
  std::string path = {};  // the path of the file, for kinds that read a file
  int64_t num_prompts = 1000;
  uint64_t seed = 0;
  bool shuffle = true;
  bool oversample = true;  // whether to repeat prompts if the file has too few

  // For kRandom, kSonnet and kPrefixRepetition:
  int64_t input_len = 1024;
  int64_t prefix_len = 0;
  int64_t num_prefixes = 10;     // for kPrefixRepetition
  double input_range_ratio = 0;  // lengths are in [len * (1 - ratio), len * (1 + ratio)]
  double output_range_ratio = 0;
  // Whether to send prompts as lists of ids. Prompts of kRandom are then not converted to text, so
  // that their number of tokens is exact with any vocabulary.
  bool send_ids = false;
  // Number of output tokens; absent or -1: the number in the file.
  std::optional<int64_t> output_len = std::nullopt;
  // For kRandom: adds images to each request.
  std::optional<RandomImageOptions> images = std::nullopt;
  // For kCustom: whether each line also lists images, as "image_files".
  bool reads_images = false;
  // For kCustom and kSonnet: converts a message to a prompt. Absent: the message is the prompt.
  std::function<Result<std::string>(const std::string& prompt)> apply_chat_template = nullptr;
};

struct Dataset {
  std::vector<Prompt> prompts;
  std::vector<std::string> notes;  // messages for the user, one line each
};

// `tokenizer` may be null for kCustom; every prompt then counts as 1 token until the server reports
// its number. kInvalidArgument for contradictory options, kInvalidData for an invalid file; both
// messages state what to do.
Result<Dataset> MakeDataset(const DatasetOptions& options, const Tokenizer* tokenizer);
// As above, with a tokenizer that may be a server's. Also kUnavailable if the server fails.
Result<Dataset> MakeDatasetWith(const DatasetOptions& options, const PromptTokenizer* tokenizer);

}  // namespace sluice::bench

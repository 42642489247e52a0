#include "bench/dataset.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/python_random.h"
#include "bench/dataset_parts.h"
#include "bench/exact_text.h"
#include "bench/numpy_random.h"
#include "bench/sonnet_lines.h"

namespace sluice::bench {
namespace {

constexpr std::string_view kSonnetTask =
    "Here are lines of verse. Continue them in the same metre and say which line you like best.\n";

tl::unexpected<Error> Bad(std::string message) {
  return Fail(ErrorCode::kInvalidArgument, std::move(message));
}

// Returns the token ids for random prompts: the vocabulary without special tokens.
std::vector<int32_t> AllowedIds(const PromptTokenizer& tokenizer) {
  std::vector<int32_t> allowed;
  for (int64_t place = 0; place < tokenizer.NumTokens(); ++place) {
    const int32_t id = tokenizer.Token(place);
    if (!tokenizer.IsSpecial(id)) allowed.push_back(id);
  }
  return allowed;
}

// Draws `count` tokens, including special ones, as vLLM does.
std::vector<int64_t> DrawTokens(NumpyGenerator& random, const PromptTokenizer& tokenizer,
                                int64_t count) {
  std::vector<int64_t> drawn = random.Integers(0, tokenizer.NumTokens(), count);
  for (int64_t& place : drawn) place = tokenizer.Token(place);
  return drawn;
}

int64_t Low(int64_t length, double ratio) {
  return static_cast<int64_t>(std::floor(static_cast<double>(length) * (1 - ratio)));
}
int64_t High(int64_t length, double ratio) {
  return static_cast<int64_t>(std::ceil(static_cast<double>(length) * (1 + ratio)));
}

Result<Dataset> MakeRandom(const DatasetOptions& options, const PromptTokenizer& tokenizer) {
  for (double ratio : {options.input_range_ratio, options.output_range_ratio}) {
    if (ratio < 0 || ratio >= 1)
      return Bad(
          fmt::format("--random-range-ratio: expected at least 0 and below 1, found {}", ratio));
  }
  const int64_t num_special =
      options.send_ids ? 0 : static_cast<int64_t>(tokenizer.Encode("", true).size());
  const int64_t length = std::max<int64_t>(0, options.input_len - num_special);
  const int64_t input_low = Low(length, options.input_range_ratio);
  const int64_t input_high = High(length, options.input_range_ratio);
  const int64_t output_len = options.output_len.value_or(128);
  const int64_t output_low = std::max<int64_t>(1, Low(output_len, options.output_range_ratio));
  const int64_t output_high = std::max<int64_t>(1, High(output_len, options.output_range_ratio));
  if (options.prefix_len + input_low < 1) {
    return Bad(fmt::format(
        "--random-input-len {}: with {} special tokens and this range some prompts would be empty; "
        "give a larger --random-input-len or --random-prefix-len",
        options.input_len, num_special));
  }
  const std::vector<int32_t> allowed = AllowedIds(tokenizer);
  RETURN_IF_ERROR(tokenizer.status());
  if (allowed.empty()) return Bad("the tokenizer has only special tokens");
  const int64_t vocab_size = tokenizer.NumTokens();
  NumpyGenerator random(options.seed);
  const auto input_lens = random.Integers(input_low, input_high + 1, options.num_prompts);
  const auto output_lens = random.Integers(output_low, output_high + 1, options.num_prompts);
  const auto offsets = random.Integers(0, vocab_size, options.num_prompts);

  Dataset data;
  data.notes.push_back(fmt::format("Sampling input_len from [{}, {}] and output_len from [{}, {}]",
                                   input_low, input_high, output_low, output_high));
  ExactText exact(tokenizer);
  const auto any = [&](int64_t n) { return DrawTokens(random, tokenizer, n); };
  std::vector<int32_t> prefix;
  if (options.prefix_len > 0) {
    for (int64_t place :
         random.Integers(0, static_cast<int64_t>(allowed.size()), options.prefix_len))
      prefix.push_back(allowed[static_cast<size_t>(place)]);
    if (!options.send_ids) exact.Make(prefix, options.prefix_len, any);
  }
  int64_t mismatch = 0;
  for (size_t i = 0; i < input_lens.size(); ++i) {
    std::vector<int32_t> ids = prefix;
    const auto places = tokenizer.has_all_tokens() ? std::vector<int64_t>()
                                                   : random.Integers(0, vocab_size, input_lens[i]);
    for (int64_t k = 0; k < input_lens[i]; ++k) {
      const auto place = places.empty()
                             ? static_cast<size_t>(offsets[i] + static_cast<int64_t>(i) + k)
                             : static_cast<size_t>(places[static_cast<size_t>(k)]);
      ids.push_back(allowed[place % allowed.size()]);
    }
    Prompt prompt;
    const auto wanted = static_cast<int64_t>(ids.size());
    if (options.send_ids) {
      prompt.ids = std::move(ids);
      prompt.prompt_tokens = wanted;
    } else {
      prompt.text = exact.Make(ids, wanted, any);
      prompt.prompt_tokens = static_cast<int64_t>(ids.size());
      mismatch += prompt.prompt_tokens - wanted;
    }
    prompt.output_tokens = output_lens[i];
    data.prompts.push_back(std::move(prompt));
  }
  if (mismatch != 0) {
    data.notes.push_back(
        fmt::format("all prompts together have {} tokens {} than requested: this vocabulary cannot "
                    "form a text of every length",
                    std::abs(mismatch), mismatch > 0 ? "more" : "fewer"));
  }
  return data;
}

Result<Dataset> MakePrefixRepetition(const DatasetOptions& options,
                                     const PromptTokenizer& tokenizer) {
  const int64_t each = options.num_prompts / options.num_prefixes;
  if (each == 0) {
    return Bad(fmt::format("--num-prompts {} must be at least --prefix-repetition-num-prefixes {}",
                           options.num_prompts, options.num_prefixes));
  }
  const int64_t num_tokens = tokenizer.NumTokens();
  RETURN_IF_ERROR(tokenizer.status());
  if (num_tokens == 0) return Bad("the tokenizer has no tokens");
  NumpyGenerator random(options.seed);
  const auto any = [&](int64_t n) { return DrawTokens(random, tokenizer, n); };
  ExactText exact(tokenizer);
  const auto tokens = [&](int64_t count) {
    const auto drawn = any(count);
    std::vector<int32_t> ids(drawn.begin(), drawn.end());
    exact.Make(ids, count, any);
    return ids;
  };
  Dataset data;
  for (int64_t p = 0; p < options.num_prefixes; ++p) {
    const std::vector<int32_t> prefix = tokens(options.prefix_len);
    for (int64_t i = 0; i < each; ++i) {
      std::vector<int32_t> ids = prefix;
      const auto suffix = tokens(options.input_len);
      ids.insert(ids.end(), suffix.begin(), suffix.end());
      Prompt prompt;
      prompt.text = tokenizer.Decode(ids);
      prompt.prompt_tokens = static_cast<int64_t>(ids.size());
      prompt.output_tokens = options.output_len.value_or(128);
      if (options.send_ids) prompt.ids = std::move(ids);
      data.prompts.push_back(std::move(prompt));
    }
  }
  if (options.shuffle) PythonRandom(options.seed).Shuffle(data.prompts);
  return data;
}

// Makes prompts with the same task and different lines. The first lines are the same in all
// prompts.
Result<Dataset> MakeSonnet(const DatasetOptions& options, const PromptTokenizer& tokenizer) {
  std::vector<std::string> lines(SonnetLines().begin(), SonnetLines().end());
  if (!options.path.empty()) {
    ASSIGN_OR_RETURN(lines, ReadLines(options.path));
  }
  double total = 0;
  for (const std::string& line : lines)
    total += static_cast<double>(tokenizer.Encode(line, true).size());
  RETURN_IF_ERROR(tokenizer.status());
  const double average = total / static_cast<double>(lines.size());
  const auto wrap = [&](const std::string& text) -> Result<std::string> {
    if (options.apply_chat_template) return options.apply_chat_template(text);
    return text;
  };
  ASSIGN_OR_RETURN(const std::string base, wrap(std::string(kSonnetTask)));
  const auto offset = static_cast<int64_t>(tokenizer.Encode(base, true).size());
  if (options.input_len <= offset) {
    return Bad(fmt::format("--sonnet-input-len {}: the task text alone has {} tokens",
                           options.input_len, offset));
  }
  const auto lines_for = [&](int64_t length) {
    return std::max<int64_t>(0, std::llround(static_cast<double>(length - offset) / average));
  };
  const int64_t num_lines = lines_for(options.input_len);
  const int64_t num_prefix =
      std::min({lines_for(options.prefix_len), num_lines, static_cast<int64_t>(lines.size())});
  if (num_lines == 0) return Bad("--sonnet-input-len: no line fits; give a larger number");
  std::string prefix(kSonnetTask);
  for (int64_t i = 0; i < num_prefix; ++i) prefix += lines[static_cast<size_t>(i)];

  PythonRandom random(options.seed);
  Dataset data;
  // If lines longer than average make a prompt too long, it is drawn again.
  int64_t draws = 0;
  int64_t num_extra = num_lines - num_prefix;
  while (static_cast<int64_t>(data.prompts.size()) < options.num_prompts) {
    if (++draws > 20 * options.num_prompts + 100) {
      if (num_extra == 0) return Bad("--sonnet-input-len: no prompt of that length can be made");
      --num_extra;
      draws = 0;
    }
    std::string text = prefix;
    for (size_t index : random.Choices(lines.size(), static_cast<size_t>(num_extra)))
      text += lines[index];
    Prompt prompt;
    ASSIGN_OR_RETURN(prompt.text, wrap(text));
    std::vector<int32_t> ids = tokenizer.Encode(prompt.text, true);
    prompt.prompt_tokens = static_cast<int64_t>(ids.size());
    if (prompt.prompt_tokens > options.input_len) continue;
    prompt.output_tokens = options.output_len.value_or(150);
    if (options.send_ids) prompt.ids = std::move(ids);
    data.prompts.push_back(std::move(prompt));
  }
  return data;
}

Result<Dataset> MakeKind(const DatasetOptions& options, const PromptTokenizer* tokenizer) {
  using Kind = DatasetOptions::Kind;
  if (options.kind == Kind::kCustom) return MakeCustom(options, tokenizer);
  if (tokenizer == nullptr) {
    return Bad(
        "this data set consists of tokens and needs the tokenizer; omit --skip-tokenizer-init or "
        "use --dataset-name custom");
  }
  switch (options.kind) {
    case Kind::kShareGpt: return MakeShareGpt(options, *tokenizer);
    case Kind::kSonnet: return MakeSonnet(options, *tokenizer);
    case Kind::kPrefixRepetition: return MakePrefixRepetition(options, *tokenizer);
    case Kind::kRandom:
    case Kind::kCustom: break;
  }
  ASSIGN_OR_RETURN(Dataset data, options.path.empty() ? MakeRandom(options, *tokenizer)
                                                      : MakeRandomFromFile(options, *tokenizer));
  if (options.images) {
    ASSIGN_OR_RETURN(auto images,
                     MakeRandomImages(*options.images, std::ssize(data.prompts), options.seed));
    for (size_t i = 0; i < images.size(); ++i) data.prompts[i].images = std::move(images[i]);
  }
  return data;
}

}  // namespace

Result<Dataset> MakeDatasetWith(const DatasetOptions& options, const PromptTokenizer* tokenizer) {
  auto data = MakeKind(options, tokenizer);
  // A tokenizer that failed returns results that cause other errors, so its own error is reported
  // instead.
  if (tokenizer != nullptr) RETURN_IF_ERROR(tokenizer->status());
  return data;
}

Result<Dataset> MakeDataset(const DatasetOptions& options, const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return MakeDatasetWith(options, nullptr);
  const LocalTokenizer local(*tokenizer);
  return MakeDatasetWith(options, &local);
}

}  // namespace sluice::bench

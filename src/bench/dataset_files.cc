#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json_lines.h"
#include "base/python_random.h"
#include "bench/dataset_parts.h"
#include "bench/exact_text.h"
#include "bench/numpy_random.h"
#include "media/image_file.h"

namespace sluice::bench {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{2} << 30;

tl::unexpected<Error> Damaged(std::string_view place, std::string_view what) {
  return Fail(ErrorCode::kInvalidData, fmt::format("--dataset-path {}: {}", place, what),
              "dataset-path");
}

Result<std::string> ReadDataset(const std::string& path, std::string_view kind) {
  if (path.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--dataset-name {} reads a file: give it as --dataset-path FILE", kind),
                "dataset-path");
  }
  auto text = ReadFile(path, kMaxFileBytes);
  if (!text) return tl::unexpected<Error>(std::move(text).error().In("--dataset-path"));
  return text;
}

// Repeats randomly drawn prompts until there are as many as requested, as vLLM does.
void Oversample(const DatasetOptions& options, Dataset& data) {
  const auto wanted = static_cast<size_t>(options.num_prompts);
  const size_t have = data.prompts.size();
  if (have >= wanted || have == 0) return;
  if (!options.oversample) {
    data.notes.push_back(
        fmt::format("Skipping oversampling: {} prompts instead of {}.", have, wanted));
    return;
  }
  PythonRandom random(options.seed);
  for (size_t index : random.Choices(have, wanted - have))
    data.prompts.push_back(Prompt(data.prompts[index]));
  data.notes.push_back(fmt::format("Oversampled requests to reach {} total samples.", wanted));
}

// Returns the first two turns of each conversation that has at least two.
Result<std::vector<std::pair<std::string, std::string>>> ReadConversations(
    const DatasetOptions& options) {
  ASSIGN_OR_RETURN(const std::string text, ReadDataset(options.path, "sharegpt"));
  const auto root = json::Parse(text);
  if (!root) return Damaged(options.path, root.error().message);
  if (!root->is_array())
    return Damaged(options.path, "expected a JSON list of objects with \"conversations\"");
  std::vector<std::pair<std::string, std::string>> turns;
  for (const json::Value& entry : root->as_array()) {
    const json::Value* list = entry.Find("conversations");
    if (list == nullptr || !list->is_array() || list->as_array().size() < 2) continue;
    const json::Value* first = list->as_array()[0].Find("value");
    const json::Value* second = list->as_array()[1].Find("value");
    if (first == nullptr || second == nullptr || !first->is_string() || !second->is_string())
      continue;
    turns.emplace_back(first->as_string(), second->as_string());
  }
  if (turns.empty()) {
    return Damaged(options.path,
                   "no entry has \"conversations\" with two turns that have a \"value\"");
  }
  if (options.shuffle) PythonRandom(options.seed).Shuffle(turns);
  return turns;
}

// Returns the URL of an image: `name` itself if it is a URL, else a data: URL with the file's
// bytes.
Result<std::string> ImageUrlOf(const std::string& name) {
  for (const std::string_view scheme : {"data:", "http://", "https://", "file://"}) {
    if (name.starts_with(scheme)) return name;
  }
  ASSIGN_OR_RETURN(ImageFile image, ReadImageFile(name));
  return std::move(image.url);
}

// Reads the images of a line. `place`: where the line is, for errors.
Status AddImagesOf(const json::Value& line, const std::string& place, Prompt& prompt) {
  const json::Value* files = line.Find("image_files");
  if (files == nullptr || !files->is_array())
    return Damaged(place, "expected a list \"image_files\" of paths or URLs");
  for (const json::Value& file : files->as_array()) {
    if (!file.is_string()) return Damaged(place, "expected paths or URLs in \"image_files\"");
    const Result<std::string> url = ImageUrlOf(file.as_string());
    if (!url) return Damaged(place, fmt::format("{}: {}", file.as_string(), url.error().message));
    prompt.images.push_back(*url);
  }
  return {};
}

}  // namespace

Result<std::vector<std::string>> ReadLines(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadDataset(path, "sonnet"));
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) lines.push_back(text.substr(begin, end - begin) + "\n");
    begin = end + 1;
  }
  if (lines.empty()) return Damaged(path, "the file has no lines");
  return lines;
}

Result<Dataset> MakeShareGpt(const DatasetOptions& options, const PromptTokenizer& tokenizer) {
  ASSIGN_OR_RETURN(const auto turns, ReadConversations(options));
  // vLLM's limits: shorter or longer turns are not representative of conversations.
  constexpr int64_t kMinLen = 4, kMaxPrompt = 1024, kMaxTotal = 2048;
  Dataset data;
  for (const auto& [question, answer] : turns) {
    if (static_cast<int64_t>(data.prompts.size()) >= options.num_prompts) break;
    Prompt prompt;
    prompt.text = question;
    std::vector<int32_t> ids = tokenizer.Encode(question, true);
    prompt.prompt_tokens = static_cast<int64_t>(ids.size());
    prompt.output_tokens = options.output_len
                               ? *options.output_len
                               : static_cast<int64_t>(tokenizer.Encode(answer, true).size());
    if (prompt.prompt_tokens < kMinLen || prompt.prompt_tokens > kMaxPrompt ||
        (!options.output_len && prompt.output_tokens < kMinLen) ||
        prompt.prompt_tokens + prompt.output_tokens > kMaxTotal) {
      continue;
    }
    if (options.send_ids) prompt.ids = std::move(ids);
    data.prompts.push_back(std::move(prompt));
  }
  if (data.prompts.empty()) {
    return Damaged(options.path, fmt::format("no conversation has a prompt of {} to {} tokens and "
                                             "at most {} with its answer",
                                             kMinLen, kMaxPrompt, kMaxTotal));
  }
  Oversample(options, data);
  return data;
}

Result<Dataset> MakeCustom(const DatasetOptions& options, const PromptTokenizer* tokenizer) {
  ASSIGN_OR_RETURN(const std::string text, ReadDataset(options.path, "custom"));
  struct Line {
    int64_t number;
    json::Value value;
  };
  std::vector<Line> lines;
  const auto take = [&](json::Value value, int64_t number) -> Status {
    const json::Value* prompt = value.Find("prompt");
    if (prompt == nullptr || !prompt->is_string()) {
      return Fail(ErrorCode::kInvalidData, "expected an object with a text \"prompt\"");
    }
    lines.push_back({number, std::move(value)});
    return {};
  };
  if (const Status read = json::ForEachLine(text, options.path, {}, take); !read)
    return Fail(ErrorCode::kInvalidData, "--dataset-path " + read.error().message, "dataset-path");
  if (lines.empty()) return Damaged(options.path, "the file has no lines");
  if (options.shuffle) PythonRandom(options.seed).Shuffle(lines);

  Dataset data;
  for (const Line& line : lines) {
    if (static_cast<int64_t>(data.prompts.size()) >= options.num_prompts) break;
    Prompt prompt;
    prompt.text = line.value.Find("prompt")->as_string();
    if (options.output_len && *options.output_len != -1) {
      prompt.output_tokens = *options.output_len;
    } else {
      const json::Value* count = line.value.Find("output_tokens");
      if (count == nullptr || !count->is_integer() || count->as_integer() < 1) {
        return Damaged(fmt::format("{}:{}", options.path, line.number),
                       "expected a whole number \"output_tokens\" of at least 1; or give "
                       "--custom-output-len for all");
      }
      prompt.output_tokens = count->as_integer();
    }
    if (options.reads_images) {
      RETURN_IF_ERROR(
          AddImagesOf(line.value, fmt::format("{}:{}", options.path, line.number), prompt));
    }
    if (options.apply_chat_template) {
      ASSIGN_OR_RETURN(prompt.text, options.apply_chat_template(prompt.text));
    }
    if (tokenizer == nullptr) {
      prompt.prompt_tokens = 1;
    } else {
      std::vector<int32_t> ids = tokenizer->Encode(prompt.text, true);
      prompt.prompt_tokens = static_cast<int64_t>(ids.size());
      if (options.send_ids) prompt.ids = std::move(ids);
    }
    data.prompts.push_back(std::move(prompt));
  }
  Oversample(options, data);
  return data;
}

Result<Dataset> MakeRandomFromFile(const DatasetOptions& options,
                                   const PromptTokenizer& tokenizer) {
  ASSIGN_OR_RETURN(const auto turns, ReadConversations(options));
  NumpyGenerator random(options.seed);
  ExactText exact(tokenizer);
  const int64_t special =
      options.send_ids ? 0 : static_cast<int64_t>(tokenizer.Encode("", true).size());
  const auto range = [&](int64_t length, double ratio) {
    const auto low = static_cast<int64_t>(static_cast<double>(length) * (1 - ratio));
    const auto high = static_cast<int64_t>(static_cast<double>(length) * (1 + ratio));
    return random.Integers(std::max<int64_t>(1, low), std::max<int64_t>(1, high) + 1,
                           options.num_prompts);
  };
  const auto inputs =
      range(std::max<int64_t>(1, options.input_len - special), options.input_range_ratio);
  const auto outputs = range(options.output_len.value_or(128), options.output_range_ratio);
  Dataset data;
  for (size_t i = 0, turn = 0; i < inputs.size(); ++turn) {
    if (turn >= 16 * turns.size() && i == 0) return Damaged(options.path, "all prompts are empty");
    const std::vector<int32_t> source = tokenizer.Encode(turns[turn % turns.size()].first, false);
    if (source.empty()) continue;
    std::vector<int32_t> ids;
    for (int64_t k = 0; k < inputs[i]; ++k)
      ids.push_back(source[static_cast<size_t>(k) % source.size()]);
    Prompt prompt;
    if (!options.send_ids) {
      prompt.text = exact.Make(ids, inputs[i], [&](int64_t n) {
        return std::vector<int64_t>(static_cast<size_t>(n), source[0]);
      });
    }
    prompt.prompt_tokens = static_cast<int64_t>(ids.size());
    prompt.output_tokens = outputs[i++];
    if (options.send_ids) prompt.ids = std::move(ids);
    data.prompts.push_back(std::move(prompt));
  }
  return data;
}

}  // namespace sluice::bench

#include "cli/graph_settings.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/json.h"

namespace sluice::cli {
namespace {

constexpr std::string_view kCompilation = "compilation-config";
constexpr int64_t kMostSequences = 65536;

tl::unexpected<Error> Bad(std::string_view option, std::string_view key, std::string_view expected,
                          std::string_view found) {
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("--{}:{}{} expected {}, found {}", option, key.empty() ? "" : " ", key,
                          expected, found),
              std::string(option));
}

Result<std::vector<int64_t>> SizesOf(std::string_view option, std::string_view key,
                                     const std::vector<std::string>& words) {
  std::vector<int64_t> sizes;
  for (const std::string& word : words) {
    int64_t size = 0;
    const char* const end = word.data() + word.size();
    const auto [rest, code] = std::from_chars(word.data(), end, size);
    if (code != std::errc() || rest != end || size < 1 || size > kMostSequences)
      return Bad(option, key, fmt::format("whole numbers in [1, {}]", kMostSequences), word);
    sizes.push_back(size);
  }
  return sizes;
}

// Reads vLLM's cudagraph_mode. This program has no graphs of parts of a step (PIECEWISE); it uses
// graphs of whole steps instead.
Result<bool> RecordsIn(const json::Value& mode) {
  constexpr std::array<std::string_view, 4> kModes = {"PIECEWISE", "FULL", "FULL_DECODE_ONLY",
                                                      "FULL_AND_PIECEWISE"};
  if (mode.is_string()) {
    if (mode.as_string() == "NONE") return false;
    if (std::ranges::find(kModes, mode.as_string()) != kModes.end()) return true;
  }
  return Bad(kCompilation, "cudagraph_mode:",
             "one of NONE, PIECEWISE, FULL, FULL_DECODE_ONLY, FULL_AND_PIECEWISE",
             json::Write(mode));
}

// The graph settings in --compilation-config.
struct Compilation {
  std::optional<bool> records;
  std::vector<int64_t> sizes;
  std::optional<int64_t> largest;
};

Result<Compilation> CompilationOf(const options::Settings& settings) {
  Compilation result;
  const auto text = settings.Text(kCompilation);
  if (!text) return result;
  ASSIGN_OR_RETURN(const json::Value object, json::Parse(*text));
  const auto find = [&](std::string_view key) {
    const json::Value* value = object.Find(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  };
  for (const std::string_view key : {"use_cudagraph", "full_cuda_graph"}) {
    const json::Value* value = find(key);
    if (value == nullptr) continue;
    if (!value->is_bool())
      return Bad(kCompilation, fmt::format("{}:", key), "true or false", json::Write(*value));
    result.records = value->as_bool();
  }
  if (const json::Value* mode = find("cudagraph_mode")) {
    ASSIGN_OR_RETURN(result.records, RecordsIn(*mode));
  }
  for (const std::string_view key : {"cuda_graph_sizes", "cudagraph_capture_sizes"}) {
    const json::Value* sizes = find(key);
    if (sizes == nullptr) continue;
    if (!sizes->is_array())
      return Bad(kCompilation, fmt::format("{}:", key), "a list", json::Write(*sizes));
    std::vector<std::string> words;
    for (const json::Value& size : sizes->as_array()) words.push_back(json::Write(size));
    ASSIGN_OR_RETURN(result.sizes, SizesOf(kCompilation, fmt::format("{}:", key), words));
  }
  if (const json::Value* largest = find("max_cudagraph_capture_size")) {
    if (!largest->is_integer() || largest->as_integer() < 0)
      return Bad(kCompilation, "max_cudagraph_capture_size:", "a whole number of 0 or more",
                 json::Write(*largest));
    result.largest = largest->as_integer();
  }
  return result;
}

// Whether graphs are on by default under this program's name, on this kind of device.
bool HasGraphsByDefault(const options::Settings& settings) {
  if (settings.dialect() == options::Dialect::kSluice) return false;
  const std::string device = settings.Text("device").value_or("auto");
  return device == "auto" || device == "cuda" || device == "hip";
}

}  // namespace

Result<GraphConfig> GraphsOf(const options::Settings& settings, bool built_for_gpus) {
  ASSIGN_OR_RETURN(Compilation compilation, CompilationOf(settings));
  GraphConfig config;
  config.pads = settings.Flag("cudagraph-padding");
  config.sizes = std::move(compilation.sizes);
  config.largest = compilation.largest;
  for (const std::string_view option : {"cuda-graph-sizes", "cudagraph-capture-sizes"}) {
    if (!settings.Given(option)) continue;
    ASSIGN_OR_RETURN(config.sizes, SizesOf(option, "", settings.List(option)));
    if (option != "cuda-graph-sizes" || config.sizes.size() != 1) continue;
    config.largest = config.sizes.front();
    config.sizes.clear();
  }
  if (const auto largest = settings.Integer("max-cudagraph-capture-size"))
    config.largest = *largest;
  // In trtllm-serve, 0 means the default.
  if (settings.dialect() == options::Dialect::kTrtllm && config.largest == 0)
    config.largest = std::nullopt;
  const bool is_usual = built_for_gpus && HasGraphsByDefault(settings);
  const bool has_sizes = !config.sizes.empty() || config.largest;
  config.records = compilation.records.value_or(is_usual || has_sizes);
  config.is_default =
      is_usual && !compilation.records && !has_sizes && !settings.Given("cuda-graphs");
  if (settings.Given("cuda-graphs")) config.records = settings.Flag("cuda-graphs");
  if (settings.Flag("enforce-eager") || config.largest == 0) config.records = false;
  return config;
}

}  // namespace sluice::cli

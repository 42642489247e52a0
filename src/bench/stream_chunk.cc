#include "bench/stream_chunk.h"

#include <simdjson.h>

#include "base/check.h"

namespace sluice::bench {
namespace {

namespace dom = simdjson::dom;

constexpr size_t kMaxDepth = 64;

// Reused for all events, so that reading one allocates nothing.
dom::parser& Parser() {
  thread_local dom::parser parser = [] {
    dom::parser made;
    CHECK(made.allocate(4096, kMaxDepth) == simdjson::SUCCESS);
    return made;
  }();
  return parser;
}

// Returns the text of a choice: "text" in a completion, "content" in a chat's "delta" or "message".
std::string_view TextOf(const dom::element& choice) {
  std::string_view text;
  if (choice["text"].get(text) == simdjson::SUCCESS) return text;
  for (const char* part : {"delta", "message"}) {
    if (choice[part]["content"].get(text) == simdjson::SUCCESS) return text;
  }
  return {};
}

std::optional<int64_t> CountOf(const dom::object& usage, const char* name) {
  int64_t count = 0;
  if (usage[name].get(count) != simdjson::SUCCESS) return std::nullopt;
  return count;
}

}  // namespace

bool ScanChunk(std::string_view json, StreamChunk& chunk) {
  chunk = {};
  dom::object event;
  if (Parser().parse(json.data(), json.size()).get(event) != simdjson::SUCCESS) return false;
  for (const auto& [key, value] : event) {
    if (key == "choices" && value.is_array()) {
      const dom::array choices = value.get_array().value_unsafe();
      chunk.has_choices = choices.begin() != choices.end();
      if (chunk.has_choices) chunk.text = TextOf(*choices.begin());
    } else if (key == "usage" && value.is_object()) {
      const dom::object usage = value.get_object().value_unsafe();
      chunk.has_usage = true;
      chunk.prompt_tokens = CountOf(usage, "prompt_tokens");
      chunk.completion_tokens = CountOf(usage, "completion_tokens");
    } else if (key == "error") {
      chunk.has_error = !value.is_null();
    }
  }
  return true;
}

}  // namespace sluice::bench

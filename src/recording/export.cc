#include "recording/export.h"

#include <algorithm>
#include <map>

#include "base/json.h"
#include "recording/redact.h"

namespace sluice::recording {
namespace {

// Numbers blocks in the order of their first occurrence.
class BlockNumbers {
 public:
  // Returns the numbers of a prompt's blocks. `keys`: for each block of kHashedTokens tokens, a
  // hash of the block and all blocks before it.
  json::Value::Array Of(const std::vector<uint64_t>& keys, int64_t num_tokens) {
    constexpr int64_t kStep = kMooncakeBlock / kHashedTokens;
    const int64_t count = (num_tokens + kMooncakeBlock - 1) / kMooncakeBlock;
    json::Value::Array ids;
    for (int64_t i = 0; i < count; ++i) {
      // A partial block gets the key of its last whole hashed part. Its length also identifies it,
      // so it equals only partial blocks of the same length.
      const int64_t last = std::min<int64_t>((i + 1) * kStep, std::ssize(keys)) - 1;
      const bool is_whole = (i + 1) * kMooncakeBlock <= num_tokens;
      const uint64_t key = last < 0 ? 0 : keys[static_cast<size_t>(last)];
      const int64_t length = is_whole ? kMooncakeBlock : num_tokens - i * kMooncakeBlock;
      const auto place =
          numbers_.try_emplace({key, length}, static_cast<int64_t>(numbers_.size())).first;
      ids.emplace_back(place->second);
    }
    return ids;
  }

 private:
  std::map<std::pair<uint64_t, int64_t>, int64_t> numbers_;
};

std::string Trace(const std::vector<RecordedRequest>& requests, const TextOfTokens& text_of) {
  BlockNumbers numbers;
  const HashKey key = RandomHashKey();
  std::string trace;
  const int64_t first = requests.empty() ? 0 : requests.front().unix_us;
  for (const RecordedRequest& request : requests) {
    const AddEvent& add = request.add;
    json::Value line{json::Value::Object{}};
    line.Set("timestamp", (request.unix_us - first) / 1000);
    if (text_of && !add.prompt.empty()) {
      line.Set("text_input", text_of(add.prompt));
    } else {
      line.Set("input_length", add.num_prompt_tokens);
      line.Set("hash_ids",
               numbers.Of(add.prompt.empty() ? add.block_hashes : HashBlocks(key, add.prompt),
                          add.num_prompt_tokens));
    }
    // A trace has one answer per request; the longest sequence is used.
    int64_t length = 0;
    for (const auto& output : request.outputs) length = std::max(length, std::ssize(output));
    line.Set("output_length", length);
    json::Append(trace, line);
    trace.push_back('\n');
  }
  return trace;
}

}  // namespace

std::string MooncakeTrace(const std::vector<RecordedRequest>& requests) {
  return Trace(requests, {});
}

std::string AiperfTrace(const std::vector<RecordedRequest>& requests, const TextOfTokens& text_of) {
  return Trace(requests, text_of);
}

}  // namespace sluice::recording

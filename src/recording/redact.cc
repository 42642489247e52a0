#include "recording/redact.h"

#include <openssl/rand.h>
#include <openssl/sha.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "recording/events.h"

namespace sluice::recording {

HashKey RandomHashKey() {
  HashKey key;
  CHECK_EQ(RAND_bytes(key.data(), static_cast<int>(key.size())), 1);
  return key;
}

std::vector<uint64_t> HashBlocks(const HashKey& key, std::span<const int32_t> tokens) {
  std::vector<uint64_t> hashes;
  hashes.reserve(tokens.size() / kHashedTokens);
  // Input of the hash: the key, the hash of the preceding blocks, and the block's tokens.
  std::array<unsigned char, sizeof(HashKey) + SHA256_DIGEST_LENGTH + 4 * kHashedTokens> input{};
  std::memcpy(input.data(), key.data(), key.size());
  unsigned char* const chain = input.data() + key.size();
  for (size_t first = 0; first + kHashedTokens <= tokens.size(); first += kHashedTokens) {
    std::memcpy(chain + SHA256_DIGEST_LENGTH, tokens.data() + first, 4 * kHashedTokens);
    std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
    SHA256(input.data(), input.size(), digest.data());
    std::memcpy(chain, digest.data(), digest.size());
    uint64_t hash = 0;
    std::memcpy(&hash, digest.data(), sizeof hash);
    hashes.push_back(hash);
  }
  return hashes;
}

namespace {

void RedactAdd(const HashKey& key, AddEvent& add) {
  add.block_hashes = HashBlocks(key, add.prompt);
  add.prompt.clear();
  add.adapter.clear();
  add.id.clear();
  SamplingParams& sampling = add.sampling;
  sampling.logit_bias = {};
  sampling.allowed_token_ids.reset();
  sampling.bad_words = {};
  sampling.stop_token_ids = {};
  sampling.logprob_token_ids = {};
  sampling.seed.reset();
  add.seed = 0;
}

}  // namespace

void AppendRedacted(const HashKey& key, std::string_view events, std::string& out) {
  std::string_view rest = events;
  EventKind kind{};
  std::string_view fields;
  while (true) {
    const std::string_view before = rest;
    if (!TakeEvent(rest, kind, fields)) return;
    if (kind == EventKind::kAdd) {
      auto add = ReadEvent<AddEvent>(fields);
      CHECK(add, "this program wrote it");
      RedactAdd(key, *add);
      AppendEvent(out, *add);
    } else if (kind == EventKind::kSampled) {
      auto sampled = ReadEvent<SampledEvent>(fields);
      CHECK(sampled, "this program wrote it");
      for (RowRecord& row : sampled->rows) row.token = 0;
      AppendEvent(out, *sampled);
    } else if (kind == EventKind::kPlan) {
      auto plan = ReadEvent<PlanEvent>(fields);
      CHECK(plan, "this program wrote it");
      for (auto& [name, tokens] : plan->proposed) std::ranges::fill(tokens, 0);
      AppendEvent(out, *plan);
    } else if (kind == EventKind::kArrival) {
      auto arrival = ReadEvent<ArrivalEvent>(fields);
      CHECK(arrival, "this program wrote it");
      arrival->body.clear();
      AppendEvent(out, *arrival);
    } else {
      out += before.substr(0, before.size() - rest.size());
    }
  }
}

}  // namespace sluice::recording

// Receipts: signed statements of what an answer was computed from (docs/receipts.md).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "receipt/signing_key.h"
#include "sampler/sampling_params.h"

namespace sluice {

// One prompt of a request.
struct ReceiptPrompt {
  int64_t num_tokens = 0;
  std::string sha256;              // of its token ids
  std::vector<int32_t> token_ids;  // only with --receipts-with-tokens
  SamplingParams sampling;         // with a seed
};

// One answer to a prompt.
struct ReceiptChoice {
  int32_t prompt = 0;    // index
  int32_t sequence = 0;  // of the prompt's sequences; its seed is the prompt's seed + sequence
  std::string finish_reason;
  int64_t num_tokens = 0;
  std::string sha256;              // of its token ids, with the one that ended it
  std::vector<int32_t> token_ids;  // as above
};

struct Receipt {
  std::string id;     // of the answer
  std::string model;  // the name that was served
  int64_t created = 0;
  std::string program;  // "sluice 0.1.0"
  std::string weights;  // WeightsDigest()
  // What else the bits depend on: strings by name.
  json::Value profile{json::Value::Object{}};
  // What a verifier cannot repeat: "constraint", "adapter", "images", "embeddings".
  std::vector<std::string> also;
  // Token ids that end an answer, besides those of the model.
  std::vector<int32_t> end_tokens;
  int64_t num_sequences = 1;  // per prompt
  std::vector<ReceiptPrompt> prompts;
  std::vector<ReceiptChoice> choices;
};

// 64 hexadecimal digits: the SHA-256 of the ids as 32-bit integers, little endian.
std::string TokensSha256(std::span<const int32_t> ids);

// The receipt as a JSON object with the public key and a signature of CanonicalText of the rest.
json::Value SignedReceipt(const Receipt& receipt, const SigningKey& key);

// A receipt that was read, and its signature.
struct ReadReceipt {
  Receipt receipt;
  std::string public_key;  // as in the receipt
  std::string signature;   // bytes
  std::string text;        // that is signed
};
// Reads untrusted JSON: a receipt, or an object with a member "receipt". kInvalidData names the
// member that is missing or wrong.
Result<ReadReceipt> ParseReceipt(const json::Value& value);

// The same text for all spellings of a JSON value: members sorted by name, no spaces, integral
// numbers without a fraction.
std::string CanonicalText(const json::Value& value);

}  // namespace sluice

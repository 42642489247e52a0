// Receipts: signed records of the inputs from which an answer was computed (docs/receipts.md).
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
  std::string sha256;              // hash of its token ids
  std::vector<int32_t> token_ids;  // only filled with --receipts-with-tokens
  SamplingParams sampling;         // always includes a seed
};

// One answer to a prompt.
struct ReceiptChoice {
  int32_t prompt = 0;    // index of the prompt
  int32_t sequence = 0;  // index among the prompt's sequences; its seed is the prompt's seed +
                         // sequence
  std::string finish_reason;
  int64_t num_tokens = 0;
  std::string sha256;              // hash of its token ids, including the one that ended it
  std::vector<int32_t> token_ids;  // only filled with --receipts-with-tokens
};

struct Receipt {
  std::string id;     // id of the answer
  std::string model;  // the name under which the model was served
  int64_t created = 0;
  std::string program;  // for example "sluice 0.1.0"
  std::string weights;  // result of WeightsDigest()
  // Other facts on which the bits of the result depend; an object of strings.
  json::Value profile{json::Value::Object{}};
  // Features of the request that a verifier cannot reproduce: "constraint", "adapter", "images",
  // "embeddings".
  std::vector<std::string> also;
  // Token ids that end an answer, in addition to the model's own.
  std::vector<int32_t> end_tokens;
  int64_t num_sequences = 1;  // number of sequences for each prompt
  std::vector<ReceiptPrompt> prompts;
  std::vector<ReceiptChoice> choices;
};

// Returns 64 hexadecimal digits: the SHA-256 of the ids as little-endian 32-bit integers.
std::string TokensSha256(std::span<const int32_t> ids);

// Returns the receipt as a JSON object with the public key, and a signature over CanonicalText of
// the rest.
json::Value SignedReceipt(const Receipt& receipt, const SigningKey& key);

// A receipt that was parsed, and its signature.
struct ReadReceipt {
  Receipt receipt;
  std::string public_key;  // the key that the receipt states
  std::string signature;   // raw bytes
  std::string text;        // the text that is signed
};
// Parses untrusted JSON: a receipt, or an object with a member "receipt". kInvalidData names a
// missing or invalid member.
Result<ReadReceipt> ParseReceipt(const json::Value& value);

// Returns the same text for all spellings of a JSON value: members sorted by name, no spaces,
// integral numbers without a fraction.
std::string CanonicalText(const json::Value& value);

}  // namespace sluice

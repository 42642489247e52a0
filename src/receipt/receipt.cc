#include "receipt/receipt.h"

#include <openssl/sha.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/base64.h"
#include "base/hex.h"
#include "base/json_fields.h"

namespace sluice {
namespace {

constexpr int64_t kReceiptVersion = 1;
constexpr int64_t kMostTokens = int64_t{1} << 31;

// The parser limits the nesting depth of a value, and with it the depth of this recursion.
void AppendCanonical(std::string& out, const json::Value& value) {
  if (value.is_object()) {
    std::vector<const json::Value::Member*> members;
    for (const auto& member : value.as_object()) members.push_back(&member);
    std::ranges::sort(members, {},
                      [](const auto* member) { return std::string_view(member->first); });
    out.push_back('{');
    for (const json::Value::Member* member : members) {
      if (out.back() != '{') out.push_back(',');
      json::AppendString(out, member->first);
      out.push_back(':');
      AppendCanonical(out, member->second);
    }
    out.push_back('}');
  } else if (value.is_array()) {
    out.push_back('[');
    for (const json::Value& element : value.as_array()) {
      if (out.back() != '[') out.push_back(',');
      AppendCanonical(out, element);
    }
    out.push_back(']');
  } else if (value.is_double() && std::abs(value.as_double()) < 1e15 &&
             value.as_double() == std::trunc(value.as_double())) {
    out += std::to_string(static_cast<int64_t>(value.as_double()));
  } else {
    json::Append(out, value);
  }
}

template <typename List>
json::Value ListOf(const List& ids) {
  json::Value::Array list;
  for (const auto id : ids) list.emplace_back(static_cast<int64_t>(id));
  return list;
}

std::string_view ModeName(LogprobsMode mode) {
  switch (mode) {
    case LogprobsMode::kRawLogprobs: return "raw_logprobs";
    case LogprobsMode::kProcessedLogprobs: return "processed_logprobs";
    case LogprobsMode::kRawLogits: return "raw_logits";
    case LogprobsMode::kProcessedLogits: return "processed_logits";
  }
  return "";
}

// Returns the parameters that determine which tokens are sampled. The seed is a string, because
// JSON readers keep only 53 bits of a number.
json::Value SamplingJson(const SamplingParams& params) {
  json::Value value{json::Value::Object{}};
  value.Set("temperature", params.temperature);
  value.Set("top_p", params.top_p);
  value.Set("top_k", params.top_k);
  value.Set("min_p", params.min_p);
  value.Set("presence_penalty", params.presence_penalty);
  value.Set("frequency_penalty", params.frequency_penalty);
  value.Set("repetition_penalty", params.repetition_penalty);
  value.Set("seed", std::to_string(params.seed.value_or(0)));
  value.Set("max_tokens", params.max_tokens);
  value.Set("min_tokens", params.min_tokens);
  value.Set("ignore_eos", params.ignore_eos);
  if (!params.logit_bias.empty()) {
    json::Value::Array biases;
    for (const auto& [token, bias] : params.logit_bias) {
      json::Value::Array pair;
      pair.emplace_back(static_cast<int64_t>(token));
      pair.emplace_back(static_cast<double>(bias));
      biases.emplace_back(std::move(pair));
    }
    value.Set("logit_bias", std::move(biases));
  }
  if (params.allowed_token_ids) value.Set("allowed_token_ids", ListOf(*params.allowed_token_ids));
  if (!params.bad_words.empty()) {
    json::Value::Array words;
    for (const auto& word : params.bad_words) words.push_back(ListOf(word));
    value.Set("bad_words", std::move(words));
  }
  if (!params.stop_token_ids.empty()) value.Set("stop_token_ids", ListOf(params.stop_token_ids));
  value.Set("logprobs_mode", ModeName(params.logprobs_mode));
  return value;
}

json::Value Body(const Receipt& receipt) {
  json::Value value{json::Value::Object{}};
  value.Set("version", kReceiptVersion);
  value.Set("id", receipt.id);
  value.Set("model", receipt.model);
  value.Set("created", receipt.created);
  value.Set("program", receipt.program);
  value.Set("weights", receipt.weights);
  value.Set("profile", receipt.profile);
  if (!receipt.also.empty()) {
    json::Value::Array also;
    for (const std::string& name : receipt.also) also.emplace_back(name);
    value.Set("also", std::move(also));
  }
  value.Set("end_tokens", ListOf(receipt.end_tokens));
  value.Set("n", receipt.num_sequences);
  json::Value::Array prompts;
  for (const ReceiptPrompt& prompt : receipt.prompts) {
    json::Value one{json::Value::Object{}};
    one.Set("num_tokens", prompt.num_tokens);
    one.Set("sha256", prompt.sha256);
    if (!prompt.token_ids.empty()) one.Set("token_ids", ListOf(prompt.token_ids));
    one.Set("sampling", SamplingJson(prompt.sampling));
    prompts.push_back(std::move(one));
  }
  value.Set("prompts", std::move(prompts));
  json::Value::Array choices;
  for (const ReceiptChoice& choice : receipt.choices) {
    json::Value one{json::Value::Object{}};
    one.Set("prompt", static_cast<int64_t>(choice.prompt));
    one.Set("sequence", static_cast<int64_t>(choice.sequence));
    one.Set("finish_reason", choice.finish_reason);
    one.Set("num_tokens", choice.num_tokens);
    one.Set("sha256", choice.sha256);
    if (!choice.token_ids.empty()) one.Set("token_ids", ListOf(choice.token_ids));
    choices.push_back(std::move(one));
  }
  value.Set("choices", std::move(choices));
  return value;
}

tl::unexpected<Error> Wrong(std::string_view member, std::string_view expected) {
  return Fail(ErrorCode::kInvalidData, fmt::format("receipt.{}: expected {}", member, expected),
              std::string(member));
}

Result<std::string> RequiredText(const JsonFields& fields, std::string_view name) {
  ASSIGN_OR_RETURN(const auto text, fields.String(name));
  if (!text) return fields.Missing(name);
  return *text;
}

Status ReadIds(const JsonFields& fields, std::string_view name, std::vector<int32_t>& ids) {
  ASSIGN_OR_RETURN(const auto list, fields.Integers(name, 0, kMostTokens - 1));
  if (list) {
    for (const int64_t id : *list) ids.push_back(static_cast<int32_t>(id));
  }
  return {};
}

bool IsTokenId(const json::Value& value) {
  return value.is_integer() && value.as_integer() >= 0 && value.as_integer() < kMostTokens;
}

Status ReadLists(const JsonFields& fields, SamplingParams& params) {
  std::vector<int32_t> ids;
  RETURN_IF_ERROR(ReadIds(fields, "stop_token_ids", ids));
  if (!ids.empty()) params.stop_token_ids = std::exchange(ids, {});
  if (fields.Given("allowed_token_ids") != nullptr) {
    RETURN_IF_ERROR(ReadIds(fields, "allowed_token_ids", ids));
    params.allowed_token_ids = SharedList<int32_t>(std::exchange(ids, {}));
  }
  ASSIGN_OR_RETURN(const auto* biases, fields.Array("logit_bias"));
  std::vector<std::pair<int32_t, float>> bias_list;
  for (const json::Value& pair : biases == nullptr ? json::Value::Array() : *biases) {
    if (!pair.is_array() || pair.as_array().size() != 2 || !IsTokenId(pair.as_array()[0]) ||
        !pair.as_array()[1].is_number())
      return Wrong("sampling.logit_bias", "pairs of a token id and a number");
    bias_list.emplace_back(static_cast<int32_t>(pair.as_array()[0].as_integer()),
                           static_cast<float>(pair.as_array()[1].as_double()));
  }
  if (!bias_list.empty()) params.logit_bias = std::move(bias_list);
  ASSIGN_OR_RETURN(const auto* words, fields.Array("bad_words"));
  std::vector<std::vector<int32_t>> word_list;
  for (const json::Value& word : words == nullptr ? json::Value::Array() : *words) {
    if (!word.is_array()) return Wrong("sampling.bad_words", "lists of token ids");
    std::vector<int32_t>& list = word_list.emplace_back();
    for (const json::Value& id : word.as_array()) {
      if (!IsTokenId(id)) return Wrong("sampling.bad_words", "lists of token ids");
      list.push_back(static_cast<int32_t>(id.as_integer()));
    }
  }
  if (!word_list.empty()) params.bad_words = std::move(word_list);
  return {};
}

Result<SamplingParams> ReadSampling(const json::Value& value) {
  const JsonFields fields(value, "sampling.");
  SamplingParams params;
  const auto number = [&](const char* name, double& field) -> Status {
    ASSIGN_OR_RETURN(const auto given, fields.Number(name, -1e9, 1e9));
    if (!given) return fields.Missing(name);
    field = *given;
    return {};
  };
  RETURN_IF_ERROR(number("temperature", params.temperature));
  RETURN_IF_ERROR(number("top_p", params.top_p));
  RETURN_IF_ERROR(number("min_p", params.min_p));
  RETURN_IF_ERROR(number("presence_penalty", params.presence_penalty));
  RETURN_IF_ERROR(number("frequency_penalty", params.frequency_penalty));
  RETURN_IF_ERROR(number("repetition_penalty", params.repetition_penalty));
  ASSIGN_OR_RETURN(params.top_k, fields.RequiredInteger("top_k", -1, kMostTokens));
  ASSIGN_OR_RETURN(params.max_tokens, fields.RequiredInteger("max_tokens", 1, kMostTokens));
  ASSIGN_OR_RETURN(params.min_tokens, fields.RequiredInteger("min_tokens", 0, kMostTokens));
  ASSIGN_OR_RETURN(const auto ignore_eos, fields.Bool("ignore_eos"));
  params.ignore_eos = ignore_eos.value_or(false);
  ASSIGN_OR_RETURN(const std::string seed, RequiredText(fields, "seed"));
  int64_t number_of_seed = 0;
  const auto [end, error] = std::from_chars(seed.data(), seed.data() + seed.size(), number_of_seed);
  if (error != std::errc() || end != seed.data() + seed.size())
    return Wrong("sampling.seed", "an integer as a string");
  params.seed = number_of_seed;
  RETURN_IF_ERROR(ReadLists(fields, params));
  return params;
}

Result<ReceiptPrompt> ReadPrompt(const json::Value& value) {
  if (!value.is_object()) return Wrong("prompts", "objects");
  const JsonFields fields(value, "prompts.");
  ReceiptPrompt prompt;
  ASSIGN_OR_RETURN(prompt.num_tokens, fields.RequiredInteger("num_tokens", 1, kMostTokens));
  ASSIGN_OR_RETURN(prompt.sha256, RequiredText(fields, "sha256"));
  RETURN_IF_ERROR(ReadIds(fields, "token_ids", prompt.token_ids));
  ASSIGN_OR_RETURN(const json::Value* sampling, fields.Object("sampling"));
  if (sampling == nullptr) return fields.Missing("sampling");
  ASSIGN_OR_RETURN(prompt.sampling, ReadSampling(*sampling));
  return prompt;
}

Result<ReceiptChoice> ReadChoice(const json::Value& value, const Receipt& receipt) {
  if (!value.is_object()) return Wrong("choices", "objects");
  const JsonFields fields(value, "choices.");
  ReceiptChoice choice;
  ASSIGN_OR_RETURN(const int64_t prompt,
                   fields.RequiredInteger("prompt", 0, std::ssize(receipt.prompts) - 1));
  ASSIGN_OR_RETURN(const int64_t sequence,
                   fields.RequiredInteger("sequence", 0, receipt.num_sequences - 1));
  choice.prompt = static_cast<int32_t>(prompt);
  choice.sequence = static_cast<int32_t>(sequence);
  ASSIGN_OR_RETURN(choice.finish_reason, RequiredText(fields, "finish_reason"));
  ASSIGN_OR_RETURN(choice.num_tokens, fields.RequiredInteger("num_tokens", 0, kMostTokens));
  ASSIGN_OR_RETURN(choice.sha256, RequiredText(fields, "sha256"));
  RETURN_IF_ERROR(ReadIds(fields, "token_ids", choice.token_ids));
  return choice;
}

}  // namespace

std::string TokensSha256(std::span<const int32_t> ids) {
  std::string bytes;
  bytes.reserve(4 * ids.size());
  for (const int32_t id : ids) {
    for (int i = 0; i < 4; ++i)
      bytes.push_back(static_cast<char>(static_cast<uint32_t>(id) >> (8 * i)));
  }
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest);
  return HexDigits(digest);
}

std::string CanonicalText(const json::Value& value) {
  std::string text;
  AppendCanonical(text, value);
  return text;
}

json::Value SignedReceipt(const Receipt& receipt, const SigningKey& key) {
  json::Value value = Body(receipt);
  value.Set("public_key", "ed25519:" + key.public_hex());
  value.Set("signature", EncodeBase64(key.Sign(CanonicalText(value))));
  return value;
}

Result<ReadReceipt> ParseReceipt(const json::Value& whole) {
  const json::Value* given = whole.is_object() ? whole.Find("receipt") : nullptr;
  json::Value value = given != nullptr ? *given : whole;
  if (!value.is_object())
    return Fail(ErrorCode::kInvalidData,
                "expected a receipt, or an answer with the member \"receipt\"");
  ReadReceipt read;
  {
    const JsonFields fields(value, "receipt.");
    ASSIGN_OR_RETURN(const int64_t version, fields.RequiredInteger("version", 0, int64_t{1} << 40));
    if (version != kReceiptVersion)
      return Wrong("version", fmt::format("{}, found {}", kReceiptVersion, version));
    ASSIGN_OR_RETURN(const std::string signature, RequiredText(fields, "signature"));
    ASSIGN_OR_RETURN(read.signature, DecodeBase64(signature));
    ASSIGN_OR_RETURN(const std::string key, RequiredText(fields, "public_key"));
    constexpr std::string_view kScheme = "ed25519:";
    if (!key.starts_with(kScheme)) return Wrong("public_key", "ed25519: and a key");
    read.public_key = key.substr(kScheme.size());
  }
  std::erase_if(value.as_object(), [](const auto& member) { return member.first == "signature"; });
  read.text = CanonicalText(value);

  const JsonFields fields(value, "receipt.");
  Receipt& receipt = read.receipt;
  ASSIGN_OR_RETURN(receipt.id, RequiredText(fields, "id"));
  ASSIGN_OR_RETURN(receipt.model, RequiredText(fields, "model"));
  ASSIGN_OR_RETURN(receipt.program, RequiredText(fields, "program"));
  ASSIGN_OR_RETURN(receipt.weights, RequiredText(fields, "weights"));
  ASSIGN_OR_RETURN(receipt.created, fields.RequiredInteger("created", 0, int64_t{1} << 40));
  ASSIGN_OR_RETURN(receipt.num_sequences, fields.RequiredInteger("n", 1, 16384));
  ASSIGN_OR_RETURN(const json::Value* profile, fields.Object("profile"));
  if (profile == nullptr) return fields.Missing("profile");
  receipt.profile = *profile;
  ASSIGN_OR_RETURN(const auto also, fields.Strings("also"));
  if (also) receipt.also = *also;
  RETURN_IF_ERROR(ReadIds(fields, "end_tokens", receipt.end_tokens));
  ASSIGN_OR_RETURN(const auto* prompts, fields.Array("prompts"));
  ASSIGN_OR_RETURN(const auto* choices, fields.Array("choices"));
  if (prompts == nullptr || prompts->empty()) return Wrong("prompts", "at least one");
  if (choices == nullptr || choices->empty()) return Wrong("choices", "at least one");
  for (const json::Value& prompt : *prompts) {
    ASSIGN_OR_RETURN(receipt.prompts.emplace_back(), ReadPrompt(prompt));
  }
  for (const json::Value& choice : *choices) {
    ASSIGN_OR_RETURN(receipt.choices.emplace_back(), ReadChoice(choice, receipt));
  }
  return read;
}

}  // namespace sluice

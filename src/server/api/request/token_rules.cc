#include "server/api/request/token_rules.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <unordered_map>

#include <fmt/format.h>

#include "server/api/common/number_text.h"
#include "server/api/request/prompt.h"

namespace sluice {
namespace {

// Formats the first elements of a list for a message.
template <typename T>
std::string Shown(const std::vector<T>& list) {
  constexpr size_t kMost = 20;
  json::Value::Array shown(list.begin(), list.begin() + std::min(list.size(), kMost));
  return json::Write(json::Value(std::move(shown)));
}

ApiStatus CheckIds(const std::vector<int64_t>& ids, std::string_view name, int64_t vocab_size) {
  std::vector<int64_t> outside;
  std::ranges::copy_if(ids, std::back_inserter(outside),
                       [&](int64_t id) { return id < 0 || id >= vocab_size; });
  if (outside.empty()) return {};
  const std::string list = Shown(outside);
  return BadParameter(
      fmt::format("token_id(s) {} in {} contain out-of-vocab token ids. Vocabulary size: {}", list,
                  name, vocab_size),
      name, list);
}

// Returns `ids` sorted and without duplicates, so that a list is never longer than the vocabulary.
// REQUIRES: all ids are in the vocabulary.
std::vector<int32_t> DistinctIds(const std::vector<int64_t>& ids) {
  std::vector<int32_t> distinct(ids.begin(), ids.end());
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  distinct.shrink_to_fit();
  return distinct;
}

ApiStatus ResolveLogitBias(const SamplingFields& fields, const ModelContext& model,
                           SamplingParams& params) {
  std::vector<std::string> unreadable;
  std::vector<int64_t> ids;
  for (const auto& [key, bias] : fields.logit_bias) {
    if (const std::optional<int64_t> id = ParseInteger(key)) {
      ids.push_back(*id);
    } else {
      unreadable.push_back(key);
    }
    if (std::isnan(bias))
      return BadParameter("logit_bias must hold numbers, got nan.", "logit_bias");
  }
  if (!unreadable.empty()) {
    const std::string list = Shown(unreadable);
    return BadParameter(
        fmt::format("logit_bias contains key(s) that are not integer token ids: {}", list),
        "logit_bias", list);
  }
  API_RETURN_IF_ERROR(CheckIds(ids, "logit_bias", model.vocab_size));
  // Several keys may denote one id ("7", "07"). The last key takes precedence.
  std::vector<std::pair<int32_t, float>> biases;
  std::unordered_map<int32_t, size_t> places;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<int32_t>(ids[i]);
    const auto bias = static_cast<float>(std::clamp(fields.logit_bias[i].second, -100.0, 100.0));
    const auto [place, added] = places.emplace(id, biases.size());
    if (added) {
      biases.emplace_back(id, bias);
    } else {
      biases[place->second].second = bias;
    }
  }
  params.logit_bias = std::move(biases);
  return {};
}

// A word is forbidden both at the start of a text and after a blank, because its tokens differ.
ApiStatus ResolveBadWords(const SamplingFields& fields, const ModelContext& model,
                          SamplingParams& params) {
  if (fields.bad_words.size() > static_cast<size_t>(model.config.max_bad_words)) {
    return BadParameter(fmt::format("bad_words has {} words, at most {} are allowed",
                                    fields.bad_words.size(), model.config.max_bad_words),
                        "bad_words");
  }
  std::vector<std::vector<int32_t>> words;
  for (const std::string& word : fields.bad_words) {
    if (word.empty()) {
      return BadRequest("bad_words cannot contain an empty string. Got bad_words=" +
                        Shown(fields.bad_words));
    }
    const size_t start = word.find_first_not_of(" \t\n\r");
    const std::string text = start == std::string::npos ? "" : word.substr(start);
    API_ASSIGN_OR_RETURN(std::vector<int32_t> plain, EncodeText(model, text, false));
    API_ASSIGN_OR_RETURN(std::vector<int32_t> spaced, EncodeText(model, " " + text, false));
    const bool differs = !plain.empty() && spaced.size() == plain.size() && spaced[0] != plain[0];
    if (!plain.empty()) words.push_back(std::move(plain));
    if (differs) words.push_back(std::move(spaced));
  }
  params.bad_words = std::move(words);
  return {};
}

ApiStatus ResolveAllowedIds(const SamplingFields& fields, const ModelContext& model,
                            SamplingParams& params) {
  if (!fields.allowed_token_ids) return {};
  const std::vector<int64_t>& allowed = *fields.allowed_token_ids;
  if (allowed.empty())
    return BadParameter("allowed_token_ids is not None and empty!", "allowed_token_ids", "[]");
  if (std::ranges::any_of(allowed, [&](int64_t id) { return id < 0 || id >= model.vocab_size; })) {
    return BadParameter("allowed_token_ids contains out-of-vocab token id!", "allowed_token_ids",
                        Shown(allowed));
  }
  params.allowed_token_ids = DistinctIds(allowed);
  return {};
}

// Keeps the order of the ids and removes duplicates. --max-logprobs limits only the number of most
// likely tokens, not the number of listed tokens.
ApiStatus ResolveLogprobTokens(const SamplingFields& fields, const ModelContext& model,
                               SamplingParams& params) {
  constexpr std::string_view kField = "logprob_token_ids";
  if (!fields.logprob_token_ids || !params.logprobs) return {};
  const std::vector<int64_t>& ids = *fields.logprob_token_ids;
  if (ids.size() > kMostLogprobTokens) {
    return BadParameter(fmt::format("logprob_token_ids contains {} ids, at most {} are allowed",
                                    ids.size(), kMostLogprobTokens),
                        kField, std::to_string(ids.size()));
  }
  API_RETURN_IF_ERROR(CheckIds(ids, kField, model.vocab_size));
  std::vector<int32_t> distinct;
  for (const int64_t id : ids) {
    if (std::ranges::find(distinct, id) == distinct.end())
      distinct.push_back(static_cast<int32_t>(id));
  }
  params.logprobs = static_cast<int32_t>(distinct.size());
  params.logprob_token_ids = std::move(distinct);
  return {};
}

}  // namespace

ApiStatus ResolveTokenRules(const SamplingFields& fields, const ModelContext& model,
                            SamplingParams& params) {
  API_RETURN_IF_ERROR(CheckIds(fields.stop_token_ids, "stop_token_ids", model.vocab_size));
  params.stop_token_ids = DistinctIds(fields.stop_token_ids);
  API_RETURN_IF_ERROR(ResolveLogitBias(fields, model, params));
  API_RETURN_IF_ERROR(ResolveAllowedIds(fields, model, params));
  API_RETURN_IF_ERROR(ResolveLogprobTokens(fields, model, params));
  return ResolveBadWords(fields, model, params);
}

}  // namespace sluice

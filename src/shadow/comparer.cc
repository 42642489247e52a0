#include "shadow/comparer.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace sluice::shadow {
namespace {

constexpr int32_t kGreedyTop = 16;
constexpr int32_t kDrawnTop = 64;
// The upstream is asked for the prompts of this many requests. After that, it is asked only if an
// answer differs.
constexpr int64_t kFirstPrompts = 20;
constexpr size_t kShownBytes = 400;

// Returns the end of a text, cut at the beginning of a character.
std::string EndOf(const std::string& text) {
  if (text.size() <= kShownBytes) return text;
  size_t from = text.size() - kShownBytes;
  while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0U) == 0x80U) ++from;
  return "..." + text.substr(from);
}

std::string BeginningOf(const std::string& text) {
  if (text.size() <= kShownBytes) return text;
  size_t end = kShownBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return text.substr(0, end) + "...";
}

// Describes the first difference between two texts. Quotes some text from that point on, for both.
std::string FirstDifference(const std::string& upstream, const std::string& ours) {
  size_t at = 0;
  while (at < upstream.size() && at < ours.size() && upstream[at] == ours[at]) ++at;
  while (at > 0 && at < upstream.size() &&
         (static_cast<unsigned char>(upstream[at]) & 0xC0U) == 0x80U)
    --at;
  const auto piece = [&](const std::string& text) {
    return at < text.size() ? BeginningOf(text.substr(at)).substr(0, 60) : std::string("(end)");
  };
  return fmt::format("byte {}: upstream {:?}, ours {:?}", at, piece(upstream), piece(ours));
}

std::string FirstDifference(const std::vector<int32_t>& upstream,
                            const std::vector<int32_t>& ours) {
  size_t at = 0;
  while (at < upstream.size() && at < ours.size() && upstream[at] == ours[at]) ++at;
  const auto piece = [&](const std::vector<int32_t>& ids) {
    return at < ids.size() ? fmt::format("{}", ids[at]) : std::string("the end");
  };
  return fmt::format("{} tokens upstream, {} here; token {}: upstream {}, ours {}", upstream.size(),
                     ours.size(), at, piece(upstream), piece(ours));
}

std::vector<int32_t> WithoutFirst(const std::vector<int32_t>& ids, std::optional<int32_t> first) {
  size_t from = 0;
  while (first && from < ids.size() && ids[from] == *first) ++from;
  return {ids.begin() + static_cast<std::ptrdiff_t>(from), ids.end()};
}

}  // namespace

Comparer::Comparer(ComparerParts parts) : parts_(std::move(parts)) {
  end_tokens_ = parts_.ours->info().end_tokens;
  if (const auto eos = parts_.tokenizer->eos_token()) {
    if (const auto id = parts_.tokenizer->TokenToId(*eos)) end_tokens_.push_back(*id);
  }
}

void Comparer::Compare(const Exchange& exchange) {
  const Status status = CompareAnswer(exchange);
  if (!status) parts_.findings->NotJudged(status.error().message);
}

std::string Comparer::TokenText(int32_t token) const {
  if (token < 0) return "the end of the answer";
  const int32_t one[] = {token};
  return fmt::format("{:?} ({})", parts_.tokenizer->Decode(one, /*skip_special_tokens=*/false),
                     token);
}

Result<std::vector<int32_t>> Comparer::OurPrompt(const Asked& asked,
                                                 const json::Value& prompt) const {
  std::vector<int32_t> ids;
  if (prompt.is_array()) {
    for (const json::Value& id : prompt.as_array()) {
      if (!id.is_integer())
        return Fail(ErrorCode::kInvalidData, "a prompt is not a list of token ids");
      ids.push_back(static_cast<int32_t>(id.as_integer()));
    }
    return ids;
  }
  json::Value body{json::Value::Object{}};
  if (asked.is_chat) {
    body = asked.body;
    std::erase_if(body.as_object(), [](const auto& member) { return member.first == "model"; });
    body.Set("add_generation_prompt", true);
  } else {
    body.Set("prompt", prompt);
  }
  ASSIGN_OR_RETURN(const ClientResponse response,
                   parts_.server->Post("/tokenize", json::Write(body)));
  const auto answer = json::Parse(response.body);
  const json::Value* list = answer ? answer->Find("tokens") : nullptr;
  if (response.status != 200 || list == nullptr || !list->is_array())
    return Fail(ErrorCode::kInvalidData, "our server refuses the request's prompt");
  for (const json::Value& id : list->as_array())
    ids.push_back(static_cast<int32_t>(id.as_integer()));
  return ids;
}

Status Comparer::CompareAnswer(const Exchange& exchange) {
  ASSIGN_OR_RETURN(const Asked asked, ReadAsked(exchange.path, exchange.request, parts_.defaults));
  if (!asked.not_compared.empty())
    return Fail(ErrorCode::kUnsupported, asked.not_compared + " in the request");
  ASSIGN_OR_RETURN(const Answer answer, ReadAnswer(exchange.response, exchange.is_stream));
  std::vector<std::vector<int32_t>> prompts;
  for (const json::Value& prompt : asked.prompts) {
    ASSIGN_OR_RETURN(prompts.emplace_back(), OurPrompt(asked, prompt));
  }
  for (size_t i = 0; i < answer.choices.size(); ++i) {
    const size_t place = i / static_cast<size_t>(asked.num_choices);
    if (place >= prompts.size())
      return Fail(ErrorCode::kInvalidData, "the answer has more choices than requested");
    Case item{.exchange = exchange,
              .asked = asked,
              .answer = answer,
              .choice = answer.choices[i],
              .index = i,
              .prompt = prompts[place],
              .upstream_prompt = answer.choices[i].prompt,
              .tokens = answer.choices[i].tokens,
              .are_upstream_tokens = false,
              .finding = {}};
    Finding& finding = item.finding;
    finding.id = answer.choices.size() == 1 ? fmt::format("{}", exchange.number)
                                            : fmt::format("{}.{}", exchange.number, i);
    finding.path = exchange.path;
    finding.is_greedy = asked.choosing.is_greedy();
    finding.prompt = EndOf(parts_.tokenizer->Decode(item.prompt, /*skip_special_tokens=*/false));
    finding.text = BeginningOf(item.choice.text);
    JudgePrompt(item, asked.prompts[place]);
    const Status judged = JudgeChoice(item);
    if (judged || finding.verdict != Verdict::kEqual) {
      parts_.findings->Add(std::move(finding));
    } else {
      parts_.findings->NotJudged(judged.error().message);
    }
  }
  return {};
}

void Comparer::JudgePrompt(Case& item, const json::Value& prompt) {
  Finding& finding = item.finding;
  if (prompt.is_array()) return;
  const bool one_prompt = item.asked.prompts.size() == 1;
  const std::optional<int64_t> count = one_prompt ? item.answer.prompt_tokens : std::nullopt;
  const bool differs = count && *count != std::ssize(item.prompt);
  std::string text;
  if (item.upstream_prompt.empty() && parts_.asks_upstream &&
      (differs || num_prompts_++ < kFirstPrompts)) {
    if (auto told = parts_.upstream->Prompt(item.asked, prompt)) {
      item.upstream_prompt = std::move(told->ids);
      text = std::move(told->text);
    }
  }
  if (item.upstream_prompt.empty()) {
    if (!differs) return;
    finding.verdict = item.asked.is_chat ? Verdict::kTemplate : Verdict::kTokenizer;
    finding.evidence = "numbers of tokens";
    finding.detail =
        fmt::format("the prompt has {} tokens upstream, {} here", *count, item.prompt.size());
    return;
  }
  if (item.upstream_prompt == item.prompt) return;
  const std::string ours = parts_.tokenizer->Decode(item.prompt, /*skip_special_tokens=*/false);
  if (text.empty() && parts_.asks_upstream) {
    if (auto told = parts_.upstream->Detokenize(item.upstream_prompt)) text = *std::move(told);
  }
  if (text.empty())
    text = parts_.tokenizer->Decode(item.upstream_prompt, /*skip_special_tokens=*/false);
  std::optional<int32_t> first;
  if (const auto bos = parts_.tokenizer->bos_token()) first = parts_.tokenizer->TokenToId(*bos);
  const bool only_first =
      WithoutFirst(item.upstream_prompt, first) == WithoutFirst(item.prompt, first);
  const bool is_tokenizer = text == ours || only_first || !item.asked.is_chat;
  finding.verdict = is_tokenizer ? Verdict::kTokenizer : Verdict::kTemplate;
  finding.evidence = "the upstream's prompt";
  finding.detail = is_tokenizer ? FirstDifference(item.upstream_prompt, item.prompt)
                                : FirstDifference(text, ours);
}

Result<bool> Comparer::IsComputedAlike(const Case& item) const {
  json::Value body = item.asked.body;
  std::erase_if(body.as_object(), [](const auto& member) {
    return member.first == "model" || member.first == "stream" ||
           member.first == "stream_options" || member.first == "n";
  });
  const bool has_text = !item.asked.is_chat;
  if (has_text) {
    const size_t place = item.index / static_cast<size_t>(item.asked.num_choices);
    body.Set("prompt", item.asked.prompts[place]);
  }
  ASSIGN_OR_RETURN(
      const ClientResponse response,
      parts_.server->Post(item.asked.is_chat ? "/v1/chat/completions" : "/v1/completions",
                          json::Write(body)));
  if (response.status != 200)
    return Fail(ErrorCode::kInvalidData, "our server refuses the request");
  ASSIGN_OR_RETURN(const Answer ours, ReadAnswer(response.body, /*is_stream=*/false));
  return ours.choices[0].text == item.choice.text &&
         ours.choices[0].finish_reason == item.choice.finish_reason &&
         ours.choices[0].other == item.choice.other;
}

Status Comparer::JudgeChoice(Case& item) {
  Finding& finding = item.finding;
  const bool greedy = finding.is_greedy;
  // Scores do not include the request's processing of logits, so they would be the wrong numbers to
  // judge tokens by.
  const std::string hidden =
      !item.choice.other.empty() && item.tokens.empty() ? item.choice.other : item.asked.also;
  if (!hidden.empty()) {
    if (!greedy) return Fail(ErrorCode::kUnsupported, "sampled with " + hidden);
    ASSIGN_OR_RETURN(const bool alike, IsComputedAlike(item));
    if (!alike) return Fail(ErrorCode::kUnsupported, "another answer, with " + hidden);
    finding.evidence = finding.evidence.empty() ? "computed again" : finding.evidence;
    return {};
  }
  item.are_upstream_tokens = !item.tokens.empty();
  if (!item.are_upstream_tokens) {
    item.tokens = parts_.tokenizer->Encode(item.choice.text, /*add_special_tokens=*/false);
    if (parts_.tokenizer->Decode(item.tokens, /*skip_special_tokens=*/false) != item.choice.text)
      return Fail(ErrorCode::kUnsupported, "a text that our tokenizer does not reproduce");
  }
  // The end token is judged separately.
  if (item.choice.finish_reason == "stop" && !item.tokens.empty() &&
      std::ranges::find(end_tokens_, item.tokens.back()) != end_tokens_.end())
    item.tokens.pop_back();
  return JudgeTokens(item);
}

size_t Comparer::NumJudged(const Case& item, const Scores& reference) const {
  constexpr size_t kMostBytes = 64;
  const size_t count = std::min(item.tokens.size(), reference.positions.size());
  const bool may_be_cut =
      !item.are_upstream_tokens && item.asked.has_stops && item.choice.finish_reason == "stop";
  if (!may_be_cut) return count;
  std::string rest;
  for (size_t i = count; i > 0; --i) {
    const TokenLogprobs& score = reference.positions[i - 1];
    rest = parts_.tokenizer->TokenBytes(score.token) + rest;
    if (rest.size() > kMostBytes) break;
    for (const auto& [token, logprob] : score.top) {
      if (logprob <= score.logprob) break;
      const std::string text = parts_.tokenizer->TokenBytes(token);
      if (text.size() > rest.size() && text.starts_with(rest)) return i - 1;
    }
  }
  return count;
}

Status Comparer::JudgeTokens(Case& item) {
  Finding& finding = item.finding;
  const bool greedy = finding.is_greedy;
  const std::vector<int32_t>& prompt =
      item.upstream_prompt.empty() ? item.prompt : item.upstream_prompt;
  const int32_t top = greedy ? kGreedyTop : kDrawnTop;
  ASSIGN_OR_RETURN(Scores reference, ScoreAnswer(*parts_.reference, prompt, item.tokens, top));
  const size_t count = NumJudged(item, reference);
  reference.positions.resize(count);
  finding.num_tokens = static_cast<int64_t>(count);
  Judgement judgement;
  if (greedy) {
    Scores ours = reference;
    if (parts_.ours != parts_.reference) {
      ASSIGN_OR_RETURN(ours, ScoreAnswer(*parts_.ours, prompt, item.tokens, top));
      ours.positions.resize(std::min(count, ours.positions.size()));
    }
    const Ending ending{.by_end_token = item.choice.finish_reason == "stop" &&
                                        !item.choice.matched_stop && !item.asked.has_stops,
                        .end_tokens = end_tokens_,
                        .min_tokens = item.asked.min_tokens};
    judgement = JudgeGreedy(ours, reference, ending, parts_.epsilon);
  } else {
    judgement = JudgeDrawn(reference, item.asked.choosing, parts_.epsilon);
    DrawnSums sums;
    sums.Add(reference, item.asked.choosing);
    parts_.findings->AddDrawn(sums);
  }
  if (item.choice.logprobs.size() >= reference.positions.size()) {
    for (size_t i = 0; i < reference.positions.size(); ++i) {
      parts_.findings->AddLogprobDifference(
          std::abs(item.choice.logprobs[i] - reference.positions[i].logprob));
    }
  }
  const bool is_beyond = judgement.verdict > Verdict::kTie;
  if (is_beyond && greedy && !item.are_upstream_tokens) {
    // The upstream may have divided the text into other tokens, to which these scores do not apply.
    const Result<bool> alike = IsComputedAlike(item);
    const bool is_alike = alike && *alike;
    const std::optional<int64_t> told =
        item.answer.choices.size() == 1 ? item.answer.completion_tokens : std::nullopt;
    const int64_t here = std::ssize(item.tokens);
    if (is_alike) {
      judgement = {};
      judgement.evidence = "computed again";
    } else if (told && *told != here && *told != here + 1) {
      judgement = {};
      judgement.verdict = Verdict::kTokenizer;
      judgement.evidence = fmt::format("the answer has {} tokens upstream, {} here", *told, here);
    }
  }
  if (judgement.verdict > Verdict::kTie && judgement.worst)
    JudgeNumbers(item, reference, judgement);
  const bool prompts_differ = finding.verdict != Verdict::kEqual;
  if (prompts_differ) {
    if (!item.upstream_prompt.empty()) finding.answer = judgement.verdict;
    return {};
  }
  finding.verdict = judgement.verdict;
  finding.evidence = judgement.evidence;
  finding.num_departures = judgement.num_departures;
  if (judgement.worst) {
    const Departure& worst = *judgement.worst;
    finding.gap = worst.gap();
    if (worst.upstream_gap != worst.ours_gap)
      finding.nearer = worst.upstream_gap < worst.ours_gap ? "upstream" : "ours";
    finding.detail = fmt::format("token {}: upstream {}, ours {}", worst.position,
                                 TokenText(worst.upstream), TokenText(worst.ours));
  }
  return {};
}

void Comparer::JudgeNumbers(Case& item, const Scores& reference, Judgement& judgement) const {
  const auto place = static_cast<size_t>(judgement.worst->position);
  TokenLogprobs score;
  if (place < reference.positions.size()) {
    score = reference.positions[place];
  } else if (!reference.next.empty()) {
    score = {.token = reference.next[0].first,
             .logprob = reference.next[0].second,
             .rank = 1,
             .top = reference.next};
  }
  std::optional<double> difference;
  std::string_view source = "told with the answer";
  if (place < item.choice.logprobs.size() && place < reference.positions.size()) {
    difference = std::abs(item.choice.logprobs[place] - score.logprob);
  } else if (parts_.asks_upstream) {
    std::vector<int32_t> ids = item.upstream_prompt.empty() ? item.prompt : item.upstream_prompt;
    ids.insert(
        ids.end(), item.tokens.begin(),
        item.tokens.begin() + static_cast<std::ptrdiff_t>(std::min(place, item.tokens.size())));
    const auto told = parts_.upstream->Logprobs(item.asked, ids, score, *parts_.tokenizer);
    if (told) difference = LargestDifference(*told, score);
    source = "asked for at that token";
  }
  if (!difference) {
    judgement.evidence += "; the upstream does not return its log probabilities there";
    return;
  }
  const bool are_equal = *difference <= parts_.epsilon;
  judgement.verdict = are_equal ? Verdict::kSampling : Verdict::kReal;
  judgement.evidence =
      fmt::format("the upstream's log probabilities, {}, differ from the reference by {:.4f} nats",
                  source, *difference);
}

}  // namespace sluice::shadow

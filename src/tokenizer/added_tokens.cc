#include "tokenizer/added_tokens.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "tokenizer/encode_budget.h"
#include "tokenizer/unicode.h"

namespace sluice {

Result<AddedTokenFinder> AddedTokenFinder::Create(
    std::vector<std::pair<std::string, AddedToken>> tokens) {
  AddedTokenFinder finder;
  std::sort(tokens.begin(), tokens.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    if (tokens[i].first == tokens[i + 1].first) {
      return Fail(ErrorCode::kInvalidData,
                  fmt::format("added_tokens {} and {} are searched for as the same text '{}'",
                              tokens[i].second.id, tokens[i + 1].second.id, tokens[i].first));
    }
  }
  if (tokens.empty()) return finder;

  // Each node covers a range of the sorted list of tokens; its children cover parts of that range.
  struct Work {
    uint32_t node, begin, end, depth;
  };
  finder.nodes_.emplace_back();
  std::vector<Work> stack{{0, 0, static_cast<uint32_t>(tokens.size()), 0}};
  while (!stack.empty()) {
    const Work work = stack.back();
    stack.pop_back();
    uint32_t i = work.begin;
    if (i < work.end && tokens[i].first.size() == work.depth)
      finder.nodes_[work.node].token = static_cast<int32_t>(i++);
    finder.nodes_[work.node].first_edge = static_cast<uint32_t>(finder.edges_.size());
    while (i < work.end) {
      const char byte = tokens[i].first[work.depth];
      uint32_t end = i + 1;
      while (end < work.end && tokens[end].first[work.depth] == byte) ++end;
      const auto child = static_cast<uint32_t>(finder.nodes_.size());
      finder.nodes_.emplace_back();
      finder.edges_.push_back({static_cast<unsigned char>(byte), child});
      stack.push_back({child, i, end, work.depth + 1});
      ++finder.nodes_[work.node].num_edges;
      i = end;
    }
  }
  for (auto& [text, token] : tokens) {
    const auto first = static_cast<unsigned char>(text[0]);
    finder.first_bytes_.set(first);
    if (text.size() > 1) {
      finder.first_pairs_.set(first | static_cast<size_t>(static_cast<unsigned char>(text[1]))
                                          << 8);
    } else {
      finder.one_byte_tokens_ = true;
      for (size_t second = 0; second < 256; ++second) finder.first_pairs_.set(first | second << 8);
    }
    finder.tokens_.push_back(std::move(token));
  }
  if (finder.first_bytes_.count() == 1) {
    finder.only_first_byte_ = static_cast<unsigned char>(tokens[0].first[0]);
  }
  return finder;
}

const AddedTokenFinder::Node* AddedTokenFinder::Child(const Node& node, unsigned char byte) const {
  const Edge* first = edges_.data() + node.first_edge;
  const Edge* last = first + node.num_edges;
  const Edge* edge = std::lower_bound(first, last, byte,
                                      [](const Edge& e, unsigned char b) { return e.byte < b; });
  return edge != last && edge->byte == byte ? &nodes_[edge->node] : nullptr;
}

bool AddedTokenFinder::Find(std::string_view text, size_t at, Match& match) const {
  if (tokens_.empty()) return false;
  const auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  for (; at < text.size(); ++at) {
    if (only_first_byte_ >= 0) {
      const void* found = std::memchr(text.data() + at, only_first_byte_, text.size() - at);
      if (found == nullptr) return false;
      at = static_cast<size_t>(static_cast<const char*>(found) - text.data());
    } else if (!first_bytes_[byte(at)]) {
      continue;
    }
    if (at + 1 < text.size() ? !first_pairs_[byte(at) | static_cast<size_t>(byte(at + 1)) << 8]
                             : !one_byte_tokens_) {
      continue;
    }
    bool any = false;
    const Node* node = nodes_.data();
    size_t i = at;
    for (; i < text.size(); ++i) {
      node = Child(*node, byte(i));
      if (node == nullptr) break;
      if (node->token >= 0) {
        match = {at, i + 1, static_cast<uint32_t>(node->token)};
        any = true;
      }
    }
    if (!EncodeBudget::Spend(1 + (i - at))) return false;
    if (any) return true;
  }
  return false;
}

bool AddedTokenFinder::TouchesWord(std::string_view text, const Match& match) {
  const auto is_word = [](char32_t c) { return (unicode::Properties(c) & unicode::kWord) != 0; };
  if (match.begin > 0 && is_word(unicode::DecodeLast(text.substr(0, match.begin)).code_point))
    return true;
  return match.end < text.size() && is_word(unicode::Decode(text.data() + match.end).code_point);
}

size_t AddedTokenFinder::SkipSpaces(std::string_view text, size_t at) {
  while (at < text.size()) {
    const unicode::Decoded decoded = unicode::Decode(text.data() + at);
    if (!(unicode::Properties(decoded.code_point) & unicode::kSpace)) break;
    at += decoded.length;
  }
  return at;
}

size_t AddedTokenFinder::SkipSpacesBack(std::string_view text, size_t at, size_t limit) {
  while (at > limit) {
    const unicode::Decoded decoded = unicode::DecodeLast(text.substr(0, at));
    if (!(unicode::Properties(decoded.code_point) & unicode::kSpace)) break;
    at -= decoded.length;
  }
  return std::max(at, limit);
}

}  // namespace sluice

// Added tokens: texts that are always encoded as a single token. They are cut out before the model
// encodes the rest of a text.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace sluice {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // Does not match next to a word character.
  bool lstrip = false;       // Also consumes white space to its left.
  bool rstrip = false;       // Also consumes white space to its right.
  bool normalized = true;    // Is normalized, and searched for in the normalized text.
  bool special = false;      // Decode with skip_special_tokens omits it.
};

// Finds a set of added tokens in a text: the leftmost match and, of several at the same position,
// the longest. Thread safety: immutable after construction.
class AddedTokenFinder {
 public:
  AddedTokenFinder() = default;
  // `tokens`: pairs of the text to search for, which may differ from the token's content, and the
  // token. kInvalidData if two texts are equal.
  static Result<AddedTokenFinder> Create(std::vector<std::pair<std::string, AddedToken>> tokens);

  bool empty() const { return tokens_.empty(); }

  // Cuts `text` at the tokens: calls token(id) for each token and gap(part) for the text between
  // tokens, in order. Once the EncodeBudget is exceeded, finds no more tokens.
  template <typename Gap, typename Token>
  void Split(std::string_view text, Gap&& gap, Token&& token) const {
    size_t start = 0;  // Start of the text not yet passed to a callback.
    Match match;
    for (size_t at = 0; Find(text, at, match); at = match.end) {
      const AddedToken& found = tokens_[match.token];
      if (found.single_word && TouchesWord(text, match)) continue;
      size_t begin = match.begin;
      size_t end = match.end;
      if (found.lstrip) begin = SkipSpacesBack(text, begin, start);
      if (found.rstrip) end = SkipSpaces(text, end);
      // A token that consists of white space may lie entirely inside the white space that the
      // previous token consumed.
      if (begin >= end) continue;
      if (start < begin) gap(text.substr(start, begin - start));
      token(found.id);
      start = end;
    }
    if (start != text.size()) gap(text.substr(start));
  }

 private:
  struct Match {
    size_t begin = 0;
    size_t end = 0;
    uint32_t token = 0;
  };
  // A node of the trie of all tokens. Its children, in `edges_`, are sorted by byte.
  struct Node {
    uint32_t first_edge = 0;
    uint32_t num_edges = 0;
    int32_t token = -1;  // Index of the token that ends here.
  };
  struct Edge {
    unsigned char byte = 0;
    uint32_t node = 0;
  };

  bool Find(std::string_view text, size_t at, Match& match) const;
  const Node* Child(const Node& node, unsigned char byte) const;
  static bool TouchesWord(std::string_view text, const Match& match);
  static size_t SkipSpaces(std::string_view text, size_t at);
  static size_t SkipSpacesBack(std::string_view text, size_t at, size_t limit);

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::bitset<256> first_bytes_;
  std::bitset<65536> first_pairs_;  // Indexed by the first two bytes, the first in the low byte.
                                    // After a one-byte token all second bytes are set.
  int only_first_byte_ = -1;        // The first byte if all tokens share it, else -1.
  bool one_byte_tokens_ = false;
};

}  // namespace sluice

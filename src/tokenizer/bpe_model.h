// Byte-pair encoding: converts a piece of text to ids of a vocabulary with ranked merges.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "tokenizer/piece_table.h"
#include "tokenizer/token_table.h"

namespace sluice {

// The `model` of a tokenizer.json, parsed.
struct BpeSpec {
  TokenTable vocabulary;
  struct Merge {
    int32_t left = 0;
    int32_t right = 0;
    int32_t merged = 0;
  };
  std::vector<Merge> merges;  // Ordered by rank.
  std::optional<std::string> unk_token;
  bool fuse_unk = false;
  bool byte_fallback = false;
  bool ignore_merges = false;
  // Affixes in the vocabulary's spellings. The prefix precedes each character of a piece except the
  // first ("##b"); the suffix follows the last character ("c</w>").
  std::string continuing_prefix;
  std::string word_suffix;

  bool has_affixes() const { return !continuing_prefix.empty() || !word_suffix.empty(); }
};

// Thread safety: immutable; several threads may call Encode at the same time.
class BpeModel {
 public:
  // `byte_level`: pieces are raw bytes, and the vocabulary writes each byte as one character
  // (byte_level.h). Not possible with affixes. Returns an error if unk_token is not in the
  // vocabulary.
  static Result<BpeModel> Create(BpeSpec spec, bool byte_level);
  // Whether pieces may be raw bytes: the vocabulary must contain every byte that can occur in valid
  // UTF-8.
  static bool HasAllBytes(const TokenTable& vocabulary);

  // Appends the ids of `piece`. `text_end`: end of the readable memory that contains the piece.
  // REQUIRES: the piece is not empty, and shorter than 2 GiB.
  void Encode(std::string_view piece, const char* text_end, std::vector<int32_t>& ids) const {
    const int32_t whole =
        piece.size() <= PieceKey::kMaxBytes
            ? pieces_.Find(PieceKey::Of(piece.data(), piece.size(),
                                        static_cast<size_t>(text_end - piece.data())))
            : FindLong(piece);
    if (whole >= 0) {
      ids.push_back(whole);
    } else {
      EncodeSeveral(piece, text_end, ids);
    }
  }

  const TokenTable& vocabulary() const { return vocabulary_; }

 private:
  static constexpr uint32_t kNoMerge = UINT32_MAX;

  struct MergeSlot {
    uint64_t pair = UINT64_MAX;  // left id << 32 | right id
    uint32_t rank = kNoMerge;
    int32_t merged = -1;
  };
  struct Found {
    uint32_t rank = kNoMerge;
    int32_t merged = -1;
  };

  BpeModel() = default;
  void AddMerges(const std::vector<BpeSpec::Merge>& merges);
  void FindSymbols(const BpeSpec& spec);
  void AddPieces(bool ignore_merges);

  Found FindMerge(int32_t left, int32_t right) const;
  int32_t FindLong(std::string_view piece) const;
  // Encodes a piece that is not a single token: looks it up in this thread's cache, or merges
  // symbols.
  void EncodeSeveral(std::string_view piece, const char* text_end, std::vector<int32_t>& ids) const;
  void EncodeByMerges(std::string_view piece, std::vector<int32_t>& ids) const;
  // Returns the ids of the piece's characters or bytes, before any merge.
  void Symbols(std::string_view piece, std::vector<int32_t>& symbols) const;
  // Returns the id of a character, spelled for its position in the piece; -1 if there is none.
  int32_t CharacterId(std::string_view spelling) const;
  // Merges the symbols of a short piece. `bytes`: the piece if each byte is one symbol, else empty.
  void MergeShort(std::string_view bytes, std::vector<int32_t>& symbols) const;
  void MergeLong(std::vector<int32_t>& symbols) const;

  uint64_t serial_ = 0;  // Unique in the process; identifies this model in caches.
  TokenTable vocabulary_;
  bool byte_level_ = false;
  bool byte_fallback_ = false;
  bool fuse_unk_ = false;
  std::string continuing_prefix_, word_suffix_;
  int32_t unk_id_ = -1;
  std::array<int32_t, 256> byte_symbols_{};      // Indexed by byte (byte_level) or else by ASCII
                                                 // character: its id, or -1.
  std::array<int32_t, 256> fallback_symbols_{};  // Indexed by byte: the id of "<0x41>" etc., or -1.
  std::vector<MergeSlot> merges_;                // Hash table with open addressing; its size is a
                                                 // power of two.
  std::vector<Found> byte_merges_;               // byte_level: indexed by left byte * 256 + right
                                                 // byte
  PieceTable pieces_;                            // Pieces that are a single token.
  // Like pieces_, for pieces longer than PieceKey::kMaxBytes.
  TokenTable long_pieces_;
};

}  // namespace sluice

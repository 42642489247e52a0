// Byte-pair encoding: one piece of text to the ids of a vocabulary with ranked merges.
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

// What the `model` of a tokenizer.json says.
struct BpeSpec {
  TokenTable vocabulary;
  struct Merge {
    int32_t left = 0;
    int32_t right = 0;
    int32_t merged = 0;
  };
  std::vector<Merge> merges;  // By rank.
  std::optional<std::string> unk_token;
  bool fuse_unk = false;
  bool byte_fallback = false;
  bool ignore_merges = false;
  // How the vocabulary spells a character that others of the piece stand before, and the last one:
  // "##b", "c</w>".
  std::string continuing_prefix;
  std::string word_suffix;

  bool has_affixes() const { return !continuing_prefix.empty() || !word_suffix.empty(); }
};

// Thread safety: immutable; Encode may be called from any thread at once.
class BpeModel {
 public:
  // `byte_level`: pieces come as raw bytes, and the vocabulary spells them byte by byte
  // (byte_level.h); not with affixes. Fails if unk_token is named and not in the vocabulary.
  static Result<BpeModel> Create(BpeSpec spec, bool byte_level);
  // Whether pieces may come as raw bytes: the vocabulary has every byte that valid UTF-8 can hold.
  static bool HasAllBytes(const TokenTable& vocabulary);

  // Appends the ids of one piece. `text_end`: the end of the readable memory that holds the piece.
  // REQUIRES: piece is not empty, and shorter than 2 GiB.
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
    uint64_t pair = UINT64_MAX;  // left << 32 | right
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
  // A piece that is not one token: from this thread's cache, else by merges.
  void EncodeSeveral(std::string_view piece, const char* text_end, std::vector<int32_t>& ids) const;
  void EncodeByMerges(std::string_view piece, std::vector<int32_t>& ids) const;
  // The ids before any merge.
  void Symbols(std::string_view piece, std::vector<int32_t>& symbols) const;
  // The id of a character, as the vocabulary spells it at its place; -1 if there is none.
  int32_t CharacterId(std::string_view spelling) const;
  // `bytes`: the piece if its symbols are its bytes, else empty.
  void MergeShort(std::string_view bytes, std::vector<int32_t>& symbols) const;
  void MergeLong(std::vector<int32_t>& symbols) const;

  uint64_t serial_ = 0;  // Of this model in the process: what caches know it by.
  TokenTable vocabulary_;
  bool byte_level_ = false;
  bool byte_fallback_ = false;
  bool fuse_unk_ = false;
  std::string continuing_prefix_, word_suffix_;
  int32_t unk_id_ = -1;
  std::array<int32_t, 256> byte_symbols_{};  // byte_level: the id of each byte; else of each ASCII
                                             // character; -1 if none.
  std::array<int32_t, 256> fallback_symbols_{};  // Of "<0x41>" and the like, -1 if none.
  std::vector<MergeSlot> merges_;                // Open addressing, a power of two.
  std::vector<Found> byte_merges_;               // byte_level: [left byte * 256 + right byte]
  PieceTable pieces_;                            // Pieces that are one token.
  TokenTable long_pieces_;                       // The same, longer than PieceKey holds.
};

}  // namespace sluice

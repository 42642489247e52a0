#include "tokenizer/bpe_model.h"

#include <algorithm>
#include <atomic>
#include <queue>

#include <fmt/format.h>

#include "tokenizer/byte_level.h"
#include "tokenizer/unicode.h"

namespace sluice {
namespace {

// With up to this many symbols, a scan for the best pair is faster than a heap.
constexpr size_t kMaxScanned = 48;

uint64_t PairKey(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

uint64_t HashPair(uint64_t pair) {
  const uint64_t mixed = pair * 0x9E3779B97F4A7C15;
  return mixed ^ mixed >> 29;
}

// Whether the byte never occurs in valid UTF-8.
bool IsNeverInUtf8(int byte) {
  return byte == 0xC0 || byte == 0xC1 || byte >= 0xF5;
}

// An entry of a per-thread cache of pieces with several tokens; a new piece replaces the old one in
// its slot. The cache pays off because names and inflected words recur, and merging costs as much
// as twenty look-ups. An entry takes one cache line.
struct alignas(64) CachedPiece {
  static constexpr size_t kMaxIds = 8;

  PieceKey key;
  uint64_t model = 0;  // BpeModel::serial_ of the model that encoded it
  uint32_t num_ids = 0;
  int32_t ids[kMaxIds] = {};
};
constexpr size_t kCachedPieces = 4096;

CachedPiece& CacheEntry(const PieceKey& key) {
  thread_local std::vector<CachedPiece> cache(kCachedPieces);
  return cache[key.Hash() % kCachedPieces];
}

uint64_t NextSerial() {
  static std::atomic<uint64_t> serial{0};
  return ++serial;
}

// Buffers that each thread reuses.
std::vector<int32_t>& ScratchSymbols() {
  thread_local std::vector<int32_t> symbols;
  // Frees the memory after a huge piece.
  if (symbols.capacity() > (1 << 20)) std::vector<int32_t>().swap(symbols);
  symbols.clear();
  return symbols;
}

}  // namespace

bool BpeModel::HasAllBytes(const TokenTable& vocabulary) {
  for (int byte = 0; byte < 256; ++byte) {
    const char raw = static_cast<char>(byte);
    if (!IsNeverInUtf8(byte) && !vocabulary.Find(byte_level::Spell({&raw, 1}))) return false;
  }
  return true;
}

Result<BpeModel> BpeModel::Create(BpeSpec spec, bool byte_level) {
  BpeModel model;
  model.serial_ = NextSerial();
  model.byte_level_ = byte_level;
  model.byte_fallback_ = spec.byte_fallback;
  model.fuse_unk_ = spec.fuse_unk;
  model.continuing_prefix_ = spec.continuing_prefix;
  model.word_suffix_ = spec.word_suffix;
  if (spec.unk_token) {
    const std::optional<int32_t> unk = spec.vocabulary.Find(*spec.unk_token);
    if (!unk) {
      return Fail(ErrorCode::kInvalidData,
                  fmt::format("model.unk_token '{}' is not in model.vocab", *spec.unk_token),
                  "model.unk_token");
    }
    model.unk_id_ = *unk;
  }
  model.FindSymbols(spec);
  model.AddMerges(spec.merges);
  model.vocabulary_ = std::move(spec.vocabulary);
  model.AddPieces(spec.ignore_merges);
  return model;
}

void BpeModel::FindSymbols(const BpeSpec& spec) {
  for (int i = 0; i < 256; ++i) {
    const char raw = static_cast<char>(i);
    const std::string spelling = byte_level_ ? byte_level::Spell({&raw, 1})
                                 : i < 128   ? std::string(1, raw)
                                             : "";
    const auto byte = static_cast<size_t>(i);
    byte_symbols_[byte] = spelling.empty() ? -1 : spec.vocabulary.Find(spelling).value_or(-1);
    fallback_symbols_[byte] = spec.vocabulary.Find(fmt::format("<0x{:02X}>", i)).value_or(-1);
  }
}

void BpeModel::AddMerges(const std::vector<BpeSpec::Merge>& merges) {
  size_t slots = 16;
  while (slots < merges.size() * 2) slots *= 2;
  merges_.assign(slots, {});
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const BpeSpec::Merge& merge = merges[rank];
    const uint64_t pair = PairKey(merge.left, merge.right);
    size_t slot = HashPair(pair) & (slots - 1);
    while (merges_[slot].pair != UINT64_MAX && merges_[slot].pair != pair)
      slot = (slot + 1) & (slots - 1);
    // If a pair occurs twice, the later merge replaces the earlier.
    merges_[slot] = {pair, static_cast<uint32_t>(rank), merge.merged};
  }
  if (!byte_level_) return;
  byte_merges_.resize(256 * 256);
  for (size_t left = 0; left < 256; ++left) {
    for (size_t right = 0; right < 256; ++right) {
      if (byte_symbols_[left] < 0 || byte_symbols_[right] < 0) continue;
      byte_merges_[left * 256 + right] = FindMerge(byte_symbols_[left], byte_symbols_[right]);
    }
  }
}

void BpeModel::AddPieces(bool ignore_merges) {
  pieces_.Reserve(vocabulary_.size());
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < vocabulary_.end_id(); ++id) {
    if (!vocabulary_.Has(id)) continue;
    std::string text(vocabulary_.Spelling(id));
    if (byte_level_) {
      std::optional<std::string> bytes = byte_level::Unspell(text);
      if (!bytes) continue;  // an added token: not in the alphabet of byte-level BPE
      text = std::move(*bytes);
    }
    if (text.empty()) continue;
    if (!ignore_merges) {
      if (text.size() > word_suffix_.size() && text.ends_with(word_suffix_))
        text.resize(text.size() - word_suffix_.size());
      // The piece may be encoded as this token only if the merges lead to this token.
      ids.clear();
      EncodeByMerges(text, ids);
      if (ids.size() != 1 || ids[0] != id) continue;
    }
    if (text.size() <= PieceKey::kMaxBytes) {
      pieces_.Add(PieceKey::Of(text.data(), text.size(), text.size()), id);
    } else {
      long_pieces_.Add(text, id);
    }
  }
}

BpeModel::Found BpeModel::FindMerge(int32_t left, int32_t right) const {
  const uint64_t pair = PairKey(left, right);
  const size_t mask = merges_.size() - 1;
  for (size_t slot = HashPair(pair) & mask;; slot = (slot + 1) & mask) {
    const MergeSlot& entry = merges_[slot];
    if (entry.pair == pair) return {entry.rank, entry.merged};
    if (entry.pair == UINT64_MAX) return {};
  }
}

int32_t BpeModel::FindLong(std::string_view piece) const {
  return long_pieces_.Find(piece).value_or(-1);
}

void BpeModel::EncodeSeveral(std::string_view piece, const char* text_end,
                             std::vector<int32_t>& ids) const {
  if (piece.size() > PieceKey::kMaxBytes) {
    EncodeByMerges(piece, ids);
    return;
  }
  const PieceKey key =
      PieceKey::Of(piece.data(), piece.size(), static_cast<size_t>(text_end - piece.data()));
  CachedPiece& cached = CacheEntry(key);
  if (cached.model == serial_ && cached.key == key) {
    ids.insert(ids.end(), cached.ids, cached.ids + cached.num_ids);
    return;
  }
  const size_t before = ids.size();
  EncodeByMerges(piece, ids);
  const size_t num_ids = ids.size() - before;
  if (num_ids > CachedPiece::kMaxIds) return;
  cached.key = key;
  cached.model = serial_;
  cached.num_ids = static_cast<uint32_t>(num_ids);
  std::copy(ids.end() - static_cast<ptrdiff_t>(num_ids), ids.end(), cached.ids);
}

void BpeModel::EncodeByMerges(std::string_view piece, std::vector<int32_t>& ids) const {
  std::vector<int32_t>& symbols = ScratchSymbols();
  Symbols(piece, symbols);
  if (symbols.size() > 1) {
    if (symbols.size() <= kMaxScanned) {
      MergeShort(byte_level_ ? piece : std::string_view(), symbols);
    } else {
      MergeLong(symbols);
    }
  }
  ids.insert(ids.end(), symbols.begin(), symbols.end());
}

int32_t BpeModel::CharacterId(std::string_view spelling) const {
  return spelling.size() == 1 ? byte_symbols_[static_cast<unsigned char>(spelling[0])]
                              : vocabulary_.Find(spelling).value_or(-1);
}

void BpeModel::Symbols(std::string_view piece, std::vector<int32_t>& symbols) const {
  if (byte_level_) {
    for (const char c : piece) symbols.push_back(byte_symbols_[static_cast<unsigned char>(c)]);
    return;
  }
  bool pending_unk = false;
  std::string with_affixes;
  for (size_t i = 0; i < piece.size();) {
    const uint32_t length = unicode::SequenceLength(piece[i]);
    std::string_view spelling = piece.substr(i, length);
    const bool is_first = i == 0;
    i += length;
    const std::string_view prefix = is_first ? std::string_view() : continuing_prefix_;
    const std::string_view suffix = i < piece.size() ? std::string_view() : word_suffix_;
    if (!prefix.empty() || !suffix.empty()) {
      with_affixes.assign(prefix).append(spelling).append(suffix);
      spelling = with_affixes;
    }
    if (const int32_t id = CharacterId(spelling); id >= 0) {
      if (pending_unk) symbols.push_back(unk_id_);
      pending_unk = false;
      symbols.push_back(id);
      continue;
    }
    if (byte_fallback_ && std::all_of(spelling.begin(), spelling.end(), [this](char c) {
          return fallback_symbols_[static_cast<unsigned char>(c)] >= 0;
        })) {
      for (const char c : spelling)
        symbols.push_back(fallback_symbols_[static_cast<unsigned char>(c)]);
      continue;
    }
    // A character without a token is dropped if there is no unknown token. Otherwise the unknown
    // token is emitted before the next known character, after any byte tokens in between, as in the
    // libraries with which vocabularies are trained.
    if (unk_id_ < 0) continue;
    if (pending_unk && !fuse_unk_) symbols.push_back(unk_id_);
    pending_unk = true;
  }
  if (pending_unk) symbols.push_back(unk_id_);
}

void BpeModel::MergeShort(std::string_view bytes, std::vector<int32_t>& symbols) const {
  size_t n = symbols.size();
  uint32_t ranks[kMaxScanned];  // ranks[i]: rank of the pair that starts at symbol i.
  int32_t merged[kMaxScanned];
  const auto set = [&](size_t i, Found found) {
    ranks[i] = found.rank;
    merged[i] = found.merged;
  };
  const auto look_up = [&](size_t i) { set(i, FindMerge(symbols[i], symbols[i + 1])); };
  if (bytes.empty()) {
    for (size_t i = 0; i + 1 < n; ++i) look_up(i);
  } else {
    const auto byte = [bytes](size_t i) {
      return static_cast<size_t>(static_cast<unsigned char>(bytes[i]));
    };
    for (size_t i = 0; i + 1 < n; ++i) set(i, byte_merges_[byte(i) << 8 | byte(i + 1)]);
  }
  while (n > 1) {
    uint32_t best = kNoMerge;
    size_t at = 0;
    for (size_t i = 0; i + 1 < n; ++i) {
      if (ranks[i] < best) {
        best = ranks[i];
        at = i;
      }
    }
    if (best == kNoMerge) break;
    symbols[at] = merged[at];
    --n;
    for (size_t i = at + 1; i < n; ++i) symbols[i] = symbols[i + 1];
    for (size_t i = at + 1; i + 1 < n; ++i) {
      ranks[i] = ranks[i + 1];
      merged[i] = merged[i + 1];
    }
    if (at > 0) look_up(at - 1);
    if (at + 1 < n) look_up(at);
  }
  symbols.resize(n);
}

void BpeModel::MergeLong(std::vector<int32_t>& symbols) const {
  const auto n = static_cast<uint32_t>(symbols.size());
  constexpr uint32_t kEnd = UINT32_MAX;
  struct Link {
    uint32_t previous, next;
    // Rank of the pair with the next symbol; kNoMerge once this symbol is merged into the symbol on
    // its left.
    uint32_t rank;
    int32_t merged;
  };
  std::vector<Link> links(n);
  std::vector<uint64_t> entries;  // each is rank << 32 | position
  entries.reserve(n);
  for (uint32_t i = 0; i < n; ++i) {
    links[i] = {i == 0 ? kEnd : i - 1, i + 1 < n ? i + 1 : kEnd, kNoMerge, -1};
    if (i + 1 == n) break;
    const Found found = FindMerge(symbols[i], symbols[i + 1]);
    links[i].rank = found.rank;
    links[i].merged = found.merged;
    if (found.rank != kNoMerge) entries.push_back(uint64_t{found.rank} << 32 | i);
  }
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> queue(std::greater<>(),
                                                                             std::move(entries));
  const auto look_up = [&](uint32_t i) {
    Link& link = links[i];
    link.rank = kNoMerge;
    if (link.next == kEnd) return;
    const Found found = FindMerge(symbols[i], symbols[link.next]);
    link.rank = found.rank;
    link.merged = found.merged;
    if (found.rank != kNoMerge) queue.push(uint64_t{found.rank} << 32 | i);
  };
  while (!queue.empty()) {
    const auto at = static_cast<uint32_t>(queue.top());
    const auto rank = static_cast<uint32_t>(queue.top() >> 32);
    queue.pop();
    Link& link = links[at];
    if (link.rank != rank) continue;  // The entry is outdated.
    const uint32_t gone = link.next;
    symbols[at] = link.merged;
    link.next = links[gone].next;
    links[gone].rank = kNoMerge;
    if (link.next != kEnd) links[link.next].previous = at;
    look_up(at);
    if (link.previous != kEnd) look_up(link.previous);
  }
  size_t out = 0;
  for (uint32_t i = 0; i != kEnd; i = links[i].next) symbols[out++] = symbols[i];
  symbols.resize(out);
}

}  // namespace sluice

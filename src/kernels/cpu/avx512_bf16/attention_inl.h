// One chunk of attention by BF16 dot products (vdpbf16ps), if rounding to BF16 is allowed.
//
// Queries and the weights of the softmax are rounded to BF16. The file that includes this defines
// how keys and values are read, by a class Kv:
//   kBytes: bytes per element in a panel;
//   kVectors: vectors of 16 pairs of BF16 per read, 1 or 2;
//   kTileRows: rows of a tile, whose sums, with Kv's constants, fit in the registers;
//   Read(panel, pair, vectors): reads [kVectors] vectors of pairs from `pair` on, or one;
//   Read(panel, pair, lanes, vectors): reads one masked vector of values, if they do not fill
//     kVectors.
//
// Per row: a score is one chain of dot-product steps over pairs of elements. The sum of the rounded
// weights is computed in lanes of pairs of positions. An output element is one chain of steps over
// the pairs of positions (2 i, 2 i + 1) that the row sees; within a pair, a position that it does
// not see counts as zero. None of this depends on the other rows of the tile.
#pragma once

#include <algorithm>
#include <utility>

#include "kernels/attention.h"
#include "kernels/cpu/avx512/simd.h"
#include "kernels/cpu/avx512_bf16/dot_inl.h"
#include "kernels/cpu/avx512_bf16/kernels.h"
#include "kernels/cpu/avx512_bf16/softmax_inl.h"
#include "kernels/cpu/tiles_inl.h"

namespace sluice::kernels::avx512_bf16 {
namespace {

constexpr int kTileVectors = 4;  // vectors of sums per row of a tile
constexpr int kPositions = kAttentionPanelPositions;
constexpr uint32_t kFirst = 0xFFFF, kSecond = 0xFFFF0000;  // masks of the two positions of a pair

// Forced inline: GCC 12 assumes that a function that only prefetches has no side effects, and
// removes its calls.
__attribute__((always_inline)) inline void Fetch(const uint8_t* line) {
  _mm_prefetch(reinterpret_cast<const char*>(line), _MM_HINT_T1);
}

// The panels that a call reads, and the panels of the next chunk, which it prefetches to L2.
struct Panels {
  int first, end;  // panels [first, end) of the chunk
  // count() panels each of keys, values, next keys and next values, in this order.
  const uint8_t* order[4 * kAttentionPanels];

  int count() const { return end - first; }
  const uint8_t* const* keys(int panel) const { return order + (panel - first); }
  const uint8_t* const* values(int panel) const { return keys(panel) + count(); }
  int ahead() const { return 2 * count(); }
};

// Prefetches the next chunk in small parts between the work of many rows. With only a few rows, the
// rows would have to wait for the prefetches.
class Fetcher {
 public:
  Fetcher(const AttentionChunkArgs& args, int64_t panel_bytes)
      : args_(args), panel_bytes_(panel_bytes) {}

  // The next `times` calls of Some together prefetch the bytes before `share_end`.
  void Begin(int64_t share_end, int times) {
    const int64_t lines = (share_end - next_ + 63) / 64;
    lines_at_once_ = static_cast<int>((lines + times - 1) / times);
    share_end_ = share_end;
  }
  void Some() {
    for (int i = 0; i < lines_at_once_ && next_ < share_end_; ++i, next_ += 64) {
      const auto panel = static_cast<int>(next_ / panel_bytes_);
      const void* from = panel < kAttentionPanels ? args_.next_k_panels[panel]
                                                  : args_.next_v_panels[panel - kAttentionPanels];
      Fetch(static_cast<const uint8_t*>(from) + next_ % panel_bytes_);
    }
  }
  int64_t bytes() const { return 2 * kAttentionPanels * panel_bytes_; }

 private:
  const AttentionChunkArgs& args_;
  int64_t panel_bytes_;
  int64_t next_ = 0, share_end_ = 0;
  int lines_at_once_ = 0;
};

// Rounds the queries of a tile of rows to BF16: tile [rows, kMaxKeyDim].
inline void RoundQueries(const float* q, int rows, int head_dim, uint16_t* tile) {
  for (int r = 0; r < rows; ++r) {
    for (int d = 0; d < head_dim; d += kLanes) {
      const Floats values = Load(q + int64_t{r} * head_dim + d, FirstLanes(head_dim - d));
      _mm256_store_si256(reinterpret_cast<__m256i*>(tile + r * kMaxKeyDim + d),
                         RoundedBits(values));
    }
  }
}

// Computes scores[kRows, kAttentionChunk] of a tile of rows at the positions of kPanels panels.
template <typename Kv, bool kFetch, int kRows, int kPanels>
inline void ScorePanels(const uint16_t* q, int head_dim, const uint8_t* const* panels,
                        const uint8_t* const* panels_ahead, float* scores) {
  __m512 acc[kRows][kPanels];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) acc[r][p] = _mm512_setzero_ps();
  }
  const uint8_t* now[kPanels];
  const uint8_t* ahead[kPanels];
  for (int p = 0; p < kPanels; ++p) {
    now[p] = panels[p];
    ahead[p] = panels_ahead[p];
  }
  const Kv kv;
  // Number of panels that are read before their products, so that the products share a broadcast
  // query.
  constexpr int kAtOnce = Kv::kVectors == 1 ? kPanels : 1;
  for (int pair = 0; pair < head_dim / 2; pair += Kv::kVectors) {
    const int64_t offset = int64_t{pair} * kPositions;
#pragma GCC unroll 8
    for (int first = 0; first < kPanels; first += kAtOnce) {
      __m512bh keys[kAtOnce][Kv::kVectors];
#pragma GCC unroll 8
      for (int p = 0; p < kAtOnce; ++p) {
        kv.Read(now[first + p], offset, keys[p]);
        if constexpr (kFetch) Fetch(ahead[first + p] + offset * 2 * Kv::kBytes);
      }
#pragma GCC unroll 8
      for (int v = 0; v < Kv::kVectors; ++v) {
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const uint16_t* query = q + r * kMaxKeyDim + 2 * (pair + v);
          if constexpr (kAtOnce == 1) {
            acc[r][first] = DotOfAll(acc[r][first], keys[0][v], query);
          } else {
            const __m512bh all = Broadcast(query);
#pragma GCC unroll 8
            for (int p = 0; p < kAtOnce; ++p)
              acc[r][first + p] = _mm512_dpbf16_ps(acc[r][first + p], all, keys[p][v]);
          }
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p)
      Store(scores + r * kAttentionChunk + p * kPositions, acc[r][p]);
  }
}

// Load and store whole vectors (AllLanes), or the lanes of a mask.
struct AllLanes {};
inline Floats LoadLanes(const float* p, AllLanes) {
  return Load(p);
}
inline Floats LoadLanes(const float* p, Mask lanes) {
  return Load(p, lanes);
}
inline void StoreLanes(float* p, Floats v, AllLanes) {
  Store(p, v);
}
inline void StoreLanes(float* p, Floats v, Mask lanes) {
  Store(p, v, lanes);
}
template <typename Kv, int kVectors>
inline void ReadLanes(const Kv& kv, const uint8_t* panel, int64_t pair, AllLanes,
                      __m512bh (&vectors)[kVectors]) {
  kv.Read(panel, pair, vectors);
}
template <typename Kv>
inline void ReadLanes(const Kv& kv, const uint8_t* panel, int64_t pair, Mask lanes,
                      __m512bh (&vectors)[1]) {
  kv.Read(panel, pair, lanes, vectors);
}

// The rows whose weighted values are summed.
struct ValueRows {
  const float* weights;  // [rows, kAttentionChunk] floats, overwritten by Softmax
  float* out;            // [rows, value_dim]
  int value_dim;
};

// Adds the weighted values of positions [begin, end) to out[kRows][kVectors] from element d on; if
// `fresh`, starts from zero. panels(i): the panel of positions from 16 i on, and the panel to
// prefetch along with it if kFetch.
template <typename Kv, bool kFetch, int kRows, int kVectors, typename Lanes, typename Panels>
inline void AddValues(const ValueRows& rows, const Panels& panels, int begin, int end, bool fresh,
                      int d, Lanes lanes) {
  const auto* weights = reinterpret_cast<const uint16_t*>(rows.weights);
  float* out = rows.out + d;
  const int64_t value_dim = rows.value_dim;
  __m512 acc[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      acc[r][v] = fresh ? Zero() : LoadLanes(out + r * value_dim + v * kLanes, lanes);
    }
  }
  const Kv kv;
  constexpr int kRead = kVectors < Kv::kVectors ? 1 : Kv::kVectors;  // vectors read together
  constexpr int kAtOnce = Kv::kVectors == 1 ? kVectors : kRead;      // read before their products
  // Adds positions 2 pair and 2 pair + 1 of the chunk; `halves` selects one of them or both.
  const auto add = [&](const uint8_t* panel, const uint8_t* ahead, int pair, const auto& halves)
      __attribute__((always_inline)) {
    const int64_t offset = pair % (kPositions / 2) * value_dim + d;
#pragma GCC unroll 8
    for (int first = 0; first < kVectors; first += kAtOnce) {
      __m512bh values[kAtOnce];
#pragma GCC unroll 8
      for (int v = 0; v < kAtOnce; v += kRead) {
        const int64_t at = offset + (first + v) * kLanes;
        __m512bh read[kRead];
        ReadLanes(kv, panel, at, lanes, read);
#pragma GCC unroll 8
        for (int i = 0; i < kRead; ++i) values[v + i] = halves(read[i]);
        if constexpr (kFetch) Fetch(ahead + at * 2 * Kv::kBytes);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const uint16_t* weight = weights + r * 2 * kAttentionChunk + 2 * pair;
        if constexpr (Kv::kVectors == 2) {
#pragma GCC unroll 8
          for (int v = 0; v < kAtOnce; ++v)
            acc[r][first + v] = DotOfAll(acc[r][first + v], values[v], weight);
        } else {
          const __m512bh all = Broadcast(weight);
#pragma GCC unroll 8
          for (int v = 0; v < kAtOnce; ++v)
            acc[r][first + v] = _mm512_dpbf16_ps(acc[r][first + v], all, values[v]);
        }
      }
    }
  };
  const auto add_part = [&](int position, uint32_t half) __attribute__((always_inline)) {
    const uint8_t* panel = panels(position / kPositions).first;
    add(panel, panel, position / 2, [&](__m512bh pairs) {
      return reinterpret_cast<__m512bh>(_mm512_and_si512(
          reinterpret_cast<__m512i>(pairs), _mm512_set1_epi32(static_cast<int>(half))));
    });
  };
  int position = begin;
  if (position % 2 != 0 && position < end) add_part(position++, kSecond);
  while (position + 1 < end) {
    const auto [panel, ahead] = panels(position / kPositions);
    const int next = position / kPositions * kPositions + kPositions;
    const int pairs_end = (next < end ? next : end) / 2;
    for (int pair = position / 2; pair < pairs_end; ++pair)
      add(panel, ahead, pair, [](__m512bh pairs) { return pairs; });
    position = 2 * pairs_end;
  }
  if (position < end) add_part(position, kFirst);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      StoreLanes(out + r * value_dim + v * kLanes, acc[r][v], lanes);
  }
}

template <typename Kv, bool kFetch, int kRows, typename Panels>
inline void AddAllValues(const ValueRows& rows, const Panels& panels, int begin, int end,
                         bool fresh) {
  int d = 0;
  const auto add = [&]<int kVectors>() __attribute__((always_inline)) {
    for (; d + kVectors * kLanes <= rows.value_dim; d += kVectors * kLanes)
      AddValues<Kv, kFetch, kRows, kVectors>(rows, panels, begin, end, fresh, d, AllLanes());
  };
  add.template operator()<kTileVectors>();
  if constexpr (Kv::kVectors > 1) add.template operator()<Kv::kVectors>();
  for (; d < rows.value_dim; d += kLanes) {
    AddValues<Kv, kFetch, kRows, 1>(rows, panels, begin, end, fresh, d,
                                    FirstLanes(rows.value_dim - d));
  }
}

// Computes rows [row, row + kRows), each of which sees at least one position. kFetch: whether the
// next chunk is prefetched line by line; otherwise `fetcher` prefetches it.
template <typename Kv, bool kFetch, int kRows>
void AttendRows(const AttentionChunkArgs& args, const Panels& panels, int row, Fetcher& fetcher) {
  alignas(64) uint16_t q[kRows * kMaxKeyDim];
  RoundQueries(args.q + int64_t{row} * args.head_dim, kRows, args.head_dim, q);
  // A row sees positions [start, limit). Both bounds are non-decreasing over the rows.
  const int last = row + kRows - 1;
  const int panel_end = (args.limits[last] + kPositions - 1) / kPositions;
  // Every tile puts its scores at the beginning of the scratch, so that they stay in L1.
  const auto score = [&]<int kPanels>(int panel) __attribute__((always_inline)) {
    const uint8_t* const* keys = panels.keys(panel);
    ScorePanels<Kv, kFetch, kRows, kPanels>(q, args.head_dim, keys, keys + panels.ahead(),
                                            args.scores + panel * kPositions);
    if constexpr (!kFetch) fetcher.Some();
  };
  int panel = args.starts[row] / kPositions;
  for (; panel + kTileVectors <= panel_end; panel += kTileVectors)
    score.template operator()<kTileVectors>(panel);
  for (; panel < panel_end; ++panel) score.template operator()<1>(panel);
  for (int r = row; r <= last; ++r) {
    Softmax(args.scores + (r - row) * kAttentionChunk, args.starts[r], args.limits[r],
            args.soft_cap, args.largest[r], args.sum[r]);
    if constexpr (!kFetch) fetcher.Some();
  }

  // Pairs of positions that all rows see are added for all rows together. The other pairs are added
  // row by row, because a weight of zero would not cancel a NaN.
  const auto rows = [&](int r) {
    return ValueRows{args.scores + (r - row) * kAttentionChunk,
                     args.out + int64_t{r} * args.value_dim, args.value_dim};
  };
  const auto values = [&](int i) {
    return std::pair(panels.values(i)[0], panels.values(i)[panels.ahead()]);
  };
  const int common_begin = (args.starts[last] + 1) / 2 * 2;
  const int common_end = args.limits[row] / 2 * 2;
  if (kRows == 1 || common_begin >= common_end) {
    for (int r = row; r <= last; ++r)
      AddAllValues<Kv, kFetch, 1>(rows(r), values, args.starts[r], args.limits[r], true);
    return;
  }
  const bool apart = args.starts[row] < common_begin;
  if (apart) {
    for (int r = row; r <= last; ++r)
      AddAllValues<Kv, false, 1>(rows(r), values, args.starts[r], common_begin, true);
  }
  AddAllValues<Kv, kFetch, kRows>(rows(row), values, common_begin, common_end, !apart);
  for (int r = row; r <= last; ++r) {
    if (common_end < args.limits[r])
      AddAllValues<Kv, false, 1>(rows(r), values, common_end, args.limits[r], false);
  }
}

template <typename Kv>
void AttendChunk(const AttentionChunkArgs& args) {
  constexpr int kMostRows = Kv::kTileRows;
  Panels panels;
  panels.first = kAttentionPanels;
  panels.end = 0;
  for (int row = 0; row < args.rows; ++row) {
    if (args.limits[row] == 0) continue;
    const int first = args.starts[row] / kPositions;
    const int end = (args.limits[row] + kPositions - 1) / kPositions;
    if (first < panels.first) panels.first = first;
    if (end > panels.end) panels.end = end;
  }
  const int count = std::max(panels.count(), 0);
  for (int i = 0; i < count; ++i) {
    const auto add = [&](int part, const void* panel) {
      panels.order[part * count + i] = static_cast<const uint8_t*>(panel);
    };
    add(0, args.k_panels[panels.first + i]);
    add(1, args.v_panels[panels.first + i]);
    add(2, args.next_k_panels[i]);
    add(3, args.next_v_panels[i]);
  }

  Fetcher fetcher(args, int64_t{kPositions} * args.head_dim * Kv::kBytes);
  for (int row = 0; row < args.rows;) {
    if (args.limits[row] == 0) {
      ++row;
      continue;
    }
    int rows = 1;
    while (row + rows < args.rows && args.limits[row + rows] > 0) ++rows;
    const int tiles = (rows + kMostRows - 1) / kMostRows;
    for (int i = 0; i < tiles; ++i) {
      const int begin = row + rows * i / tiles;
      const int end = row + rows * (i + 1) / tiles;
      fetcher.Begin(fetcher.bytes() * end / args.rows, count / kTileVectors + end - begin);
      RunTile<kMostRows, 1>(begin, end - begin, 0, [&]<int kRows, int>(int64_t first, int64_t) {
        if (args.rows <= kMostRows)
          AttendRows<Kv, true, kRows>(args, panels, static_cast<int>(first), fetcher);
        else
          AttendRows<Kv, false, kRows>(args, panels, static_cast<int>(first), fetcher);
      });
    }
    row += rows;
  }
}

}  // namespace
}  // namespace sluice::kernels::avx512_bf16

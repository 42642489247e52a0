// linear for few rows of BF16 inputs with weights as codes, which are converted to F32 in
// registers. Uses the vector operations of a simd.h, which must be included first. Same arithmetic
// as linear_inl.h.
//
// Each format has a class that defines its conversion (float_codes_inl.h of an ISA); PlainCodes has
// the defaults:
//   kInputs: number of inputs whose codes share a word;
//   kGroupInputs: number of inputs that share a scale or zero point; without groups, a step's 32;
//   kHasScales, Scales, ScalesAt(p): the prepared scales of the kLanes rows at p; or NoGroupScales;
//   AreUsual(p, count): whether this arithmetic is correct for the scales at p;
//   Ready, Prepare(words): a vector of words, prepared for NumbersOf;
//   NumbersOf<i>(ready, scales): the numbers of input i, times kTimes, a power of two. The sums are
//   scaled by kTimes, too; sums beyond 2^104 would overflow F32;
//   kRescales: whether the scales are powers of two that multiply the sums instead of the numbers:
//   before each group, FactorOf(from, to) converts the sums from the previous group's scale to
//   this group's. This changes no bits if AreUsual, AreUsualInputs and AreUsualSums hold (they do
//   unless a number is extremely large or small), as no rounding depends on a power of two;
//   kHasUnusual: whether there are codes that only PrepareAny converts, not Prepare. Then
//   Unusual, with Add(words) and Found(): detects such codes among the words added.
#pragma once

#include "kernels/cpu/linear_inl.h"

namespace sluice::kernels {
namespace {

constexpr int64_t kCodeLineBytes = 64;  // a word of each row

struct NoGroupScales {};

// Defaults that most formats share.
struct PlainCodes {
  static constexpr int kGroupInputs = kStepInputs;
  static constexpr float kTimes = 1;
  static constexpr bool kHasScales = false;
  static constexpr bool kRescales = false;
  using Scales = NoGroupScales;
  static bool AreUsual(const uint8_t* /*scales*/, int64_t /*count*/) { return true; }
  using Ready = Words;
  __attribute__((always_inline)) static Words Prepare(Words words) { return words; }
  static constexpr bool kHasUnusual = false;
};

// The numbers of input kInput, as F32, from words that each hold a pair of BF16 numbers.
template <int kInput>
inline Floats NumbersOfPairs(Words pairs) {
  return kInput % 2 == 0 ? FirstOfPair(pairs) : SecondOfPair(pairs);
}

// Formats with one-byte codes that are converted to BF16 first.
struct PairCodes : PlainCodes {
  static constexpr int kInputs = 4;
  struct Ready {
    Words pairs[2];
  };
  template <int kInput>
  __attribute__((always_inline)) static Floats NumbersOf(const Ready& ready,
                                                         NoGroupScales /*scales*/) {
    return NumbersOfPairs<kInput>(ready.pairs[kInput / 2]);
  }
};

// A segment of the codes of some panels, with prepared scales [group][vector]. If Codes::kRescales,
// it also has factors: one before each group, and one after the last group.
template <typename Codes, int kPanels>
struct SegmentCodes {
  static constexpr int kVectors = kPanels * kPanelVectors;
  static constexpr int64_t kGroups = kSegmentInputs / Codes::kGroupInputs;

  __attribute__((always_inline)) Words WordsAt(int64_t line, int v) const {
    return LoadWords(codes[v / kPanelVectors] + line * kCodeLineBytes +
                     v % kPanelVectors * kLanes * 4);
  }
  __attribute__((always_inline)) auto ScalesAt(int64_t line, int v) const {
    if constexpr (!Codes::kHasScales || Codes::kRescales)
      return NoGroupScales{};
    else
      return scales[line / (Codes::kGroupInputs / Codes::kInputs) * kVectors + v];
  }
  // Prepares the scales at `from` of `panel` for `inputs` inputs. Returns whether all scales are
  // usual.
  bool MakeScalesReady(int panel, const uint8_t* from, int64_t inputs) {
    const int64_t groups = inputs / Codes::kGroupInputs;
    for (int v = 0; v < kPanelVectors; ++v) {
      typename Codes::Scales* const to = scales + panel * kPanelVectors + v;
      if constexpr (Codes::kRescales) {
        auto scale = Codes::UnitScale();
        for (int64_t group = 0; group < groups; ++group) {
          const auto next = Codes::ScaleCodes(from + group * kPanelRows + v * kLanes);
          to[group * kVectors] = Codes::FactorOf(scale, next);
          scale = next;
        }
        to[groups * kVectors] = Codes::FactorOf(scale, Codes::UnitScale());
      } else {
        for (int64_t group = 0; group < groups; ++group)
          to[group * kVectors] = Codes::ScalesAt(from + group * kPanelRows + v * kLanes);
      }
    }
    return Codes::AreUsual(from, groups * kPanelRows);
  }

  const uint8_t* codes[kPanels];
  typename Codes::Scales scales[(kGroups + (Codes::kRescales ? 1 : 0)) * kVectors];
};

// Calls body.operator()<i>() for i from kBegin to kEnd - 1.
template <int kBegin, int kEnd, typename Body>
__attribute__((always_inline)) inline void ForEachIndex(const Body& body) {
  if constexpr (kBegin < kEnd) {
    body.template operator()<kBegin>();
    ForEachIndex<kBegin + 1, kEnd>(body);
  }
}

// Whether a line has codes that Prepare does not convert.
template <typename Codes, int kPanels>
__attribute__((always_inline)) inline bool HasUnusual(const SegmentCodes<Codes, kPanels>& codes,
                                                      int64_t line) {
  typename Codes::Unusual unusual;
#pragma GCC unroll 8
  for (int v = 0; v < kPanels * kPanelVectors; ++v) unusual.Add(codes.WordsAt(line, v));
  return unusual.Found();
}

// Not inlined, because its constants would take registers from the loop over a tile.
template <typename Codes, int kPanels>
__attribute__((noinline)) void PrepareUnusualLine(const SegmentCodes<Codes, kPanels>& codes,
                                                  int64_t line, typename Codes::Ready* ready) {
#pragma GCC unroll 1
  for (int v = 0; v < kPanels * kPanelVectors; ++v)
    ready[v] = Codes::PrepareAny(codes.WordsAt(line, v));
}

// Returns whether most lines have such codes: true for random codes, but not for codes of real
// checkpoints. Examines only some lines.
template <typename Codes, int kPanels>
inline bool AreMostlyUnusual(const SegmentCodes<Codes, kPanels>& codes, int64_t lines) {
  constexpr int64_t kSamples = 8;
  int64_t unusual = 0;
  for (int64_t i = 0; i < kSamples; ++i) unusual += HasUnusual(codes, lines * i / kSamples) ? 1 : 0;
  return unusual > kSamples / 2;
}

template <int kRows, int kVectors>
__attribute__((always_inline)) inline void MultiplyAll(float factor,
                                                       Floats (&acc)[kRows][kVectors]) {
  if (factor == 1) return;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) acc[r][v] = Mul(acc[r][v], Set(factor));
  }
}

// Adds a tile's products for `lines` lines of codes. x: rows kSegmentInputs apart.
template <typename Codes, int kRows, int kPanels>
__attribute__((noinline)) void AddCodes(const float* x, const SegmentCodes<Codes, kPanels>& codes,
                                        int64_t lines, const TileSums<kRows, kPanels>& sums) {
  constexpr int kVectors = kPanels * kPanelVectors;
  // Number of vectors of words that are processed together, so that the sums of few rows need not
  // wait for one another.
  constexpr int kTogether = kLanes == 8 && kRows == 1 ? 2 : 1;
  Floats acc[kRows][kVectors];
  sums.Load(acc);
  MultiplyAll(Codes::kTimes, acc);
  const auto rescale = [&](int64_t group) __attribute__((always_inline)) {
    if constexpr (Codes::kRescales) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const Floats factor = codes.scales[group * kVectors + v];
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) acc[r][v] = Mul(acc[r][v], factor);
      }
    }
  };
  const auto add = [&](int64_t line, const auto& ready_of) __attribute__((always_inline)) {
    const float* inputs = x + line * Codes::kInputs;
#pragma GCC unroll 8
    for (int first = 0; first < kVectors; first += kTogether) {
      // Without this, GCC 12 keeps the inputs of earlier vectors in registers and spills sums to
      // the stack.
      asm volatile("" ::: "memory");
      typename Codes::Ready ready[kTogether];
#pragma GCC unroll 8
      for (int i = 0; i < kTogether; ++i) ready[i] = ready_of(first + i);
      ForEachIndex<0, Codes::kInputs>([&]<int kInput>() __attribute__((always_inline)) {
#pragma GCC unroll 8
        for (int i = 0; i < kTogether; ++i) {
          const int v = first + i;
          const Floats numbers =
              Codes::template NumbersOf<kInput>(ready[i], codes.ScalesAt(line, v));
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r)
            acc[r][v] = MulAdd(Set(inputs[r * kSegmentInputs + kInput]), numbers, acc[r][v]);
        }
      });
    }
  };
  constexpr int64_t kGroupLines = Codes::kGroupInputs / Codes::kInputs;
  for (int64_t line = 0; line < lines; ++line) {
    if (Codes::kRescales && line % kGroupLines == 0) rescale(line / kGroupLines);
    if constexpr (Codes::kHasUnusual) {
      if (HasUnusual(codes, line)) [[unlikely]] {
        typename Codes::Ready ready[kVectors];
        PrepareUnusualLine(codes, line, ready);
        add(
            line, [&](int v) __attribute__((always_inline)) { return ready[v]; });
        continue;
      }
    }
    add(
        line, [&](int v) __attribute__((always_inline)) {
          return Codes::Prepare(codes.WordsAt(line, v));
        });
  }
  rescale(lines / kGroupLines);
  MultiplyAll(1 / Codes::kTimes, acc);
  sums.Store(acc);
}

// Whether Codes::AreUsualSums holds for the sums of `rows` rows and kPanels panels from `first` on.
template <typename Codes, int kPanels>
inline bool AreUsualSums(const float* first, int64_t stride, int64_t rows) {
  bool usual = true;
  for (int64_t row = 0; row < rows; ++row)
    usual &= Codes::AreUsualSums(first + row * stride, kPanels * kPanelRows);
  return usual;
}

// If there are at least this many rows and most lines have unusual codes, expanding all codes is
// faster.
constexpr int64_t kRowsToExpandUnusual = 4;

// Adds the products of a segment in tiles of up to kMaxRows rows by kWidePanels panels.
template <typename Codes, int kMaxRows, int kWidePanels>
inline void AddCodesSegment(const LinearArgs& args, const Segment& segment, const float* x,
                            int64_t rows, int64_t panel_begin, int64_t panel_end, ChunkSums& sums) {
  const int64_t step = segment.begin / kStepInputs;
  bool are_usual_inputs = true;
  if constexpr (Codes::kRescales) {
    for (int64_t row = 0; row < rows; ++row)
      are_usual_inputs &= Codes::AreUsualInputs(x + row * kSegmentInputs, segment.count);
  }
  ForEachPanelGroup<kWidePanels>(0, panel_end - panel_begin, [&]<int kPanels>(int64_t panel) {
    SegmentCodes<Codes, kPanels> codes;
    bool are_usual = are_usual_inputs;
    if constexpr (Codes::kRescales) {
      if (!segment.starts)
        are_usual &= AreUsualSums<Codes, kPanels>(sums.At(0, panel), sums.stride, rows);
    }
    for (int p = 0; p < kPanels; ++p) {
      const int64_t index = panel_begin + panel + p;
      codes.codes[p] = CodesAt(args, index, step, args.code_step_bytes);
      if constexpr (Codes::kHasScales) {
        are_usual &= codes.MakeScalesReady(p, ScalesAt(args, index, step), segment.count);
      }
    }
    if constexpr (Codes::kHasUnusual) {
      if (rows >= kRowsToExpandUnusual)
        are_usual &= !AreMostlyUnusual(codes, segment.count / Codes::kInputs);
    }
    if (!are_usual) [[unlikely]] {
      ChunkSums rest = sums.From(panel);
      AddSegment<true, kMaxRows, kPanels>(args, segment, x, kSegmentInputs, rows,
                                          panel_begin + panel, panel_begin + panel + kPanels, rest);
      return;
    }
    ForEachTile<kMaxRows, kPanels>(
        0, rows, 0, kPanels, [&]<int kRows, int kTilePanels>(int64_t row, int64_t) {
          if constexpr (kTilePanels == kPanels) {
            AddCodes(x + row * kSegmentInputs, codes, segment.count / Codes::kInputs,
                     TileSumsAt<kRows, kPanels>(args, segment, sums, row, panel_begin, panel));
          }
        });
  });
}

template <typename Codes, int kMaxRows, int kWidePanels>
void MultiplyCodes(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                   int64_t panel_end) {
  const int64_t rows = row_end - row_begin;
  MultiplyChunk<true>(
      args, row_begin, rows, panel_begin, panel_end,
      [&](const Segment& segment, const float* x, int64_t /*x_stride*/, ChunkSums& sums) {
        AddCodesSegment<Codes, kMaxRows, kWidePanels>(args, segment, x, rows, panel_begin,
                                                      panel_end, sums);
      });
}

}  // namespace
}  // namespace sluice::kernels

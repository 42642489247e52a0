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
//   NumbersOf<i>(ready, scales): the numbers of input i, times kTimes, a power of two;
//   kInputTimes: the inputs are multiplied by this power of two first. During a segment, sums are
//   kTimes * kInputTimes as large as otherwise; if this is 2^24, sums beyond 2^104 overflow F32;
//   kNeedsUsual: whether the powers of two change bits unless AreUsualInputs and AreUsualSums hold
//   (they do unless a number is extremely large or small);
//   kRescales: whether the scales are powers of two that multiply the sums instead of the numbers:
//   before each group, FactorOf(from, to) converts the sums from the previous group's scale to
//   this group's. No rounding of usual numbers depends on a power of two;
//   kHasUnusual: whether there are codes that only PrepareAny converts, not Prepare. Then
//   Unusual, with Add(words) and Found(): detects such codes among the words added;
//   Exceptions, with Add(words) and Found(): detects codes that the class cannot convert. A segment
//   that contains one is multiplied as in linear_inl.h, after its codes are expanded to BF16.
#pragma once

#include "kernels/cpu/linear_inl.h"

namespace sluice::kernels {
namespace {

constexpr int64_t kCodeLineBytes = 64;  // a word of each row

struct NoGroupScales {};
constexpr NoGroupScales kNoGroupScales;

struct NoExceptions {
  void Add(Words /*words*/) {}
  bool Found() const { return false; }
};

// Defaults that most formats share.
struct PlainCodes {
  static constexpr int kGroupInputs = kStepInputs;
  static constexpr float kTimes = 1;
  static constexpr float kInputTimes = 1;
  static constexpr bool kNeedsUsual = false;
  static constexpr bool kHasScales = false;
  static constexpr bool kRescales = false;
  using Scales = NoGroupScales;
  static bool AreUsual(const uint8_t* /*scales*/, int64_t /*count*/) { return true; }
  using Ready = Words;
  __attribute__((always_inline)) static Words Prepare(Words words) { return words; }
  static constexpr bool kHasUnusual = false;
  using Exceptions = NoExceptions;
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
  __attribute__((always_inline)) const auto& ScalesAt(int64_t line, int v) const {
    if constexpr (!Codes::kHasScales || Codes::kRescales)
      return kNoGroupScales;
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
  const uint8_t* next_codes[kPanels];  // codes that are read next, for prefetching
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

// Returns the number of vectors of words that are processed together: as many as possible, because
// more sums in flight wait less for their previous additions, but only so many that the sums stay
// in registers.
template <typename Codes, int kRows, int kVectors>
constexpr int VectorsTogether() {
  if (kLanes == 16) return 1;
  if (kRows > 1) return Codes::kHasUnusual ? 1 : kPanelVectors;
  if (Codes::kHasUnusual) return kPanelVectors;
  constexpr bool kNeedsRegisters =
      Codes::kInputTimes != 1 || (Codes::kHasScales && !Codes::kRescales);
  return kNeedsRegisters && kVectors % 3 == 0 ? 3 : kVectors;
}

// Adds a tile's products for `lines` lines of codes. x: rows kSegmentInputs apart, multiplied by
// Codes::kInputTimes. Returns false, and adds nothing, if the codes of a single row contain
// exceptions; for several rows, see HasExceptions.
template <typename Codes, int kRows, int kPanels>
__attribute__((noinline)) bool AddCodes(const float* x, const SegmentCodes<Codes, kPanels>& codes,
                                        int64_t lines, const TileSums<kRows, kPanels>& sums) {
  constexpr int kVectors = kPanels * kPanelVectors;
  constexpr int kTogether = VectorsTogether<Codes, kRows, kVectors>();
  constexpr float kSumTimes = Codes::kTimes * Codes::kInputTimes;
  Floats acc[kRows][kVectors];
  sums.Load(acc);
  MultiplyAll(kSumTimes, acc);
  typename Codes::Exceptions exceptions;
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
  // Not called from another function object: GCC 12 would then keep the sums on the stack.
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
        // Keeps inputs or numbers, whichever are fewer, in registers.
        if constexpr (kRows < kTogether) {
          Floats row_inputs[kRows];
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r)
            row_inputs[r] = LoadRepeated(inputs + r * kSegmentInputs + kInput);
#pragma GCC unroll 8
          for (int i = 0; i < kTogether; ++i) {
            const Floats numbers =
                Codes::template NumbersOf<kInput>(ready[i], codes.ScalesAt(line, first + i));
#pragma GCC unroll 8
            for (int r = 0; r < kRows; ++r) AddProduct(acc[r][first + i], row_inputs[r], numbers);
          }
        } else {
          Floats numbers[kTogether];
#pragma GCC unroll 8
          for (int i = 0; i < kTogether; ++i)
            numbers[i] =
                Codes::template NumbersOf<kInput>(ready[i], codes.ScalesAt(line, first + i));
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            const Floats input = LoadRepeated(inputs + r * kSegmentInputs + kInput);
#pragma GCC unroll 8
            for (int i = 0; i < kTogether; ++i) AddProduct(acc[r][first + i], input, numbers[i]);
          }
        }
      });
    }
  };
  constexpr int64_t kGroupLines = Codes::kGroupInputs / Codes::kInputs;
  const int64_t group_lines = Codes::kRescales ? kGroupLines : lines;
  for (int64_t begin = 0; begin < lines; begin += group_lines) {
    rescale(begin / kGroupLines);
    for (int64_t line = begin; line < begin + group_lines; ++line) {
      if constexpr (kLanes == 8) {
#pragma GCC unroll 8
        for (int p = 0; p < kPanels; ++p)
          __builtin_prefetch(codes.next_codes[p] + line * kCodeLineBytes);
      }
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
            const Words words = codes.WordsAt(line, v);
            if constexpr (kRows == 1) exceptions.Add(words);
            return Codes::Prepare(words);
          });
    }
  }
  rescale(lines / kGroupLines);
  if (exceptions.Found()) [[unlikely]]
    return false;
  MultiplyAll(1 / kSumTimes, acc);
  sums.Store(acc);
  return true;
}

// Whether the first `lines` lines contain codes that only linear_inl.h converts.
template <typename Codes, int kPanels>
inline bool HasExceptions(const SegmentCodes<Codes, kPanels>& codes, int64_t lines) {
  typename Codes::Exceptions exceptions;
  for (int64_t line = 0; line < lines; ++line) {
#pragma GCC unroll 8
    for (int v = 0; v < kPanels * kPanelVectors; ++v) exceptions.Add(codes.WordsAt(line, v));
  }
  return exceptions.Found();
}

// Multiplies the inputs of some rows by Codes::kInputTimes.
template <typename Codes>
inline void ScaleInputs(const float* x, int64_t rows, float* scaled) {
  for (int64_t i = 0; i < rows * kSegmentInputs; i += kLanes)
    Store(scaled + i, Mul(Load(x + i), Set(Codes::kInputTimes)));
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

// Maximum number of rows whose codes are expanded in registers. Each tile of rows expands the codes
// again; with more rows, expanding them once for all tiles is faster.
constexpr int64_t kCodeRows = kLanes == 16 ? 64 : 15;
static_assert(kCodeRows <= kChunkRows);

// Adds the products of a segment in tiles of up to kMaxRows rows by kWidePanels panels.
template <typename Codes, int kMaxRows, int kWidePanels>
inline void AddCodesSegment(const LinearArgs& args, const Segment& segment, const float* x,
                            int64_t rows, int64_t panel_begin, int64_t panel_end, ChunkSums& sums) {
  const int64_t step = segment.begin / kStepInputs;
  const int64_t lines = segment.count / Codes::kInputs;
  bool are_usual_inputs = true;
  if constexpr (Codes::kNeedsUsual) {
    for (int64_t row = 0; row < rows; ++row)
      are_usual_inputs &= Codes::AreUsualInputs(x + row * kSegmentInputs, segment.count);
  }
  constexpr bool kScalesInputs = Codes::kInputTimes != 1;
  alignas(64) float scaled[kScalesInputs ? kCodeRows * kSegmentInputs : 1];
  if constexpr (kScalesInputs) ScaleInputs<Codes>(x, rows, scaled);
  const float* const inputs = kScalesInputs ? scaled : x;
  ForEachPanelGroup<kWidePanels>(0, panel_end - panel_begin, [&]<int kPanels>(int64_t panel) {
    SegmentCodes<Codes, kPanels> codes;
    bool is_added = are_usual_inputs;
    if constexpr (Codes::kNeedsUsual) {
      if (!segment.starts)
        is_added &= AreUsualSums<Codes, kPanels>(sums.At(0, panel), sums.stride, rows);
    }
    const WeightPlace next = PlaceAfter<kPanels>(args, segment, panel_begin, panel, panel_end);
    const int64_t next_step = next.input / kStepInputs;
    for (int p = 0; p < kPanels; ++p) {
      const int64_t index = panel_begin + panel + p;
      codes.codes[p] = CodesAt(args, index, step, args.code_step_bytes);
      codes.next_codes[p] = CodesAt(args, next.panel + p, next_step, args.code_step_bytes);
      if constexpr (Codes::kHasScales) {
        const uint8_t* const scales = ScalesAt(args, next.panel + p, next_step);
        for (int64_t i = 0; i < kSegmentInputs / Codes::kGroupInputs * kPanelRows; i += 64)
          __builtin_prefetch(scales + i);
      }
      if constexpr (Codes::kHasScales) {
        is_added &= codes.MakeScalesReady(p, ScalesAt(args, index, step), segment.count);
      }
    }
    if constexpr (Codes::kHasUnusual) {
      if (rows >= kRowsToExpandUnusual) is_added &= !AreMostlyUnusual(codes, lines);
    }
    if constexpr (kMaxRows > 1) is_added &= !HasExceptions(codes, lines);
    if (is_added) [[likely]] {
      ForEachTile<kMaxRows, kPanels>(
          0, rows, 0, kPanels, [&]<int kRows, int kTilePanels>(int64_t row, int64_t) {
            if constexpr (kTilePanels == kPanels) {
              is_added = AddCodes(
                  inputs + row * kSegmentInputs, codes, lines,
                  TileSumsAt<kRows, kPanels>(args, segment, sums, row, panel_begin, panel));
            }
          });
    }
    if (!is_added) [[unlikely]] {
      ChunkSums rest = sums.From(panel);
      AddSegment<true, kMaxRows, kPanels>(args, segment, x, kSegmentInputs, rows,
                                          panel_begin + panel, panel_begin + panel + kPanels, rest);
    }
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

// Returns the function for `rows` rows, at most kCodeRows. Its tiles are as large as registers
// allow, as rows x panels. AVX-512 (32 registers): 2 x 4 or 8 x 2. AVX2 (16 registers): 1 x 3,
// 2 x 2 or 5 x 1; 4 x 1 if E4M3 codes also need registers.
template <typename Codes>
LinearFunction* FewRowsFunction(int64_t rows) {
  if constexpr (kLanes == 16) {
    if (rows <= 2) return MultiplyCodes<Codes, 2, 4>;
    return MultiplyCodes<Codes, 8, 2>;
  } else {
    if (rows == 1) return MultiplyCodes<Codes, 1, 3>;
    if (rows == 2) return MultiplyCodes<Codes, 2, 2>;
    constexpr int kMaxRows = Codes::kHasUnusual || Codes::kInputTimes != 1 ? 4 : 5;
    return MultiplyCodes<Codes, kMaxRows, 1>;
  }
}

}  // namespace
}  // namespace sluice::kernels

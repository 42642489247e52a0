// Attention's tiles of keys and values: copied from the blocks of the cache to shared memory, and
// loaded from there as operands of matrix products.
#pragma once

#include "kernels/cuda/device_code.h"
#include "kernels/cuda/device_kernels.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {

// Layout of one head's keys (or values) of consecutive positions in shared memory, as stored: one
// row per position, in pieces of 16 bytes. The pieces of eight rows at the same place are in
// different banks.
//
// Operands of products are BF16. With E4M3 they are F16, because one instruction converts two codes
// to F16; queries are scaled to F16's range by a power of two per row.
//
// kDim is the head size. It must fill whole loads and, in a wide tile, fit in registers. Special
// values of kDim:
// - 0: any head size up to 256, in whole steps of 16, with zeros beyond head_dim.
// - kLatentDim: latent vectors of any size up to kLatentDim, each followed by a shared key. Values
//   are the first elements of the keys, so there is one tile for both.
constexpr int kLatentDim = device::kMostLatentKeyDim;

template <bool kIsE4m3, int kDim>
struct KvTile {
  static constexpr bool kIsLatent = kDim == kLatentDim;
  static constexpr bool kHasAnyDim = kDim == 0 || kIsLatent;
  // Whether the queries of a warp's 16 rows, and the sums that a single warp computes, fit in
  // registers.
  static constexpr bool kFitsRegisters = kDim > 0 && kDim <= 128;
  static constexpr int kPositions = kFitsRegisters ? 64 : 32;
  static constexpr int kMaxSteps = (kDim == 0 ? 256 : kDim) / 16;
  static constexpr int kMaxValueSteps = kIsLatent ? device::kMostLatentDim / 16 : kMaxSteps;
  static constexpr int kNumberBytes = kIsE4m3 ? 1 : 2;
  static constexpr bool kIsSwizzled = !kHasAnyDim && kDim * kNumberBytes % 128 == 0;
  // Steps of 16 elements of a head that one LoadMatrix4 of keys covers.
  static constexpr int kStepsOfLoad = kIsE4m3 ? 4 : 2;

  int any_dim;
  int latent_dim = 0;  // only if kIsLatent: size of the values

  __host__ __device__ constexpr int head_dim() const { return kHasAnyDim ? any_dim : kDim; }
  __host__ __device__ constexpr int value_dim() const {
    return kIsLatent ? latent_dim : head_dim();
  }
  __host__ __device__ constexpr int steps() const { return (head_dim() + 15) / 16; }
  __host__ __device__ constexpr int value_steps() const { return (value_dim() + 15) / 16; }
  __host__ __device__ constexpr int pieces() const { return steps() * kNumberBytes; }
  __host__ __device__ constexpr int row_pieces() const {
    return kIsSwizzled ? pieces() : pieces() | 1;
  }
  __host__ __device__ constexpr int bytes() const { return kPositions * row_pieces() * 16; }

  __device__ unsigned char* Piece(unsigned char* tile, int row, int piece) const {
    return tile + (row * row_pieces() + (kIsSwizzled ? piece ^ (row & 7) : piece)) * 16;
  }

  // Called by all lanes of a warp. Copies rows [first_row, first_row + kRows) of keys, of values if
  // they are separate, or of both. Lane l passes the array row of tile row first_row + l, the same
  // in both arrays; kNoRow gives a row of zeros.
  static constexpr int32_t kNoRow = -1;
  template <int kRows, bool kWithKeys = true, bool kWithValues = true>
  __device__ void Copy(unsigned char* keys, unsigned char* values, const unsigned char* all_keys,
                       const unsigned char* all_values, int first_row, int32_t array_row) const {
    static_assert(kRows <= 32);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int row_bytes = head_dim() * kNumberBytes;
    const int count = kRows * pieces();
    for (int begin = 0; begin < count; begin += 32) {
      const int row = (begin + lane) / pieces(), piece = (begin + lane) % pieces();
      const int32_t from_row = __shfl_sync(0xFFFFFFFFu, array_row, row % kRows);
      if (begin + lane >= count) continue;
      unsigned char* key = Piece(keys, first_row + row, piece);
      unsigned char* value = Piece(values, first_row + row, piece);
      const bool is_row = from_row != kNoRow;
      const int64_t at = static_cast<int64_t>(is_row ? from_row : 0) * row_bytes;
      if (kHasAnyDim && row_bytes % 16 != 0) {
        if constexpr (kWithKeys) CopyHalves(key, all_keys + at, is_row, piece * 16, row_bytes);
        if constexpr (kWithValues && !kIsLatent)
          CopyHalves(value, all_values + at, is_row, piece * 16, row_bytes);
      } else {
        const bool is_valid = is_row && piece * 16 < row_bytes;
        const int64_t from = piece * 16 < row_bytes ? at + piece * 16 : 0;
        if constexpr (kWithKeys) AsyncCopy16(key, all_keys + from, is_valid);
        if constexpr (kWithValues && !kIsLatent) AsyncCopy16(value, all_values + from, is_valid);
      }
    }
  }

  // Called by all lanes of a warp. Loads keys for the scores of 16 query rows against the eight
  // positions from `position` on: steps [step, step + kStepsOfLoad) as operand b of Multiply; steps
  // beyond steps() are unspecified. The 16 elements of a step have the order of LoadQuery. `lane`:
  // this thread's lane.
  __device__ void LoadKeys(uint32_t (&b)[kStepsOfLoad][2], unsigned char* tile, int position,
                           int step, int lane) const {
    uint32_t codes[4];
    LoadMatrix4(
        codes, Piece(tile, position + lane % 8, min(step * kNumberBytes + lane / 8, pieces() - 1)));
    SLUICE_UNROLL
    for (int i = 0; i < kStepsOfLoad; ++i) {
      if constexpr (kIsE4m3) {
        E4m3x4ToF16(codes[i], b[i][0], b[i][1]);
      } else {
        b[i][0] = codes[2 * i];
        b[i][1] = codes[2 * i + 1];
      }
    }
  }

  // Called by a pair of warps together: d += a b.
  static __device__ __forceinline__ void Multiply(float (&d)[4], const uint32_t (&a)[4],
                                                  const uint32_t (&b)[2]) {
    if constexpr (kIsE4m3)
      PairMmaF16(d, a, b);
    else
      PairMmaBf16(d, a, b);
  }
  // Packs two numbers for an operand of Multiply; kOnes: two ones.
  static __device__ __forceinline__ uint32_t Pack(float low, float high) {
    return kIsE4m3 ? PackF16(low, high) : PackBf16(low, high);
  }
  static constexpr uint32_t kOnes = kIsE4m3 ? 0x3C003C00u : 0x3F803F80u;

  // Loads this lane's part of a step of two query rows, its rows g and g + 8, in BF16; a null row
  // is all zeros. For E4M3, ConvertQuery makes it operand a.
  __device__ void LoadQuery(uint32_t (&a)[4], const uint16_t* const (&rows)[2], int step) const {
    const int t = static_cast<int>(threadIdx.x) % 4;
    SLUICE_UNROLL
    for (int r = 0; r < 2; ++r) {
      a[r] = a[r + 2] = 0;
      if (rows[r] == nullptr) continue;
      if constexpr (kIsE4m3) {
        const int d = step * 16 + 4 * t;
        if (d >= head_dim()) continue;
        const uint2 pairs = *reinterpret_cast<const uint2*>(rows[r] + d);
        a[r] = pairs.x;
        a[r + 2] = pairs.y;
      } else {
        const int d = step * 16 + 2 * t;
        if (d < head_dim()) a[r] = Pair(rows[r] + d);
        if (d + 8 < head_dim()) a[r + 2] = Pair(rows[r] + d + 8);
      }
    }
  }

  // E4M3 only. Call with the result of LoadQuery for every step of the two rows: accumulates their
  // largest exponents. ShareQueryExponents then combines those of a row's four lanes.
  static __device__ __forceinline__ void FindQueryExponents(const uint32_t (&a)[4],
                                                            uint32_t (&exponents)[2]) {
    SLUICE_UNROLL
    for (int i = 0; i < 4; ++i) {
      exponents[i % 2] = max(exponents[i % 2], a[i] >> 23 & 0xFFu);
      exponents[i % 2] = max(exponents[i % 2], a[i] >> 7 & 0xFFu);
    }
  }
  // Called by all lanes of a warp. Combines the largest exponents of a row's four lanes.
  static __device__ __forceinline__ void ShareQueryExponents(uint32_t (&exponents)[2]) {
    // Below this exponent, the power of two or its inverse would not be a normal number. Such
    // scores are 0 anyway.
    constexpr uint32_t kLeast = 15;
    SLUICE_UNROLL
    for (int r = 0; r < 2; ++r) {
      SLUICE_UNROLL
      for (int mask = 1; mask <= 2; mask *= 2)
        exponents[r] = max(exponents[r], __shfl_xor_sync(0xFFFFFFFFu, exponents[r], mask));
      exponents[r] = max(exponents[r], kLeast);
    }
  }
  // Return the power of two that scales the largest number of a row to [2^14, 2^15), and its
  // inverse.
  static __device__ __forceinline__ float QueryScale(uint32_t exponent) {
    return FloatFromBits((268 - exponent) << 23);
  }
  static __device__ __forceinline__ float InverseQueryScale(uint32_t exponent) {
    return FloatFromBits((exponent - 14) << 23);
  }
  static __device__ __forceinline__ void ConvertQuery(uint32_t (&a)[4],
                                                      const uint32_t (&exponents)[2]) {
    SLUICE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float scale = QueryScale(exponents[i % 2]);
      a[i] = PackF16(FloatFromBits(a[i] << 16) * scale, FloatFromBits(a[i] & 0xFFFF0000u) * scale);
    }
  }

  // Called by all lanes of a warp. Loads step `step` of the values for sums over the 16 positions
  // from `position` + 16 * i on, i < 2, as operands b of Multiply for two groups n of eight
  // columns. Neighbours() gives the columns of the results d[n]. `lane`: this thread's lane.
  __device__ void LoadValues(uint32_t (&b)[2][2][2], unsigned char* tile, int position, int step,
                             int lane) const {
    uint32_t codes[4];
    if constexpr (kIsE4m3) {
      // A column is a pair of codes: even columns become group n = 0, odd columns group n = 1.
      LoadMatrix4Transposed(codes, Piece(tile, position + lane, step));
      SLUICE_UNROLL
      for (int i = 0; i < 4; ++i) {
        E4m3x4ToF16(__byte_perm(codes[i], 0, 0x3120), b[i / 2][0][i % 2], b[i / 2][1][i % 2]);
      }
    } else {
      SLUICE_UNROLL
      for (int i = 0; i < 2; ++i) {
        LoadMatrix4Transposed(codes,
                              Piece(tile, position + 16 * i + lane % 16, step * 2 + lane / 16));
        b[i][0][0] = codes[0];
        b[i][0][1] = codes[1];
        b[i][1][0] = codes[2];
        b[i][1][1] = codes[3];
      }
    }
  }

  // Sets `first` and `second` to pair `half` (0 or 1) of this lane's four results of row r and step
  // `step`, which belong to consecutive columns. Returns the first column.
  __device__ int Neighbours(float& first, float& second, const float (&d)[2][4], int r, int step,
                            int half) const {
    const int t = static_cast<int>(threadIdx.x) % 4;
    if constexpr (kIsE4m3) {
      first = d[0][2 * r + half];
      second = d[1][2 * r + half];
      return step * 16 + 4 * t + 2 * half;
    } else {
      first = d[half][2 * r];
      second = d[half][2 * r + 1];
      return step * 16 + 8 * half + 2 * t;
    }
  }

 private:
  static __device__ uint32_t Pair(const uint16_t* numbers) {
    return numbers[0] | static_cast<uint32_t>(numbers[1]) << 16;
  }
  // Copies 16 bytes of a row whose size is only a multiple of 8.
  static __device__ void CopyHalves(unsigned char* to, const unsigned char* row, bool is_row,
                                    int begin, int row_bytes) {
    auto* halves = reinterpret_cast<uint2*>(to);
    for (int i = 0; i < 2; ++i) {
      const int at = begin + 8 * i;
      halves[i] =
          is_row && at < row_bytes ? *reinterpret_cast<const uint2*>(row + at) : make_uint2(0, 0);
    }
  }
};

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE

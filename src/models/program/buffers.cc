#include "models/program/buffers.h"

#include <algorithm>
#include <numeric>

#include "base/integer.h"

namespace sluice::program {
namespace {

// For each buffer and operator: whether the operator uses the buffer, or a later operator reads its
// current content.
using Lifetimes = std::vector<std::vector<bool>>;  // [buffers][operators]

template <typename Use>
void ForEachOperand(const Op& op, Use&& use) {
  std::visit(
      [&](const auto& one) {
        one.Operands([&](BufferId buffer, Access access) {
          if (buffer != kNone) use(static_cast<size_t>(buffer), access);
        });
      },
      op);
}

Lifetimes LifetimesOf(const Program& program) {
  const size_t num_ops = program.ops.size();
  Lifetimes alive(program.buffers.size(), std::vector<bool>(num_ops));
  std::vector<bool> needed(program.buffers.size());  // whether operators after i need each buffer
  for (size_t i = num_ops; i-- > 0;) {
    ForEachOperand(program.ops[i], [&](size_t buffer, Access access) {
      if (access == Access::kWrite || access == Access::kScratch) {
        alive[buffer][i] = true;
        needed[buffer] = false;
      }
    });
    ForEachOperand(program.ops[i], [&](size_t buffer, Access access) {
      if (access == Access::kRead || access == Access::kUpdate) needed[buffer] = true;
    });
    for (size_t buffer = 0; buffer < needed.size(); ++buffer) {
      if (needed[buffer]) alive[buffer][i] = true;
    }
  }
  // Buffers of whole steps stay in use from the first part of the step to the last.
  for (size_t i = 0; i < num_ops; ++i) {
    const auto* const parts = std::get_if<Parts>(&program.ops[i]);
    if (parts == nullptr) continue;
    const size_t end = i + 1 + static_cast<size_t>(parts->count);
    for (size_t op = i + 1; op < end; ++op) {
      ForEachOperand(program.ops[op], [&](size_t buffer, Access) {
        const Extent extent = program.buffers[buffer].extent;
        if (extent != Extent::kStep && extent != Extent::kWanted) return;
        std::fill(alive[buffer].begin() + static_cast<std::ptrdiff_t>(i),
                  alive[buffer].begin() + static_cast<std::ptrdiff_t>(end), true);
      });
    }
  }
  // KeepRows moves rows to another buffer. From then on, that buffer is in use whenever the former
  // buffer of the rows is.
  for (size_t i = 0; i < num_ops; ++i) {
    const auto* const keep = std::get_if<KeepRows>(&program.ops[i]);
    if (keep == nullptr) continue;
    for (const KeepRows::Kept& kept : keep->kept) {
      if (kept.to == kNone) continue;
      const std::vector<bool>& from = alive[static_cast<size_t>(kept.columns.buffer)];
      std::vector<bool>& to = alive[static_cast<size_t>(kept.to)];
      for (size_t op = i; op < num_ops; ++op) to[op] = to[op] || from[op];
    }
  }
  for (size_t buffer = 0; buffer < alive.size(); ++buffer) {
    if (program.buffers[buffer].is_kept) alive[buffer].assign(num_ops, true);
  }
  return alive;
}

bool Meet(const std::vector<bool>& a, const std::vector<bool>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] && b[i]) return true;
  }
  return false;
}

}  // namespace

BufferPlan BufferPlan::For(const Program& program, int64_t alignment) {
  const Lifetimes alive = LifetimesOf(program);
  const size_t count = program.buffers.size();
  BufferPlan plan;
  plan.offsets.resize(count);
  plan.bytes.resize(count);
  std::vector<int64_t> sizes(count);
  for (size_t i = 0; i < count; ++i) {
    const Buffer& buffer = program.buffers[i];
    if (buffer.is_results) continue;
    plan.bytes[i] = RoundUp(program.limits.Of(buffer.extent) * buffer.row_bytes, alignment);
    sizes[i] = plan.bytes[i] * buffer.copies;
  }
  // Places buffers in order of descending size, each at the lowest offset where it overlaps no
  // buffer that is in use at the same time.
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
  std::vector<size_t> placed;  // indexes of placed buffers, sorted by offset
  for (const size_t buffer : order) {
    if (sizes[buffer] == 0) continue;
    int64_t offset = 0;
    for (const size_t other : placed) {
      if (!Meet(alive[buffer], alive[other])) continue;
      if (plan.offsets[other] >= offset + sizes[buffer]) break;
      offset = std::max(offset, plan.offsets[other] + sizes[other]);
    }
    plan.offsets[buffer] = offset;
    plan.total_bytes = std::max(plan.total_bytes, offset + sizes[buffer]);
    placed.insert(std::ranges::upper_bound(placed, offset, {},
                                           [&](size_t other) { return plan.offsets[other]; }),
                  buffer);
  }
  return plan;
}

}  // namespace sluice::program

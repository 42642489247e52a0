#include "models/cpu/executor.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "models/cpu/walk.h"
#include "models/program/print.h"

namespace sluice {
namespace {

using program::Extent;
using program::kNone;

// Checks the sizes in operators against the loaded matrices.
void CheckShapes(const program::Program& program) {
  for (const program::Op& op : program.ops) {
    if (const auto* product = std::get_if<program::Project>(&op)) {
      const kernels::PackedMatrix& matrix =
          product->linear != kNone ? program.linears[static_cast<size_t>(product->linear)]->matrix
                                   : *program.tables[static_cast<size_t>(product->table)];
      if (matrix.rows == 0 && matrix.cols == 0) continue;  // the matrix is not loaded yet
      CHECK_EQ(matrix.rows, product->n);
      CHECK_EQ(matrix.cols, product->k);
    } else if (const auto* experts = std::get_if<program::ProjectExperts>(&op)) {
      for (const kernels::PackedMatrix& matrix :
           program.experts[static_cast<size_t>(experts->experts)]->matrices) {
        if (matrix.rows == 0 && matrix.cols == 0) continue;
        CHECK_EQ(matrix.rows, experts->n);
        CHECK_EQ(matrix.cols, experts->k);
      }
    }
  }
}

}  // namespace

CpuExecutor::CpuExecutor(program::Program program, const ModelOptions& options,
                         const CpuSurroundings& surroundings)
    : program_(std::move(program)),
      plan_(program::BufferPlan::For(program_)),
      options_(options),
      surroundings_(surroundings) {
  if (options_.op_times == nullptr || surroundings_.place.tensor_rank != 0) return;
  for (const program::Op& op : program_.ops)
    counts_.push_back(&options_.op_times->Of(program::LabelOf(program_, op)));
}

Result<CpuExecutor> CpuExecutor::Create(program::Program program, const ModelOptions& options,
                                        const CpuSurroundings& surroundings) {
  CheckShapes(program);
  CpuExecutor executor(std::move(program), options, surroundings);
  ASSIGN_OR_RETURN(
      executor.memory_,
      Buffer::Allocate(static_cast<size_t>(executor.plan_.total_bytes), "the workspace of a step"));
  return executor;
}

std::byte* CpuExecutor::BufferAt(program::BufferId buffer, int64_t copy) const {
  const auto index = static_cast<size_t>(buffer);
  if (program_.buffers[index].copies == 1) copy = 0;
  return const_cast<std::byte*>(memory_.data()) + plan_.offsets[index] + copy * plan_.bytes[index];
}

int64_t CpuExecutor::Run(int32_t begin, int32_t end, int64_t rows, const CpuStep& step) const {
  return CpuWalk(*this, step, rows).Run(begin, end);
}

void CpuWalk::RunAt(int32_t index) {
  const auto at = static_cast<size_t>(index);
  if (executor_.counts_.empty()) return RunOne(program_.ops[at]);
  const auto begin = std::chrono::steady_clock::now();
  RunOne(program_.ops[at]);
  executor_.counts_[at]->Add((std::chrono::steady_clock::now() - begin) /
                             std::chrono::nanoseconds(1));
}

std::byte* CpuWalk::At(BufferId buffer, int64_t row_bytes) const {
  if (buffer == kNone) return nullptr;
  const program::Buffer& info = program_.buffers[static_cast<size_t>(buffer)];
  const int64_t offset = info.extent == Extent::kStep ? first_ * row_bytes : 0;
  std::byte* const memory = info.is_results ? reinterpret_cast<std::byte*>(step_.results)
                                            : executor_.BufferAt(buffer, step_.copy);
  return memory + offset;
}

std::byte* CpuWalk::At(const program::Columns& columns, int64_t number_bytes) const {
  return executor_.BufferAt(columns.buffer, step_.copy) +
         (columns.rows_before * step_rows_ + columns.begin + first_ * columns.stride) *
             number_bytes;
}

kernels::Activations CpuWalk::Rows(BufferId buffer, ElementType type, int64_t width) const {
  return {.data = At(buffer, width * BitsPerElement(type) / 8),
          .type = type,
          .rows = CountOf(buffer),
          .cols = width,
          .stride = width};
}

}  // namespace sluice

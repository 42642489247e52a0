// Measures attention with Llama 3 70B's heads: decode at the recipes' batch sizes and contexts, and
// prefill.
#include <algorithm>

#include <fmt/format.h>

#include "kernels/cuda/checks/attention_step.h"
#include "selftest/measure_run.h"

namespace sluice::selftest {

using checks::AttentionHeads;
using checks::AttentionShape;
using checks::AttentionStep;
using checks::CaseMemory;

namespace {

constexpr AttentionHeads kLlama70Heads = {64, 8, 128};

struct Batch {
  int sequences;
  int32_t tokens, context;
};

void MeasureStep(MeasureRun& run, Batch batch, ElementType type, bool is_prefill) {
  batch.sequences = static_cast<int>(run.Size(batch.sequences, 2));
  batch.tokens = static_cast<int32_t>(run.Size(batch.tokens, std::min(batch.tokens, 4)));
  batch.context = static_cast<int32_t>(run.Size(batch.context, std::min(batch.context, 40)));
  AttentionShape shape;
  shape.heads = kLlama70Heads;
  shape.type = type;
  shape.slices.assign(static_cast<size_t>(batch.sequences), {batch.tokens, batch.context});
  const AttentionStep step(shape, checks::AttentionNumbers::kNone);
  CaseMemory memory(run.device());
  // Each layer has its own cache memory, because a launch must not find the previous launch's data
  // in the device's cache.
  const int64_t copies = is_prefill ? 1 : run.CopiesBeyondCache(step.kv_bytes());
  std::vector<device::AttentionArgs> args;
  for (int64_t copy = 0; copy < copies; ++copy) args.push_back(step.Upload(memory));
  for (size_t copy = 0; memory.ok() && copy < args.size(); ++copy)
    step.FillOnDevice(run.device(), args[copy]);
  const double peak = run.limits().bf16_teraflops;  // attention multiplies in BF16
  run.Measure({.name = is_prefill ? "prefill attention" : "decode attention",
               .shape = fmt::format("{} x {} tokens after {}, {}", batch.sequences, batch.tokens,
                                    batch.context, type == ElementType::kF8E4M3 ? "fp8" : "bf16"),
               .unit = is_prefill ? MeasureUnit::kTeraflops : MeasureUnit::kGigabytes,
               .amount = is_prefill ? step.flops() : step.kv_bytes(),
               .limit = is_prefill ? peak : run.limits().copy_gigabytes},
              memory, [&](int64_t turn) {
                run.device().kernels().attention(run.device().handle(),
                                                 args[static_cast<size_t>(turn) % args.size()]);
              });
}

}  // namespace

void MeasureDecodeAttention(MeasureRun& run) {
  for (const ElementType type : {ElementType::kF8E4M3, ElementType::kBF16}) {
    for (const Batch& batch : {Batch{1, 1, 1536},
                               {8, 1, 1536},
                               {64, 1, 1536},
                               {256, 1, 1536},
                               {1, 1, 8704},
                               {64, 1, 8704},
                               {1, 1, 131000}}) {
      if (!run.lost()) MeasureStep(run, batch, type, /*is_prefill=*/false);
    }
  }
}

void MeasurePrefillAttention(MeasureRun& run) {
  for (const ElementType type : {ElementType::kF8E4M3, ElementType::kBF16}) {
    for (const Batch& batch : {Batch{8, 1024, 0}, {1, 8192, 0}, {1, 2048, 30000}, {64, 32, 1024}}) {
      if (!run.lost()) MeasureStep(run, batch, type, /*is_prefill=*/true);
    }
  }
}

}  // namespace sluice::selftest

// The parts of the table; use option.h.
#pragma once

#include <initializer_list>
#include <vector>

#include "options/option.h"

namespace sluice::options {

std::vector<Option> ModelRows();   // what is loaded
std::vector<Option> EngineRows();  // memory, scheduling, machine
std::vector<Option> ServerRows();  // HTTP, answers, logs
std::vector<Option> ClientRows();  // chat, complete, bench and the small tools

std::vector<Option> BenchServeRows();  // bench serve, bench sweep
std::vector<Option> EvalRows();        // sluice eval
std::vector<Option> QuantizeRows();    // sluice quantize, sluice diff
std::vector<Option> SelftestRows();    // sluice selftest, sluice kernel-bench

// Options of `vllm serve` and `trtllm-serve` that change nothing here, or that cannot be had.
std::vector<Option> ParallelRows();  // several devices and machines
std::vector<Option> CompilerRows();  // compilers, graphs, choice of kernels
std::vector<Option> LoadingRows();   // reading of checkpoints, caches, scheduling
std::vector<Option> MediaRows();     // pictures and sound, adapters, drafts
std::vector<Option> FrontendRows();  // HTTP, logs, traces
std::vector<Option> TrtllmRows();    // of trtllm-serve alone
std::vector<Option> RetiredRows();   // no longer known to their inventor

// Commands that load a model as `vllm serve` does.
inline constexpr uint32_t kEngineArguments = kServe | kBenchLatency | kBenchThroughput | kRunBatch;

// Several rows that share their fate.
struct ShortRow {
  std::string_view name;
  Type type = Type::kFlag;
  std::string_view help;
  std::string_view default_value = "";  // of flags "" stands for false
  std::string_view choices = "";
  std::string_view aliases = "";
};
// `no_effect` or `refuses` as in Option; one of them is empty.
std::vector<Option> RowsLike(const Option& common, std::initializer_list<ShortRow> rows);

}  // namespace sluice::options

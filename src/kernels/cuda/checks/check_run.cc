#include "kernels/cuda/checks/check_run.h"

#include <chrono>

#include <fmt/format.h>

namespace sluice::checks {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string RowText(const CheckRow& row) {
  const char* verdict = row.skipped ? "skipped" : row.passed ? "pass" : "FAIL";
  std::string text = fmt::format("{:<26} {:<46} ", row.name, row.shape);
  if (row.skipped || row.numbers == 0) {
    text += fmt::format("{:>10} {:>10}  {}", "", "", verdict);
  } else {
    text += fmt::format("{:>10.3g} {:>10.3g}  {}", row.worst_error, row.worst_bound, verdict);
  }
  if (!row.message.empty()) text += ": " + row.message;
  return text;
}

}  // namespace

void CheckRun::RunPart(const CheckPart& part) {
  if (lost_) return;
  part_ = part.name;
  part.run(*this);
}

void CheckRun::Add(CheckRow row) {
  row.part = part_;
  rows_.push_back(std::move(row));
  if (!print_) return;
  if (rows_.size() == 1)
    print_(fmt::format("{:<26} {:<46} {:>10} {:>10}", "operator", "shape", "error", "bound"));
  print_(RowText(rows_.back()));
}

void CheckRun::RunCase(std::string_view name, std::string shape, const CheckFunction& check) {
  if (lost_) return;
  const double begin = Now();
  Comparison comparison;
  Status status;
  uint64_t digest = 0;
  {
    CaseMemory memory(device_);
    status = check(memory, comparison);
    if (status && !memory.ok()) status = memory.status();
    if (status) status = device_.stream().Synchronize();
    digest = memory.digest();
  }
  CheckRow row;
  row.name = name;
  row.shape = std::move(shape);
  row.passed = status.has_value() && comparison.passed();
  row.numbers = comparison.count();
  row.failed = comparison.failed();
  row.worst_error = comparison.worst_error();
  row.worst_bound = comparison.worst_bound();
  row.seconds = Now() - begin;
  row.digest = digest;
  if (!status) {
    row.message = status.error().message;
    lost_ = device_.is_lost();
    if (lost_) row.message += "; the device is lost, nothing more can be checked";
  } else if (comparison.count() == 0) {
    row.message = "nothing was compared";
  } else if (!comparison.passed()) {
    row.message = fmt::format("{} of {}; {}", row.failed, row.numbers, comparison.first_failure());
  }
  Add(std::move(row));
}

void CheckRun::Skip(std::string_view name, std::string shape, std::string why) {
  if (lost_) return;
  CheckRow row;
  row.name = name;
  row.shape = std::move(shape);
  row.skipped = true;
  row.message = std::move(why);
  Add(std::move(row));
}

void CheckRun::Fail(std::string_view name, std::string shape, const Error& error) {
  if (lost_) return;
  CheckRow row;
  row.name = name;
  row.shape = std::move(shape);
  row.message = error.message;
  Add(std::move(row));
}

bool CheckRun::passed() const {
  bool any = false;
  for (const CheckRow& row : rows_) {
    if (row.skipped) continue;
    if (!row.passed) return false;
    any = true;
  }
  return any && !lost_;
}

json::Value CheckRun::ToJson() const {
  json::Value::Array rows;
  for (const CheckRow& row : rows_) {
    json::Value value{json::Value::Object{}};
    value.Set("part", row.part);
    value.Set("operator", row.name);
    value.Set("shape", row.shape);
    value.Set("result", row.skipped ? "skipped" : row.passed ? "pass" : "fail");
    value.Set("numbers", row.numbers);
    value.Set("failed", row.failed);
    value.Set("worst_error", row.worst_error);
    value.Set("bound", row.worst_bound);
    value.Set("seconds", row.seconds);
    value.Set("message", row.message);
    value.Set("digest", fmt::format("{:016x}", row.digest));
    rows.push_back(std::move(value));
  }
  return json::Value(std::move(rows));
}

std::span<const CheckPart> KernelCheckParts() {
  static const CheckPart kParts[] = {
      {"instructions", "tensor-core products, moves through shared memory, conversions of numbers",
       CheckInstructions},
      {"rows", "embedding, norms, activations, quantized rows", CheckRows},
      {"rope", "positions, and keys and values on their way into the cache", CheckRope},
      {"linear", "matrix products in every format of weights", CheckLinear},
      {"library", "matrix products of many rows by cuBLASLt or hipBLASLt", CheckLibrary},
      {"grouped-linear", "matrix products of experts", CheckGroupedLinear},
      {"attention", "attention over the paged cache", CheckAttention},
      {"latent", "the rows of latent attention, products of heads with their own matrices",
       CheckLatent},
      {"mixers", "convolutions, recurrences and their gates, with states of sequences",
       CheckMixers},
      {"experts", "routing to experts and back", CheckExperts},
      {"lora", "what adapters add, with several in one step", CheckLora},
      {"dummy-weights", "random weights made on the device", CheckDummyWeights},
  };
  return kParts;
}

}  // namespace sluice::checks

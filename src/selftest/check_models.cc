// Compares the results of the demo model on the device with those on the CPU, plain and quantized
// in every layout.
//
// The reference is the CPU with F32 activations, and F32 keys and values unless those are FP8. The
// root mean square error of a device must not exceed 2 * sqrt(3) times the error of the CPU's own
// BF16 arithmetic. This limit follows from:
// - The CPU rounds inputs of products, keys and values. A device also rounds results of products,
//   queries and attention weights: at most three roundings for each rounding of the CPU.
// - Independent errors add up as the root of the sum of squares: sqrt(3) times the CPU's error.
// - Over few positions, these figures vary by a factor of up to 2.
//
// Steps replayed as graphs must be bit-identical to launched ones. Texts are compared with the
// CPU's answers: wherever the CPU's most likely token leads by more than six times the device's
// root mean square error, the device must choose the same token.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <system_error>

#include <fmt/format.h>

#include "hardware/topology.h"
#include "kernels/sampling.h"
#include "quantize/quantize_checkpoint.h"
#include "selftest/check_parts.h"
#include "selftest/model_runs.h"

namespace sluice::selftest {

using checks::CaseMemory;
using checks::CheckRun;
using checks::Comparison;

namespace {

using Rounding = ModelOptions::ActivationRounding;
using Logits = LoadedModel::Logits;

struct ModelFormat {
  const char* name;
  const char* target;  // name in QuantizeTargets(); null: not quantized
  bool e4m3_inputs = false;
  bool fp8_cache = false;
};
constexpr ModelFormat kFormats[] = {
    {"bf16", nullptr},
    {"bf16, fp8 cache", nullptr, false, true},
    {"fp8 static per tensor", "modelopt-fp8", true},
    {"fp8 per token", "fp8-dynamic", true},
    {"block fp8", "block-fp8"},
    {"nvfp4", "modelopt-nvfp4"},
    {"mxfp4", "quark-mxfp4"},
    {"int8", "int8-w8a8"},
};

constexpr int64_t kAnswerTokens = 12;
constexpr size_t kTopTokens = 20;
constexpr double kErrorOfCpu = 2 * 1.7320508;

// A folder that is removed by the destructor.
class TemporaryFolder {
 public:
  static Result<TemporaryFolder> Make() {
    std::error_code error;
    const std::filesystem::path base = std::filesystem::temp_directory_path(error);
    if (!error) {
      for (int i = 0; i < 10; ++i) {
        TemporaryFolder folder;
        folder.path_ = base / fmt::format("sluice-selftest-{:08x}", std::random_device()());
        if (std::filesystem::create_directory(folder.path_, error)) return folder;
        folder.path_.clear();
      }
    }
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("no folder for quantized copies in {}: {}; set TMPDIR", base.string(),
                            error.message()));
  }
  TemporaryFolder(TemporaryFolder&& other) noexcept { std::swap(path_, other.path_); }
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder() {
    std::error_code error;
    if (!path_.empty()) std::filesystem::remove_all(path_, error);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  TemporaryFolder() = default;
  std::filesystem::path path_;
};

std::vector<double> LogSoftmaxOf(const std::vector<float>& logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  std::vector<double> result;
  for (const float logit : logits) result.push_back(logit - largest - std::log(sum));
  return result;
}

// Returns the root mean square error of the most likely tokens' logprobs (kTopTokens per position),
// over all positions. NaN if any of them is NaN.
double ErrorOf(const Logits& logits, const Logits& reference) {
  double sum = 0, count = 0;
  for (size_t s = 0; s < reference.size(); ++s) {
    for (size_t t = 0; t < reference[s].size(); ++t) {
      const std::vector<double> exact = LogSoftmaxOf(reference[s][t]);
      const std::vector<double> got = LogSoftmaxOf(logits[s][t]);
      std::vector<size_t> order(exact.size());
      std::iota(order.begin(), order.end(), size_t{0});
      const size_t top = std::min(kTopTokens, order.size());
      std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(top), order.end(),
                        [&](size_t a, size_t b) { return exact[a] > exact[b]; });
      for (size_t i = 0; i < top; ++i) {
        const double error = got[order[i]] - exact[order[i]];
        sum += error * error;
        ++count;
      }
    }
  }
  return std::sqrt(sum / count);
}

// Returns the difference of the two largest logits.
double LeadOf(const std::vector<float>& logits) {
  float first = -INFINITY, second = -INFINITY;
  for (const float logit : logits) {
    if (logit > first) {
      second = first;
      first = logit;
    } else {
      second = std::max(second, logit);
    }
  }
  return first - second;
}

// Runs the sequences again, replayed by graphs. The first sequence ends earlier, so that later
// steps are padded.
Status CheckReplayed(LoadedModel& device, std::vector<std::vector<int32_t>> sequences,
                     const std::vector<int64_t>& prefill, const Logits& launched,
                     Comparison& comparison) {
  comparison.SetSubject("replayed");
  sequences.front().resize(static_cast<size_t>(prefill.front() + kAnswerTokens / 2));
  RETURN_IF_ERROR(device.Record(std::ssize(sequences)));
  ASSIGN_OR_RETURN(const Logits replayed, device.Run(sequences, prefill));
  comparison.AddEqual(device.num_replayed(), kAnswerTokens);
  for (size_t s = 0; s < sequences.size(); ++s) {
    for (size_t t = 0; t < sequences[s].size(); ++t)
      comparison.AddEqual(replayed[s][t] == launched[s][t] ? 1 : 0, 1);
  }
  comparison.SetSubject("");
  return {};
}

Status CheckModel(CheckRun& run, ThreadPool& pool, Comparison& comparison,
                  const ModelFormat& format, const std::filesystem::path& folder,
                  const std::vector<std::vector<int32_t>>& prompts) {
  int64_t longest = 0;
  for (const auto& prompt : prompts)
    longest = std::max(longest, static_cast<int64_t>(prompt.size()));
  ModelOptions options =
      SmallModelOptions(static_cast<int64_t>(prompts.size()), longest + kAnswerTokens);
  options.kv_type = format.fp8_cache ? ElementType::kF8E4M3 : ElementType::kBF16;
  options.activation_format = format.e4m3_inputs && run.device().has_e4m3_products()
                                  ? Rounding::kCheckpoint
                                  : Rounding::kBf16;
  ModelOptions exact = options;
  exact.compute_type = ElementType::kF32;
  if (!format.fp8_cache) exact.kv_type = ElementType::kF32;

  ASSIGN_OR_RETURN(const auto cpu, LoadedModel::Load(pool, folder, options));
  ASSIGN_OR_RETURN(const auto reference, LoadedModel::Load(pool, folder, exact));
  ASSIGN_OR_RETURN(const auto device, LoadedModel::LoadOn(run.device(), pool, folder, options));
  ASSIGN_OR_RETURN(const auto sequences, cpu->Continue(prompts, kAnswerTokens));
  std::vector<int64_t> prefill;
  for (const auto& prompt : prompts) prefill.push_back(static_cast<int64_t>(prompt.size()));
  ASSIGN_OR_RETURN(const Logits exact_logits, reference->Run(sequences, prefill));
  ASSIGN_OR_RETURN(const Logits cpu_logits, cpu->Run(sequences, prefill));
  ASSIGN_OR_RETURN(const Logits device_logits, device->Run(sequences, prefill));

  const double error = ErrorOf(device_logits, exact_logits);
  comparison.AddWithin(error, 0, kErrorOfCpu * ErrorOf(cpu_logits, exact_logits));
  for (size_t s = 0; s < sequences.size(); ++s) {
    for (size_t t = prompts[s].size() - 1; t + 1 < sequences[s].size(); ++t) {
      if (LeadOf(exact_logits[s][t]) <= 6 * error) continue;  // the two tokens are nearly tied
      comparison.AddEqual(kernels::ArgMax(device_logits[s][t]), sequences[s][t + 1]);
    }
  }
  // On the slow emulator, one format suffices.
  if (format.target != nullptr && !run.with_large_shapes()) return {};
  return CheckReplayed(*device, sequences, prefill, device_logits, comparison);
}

Status Quantize(ThreadPool& pool, const DemoModel& model, const ModelFormat& format,
                const std::filesystem::path& out) {
  QuantizeOptions options;
  options.target = FindQuantizeTarget(format.target);
  if (options.target == nullptr)
    return Fail(ErrorCode::kInternal, fmt::format("no layout is called {}", format.target));
  if (options.target->needs_calibration()) options.calibration = model.prompts;
  const auto report = QuantizeCheckpoint(pool, model.folder, out, options, [](int64_t, int64_t) {});
  if (!report) return tl::unexpected<Error>(report.error());
  return {};
}

}  // namespace

void CheckModels(CheckRun& run, const DemoModel& model) {
  if (model.prompts.empty()) {
    run.Skip("demo model", "every format", model.missing);
    return;
  }
  auto folder = TemporaryFolder::Make();
  if (!folder) {
    run.Fail("demo model", "every format", folder.error());
    return;
  }
  ThreadPool pool(std::min(8, DetectTopology().DefaultThreads()));
  int64_t tokens = 0;
  for (const auto& prompt : model.prompts)
    tokens += static_cast<int64_t>(prompt.size()) + kAnswerTokens;
  for (const ModelFormat& format : kFormats) {
    const std::string shape =
        fmt::format("{} sequences, {} tokens, {}", model.prompts.size(), tokens, format.name);
    run.Case("demo model", shape, [&](CaseMemory&, Comparison& comparison) -> Status {
      std::filesystem::path checkpoint = model.folder;
      if (format.target != nullptr) {
        checkpoint = folder->path() / format.target;
        RETURN_IF_ERROR(Quantize(pool, model, format, checkpoint));
      }
      return CheckModel(run, pool, comparison, format, checkpoint, model.prompts);
    });
  }
}

}  // namespace sluice::selftest

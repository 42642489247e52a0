// Checks benchmarks: whether requests fit the server, and whether the run is long enough.
#include <algorithm>

#include <fmt/format.h>

#include "recipe/findings.h"

namespace sluice {
namespace {

// With fewer rounds, the start and the end make up a considerable part of the measurement.
constexpr int64_t kRounds = 5;

void CheckRounds(const RecipeRequest& request, std::vector<Finding>& findings) {
  if (!request.num_prompts || !request.max_concurrency) return;
  if (*request.num_prompts >= kRounds * *request.max_concurrency) return;
  findings.push_back(
      {Severity::kWarning, request.line, "short-bench",
       fmt::format("{} prompts at a concurrency of {} are {:.1f} rounds: ramp-up and tail weigh on "
                   "the figures. {} prompts make {} rounds",
                   *request.num_prompts, *request.max_concurrency,
                   static_cast<double>(*request.num_prompts) /
                       static_cast<double>(*request.max_concurrency),
                   kRounds * *request.max_concurrency, kRounds)});
}

void CheckLength(const RecipeRequest& request, const LaunchFacts& launch,
                 std::vector<Finding>& findings) {
  if (!request.input_len || !request.output_len || launch.max_model_len == 0) return;
  const int64_t length = *request.input_len + *request.output_len;
  if (length > launch.max_model_len) {
    findings.push_back(
        {Severity::kError, request.line, "too-long",
         fmt::format("requests of {} + {} tokens exceed the context of {} that line {} launches: "
                     "the answer is 400",
                     *request.input_len, *request.output_len, launch.max_model_len,
                     launch.launch.line)});
  } else if (length == launch.max_model_len) {
    findings.push_back(
        {Severity::kNote, request.line, "no-room",
         fmt::format("requests of {} + {} tokens fill the context of {} (line {}) to the last "
                     "token: where the server adds a first token to texts, they are one too long",
                     *request.input_len, *request.output_len, launch.max_model_len,
                     launch.launch.line)});
  }
}

void CheckResident(const RecipeRequest& request, const LaunchFacts& launch,
                   const Accelerator& accelerator, std::vector<Finding>& findings) {
  if (!request.input_len || !request.output_len || !request.max_concurrency || !launch.stored)
    return;
  const double context =
      static_cast<double>(*request.input_len) + static_cast<double>(*request.output_len) / 2;
  const auto resident =
      launch.copies *
      static_cast<int64_t>(KvCacheBytesOf(launch, accelerator) /
                           static_cast<double>(KvBytesPerToken(*launch.stored)) / context);
  if (resident == 0 || resident >= *request.max_concurrency) return;
  findings.push_back(
      {Severity::kNote, request.line, "queue",
       fmt::format("with {} on {} about {} requests of {} + {} tokens fit in the cache at a time; "
                   "the rest of {} wait, which increases the time to the first token",
                   launch.model, DevicesText(launch, accelerator), resident, *request.input_len,
                   *request.output_len, *request.max_concurrency)});
}

}  // namespace

void CheckWorkloads(const RecipeFacts& facts, std::vector<Finding>& findings) {
  for (const RecipeRequest& request : facts.commands.requests) {
    if (request.kind != RequestKind::kBench) continue;
    CheckRounds(request, findings);
    for (const LaunchFacts& launch : facts.launches) {
      CheckLength(request, launch, findings);
      for (const Accelerator* accelerator : facts.accelerators)
        CheckResident(request, launch, *accelerator, findings);
    }
  }
}

}  // namespace sluice

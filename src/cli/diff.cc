#include <algorithm>

#include <fmt/format.h>

#include "base/json.h"
#include "cli/command.h"
#include "cli/configs.h"
#include "cli/progress.h"
#include "cli/text_chunks.h"
#include "hardware/topology.h"
#include "quantize/compare_models.h"

namespace sluice::cli {
namespace {

void PrintText(std::vector<WeightDifference> weights, const PredictionDifference* predictions) {
  double mean = 0;
  for (const WeightDifference& weight : weights) mean += weight.relative_error;
  mean /= static_cast<double>(std::max<size_t>(weights.size(), 1));
  std::stable_sort(weights.begin(), weights.end(), [](const auto& a, const auto& b) {
    return a.relative_error > b.relative_error;
  });
  const auto changed = std::count_if(weights.begin(), weights.end(),
                                     [](const auto& weight) { return weight.relative_error > 0; });
  fmt::print(
      "weights          {} of {} linear layers differ, by {:.3f} % of their rms on average\n",
      changed, weights.size(), 100 * mean);
  constexpr size_t kShown = 5;
  for (size_t i = 0; i < std::min(weights.size(), kShown) && weights[i].relative_error > 0; ++i)
    fmt::print("  {:7.3f} %  {}\n", 100 * weights[i].relative_error, weights[i].module);
  if (predictions == nullptr) return;
  fmt::print("positions        {}\n", predictions->positions);
  fmt::print("KL divergence    {:.6f} nats on average, {:.4f} at the worst position\n",
             predictions->kl_divergence, predictions->max_kl_divergence);
  fmt::print("top-1 agreement  {:.3f} %\n", 100 * predictions->top1_agreement);
  fmt::print("perplexity       {:.5f} and {:.5f} ({:+.3f} %)\n", predictions->perplexity_a,
             predictions->perplexity_b,
             100 * (predictions->perplexity_b / predictions->perplexity_a - 1));
}

void PrintJson(const std::vector<WeightDifference>& weights,
               const PredictionDifference* predictions) {
  json::Value value{json::Value::Object{}};
  json::Value errors{json::Value::Object{}};
  for (const WeightDifference& weight : weights) errors.Set(weight.module, weight.relative_error);
  value.Set("weights", std::move(errors));
  if (predictions != nullptr) {
    value.Set("positions", predictions->positions);
    value.Set("kl_divergence", predictions->kl_divergence);
    value.Set("max_kl_divergence", predictions->max_kl_divergence);
    value.Set("top1_agreement", predictions->top1_agreement);
    value.Set("perplexity_a", predictions->perplexity_a);
    value.Set("perplexity_b", predictions->perplexity_b);
  }
  fmt::print("{}\n", json::Write(value));
}

}  // namespace

Result<int> RunDiff(const options::Settings& settings) {
  const auto& words = settings.positionals();
  if (words.size() != 2)
    return Fail(ErrorCode::kInvalidArgument, "expected two models: sluice diff MODEL MODEL",
                "model");
  ASSIGN_OR_RETURN(const ModelArgument a, ResolveModelArgument(settings, words[0]));
  ASSIGN_OR_RETURN(const ModelArgument b, ResolveModelArgument(settings, words[1]));
  const ComparedModel first{a.folder};
  const ComparedModel second{b.folder, LoadQuantizationOf(settings)};
  const int64_t threads = settings.Integer("threads").value_or(0);
  ThreadPool pool(threads > 0 ? static_cast<int>(threads) : DetectTopology().DefaultThreads());
  ASSIGN_OR_RETURN(const auto weights, CompareWeights(pool, first, second));
  std::optional<PredictionDifference> predictions;
  if (const auto file = settings.Text("diff-text")) {
    ASSIGN_OR_RETURN(const auto chunks,
                     ReadTextChunks(*file, a.folder, *settings.Integer("chunk-tokens"),
                                    *settings.Integer("diff-tokens")));
    ProgressBar bar("comparing", ProgressUnit::kTokens);
    auto found = ComparePredictions(pool, first, second, chunks,
                                    ActivationRoundingOf(settings, "diff-activation-format"),
                                    [&](int64_t done, int64_t total) { bar.Update(done, total); });
    bar.Finish();
    if (!found) return tl::unexpected<Error>(std::move(found).error());
    predictions = *found;
  }
  const PredictionDifference* shown = predictions ? &*predictions : nullptr;
  if (settings.Flag("diff-json"))
    PrintJson(weights, shown);
  else
    PrintText(weights, shown);
  return 0;
}

}  // namespace sluice::cli

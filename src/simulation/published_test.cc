// Recomputes docs/simulation-rows.md, which compares the simulation's predictions for published
// runs with the measurements. With SLUICE_WRITE_PAGES=1, the page is written instead of compared.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/source_path_testing.h"
#include "simulation/measurements.h"

namespace sluice {
namespace {

constexpr const char* kFolder = "tests/data/simulation/";
constexpr const char* kPage = "docs/simulation-rows.md";

struct PublishedRow {
  Measurement measured;
  Prediction predicted;

  double TtftError() const { return predicted.ttft / measured.ttft - 1; }
  double TpotError() const { return predicted.tpot / measured.tpot - 1; }
  double RateError() const {
    return OutputRate(measured, predicted.ttft, predicted.tpot) /
               OutputRate(measured, measured.ttft, measured.tpot) -
           1;
  }
};

std::vector<PublishedRow> PredictRows(int64_t most_concurrency) {
  std::map<std::string, ModelConfig> models;
  std::vector<PublishedRow> rows;
  const auto measurements = ReadMeasurements(SourcePath(std::string(kFolder) + "published.csv"));
  EXPECT_TRUE(measurements) << measurements.error().message;
  for (const Measurement& measured : *measurements) {
    if (measured.concurrency > most_concurrency) continue;
    if (!models.contains(measured.model))
      models[measured.model] = *LoadModelConfig(SourcePath(kFolder + measured.model));
    const DeviceProfile device = FindDevices(measured.device)->device;
    const auto run = RunOf(measured, models[measured.model], device);
    EXPECT_TRUE(run) << run.error().message;
    rows.push_back({measured, *Predict(*run, device)});
  }
  return rows;
}

double MedianError(std::span<const PublishedRow* const> rows,
                   double (PublishedRow::*error)() const) {
  std::vector<double> errors;
  for (const PublishedRow* row : rows) errors.push_back(std::abs((row->*error)()));
  std::ranges::sort(errors);
  return 100 * errors[errors.size() / 2];
}

std::map<std::string, std::vector<const PublishedRow*>> GroupsOf(std::span<const PublishedRow> rows,
                                                                 const std::string& set) {
  std::map<std::string, std::vector<const PublishedRow*>> groups;
  for (const PublishedRow& row : rows) {
    if (row.measured.set != set) continue;
    groups[fmt::format("{}, {}", row.measured.device, row.measured.model)].push_back(&row);
  }
  return groups;
}

std::string TableOf(std::span<const PublishedRow> rows, const std::string& set) {
  std::string text;
  for (const auto& [name, group] : GroupsOf(rows, set)) {
    text += fmt::format(
        "\n### {} ({})\n\n{}.\n\n"
        "| tp | in/out | concurrency | TTFT ms: predicted | published | error | TPOT ms: predicted "
        "| published | error |\n|---|---|---|---|---|---|---|---|---|\n",
        name, set == "fit" ? "fitted" : "held out", group.front()->measured.source);
    for (const PublishedRow* row : group) {
      const Measurement& measured = row->measured;
      text += fmt::format(
          "| {} | {:g}/{:g} | {} | {:.0f} | {:.0f} | {:+.1f} % | {:.2f} | {:.2f} | "
          "{:+.1f} % |\n",
          measured.tensor_size, measured.input, measured.output, measured.concurrency,
          1e3 * row->predicted.ttft, 1e3 * measured.ttft, 100 * row->TtftError(),
          1e3 * row->predicted.tpot, 1e3 * measured.tpot, 100 * row->TpotError());
    }
  }
  return text;
}

std::string SummaryOf(std::span<const PublishedRow> rows, const std::string& set) {
  std::string text =
      "| device, model | rows | TTFT | TPOT | output tok/s |\n|---|---|---|---|---|\n";
  for (const auto& [name, group] : GroupsOf(rows, set)) {
    text += fmt::format("| {} | {} | {:.1f} % | {:.1f} % | {:.1f} % |\n", name, group.size(),
                        MedianError(group, &PublishedRow::TtftError),
                        MedianError(group, &PublishedRow::TpotError),
                        MedianError(group, &PublishedRow::RateError));
  }
  return text;
}

std::string PageOf(std::span<const PublishedRow> rows) {
  return "# Predicted and published rows\n\n"
         "`simulation_test` generates and checks this page (`published_test.cc`).\n"
         "[simulation.md](simulation.md) describes where the rows come from and how they were "
         "fitted.\n\n"
         "## Median errors\n\nThe tables show medians of the relative errors. The factors were "
         "fitted without the held-out\nrows.\n\nHeld-out rows:\n\n" +
         SummaryOf(rows, "held") + "\nFitted rows:\n\n" + SummaryOf(rows, "fit") +
         "\n## Held-out rows\n" + TableOf(rows, "held") + "\n## Fitted rows\n" +
         TableOf(rows, "fit");
}

// Returns the lines of a page that begin with `start`.
std::vector<std::string> LinesWith(const std::string& page, std::string_view start) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < page.size();) {
    const size_t end = std::min(page.find('\n', begin), page.size());
    if (page.compare(begin, start.size(), start) == 0)
      lines.push_back(page.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

TEST(Published, RowsOfFewRequestsAreThoseOfThePage) {
  const auto page = ReadFile(SourcePath(kPage), 1 << 20);
  ASSERT_TRUE(page) << page.error().message;
  const std::vector<PublishedRow> rows = PredictRows(/*most_concurrency=*/4);
  EXPECT_GT(rows.size(), 40u);
  for (const char* set : {"held", "fit"}) {
    for (const std::string& line : LinesWith(TableOf(rows, set), "| "))
      EXPECT_NE(page->find(line), std::string::npos) << line;
  }
}

TEST(Published, HeavyThePageIsWhatIsPredicted) {
  const std::vector<PublishedRow> rows = PredictRows(/*most_concurrency=*/1 << 20);
  const std::string page = PageOf(rows);
  if (std::getenv("SLUICE_WRITE_PAGES") != nullptr) std::ofstream(SourcePath(kPage)) << page;
  EXPECT_EQ(*ReadFile(SourcePath(kPage), 1 << 20), page);
  const std::string about = *ReadFile(SourcePath("docs/simulation.md"), 1 << 20);
  for (const char* set : {"held", "fit"}) {
    for (const std::string& line : LinesWith(SummaryOf(rows, set), "| "))
      EXPECT_NE(about.find(line), std::string::npos) << line;
  }
}

TEST(Published, HeavyFactorsOfTheTableAreThoseOfTheFit) {
  for (const char* name : {"H200", "B200"}) {
    const DeviceProfile device = FindDevices(name)->device;
    std::vector<MeasuredRun> runs;
    std::map<std::string, ModelConfig> models;
    const auto rows = *ReadMeasurements(SourcePath(std::string(kFolder) + "published.csv"));
    for (const Measurement& measured : rows) {
      if (measured.set != "fit" || measured.device != name) continue;
      if (!models.contains(measured.model))
        models[measured.model] = *LoadModelConfig(SourcePath(kFolder + measured.model));
      runs.push_back(*RunOf(measured, models[measured.model], device));
    }
    const auto factors = FitFactors(runs, device, /*rounds=*/1);
    ASSERT_TRUE(factors);
    for (size_t i = 0; i < kNumStepParts; ++i) {
      EXPECT_NEAR((*factors)[i], device.factors[i], 0.05 * device.factors[i] + 1e-7)
          << name << " " << StepPartName(static_cast<StepPart>(i));
    }
  }
}

TEST(FitFactors, FindsTheFactorsOfSimulatedRuns) {
  const ModelConfig model = *LoadModelConfig(SourcePath(std::string(kFolder) + "llama-70b-fp8"));
  DeviceProfile truth = FindDevices("H200")->device;
  std::vector<MeasuredRun> runs;
  for (const int tensor : {1, 4}) {
    for (const int64_t concurrency : {1, 4, 16}) {
      Measurement row;
      row.device = "H200";
      row.tensor_size = tensor;
      row.input = 2000;
      row.output = 50;
      row.concurrency = concurrency;
      row.num_requests = 2 * concurrency;
      row.ttft = row.tpot = 1;
      MeasuredRun run = *RunOf(row, model, truth);
      const Prediction measured = *Predict(run, truth);
      run.measured.ttft = measured.ttft;
      run.measured.tpot = measured.tpot;
      runs.push_back(std::move(run));
    }
  }
  DeviceProfile start = truth;
  for (double& factor : start.factors) factor *= 1.3;
  start.factors = *FitFactors(runs, start, 8);
  for (const MeasuredRun& run : runs) {
    const Prediction predicted = *Predict(run, start);
    EXPECT_NEAR(predicted.tpot, run.measured.tpot, 0.03 * run.measured.tpot);
    EXPECT_NEAR(predicted.ttft, run.measured.ttft, 0.06 * run.measured.ttft);
  }
}

}  // namespace
}  // namespace sluice

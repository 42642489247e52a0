// For tests: the golden files of tests/data/checkpoints, made with transformers.
#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "base/json_testing.h"
#include "models/model_testing.h"

namespace sluice::testing {

// Name of a parameterized test whose parameter is a checkpoint's folder.
inline std::string TestName(const ::testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

struct GoldenCase {
  std::vector<int32_t> prompt, positions, greedy;
  std::vector<std::vector<int32_t>> top_ids;
  std::vector<std::vector<double>> top_logprobs;
  std::vector<double> margins;
};

inline std::vector<GoldenCase> ReadGolden(const std::filesystem::path& file) {
  const auto text = ReadFile(file);
  EXPECT_TRUE(text) << (text ? "" : text.error().message);
  const auto golden = json::Parse(*text);
  EXPECT_TRUE(golden);
  std::vector<GoldenCase> cases;
  for (const json::Value& value : golden->Find("cases")->as_array()) {
    GoldenCase golden_case;
    golden_case.prompt = Ids(*value.Find("prompt"));
    golden_case.positions = Ids(*value.Find("positions"));
    golden_case.greedy = Ids(*value.Find("greedy"));
    for (const json::Value& margin : value.Find("margin")->as_array())
      golden_case.margins.push_back(margin.as_double());
    for (const json::Value& row : value.Find("top_ids")->as_array())
      golden_case.top_ids.push_back(Ids(row));
    for (const json::Value& row : value.Find("top_logprobs")->as_array()) {
      auto& logprobs = golden_case.top_logprobs.emplace_back();
      for (const json::Value& x : row.as_array()) logprobs.push_back(x.as_double());
    }
    cases.push_back(std::move(golden_case));
  }
  return cases;
}

// Returns, for each golden position, the root mean square error of its 20 golden logprobs.
inline std::vector<double> RmsOfPositions(const GoldenCase& golden, const LogitRows& logits) {
  std::vector<double> rms;
  for (size_t i = 0; i < golden.positions.size(); ++i) {
    const std::vector<double> got = LogSoftmax(logits[static_cast<size_t>(golden.positions[i])]);
    double sum = 0;
    for (size_t k = 0; k < golden.top_ids[i].size(); ++k) {
      const double error =
          got[static_cast<size_t>(golden.top_ids[i][k])] - golden.top_logprobs[i][k];
      sum += error * error;
    }
    rms.push_back(std::sqrt(sum / static_cast<double>(golden.top_ids[i].size())));
  }
  return rms;
}

// Returns the largest of RmsOfPositions.
inline double WorstRms(const GoldenCase& golden, const LogitRows& logits) {
  return std::ranges::max(RmsOfPositions(golden, logits));
}

// Checks greedy tokens after the prompt against the golden ones, up to the first token whose lead
// over the second-best token is below `tolerance`.
inline void ExpectGreedy(Runner& runner, const GoldenCase& golden, double tolerance) {
  int32_t token = Greedy(runner.RunAlone(golden.prompt, 64).back());
  for (size_t i = 0; i < golden.greedy.size() && golden.margins[i] >= tolerance; ++i) {
    ASSERT_EQ(token, golden.greedy[i])
        << "token " << i << " after a prompt of " << golden.prompt.size();
    token = Greedy(runner.RunStep({{0, {token}}})[0].back());
  }
}

}  // namespace sluice::testing

// For tests: the expected proposals of drafting heads, from tools/checkpoints/make_drafters.py.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "base/json_testing.h"

namespace sluice::testing {

// Whether the test checkpoint is a DFlash drafter.
inline bool IsDflash(const std::string& head) {
  return head.find("dflash") != std::string::npos;
}

struct DraftCase {
  std::vector<int32_t> prompt, answer;
  // The draft tokens that are proposed after the prompt and the first 1, 2, ... tokens of the
  // answer.
  std::vector<std::vector<int32_t>> drafts;
  std::vector<std::vector<double>> logits;  // one entry for each of the last drafts
};

inline std::vector<DraftCase> ReadDrafts(const std::filesystem::path& file) {
  const auto text = ReadFile(file);
  EXPECT_TRUE(text) << (text ? "" : text.error().message);
  const auto golden = json::Parse(*text);
  EXPECT_TRUE(golden);
  std::vector<DraftCase> cases;
  for (const json::Value& value : golden->Find("cases")->as_array()) {
    DraftCase& one = cases.emplace_back();
    one.prompt = Ids(*value.Find("prompt"));
    one.answer = Ids(*value.Find("answer"));
    for (const json::Value& row : value.Find("drafts")->as_array()) one.drafts.push_back(Ids(row));
    for (const json::Value& row : value.Find("logits")->as_array()) {
      auto& logits = one.logits.emplace_back();
      for (const json::Value& x : row.as_array()) logits.push_back(x.as_double());
    }
  }
  return cases;
}

}  // namespace sluice::testing

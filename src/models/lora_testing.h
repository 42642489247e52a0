// For tests: loads adapters of tests/data/adapters into the slots of a model.
#pragma once

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "base/source_path_testing.h"
#include "models/lora_adapter.h"
#include "models/lora_store.h"
#include "models/model_testing.h"

namespace sluice::testing {

inline std::filesystem::path AdapterFolder(const std::string& name) {
  return std::filesystem::path(SourcePath("tests/data/adapters")) / name;
}

inline void Fill(Runner& runner, int slot, const std::filesystem::path& folder) {
  const std::shared_ptr<LoraStore> slots = runner.model().lora();
  ASSERT_NE(slots, nullptr);
  const auto adapter = LoraAdapter::Open(folder, slots->layout());
  ASSERT_TRUE(adapter) << adapter.error().message;
  const Status filled = slots->Fill(slot, *adapter);
  ASSERT_TRUE(filled) << filled.error().message;
}

}  // namespace sluice::testing

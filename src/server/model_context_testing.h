// Test helper: the model that most tests of the server use.
#pragma once

#include <memory>
#include <utility>

#include <gtest/gtest.h>

#include "base/source_path_testing.h"
#include "server/api/common/model_context.h"

namespace sluice {

inline const std::string kServerTestModel = SourcePath("tests/data/server/model");

inline ModelText TestModelText(const ServerConfig& config, const Engine& engine) {
  Result<ModelText> text = ModelText::Load(config, kServerTestModel, engine.info().model.vocab_size,
                                           engine.info().generation);
  EXPECT_TRUE(text) << text.error().message;
  return *std::move(text);
}

inline std::shared_ptr<const ModelContext> TestModelContext(const ServerConfig& config,
                                                            Engine* engine) {
  return ModelContext::Make(config, engine, TestModelText(config, *engine));
}

}  // namespace sluice

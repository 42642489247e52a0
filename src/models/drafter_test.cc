// Compares the proposals of drafting heads with those of tools/checkpoints/make_drafters.py, in
// float32. Also tests heads that do not match their target.
#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/checkpoint_copy_testing.h"
#include "models/drafter.h"
#include "models/drafts_testing.h"
#include "models/kv_layout.h"
#include "models/model_testing.h"

namespace sluice {
namespace {

using testing::DataFolder;
using testing::DraftCase;

struct HeadSubject {
  const char* target;
  const char* head;  // "": the draft layers of the target's checkpoint
};

ModelOptions OptionsOfHead() {
  return testing::SmallOptions(ElementType::kF32, ElementType::kF32);
}

// A cache with one sequence, whose blocks are in descending order.
class OneSequence {
 public:
  OneSequence(const ModelConfig& config, const ModelOptions& options) {
    const int64_t blocks = options.max_context / options.block_size;
    cache_ = std::make_unique<KvCache>(*KvCache::Allocate(KvLayoutOf(config.spec, options),
                                                          KvGroups::Uniform(config.spec), blocks));
    EXPECT_TRUE(cache_->AllocateStates(StateLayout::For(config.spec), 1));
    for (int64_t i = blocks; i-- > 0;) table_.push_back(static_cast<int32_t>(i));
  }
  // Computes rows for `tokens` at positions `first`, `first` + 1, ..., and the logits of row
  // `wanted_row` (-1: the last row). `span`: tokens that attend to each other, or null.
  void Run(Model& model, ThreadPool& pool, std::span<const int32_t> tokens, int32_t first,
           StepInput input, float* logits, int32_t wanted_row = -1,
           const kernels::SeenSpan* span = nullptr) {
    std::vector<int32_t> positions(tokens.size());
    std::iota(positions.begin(), positions.end(), first);
    const std::vector<kernels::AttentionSlice> slices = {{0, static_cast<int32_t>(tokens.size()),
                                                          first, table_.data(), span,
                                                          span != nullptr ? 1 : 0}};
    const std::vector<StateSlot> states = {{.slot = 0, .is_new = first == 0}};
    const std::vector<int32_t> wanted = {wanted_row < 0 ? static_cast<int32_t>(tokens.size()) - 1
                                                        : wanted_row};
    input.tokens = tokens;
    input.positions = positions;
    input.slices = slices;
    input.logit_rows = wanted;
    if (model.config().spec.KeepsStates()) input.states = states;
    model.Forward(pool, input, *cache_, logits);
  }

 private:
  std::unique_ptr<KvCache> cache_;
  std::vector<int32_t> table_;
};

class HeadBench {
 public:
  explicit HeadBench(const HeadSubject& subject) {
    const std::filesystem::path target = DataFolder(subject.target);
    const bool is_mtp = subject.head[0] == '\0';
    folder_ = is_mtp ? target : DataFolder(subject.head);
    const auto config = LoadModelConfig(target);
    EXPECT_TRUE(config) << (config ? "" : config.error().message);
    auto head = is_mtp ? LoadMtpConfig(*config, target, true)
                : testing::IsDflash(subject.head)
                    ? LoadDflashConfig(folder_, *config, target, {}, true)
                    : LoadEagleConfig(folder_, *config, target, {}, true);
    EXPECT_TRUE(head) << (head ? "" : head.error().message);
    config_ = std::move(head->model);
    spec_ = std::make_shared<const DrafterSpec>(std::move(head->head));
    options_ = OptionsOfHead();
    ModelOptions options = options_, head_options = options_;
    options.handed = spec_->takes;
    head_options.drafter = spec_;
    auto loaded = LoadModel(pool_, target, *config, options);
    EXPECT_TRUE(loaded) << (loaded ? "" : loaded.error().message);
    target_ = *std::move(loaded);
    auto plain = LoadModel(pool_, target, *config, options_);
    EXPECT_TRUE(plain);
    plain_ = *std::move(plain);
    auto loaded_head = LoadDrafter(pool_, folder_, config_, head_options, *target_, target);
    EXPECT_TRUE(loaded_head) << (loaded_head ? "" : loaded_head.error().message);
    head_ = *std::move(loaded_head);
  }

  // Returns the target's hidden rows for a text. Checks that its logits equal those of a model that
  // outputs no hidden rows.
  std::vector<float> HiddenOf(std::span<const int32_t> tokens) {
    const auto vocabulary = static_cast<size_t>(target_->config().vocab_size);
    std::vector<float> handed(tokens.size() * static_cast<size_t>(Width())), logits(vocabulary),
        expected(vocabulary);
    OneSequence sequence(target_->config(), options_), other(target_->config(), options_);
    StepInput input;
    other.Run(*plain_, pool_, tokens, 0, input, expected.data());
    input.handed = handed;
    sequence.Run(*target_, pool_, tokens, 0, input, logits.data());
    EXPECT_EQ(logits, expected);
    return handed;
  }

  // Returns the proposed tokens, and the logits of each. Computes rows in chunks of `chunk`.
  std::vector<int32_t> Propose(std::span<const int32_t> tokens, std::span<const float> hidden,
                               size_t count, size_t chunk,
                               std::vector<std::vector<float>>* all_logits = nullptr) {
    const DrafterSpec& spec = *spec_;
    OneSequence sequence(config_, options_);
    const auto width = static_cast<size_t>(Width());
    std::vector<float> logits(static_cast<size_t>(spec.num_outputs));
    std::vector<float> own(static_cast<size_t>(config_.hidden_size));
    const size_t rows = tokens.size() - 1;
    for (size_t begin = 0; begin < rows; begin += chunk) {
      const size_t size = std::min(chunk, rows - begin);
      StepInput input;
      input.hidden = hidden.subspan(begin * width, size * width);
      if (!spec.drafts_blocks()) input.handed = own;
      sequence.Run(*head_, pool_, tokens.subspan(begin + 1, size), static_cast<int32_t>(begin),
                   input, logits.data());
    }
    if (spec.drafts_blocks()) {
      return ProposeBlock(sequence, tokens.back(), static_cast<int32_t>(rows), count, all_logits);
    }
    std::vector<int32_t> drafts;
    for (size_t i = 0;; ++i) {
      if (all_logits != nullptr) all_logits->push_back(logits);
      const int32_t best = testing::Greedy(logits);
      drafts.push_back(spec.target_ids.empty() ? best : spec.target_ids[static_cast<size_t>(best)]);
      if (drafts.size() == count) return drafts;
      const std::vector<float> taken = own;
      StepInput input;
      input.hidden = taken;
      input.takes_target = false;
      input.handed = own;
      sequence.Run(*head_, pool_, {&drafts.back(), 1}, static_cast<int32_t>(rows + i), input,
                   logits.data());
    }
  }

  // Returns the first `count` tokens of the block after `context` rows.
  std::vector<int32_t> ProposeBlock(OneSequence& sequence, int32_t last, int32_t context,
                                    size_t count, std::vector<std::vector<float>>* all_logits) {
    std::vector<int32_t> block(static_cast<size_t>(spec_->block_size), spec_->mask_token);
    block.front() = last;
    const kernels::SeenSpan span = {context, context + static_cast<int32_t>(block.size())};
    std::vector<int32_t> drafts;
    for (size_t i = 1; i <= count; ++i) {
      std::vector<float> logits(static_cast<size_t>(spec_->num_outputs));
      StepInput input;
      input.takes_target = false;
      sequence.Run(*head_, pool_, block, context, input, logits.data(), static_cast<int32_t>(i),
                   &span);
      drafts.push_back(testing::Greedy(logits));
      if (all_logits != nullptr) all_logits->push_back(std::move(logits));
    }
    return drafts;
  }

  int64_t Width() const { return spec_->target_width(); }
  const std::filesystem::path& folder() const { return folder_; }

 private:
  ThreadPool pool_{2};
  std::filesystem::path folder_;
  ModelConfig config_;
  std::shared_ptr<const DrafterSpec> spec_;
  ModelOptions options_;
  std::unique_ptr<Model> target_, plain_, head_;
};

class DrafterGolden : public ::testing::TestWithParam<HeadSubject> {};

TEST_P(DrafterGolden, ProposesWhatTheReferenceProposes) {
  HeadBench bench(GetParam());
  for (const DraftCase& golden : testing::ReadDrafts(bench.folder() / "drafts.json")) {
    std::vector<int32_t> text = golden.prompt;
    text.insert(text.end(), golden.answer.begin(), golden.answer.end());
    const std::vector<float> hidden = bench.HiddenOf(text);
    std::vector<std::vector<float>> logits;
    for (size_t i = 0; i < golden.drafts.size(); ++i) {
      const size_t length = golden.prompt.size() + 1 + i;
      logits.clear();
      EXPECT_EQ(bench.Propose(std::span(text).first(length), hidden, golden.drafts[i].size(),
                              i % 2 == 0 ? length : 7, &logits),
                golden.drafts[i])
          << "of " << length << " tokens";
    }
    ASSERT_EQ(logits.size(), golden.logits.size());
    for (size_t step = 0; step < logits.size(); ++step) {
      ASSERT_EQ(logits[step].size(), golden.logits[step].size());
      for (size_t k = 0; k < logits[step].size(); ++k)
        EXPECT_NEAR(logits[step][k], golden.logits[step][k], 1e-3) << step << " " << k;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Heads, DrafterGolden,
    ::testing::Values(HeadSubject{"tiny-eagle3-target", "tiny-eagle3"},
                      HeadSubject{"tiny-eagle3-target", "tiny-eagle3-speculators"},
                      HeadSubject{"tiny-eagle3-target", "tiny-eagle1"},
                      HeadSubject{"tiny-eagle3-target", "tiny-dflash"},
                      HeadSubject{"tiny-mtp-deepseek", ""}, HeadSubject{"tiny-mtp-glm", ""},
                      HeadSubject{"tiny-mtp-qwen", ""}, HeadSubject{"tiny-mtp-mimo", ""}),
    [](const auto& info) {
      const bool is_mtp = info.param.head[0] == '\0';
      std::string name = is_mtp ? info.param.target : info.param.head;
      std::ranges::replace(name, '-', '_');
      return name;
    });

// --- heads that do not match their target ---

std::string FailureOfEagle3(const std::function<void(testing::CheckpointCopy&)>& change) {
  testing::CheckpointCopy copy("tiny-eagle3");
  change(copy);
  const std::filesystem::path target = DataFolder("tiny-eagle3-target");
  const auto config = LoadModelConfig(target);
  const std::filesystem::path folder = copy.Write();
  const auto head = LoadEagleConfig(folder, *config, target, {}, true);
  if (!head) return head.error().message;
  ThreadPool pool(1);
  const auto loaded = LoadModel(pool, target, *config, OptionsOfHead());
  ModelOptions options = OptionsOfHead();
  options.drafter = std::make_shared<const DrafterSpec>(head->head);
  const auto drafter = LoadDrafter(pool, folder, head->model, options, **loaded, target);
  return drafter ? "loaded" : drafter.error().message;
}

TEST(Drafter, HeadsThatDoNotFitAreRefusedByBothSides) {
  const std::string target = DataFolder("tiny-eagle3-target").string();
  const auto expect = [](const std::function<void(testing::CheckpointCopy&)>& change,
                         const std::string& words) {
    EXPECT_THAT(FailureOfEagle3(change), ::testing::HasSubstr(words));
  };
  EXPECT_EQ(FailureOfEagle3([](auto&) {}), "loaded");
  expect([](auto& copy) { copy.config().Set("target_hidden_size", 64); },
         "it continues hidden rows of 64 numbers (target_hidden_size of its config.json), but the "
         "hidden rows of the model in " +
             target + " have 32");
  expect([](auto& copy) { copy.config().Set("vocab_size", 256); },
         "its vocabulary has 256 tokens, but that of the model in " + target + " has 128");
  expect([](auto& copy) { copy.Remove("d2t"); },
         "tensor 'd2t' is missing: the head has logits of 96 tokens, the model has 128");
  expect([](auto& copy) { copy.config().Set("draft_vocab_size", 90); },
         "tensor 'd2t' is [96] of I64, expected [90]");
  expect(
      [](auto& copy) {
        int64_t offset = 1000;
        std::memcpy(copy.tensor("d2t").data.data() + 95 * 8, &offset, 8);
      },
      "element 95 of tensor 'd2t' is 1000: token 95 of the head would be token 1095 of the model");
  expect([](auto& copy) { copy.Remove("lm_head.weight"); }, "tensor 'lm_head.weight' is missing");
  expect([](auto& copy) { copy.Remove("fc.weight"); }, "fc");
  expect([](auto& copy) { copy.tensor("fc.weight").shape = {96, 32}; }, "expected [32, 96]");
  expect([](auto& copy) { copy.Remove("midlayer.hidden_norm.weight"); },
         "midlayer.hidden_norm.weight");
  json::Value::Array layers;
  for (const int64_t layer : {2, 4, 8}) layers.emplace_back(layer);
  expect(
      [&](auto& copy) {
        copy.config().Set("eagle_aux_hidden_state_layer_ids", json::Value(layers));
      },
      "the head reads the inputs of layers 2, 4, 8 of the model, which has 8");
}

// An EAGLE-1 head is published as a model with the architecture of its layer.
TEST(Drafter, HeadsOfEagle1ThatDoNotFitAreRefused) {
  const std::filesystem::path target = DataFolder("tiny-eagle3-target");
  const auto config = LoadModelConfig(target);
  const auto failure = [&](const std::function<void(testing::CheckpointCopy&)>& change) {
    testing::CheckpointCopy copy("tiny-eagle1");
    change(copy);
    const auto head = LoadEagleConfig(copy.Write(), *config, target, {}, true);
    return head ? std::string() : head.error().message;
  };
  EXPECT_EQ(failure([](auto&) {}), "");
  EXPECT_EQ(failure([](auto& copy) { copy.Remove("fc.bias"); }), "") << "older heads have none";
  EXPECT_THAT(failure([](auto& copy) { copy.Remove("fc.weight"); }),
              ::testing::HasSubstr("LlamaForCausalLM is no EAGLE head of this program"));
  EXPECT_THAT(failure([](auto& copy) { copy.config().Set("layernorms", true); }),
              ::testing::HasSubstr("layernorms true is not supported"));
  EXPECT_THAT(failure([](auto& copy) { copy.config().Set("vocab_size", 256); }),
              ::testing::HasSubstr("its vocabulary has 256 tokens"));
}

TEST(Drafter, DflashDraftersThatDoNotFitAreRefused) {
  const std::filesystem::path target = DataFolder("tiny-eagle3-target");
  const auto config = LoadModelConfig(target);
  const auto failure = [&](const std::function<void(testing::CheckpointCopy&)>& change) {
    testing::CheckpointCopy copy("tiny-dflash");
    change(copy);
    const std::filesystem::path folder = copy.Write();
    const auto head = LoadDflashConfig(folder, *config, target, {}, true);
    if (!head) return head.error().message;
    ModelOptions options = OptionsOfHead();
    options.drafter = std::make_shared<const DrafterSpec>(head->head);
    const auto opened = OpenDrafter(folder, head->model, options);
    return opened ? std::string() : opened.error().message;
  };
  const auto expect = [&](const std::function<void(testing::CheckpointCopy&)>& change,
                          const std::string& words) {
    EXPECT_THAT(failure(change), ::testing::HasSubstr(words));
  };
  EXPECT_EQ(failure([](auto&) {}), "");
  const auto set = [](const char* key, json::Value value) {
    return [key, value = std::move(value)](testing::CheckpointCopy& copy) {
      json::Value same = value;
      copy.config().Set(key, std::move(same));
    };
  };
  expect(set("vocab_size", 256), "its vocabulary has 256 tokens");
  expect(set("block_size", json::Value()), "block_size is missing");
  expect(set("dflash_config", json::Value(json::Value::Object())), "mask_token_id is missing");
  json::Value::Array other;
  other.emplace_back("DFlash2DraftModel");
  expect(set("architectures", json::Value(std::move(other))),
         "DFlash2DraftModel is no drafter of method dflash, which is DFlashDraftModel");
  json::Value::Array layers;
  layers.emplace_back(7);
  json::Value nested{json::Value::Object()};
  nested.Set("mask_token_id", 127);
  nested.Set("target_layer_ids", json::Value(std::move(layers)));
  expect(set("dflash_config", std::move(nested)),
         "the drafter reads the outputs of layers 7 of the model, which has 8");
  json::Value empty{json::Value::Object()};
  empty.Set("mask_token_id", 127);
  empty.Set("target_layer_ids", json::Value(json::Value::Array()));
  expect(set("dflash_config", std::move(empty)), "the list names no layer of the model");
  expect([](auto& copy) { copy.Remove("fc.weight"); }, "fc");
}

TEST(Drafter, ModelsWithoutLayersThatProposeAreRefused) {
  const std::filesystem::path plain = DataFolder("llama-bf16");
  const auto other = LoadMtpConfig(*LoadModelConfig(plain), plain, true);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(other.error().message, ::testing::HasSubstr("LlamaForCausalLM has no layers"));
  const std::filesystem::path none = DataFolder("tiny-deepseek-v3");
  const auto without = LoadMtpConfig(*LoadModelConfig(none), none, true);
  ASSERT_FALSE(without);
  EXPECT_EQ(without.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(without.error().message, ::testing::HasSubstr("num_nextn_predict_layers"));
}

}  // namespace
}  // namespace sluice

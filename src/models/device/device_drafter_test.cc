// Tests drafting heads on the emulated device. As far as BF16 allows, their proposals equal those
// of tools/checkpoints/make_drafters.py, which computes in float32.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "device/device_pool.h"
#include "models/device/device_model_testing.h"
#include "models/drafter.h"
#include "models/drafts_testing.h"

namespace sluice {
namespace {

using testing::DataFolder;
using testing::DraftCase;

struct HeadSubject {
  const char* target;
  const char* head;  // "": the draft layers of the target's checkpoint
};

// A target and its head in memory of exactly the planned size.
class DeviceHead {
 public:
  explicit DeviceHead(const HeadSubject& subject) : device_(testing::kArraysApart) {
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
    options_ = testing::DeviceOptions();
    if (config->spec.KeepsStates()) options_.state_slots = 1;
    head_options_ = options_;
    head_options_.state_slots = 0;
    options_.handed = spec_->takes;
    head_options_.drafter = spec_;
    head_options_.target = std::make_shared<const ModelConfig>(*config);
    head_options_.kept_rows = options_.max_rows;
    const ModelMemory of_target = Planned(*config, options_);
    const ModelMemory of_head = Planned(config_, head_options_);
    const int64_t kv = CacheBytes(of_target), head_kv = CacheBytes(of_head);
    const int64_t states = DevicePool::Padded(of_target.state_bytes_per_slot);
    auto pool = DevicePool::Allocate(device_,
                                     of_target.weight_bytes + of_target.workspace_bytes +
                                         of_head.weight_bytes + of_head.workspace_bytes + kv +
                                         head_kv + states,
                                     "a model and its head");
    EXPECT_TRUE(pool) << (pool ? "" : pool.error().message);
    pool_ = std::make_unique<DevicePool>(*std::move(pool));
    auto model = LoadDeviceModel(device_, *pool_, threads_, target, *config, options_);
    EXPECT_TRUE(model) << (model ? "" : model.error().message);
    target_ = *std::move(model);
    auto loaded =
        LoadDeviceDrafter(device_, *pool_, threads_, folder_, config_, head_options_, *target_);
    EXPECT_TRUE(loaded) << (loaded ? "" : loaded.error().message);
    head_ = *std::move(loaded);
    target_cache_ = Cache(config->spec, options_, kv);
    target_cache_->WrapStates(StateLayout::For(config->spec), options_.state_slots,
                              *pool_->Take(states, "states"));
    head_cache_ = Cache(config_.spec, head_options_, head_kv);
    EXPECT_EQ(pool_->used_bytes(), pool_->size_bytes());
  }

  // Computes the target's hidden rows, which stay on the device.
  void ReadText(std::span<const int32_t> tokens) {
    std::vector<float> logits(static_cast<size_t>(target_->config().vocab_size));
    const StateSlot state = {.slot = 0, .is_new = true};
    StepInput input;
    if (target_->config().spec.KeepsStates()) input.states = {&state, 1};
    Run(*target_, *target_cache_, tokens, 0, input, logits);
  }

  // Returns the proposed tokens, and the logits of each. Computes rows in chunks of `chunk`. In odd
  // chunks, the head reads hidden rows that the target has kept.
  std::vector<int32_t> Propose(std::span<const int32_t> tokens, size_t count, size_t chunk,
                               std::vector<std::vector<float>>& all_logits) {
    const DrafterSpec& spec = *spec_;
    std::vector<float> logits(static_cast<size_t>(spec.num_outputs));
    const size_t rows = tokens.size() - 1;
    bool is_kept = false;
    for (size_t begin = 0; begin < rows; begin += chunk, is_kept = !is_kept) {
      const size_t size = std::min(chunk, rows - begin);
      std::vector<int32_t> indices(size);
      std::iota(indices.begin(), indices.end(), static_cast<int32_t>(begin));
      StepInput input;
      input.hidden_memory = target_->handed_rows();
      if (is_kept) {
        constexpr int32_t kPlace = 3;
        head_->KeepRows(target_->handed_rows(), static_cast<int64_t>(begin),
                        static_cast<int64_t>(size), kPlace);
        input.hidden_memory = head_->kept_rows();
        std::iota(indices.begin(), indices.end(), kPlace);
      }
      input.hidden_rows = indices;
      Run(*head_, *head_cache_, tokens.subspan(begin + 1, size), static_cast<int32_t>(begin), input,
          logits);
    }
    std::vector<int32_t> drafts;
    if (spec.drafts_blocks()) {
      std::vector<int32_t> block(static_cast<size_t>(spec.block_size), spec.mask_token);
      block.front() = tokens.back();
      const auto begin = static_cast<int32_t>(rows);
      const kernels::SeenSpan span = {begin, begin + static_cast<int32_t>(block.size())};
      for (size_t i = 1; i <= count; ++i) {
        StepInput input;
        input.takes_target = false;
        Run(*head_, *head_cache_, block, begin, input, logits, static_cast<int32_t>(i), &span);
        all_logits.push_back(logits);
        drafts.push_back(testing::Greedy(logits));
      }
      return drafts;
    }
    for (size_t i = 0;; ++i) {
      all_logits.push_back(logits);
      const int32_t best = testing::Greedy(logits);
      drafts.push_back(spec.target_ids.empty() ? best : spec.target_ids[static_cast<size_t>(best)]);
      if (drafts.size() == count) return drafts;
      const int32_t own = 0;
      StepInput input;
      input.hidden_memory = head_->handed_rows();
      input.hidden_rows = {&own, 1};
      input.takes_target = false;
      Run(*head_, *head_cache_, {&drafts.back(), 1}, static_cast<int32_t>(rows + i), input, logits);
    }
  }

  const DrafterSpec& spec() const { return *spec_; }
  const std::filesystem::path& folder() const { return folder_; }

 private:
  int64_t NumBlocks() const { return options_.max_context / options_.block_size; }
  int64_t CacheBytes(const ModelMemory& memory) const {
    return DevicePool::Padded(memory.kv_bytes_per_block * NumBlocks());
  }
  ModelMemory Planned(const ModelConfig& config, const ModelOptions& options) const {
    const auto memory = PlanDeviceModel(config, options, device_.info());
    EXPECT_TRUE(memory) << (memory ? "" : memory.error().message);
    return *memory;
  }
  std::unique_ptr<KvCache> Cache(const DecoderSpec& spec, const ModelOptions& options,
                                 int64_t bytes) {
    const auto memory = pool_->Take(bytes, "the KV cache");
    EXPECT_TRUE(memory) << (memory ? "" : memory.error().message);
    return std::make_unique<KvCache>(
        KvCache::Wrap(KvLayoutOf(spec, options), KvGroups::Uniform(spec), NumBlocks(), *memory));
  }
  // Computes rows for `tokens` at positions `first`, `first` + 1, ..., and the logits of row
  // `wanted_row` (-1: the last row). `span`: tokens that attend to each other, or null.
  void Run(Model& model, KvCache& cache, std::span<const int32_t> tokens, int32_t first,
           StepInput input, std::vector<float>& logits, int32_t wanted_row = -1,
           const kernels::SeenSpan* span = nullptr) {
    std::vector<int32_t> positions(tokens.size()), table(static_cast<size_t>(NumBlocks()));
    std::iota(positions.begin(), positions.end(), first);
    std::iota(table.rbegin(), table.rend(), 0);
    const std::vector<kernels::AttentionSlice> slices = {{0, static_cast<int32_t>(tokens.size()),
                                                          first, table.data(), span,
                                                          span != nullptr ? 1 : 0}};
    const std::vector<int32_t> wanted = {wanted_row < 0 ? static_cast<int32_t>(tokens.size()) - 1
                                                        : wanted_row};
    input.tokens = tokens;
    input.positions = positions;
    input.slices = slices;
    input.logit_rows = wanted;
    model.Forward(threads_, input, cache, logits.data());
  }

  EmulatedDevice device_;
  ThreadPool threads_{2};
  std::filesystem::path folder_;
  ModelConfig config_;
  std::shared_ptr<const DrafterSpec> spec_;
  ModelOptions options_, head_options_;
  std::unique_ptr<DevicePool> pool_;
  std::unique_ptr<Model> target_, head_;
  std::unique_ptr<KvCache> target_cache_, head_cache_;
};

// Root mean square of the difference of two rows, divided by the root mean square of the second
// row.
double RelativeRms(const std::vector<float>& row, const std::vector<double>& golden) {
  double difference = 0, all = 0;
  for (size_t i = 0; i < golden.size(); ++i) {
    difference += (row[i] - golden[i]) * (row[i] - golden[i]);
    all += golden[i] * golden[i];
  }
  return std::sqrt(difference / all);
}

class DeviceDrafter : public ::testing::TestWithParam<HeadSubject> {};

// Drafts after one that differs are not compared, because they follow another token. Measured: a
// median of 0.01 to 0.03, and at least 96 % equal drafts. The exception is tiny-mtp-qwen: errors in
// its recurrent states grow with the length of the text, and change the choice of experts.
TEST_P(DeviceDrafter, HeavyProposesWhatTheReferenceProposes) {
  const bool has_states = std::string(GetParam().target) == "tiny-mtp-qwen";
  DeviceHead head(GetParam());
  int64_t compared = 0, equal = 0;
  std::vector<double> rms;
  for (const DraftCase& golden : testing::ReadDrafts(head.folder() / "drafts.json")) {
    std::vector<int32_t> text = golden.prompt;
    text.insert(text.end(), golden.answer.begin(), golden.answer.end());
    head.ReadText(text);
    for (size_t i = 0; i < golden.drafts.size(); ++i) {
      const size_t length = golden.prompt.size() + 1 + i;
      const std::vector<int32_t>& expected = golden.drafts[i];
      std::vector<std::vector<float>> logits;
      const std::vector<int32_t> drafts = head.Propose(
          std::span(text).first(length), expected.size(), i % 2 == 0 ? length : 7, logits);
      for (size_t k = 0; k < expected.size(); ++k) {
        if (i + 1 == golden.drafts.size()) rms.push_back(RelativeRms(logits[k], golden.logits[k]));
        ++compared;
        equal += drafts[k] == expected[k] ? 1 : 0;
        if (drafts[k] != expected[k]) break;
      }
    }
  }
  std::ranges::sort(rms);
  EXPECT_LE(rms[rms.size() / 2], has_states ? 0.4 : 0.06);
  EXPECT_GT(compared, 100);
  EXPECT_GE(equal, compared * (has_states ? 60 : 93) / 100) << "of " << compared;
}

INSTANTIATE_TEST_SUITE_P(
    Heads, DeviceDrafter,
    ::testing::Values(HeadSubject{"tiny-eagle3-target", "tiny-eagle3"},
                      HeadSubject{"tiny-eagle3-target", "tiny-eagle3-speculators"},
                      HeadSubject{"tiny-eagle3-target", "tiny-eagle1"},
                      HeadSubject{"tiny-eagle3-target", "tiny-dflash"},
                      HeadSubject{"tiny-mtp-deepseek-even", ""}, HeadSubject{"tiny-mtp-glm", ""},
                      HeadSubject{"tiny-mtp-qwen", ""}, HeadSubject{"tiny-mtp-mimo", ""}),
    [](const auto& info) {
      const bool is_mtp = info.param.head[0] == '\0';
      std::string name = is_mtp ? info.param.target : info.param.head;
      std::ranges::replace(name, '-', '_');
      return name;
    });

}  // namespace
}  // namespace sluice

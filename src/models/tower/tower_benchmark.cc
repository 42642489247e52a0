// Measures images per second of image towers of published shapes, with random weights.
// benchmarks/tower_speed.py compares them with transformers.
#include <thread>

#include <benchmark/benchmark.h>

#include "base/check.h"
#include "base/json.h"
#include "models/tower/image_tower.h"

namespace sluice {
namespace {

// Gemma 3 4B: 896 x 896 pixels.
constexpr const char* kGemma3 = R"({
  "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
  "mm_tokens_per_image": 256, "image_token_index": 262144,
  "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
    "num_hidden_layers": 1, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
    "vocab_size": 262208, "sliding_window": 1024},
  "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152,
    "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16,
    "image_size": 896, "patch_size": 14}})";

// Qwen3-VL 2B: 60 x 80 patches, 960 x 1280 pixels.
constexpr const char* kQwen3Vl = R"({
  "architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl",
  "image_token_id": 151655, "vision_start_token_id": 151652, "vision_end_token_id": 151653,
  "text_config": {"model_type": "qwen3_vl_text", "hidden_size": 2048, "intermediate_size": 6144,
    "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
    "vocab_size": 151936, "rope_theta": 5000000,
    "rope_scaling": {"mrope_section": [24, 20, 20], "mrope_interleaved": true,
                     "rope_type": "default"}},
  "vision_config": {"model_type": "qwen3_vl", "depth": 24, "hidden_size": 1024,
    "intermediate_size": 4096, "num_heads": 16, "patch_size": 16, "temporal_patch_size": 2,
    "spatial_merge_size": 2, "out_hidden_size": 2048, "num_position_embeddings": 2304,
    "hidden_act": "gelu_pytorch_tanh", "deepstack_visual_indexes": [5, 11, 17]}})";

ProcessedImage Gemma3Image() {
  ProcessedImage image;
  image.shape = {1, 3, 896, 896};
  image.num_embeddings = 256;
  return image;
}

ProcessedImage QwenImage() {
  ProcessedImage image;
  image.grid = {1, 60, 80};
  image.shape = {4800, 1536};
  image.num_embeddings = 1200;
  return image;
}

void Measure(benchmark::State& state, const char* text, ProcessedImage image) {
  const auto config = ParseModelShape(*json::Parse(text));
  CHECK(config.has_value(), "{}", config ? "" : config.error().message);
  const auto spec = ReadTowerSpec(*config);
  CHECK(spec && spec->has_value(), "{}", spec ? "no tower" : spec.error().message);
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  ThreadPool pool(cores);
  const TowerOptions options = {.compute_type = ElementType::kBF16,
                                .most_patches = 4800,
                                .load_format = ModelOptions::LoadFormat::kDummy};
  const auto tower = ImageTower::Load(pool, {}, **spec, *config->scheme, options);
  CHECK(tower.has_value(), "{}", tower ? "" : tower.error().message);
  (*tower)->PrepareThread(pool);
  int64_t numbers = 1;
  for (const int64_t size : image.shape) numbers *= size;
  for (int64_t i = 0; i < numbers; ++i)
    image.values.push_back(static_cast<float>(i * 7919 % 2000) / 1000 - 1);
  std::vector<float> rows(static_cast<size_t>(image.num_embeddings * (*spec)->row_width()));
  std::vector<float*> targets;
  for (int i = 0; i < image.num_embeddings; ++i)
    targets.push_back(rows.data() + i * (*spec)->row_width());
  for (auto _ : state) (*tower)->Encode(pool, image, targets);
  state.counters["images/s"] =
      benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
  state.counters["threads"] = cores;
}

void BM_Gemma3(benchmark::State& state) {
  Measure(state, kGemma3, Gemma3Image());
}
void BM_Qwen3Vl(benchmark::State& state) {
  Measure(state, kQwen3Vl, QwenImage());
}
BENCHMARK(BM_Gemma3)->UseRealTime()->Unit(benchmark::kMillisecond)->Iterations(3);
BENCHMARK(BM_Qwen3Vl)->UseRealTime()->Unit(benchmark::kMillisecond)->Iterations(3);

}  // namespace
}  // namespace sluice

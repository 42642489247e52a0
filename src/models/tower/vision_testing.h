// For tests: the images of golden_images.json (tools/checkpoints/make_vision.py).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "models/golden_testing.h"
#include "vision/processed_image.h"

namespace sluice::testing {

// Returns the same pixels as pixels() of make_vision.py.
inline std::vector<float> VisionPixels(uint32_t seed, int64_t count) {
  std::vector<float> values;
  uint32_t state = seed * 2654435761u;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    values.push_back(static_cast<float>(state >> 16) / 32768 - 1);
  }
  return values;
}

struct VisionImage {
  int64_t position = 0;
  std::shared_ptr<const ProcessedImage> image;
};
struct VisionCase : GoldenCase {
  std::vector<VisionImage> images;
};

inline std::vector<int64_t> Numbers64(const json::Value& list) {
  std::vector<int64_t> numbers;
  for (const json::Value& value : list.as_array()) numbers.push_back(value.as_integer());
  return numbers;
}

inline VisionImage ReadVisionImage(const json::Value& value, const std::vector<int32_t>& prompt) {
  VisionImage placed;
  placed.position = value.Find("position")->as_integer();
  ProcessedImage image;
  image.shape = Numbers64(*value.Find("shape"));
  int64_t count = 1;
  for (const int64_t size : image.shape) count *= size;
  const auto seed = static_cast<uint32_t>(value.Find("seed")->as_integer());
  image.values = VisionPixels(seed, count);
  const std::vector<int64_t> grid = Numbers64(*value.Find("grid"));
  if (const json::Value* tiles = value.Find("tiles")) {
    const std::vector<int64_t> sides = Numbers64(*tiles), kept = Numbers64(*value.Find("kept"));
    for (size_t i = 0; i < 2; ++i) image.tiles[i] = static_cast<int>(sides[i]);
    for (size_t i = 0; i < 4; ++i) image.kept[i] = static_cast<int>(kept[i]);
  }
  for (size_t i = 0; i < 3; ++i) image.grid[i] = static_cast<int>(grid[i]);
  for (const int64_t mark : Numbers64(*value.Find("is_embedding"))) {
    image.is_embedding.push_back(static_cast<uint8_t>(mark));
    image.num_embeddings += static_cast<int>(mark);
    image.tokens.push_back(prompt[static_cast<size_t>(placed.position) + image.tokens.size()]);
  }
  image.hash = {seed, static_cast<uint64_t>(count)};
  placed.image = std::make_shared<const ProcessedImage>(std::move(image));
  return placed;
}

inline std::vector<VisionCase> ReadVisionGolden(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "golden_images.json";
  std::vector<VisionCase> cases;
  for (GoldenCase& golden : ReadGolden(file))
    static_cast<GoldenCase&>(cases.emplace_back()) = std::move(golden);
  const auto parsed = json::Parse(*ReadFile(file));
  const auto& list = parsed->Find("cases")->as_array();
  for (size_t i = 0; i < cases.size(); ++i) {
    for (const json::Value& image : list[i].Find("images")->as_array())
      cases[i].images.push_back(ReadVisionImage(image, cases[i].prompt));
  }
  return cases;
}

// Towers that devices take, with heads of 16 elements.
inline constexpr const char* kWideVisionCheckpoints[] = {
    "tiny-gemma3-vision-wide",   "tiny-gemma4-vision-wide", "tiny-llama4-vision-wide",
    "tiny-mistral3-vision-wide", "tiny-paddleocr-vl-wide",  "tiny-qwen2.5-vl-wide",
    "tiny-qwen3-vl-wide",        "tiny-internvl-wide"};

inline constexpr const char* kVisionCheckpoints[] = {
    "tiny-gemma3-vision",   "tiny-gemma4-vision",  "tiny-gemma4-e-vision", "tiny-llama4-vision",
    "tiny-mistral3-vision", "tiny-paddleocr-vl",   "tiny-qwen2.5-vl",      "tiny-qwen3-vl",
    "tiny-qwen3-vl-moe",    "tiny-qwen3.5-vl",     "tiny-llava-clip",      "tiny-llava-siglip",
    "tiny-llava-pixtral",   "tiny-qwen2-vl",       "tiny-glm-ocr",         "tiny-glm4v",
    "tiny-glm4v-moe",       "tiny-internvl",       "tiny-idefics3",        "tiny-lfm2-vl",
    "tiny-llava-next",      "tiny-granite-vision", "tiny-aya-vision",      "tiny-kimi-k25"};

}  // namespace sluice::testing

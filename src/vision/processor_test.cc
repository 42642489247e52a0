#include "vision/processor.h"

#include <map>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>

#include "base/file.h"
#include "base/source_path_testing.h"
#include "media/decode_image.h"
#include "media/test_images_testing.h"

namespace sluice {
namespace {

using Object = json::Value::Object;

std::string DataFile(const std::string& name) {
  return ReadFile(SourcePath("tests/data/" + name)).value();
}

std::string Sha256OfFloats(const std::vector<float>& values) {
  unsigned char digest[32];
  unsigned length = 0;
  EVP_Digest(values.data(), values.size() * sizeof(float), digest, &length, EVP_sha256(), nullptr);
  std::string text;
  for (const unsigned char byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

Image DecodedFile(const std::string& name) {
  for (const TestImage& image : ReadTestImages()) {
    if (image.name == name)
      return DecodeImage(image.bytes, ReadImageHeader(image.bytes).value()).value();
  }
  ADD_FAILURE() << "no image " << name;
  return {};
}

// Returns an image by its name in processed.jsonl: a file's name, or "WIDTHxHEIGHT" for a file
// repeated to this size.
Image NamedImage(const std::string& name) {
  int width = 0;
  int height = 0;
  if (std::sscanf(name.c_str(), "%dx%d", &width, &height) != 2) return DecodedFile(name);
  const Image tile = DecodedFile("progressive.jpg");
  Image image{width, height, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const uint8_t* from = tile.row(y % tile.height) + 3 * (x % tile.width);
      image.rgb.insert(image.rgb.end(), from, from + 3);
    }
  }
  return image;
}

// Token ids above 100 are for tokens that a processor looks up by text, in the order of the
// lookups.
ProcessorInputs InputsOf(const json::Value& processor) {
  ProcessorInputs inputs;
  inputs.config = Object{{"model_type", *processor.Find("model_type")},
                         {"vision_config", Object{}},
                         {"image_token_id", 5},
                         {"boi_token_id", 6},
                         {"eoi_token_id", 7}};
  inputs.image_processor = *processor.Find("preprocessor_config");
  inputs.processor = *processor.Find("processor_config");
  inputs.overrides = *processor.Find("overrides");
  auto known = std::make_shared<std::map<std::string, int32_t>>();
  inputs.token_id = [known](std::string_view text) -> std::optional<int32_t> {
    return known->emplace(text, 101 + static_cast<int32_t>(known->size())).first->second;
  };
  inputs.token_text = [](int32_t id) { return fmt::format("<{}>", id); };
  return inputs;
}

std::vector<int64_t> Integers(const json::Value& array) {
  std::vector<int64_t> out;
  for (const json::Value& value : array.as_array()) out.push_back(value.as_integer());
  return out;
}

// Compares a processor's output with a row of processed.jsonl.
void ExpectAsRow(const ImageParts& parts, const json::Value& row) {
  std::vector<float> values;
  for (const auto& part : parts)
    values.insert(values.end(), part->values.begin(), part->values.end());
  std::vector<int64_t> shape = parts.front()->shape;
  for (size_t i = 1; i < parts.size(); ++i) shape[0] += parts[i]->shape[0];
  EXPECT_EQ(shape, Integers(*row.Find("shape")));
  EXPECT_EQ(Sha256OfFloats(values), row.Find("sha256")->as_string());
  const ProcessedImage& image = *parts.front();
  if (const json::Value* grid = row.Find("grid")) {
    EXPECT_EQ(std::vector<int64_t>(image.grid.begin(), image.grid.end()), Integers(*grid));
  }
  if (const json::Value* tiles = row.Find("tiles")) {
    EXPECT_EQ(std::vector<int64_t>(image.tiles.begin(), image.tiles.end()), Integers(*tiles));
  }
  if (const json::Value* units = row.Find("units")) {
    EXPECT_EQ(shape[0], units->as_integer());
  }
  if (const json::Value* tokens = row.Find("soft_tokens")) {
    EXPECT_EQ(image.num_embeddings, tokens->as_integer());
  }
}

// Compares processors with the output of transformers' (tools/vision/make_processed.py). Returns
// the number of rows.
int ExpectAsTransformers(const std::string& processors_name, const std::string& processed_name) {
  const json::Value processors = json::Parse(DataFile(processors_name)).value();
  std::map<std::string, std::unique_ptr<ImageProcessor>> made;
  for (const auto& [name, processor] : processors.as_object()) {
    Result<std::unique_ptr<ImageProcessor>> one = ImageProcessor::Create(InputsOf(processor));
    EXPECT_TRUE(one) << name << ": " << (one ? "" : one.error().message);
    if (!one) return 0;
    made[name] = *std::move(one);
  }
  std::istringstream lines(DataFile(processed_name));
  std::string line;
  int rows = 0;
  while (std::getline(lines, line)) {
    const json::Value row = json::Parse(line).value();
    SCOPED_TRACE(line.substr(0, 80));
    const Image image = NamedImage(row.Find("image")->as_string());
    const ImageProcessor& processor = *made.at(row.Find("processor")->as_string());
    const Result<ImageParts> parts = processor.Process(image);
    const std::optional<int64_t> memory = processor.MemoryBytes(image.width, image.height);
    EXPECT_EQ(parts.has_value(), memory.has_value());
    ++rows;
    if (row.Find("error") != nullptr) {
      EXPECT_FALSE(parts);
      continue;
    }
    EXPECT_TRUE(parts) << (parts ? "" : parts.error().message);
    if (!parts) continue;
    ExpectAsRow(*parts, row);
    int64_t held = 0;
    for (const auto& part : *parts) held += part->bytes();
    EXPECT_LE(held, *memory + 1024);
  }
  return rows;
}

TEST(ImageProcessorTest, ValuesEqualThoseOfTransformers) {
  EXPECT_GT(ExpectAsTransformers("vision/processors.json", "vision/processed.jsonl"), 150);
}

TEST(ImageProcessorTest, ValuesOfPublishedSettingsEqualThoseOfTransformers) {
  EXPECT_GE(
      ExpectAsTransformers("vision/published_processors.json", "vision/published_processed.jsonl"),
      15 * 26);
}

// Creates a family's processor, with small settings.
std::unique_ptr<ImageProcessor> SmallProcessor(const std::string& name) {
  const json::Value processors = json::Parse(DataFile("vision/processors.json")).value();
  return ImageProcessor::Create(InputsOf(*processors.Find(name))).value();
}

Image Gray(int width, int height) {
  return {width, height, std::vector<uint8_t>(static_cast<size_t>(width) * height * 3, 128)};
}

std::string Repeated(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

TEST(ImageProcessorTest, Llama4SeparatesTilesAndEndsWithTheWholeImage) {
  const auto processor = SmallProcessor("llama4 six tiles");
  EXPECT_EQ(processor->placeholder(), "<|image|>");
  // 28 x 28 pixels, patches of 7, shuffled 2 x 2: four tokens per tile.
  const std::string tile = Repeated("<|patch|>", 4);
  EXPECT_EQ(processor->Expansion(processor->Process(Gray(20, 20)).value()),
            "<|image_start|><|image|>" + tile + "<|image_end|>");
  const auto parts = processor->Process(Gray(56, 56)).value();
  EXPECT_EQ(parts[0]->tiles, (std::array<int, 2>{2, 2}));
  EXPECT_EQ(parts[0]->grid, (std::array<int, 3>{1, 4, 4}));
  const std::string row = tile + "<|tile_x_separator|>" + tile + "<|tile_y_separator|>";
  EXPECT_EQ(processor->Expansion(parts),
            "<|image_start|>" + row + row + "<|image|>" + tile + "<|image_end|>");
  EXPECT_EQ(parts[0]->num_embeddings, 20);
}

TEST(ImageProcessorTest, PixtralEndsRows) {
  const auto processor = SmallProcessor("mistral3");  // 14 x 14 pixels per token
  const auto parts = processor->Process(Gray(28, 20)).value();
  EXPECT_EQ(processor->Expansion(parts), "<5><5>[IMG_BREAK]<5><5>[IMG_END]");
  EXPECT_EQ(parts[0]->tokens, (std::vector<int32_t>{5, 5, 101, 5, 5, 102}));
  EXPECT_EQ(parts[0]->is_embedding, (std::vector<uint8_t>{1, 1, 0, 1, 1, 0}));
}

TEST(ImageProcessorTest, Gemma3PutsTextAroundImagesAndCrops) {
  const std::string one = "\n\n<6>" + Repeated("<5>", 9) + "<7>\n\n";
  const auto processor = SmallProcessor("gemma3 crops");
  EXPECT_EQ(processor->placeholder(), "<6>");
  EXPECT_EQ(processor->Expansion(processor->Process(Gray(20, 20)).value()), one);
  const auto parts = processor->Process(Gray(60, 20)).value();
  EXPECT_EQ(parts.size(), 4);
  EXPECT_EQ(processor->Expansion(parts), "Here is the original image " + one +
                                             " and here are some crops to help you see better " +
                                             one + " " + one + " " + one);
}

TEST(ImageProcessorTest, SquaresHaveATokenForEachPatch) {
  const auto clip = SmallProcessor("clip");  // 28 x 28 pixels, patches of 7
  EXPECT_EQ(clip->Expansion(clip->Process(Gray(9, 40)).value()), Repeated("<5>", 16));
  EXPECT_EQ(clip->Process(Gray(9, 40)).value()[0]->grid, (std::array<int, 3>{1, 4, 4}));
  // Only the middle of a long image is resized.
  EXPECT_LT(clip->MemoryBytes(1, 100000).value_or(0), 100 << 20);
  EXPECT_TRUE(clip->Process(Gray(1, 100000)));
}

TEST(ImageProcessorTest, InternVlHasTheWholeImageBehindItsTiles) {
  const auto processor = SmallProcessor("internvl");  // tiles of 28 x 28 pixels, 4 tokens each
  EXPECT_EQ(processor->Expansion(processor->Process(Gray(56, 28)).value()),
            "<img>" + Repeated("<5>", 12) + "</img>");
  EXPECT_EQ(processor->Expansion(processor->Process(Gray(28, 28)).value()),
            "<img>" + Repeated("<5>", 4) + "</img>");
}

TEST(ImageProcessorTest, AyaNumbersTiles) {
  const auto processor = SmallProcessor("aya");  // tiles of 28 x 28 pixels, 4 tokens each
  EXPECT_EQ(processor->placeholder(), "<image>");
  const std::string tile = Repeated("<5>", 4);
  const ImageParts parts = processor->Process(Gray(56, 28)).value();
  EXPECT_EQ(parts.size(), 3);
  EXPECT_EQ(processor->Expansion(parts), "<|START_OF_IMG|>TILE_1" + tile + "TILE_2" + tile +
                                             "TILE_GLOBAL" + tile + "<|END_OF_IMG|>");
  EXPECT_EQ(processor->Expansion(processor->Process(Gray(28, 28)).value()),
            "<|START_OF_IMG|>TILE_GLOBAL" + tile + "<|END_OF_IMG|>");
}

TEST(ImageProcessorTest, KimiReadsThePublishedNames) {
  const json::Value processors = json::Parse(DataFile("vision/processors.json")).value();
  ProcessorInputs inputs = InputsOf(*processors.Find("kimi-k2.5"));
  const auto expected = ImageProcessor::Create(inputs).value();
  inputs.image_processor =
      Object{{"media_proc_cfg", Object{{"in_patch_limit", 70},
                                       {"patch_size", 7},
                                       {"merge_kernel_size", 2},
                                       {"patch_limit_on_one_side", 12},
                                       {"image_mean", json::Value::Array{0.5, 0.5, 0.5}},
                                       {"image_std", json::Value::Array{0.5, 0.5, 0.5}},
                                       {"fixed_output_tokens", json::Value()}}}};
  const auto processor = ImageProcessor::Create(inputs).value();
  for (const Image& image : {Gray(200, 90), Gray(3, 5)})
    EXPECT_EQ(processor->Process(image).value()[0]->hash,
              expected->Process(image).value()[0]->hash);
}

TEST(ImageProcessorTest, Idefics3NamesRowsAndColumnsOfTiles) {
  const auto processor = SmallProcessor("idefics3");  // tiles of 28 x 28 pixels, 4 tokens each
  const std::string fake = "<fake_token_around_image>", tile = Repeated("<5>", 4);
  std::string expected;
  for (const int row : {1, 2}) {
    for (const int column : {1, 2, 3})
      expected += fmt::format("{}<row_{}_col_{}>{}", fake, row, column, tile);
    expected += "\n";
  }
  expected += "\n" + fake + "<global-img>" + tile + fake;
  const ImageParts parts = processor->Process(Gray(40, 20)).value();
  EXPECT_EQ(parts.size(), 7);
  EXPECT_EQ(processor->Expansion(parts), expected);
  const auto whole = SmallProcessor("idefics3, whole");
  EXPECT_EQ(whole->Expansion(whole->Process(Gray(40, 20)).value()),
            fake + "<global-img>" + tile + fake);
}

TEST(ImageProcessorTest, Lfm2VlMarksTilesOfLargeImages) {
  const auto processor = SmallProcessor("lfm2-vl");  // tiles of 32 x 32 pixels, 16 tokens each
  EXPECT_EQ(processor->Expansion(processor->Process(Gray(32, 16)).value()),
            "<|image_start|>" + Repeated("<5>", 8) + "<|image_end|>");
  const ImageParts parts = processor->Process(Gray(80, 40)).value();
  const std::string tile = Repeated("<5>", 16);
  EXPECT_EQ(processor->Expansion(parts), "<|image_start|><|img_row_1_col_1|>" + tile +
                                             "<|img_row_1_col_2|>" + tile + "<|img_thumbnail|>" +
                                             Repeated("<5>", parts.back()->num_embeddings) +
                                             "<|image_end|>");
}

TEST(ImageProcessorTest, HashTellsImagesApart) {
  const auto processor = SmallProcessor("qwen3-vl");
  Image image = Gray(64, 64);
  const auto first = processor->Process(image).value()[0]->hash;
  EXPECT_EQ(processor->Process(image).value()[0]->hash, first);
  image.rgb[100] ^= 1;
  EXPECT_NE(processor->Process(image).value()[0]->hash, first);
}

TEST(ImageProcessorTest, RefusesByName) {
  const json::Value processors = json::Parse(DataFile("vision/processors.json")).value();
  ProcessorInputs inputs = InputsOf(*processors.Find("qwen3-vl"));
  inputs.overrides = Object{{"max_pixel", 5}};
  EXPECT_NE(ImageProcessor::Create(inputs).error().message.find("max_pixel is not a setting"),
            std::string::npos);
  inputs = InputsOf(*processors.Find("qwen3-vl"));
  inputs.image_processor.Set("resample", 4);
  EXPECT_EQ(ImageProcessor::Create(inputs).error().code, ErrorCode::kUnsupported);
  inputs.config.Set("model_type", "eyes");
  EXPECT_EQ(ImageProcessor::Create(inputs).error().message,
            "no image processor for models of type eyes");
  inputs.config = Object{{"model_type", "llama"}};
  EXPECT_EQ(ImageProcessor::Create(inputs).value(), nullptr);
  const auto processor = SmallProcessor("qwen3-vl");
  EXPECT_EQ(processor->Process(Gray(603, 3)).error().message,
            "an image of 603 x 3 pixels is too thin: one side may be at most 200 times the other");
}

TEST(ImageProcessorTest, OverridesAct) {
  const json::Value processors = json::Parse(DataFile("vision/processors.json")).value();
  ProcessorInputs inputs = InputsOf(*processors.Find("qwen3-vl"));
  inputs.overrides = Object{{"images_kwargs", Object{{"max_pixels", 1024}, {"min_pixels", 1024}}}};
  const auto processor = ImageProcessor::Create(inputs).value();
  EXPECT_EQ(processor->Process(Gray(300, 300)).value()[0]->num_embeddings, 1);
}

}  // namespace
}  // namespace sluice

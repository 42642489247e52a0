// Tests loading of checkpoints with weights in narrow formats.
#include <cmath>
#include <functional>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_testing.h"
#include "checkpoint/scheme.h"
#include "models/model_testing.h"
#include "models/weight_loader.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using testing::DataFolder;
using ::testing::HasSubstr;
using testing::LogitRows;
using testing::MakeSafetensors;
using testing::Runner;
using testing::SmallOptions;
using testing::TemporaryFolder;
using testing::TestTensor;
using testing::WriteFile;

const std::vector<int32_t> kSomeTokens = {5, 17, 300, 42, 9, 9, 501, 0, 77, 128};

// A copy of a quantized checkpoint with modified tensors.
class QuantizedCopy {
 public:
  explicit QuantizedCopy(const std::string& name) : source_(DataFolder(name)) {
    const auto checkpoint = Checkpoint::Open(source_);
    EXPECT_TRUE(checkpoint);
    for (const auto& [canonical, tensor] : checkpoint->tensors()) {
      const auto bytes = tensor.bytes();
      tensors_.push_back({tensor.info->name, std::string(ElementTypeName(tensor.info->type)),
                          tensor.info->shape,
                          std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())});
    }
  }
  TestTensor& tensor(const std::string& name) {
    for (TestTensor& tensor : tensors_) {
      if (tensor.name == name) return tensor;
    }
    ADD_FAILURE() << name;
    return tensors_.front();
  }
  void Remove(const std::string& name) {
    EXPECT_EQ(std::erase_if(tensors_, [&](const TestTensor& t) { return t.name == name; }), 1u);
  }
  void Add(TestTensor tensor) { tensors_.push_back(std::move(tensor)); }
  const std::filesystem::path& Write() {
    for (const char* name : {"config.json", "hf_quant_config.json"}) {
      if (std::filesystem::exists(source_ / name)) {
        std::filesystem::copy_file(source_ / name, folder_.path() / name,
                                   std::filesystem::copy_options::overwrite_existing);
      }
    }
    WriteFile(folder_.path() / "model.safetensors", MakeSafetensors(tensors_));
    return folder_.path();
  }
  std::string Failure() {
    const auto config = LoadModelConfig(Write());
    if (!config) return config.error().message;
    ThreadPool pool(1);
    const auto model = LoadModel(pool, folder_.path(), *config,
                                 SmallOptions(ElementType::kBF16, ElementType::kBF16));
    return model ? "loaded" : model.error().message;
  }

 private:
  std::filesystem::path source_;
  TemporaryFolder folder_;
  std::vector<TestTensor> tensors_;
};

double WorstDifference(const LogitRows& a, const LogitRows& b) {
  double worst = 0;
  for (size_t row = 0; row < a.size(); ++row) {
    for (size_t i = 0; i < a[row].size(); ++i)
      worst = std::max(worst, double{std::fabs(a[row][i] - b[row][i])});
  }
  return worst;
}

// Returns the decoded values of one module's weight, F32.
std::string DecodedBytes(const std::filesystem::path& folder, const std::string& module,
                         int64_t rows, int64_t cols) {
  const auto config = LoadModelConfig(folder);
  const auto checkpoint = Checkpoint::Open(folder);
  const auto found = config->scheme->Find(*checkpoint, module, rows, cols);
  EXPECT_TRUE(found) << found.error().message;
  std::vector<float> values(static_cast<size_t>(rows * cols));
  for (int64_t row = 0; row < rows; ++row)
    DecodeStoredRow(found->matrix, row, values.data() + row * cols);
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

TEST(QuantizedLoadingTest, PartsOfUnlikeFormatsInOneMatrixKeepTheirValues) {
  const std::string k = "model.layers.0.self_attn.k_proj";
  const auto folder = DataFolder("qwen3-modelopt-fp8");
  QuantizedCopy copy("qwen3-modelopt-fp8");
  TestTensor& weight = copy.tensor(k + ".weight");
  weight.data = DecodedBytes(folder, k, weight.shape[0], weight.shape[1]);
  weight.dtype = "F32";
  copy.Remove(k + ".weight_scale");
  copy.Remove(k + ".input_scale");
  const auto options = SmallOptions(ElementType::kF32, ElementType::kF32);
  const LogitRows expected = Runner(folder, options, 2).RunAlone(kSomeTokens, 10);
  const LogitRows mixed = Runner(copy.Write(), options, 2).RunAlone(kSomeTokens, 10);
  EXPECT_LT(WorstDifference(expected, mixed), 1e-4);
}

TEST(QuantizedLoadingTest, ThePlanCountsEveryByteAndLittleIsAdded) {
  for (const char* name :
       {"qwen3-modelopt-fp8", "qwen3-llmc-fp8-block", "qwen3-llmc-int8-w8a8",
        "qwen3-moe-llmc-nvfp4", "qwen3-moe-quark-mxfp4", "llama4-quark-fp8",
        "llama4-modelopt-nvfp4", "tiny-qwen3-w4a16", "tiny-qwen3-w4a16-gptq",
        "tiny-qwen3-w4a16-actorder", "tiny-qwen3-moe-w4a16", "tiny-qwen3-awq", "tiny-qwen3-gptq"}) {
    SCOPED_TRACE(name);
    const auto config = LoadModelConfig(DataFolder(name));
    ASSERT_TRUE(config) << config.error().message;
    const auto memory = PlanModel(*config, SmallOptions(ElementType::kBF16, ElementType::kBF16), 2);
    ASSERT_TRUE(memory) << memory.error().message;
    ThreadPool pool(2);
    DecoderWeights weights;
    const ParameterList list = ListParameters(config->spec, weights);
    const auto checkpoint = Checkpoint::Open(DataFolder(name));
    ASSERT_TRUE(LoadParameters(pool, list, *checkpoint, *config->scheme, ElementType::kBF16, {}));
    int64_t bytes = 0, stored = 0, row_scales = 0;
    for (const MatrixParameter& matrix : list.matrices) {
      row_scales += static_cast<int64_t>(matrix.target->row_scales.size_bytes());
      bytes += matrix.target->bytes();
    }
    for (const VectorParameter& vector : list.vectors)
      bytes += static_cast<int64_t>(vector.target->size() * sizeof(float));
    for (const auto& [tensor_name, tensor] : checkpoint->tensors()) {
      const bool is_image = tensor_name.starts_with("vision") || tensor_name.starts_with("multi");
      if (!is_image) stored += static_cast<int64_t>(tensor.info->size_bytes);
    }
    EXPECT_EQ(memory->weight_bytes, bytes);
    // Row scales of four bytes matter only because rows in these models have just 64 or 128
    // numbers. For the same reason, F32 copies of BF16 group scales and one-byte zero points
    // matter.
    const bool is_int4 = std::string_view(name).starts_with("tiny");
    EXPECT_LT(static_cast<double>(bytes - row_scales),
              (is_int4 ? 1.15 : 1.05) * static_cast<double>(stored));
  }
}

TEST(QuantizedLoadingTest, FaultsAreNamedAllAtOnce) {
  QuantizedCopy copy("qwen3-modelopt-fp8");
  copy.Remove("model.layers.0.self_attn.q_proj.weight_scale");
  copy.Remove("model.layers.1.mlp.down_proj.input_scale");
  copy.tensor("model.layers.1.mlp.up_proj.weight_scale").data = std::string("\0\0\xc0\x7f", 4);
  EXPECT_THAT(copy.Failure(),
              AllOf(HasSubstr("'model.layers.0.self_attn.q_proj.weight_scale'"),
                    HasSubstr("'model.layers.1.mlp.down_proj.input_scale'"),
                    HasSubstr("'model.layers.1.mlp.up_proj.weight_scale'"), HasSubstr("nan")));
}

TEST(QuantizedLoadingTest, PartsWithInputsInUnlikeOrdersAreNamed) {
  QuantizedCopy copy("tiny-qwen3-w4a16-actorder");
  std::string& index = copy.tensor("model.layers.0.self_attn.k_proj.weight_g_idx").data;
  // All inputs change to the other group, so each group keeps its size.
  for (size_t i = 0; i < index.size(); i += 4) index[i] = static_cast<char>(1 - index[i]);
  EXPECT_THAT(copy.Failure(), AllOf(HasSubstr("'model.layers.0.self_attn.k_proj.weight_packed'"),
                                    HasSubstr("a different order of inputs from"),
                                    HasSubstr("'model.layers.0.self_attn.q_proj.weight_packed'")));
}

TEST(QuantizedLoadingTest, ScalesOfNothingAreNamedAndKnownOnesPassedOver) {
  QuantizedCopy copy("qwen3-modelopt-fp8");
  copy.Add({"model.layers.0.self_attn.q_scale", "F32", {}, std::string(4, '\x3f')});
  copy.Add({"model.layers.0.self_attn.q_proj.weight_zero_point", "I8", {1}, std::string(1, '\0')});
  EXPECT_EQ(copy.Failure(), "loaded");
  copy.Add({"model.layers.0.mlp.up_proj.pre_quant_scale", "F32", {}, std::string(4, '\x3f')});
  EXPECT_THAT(copy.Failure(), AllOf(HasSubstr("model.layers.0.mlp.up_proj.pre_quant_scale"),
                                    HasSubstr("belongs to no part")));
}

TEST(QuantizedLoadingTest, ScalesOfKeysAndValuesAreCheckedWhateverTheCache) {
  QuantizedCopy copy("qwen3-modelopt-fp8");
  copy.tensor("model.layers.1.self_attn.k_proj.k_scale").data = std::string("\0\0\x80\xbf", 4);
  EXPECT_THAT(copy.Failure(),
              AllOf(HasSubstr("model.layers.1.self_attn.k_proj.k_scale"), HasSubstr("-1")));
}

// Layers 2 and 3 read the codes of layer 0, and layer 4 reads the codes of layer 1. They use the
// scales of the layer that wrote the codes.
TEST(QuantizedLoadingTest, LayersReadTheKeysOfOthersByTheirScales) {
  QuantizedCopy copy("tiny-gemma4-shared");
  for (const int layer : {0, 1}) {
    for (const char* scale : {"k_scale", "v_scale"}) {
      const std::string half("\0\0\0\x3f", 4);
      copy.Add({fmt::format("model.layers.{}.self_attn.{}", layer, scale), "F32", {}, half});
    }
  }
  const auto options = SmallOptions(ElementType::kF32, ElementType::kF8E4M3);
  Runner plain(DataFolder("tiny-gemma4-shared"), options, 2), scaled(copy.Write(), options, 2);
  std::vector<int32_t> tokens(60);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>((i * i + 3) % 128);
  // Doubled numbers have different codes only if the codes are subnormal. If a layer used its own
  // scales, it would read half of each value, and the difference would be 1.0.
  EXPECT_LT(WorstDifference(plain.RunAlone(tokens, 60), scaled.RunAlone(tokens, 60)), 0.1);
}

TEST(QuantizedLoadingTest, RandomWeightsInEveryFormatGiveOrdinaryLogits) {
  for (const char* name : {"qwen3-modelopt-fp8", "qwen3-llmc-fp8-block", "qwen3-llmc-int8-w8a8",
                           "qwen3-moe-llmc-nvfp4", "qwen3-moe-quark-mxfp4", "tiny-qwen3-w4a16",
                           "tiny-qwen3-w4a16-actorder", "tiny-qwen3-moe-w4a16", "tiny-qwen3-awq"}) {
    SCOPED_TRACE(name);
    ModelOptions options = SmallOptions(ElementType::kBF16, ElementType::kBF16);
    options.load_format = ModelOptions::LoadFormat::kDummy;
    const auto config = LoadModelConfig(DataFolder(name));
    std::vector<int32_t> tokens = kSomeTokens;
    for (int32_t& token : tokens) token %= 128;
    const LogitRows one = Runner(*config, options, 1).RunAlone(tokens, 10);
    double sum = 0, count = 0;
    for (const auto& row : one) {
      for (const float x : row) {
        ASSERT_TRUE(std::isfinite(x));
        sum += double{x} * x;
        ++count;
      }
    }
    EXPECT_GT(std::sqrt(sum / count), 0.2);
    EXPECT_LT(std::sqrt(sum / count), 5);
    EXPECT_TRUE(Runner(*config, options, 3).RunAlone(tokens, 10) == one);
  }
}

}  // namespace
}  // namespace sluice

#include "models/device/device_weights.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include <gtest/gtest.h>

#include "kernels/cuda/device_kernel_tables.h"
#include "kernels/cuda/nvf4_scales.h"
#include "kernels/linear.h"
#include "models/device/device_model_testing.h"
#include "models/device/device_sink.h"
#include "models/program/build_decoder.h"
#include "models/weight_loader.h"
#include "tensor/float4.h"
#include "tensor/float8.h"

namespace sluice {
namespace {

using testing::CheckpointName;
using testing::DataFolder;
using testing::DeviceOptions;

// Decodes a row of a matrix in emulated device memory, which is host memory.
std::vector<float> DecodeDeviceRow(const device::Weights& w, int64_t row) {
  std::vector<float> values(static_cast<size_t>(w.k));
  const auto* bytes = static_cast<const uint8_t*>(w.codes);
  for (int64_t k = 0; k < w.k; ++k) {
    const int64_t index = row * w.k + k;
    float value = 0;
    switch (w.type) {
      case ElementType::kBF16:
        value = ToFloat(BFloat16{static_cast<const uint16_t*>(w.codes)[index]});
        break;
      case ElementType::kF8E4M3: value = ToFloat(Float8E4M3{bytes[index]}); break;
      case ElementType::kI8: value = static_cast<float>(static_cast<int8_t>(bytes[index])); break;
      default:
        value = Float4ToFloat(k % 2 == 0 ? bytes[index / 2] & 0xF : bytes[index / 2] >> 4);
        break;
    }
    float scale = 1;
    if (w.group_type == device::GroupScales::kBlock) {
      const int64_t groups = (w.k + w.group - 1) / w.group;
      scale = static_cast<const float*>(w.group_scales)[row / w.block_rows * groups + k / w.group];
    } else if (w.group_type != device::GroupScales::kNone) {
      const auto* codes = static_cast<const uint8_t*>(w.group_scales);
      const int64_t groups = w.k / w.group, group = k / w.group;
      if (w.group_type == device::GroupScales::kE4M3) {
        scale = ToFloat(
            Float8E4M3{codes[device::NvF4ScaleRow(row, groups) + device::NvF4ScaleGroup(group)]});
      } else {
        scale = PowerOfTwoToFloat(codes[row * groups + group]);
      }
    }
    values[static_cast<size_t>(k)] =
        value * scale * (w.row_scales == nullptr ? 1.0f : w.row_scales[row]);
  }
  return values;
}

// Loads the checkpoint twice, for the CPU and for a device, and compares all values.
void ExpectSameWeights(const std::filesystem::path& folder, ModelOptions::LoadFormat format) {
  const auto config = LoadModelConfig(folder);
  ASSERT_TRUE(config) << config.error().message;
  DecoderWeights expected;
  const ParameterList list = ListParameters(config->spec, expected);
  ThreadPool threads(2);
  const bool is_dummy = format == ModelOptions::LoadFormat::kDummy;
  const auto checkpoint = Checkpoint::Open(folder);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  ASSERT_TRUE(
      is_dummy
          ? FillDummyParameters(threads, list, 7, *config->scheme, ElementType::kBF16, {})
          : LoadParameters(threads, list, *checkpoint, *config->scheme, ElementType::kBF16, {}));
  ModelOptions options = DeviceOptions();
  options.load_format = format;
  options.dummy_seed = 7;
  EmulatedDevice device;
  const auto memory = PlanDeviceModel(*config, options, device.info());
  ASSERT_TRUE(memory) << memory.error().message;
  const int64_t model_bytes = memory->weight_bytes + memory->workspace_bytes;
  auto pool = DevicePool::Allocate(device, model_bytes, "a model");
  ASSERT_TRUE(pool);
  const auto model = LoadDeviceModel(device, *pool, threads, folder, *config, options);
  ASSERT_TRUE(model) << model.error().message;
  // The weights are the pool's first allocation.
  std::vector<DataFormat> formats;
  for (const MatrixParameter& matrix : list.matrices) formats.push_back(matrix.target->format);
  const auto layout = DeviceWeightLayout::For(config->spec.rope_tables, list, formats);
  ASSERT_TRUE(layout) << layout.error().message;
  EXPECT_EQ(layout->total_bytes(), memory->weight_bytes);
  std::byte* const weights = pool->begin();
  for (size_t i = 0; i < list.matrices.size(); ++i) {
    const MatrixParameter& matrix = list.matrices[i];
    const device::Weights w = layout->matrix(i).At(weights);
    std::vector<float> row(static_cast<size_t>(matrix.cols));
    for (int64_t n = 0; n < matrix.rows(); ++n) {
      kernels::DecodeRow(*matrix.target, n, row.data());
      ASSERT_EQ(DecodeDeviceRow(w, n), row) << matrix.parts.front().name << " row " << n;
    }
  }
  for (size_t i = 0; i < list.vectors.size(); ++i) {
    ASSERT_EQ(std::memcmp(weights + layout->vector(i), list.vectors[i].target->data(),
                          list.vectors[i].target->size() * sizeof(float)),
              0)
        << list.vectors[i].parts.front().name;
  }
}

class DeviceWeightsTest : public ::testing::TestWithParam<const char*> {};

TEST_P(DeviceWeightsTest, StoredOnesHaveTheValuesOfTheCpu) {
  ExpectSameWeights(DataFolder(GetParam()), ModelOptions::LoadFormat::kAuto);
}

TEST_P(DeviceWeightsTest, RandomOnesHaveTheValuesOfTheCpu) {
  ExpectSameWeights(DataFolder(GetParam()), ModelOptions::LoadFormat::kDummy);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, DeviceWeightsTest,
                         ::testing::Values("llama-tied-bf16-sharded", "tiny-qwen2-window",
                                           "tiny-qwen3-moe-mixed", "tiny-llama4-mixed",
                                           "qwen3-modelopt-fp8", "qwen3-llmc-fp8-block",
                                           "qwen3-llmc-int8-w8a8", "qwen3-moe-llmc-nvfp4",
                                           "qwen3-moe-quark-mxfp4", "llama4-quark-fp8",
                                           "llama4-modelopt-nvfp4", "tiny-gpt-oss",
                                           "tiny-gpt-oss-mxfp4"),
                         CheckpointName);

TEST(DeviceSinkTest, KnowsWhichScalesOfRowsAreOneNumberOrOneAPart) {
  int64_t same = 0, in_parts = 0, different = 0;
  for (const char* name : {"qwen3-modelopt-fp8", "qwen3-moe-llmc-nvfp4", "qwen3-llmc-int8-w8a8"}) {
    for (const bool is_dummy : {false, true}) {
      SCOPED_TRACE(name);
      const auto config = LoadModelConfig(DataFolder(name));
      DecoderWeights loaded;
      const ParameterList list = ListParameters(config->spec, loaded);
      ThreadPool threads(2);
      const auto checkpoint = Checkpoint::Open(DataFolder(name));
      ASSERT_TRUE(
          LoadParameters(threads, list, *checkpoint, *config->scheme, ElementType::kBF16, {}));
      std::vector<DataFormat> formats;
      for (const MatrixParameter& matrix : list.matrices) formats.push_back(matrix.target->format);
      auto layout = DeviceWeightLayout::For(config->spec.rope_tables, list, formats);
      ASSERT_TRUE(layout);
      EmulatedDevice device;
      const auto stream = *device.CreateStream();
      Uploader uploader = *Uploader::Create(device);
      const DeviceBuffer buffer = *device.Allocate(layout->total_bytes(), "the weights");
      auto* const memory = buffer.As<std::byte>();
      DeviceSink sink({uploader, threads, device::KernelsOf(DeviceKind::kEmulated), *stream},
                      *layout, memory);
      ASSERT_TRUE(
          is_dummy
              ? FillDummyParameters(sink, list, 7, *config->scheme, ElementType::kBF16, {})
              : LoadParameters(sink, list, *checkpoint, *config->scheme, ElementType::kBF16, {}));
      ASSERT_TRUE(stream->Synchronize());
      ASSERT_TRUE(uploader.Finish());
      const auto parts = sink.scaled_parts();
      ASSERT_EQ(parts.size(), list.matrices.size());
      for (size_t i = 0; i < parts.size(); ++i) {
        const device::Weights w = layout->matrix(i).At(memory);
        const float* const begin = w.row_scales;
        std::vector<device::ScaledPart> expected;
        for (int64_t row = 0; begin != nullptr && row < w.n; ++row) {
          if (row == 0 || begin[row] != begin[row - 1]) expected.push_back({0, begin[row]});
          ++expected.back().rows;
        }
        if (expected.size() > device::kMostScaledParts) expected.clear();
        const std::string& tensor = list.matrices[i].parts.front().name;
        ASSERT_EQ(parts[i].size(), expected.size()) << tensor;
        for (size_t p = 0; p < expected.size(); ++p) {
          EXPECT_EQ(parts[i][p].rows, expected[p].rows) << tensor;
          EXPECT_EQ(parts[i][p].scale, expected[p].scale) << tensor;
        }
        if (begin != nullptr)
          ++(expected.size() == 1 ? same : expected.empty() ? different : in_parts);
      }
      layout->SetScaledParts(parts);
      for (size_t i = 0; i < parts.size(); ++i) {
        const device::Weights w = layout->matrix(i).At(memory);
        EXPECT_EQ(w.same_row_scale, parts[i].size() == 1 ? parts[i].front().scale : 0);
        EXPECT_EQ(w.num_parts, parts[i].size() > 1 ? std::ssize(parts[i]) : 0);
        for (int p = 0; p < w.num_parts; ++p) EXPECT_GT(w.parts[p].rows, 0);
      }
    }
  }
  EXPECT_GT(same, 0);
  EXPECT_GT(in_parts, 0);
  EXPECT_GT(different, 0);
}

// A checkpoint's program and weights on a device.
struct PlacedModel {
  DecoderWeights loaded;
  program::Program program;
  DeviceProgramWeights weights;

  const LayerWeights& layer(size_t index) const { return loaded.layers[index]; }
  DeviceInputs InputsOf(const LinearWeights& linear) const {
    const auto found = std::ranges::find(program.linears, &linear);
    return weights.linears.at(static_cast<size_t>(found - program.linears.begin())).inputs;
  }
  DeviceInputs InputsOf(const ExpertWeights& experts) const {
    const auto found = std::ranges::find(program.experts, &experts);
    return weights.experts.at(static_cast<size_t>(found - program.experts.begin())).first.inputs;
  }
};

// Places a checkpoint's weights for a device.
std::unique_ptr<PlacedModel> Placed(const char* name, ModelOptions::ActivationRounding rounding,
                                    const DeviceInfo& info) {
  const auto config = LoadModelConfig(DataFolder(name));
  auto placed = std::make_unique<PlacedModel>();
  const ParameterList list = ListParameters(config->spec, placed->loaded);
  ThreadPool threads(1);
  const auto checkpoint = Checkpoint::Open(DataFolder(name));
  EXPECT_TRUE(LoadParameters(threads, list, *checkpoint, *config->scheme, ElementType::kBF16, {}));
  std::vector<DataFormat> formats;
  for (const MatrixParameter& matrix : list.matrices) formats.push_back(matrix.target->format);
  const auto layout = DeviceWeightLayout::For(config->spec.rope_tables, list, formats);
  EXPECT_TRUE(layout);
  ModelOptions options = DeviceOptions();
  options.activation_format = rounding;
  const program::DeviceTarget target;
  placed->program = program::BuildDecoder(
      {.spec = config->spec, .options = options, .device = &target, .weights = placed->loaded});
  // A dummy address; nothing reads it.
  auto* const base =
      reinterpret_cast<std::byte*>(DevicePool::kAlignment);  // NOLINT(performance-no-int-to-ptr)
  placed->weights =
      PlaceWeights(placed->program, list, *layout, DeviceRounding::For(options, info), base);
  return placed;
}

std::unique_ptr<PlacedModel> Placed(const char* name, ModelOptions::ActivationRounding rounding,
                                    int compute_major) {
  DeviceInfo info;
  info.compute_major = compute_major;
  return Placed(name, rounding, info);
}

TEST(DeviceInputsTest, AreRoundedAsTheCheckpointSaysWhereTheDeviceMultipliesE4m3) {
  using Rounding = ModelOptions::ActivationRounding;
  const auto inputs_of_down = [](const char* model, Rounding rounding, int compute_major) {
    const auto placed = Placed(model, rounding, compute_major);
    return placed->InputsOf(placed->layer(0).mlp.down);
  };
  const char* const name = "qwen3-modelopt-fp8";
  for (const auto rounding : {Rounding::kAuto, Rounding::kCheckpoint}) {
    const DeviceInputs inputs = inputs_of_down(name, rounding, 9);
    EXPECT_EQ(inputs.type, ElementType::kF8E4M3);
    EXPECT_EQ(inputs.row_scale, device::RowScale::kStatic);
    EXPECT_GT(inputs.static_scale, 0);
    EXPECT_NE(inputs.static_scale, 1);
  }
  EXPECT_EQ(inputs_of_down(name, Rounding::kBf16, 9), DeviceInputs());
  EXPECT_EQ(inputs_of_down(name, Rounding::kAuto, 8), DeviceInputs());
  // Inputs are not rounded if weights have block scales, and are not rounded to formats other than
  // E4M3.
  for (const char* other : {"qwen3-llmc-fp8-block", "qwen3-llmc-int8-w8a8"})
    EXPECT_EQ(inputs_of_down(other, Rounding::kCheckpoint, 9), DeviceInputs());
}

// By default, inputs are rounded only where a library multiplies NVFP4 (compute capability 10.0 and
// later), and not for experts, which use our own kernels.
TEST(DeviceInputsTest, AreRoundedToNvF4WhereThatGainsSpeedOrIsAskedFor) {
  using Rounding = ModelOptions::ActivationRounding;
  const char* const name = "qwen3-moe-llmc-nvfp4";
  const auto inputs_of_qkv = [&](Rounding rounding, int compute_major) {
    const auto placed = Placed(name, rounding, compute_major);
    return placed->InputsOf(placed->layer(0).attention.qkv);
  };
  for (const int major : {10, 12}) {
    const DeviceInputs inputs = inputs_of_qkv(Rounding::kAuto, major);
    EXPECT_EQ(inputs.type, ElementType::kBF16);
    EXPECT_EQ(inputs.row_scale, device::RowScale::kNvF4);
    EXPECT_TRUE(inputs.is_rounded());
    EXPECT_GT(inputs.static_scale, 0);
    EXPECT_NE(inputs.static_scale, 1);
    const auto placed = Placed(name, Rounding::kAuto, major);
    EXPECT_EQ(placed->InputsOf(placed->layer(0).moe.gate_up), DeviceInputs());
  }
  EXPECT_EQ(inputs_of_qkv(Rounding::kAuto, 9), DeviceInputs());
  EXPECT_EQ(inputs_of_qkv(Rounding::kBf16, 10), DeviceInputs());
  EXPECT_TRUE(inputs_of_qkv(Rounding::kCheckpoint, 9).is_rounded());

  ModelOptions options = DeviceOptions();
  options.batch_invariant = true;
  DeviceInfo blackwell;
  blackwell.compute_major = 10;
  EXPECT_FALSE(DeviceRounding::For(options, blackwell).nvf4) << "own kernels gain nothing";
}

// By default, inputs are rounded only on gfx950, those of experts, too.
TEST(DeviceInputsTest, AreRoundedToMxF4WhereThatGainsSpeedOrIsAskedFor) {
  using Rounding = ModelOptions::ActivationRounding;
  const auto expect = [](const char* name, Rounding rounding, DeviceKind kind, int minor,
                         const DeviceInputs& expected) {
    DeviceInfo info;
    info.kind = kind;
    info.compute_major = 9;
    info.compute_minor = minor;
    const auto placed = Placed(name, rounding, info);
    EXPECT_EQ(placed->InputsOf(placed->layer(0).attention.qkv), expected) << name << " " << minor;
    EXPECT_EQ(placed->InputsOf(placed->layer(0).moe.gate_up), expected) << name << " " << minor;
    EXPECT_EQ(placed->InputsOf(placed->layer(0).moe.down), expected) << name << " " << minor;
  };
  const DeviceInputs mxf4{ElementType::kBF16, device::RowScale::kMxF4, 1};
  EXPECT_TRUE(mxf4.is_rounded());
  EXPECT_FALSE(mxf4.has_scales());
  const char* const quark = "qwen3-moe-quark-mxfp4";
  expect(quark, Rounding::kAuto, DeviceKind::kHip, 5, mxf4);
  expect(quark, Rounding::kBf16, DeviceKind::kHip, 5, DeviceInputs());
  expect(quark, Rounding::kAuto, DeviceKind::kHip, 4, DeviceInputs());
  expect(quark, Rounding::kAuto, DeviceKind::kCuda, 5, DeviceInputs());
  expect(quark, Rounding::kCheckpoint, DeviceKind::kHip, 4, mxf4);
  expect(quark, Rounding::kCheckpoint, DeviceKind::kCuda, 0, mxf4);
  // The scheme of gpt-oss does not round inputs.
  for (const auto rounding : {Rounding::kAuto, Rounding::kCheckpoint})
    expect("tiny-gpt-oss-mxfp4", rounding, DeviceKind::kHip, 5, DeviceInputs());
}

TEST(DeviceInputsTest, OfExpertsWithScalesOfTheirOwnStayAsTheyAre) {
  const auto placed = Placed("llama4-quark-fp8", ModelOptions::ActivationRounding::kAuto, 9);
  const LayerWeights& layer = placed->layer(1);
  EXPECT_EQ(placed->InputsOf(layer.mlp.gate_up).type, ElementType::kF8E4M3);
  EXPECT_EQ(placed->InputsOf(layer.moe.gate_up), DeviceInputs());
}

}  // namespace
}  // namespace sluice

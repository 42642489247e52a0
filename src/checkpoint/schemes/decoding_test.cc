// Decodes every weight of checkpoints that published quantization tools wrote; compares checksums
// with values decoded by tools/checkpoints/decode_weights.py.
#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/json_file.h"
#include "base/source_path_testing.h"
#include "checkpoint/scheme.h"

namespace sluice {
namespace {

uint32_t Crc32(const std::vector<float>& values) {
  uint32_t crc = 0xFFFFFFFFu;
  const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
  for (size_t i = 0; i < values.size() * sizeof(float); ++i) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
  }
  return ~crc;
}

std::string SumOf(const StoredMatrix& matrix) {
  std::vector<float> values(static_cast<size_t>(matrix.rows * matrix.cols));
  for (int64_t row = 0; row < matrix.rows; ++row)
    DecodeStoredRow(matrix, row, values.data() + row * matrix.cols);
  return fmt::format("{:08x}", Crc32(values));
}

// `name`: "module" or "module#expert".
Result<StoredLinear> FindEntry(const QuantizationScheme& scheme, const Checkpoint& checkpoint,
                               const std::string& name, int64_t rows, int64_t cols) {
  const size_t mark = name.find('#');
  const std::string module = CanonicalName(name.substr(0, mark));
  if (mark == std::string::npos) return scheme.Find(checkpoint, module, rows, cols);
  const StoredTensor* tensor = checkpoint.Find(module);
  if (tensor == nullptr) return Fail(ErrorCode::kNotFound, module);
  ASSIGN_OR_RETURN(auto expert,
                   scheme.FindFusedExpert(checkpoint, module, std::stoll(name.substr(mark + 1)),
                                          tensor->info->shape.front(), rows, cols, true));
  if (!expert) return Fail(ErrorCode::kNotFound, module);
  return *std::move(expert);
}

void CheckFolder(const std::filesystem::path& folder, const std::filesystem::path& sums_file) {
  SCOPED_TRACE(folder.string());
  const auto config = ReadJsonObject(folder / "config.json");
  ASSERT_TRUE(config);
  const auto scheme = LoadScheme(folder, *config);
  ASSERT_TRUE(scheme) << scheme.error().message;
  const auto checkpoint = Checkpoint::Open(folder);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const auto sums = ReadJsonObject(sums_file);
  ASSERT_TRUE(sums) << sums.error().message;
  ASSERT_FALSE(sums->as_object().empty());
  for (const auto& [name, entry] : sums->as_object()) {
    const auto& shape = entry.Find("shape")->as_array();
    const auto found =
        FindEntry(**scheme, *checkpoint, name, shape[0].as_integer(), shape[1].as_integer());
    ASSERT_TRUE(found) << name << ": " << found.error().message;
    EXPECT_EQ(SumOf(found->matrix), entry.Find("crc32")->as_string()) << name;
    EXPECT_EQ(found->surprise, nullptr) << name << " " << found->surprise;
    EXPECT_TRUE(CheckScales(*found)) << name;
    const std::string module = CanonicalName(name.substr(0, name.find('#')));
    DataFormat planned = (*scheme)->PlannedFormat(module);
    // Any float type is accepted for scales; the plan assumes the usual type.
    if (found->matrix.format.scale_layout != DataFormat::ScaleLayout::kPerGroup)
      planned.scale_type = found->matrix.format.scale_type;
    EXPECT_EQ(found->matrix.format, planned) << name;
    EXPECT_EQ(found->activations, (*scheme)->PlannedActivations(module)) << name;
    const bool stores_scale = found->activations.kind == ActivationFormat::Kind::kFp8Static ||
                              found->activations.kind == ActivationFormat::Kind::kNvfp4;
    EXPECT_EQ(found->input_scale.has_value(), stores_scale) << name;
  }
}

// To check another folder of checkpoints manually, set SLUICE_TEST_CHECKPOINTS to that folder and
// SLUICE_TEST_SUMS to a folder with NAME.json for every checkpoint NAME.
TEST(DecodingTest, EveryWeightOfPublishedFormatsDecodesExactly) {
  const char* folder = std::getenv("SLUICE_TEST_CHECKPOINTS");
  const char* sums = std::getenv("SLUICE_TEST_SUMS");
  const std::filesystem::path data(SourcePath("tests/data"));
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(sums ? sums : data / "schemes")) {
    if (entry.path().extension() != ".json") continue;
    CheckFolder((folder ? folder : data / "checkpoints") / entry.path().stem(), entry.path());
    ++count;
  }
  EXPECT_GE(count, 8u);
}

}  // namespace
}  // namespace sluice

#include "server/api/context/weight_upload.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_testing.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

// Returns a safetensors file with one tensor of two numbers.
std::string PieceOf(const std::string& tensor, char fill) {
  const std::string header =
      "{\"" + tensor + R"(":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  std::string size(8, '\0');
  size[0] = static_cast<char>(header.size());
  return size + header + std::string(8, fill);
}

TEST(WeightUploadTest, MakesACheckpointOfPieces) {
  const testing::TemporaryFolder temporary;
  std::filesystem::path folder;
  {
    auto upload = WeightUpload::Make(temporary.path(), 10000);
    ASSERT_TRUE(upload) << upload.error().message;
    folder = (*upload)->folder();
    EXPECT_EQ(*(*upload)->Add(PieceOf("a", 1)), 1);
    EXPECT_EQ(*(*upload)->Add(PieceOf("b", 2)), 1);
    EXPECT_EQ(*(*upload)->Add(PieceOf("a", 3)), 1) << "sent again";
    ASSERT_TRUE((*upload)->Seal());
    const auto checkpoint = Checkpoint::Open(folder);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    EXPECT_EQ(checkpoint->tensors().size(), 2u);
    const auto first_byte = [&](const char* name) {
      return static_cast<int>(checkpoint->Find(name)->bytes()[0]);
    };
    EXPECT_EQ(first_byte(checkpoint->tensors().begin()->first.c_str()), 3);
    EXPECT_EQ(first_byte(checkpoint->tensors().rbegin()->first.c_str()), 2);
  }
  EXPECT_FALSE(std::filesystem::exists(folder)) << "it goes with the object";
}

TEST(WeightUploadTest, RefusesPiecesThatAreDamagedOrTooMany) {
  const testing::TemporaryFolder temporary;
  const std::string piece = PieceOf("a", 1);
  auto upload = *WeightUpload::Make(temporary.path(), 2 * piece.size());
  for (size_t size = 0; size < piece.size(); ++size)
    EXPECT_FALSE(upload->Add(piece.substr(0, size))) << size;
  EXPECT_TRUE(std::filesystem::is_empty(upload->folder())) << "nothing is kept of them";
  EXPECT_TRUE(upload->Add(piece));
  EXPECT_TRUE(upload->Add(piece));
  const auto third = upload->Add(piece);
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(third.error().message, HasSubstr("max_bytes"));
}

TEST(WeightUploadTest, NamesAFolderThatCannotBeWritten) {
  const auto upload = WeightUpload::Make("/nonexistent/folder", 1);
  ASSERT_FALSE(upload);
  EXPECT_THAT(upload.error().message, HasSubstr("/nonexistent/folder"));
}

}  // namespace
}  // namespace sluice

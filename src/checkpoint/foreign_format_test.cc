#include "checkpoint/foreign_format.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_testing.h"

namespace sluice::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Refusal(const std::filesystem::path& model) {
  const Status status = RefuseForeignFormat(model);
  if (status) return "";
  EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
  return status.error().message;
}

TEST(ForeignFormatTest, FoldersAreToldByWhatTheyHold) {
  const TemporaryFolder folder;
  EXPECT_EQ(Refusal(folder.path()), "");
  WriteFile(folder.path() / "adapter_config.json", R"({"base_model_name_or_path":"org/base"})");
  WriteFile(folder.path() / "adapter_model.safetensors", "");
  EXPECT_THAT(Refusal(folder.path()), AllOf(HasSubstr("a LoRA adapter of org/base, not a model"),
                                            HasSubstr("merge_and_unload")));
  WriteFile(folder.path() / "adapter_config.json", "{");
  EXPECT_THAT(Refusal(folder.path()), HasSubstr("a LoRA adapter, not a model"));
  WriteFile(folder.path() / "config.json", "{}");
  EXPECT_EQ(Refusal(folder.path()), "") << "a model that an adapter came with";
}

TEST(ForeignFormatTest, OnlyFoldersWithoutSafetensorsAreRefused) {
  const TemporaryFolder folder;
  WriteFile(folder.path() / "config.json", "{}");
  WriteFile(folder.path() / "training_args.bin", "");
  EXPECT_EQ(Refusal(folder.path()), "") << "no weights";
  WriteFile(folder.path() / "pytorch_model-00001-of-00002.bin", "");
  EXPECT_THAT(Refusal(folder.path()),
              AllOf(HasSubstr("holds pytorch_model-00001-of-00002.bin and no safetensors"),
                    HasSubstr("save_pretrained")));
  WriteFile(folder.path() / "model-Q8_0.gguf", "");
  EXPECT_THAT(Refusal(folder.path()), HasSubstr("holds model-Q8_0.gguf and no safetensors"));
  WriteFile(folder.path() / "model.safetensors", "");
  EXPECT_EQ(Refusal(folder.path()), "");
}

TEST(ForeignFormatTest, FilesAreToldByNameOrFirstBytes) {
  const TemporaryFolder folder;
  const auto refusal = [&](const char* name, const char* text) {
    WriteFile(folder.path() / name, text);
    return Refusal(folder.path() / name);
  };
  EXPECT_THAT(refusal("a.gguf", ""), HasSubstr("is a GGUF file"));
  EXPECT_THAT(refusal("sha256-0123", "GGUF\3"), HasSubstr("is a GGUF file"));
  EXPECT_THAT(refusal("consolidated.00.pth", ""), HasSubstr("is a file of pickled weights"));
  EXPECT_THAT(refusal("model.safetensors", ""),
              AllOf(HasSubstr("give its folder"), HasSubstr(folder.path().string())));
  EXPECT_EQ(refusal("notes.txt", "GGU"), "");
}

}  // namespace
}  // namespace sluice::testing

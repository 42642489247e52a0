#include "checkpoint/page_cache.h"

#include <algorithm>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "checkpoint/checkpoint_testing.h"
#include "checkpoint/page_cache_testing.h"

namespace sluice {
namespace {

using testing::MakeSafetensors;
using testing::TemporaryFolder;
using testing::WriteFile;

// Whether the page cache holds the page of the file at `offset`.
bool IsCached(const std::filesystem::path& path, uint64_t offset) {
  const auto file = MappedFile::Open(path);
  EXPECT_TRUE(file);
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::byte* begin = file->bytes().data() + offset / page * page;
  unsigned char cached = 0;
  EXPECT_EQ(::mincore(const_cast<std::byte*>(begin), page, &cached), 0);
  return (cached & 1) != 0;
}

TEST(PageCacheDropper, DropsWhatIsReleased) {
  constexpr uint64_t kBytes = 8 << 20;
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "model.safetensors";
  WriteFile(path, MakeSafetensors({{"model.a", "U8", {kBytes}, std::string(kBytes, 'a')},
                                   {"model.b", "U8", {kBytes}, std::string(kBytes, 'b')}}));
  if (!testing::FlushToDisk(path)) GTEST_SKIP() << "the temporary folder is in memory";

  const auto checkpoint = Checkpoint::Open(folder.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const PageCacheDropper dropper(*checkpoint);
  const auto read = [&](const char* name, char wanted) -> const StoredTensor& {
    const StoredTensor* tensor = checkpoint->Find(name);
    EXPECT_NE(tensor, nullptr);
    const auto bytes = tensor->bytes();
    EXPECT_EQ(std::count(bytes.begin(), bytes.end(), static_cast<std::byte>(wanted)), kBytes);
    return *tensor;
  };
  const StoredTensor& a = read("model.a", 'a');
  const StoredTensor& b = read("model.b", 'b');
  const uint64_t middle = kBytes / 2;
  dropper.Drop(a, 0, kBytes);
  EXPECT_TRUE(IsCached(path, a.info->offset + middle)) << "it is mapped";
  a.Release(0, kBytes);
  dropper.Drop(a, 0, kBytes);
  EXPECT_FALSE(IsCached(path, a.info->offset + middle));
  EXPECT_TRUE(IsCached(path, b.info->offset + middle)) << "another tensor";
  read("model.a", 'a');
}

}  // namespace
}  // namespace sluice

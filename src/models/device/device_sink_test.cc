#include "models/device/device_sink.h"

#include <cstring>
#include <filesystem>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "base/source_path_testing.h"
#include "checkpoint/checkpoint_testing.h"
#include "checkpoint/page_cache_testing.h"
#include "device/emulated_device.h"
#include "kernels/cuda/device_kernel_tables.h"
#include "models/device/device_options.h"
#include "models/model_config.h"
#include "models/weight_loader.h"
#include "models/weights.h"

namespace sluice {
namespace {

// Returns the fraction of a file that is in the page cache.
double CachedPart(const std::filesystem::path& path) {
  const auto file = MappedFile::Open(path);
  EXPECT_TRUE(file);
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((file->bytes().size() + page - 1) / page);
  EXPECT_EQ(
      ::mincore(const_cast<std::byte*>(file->bytes().data()), file->bytes().size(), pages.data()),
      0);
  size_t cached = 0;
  for (const unsigned char flags : pages) cached += flags & 1;
  return static_cast<double>(cached) / static_cast<double>(pages.size());
}

// Weights that are copied to an integrated GPU do not stay in the page cache.
TEST(DeviceSinkPages, LeaveThePageCacheWhereTheyAreDropped) {
  const testing::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "model.safetensors";
  std::filesystem::copy_file(SourcePath("models/abacus/model.safetensors"), path);
  if (!testing::FlushToDisk(path)) GTEST_SKIP() << "the temporary folder is in memory";

  const auto config = LoadModelConfig(SourcePath("models/abacus"));
  ASSERT_TRUE(config) << config.error().message;
  const auto checkpoint = Checkpoint::Open(folder.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  DecoderWeights loaded;
  const ParameterList list = ListParameters(config->spec, loaded);
  const auto formats = StoredFormats(list, *checkpoint, *config->scheme);
  ASSERT_TRUE(formats);
  const auto layout = DeviceWeightLayout::For(config->spec.rope_tables, list, *formats);
  ASSERT_TRUE(layout);
  EmulatedDevice device;
  ThreadPool threads(2);
  const auto stream = *device.CreateStream();
  Uploader uploader = *Uploader::Create(device);
  const PageCacheDropper dropper(*checkpoint);
  std::vector<DeviceBuffer> memories;
  for (const bool drops : {false, true}) {
    DeviceBuffer& memory =
        memories.emplace_back(*device.Allocate(layout->total_bytes(), "the weights"));
    memset(memory.data(), 0, static_cast<size_t>(memory.size_bytes()));
    DeviceSink sink({uploader, threads, device::KernelsOf(DeviceKind::kEmulated), *stream,
                     drops ? &dropper : nullptr},
                    *layout, memory.As<std::byte>());
    ASSERT_TRUE(LoadParameters(sink, list, *checkpoint, *config->scheme, ElementType::kBF16, {}));
    ASSERT_TRUE(stream->Synchronize());
    ASSERT_TRUE(uploader.Finish());
    if (drops)
      EXPECT_LT(CachedPart(path), 0.5) << "large pages that tensors share stay: 0.28 of this file";
    else
      EXPECT_GT(CachedPart(path), 0.9) << "another process may need them";
  }
  EXPECT_EQ(
      memcmp(memories[0].data(), memories[1].data(), static_cast<size_t>(layout->total_bytes())),
      0);
}

}  // namespace
}  // namespace sluice

#include "hub/model_download.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <future>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/file.h"
#include "base/log.h"
#include "base/owned_fd.h"
#include "hub/content_writer.h"
#include "hub/file_lock.h"
#include "hub/flush_mark.h"
#include "hub/hub_client.h"
#include "hub/range_download.h"
#include "hub/repository_cache.h"

namespace sluice {
namespace {

constexpr int kDownloadsOfAFile = 2;

// Returns the size of a regular file; -1 if it does not exist.
int64_t SizeOf(const std::filesystem::path& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) ? status.st_size : -1;
}

class ModelDownload {
 public:
  ModelDownload(HubClient hub, const ModelPlace& place, const FetchOptions& options,
                const HubEnvironment& environment)
      : hub_(std::move(hub)),
        place_(place),
        options_(options),
        copy_(environment.no_symlinks),
        repository_(place.cache, place.id) {}

  Result<std::string> Run() {
    ASSIGN_OR_RETURN(info_, hub_.Info(place_.id, place_.revision));
    LOG_INFO("download", "{} at {}: commit {}", place_.id, hub_.endpoint(), info_.commit);
    ASSIGN_OR_RETURN(const bool indexed, CheckFormat());
    RETURN_IF_ERROR(Bring(ChooseFiles(info_.files, options_.part)));
    if (options_.part == ModelPart::kAll) {
      std::vector<std::string> weights = UnindexedWeights(info_.files);
      if (indexed) {
        ASSIGN_OR_RETURN(const std::string text,
                         ReadFile(repository_.Snapshot(info_.commit) / IndexName(info_.files)));
        ASSIGN_OR_RETURN(weights, ShardsOfIndex(text));
      }
      RETURN_IF_ERROR(Bring(weights));
    }
    RETURN_IF_ERROR(EndSettling());
    RETURN_IF_ERROR(repository_.WriteReference(place_.revision.empty() ? "main" : place_.revision,
                                               info_.commit));
    return info_.commit;
  }

 private:
  // Returns whether the weights have an index. kUnsupported if no weights have a supported format.
  Result<bool> CheckFormat() const {
    const auto has = [&](auto test) {
      return std::any_of(info_.files.begin(), info_.files.end(), test);
    };
    if (options_.part != ModelPart::kAll) return false;
    const std::string index = IndexName(info_.files);
    if (has([&](const std::string& name) { return name == index; })) return true;
    if (!UnindexedWeights(info_.files).empty()) return false;
    const auto is = [&](std::string_view wanted) {
      return has([&](const std::string& name) { return name == wanted; });
    };
    if (is("adapter_config.json") && !is("config.json")) {
      return Fail(
          ErrorCode::kUnsupported,
          fmt::format("{} is a LoRA adapter, not a model: serve its model with --enable-lora "
                      "--lora-modules NAME=FOLDER, the adapter's folder here; or merge both with "
                      "peft (AutoPeftModelForCausalLM, merge_and_unload) and serve the folder "
                      "that is saved",
                      place_.id),
          "model");
    }
    std::string others;
    for (const std::string_view ending : {".gguf", ".bin", ".pt", ".pth", ".safetensors"}) {
      const auto found =
          std::find_if(info_.files.begin(), info_.files.end(),
                       [&](const std::string& name) { return name.ends_with(ending); });
      if (found != info_.files.end()) {
        others = fmt::format(" (it has {})", *found);
        break;
      }
    }
    return Fail(ErrorCode::kUnsupported,
                fmt::format("model {} has no model.safetensors and no {} at {}{}: only checkpoints "
                            "in the safetensors format are read; look for a repository of the same "
                            "model in that format",
                            place_.id, index, hub_.endpoint(), others),
                "model");
  }

  // Downloads the files that the snapshot lacks.
  Status Bring(const std::vector<std::string>& names) {
    std::vector<RemoteFile> files;
    for (const std::string& name : names) {
      if (SizeOf(repository_.Snapshot(info_.commit) / name) >= 0) continue;
      ASSIGN_OR_RETURN(RemoteFile file, hub_.Describe(place_.id, info_.commit, name));
      files.push_back(std::move(file));
    }
    RETURN_IF_ERROR(CheckRoom(files));
    for (const RemoteFile& file : files) RETURN_IF_ERROR(BringFile(file));
    return {};
  }

  // Number of bytes of a file that are already present.
  int64_t BytesHere(const RemoteFile& file) const {
    if (SizeOf(repository_.Blob(file.etag)) >= 0) return file.size;
    return std::clamp<int64_t>(SizeOf(repository_.Incomplete(file.etag)), 0, file.size);
  }

  Status CheckRoom(const std::vector<RemoteFile>& files) {
    int64_t needed = 0;
    for (const RemoteFile& file : files) {
      progress_.total += file.size;
      needed += file.size - BytesHere(file);
    }
    if (needed == 0) return {};
    std::error_code error;
    const std::filesystem::path blobs = repository_.folder() / "blobs";
    std::filesystem::create_directories(blobs, error);
    if (error) return CacheError("create", blobs, error.value());
    struct statvfs room {};
    if (::statvfs(blobs.c_str(), &room) != 0)
      return {};  // The file system does not report its
                  // free space.
    const auto free = static_cast<int64_t>(room.f_bavail) * static_cast<int64_t>(room.f_frsize);
    if (free >= needed) return {};
    return Fail(ErrorCode::kUnavailable,
                fmt::format("model {} needs {} more bytes in {}, where {} are free: make room, or "
                            "name a folder on another disk with --download-dir or HF_HUB_CACHE",
                            place_.id, needed, place_.cache.string(), free),
                "model");
  }

  Status BringFile(const RemoteFile& file) {
    progress_.file = file.name;
    Tell(0);
    const auto start = std::chrono::steady_clock::now();
    auto told = start;
    ASSIGN_OR_RETURN(const FileLock lock, FileLock::Acquire(repository_.Lock(file.etag), [&] {
                       const auto now = std::chrono::steady_clock::now();
                       Tell(BytesHere(file));
                       if (now - told < std::chrono::seconds(10) && told != start) return;
                       told = now;
                       LOG_INFO("download", "waiting for another program that downloads {}",
                                file.name);
                     }));
    if (SizeOf(repository_.Blob(file.etag)) != file.size) RETURN_IF_ERROR(BringBlob(file));
    RETURN_IF_ERROR(repository_.LinkFile(info_.commit, file.name, file.etag, copy_));
    progress_.done += file.size;
    Tell(0);
    return {};
  }

  // Starts to flush the last blob to the disk while the next one is downloaded.
  Status SettleLast() {
    RETURN_IF_ERROR(EndSettling());
    if (last_.empty()) return {};
    settled_ = std::async(std::launch::async, [this, etag = std::exchange(last_, "")] {
      return SettleBlob(repository_, etag);
    });
    return {};
  }

  Status EndSettling() {
    if (!settled_.valid()) return {};
    ASSIGN_OR_RETURN(const bool kept, settled_.get());
    if (kept) return {};
    return Fail(ErrorCode::kUnavailable,
                fmt::format("the disk of {} did not keep a file of model {}: the same command "
                            "fetches it again",
                            place_.cache.string(), place_.id),
                "model");
  }

  // REQUIRES: the caller holds the blob's lock.
  Status BringBlob(const RemoteFile& file) {
    RETURN_IF_ERROR(SettleLast());
    RETURN_IF_ERROR(MarkUnflushed(repository_, file.etag));
    const std::filesystem::path incomplete = repository_.Incomplete(file.etag);
    for (int attempt = 1; attempt <= kDownloadsOfAFile; ++attempt) {
      ASSIGN_OR_RETURN(const bool whole, BringIncomplete(file, incomplete));
      if (whole) {
        if (::rename(incomplete.c_str(), repository_.Blob(file.etag).c_str()) != 0)
          return CacheError("create", repository_.Blob(file.etag), errno);
        last_ = file.etag;
        return {};
      }
      LOG_WARNING("download", "{}: the content that came is not that of {}; downloading it again",
                  file.name, file.etag);
      ::unlink(incomplete.c_str());
    }
    return Fail(ErrorCode::kUnavailable,
                fmt::format("{} of model {}: expected content with the digest {}, and {} sends "
                            "something else, also when asked again",
                            file.name, place_.id, file.etag, OriginOf(file.url)),
                file.name);
  }

  // Downloads the rest of an incomplete file. Returns false if its content does not match the ETag.
  Result<bool> BringIncomplete(const RemoteFile& file, const std::filesystem::path& incomplete) {
    const OwnedFd open(::open(incomplete.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (!open) return CacheError("create", incomplete, errno);
    int64_t begin = ::lseek(open.get(), 0, SEEK_END);
    if (begin > file.size) {
      if (::ftruncate(open.get(), 0) != 0) return CacheError("cut", incomplete, errno);
      begin = 0;
    }
    ContentWriter content(open.get(), begin, file.size, file.etag);
    RangeDownload download{.source = file, .content = &content};
    download.on_progress = [&](int64_t bytes) { Tell(bytes); };
    download.find_again = [&]() -> Result<std::string> {
      ASSIGN_OR_RETURN(const RemoteFile again, hub_.Describe(place_.id, info_.commit, file.name));
      return again.url;
    };
    if (begin > 0) {
      LOG_INFO("download", "{}: {} of {} bytes are here already", file.name, begin, file.size);
    }
    RETURN_IF_ERROR(DownloadRanges(hub_, std::move(download)));
    return content.Finish();
  }

  void Tell(int64_t of_file) {
    if (!options_.on_progress) return;
    FetchProgress now = progress_;
    now.done += of_file;
    options_.on_progress(now);
  }

  HubClient hub_;
  const ModelPlace& place_;
  const FetchOptions& options_;
  const bool copy_;
  const RepositoryCache repository_;
  ModelInfo info_;
  FetchProgress progress_;
  std::string last_;                   // ETag of the last downloaded blob, which is not flushed yet
  std::future<Result<bool>> settled_;  // result of flushing the blob downloaded before last_
};

}  // namespace

Result<std::string> DownloadModel(const ModelPlace& place, const FetchOptions& options,
                                  const HubEnvironment& environment) {
  ASSIGN_OR_RETURN(HubClient hub, HubClient::Create(environment, options.token));
  return ModelDownload(std::move(hub), place, options, environment).Run();
}

}  // namespace sluice

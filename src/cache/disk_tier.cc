#include "cache/disk_tier.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/firewall.h"
#include "base/hex.h"
#include "base/list_folder.h"
#include "base/log.h"
#include "base/mutex_unlock.h"
#include "base/write_error.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kLockName = "lock";
// Time limit for writing queued blocks while the process ends.
constexpr auto kLastWrites = std::chrono::seconds(2);

Clock::duration Seconds(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

struct Found {
  std::filesystem::path path;
  std::string file;
  int64_t bytes = 0;
  int64_t used_at = 0;  // time of last use in nanoseconds
};

// Lists the regular files of a folder, least recently used first. Skips files whose status cannot
// be read.
std::vector<Found> ListFiles(const std::filesystem::path& folder) {
  std::vector<Found> files;
  std::error_code error;
  for (const std::filesystem::path& path : ListFolder(folder, error)) {
    struct stat info {};
    if (::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    files.push_back(
        {.path = path,
         .file = path.filename().string(),
         .bytes = info.st_size,
         .used_at = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec});
  }
  std::ranges::sort(files, [](const Found& a, const Found& b) {
    return a.used_at != b.used_at ? a.used_at < b.used_at : a.file < b.file;
  });
  return files;
}

// Locks the folder of an identity. Returns nullopt if another process holds the lock; a system
// error if the lock file cannot be opened.
Result<std::optional<OwnedFd>> LockFolder(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kLockName;
  OwnedFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) {
    const int number = errno;
    return Fail(WriteErrorCode(number, ErrorCode::kInternal),
                fmt::format("{}: {}", path.string(), std::generic_category().message(number)));
  }
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return std::optional<OwnedFd>();
  return std::optional<OwnedFd>(std::move(file));
}

bool IsIdentityFolder(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  struct stat info {};
  return name.size() == 64 && name.find_first_not_of("0123456789abcdef") == std::string::npos &&
         ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

}  // namespace

DiskTier::DiskTier(const Options& options, std::shared_ptr<ByteBlocks> memory)
    : options_(options), memory_(std::move(memory)) {}

Result<std::shared_ptr<DiskTier>> DiskTier::Open(const Options& options,
                                                 const TierIdentity& identity,
                                                 std::shared_ptr<ByteBlocks> memory) {
  std::shared_ptr<DiskTier> tier(new DiskTier(options, std::move(memory)));
  RETURN_IF_ERROR(tier->Use(identity));
  DiskTier* const self = tier.get();
  tier->thread_ = StartThread("kv-disk", [self] { self->Run(); });
  return tier;
}

DiskTier::~DiskTier() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    write_until_ = Clock::now() + kLastWrites;
  }
  wake_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

std::filesystem::path DiskTier::FolderOf(const TierIdentity& identity) const {
  return options_.folder / HexDigits(identity);
}

Status DiskTier::Use(const TierIdentity& identity) {
  const MutexLock lock(mutex_);
  if (!own_.empty() && identity == identity_) return {};
  Leave();
  return Scan(identity);
}

void DiskTier::Rest() {
  const MutexLock lock(mutex_);
  Leave();
}

void DiskTier::TellStored(File& file, const std::shared_ptr<TierChanges>& changes) {
  if (changes == nullptr) return;
  std::erase_if(file.told, [](const auto& told) { return told.expired(); });
  changes->Add({file.name, TierMedium::kDisk, /*is_stored=*/true});
  const bool is_known =
      std::ranges::any_of(file.told, [&](const auto& told) { return told.lock() == changes; });
  if (!is_known) file.told.push_back(changes);
}

void DiskTier::TellRemoved(const File& file) {
  for (const std::weak_ptr<TierChanges>& told : file.told) {
    if (const auto changes = told.lock(); changes != nullptr)
      changes->Add({file.name, TierMedium::kDisk, /*is_stored=*/false});
  }
}

void DiskTier::Leave() {
  ++generation_;
  for (const File& file : files_) TellRemoved(file);
  files_.clear();
  places_.clear();
  leftovers_.clear();
  writes_.clear();
  queued_.clear();
  reads_.clear();
  loads_.clear();
  used_bytes_ = 0;
  own_.clear();
  lock_file_ = OwnedFd();
  loaded_.NotifyAll();
}

Status DiskTier::Scan(const TierIdentity& identity) {
  const std::filesystem::path own = FolderOf(identity);
  std::error_code error;
  std::filesystem::create_directories(own, error);
  if (error) {
    return Fail(WriteErrorCode(error.value(), ErrorCode::kInvalidArgument),
                fmt::format("{}: {}", own.string(), error.message()));
  }
  ASSIGN_OR_RETURN(std::optional<OwnedFd> own_lock, LockFolder(own));
  if (!own_lock) {
    return Fail(
        ErrorCode::kUnavailable,
        fmt::format("{} is used by another server, or by another model of this one; give each a "
                    "--kv-offloading-path of its own",
                    own.string()));
  }
  lock_file_ = *std::move(own_lock);
  identity_ = identity;
  own_ = own;
  for (const Found& found : ListFiles(own)) {
    if (found.file == kLockName) continue;
    const auto name = ReadTierFileName(found.file);
    if (!name || found.bytes != TierFileBytes(options_.block_bytes)) {
      // The file is incomplete, truncated or foreign.
      ++counts_.damaged;
      doomed_.push_back(found.path);
      continue;
    }
    const int64_t bytes = TierDiskBytes(options_.block_bytes);
    places_.emplace(*name, files_.insert(files_.end(), {*name, bytes, {}}));
    used_bytes_ += bytes;
  }
  for (const std::filesystem::path& other : ListFolder(options_.folder, error)) {
    if (other == own || !IsIdentityFolder(other)) continue;
    const auto other_lock = LockFolder(other);
    if (!other_lock || !*other_lock)
      continue;  // in use by another server, which accounts for
                 // these files
    for (const Found& found : ListFiles(other)) {
      if (found.file == kLockName) continue;
      const int64_t bytes = TierDiskBytes(found.bytes);
      leftovers_.push_back({found.path, bytes});
      used_bytes_ += bytes;
    }
  }
  MakeRoom(0);
  return {};
}

bool DiskTier::Has(const TierName& name) const {
  const MutexLock lock(mutex_);
  return places_.contains(name) || queued_.contains(name);
}

void DiskTier::Tell(const TierName& name, const std::shared_ptr<TierChanges>& changes) {
  if (changes == nullptr) return;
  const MutexLock lock(mutex_);
  if (const auto found = places_.find(name); found != places_.end())
    return TellStored(*found->second, changes);
  TellLater(name, changes);
}

void DiskTier::TellLater(const TierName& name, const std::shared_ptr<TierChanges>& changes) {
  if (changes == nullptr) return;
  for (Job& job : writes_) {
    if (job.name == name) job.told.push_back(changes);
  }
}

void DiskTier::Write(const TierName& name, HeldBytes bytes,
                     const std::shared_ptr<TierChanges>& changes) {
  {
    const MutexLock lock(mutex_);
    if (const auto found = places_.find(name); found != places_.end()) {
      files_.splice(files_.end(), files_, found->second);
      TellStored(*found->second, changes);
      return;
    }
    if (!counts_.writes || own_.empty()) return;
    if (queued_.contains(name)) return TellLater(name, changes);
    if (static_cast<int64_t>(writes_.size()) >= options_.max_queued) {
      queued_.erase(writes_.front().name);
      writes_.pop_front();
      ++counts_.dropped;
    }
    Job job{name, std::move(bytes), {}};
    if (changes != nullptr) job.told.push_back(changes);
    writes_.push_back(std::move(job));
    try {
      queued_.emplace(name, 0);
    } catch (const std::bad_alloc&) {
      writes_.pop_back();
      ++counts_.dropped;
      return;
    }
  }
  wake_.NotifyOne();
}

bool DiskTier::WaitForRoom(Time deadline) {
  MutexLock lock(mutex_);
  while (counts_.writes && !own_.empty()) {
    if (std::ssize(writes_) < options_.max_queued) return true;
    if (!written_.WaitUntil(lock, deadline)) return false;
  }
  return false;
}

bool DiskTier::MakeRoomToLoad() {
  if (std::ssize(loads_) < options_.max_loaded) return true;
  auto oldest = loads_.end();
  for (auto load = loads_.begin(); load != loads_.end(); ++load) {
    const bool is_older = oldest == loads_.end() || load->second.since < oldest->second.since;
    if (load->second.bytes != nullptr && is_older) oldest = load;
  }
  if (oldest == loads_.end()) return false;
  loads_.erase(oldest);
  return true;
}

bool DiskTier::Request(const TierName& name, bool now) {
  {
    const MutexLock lock(mutex_);
    if (loads_.contains(name)) return true;
    if (now ? !MakeRoomToLoad() : std::ssize(loads_) >= options_.max_loaded) return false;
    // The block is still in the write queue, so it need not be read.
    for (const Job& job : writes_) {
      if (job.name == name) {
        loads_.emplace(name, Load{.bytes = job.bytes, .since = Clock::now()});
        return true;
      }
    }
    if (!places_.contains(name)) return false;
    reads_.push_back(name);
    try {
      loads_.emplace(name, Load{.bytes = nullptr, .since = Clock::now()});
    } catch (const std::bad_alloc&) {
      reads_.pop_back();
      return false;
    }
  }
  wake_.NotifyOne();
  return true;
}

DiskTier::State DiskTier::StateOf(const TierName& name) const {
  const MutexLock lock(mutex_);
  if (const auto load = loads_.find(name); load != loads_.end())
    return load->second.bytes == nullptr ? State::kComing : State::kLoaded;
  return places_.contains(name) || queued_.contains(name) ? State::kOnDisk : State::kAbsent;
}

HeldBytes DiskTier::Take(const TierName& name) {
  const MutexLock lock(mutex_);
  const auto load = loads_.find(name);
  if (load == loads_.end() || load->second.bytes == nullptr) return nullptr;
  HeldBytes bytes = std::move(load->second.bytes);
  loads_.erase(load);
  return bytes;
}

void DiskTier::WaitForOne(double max_seconds) {
  MutexLock lock(mutex_);
  const auto is_coming = [this]() REQUIRES(mutex_) {
    return std::ranges::any_of(loads_,
                               [](const auto& load) { return load.second.bytes == nullptr; });
  };
  const uint64_t before = counts_.read + counts_.damaged;
  const auto deadline = Clock::now() + Seconds(max_seconds);
  while (is_coming() && counts_.read + counts_.damaged == before) {
    if (!loaded_.WaitUntil(lock, deadline)) return;
  }
}

void DiskTier::Clear() {
  {
    const MutexLock lock(mutex_);
    ++generation_;
    for (const File& file : files_) {
      TellRemoved(file);
      doomed_.push_back(own_ / TierFileName(file.name));
      used_bytes_ -= file.bytes;
    }
    files_.clear();
    places_.clear();
    writes_.clear();
    queued_.clear();
    reads_.clear();
    loads_.clear();
  }
  loaded_.NotifyAll();
  wake_.NotifyOne();
}

DiskTierCounts DiskTier::counts() const {
  const MutexLock lock(mutex_);
  DiskTierCounts counts = counts_;
  counts.used_bytes = used_bytes_;
  return counts;
}

void DiskTier::Run() {
  MutexLock lock(mutex_);
  while (true) {
    const auto now = Clock::now();
    const bool is_done = writes_.empty() && doomed_.empty();
    if (stopping_ && (is_done || now >= write_until_)) return;
    if (!reads_.empty() && !stopping_) {
      const TierName name = reads_.front();
      reads_.pop_front();
      const bool is_over = RunGuarded("cache", "to read a block from disk",
                                      [&]() REQUIRES(mutex_) { ReadBlock(name, lock); });
      if (!is_over) GiveUpReading(name);
    } else if (!doomed_.empty()) {
      RemoveNext(lock);
    } else if (!writes_.empty() && (stopping_ || now >= next_write_)) {
      const TierName name = writes_.front().name;
      const bool is_over = RunGuarded("cache", "to write a block to disk",
                                      [&]() REQUIRES(mutex_) { WriteNext(lock); });
      if (!is_over) GiveUpWriting(name);
    } else if (!writes_.empty()) {
      wake_.WaitUntil(lock, next_write_);
    } else {
      wake_.Wait(lock);
    }
  }
}

void DiskTier::GiveUpReading(const TierName& name) {
  const auto load = loads_.find(name);
  if (load != loads_.end() && load->second.bytes == nullptr) loads_.erase(load);
  loaded_.NotifyAll();
}

void DiskTier::GiveUpWriting(const TierName& name) {
  if (writes_.empty() || writes_.front().name != name) return;
  queued_.erase(name);
  writes_.pop_front();
  ++counts_.dropped;
  written_.NotifyAll();
}

void DiskTier::RemoveNext(MutexLock& lock) {
  const std::filesystem::path path = std::move(doomed_.front());
  doomed_.pop_front();
  const MutexUnlock unlock(mutex_, lock);
  ::unlink(path.c_str());
}

void DiskTier::MakeRoom(int64_t bytes) {
  const auto is_full = [&]() REQUIRES(mutex_) {
    return used_bytes_ + bytes > options_.max_bytes || std::ssize(files_) >= kMostFiles;
  };
  while (is_full() && !leftovers_.empty()) {
    doomed_.push_back(std::move(leftovers_.front().path));
    used_bytes_ -= leftovers_.front().bytes;
    leftovers_.pop_front();
  }
  while (is_full() && !files_.empty()) {
    TellRemoved(files_.front());
    doomed_.push_back(own_ / TierFileName(files_.front().name));
    used_bytes_ -= files_.front().bytes;
    places_.erase(files_.front().name);
    files_.pop_front();
  }
}

void DiskTier::Forget(const TierName& name) {
  const auto found = places_.find(name);
  if (found == places_.end()) return;
  TellRemoved(*found->second);
  used_bytes_ -= found->second->bytes;
  files_.erase(found->second);
  places_.erase(found);
}

void DiskTier::EndWrites(const std::string& reason) {
  counts_.writes = false;
  written_.NotifyAll();
  writes_.clear();
  queued_.clear();
  LOG_ERROR("cache",
            "a write failed ({}), so no more blocks are written to disk; existing blocks are still "
            "read, and serving continues. Make room, and start the server again",
            reason);
}

void DiskTier::WriteNext(MutexLock& lock) {
  const int64_t bytes = TierDiskBytes(options_.block_bytes);
  MakeRoom(bytes);
  if (!doomed_.empty()) return;  // deleting these files will free enough space
  const Job job = writes_.front();
  if (places_.contains(job.name)) {
    queued_.erase(job.name);
    writes_.pop_front();
    return;
  }
  const uint64_t generation = generation_;
  const std::filesystem::path folder = own_;
  const TierIdentity identity = identity_;
  if (bytes > options_.max_bytes) {
    queued_.erase(job.name);
    writes_.pop_front();
    ++counts_.dropped;
    return;
  }
  const std::filesystem::path path = folder / TierFileName(job.name);
  Status written;
  {
    // An exception, such as lack of memory, is no failure of the disk: it drops this block only.
    const MutexUnlock unlock(mutex_, lock);
    written = WriteTierFile(folder, identity, job.name,
                            {job.bytes.get(), static_cast<size_t>(options_.block_bytes)});
  }
  if (options_.write_bytes_per_second > 0) {
    next_write_ =
        std::max(next_write_, Clock::now()) +
        Seconds(static_cast<double>(bytes) / static_cast<double>(options_.write_bytes_per_second));
  }
  if (generation != generation_) {
    // The block was dropped meanwhile; remove its file.
    try {
      if (written) doomed_.push_back(path);
    } catch (...) {
      ::unlink(path.c_str());
      throw;
    }
    return;
  }
  // kInvalidData: something else occupies the path of this file; other files can still be written.
  const bool is_blocked = !written && written.error().code == ErrorCode::kInvalidData;
  if (!written && !is_blocked) return EndWrites(written.error().message);
  Files made;
  std::vector<std::weak_ptr<TierChanges>> told;
  if (written) {
    try {
      told = job.told;
      made.push_back({job.name, bytes, {}});
      // Last: until files_ has the element, an exception would leave an iterator to nothing.
      places_.emplace(job.name, made.begin());
    } catch (...) {
      ::unlink(path.c_str());  // the block is dropped, so nothing would account for its file
      throw;
    }
  }
  written_.NotifyAll();
  queued_.erase(job.name);
  // Meanwhile Write() may have dropped the entry from the queue, and Tell() may have added entries.
  if (!writes_.empty() && writes_.front().name == job.name) {
    told = std::move(writes_.front().told);
    writes_.pop_front();
  }
  if (is_blocked) {
    ++counts_.dropped;
    LOG_WARNING("cache", "a block was not written: {}", written.error().message);
    return;
  }
  const auto file = made.begin();
  files_.splice(files_.end(), made);
  ++counts_.written;
  used_bytes_ += bytes;
  for (const std::weak_ptr<TierChanges>& changes : told) TellStored(*file, changes.lock());
}

void DiskTier::ReadBlock(const TierName& name, MutexLock& lock) {
  const uint64_t generation = generation_;
  const std::filesystem::path folder = own_;
  const TierIdentity identity = identity_;
  HeldBytes bytes = memory_->Take();
  Status read = Fail(ErrorCode::kUnavailable, "no memory is free");
  if (bytes != nullptr) {
    const MutexUnlock unlock(mutex_, lock);
    read = CatchToResult([&] {
      return ReadTierFile(folder, identity, name,
                          {bytes.get(), static_cast<size_t>(options_.block_bytes)});
    });
  }
  if (generation != generation_) return;
  const auto load = loads_.find(name);
  if (read) {
    ++counts_.read;
    if (load != loads_.end()) load->second = {.bytes = std::move(bytes), .since = Clock::now()};
    if (const auto found = places_.find(name); found != places_.end())
      files_.splice(files_.end(), files_, found->second);
  } else {
    if (load != loads_.end()) loads_.erase(load);
    if (read.error().code == ErrorCode::kInvalidData) {
      ++counts_.damaged;
      LOG_WARNING("cache", "a block on disk is not used, and is removed: {}", read.error().message);
      doomed_.push_back(folder / TierFileName(name));
    }
    if (read.error().code != ErrorCode::kUnavailable) Forget(name);
  }
  loaded_.NotifyAll();
}

}  // namespace sluice

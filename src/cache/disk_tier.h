// Keeps blocks evicted from memory in files that outlive the process.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "base/owned_fd.h"
#include "base/result.h"
#include "cache/byte_blocks.h"
#include "cache/tier_changes.h"
#include "cache/tier_counts.h"
#include "cache/tier_file.h"
#include "cache/tier_key.h"

namespace sluice {

// The folder contains one subfolder per identity, and each of these one file per block: a header
// (magic, version, identity, name, sizes, checksums), then the block's bytes. A file is written
// under a temporary name and renamed once complete, so a killed process leaves no partial file
// under a block's name. A file with a wrong header or checksum (XXH3, 128 bits) counts as a miss
// and is removed. Files are not synced: the checksum detects damage from a power failure.
//
// All files together take at most `max_bytes`, including those of identities that no process uses.
// The latter are removed first, then the least recently used. Writing is limited to
// `write_bytes_per_second`. If the write queue is full, its oldest entry is dropped. After a failed
// write the tier logs one line and writes no more; reading continues.
//
// The tier's own thread reads and writes; reads come first. Thread safety: all methods may be
// called from any thread. Only Open, Use, the methods named Wait... and the destructor wait for the
// disk. The destructor writes queued blocks for at most two seconds. Ownership: locks the
// identity's folder against other processes.
class DiskTier {
 public:
  struct Options {
    std::filesystem::path folder;
    int64_t block_bytes = 0;
    int64_t max_bytes = 0;
    int64_t write_bytes_per_second = 0;  // 0: unlimited
    // Maximum length of the write queue, and maximum number of blocks that are requested and not
    // yet taken.
    int64_t max_queued = 0;
    int64_t max_loaded = 0;
  };
  static constexpr int64_t kMostFiles = int64_t{1} << 20;

  // Opens the tier and lists the folder's files. kInvalidArgument, kUnsupported or
  // kResourceExhausted if the folder cannot be made or written; kUnavailable if another process
  // uses the identity's folder. `memory` has max_loaded pieces for blocks that are read.
  static Result<std::shared_ptr<DiskTier>> Open(const Options& options,
                                                const TierIdentity& identity,
                                                std::shared_ptr<ByteBlocks> memory);
  ~DiskTier();
  DiskTier(const DiskTier&) = delete;
  DiskTier& operator=(const DiskTier&) = delete;

  // Use() switches to another identity; blocks of the old identity are then neither found nor
  // written. After Rest(), or after an error of Use(), no blocks are found or written.
  Status Use(const TierIdentity& identity);
  void Rest();

  bool Has(const TierName& name) const;
  // Queues the block to be written, unless it is on disk. `changes` is notified when the block is
  // on disk, and when it is removed; may be null.
  void Write(const TierName& name, HeldBytes bytes,
             const std::shared_ptr<TierChanges>& changes = {});
  // Notifies `changes` in the same way about a block that is on disk or queued.
  void Tell(const TierName& name, const std::shared_ptr<TierChanges>& changes);
  // Waits until `deadline` for room in the write queue, so that Write() drops nothing. Returns
  // false at the deadline, or if writing has stopped.
  bool WaitForRoom(std::chrono::steady_clock::time_point deadline);

  // Starts to read a block, unless that has started already. Returns false if the block does not
  // exist or there is no room. With `now`, makes room by dropping a block that was read but not
  // taken: the one that was read longest ago.
  bool Request(const TierName& name, bool now);
  enum class State { kAbsent, kOnDisk, kComing, kLoaded };
  State StateOf(const TierName& name) const;
  // Returns a block that has been read, and forgets it; null if it has not been read.
  HeldBytes Take(const TierName& name);
  // Waits until a requested block has been read; returns immediately if no block is being read.
  void WaitForOne(double max_seconds);

  // Removes all blocks of the current identity. The tier's thread deletes their files later.
  void Clear();

  DiskTierCounts counts() const;

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct File {
    TierName name;
    int64_t bytes = 0;
    std::vector<std::weak_ptr<TierChanges>> told = {};
  };
  using Files = std::list<File>;  // least recently used first
  struct Job {
    TierName name;
    HeldBytes bytes;
    std::vector<std::weak_ptr<TierChanges>> told = {};
  };
  struct Load {
    HeldBytes bytes;  // null while it is being read
    Time since;
  };
  // A file that belongs to an identity that no process uses.
  struct Leftover {
    std::filesystem::path path;
    int64_t bytes = 0;
  };

  DiskTier(const Options& options, std::shared_ptr<ByteBlocks> memory);

  std::filesystem::path FolderOf(const TierIdentity& identity) const;
  void Leave() REQUIRES(mutex_);
  Status Scan(const TierIdentity& identity) REQUIRES(mutex_);
  void Run();
  void WriteNext(MutexLock& lock) REQUIRES(mutex_);
  void ReadBlock(const TierName& name, MutexLock& lock) REQUIRES(mutex_);
  // After an exception: drops the block, so that nobody waits for it.
  void GiveUpReading(const TierName& name) REQUIRES(mutex_);
  void GiveUpWriting(const TierName& name) REQUIRES(mutex_);
  void RemoveNext(MutexLock& lock) REQUIRES(mutex_);
  bool MakeRoomToLoad() REQUIRES(mutex_);
  // Makes room for a file of `bytes` bytes by moving files to doomed_.
  void MakeRoom(int64_t bytes) REQUIRES(mutex_);
  void Forget(const TierName& name) REQUIRES(mutex_);
  static void TellStored(File& file, const std::shared_ptr<TierChanges>& changes);
  static void TellRemoved(const File& file);
  // Tells `changes` once the queued block has been written.
  void TellLater(const TierName& name, const std::shared_ptr<TierChanges>& changes)
      REQUIRES(mutex_);
  void EndWrites(const std::string& reason) REQUIRES(mutex_);

  const Options options_;
  const std::shared_ptr<ByteBlocks> memory_;

  mutable Mutex mutex_;
  CondVar wake_, loaded_, written_;
  TierIdentity identity_ GUARDED_BY(mutex_){};
  std::filesystem::path own_ GUARDED_BY(mutex_);  // folder of identity_
  OwnedFd lock_file_ GUARDED_BY(mutex_);
  uint64_t generation_ GUARDED_BY(mutex_) = 0;  // version of the content; incremented by Use, Rest
                                                // and Clear
  Files files_ GUARDED_BY(mutex_);
  std::unordered_map<TierName, Files::iterator, TierNameHash> places_ GUARDED_BY(mutex_);
  std::deque<Leftover> leftovers_ GUARDED_BY(mutex_);            // least recently used first
  std::deque<std::filesystem::path> doomed_ GUARDED_BY(mutex_);  // files to delete
  int64_t used_bytes_ GUARDED_BY(mutex_) = 0;
  std::deque<Job> writes_ GUARDED_BY(mutex_);
  std::unordered_map<TierName, int, TierNameHash> queued_ GUARDED_BY(mutex_);
  std::deque<TierName> reads_ GUARDED_BY(mutex_);
  std::unordered_map<TierName, Load, TierNameHash> loads_ GUARDED_BY(mutex_);
  Time next_write_ GUARDED_BY(mutex_){};
  DiskTierCounts counts_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  Time write_until_ GUARDED_BY(mutex_){};  // deadline for writing while stopping
  std::thread thread_;
};

}  // namespace sluice

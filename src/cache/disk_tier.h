// Blocks that have left the memory, in files that outlive the process.
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
#include "cache/tier_counts.h"
#include "cache/tier_file.h"
#include "cache/tier_key.h"

namespace sluice {

// The folder holds a folder for each identity, and that a file for each block: a header (magic,
// version, identity, name, sizes, checksums), then the block's bytes. A file is written under
// another name and renamed when it is whole, so that a process that is killed leaves no half one
// under a block's name. A file whose header or checksum (XXH3, 128 bits) is not right is a miss,
// and is removed. Files are not synced: what a power failure spoils is found by the checksum.
//
// All files together take `max_bytes` at most, those of identities that no process uses included:
// these go first, then the longest unused. Writes take `write_bytes_per_second` at most; what does
// not fit into the queue is dropped, the oldest first. A write that fails ends writing, with one
// line in the log; reading goes on.
//
// One thread of its own reads and writes, reads first. Thread safety: all methods may be called
// from any thread; none waits for the disk, but for Open, Use and the destructor, which writes what
// is queued for at most two seconds. Ownership: locks the identity's folder against other
// processes.
class DiskTier {
 public:
  struct Options {
    std::filesystem::path folder;
    int64_t block_bytes = 0;
    int64_t max_bytes = 0;
    int64_t write_bytes_per_second = 0;  // 0: as fast as the disk
    // Blocks that wait to be written, and that were read and not yet taken, at most.
    int64_t max_queued = 0;
    int64_t max_loaded = 0;
  };
  static constexpr int64_t kMostFiles = int64_t{1} << 20;

  // Finds what is there. kInvalidArgument, kUnsupported or kResourceExhausted if the folder cannot
  // be made or written; kUnavailable if another process uses the identity's folder. `memory` has
  // max_loaded pieces for what is read.
  static Result<std::shared_ptr<DiskTier>> Open(const Options& options,
                                                const TierIdentity& identity,
                                                std::shared_ptr<ByteBlocks> memory);
  ~DiskTier();
  DiskTier(const DiskTier&) = delete;
  DiskTier& operator=(const DiskTier&) = delete;

  // From now on the blocks are of another identity. Nothing of the old one is found or written any
  // more. After an error, as after Rest(), nothing is found, and nothing is written.
  Status Use(const TierIdentity& identity);
  void Rest();

  bool Has(const TierName& name) const;
  // Writes it at leisure, unless it is there.
  void Write(const TierName& name, HeldBytes bytes);
  // Whether Write() would drop nothing. Waits for that until `deadline`; false then, and where
  // nothing is written any more.
  bool WaitForRoom(std::chrono::steady_clock::time_point deadline);

  // Begins to read a block, unless that has begun. False if there is none, or no room: one that is
  // needed `now` takes that of a block that was read before, and not taken for longest.
  bool Request(const TierName& name, bool now);
  enum class State { kAbsent, kOnDisk, kComing, kLoaded };
  State StateOf(const TierName& name) const;
  // What was read, once; null if there is nothing.
  HeldBytes Take(const TierName& name);
  // Waits until a block was read that had been asked for; returns at once if none was.
  void WaitForOne(double max_seconds);

  // Removes all blocks of the identity, files at leisure.
  void Clear();

  DiskTierCounts counts() const;

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct File {
    TierName name;
    int64_t bytes = 0;
  };
  using Files = std::list<File>;  // the longest unused first
  struct Job {
    TierName name;
    HeldBytes bytes;
  };
  struct Load {
    HeldBytes bytes;  // null: it is coming
    Time since;
  };
  // A file of an identity that no process uses.
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
  void ReadNext(MutexLock& lock) REQUIRES(mutex_);
  void RemoveNext(MutexLock& lock) REQUIRES(mutex_);
  bool MakeRoomToLoad() REQUIRES(mutex_);
  // Room for a file of so many bytes: doomed files are those that have to go.
  void MakeRoom(int64_t bytes) REQUIRES(mutex_);
  void Forget(const TierName& name) REQUIRES(mutex_);
  void EndWrites(const std::string& reason) REQUIRES(mutex_);

  const Options options_;
  const std::shared_ptr<ByteBlocks> memory_;

  mutable Mutex mutex_;
  CondVar wake_, loaded_, written_;
  TierIdentity identity_ GUARDED_BY(mutex_){};
  std::filesystem::path own_ GUARDED_BY(mutex_);  // folder of the identity
  OwnedFd lock_file_ GUARDED_BY(mutex_);
  uint64_t generation_ GUARDED_BY(mutex_) = 0;  // of the content: raised by Use and Clear
  Files files_ GUARDED_BY(mutex_);
  std::unordered_map<TierName, Files::iterator, TierNameHash> places_ GUARDED_BY(mutex_);
  std::deque<Leftover> leftovers_ GUARDED_BY(mutex_);            // the oldest first
  std::deque<std::filesystem::path> doomed_ GUARDED_BY(mutex_);  // files to be removed
  int64_t used_bytes_ GUARDED_BY(mutex_) = 0;
  std::deque<Job> writes_ GUARDED_BY(mutex_);
  std::unordered_map<TierName, int, TierNameHash> queued_ GUARDED_BY(mutex_);
  std::deque<TierName> reads_ GUARDED_BY(mutex_);
  std::unordered_map<TierName, Load, TierNameHash> loads_ GUARDED_BY(mutex_);
  Time next_write_ GUARDED_BY(mutex_){};
  DiskTierCounts counts_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  Time write_until_ GUARDED_BY(mutex_){};  // once it stops
  std::thread thread_;
};

}  // namespace sluice

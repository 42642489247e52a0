// Marks blobs that may not be on the disk yet.
//
// A blob gets its name once its digest is verified. Waiting until it is also on the disk would slow
// downloads down if the disk is slower than the network. So a mark, `blobs/ETAG.unflushed`, exists
// from before the blob's first byte until the blob is known to be on the disk. The mark holds the
// identity of the machine's boot: in the same boot, a blob reads as it was written; after another
// boot, its digest must be checked again.
//
// Thread safety: functions may be called by any thread, and by several programs at the same time.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"
#include "hub/repository_cache.h"

namespace sluice {

// Writes a blob's mark to the disk. REQUIRES: the blob's lock (RepositoryCache::Lock)
Status MarkUnflushed(const RepositoryCache& repository, std::string_view etag);

// Waits until a marked blob is on the disk, and removes the mark. If the mark is of another boot,
// checks the blob's digest first. Returns false if the digest differs or the disk lost the blob;
// the blob is then removed with a warning. Ignores a blob without a mark, or one that another
// program is writing. kUnavailable if a damaged blob cannot be removed.
Result<bool> SettleBlob(const RepositoryCache& repository, const std::string& etag);

// Removes the mark of a blob that was removed, if there is one.
void ForgetMark(const RepositoryCache& repository, std::string_view etag);

// SettleBlob() for all marks. Removed blobs are then missing from the snapshots.
Status SettleBlobs(const RepositoryCache& repository);

}  // namespace sluice

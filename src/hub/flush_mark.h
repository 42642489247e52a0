// Marks blobs that may not be on disk yet.
//
// A blob gets its name once its digest is verified. Waiting until it is also on disk would slow
// downloads down if the disk is slower than the network. So a mark, the file
// `blobs/ETAG.unflushed`, exists from before the blob's first byte until the blob is known to be on
// disk. The mark contains the id of the machine's boot. During the same boot, a blob reads as it
// was written; after another boot, its digest must be checked again.
//
// Thread safety: functions may be called by any thread, and by several programs at the same time.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"
#include "hub/repository_cache.h"

namespace sluice {

// Writes a blob's mark to the disk. REQUIRES: the caller holds the blob's lock
// (RepositoryCache::Lock).
Status MarkUnflushed(const RepositoryCache& repository, std::string_view etag);

// Waits until a marked blob is on disk, then removes the mark. If the mark is from another boot,
// checks the blob's digest first. Returns false if the digest differs or the disk lost the blob;
// the blob is then removed with a warning. Ignores a blob without a mark, or one that another
// program is writing. kUnavailable if a damaged blob cannot be removed.
Result<bool> SettleBlob(const RepositoryCache& repository, const std::string& etag);

// Removes the mark, if any, of a blob that was removed.
void ForgetMark(const RepositoryCache& repository, std::string_view etag);

// Calls SettleBlob() for all marks. Blobs that it removes are then missing from the snapshots.
Status SettleBlobs(const RepositoryCache& repository);

}  // namespace sluice

// Which blobs may not be on the disk yet.
//
// A blob gets its name once its digest is the promised one; waiting until the disk has it, too,
// would make a download slower by as much as the disk is slower than the network. So a mark lies
// beside the blob, `blobs/ETAG.unflushed`, from before its first byte until the blob is seen to be
// on the disk. It holds the identity of the machine's boot: in the same boot a blob reads as it was
// written, after another one its digest says whether it is still whole.
//
// Thread safety: all functions may be called from any thread, and by several programs at once.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"
#include "hub/repository_cache.h"

namespace sluice {

// Puts the mark of a blob on the disk. REQUIRES: the blob's lock (RepositoryCache::Lock)
Status MarkUnflushed(const RepositoryCache& repository, std::string_view etag);

// Waits until the disk has a marked blob and takes the mark away; of a mark of another boot the
// blob's digest is computed first. False if the blob is not what its name promises, or the disk did
// not keep it: it is removed then, and a warning says so. A blob that another program is writing,
// or that has no mark, is left alone. kUnavailable if a damaged blob cannot be removed.
Result<bool> SettleBlob(const RepositoryCache& repository, const std::string& etag);

// Takes away the mark of a blob that was removed; nothing where there is none.
void ForgetMark(const RepositoryCache& repository, std::string_view etag);

// SettleBlob() for all marks. What was removed is missing in the snapshots from then on.
Status SettleBlobs(const RepositoryCache& repository);

}  // namespace sluice

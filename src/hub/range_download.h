// One file from an address into a file: in order on the disk, so that any program can continue it,
// in parallel on the network where that is faster.
#pragma once

#include <cstdint>
#include <functional>

#include "base/result.h"
#include "hub/content_writer.h"
#include "hub/hub_client.h"

namespace sluice {

struct RangeDownload {
  RemoteFile source = {};
  ContentWriter* content = nullptr;  // not owned; gets what it does not have yet
  // Called with the count of bytes that the file has.
  std::function<void(int64_t bytes)> on_progress = nullptr;
  // Asks the hub where the content is by now: addresses of stores expire.
  std::function<Result<std::string>()> find_again = nullptr;
};

// Fetches what `content` lacks of source.size bytes and appends it. At any time the file holds a
// beginning of the content, whatever ends the process. One connection is used while it is fast,
// then up to eight with 64 MiB of memory at most. What breaks is continued; kUnavailable after five
// failures without progress between them, or where the address answers with something else. Where
// the file cannot be written the system's words are in the error.
Status DownloadRanges(HubClient& hub, RangeDownload download);

}  // namespace sluice

// Writes a downloaded file from the first byte to the last, so that any program can continue the
// download. Uses parallel connections if that is faster.
#pragma once

#include <cstdint>
#include <functional>

#include "base/result.h"
#include "hub/content_writer.h"
#include "hub/hub_client.h"

namespace sluice {

struct RangeDownload {
  RemoteFile source = {};
  ContentWriter* content = nullptr;  // receives the missing content; not owned
  // Called with the number of bytes in the file.
  std::function<void(int64_t bytes)> on_progress = nullptr;
  // Asks the hub for the content's current URL, because the URLs of content stores expire.
  std::function<Result<std::string>()> find_again = nullptr;
};

// Downloads the bytes up to source.size that `content` lacks, and appends them. The file always
// contains a prefix of the content, even if the process is killed. Uses one connection while it is
// fast, else up to eight, with at most 64 MiB of memory. Continues broken transfers. kUnavailable
// after five failures without progress, or if the server repeatedly sends other content. If the
// file cannot be written, the error contains the system's message.
Status DownloadRanges(HubClient& hub, RangeDownload download);

}  // namespace sluice

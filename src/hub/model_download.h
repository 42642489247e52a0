// Downloads a model into the Hugging Face cache.
#pragma once

#include <string>

#include "base/result.h"
#include "hub/fetch.h"

namespace sluice {

// Asks the hub for the commit of `place.revision` and brings the files that `options.part` needs.
// The reference of the revision is written when all of them are there. Returns the commit.
// REQUIRES: `place` is one of the hub.
Result<std::string> DownloadModel(const ModelPlace& place, const FetchOptions& options,
                                  const HubEnvironment& environment);

}  // namespace sluice

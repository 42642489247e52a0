// Downloads a model into the Hugging Face cache.
#pragma once

#include <string>

#include "base/result.h"
#include "hub/fetch.h"

namespace sluice {

// Asks the hub for the commit of `place.revision` and downloads the files that `options.part`
// needs. Writes the revision's reference once all of them are present. Returns the commit.
// REQUIRES: `place` is a model of the hub.
Result<std::string> DownloadModel(const ModelPlace& place, const FetchOptions& options,
                                  const HubEnvironment& environment);

}  // namespace sluice

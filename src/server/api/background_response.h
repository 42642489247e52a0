// Responses that are generated while no client waits for them, and clients that follow them.
#pragma once

#include <cstdint>
#include <memory>

#include "server/api/response_store.h"
#include "server/http/http_types.h"

namespace sluice {

// The client of a generation that runs in the background: its stream goes to `response`, and it
// goes away when that is cancelled or has no room any more.
std::shared_ptr<ResponseWriter> MakeBackgroundClient(std::shared_ptr<StoredResponse> response,
                                                     std::shared_ptr<ResponseStore> store);

// Sends `client` the events of `response` from number `first` on, also those that come later, and
// then ends its stream.
void FollowResponse(std::shared_ptr<StoredResponse> response, size_t first,
                    std::shared_ptr<ResponseWriter> client);

}  // namespace sluice

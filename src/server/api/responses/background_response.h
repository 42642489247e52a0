// Responses generated in the background, and clients that stream their events.
#pragma once

#include <cstdint>
#include <memory>

#include "server/api/store/response_store.h"
#include "server/http/http_types.h"

namespace sluice {

// Makes the client for a generation that runs in the background. It stores the stream in
// `response`, and disconnects when the response is cancelled or exceeds the memory of `store`.
std::shared_ptr<ResponseWriter> MakeBackgroundClient(std::shared_ptr<StoredResponse> response,
                                                     std::shared_ptr<ResponseStore> store);

// Streams the stored and future events of `response` to `client`, beginning with number `first`,
// and then ends the stream.
void FollowResponse(std::shared_ptr<StoredResponse> response, size_t first,
                    std::shared_ptr<ResponseWriter> client);

}  // namespace sluice

// Which of the two generation endpoints a request is for; their fields differ.
#pragma once

namespace sluice {

enum class EndpointKind { kCompletion, kChat };

}  // namespace sluice

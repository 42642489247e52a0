// Which of the two generation endpoints a request is for. Their fields differ.
#pragma once

namespace sluice {

enum class EndpointKind { kCompletion, kChat };

}  // namespace sluice

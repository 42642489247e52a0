// Which of the two generating endpoints a request is for, where their fields differ.
#pragma once

namespace sluice {

enum class EndpointKind { kCompletion, kChat };

}  // namespace sluice

// The two generation endpoints. The fields of their requests differ.
#pragma once

namespace sluice {

enum class EndpointKind { kCompletion, kChat };

}  // namespace sluice

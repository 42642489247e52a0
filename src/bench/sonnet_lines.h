// Lines of verse for prompts with shared text.
#pragma once

#include <span>
#include <string_view>

namespace sluice::bench {

// Each line ends with its newline.
std::span<const std::string_view> SonnetLines();

}  // namespace sluice::bench

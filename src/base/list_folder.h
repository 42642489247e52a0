// Lists a folder, also while memory is short.
#pragma once

#include <filesystem>
#include <system_error>
#include <vector>

namespace sluice {

// Returns the paths of a folder's entries, without "." and "..", in no particular order. On an
// error, returns the entries before it and sets `error`; otherwise clears it. Unlike
// std::filesystem::directory_iterator, which then ends the program (libstdc++ 12), throws
// std::bad_alloc if memory runs out. Thread safety: any thread.
std::vector<std::filesystem::path> ListFolder(const std::filesystem::path& folder,
                                              std::error_code& error);

}  // namespace sluice

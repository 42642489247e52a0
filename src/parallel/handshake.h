// Compares facts that must be equal in processes before they compute together as ranks. A rank that
// differs is refused.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "parallel/communicator.h"

namespace sluice {

// A fact to compare, as text, such as a version, a hash or a name.
struct Fact {
  std::string name;   // "program", "model files"
  std::string value;  // "0.1.0 (3ebdae0)"
  std::string mend;   // how to fix a difference; used only by this rank, not sent
};

// Convert facts to bytes and back. kInvalidData if the bytes were not written by EncodeFacts, or
// exceed kMostFacts facts or kMostFactBytes in a name or value.
inline constexpr size_t kMostFacts = 16;
inline constexpr size_t kMostFactBytes = 255;
std::vector<std::byte> EncodeFacts(std::span<const Fact> facts);
Result<std::vector<Fact>> DecodeFacts(std::span<const std::byte> bytes);

// Collective: every rank receives the facts of all ranks and returns the same result.
// kInvalidArgument names the first fact in which a rank differs from rank 0, both values, and
// `mend`. `names`: the ranks' names.
Status CompareFacts(Communicator& all, std::span<const Fact> facts,
                    std::span<const std::string> names);

}  // namespace sluice

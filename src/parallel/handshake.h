// What ranks that are processes must have in common before they compute together, and how an
// unlike one is refused.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "parallel/communicator.h"

namespace sluice {

// One thing that is compared, as text: versions, hashes, names.
struct Fact {
  std::string name;   // "program", "model files"
  std::string value;  // "0.1.0 (3ebdae0)"
  std::string mend;   // what to do where ranks differ; of this rank alone, it does not travel
};

// Facts as bytes and back. kInvalidData for bytes that EncodeFacts did not write: more than
// kMostFacts, or than kMostFactBytes in a name or a value.
inline constexpr size_t kMostFacts = 16;
inline constexpr size_t kMostFactBytes = 255;
std::vector<std::byte> EncodeFacts(std::span<const Fact> facts);
Result<std::vector<Fact>> DecodeFacts(std::span<const std::byte> bytes);

// Collective: every rank learns the facts of all. All return the same: kInvalidArgument, naming the
// first fact in which a rank differs from rank 0, both values, and the mend; `names` are those of
// the ranks.
Status CompareFacts(Communicator& all, std::span<const Fact> facts,
                    std::span<const std::string> names);

}  // namespace sluice

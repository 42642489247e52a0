#include "parallel/handshake.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/check.h"

namespace sluice {
namespace {

// Maximum number of bytes of a rank's encoded facts.
constexpr size_t kFactsBytes = 1 + kMostFacts * 2 * (1 + kMostFactBytes);

// Appends a string, preceded by its length in one byte.
void PutText(std::vector<std::byte>& bytes, std::string_view text) {
  CHECK_LE(text.size(), kMostFactBytes);
  bytes.push_back(static_cast<std::byte>(text.size()));
  for (const char letter : text) bytes.push_back(static_cast<std::byte>(letter));
}

Result<std::string> TakeText(std::span<const std::byte>& bytes) {
  if (bytes.empty() || bytes.size() - 1 < static_cast<size_t>(bytes[0]))
    return Fail(ErrorCode::kInvalidData, "facts of a rank that end too early");
  const auto length = static_cast<size_t>(bytes[0]);
  std::string text(reinterpret_cast<const char*>(bytes.data()) + 1, length);
  bytes = bytes.subspan(1 + length);
  return text;
}

}  // namespace

std::vector<std::byte> EncodeFacts(std::span<const Fact> facts) {
  CHECK_LE(facts.size(), kMostFacts);
  std::vector<std::byte> bytes{static_cast<std::byte>(facts.size())};
  for (const Fact& fact : facts) {
    PutText(bytes, fact.name);
    PutText(bytes, fact.value);
  }
  return bytes;
}

Result<std::vector<Fact>> DecodeFacts(std::span<const std::byte> bytes) {
  if (bytes.empty() || static_cast<size_t>(bytes[0]) > kMostFacts)
    return Fail(ErrorCode::kInvalidData, "expected the facts of a rank");
  std::vector<Fact> facts(static_cast<size_t>(bytes[0]));
  bytes = bytes.subspan(1);
  for (Fact& fact : facts) {
    ASSIGN_OR_RETURN(fact.name, TakeText(bytes));
    ASSIGN_OR_RETURN(fact.value, TakeText(bytes));
  }
  return facts;
}

Status CompareFacts(Communicator& all, std::span<const Fact> facts,
                    std::span<const std::string> names) {
  std::vector<std::byte> own = EncodeFacts(facts);
  own.resize(kFactsBytes);
  const auto size = static_cast<size_t>(all.size());
  std::vector<std::byte> gathered(kFactsBytes * size);
  const std::vector<int64_t> widths(size, kFactsBytes);
  ThreadPool pool(1);
  all.Gather(pool, widths, 1, own.data(), gathered.data());
  std::vector<std::vector<Fact>> of_ranks;
  for (size_t rank = 0; rank < size; ++rank) {
    auto decoded = DecodeFacts(std::span(gathered).subspan(rank * kFactsBytes, kFactsBytes));
    if (!decoded) return tl::unexpected<Error>(std::move(decoded.error()).In(names[rank]));
    of_ranks.push_back(*std::move(decoded));
  }
  // Reports the first differing fact, which is the same on all ranks.
  for (size_t i = 0; i < facts.size(); ++i) {
    for (size_t rank = 1; rank < size; ++rank) {
      const std::vector<Fact>& other = of_ranks[rank];
      const std::vector<Fact>& first = of_ranks[0];
      if (i < first.size() && i < other.size() && first[i].name == other[i].name &&
          first[i].value == other[i].value) {
        continue;
      }
      const auto value = [i](const std::vector<Fact>& of_rank) {
        return i < of_rank.size() ? of_rank[i].value : std::string("nothing");
      };
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("{} differs from {} in its {}: expected {}, found {}; {}", names[rank],
                      names[0], facts[i].name, value(first), value(other), facts[i].mend));
    }
  }
  return {};
}

}  // namespace sluice

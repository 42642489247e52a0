#include "models/lora_packing.h"

#include <fmt/format.h>

namespace sluice {
namespace {

// Returns the rows of B [rows, rank] at `stored` that this rank computes, contiguous. They are
// returned in place, or copied to `joined` if they are not contiguous in the file.
const std::byte* HeldRows(const LoraModule& module, const LoraAdapter::Factors& factors,
                          const std::byte* stored, std::vector<std::byte>& joined) {
  const int64_t row_bytes = factors.rank * BitsPerElement(factors.b->type) / 8;
  if (module.held.size() == 1) return stored + module.held.front().begin * row_bytes;
  joined.clear();
  for (const RowRange& range : module.held)
    joined.insert(joined.end(), stored + range.begin * row_bytes, stored + range.end * row_bytes);
  return joined.data();
}

}  // namespace

tl::unexpected<Error> NotFinite(const LoraAdapter& adapter, const std::string& tensor) {
  return Fail(ErrorCode::kInvalidData,
              fmt::format("{}: tensor '{}' holds a number that is NaN or infinite",
                          adapter.path().string(), tensor),
              tensor);
}

Status CopyHeldFactors(const LoraLayout& layout, const LoraAdapter& adapter,
                       const std::function<Result<FiniteFactors>(const HeldFactors&)>& copy) {
  std::vector<std::byte> scratch, joined;
  for (const LoraAdapter::Factors& factors : adapter.factors()) {
    const LoraModule& module = *layout.Find(factors.module->name);
    if (module.held.empty()) continue;
    const std::byte* const b = HeldRows(module, factors, adapter.BBytes(factors, scratch), joined);
    ASSIGN_OR_RETURN(const FiniteFactors finite,
                     copy({module, factors, adapter.ABytes(factors), b}));
    if (finite.a && finite.b) continue;
    const std::string& tensor = finite.a ? factors.b->name : factors.a->name;
    return NotFinite(adapter, tensor);
  }
  return {};
}

}  // namespace sluice

// Checks a layer's tensors against its layout. Errors name the tensor, its file, the expected and
// the found value.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "tensor/element_type.h"

namespace sluice {

tl::unexpected<Error> Misfit(const StoredTensor& tensor, std::string_view expected,
                             std::string_view found);
tl::unexpected<Error> MissingTensor(const std::string& name, std::string_view what);

// `squeeze`: ignores dimensions of size 1. `why`: the reason for the expected shape, for the
// message.
Status CheckShape(const StoredTensor& tensor, const std::vector<int64_t>& expected, bool squeeze,
                  std::string_view why);
Status CheckType(const StoredTensor& tensor, std::initializer_list<ElementType> allowed,
                 std::string_view why);

}  // namespace sluice

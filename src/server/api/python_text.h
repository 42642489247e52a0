// Values as Python writes and reads them: clients compare the messages of vLLM, whose numbers and
// lists look like this.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"

namespace sluice {

// repr() of a string: 'a', "it's", '\n'.
std::string PythonRepr(std::string_view text);
// repr() of a list: [1, 2], ['a'].
std::string PythonRepr(std::span<const int64_t> list);
std::string PythonRepr(std::span<const std::string> list);
// str() of a float: 1.0, 1e-05, nan, inf.
std::string PythonFloat(double value);
// str() of a JSON value, containers as `<list of 2 items>` and `<dict of 1 items>`.
std::string PythonInput(const json::Value& value);

// int(text): blanks around, a sign, digits of any script, single underscores between them.
// Saturates at int64.
std::optional<int64_t> PythonInt(std::string_view text);
// An integer as pydantic takes it from a string: ASCII digits as PythonInt, and "8.0".
std::optional<int64_t> LaxInt(std::string_view text);
// float(text): also "inf", "nan", ".5", "1_0.5".
std::optional<double> PythonFloatFrom(std::string_view text);

// Code points of valid UTF-8.
size_t CountCharacters(std::string_view text);
// At most the first `count` of them.
std::string_view TrimToCharacters(std::string_view text, size_t count);
// False for bytes that are not UTF-8; a surrogate half, which a JSON escape can spell, is none.
bool IsUtf8(std::string_view text);

}  // namespace sluice

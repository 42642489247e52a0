// Binds the arguments of a call to the parameters of a built-in function.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "chat/jinja/operators.h"
#include "chat/jinja/value.h"

namespace sluice::jinja {

// The arguments of one call, indexed by parameter. Fails (TypeError) for too many, unknown,
// duplicate or missing arguments.
class Bound {
 public:
  // The first `num_required` of `parameters` must be given.
  Bound(std::string_view function, Arguments& arguments,
        std::initializer_list<std::string_view> parameters, size_t num_required = 0)
      : function_(function), values_(parameters.size()) {
    if (arguments.positional.size() > parameters.size()) {
      FailType(std::string(function) + "() takes at most " + std::to_string(parameters.size()) +
               " arguments (" + std::to_string(arguments.positional.size()) + " given)");
    }
    for (size_t i = 0; i < arguments.positional.size(); ++i)
      values_[i] = std::move(arguments.positional[i]);
    for (auto& [name, value] : arguments.keyword) {
      size_t i = 0;
      for (const std::string_view parameter : parameters) {
        if (parameter == name) break;
        ++i;
      }
      if (i == parameters.size()) {
        FailType(std::string(function) + "() got an unexpected keyword argument '" + name + "'");
      }
      if (!values_[i].is_missing()) {
        FailType(std::string(function) + "() got multiple values for argument '" + name + "'");
      }
      values_[i] = std::move(value);
    }
    for (size_t i = 0; i < num_required; ++i) {
      if (values_[i].is_missing()) {
        FailType(std::string(function) + "() missing required argument '" +
                 std::string(*(parameters.begin() + i)) + "'");
      }
    }
  }

  bool Has(size_t i) const { return !values_[i].is_missing(); }
  bool IsNoneOrAbsent(size_t i) const { return values_[i].is_missing() || values_[i].is_none(); }
  const Value& operator[](size_t i) const { return values_[i]; }
  Value Get(size_t i, const Value& otherwise) const { return Has(i) ? values_[i] : otherwise; }
  bool Flag(size_t i, bool otherwise = false) const {
    return Has(i) ? Truth(values_[i]) : otherwise;
  }
  int64_t Index(size_t i, int64_t otherwise) const {
    return Has(i) ? ToIndex(values_[i], "an integer is required, not a value") : otherwise;
  }
  // Fails (TypeError) if the argument is not a string.
  const std::string& Text(size_t i) const {
    if (values_[i].is_undefined())
      FailType(function_ + "(): an argument must be str, not Undefined");
    if (!values_[i].is_string())
      FailType(function_ + "(): an argument must be str, not " + values_[i].TypeName());
    return values_[i].text();
  }

 private:
  std::string function_;
  std::vector<Value> values_;
};

// Fails (TypeError) if the call has arguments.
inline void ExpectNoArguments(std::string_view function, Arguments& arguments) {
  const Bound bound(function, arguments, {});
}

}  // namespace sluice::jinja

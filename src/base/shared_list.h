// An immutable list whose copies share its elements.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace sluice {

// For a request's lists, which all of its prompts and sequences keep: a copy takes constant time.
// Thread safety: the same as for a std::shared_ptr to a constant object.
template <typename T>
class SharedList {
 public:
  using value_type = T;
  using const_iterator = const T*;
  using iterator = const_iterator;

  SharedList() = default;
  SharedList(std::vector<T> items)
      : items_(std::make_shared<const std::vector<T>>(std::move(items))) {}
  SharedList(std::initializer_list<T> items) : SharedList(std::vector<T>(items)) {}

  size_t size() const { return items_ == nullptr ? 0 : items_->size(); }
  bool empty() const { return size() == 0; }
  const T* data() const { return items_ == nullptr ? nullptr : items_->data(); }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size(); }
  const T& operator[](size_t index) const { return (*items_)[index]; }

 private:
  std::shared_ptr<const std::vector<T>> items_;
};

}  // namespace sluice

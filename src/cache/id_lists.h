// Doubly linked lists of integer ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice {

// Ids are [0, count); each is in at most one list at a time. All operations except Length take
// constant time; none allocates. Thread safety: none.
class IdLists {
 public:
  static constexpr int32_t kNone = -1;
  struct List {
    int32_t first = kNone;
    int32_t last = kNone;
  };

  explicit IdLists(int64_t count) : links_(static_cast<size_t>(count)) {}

  void PushBack(List& list, int32_t id) {
    at(id) = {.previous = list.last};
    (list.last != kNone ? at(list.last).next : list.first) = id;
    list.last = id;
  }
  void PushFront(List& list, int32_t id) {
    at(id) = {.next = list.first};
    (list.first != kNone ? at(list.first).previous : list.last) = id;
    list.first = id;
  }
  void Remove(List& list, int32_t id) {
    Link& link = at(id);
    (link.previous != kNone ? at(link.previous).next : list.first) = link.next;
    (link.next != kNone ? at(link.next).previous : list.last) = link.previous;
    link = {};
  }

  // The id after `id` in its list; kNone after the last one.
  int32_t Next(int32_t id) const { return links_[static_cast<size_t>(id)].next; }

  // Returns the number of ids in the list, or -1 if its links disagree or `belongs` is false for an
  // id.
  template <typename Belongs>
  int64_t Length(const List& list, const Belongs& belongs) const {
    int64_t count = 0;
    int32_t previous = kNone;
    for (int32_t id = list.first; id != kNone; id = links_[static_cast<size_t>(id)].next) {
      if (!belongs(id) || links_[static_cast<size_t>(id)].previous != previous ||
          ++count > static_cast<int64_t>(links_.size()))
        return -1;
      previous = id;
    }
    return list.last == previous ? count : -1;
  }

 private:
  struct Link {
    int32_t previous = kNone;
    int32_t next = kNone;
  };
  Link& at(int32_t id) { return links_[static_cast<size_t>(id)]; }

  std::vector<Link> links_;
};

}  // namespace sluice

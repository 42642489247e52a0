#include "checkpoint/torch_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "tensor/bfloat16.h"
#include "tensor/float16.h"

namespace sluice {
namespace {

// Size limit of a pickle. The pickle of a tensor has about 40 opcodes and 30 values.
constexpr size_t kMostPickleBytes = 4096;
constexpr size_t kMostParts = 64;

tl::unexpected<Error> Bad(std::string_view what) {
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("expected a tensor that torch.save wrote: {}", what));
}

// Reads a little-endian number at offset `at`. REQUIRES: `bytes` has at least sizeof(T) bytes from
// `at` on.
template <typename T>
T At(std::string_view bytes, size_t at) {
  static_assert(std::endian::native == std::endian::little);
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

// --- Zip -----------------------------------------------------------------------------------------

constexpr size_t kEndBytes = 22, kEntryBytes = 46, kLocalBytes = 30;
constexpr uint32_t kEndMark = 0x06054b50, kEntryMark = 0x02014b50, kLocalMark = 0x04034b50;

using TorchParts = std::map<std::string, std::string_view, std::less<>>;

// Returns the archive's entries, keyed by their names after the first '/', because torch puts all
// entries into one folder.
Result<TorchParts> ReadTorchParts(std::string_view file) {
  if (file.size() < kEndBytes || At<uint32_t>(file, 0) != kLocalMark)
    return Bad("found no zip archive");
  // The end record is the last 22 bytes, because torch writes no archive comment.
  const size_t end = file.size() - kEndBytes;
  if (At<uint32_t>(file, end) != kEndMark) return Bad("the archive is cut off or has a comment");
  const size_t count = At<uint16_t>(file, end + 10);
  size_t at = At<uint32_t>(file, end + 16);
  if (count > kMostParts) return Bad(fmt::format("the archive has {} parts", count));
  TorchParts parts;
  for (size_t i = 0; i < count; ++i) {
    if (at > end || end - at < kEntryBytes || At<uint32_t>(file, at) != kEntryMark)
      return Bad("the list of the archive's parts is damaged");
    const size_t name_bytes = At<uint16_t>(file, at + 28);
    const size_t skipped = size_t{At<uint16_t>(file, at + 30)} + At<uint16_t>(file, at + 32);
    const size_t size = At<uint32_t>(file, at + 24), local = At<uint32_t>(file, at + 42);
    if (At<uint16_t>(file, at + 10) != 0 || At<uint32_t>(file, at + 20) != size)
      return Bad("a part of the archive is compressed");
    if (end - at - kEntryBytes < name_bytes + skipped)
      return Bad("the list of the archive's parts is damaged");
    const std::string_view name = file.substr(at + kEntryBytes, name_bytes);
    at += kEntryBytes + name_bytes + skipped;
    if (local > end || end - local < kLocalBytes || At<uint32_t>(file, local) != kLocalMark)
      return Bad("a part of the archive is not at the offset that its directory states");
    const size_t begin =
        local + kLocalBytes + At<uint16_t>(file, local + 26) + At<uint16_t>(file, local + 28);
    if (begin > end || end - begin < size)
      return Bad("a part of the archive is longer than the file");
    const size_t slash = name.find('/');
    if (slash == std::string_view::npos) return Bad("a part of the archive has no folder");
    if (!parts.emplace(name.substr(slash + 1), file.substr(begin, size)).second)
      return Bad("two parts of the archive have the same name");
  }
  return parts;
}

// --- Pickle --------------------------------------------------------------------------------------

enum class TorchNumber { kF32, kF16, kBF16 };

size_t BytesOf(TorchNumber type) {
  return type == TorchNumber::kF32 ? 4 : 2;
}

struct PickleValue {
  enum class Kind {
    kMark,
    kNumber,
    kText,
    kBool,
    kTuple,
    kRebuild,  // the function that rebuilds a tensor
    kDict,     // the class of the tensor's last argument, an empty dictionary
    kEmptyDict,
    kType,
    kStorage,
    kTensor
  };
  Kind kind = Kind::kMark;
  int64_t number = 0;
  std::string text = {};  // name of the storage, if the value is one
  std::vector<PickleValue> items = {};
  TorchNumber type = TorchNumber::kF32;
};
using PickleKind = PickleValue::Kind;

struct TensorFacts {
  TorchNumber type = TorchNumber::kF32;
  std::string storage;
  int64_t storage_numbers = 0, offset = 0;
  std::vector<int64_t> shape, strides;
};

// Interprets the opcodes of a pickle that contains one tensor.
class Pickle {
 public:
  explicit Pickle(std::string_view bytes) : bytes_(bytes) {}

  Result<TensorFacts> Read() {
    while (true) {
      if (at_ >= bytes_.size()) return Bad("its pickle has no end");
      const auto step = static_cast<unsigned char>(bytes_[at_++]);
      if (step == '.') break;
      RETURN_IF_ERROR(Do(step));
      if (stack_.size() > kMostValues) return Bad("its pickle has too many values");
    }
    if (stack_.size() != 1 || stack_.back().kind != PickleKind::kTensor)
      return Bad("its pickle does not end with one tensor");
    return tensor_;
  }

 private:
  static constexpr size_t kMostValues = 64;

  Result<std::string_view> Take(size_t count) {
    if (bytes_.size() - at_ < count) return Bad("its pickle is cut off");
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }

  Result<std::string_view> TakeLine() {
    const size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) return Bad("its pickle is cut off");
    const std::string_view line = bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return line;
  }

  template <typename T>
  Status PushNumber() {
    ASSIGN_OR_RETURN(const std::string_view bytes, Take(sizeof(T)));
    stack_.push_back(
        {.kind = PickleKind::kNumber, .number = static_cast<int64_t>(At<T>(bytes, 0))});
    return {};
  }

  Status PushLong() {
    ASSIGN_OR_RETURN(const std::string_view size, Take(1));
    const auto count = static_cast<unsigned char>(size[0]);
    if (count > 8) return Bad("its pickle has a number of more than 64 bits");
    ASSIGN_OR_RETURN(const std::string_view bytes, Take(count));
    uint64_t number = 0;
    for (size_t i = 0; i < count; ++i)
      number |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    stack_.push_back({.kind = PickleKind::kNumber, .number = static_cast<int64_t>(number)});
    return {};
  }

  Status PushText() {
    ASSIGN_OR_RETURN(const std::string_view size, Take(4));
    ASSIGN_OR_RETURN(const std::string_view text, Take(At<uint32_t>(size, 0)));
    stack_.push_back({.kind = PickleKind::kText, .text = std::string(text)});
    return {};
  }

  Status PushGlobal() {
    ASSIGN_OR_RETURN(const std::string_view module, TakeLine());
    ASSIGN_OR_RETURN(const std::string_view name, TakeLine());
    PickleValue value;
    if (module == "torch._utils" && name == "_rebuild_tensor_v2") {
      value.kind = PickleKind::kRebuild;
    } else if (module == "collections" && name == "OrderedDict") {
      value.kind = PickleKind::kDict;
    } else if (module == "torch" && name == "FloatStorage") {
      value = {.kind = PickleKind::kType, .type = TorchNumber::kF32};
    } else if (module == "torch" && name == "HalfStorage") {
      value = {.kind = PickleKind::kType, .type = TorchNumber::kF16};
    } else if (module == "torch" && name == "BFloat16Storage") {
      value = {.kind = PickleKind::kType, .type = TorchNumber::kBF16};
    } else {
      return Bad(fmt::format(
          "its pickle names {}.{}; only a dense tensor of float32, float16 or bfloat16 is accepted",
          module.substr(0, 64), name.substr(0, 64)));
    }
    stack_.push_back(std::move(value));
    return {};
  }

  Status MakeTuple(size_t count) {
    if (stack_.size() < count) return Bad("its pickle uses missing values");
    PickleValue tuple{.kind = PickleKind::kTuple};
    for (size_t i = stack_.size() - count; i < stack_.size(); ++i) {
      if (stack_[i].kind == PickleKind::kMark) return Bad("its pickle uses missing values");
      tuple.items.push_back(std::move(stack_[i]));
    }
    stack_.resize(stack_.size() - count);
    stack_.push_back(std::move(tuple));
    return {};
  }

  Status MakeTupleFromMark() {
    for (size_t i = stack_.size(); i-- > 0;) {
      if (stack_[i].kind != PickleKind::kMark) continue;
      RETURN_IF_ERROR(MakeTuple(stack_.size() - i - 1));
      stack_.erase(stack_.end() - 2);  // removes the mark
      return {};
    }
    return Bad("its pickle uses missing values");
  }

  // The arguments are ('storage', type, name, device, count of numbers).
  Status MakeStorage() {
    if (stack_.empty() || stack_.back().kind != PickleKind::kTuple ||
        stack_.back().items.size() != 5)
      return Bad("its pickle has no storage");
    const std::vector<PickleValue>& items = stack_.back().items;
    if (items[0].kind != PickleKind::kText || items[0].text != "storage" ||
        items[1].kind != PickleKind::kType || items[2].kind != PickleKind::kText ||
        items[3].kind != PickleKind::kText || items[4].kind != PickleKind::kNumber)
      return Bad("its pickle has no storage");
    PickleValue storage{.kind = PickleKind::kStorage,
                        .number = items[4].number,
                        .text = items[2].text,
                        .type = items[1].type};
    stack_.back() = std::move(storage);
    return {};
  }

  static std::optional<std::vector<int64_t>> NumbersOf(const PickleValue& value) {
    if (value.kind != PickleKind::kTuple) return std::nullopt;
    std::vector<int64_t> numbers;
    for (const PickleValue& item : value.items) {
      if (item.kind != PickleKind::kNumber) return std::nullopt;
      numbers.push_back(item.number);
    }
    return numbers;
  }

  Status Call() {
    if (stack_.size() < 2 || stack_.back().kind != PickleKind::kTuple)
      return Bad("its pickle calls something without arguments");
    const std::vector<PickleValue> arguments = std::move(stack_.back().items);
    stack_.pop_back();
    if (stack_.back().kind == PickleKind::kDict && arguments.empty()) {
      stack_.back() = {.kind = PickleKind::kEmptyDict};
      return {};
    }
    if (stack_.back().kind != PickleKind::kRebuild)
      return Bad("its pickle calls a function that no dense tensor needs");
    // The arguments are (storage, offset, shape, strides, requires_grad, hooks).
    if (arguments.size() != 6 || arguments[0].kind != PickleKind::kStorage ||
        arguments[1].kind != PickleKind::kNumber || arguments[4].kind != PickleKind::kBool ||
        arguments[5].kind != PickleKind::kEmptyDict)
      return Bad("its pickle builds an unsupported kind of tensor");
    const auto shape = NumbersOf(arguments[2]), strides = NumbersOf(arguments[3]);
    if (!shape || !strides) return Bad("its pickle builds an unsupported kind of tensor");
    tensor_ = {.type = arguments[0].type,
               .storage = arguments[0].text,
               .storage_numbers = arguments[0].number,
               .offset = arguments[1].number,
               .shape = *shape,
               .strides = *strides};
    stack_.back() = {.kind = PickleKind::kTensor};
    return {};
  }

  // Stores the top of the stack in the memo, unless it is a tuple. So entries of the memo stay
  // small.
  Status Keep(uint32_t place) {
    if (stack_.empty()) return Bad("its pickle stores a missing value");
    if (place >= kMostValues) return Bad("its pickle has too many values");
    const PickleValue& value = stack_.back();
    // torch writes only short tuples here.
    if (value.kind == PickleKind::kTuple && value.items.size() > 8)
      return Bad("its pickle has too many values");
    if (value.kind != PickleKind::kTuple) kept_[place] = value;
    return {};
  }

  Status Push(uint32_t place) {
    const auto kept = kept_.find(place);
    if (kept == kept_.end()) return Bad("its pickle uses missing values");
    stack_.push_back(kept->second);
    return {};
  }

  Status Do(unsigned char step) {
    switch (step) {
      case 0x80: {  // protocol version
        ASSIGN_OR_RETURN(const std::string_view version, Take(1));
        if (version[0] != 2) return Bad("its pickle does not have version 2");
        return {};
      }
      case 'c': return PushGlobal();
      case 'q': {
        ASSIGN_OR_RETURN(const std::string_view place, Take(1));
        return Keep(static_cast<unsigned char>(place[0]));
      }
      case 'h': {
        ASSIGN_OR_RETURN(const std::string_view place, Take(1));
        return Push(static_cast<unsigned char>(place[0]));
      }
      case '(': stack_.push_back({.kind = PickleKind::kMark}); return {};
      case 'X': return PushText();
      case 'K': return PushNumber<uint8_t>();
      case 'M': return PushNumber<uint16_t>();
      case 'J': return PushNumber<int32_t>();
      case 0x8a: return PushLong();
      case ')': stack_.push_back({.kind = PickleKind::kTuple}); return {};
      case 't': return MakeTupleFromMark();
      case 0x85: return MakeTuple(1);
      case 0x86: return MakeTuple(2);
      case 0x87: return MakeTuple(3);
      case 0x88:
      case 0x89: stack_.push_back({.kind = PickleKind::kBool}); return {};
      case 'Q': return MakeStorage();
      case 'R': return Call();
      default:
        return Bad(fmt::format("its pickle has a step {:#04x} that no dense tensor needs", step));
    }
  }

  const std::string_view bytes_;
  size_t at_ = 0;
  std::vector<PickleValue> stack_;
  std::map<uint32_t, PickleValue> kept_;
  TensorFacts tensor_;
};

float NumberAt(std::string_view bytes, TorchNumber type, int64_t index) {
  const size_t at = static_cast<size_t>(index) * BytesOf(type);
  switch (type) {
    case TorchNumber::kF32: return At<float>(bytes, at);
    case TorchNumber::kF16: return ToFloat(std::bit_cast<Float16>(At<uint16_t>(bytes, at)));
    case TorchNumber::kBF16: return ToFloat(std::bit_cast<BFloat16>(At<uint16_t>(bytes, at)));
  }
  return 0;
}

// Returns a * b, or nullopt if it exceeds `most`. REQUIRES: neither factor is negative.
std::optional<int64_t> Product(int64_t a, int64_t b, int64_t most) {
  if (a != 0 && b > most / a) return std::nullopt;
  return a * b;
}

}  // namespace

Result<TorchTensor> ReadTorchTensor(std::string_view file, int64_t most_values) {
  constexpr size_t kMostAxes = 4;
  ASSIGN_OR_RETURN(const TorchParts parts, ReadTorchParts(file));
  if (const auto order = parts.find("byteorder"); order != parts.end() && order->second != "little")
    return Bad("its numbers are not little-endian");
  const auto pickle = parts.find("data.pkl");
  if (pickle == parts.end()) return Bad("the archive has no data.pkl");
  if (pickle->second.size() > kMostPickleBytes) return Bad("its pickle has more than one tensor");
  ASSIGN_OR_RETURN(const TensorFacts facts, Pickle(pickle->second).Read());
  const auto storage = parts.find("data/" + facts.storage);
  if (storage == parts.end()) return Bad("the archive lacks the tensor's numbers");
  const std::string_view bytes = storage->second;
  const auto held = static_cast<int64_t>(bytes.size() / BytesOf(facts.type));
  if (facts.storage_numbers < 0 || facts.storage_numbers > held)
    return Bad("the archive has fewer numbers than the tensor");
  if (facts.shape.size() != facts.strides.size() || facts.shape.empty() ||
      facts.shape.size() > kMostAxes || facts.offset < 0)
    return Bad("found a tensor with another number of dimensions");

  // Offset of the last number in the storage. It is the largest offset, because no stride is
  // negative.
  int64_t count = 1, last = facts.offset;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 4;
  for (size_t axis = 0; axis < facts.shape.size(); ++axis) {
    const int64_t size = facts.shape[axis], stride = facts.strides[axis];
    if (size < 0 || stride < 0) return Bad("a size or stride of the tensor is negative");
    const std::optional<int64_t> numbers = Product(count, size, most_values);
    if (!numbers) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("the tensor has more than {} numbers", most_values),
                  std::string(kTooManyValues));
    }
    count = *numbers;
    if (size == 0) continue;
    const std::optional<int64_t> span = Product(size - 1, stride, kMost);
    if (!span || last > kMost - *span) return Bad("a stride of the tensor is too large");
    last += *span;
  }
  if (count > 0 && last >= facts.storage_numbers)
    return Bad("the tensor is longer than its numbers");

  TorchTensor tensor;
  tensor.shape = facts.shape;
  tensor.values.resize(static_cast<size_t>(count));
  std::array<int64_t, kMostAxes> index{};
  int64_t place = facts.offset;
  for (float& value : tensor.values) {
    value = NumberAt(bytes, facts.type, place);
    for (size_t axis = facts.shape.size(); axis-- > 0;) {
      place += facts.strides[axis];
      if (++index[axis] < facts.shape[axis]) break;
      place -= facts.strides[axis] * facts.shape[axis];
      index[axis] = 0;
    }
  }
  return tensor;
}

}  // namespace sluice

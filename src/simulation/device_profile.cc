#include "simulation/device_profile.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/ascii.h"
#include "base/check.h"
#include "base/json_fields.h"
#include "base/suggest.h"
#include "planner/accelerators.h"
#include "simulation/device_factors.h"

namespace sluice {
namespace {

constexpr std::string_view kPartNames[kNumStepParts] = {
    "weights", "cache",     "products",   "narrow",     "attention", "layers",
    "steps",   "sequences", "link_bytes", "link_waits", "request"};

constexpr int kMostDevices = 256;

DeviceProfile FromAccelerator(const Accelerator& accelerator) {
  DeviceProfile profile;
  profile.name = std::string(accelerator.name);
  profile.memory_bytes = accelerator.memory_bytes;
  profile.system_bytes = accelerator.system_bytes;
  profile.bytes_per_second = accelerator.bytes_per_second;
  profile.link_bytes_per_second = accelerator.link_bytes_per_second;
  profile.bf16_flops = accelerator.bf16_flops;
  profile.fp8_flops = accelerator.fp8_flops;
  profile.fp4_flops = accelerator.fp4_flops;
  // Devices of other vendors are planned as the NVIDIA generation with the same formats.
  profile.compute_capability = accelerator.fp4_flops > 0 ? 100 : 90;
  if (const std::string_view capability = accelerator.compute_capability; !capability.empty()) {
    const size_t dot = capability.find('.');
    profile.compute_capability = 0;
    for (const char digit : capability) {
      if (digit != '.') profile.compute_capability = 10 * profile.compute_capability + digit - '0';
    }
    CHECK(dot != std::string_view::npos, "a compute capability is like 9.0");
  }
  return profile;
}

void SetFactors(const DeviceFactors& factors, DeviceProfile& profile) {
  profile.factors = factors.factors;
  profile.error = factors.error;
  profile.source = std::string(factors.source);
}

std::vector<DeviceProfile> MakeProfiles() {
  std::vector<DeviceProfile> profiles;
  for (const Accelerator& accelerator : Accelerators())
    profiles.push_back(FromAccelerator(accelerator));
  for (DeviceProfile& cpu : CpuProfiles()) profiles.push_back(std::move(cpu));
  for (DeviceProfile& profile : profiles) SetFactors(FactorsOf(profile.name), profile);
  return profiles;
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const DeviceProfile& profile : DeviceProfiles()) names.push_back(profile.name);
  return names;
}

const DeviceProfile* FindProfile(std::string_view name) {
  const Accelerator* const accelerator = FindAccelerator(name);
  const std::string wanted = AsciiLower(accelerator != nullptr ? accelerator->name : name);
  for (const DeviceProfile& profile : DeviceProfiles()) {
    if (AsciiLower(profile.name) == wanted) return &profile;
  }
  return nullptr;
}

tl::unexpected<Error> Unknown(std::string_view name) {
  const std::vector<std::string> names = Names();
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("\"{}\" is not a device of the table: expected one of {} (with xN for N "
                          "of them), or a .yaml file that describes one{}",
                          ShortName(name), fmt::join(names, ", "), DidYouMean(name, names)),
              "simulate");
}

// Reads a description's numbers. They must be greater than 0 or, if `least` is given, at least
// `least`.
class Reader {
 public:
  Reader(const json::Value& description, std::string_view place)
      : fields_(description, fmt::format("{}: ", place)) {}

  Status Number(std::string_view key, double& value, bool is_required, double least = 1e-12) {
    ASSIGN_OR_RETURN(const std::optional<double> given, fields_.Number(key, least, 1e21));
    if (given) value = *given;
    if (!given && is_required && value <= 0) return fields_.Missing(key);
    return {};
  }
  Status Bytes(std::string_view key, int64_t& value, bool is_required, double least = 1) {
    auto number = static_cast<double>(value);
    RETURN_IF_ERROR(Number(key, number, is_required, least));
    if (number > 1e18) {
      return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: expected at most 1e18 bytes", key),
                  "simulate");
    }
    value = static_cast<int64_t>(number);
    return {};
  }
  const JsonFields& fields() const { return fields_; }

 private:
  JsonFields fields_;
};

Status CheckKeys(const json::Value& object, std::span<const std::string_view> known,
                 std::string_view place) {
  for (const auto& [key, value] : object.as_object()) {
    if (std::ranges::find(known, key) != known.end()) continue;
    const std::vector<std::string> names(known.begin(), known.end());
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: the key \"{}\" is not known{}: expected some of {}", place,
                            ShortName(key), DidYouMean(key, names), fmt::join(known, ", ")),
                "simulate");
  }
  return {};
}

Status ReadFactors(const json::Value& factors, std::string_view place, bool has_others,
                   DeviceProfile& profile) {
  RETURN_IF_ERROR(CheckKeys(factors, kPartNames, fmt::format("{}: factors", place)));
  Reader reader(factors, fmt::format("{}: factors", place));
  for (size_t i = 0; i < kNumStepParts; ++i) {
    // The factor of a part may be 0.
    if (!has_others && factors.Find(kPartNames[i]) == nullptr)
      return reader.fields().Missing(kPartNames[i]);
    RETURN_IF_ERROR(reader.Number(kPartNames[i], profile.factors[i], /*is_required=*/false, 0));
  }
  return {};
}

}  // namespace

std::string_view StepPartName(StepPart part) {
  return kPartNames[static_cast<size_t>(part)];
}

DeviceInfo DeviceProfile::Info() const {
  DeviceInfo info;
  info.name = name;
  info.compute_major = compute_capability / 10;
  info.compute_minor = compute_capability % 10;
  info.num_multiprocessors = 132;
  info.total_bytes = memory_bytes;
  info.l2_bytes = int64_t{50} << 20;
  info.max_shared_bytes = int64_t{227} << 10;
  return info;
}

std::span<const DeviceProfile> DeviceProfiles() {
  static const std::vector<DeviceProfile> profiles = MakeProfiles();
  return profiles;
}

Result<DeviceProfile> ReadDeviceProfile(const json::Value& description, std::string_view place) {
  static constexpr std::string_view kKeys[] = {
      "name",       "like",      "memory",    "system_memory",  "bandwidth",
      "bf16_flops", "fp8_flops", "fp4_flops", "link_bandwidth", "compute_capability",
      "cpu",        "factors",   "error",     "source"};
  RETURN_IF_ERROR(CheckKeys(description, kKeys, place));
  Reader reader(description, place);
  const JsonFields& fields = reader.fields();
  DeviceProfile profile;
  ASSIGN_OR_RETURN(const std::optional<std::string> like, fields.String("like"));
  if (like) {
    const DeviceProfile* const other = FindProfile(*like);
    if (other == nullptr) {
      auto unknown = Unknown(*like);
      return tl::unexpected(std::move(unknown.value()).In(fmt::format("{}: like", place)));
    }
    profile = *other;
    profile.source = fmt::format("as {}", other->name);
  }
  ASSIGN_OR_RETURN(const std::optional<std::string> name, fields.String("name"));
  if (!name || name->empty()) return fields.Missing("name");
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.' || c == ' ';
  };
  // The name is sent in a response header.
  if (name->size() > 64 || !std::ranges::all_of(*name, is_plain)) {
    return fields.Bad("name", "up to 64 letters, digits, spaces, dots and dashes",
                      *description.Find("name"));
  }
  profile.name = *name;
  RETURN_IF_ERROR(reader.Bytes("memory", profile.memory_bytes, true));
  RETURN_IF_ERROR(reader.Bytes("system_memory", profile.system_bytes, false, 0));
  RETURN_IF_ERROR(reader.Number("bandwidth", profile.bytes_per_second, true));
  RETURN_IF_ERROR(reader.Number("bf16_flops", profile.bf16_flops, true));
  RETURN_IF_ERROR(reader.Number("fp8_flops", profile.fp8_flops, false, 0));
  RETURN_IF_ERROR(reader.Number("fp4_flops", profile.fp4_flops, false, 0));
  RETURN_IF_ERROR(reader.Number("link_bandwidth", profile.link_bytes_per_second, false));
  RETURN_IF_ERROR(reader.Number("error", profile.error, false, 0));
  ASSIGN_OR_RETURN(const std::optional<int64_t> capability,
                   fields.Integer("compute_capability", 80, 199));
  if (capability) profile.compute_capability = static_cast<int>(*capability);
  ASSIGN_OR_RETURN(const std::optional<bool> is_cpu, fields.Bool("cpu"));
  if (is_cpu) profile.is_cpu = *is_cpu;
  ASSIGN_OR_RETURN(const std::optional<std::string> source, fields.String("source"));
  if (source) profile.source = *source;
  if (profile.system_bytes >= profile.memory_bytes) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: system_memory ({}) must be less than memory ({})", place,
                            profile.system_bytes, profile.memory_bytes),
                "simulate");
  }
  // A device without links is normally used alone. With several, this rate keeps exchanges from
  // taking no time.
  if (profile.link_bytes_per_second <= 0) profile.link_bytes_per_second = 25e9;
  ASSIGN_OR_RETURN(const json::Value* const factors, fields.Object("factors"));
  if (factors == nullptr && !like) return fields.Missing("like or factors");
  if (factors != nullptr) RETURN_IF_ERROR(ReadFactors(*factors, place, like.has_value(), profile));
  return profile;
}

std::string ToYaml(const DeviceProfile& profile) {
  std::string text = fmt::format(
      "name: \"{}\"\nmemory: {}\nsystem_memory: {}\nbandwidth: {:g}\nlink_bandwidth: {:g}\n"
      "bf16_flops: {:g}\nfp8_flops: {:g}\nfp4_flops: {:g}\ncompute_capability: {}\ncpu: {}\n"
      "error: {:.3f}\nsource: \"{}\"\nfactors:\n",
      profile.name, profile.memory_bytes, profile.system_bytes, profile.bytes_per_second,
      profile.link_bytes_per_second, profile.bf16_flops, profile.fp8_flops, profile.fp4_flops,
      profile.compute_capability, profile.is_cpu, profile.error, profile.source);
  for (size_t i = 0; i < kNumStepParts; ++i)
    text += fmt::format("  {}: {:.6g}\n", kPartNames[i], profile.factors[i]);
  return text;
}

Result<DeviceCount> FindDevices(std::string_view text) {
  if (const DeviceProfile* const whole = FindProfile(text)) return DeviceCount{*whole, 1};
  const size_t x = text.find_last_of("xX");
  if (x == std::string_view::npos || x + 1 == text.size()) return Unknown(text);
  int64_t count = 0;
  for (const char digit : text.substr(x + 1)) {
    if (digit < '0' || digit > '9' || count > kMostDevices) return Unknown(text);
    count = 10 * count + digit - '0';
  }
  const DeviceProfile* const found = FindProfile(text.substr(0, x));
  if (found == nullptr) return Unknown(text.substr(0, x));
  if (count < 1 || count > kMostDevices) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("\"{}\": expected 1 to {} devices, found {}", ShortName(text),
                            kMostDevices, count),
                "simulate");
  }
  return DeviceCount{*found, static_cast<int>(count)};
}

}  // namespace sluice

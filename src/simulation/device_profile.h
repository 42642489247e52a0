// Describes a device for the simulation: its data-sheet figures, and how closely programs approach
// them. docs/simulation.md has the sources of the table's devices; a file can describe others.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "device/device.h"

namespace sluice {

// The parts of a step's time. The time of each part is an amount, which follows from the model and
// the step (StepClock), times a factor of the device.
enum class StepPart : uint8_t {
  kWeights,   // bytes of weights, at the data sheet's bandwidth
  kCache,     // bytes of keys and values, at the data sheet's bandwidth
  kProducts,  // operations of matrix products, at the data sheet's rate for the weights' format
  // Operations of matrix products times min(1, 256 / rows): the extra time of products with few
  // rows.
  kNarrow,
  kAttention,  // operations of attention, at the data sheet's BF16 rate
  kLayers,     // number of layers: launches and small kernels
  kSteps,      // 1 per step: the host's work
  kSequences,  // number of sequences in the step: drawing and sending a token
  kLinkBytes,  // bytes exchanged by devices that share layers, at the data sheet's rate
  kLinkWaits,  // number of exchanges
  kRequest,    // 1 per request, before its first step: HTTP, chat template, tokenization
};
inline constexpr size_t kNumStepParts = 11;
using StepParts = std::array<double, kNumStepParts>;

// Returns "weights", "cache", and so on; a description's factors have the same keys.
std::string_view StepPartName(StepPart part);

struct DeviceProfile {
  std::string name;  // "H200"
  bool is_cpu = false;
  int64_t memory_bytes = 0;  // memory that programs can see
  int64_t system_bytes = 0;  // the part of memory_bytes that other programs use
  double bytes_per_second = 0;
  double link_bytes_per_second = 0;  // between two devices, in one direction
  double bf16_flops = 0;             // without sparsity
  double fp8_flops = 0;              // 0: weights are expanded to BF16
  double fp4_flops = 0;              // 0: weights are expanded to BF16
  int compute_capability = 90;       // the memory plan assumes the kernels of this capability
  // Factor of each part: seconds per unit of its amount. A factor of 1 means that the data sheet's
  // rate is reached.
  StepParts factors{};
  double error = 0.25;  // typical relative error of a predicted time: the error bar of plans
  std::string source;   // where the factors come from

  double factor(StepPart part) const { return factors[static_cast<size_t>(part)]; }
  // Returns the facts about the device that the memory plan needs. Opens no device.
  DeviceInfo Info() const;
};

// Returns the devices of the table.
std::span<const DeviceProfile> DeviceProfiles();

// Reads a description: name, memory, bandwidth, bf16_flops; link_bandwidth, fp8_flops, fp4_flops,
// system_memory, compute_capability, cpu, error, source; and either `factors` or `like`. `like`
// names a device of the table; its factors and figures are used as defaults. kInvalidArgument names
// `place` and the key that is unknown, missing or out of range.
Result<DeviceProfile> ReadDeviceProfile(const json::Value& description, std::string_view place);
// Writes a description as YAML that ReadDeviceProfile can read.
std::string ToYaml(const DeviceProfile& profile);

// A device of the table and a number of devices, as in "H200x8"; without "x8" the number is 1.
// Parsing returns kInvalidArgument with a list of the devices if the name is unknown.
struct DeviceCount {
  DeviceProfile device;
  int count = 1;
};
Result<DeviceCount> FindDevices(std::string_view text);

}  // namespace sluice

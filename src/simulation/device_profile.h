// Describes a device for the simulation: its published figures, and the share of them that programs
// reach. The table of devices has the sources (docs/simulation.md); a file describes others.
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

// The parts of a step's time. Each is the product of an amount (StepClock), which follows from the
// model and the step, and a factor of the device.
enum class StepPart : uint8_t {
  kWeights,    // bytes of weights, at the bandwidth of the sheet
  kCache,      // bytes of keys and values, at the bandwidth of the sheet
  kProducts,   // operations of products, at the rate of the sheet for the weights' format
  kNarrow,     // the same, times min(1, 256 / rows): what products of few rows take longer
  kAttention,  // operations of attention, at the rate of the sheet for BF16
  kLayers,     // layers: launches, small kernels
  kSteps,      // 1: the host's work for a step
  kSequences,  // sequences in the step: drawing and sending a token
  kLinkBytes,  // bytes of exchanges between the devices of a layer, at the sheet's rate
  kLinkWaits,  // exchanges
  kRequest,    // 1 per request, before its first step: HTTP, template, tokens
};
inline constexpr size_t kNumStepParts = 11;
using StepParts = std::array<double, kNumStepParts>;

// "weights", "cache", ...: also the keys of a description's factors.
std::string_view StepPartName(StepPart part);

struct DeviceProfile {
  std::string name;  // "H200"
  bool is_cpu = false;
  int64_t memory_bytes = 0;  // as programs see it
  int64_t system_bytes = 0;  // part of it that others use
  double bytes_per_second = 0;
  double link_bytes_per_second = 0;  // between devices, in one direction
  double bf16_flops = 0;             // dense
  double fp8_flops = 0;              // 0: weights are expanded to BF16
  double fp4_flops = 0;              // 0: likewise
  int compute_capability = 90;       // whose kernels the memory plan assumes
  // Factors by part: seconds per unit of its amount. At the sheet's rates 1 is ideal.
  StepParts factors{};
  double error = 0.25;  // typical relative error of a predicted time: the error bar of plans
  std::string source;   // where the factors come from

  double factor(StepPart part) const { return factors[static_cast<size_t>(part)]; }
  // For the memory plan of a model on the device, which is not opened.
  DeviceInfo Info() const;
};

// The devices of the table.
std::span<const DeviceProfile> DeviceProfiles();

// Reads a description: name, memory, bandwidth, bf16_flops; link_bandwidth, fp8_flops, fp4_flops,
// system_memory, compute_capability, cpu, error, source; and either `like`, a device of the table
// whose factors and missing figures it takes, or `factors`. kInvalidArgument names `place` and the
// key that is unknown, missing or out of range.
Result<DeviceProfile> ReadDeviceProfile(const json::Value& description, std::string_view place);
// The same description as YAML, which ReadDeviceProfile reads back.
std::string ToYaml(const DeviceProfile& profile);

// "H200x8": a device of the table and a number of devices, 1 without "x8". kInvalidArgument lists
// the devices.
struct DeviceCount {
  DeviceProfile device;
  int count = 1;
};
Result<DeviceCount> FindDevices(std::string_view text);

}  // namespace sluice

// Checks copies, fills, events and page-locked memory of the device layer.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/thread_pool.h"
#include "device/uploader.h"
#include "kernels/cuda/checks/test_numbers.h"
#include "selftest/check_parts.h"

namespace sluice::selftest {

using checks::CaseMemory;
using checks::CheckRun;
using checks::Comparison;
using checks::TestNumbers;

namespace {

std::vector<uint32_t> RandomWords(int64_t count, uint64_t seed) {
  TestNumbers numbers(seed);
  std::vector<uint32_t> words(static_cast<size_t>(count));
  for (uint32_t& word : words) word = static_cast<uint32_t>(numbers.Bits());
  return words;
}

void CompareWords(Comparison& comparison, std::span<const uint32_t> got,
                  std::span<const uint32_t> expected) {
  for (size_t i = 0; i < expected.size(); ++i) comparison.AddEqual(got[i], expected[i]);
}

// Copies from host to device, on the device, and back. `pinned`: whether host memory is
// page-locked.
Status CheckCopies(CheckRun& run, Comparison& comparison, int64_t count, bool pinned) {
  Device& device = run.device().device();
  DeviceStream& stream = run.device().stream();
  const std::vector<uint32_t> words = RandomWords(count, 11);
  const int64_t bytes = count * 4;
  ASSIGN_OR_RETURN(const DeviceBuffer first, device.Allocate(bytes, "copies"));
  ASSIGN_OR_RETURN(const DeviceBuffer second, device.Allocate(bytes, "copies"));
  std::vector<uint32_t> plain(static_cast<size_t>(count));
  DeviceBuffer locked;
  if (pinned) {
    ASSIGN_OR_RETURN(locked, device.AllocatePinned(bytes, "copies"));
  }
  uint32_t* host = pinned ? locked.As<uint32_t>() : plain.data();
  std::copy(words.begin(), words.end(), host);
  stream.CopyToDevice(first.data(), host, bytes);
  stream.CopyOnDevice(second.data(), first.data(), bytes);
  stream.Fill(first.data(), 0, bytes);
  RETURN_IF_ERROR(stream.Synchronize());
  std::fill(host, host + count, 0);
  stream.CopyToHost(host, second.data(), bytes);
  RETURN_IF_ERROR(stream.Synchronize());
  CompareWords(comparison, {host, static_cast<size_t>(count)}, words);
  stream.CopyToHost(host, first.data(), bytes);
  RETURN_IF_ERROR(stream.Synchronize());
  CompareWords(comparison, {host, static_cast<size_t>(count)},
               std::vector<uint32_t>(static_cast<size_t>(count), 0));
  return {};
}

// A second stream reads what the first one wrote, synchronized only by an event.
Status CheckEvents(CheckRun& run, Comparison& comparison) {
  constexpr int64_t kCount = 1 << 16;
  Device& device = run.device().device();
  ASSIGN_OR_RETURN(const DeviceBuffer memory, device.Allocate(kCount * 4, "events"));
  ASSIGN_OR_RETURN(const DeviceBuffer in, device.AllocatePinned(kCount * 4, "events"));
  ASSIGN_OR_RETURN(const DeviceBuffer out, device.AllocatePinned(kCount * 4, "events"));
  ASSIGN_OR_RETURN(const auto written, device.CreateEvent());
  ASSIGN_OR_RETURN(const auto read, device.CreateEvent());
  // Declared last: streams must be destroyed before the memory and events they use.
  ASSIGN_OR_RETURN(const auto writer, device.CreateStream());
  ASSIGN_OR_RETURN(const auto reader, device.CreateStream());
  for (uint64_t round = 0; round < 4; ++round) {
    const std::vector<uint32_t> words = RandomWords(kCount, 20 + round);
    std::copy(words.begin(), words.end(), in.As<uint32_t>());
    writer->WaitFor(*read);
    writer->CopyToDevice(memory.data(), in.data(), kCount * 4);
    writer->Record(*written);
    reader->WaitFor(*written);
    reader->CopyToHost(out.data(), memory.data(), kCount * 4);
    reader->Record(*read);
    RETURN_IF_ERROR(read->Synchronize());
    CompareWords(comparison, {out.As<uint32_t>(), static_cast<size_t>(kCount)}, words);
  }
  RETURN_IF_ERROR(writer->Synchronize());
  return reader->Synchronize();
}

// Page-locks existing host memory, as uploads of weights do.
Status CheckPin(CheckRun& run, Comparison& comparison) {
  constexpr int64_t kCount = 1 << 16;
  Device& device = run.device().device();
  DeviceStream& stream = run.device().stream();
  std::vector<uint32_t> words = RandomWords(kCount, 31), back(static_cast<size_t>(kCount));
  const bool is_pinned = device.Pin(words.data(), kCount * 4);
  ASSIGN_OR_RETURN(const DeviceBuffer memory, device.Allocate(kCount * 4, "pinning"));
  stream.CopyToDevice(memory.data(), words.data(), kCount * 4);
  stream.CopyToHost(back.data(), memory.data(), kCount * 4);
  const Status status = stream.Synchronize();
  if (is_pinned) device.Unpin(words.data());
  RETURN_IF_ERROR(status);
  CompareWords(comparison, back, words);
  return {};
}

// Uploads pieces of all sizes through two small buffers, as for weights.
Status CheckUploader(CheckRun& run, Comparison& comparison) {
  constexpr int64_t kChunk = 64 << 10;
  Device& device = run.device().device();
  ThreadPool pool(2);
  std::vector<std::vector<uint32_t>> pieces;
  std::vector<DeviceBuffer> places;
  ASSIGN_OR_RETURN(Uploader uploader, Uploader::Create(device, kChunk));
  for (const int64_t count : {1, 63, 64, 20000, 16384, 5, 100001}) {
    pieces.push_back(RandomWords(count, 40 + pieces.size()));
    ASSIGN_OR_RETURN(DeviceBuffer place, device.Allocate(count * 4, "an upload"));
    places.push_back(std::move(place));
    const std::vector<uint32_t>& words = pieces.back();
    if (pieces.size() % 2 == 0) {
      RETURN_IF_ERROR(uploader.Copy(pool, places.back().data(), words.data(), count * 4));
    } else {
      RETURN_IF_ERROR(uploader.Fill(
          places.back().data(), count * 4,
          [&](std::byte* chunk, int64_t offset, int64_t size) -> Status {
            std::memcpy(chunk, reinterpret_cast<const std::byte*>(words.data()) + offset,
                        static_cast<size_t>(size));
            return {};
          }));
    }
  }
  RETURN_IF_ERROR(uploader.Finish());
  DeviceStream& stream = run.device().stream();
  for (size_t i = 0; i < pieces.size(); ++i) {
    std::vector<uint32_t> back(pieces[i].size());
    stream.CopyToHost(back.data(), places[i].data(), static_cast<int64_t>(back.size()) * 4);
    RETURN_IF_ERROR(stream.Synchronize());
    CompareWords(comparison, back, pieces[i]);
  }
  return {};
}

// Checks that allocating more memory than there is returns an error and does not fail later.
Status CheckTooMuch(CheckRun& run, Comparison& comparison) {
  Device& device = run.device().device();
  const auto buffer = device.Allocate(device.info().total_bytes * 2, "too much");
  comparison.AddEqual(!buffer && buffer.error().code == ErrorCode::kResourceExhausted, 1);
  RETURN_IF_ERROR(run.device().stream().Synchronize());
  return {};
}

}  // namespace

void CheckMemory(CheckRun& run) {
  for (const bool pinned : {false, true}) {
    for (const int64_t count : {int64_t{1}, int64_t{1000}, int64_t{1} << 20}) {
      run.Case("copies", fmt::format("{} bytes, {}", count * 4, pinned ? "pinned" : "pageable"),
               [&](CaseMemory&, Comparison& comparison) {
                 return CheckCopies(run, comparison, count, pinned);
               });
    }
  }
  run.Case("events", "two streams, 4 rounds",
           [&](CaseMemory&, Comparison& comparison) { return CheckEvents(run, comparison); });
  run.Case("pinned in place", "262144 bytes",
           [&](CaseMemory&, Comparison& comparison) { return CheckPin(run, comparison); });
  run.Case("uploads", "7 pieces through 64 KiB",
           [&](CaseMemory&, Comparison& comparison) { return CheckUploader(run, comparison); });
  run.Case("allocation", "twice the memory is refused",
           [&](CaseMemory&, Comparison& comparison) { return CheckTooMuch(run, comparison); });
}

}  // namespace sluice::selftest

#include "kernels/cuda/checks/check_exchange.h"

#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/cuda/checks/test_numbers.h"
#include "kernels/cuda/device_kernel_tables.h"

namespace sluice::checks {
namespace {

using device::ExchangeColumnsArgs;
using device::ExchangeState;

constexpr uint32_t kNumber = ~uint32_t{0};  // number of the previous exchange; the next number is 0
constexpr uint32_t kNext = 0;

// The memory of the ranks of an exchange.
struct Ranks {
  std::vector<int64_t> widths;  // bytes of each rank's columns
  int64_t rows = 0;

  int64_t row_bytes() const { return std::accumulate(widths.begin(), widths.end(), int64_t{0}); }
  int size() const { return static_cast<int>(widths.size()); }

  std::vector<ExchangeState*> states = {};
  std::vector<uint8_t*> all = {};
  std::vector<std::vector<uint8_t>> own = {};
  std::vector<const uint8_t*> own_on_device = {};

  // `flag`: the flag that each rank has already raised on all other ranks.
  void Allocate(CaseMemory& memory, uint32_t flag) {
    TestNumbers numbers(53);
    for (const int64_t width : widths) {
      std::vector<ExchangeState> state(1);
      state[0].number = kNumber;
      for (int peer = 0; peer < size(); ++peer)
        state[0].ready[peer][0] = state[0].stored[peer][0] = flag;
      states.push_back(memory.InOut(state));
      all.push_back(memory.Out<uint8_t>(rows * row_bytes()));
      std::vector<uint8_t>& bytes = own.emplace_back(static_cast<size_t>(rows * width));
      for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(numbers.Bits());
      own_on_device.push_back(memory.In(bytes));
    }
  }
  ExchangeColumnsArgs ArgsOf(int rank, const uint32_t* stop) const {
    const auto index = static_cast<size_t>(rank);
    ExchangeColumnsArgs args = {};
    args.own = own_on_device[index];
    args.rows = rows;
    args.own_bytes = widths[index];
    args.begin = std::accumulate(widths.begin(), widths.begin() + rank, int64_t{0});
    args.row_bytes = row_bytes();
    args.rank = rank;
    args.num_ranks = size();
    args.root = -1;
    args.stop = stop;
    for (size_t i = 0; i < states.size(); ++i) {
      args.all[i] = all[i];
      args.states[i] = states[i];
    }
    return args;
  }
};

void Launch(CaseMemory& memory, const ExchangeColumnsArgs& args) {
  const DeviceUnderTest& device = memory.device();
  if (memory.ok()) device::ExchangeColumnsOf(device.device().info().kind)(device.handle(), args);
}

// Runs the ranks' kernels one after another; the flags that they wait for are set in advance.
// `moves`: `places` reverses the order of the rows and drops every third row.
void CheckExchange(CaseMemory& memory, Comparison& comparison, Ranks ranks, int root,
                   bool waits_first, bool moves) {
  ranks.Allocate(memory, kNext + 1);
  const uint32_t* const stop = memory.In(std::vector<uint32_t>{0});
  std::vector<int32_t> places(static_cast<size_t>(ranks.rows));
  for (size_t i = 0; i < places.size(); ++i) {
    const auto row = static_cast<int32_t>(i), last = static_cast<int32_t>(ranks.rows) - 1;
    places[i] = !moves ? row : row % 3 == 1 ? -1 : last - row;
  }
  for (int rank = 0; rank < ranks.size(); ++rank) {
    ExchangeColumnsArgs args = ranks.ArgsOf(rank, stop);
    args.root = root;
    args.waits_first = waits_first;
    if (moves) args.places = memory.In(places);
    Launch(memory, args);
  }
  const int64_t row_bytes = ranks.row_bytes();
  std::vector<uint8_t> expected(static_cast<size_t>(ranks.rows * row_bytes), 0xFF);
  int64_t begin = 0;
  for (size_t rank = 0; rank < ranks.widths.size(); ++rank) {
    const int64_t width = ranks.widths[rank];
    for (int64_t i = 0; i < ranks.rows * width; ++i) {
      const int32_t place = places[static_cast<size_t>(i / width)];
      if (place < 0) continue;
      expected[static_cast<size_t>(place * row_bytes + begin + i % width)] =
          ranks.own[rank][static_cast<size_t>(i)];
    }
    begin += width;
  }
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const auto index = static_cast<size_t>(rank);
    const bool receives = root < 0 || root == rank;
    const auto got = memory.Read(ranks.all[index], std::ssize(expected));
    for (size_t i = 0; i < expected.size(); ++i)
      comparison.AddEqual(got[i], receives ? expected[i] : uint8_t{0xFF});
    const ExchangeState state = memory.Read(ranks.states[index], 1).front();
    comparison.AddEqual(state.number, kNext);
    comparison.AddEqual(state.arrived, 0);
    comparison.AddEqual(state.has_stopped, 0);
    for (int peer = 0; peer < ranks.size(); ++peer) {
      const bool is_other = peer != rank;
      comparison.AddEqual(state.ready[peer][0], is_other && waits_first ? kNext : kNext + 1);
      comparison.AddEqual(state.stored[peer][0], is_other && receives ? kNext : kNext + 1);
    }
  }
}

// A rank waits for the flags of a peer that has exited, until the host sets `stop`.
void CheckStop(CaseMemory& memory, Comparison& comparison, bool waits_first) {
  Ranks ranks = {.widths = {16, 32, 16}, .rows = 70};
  ranks.Allocate(memory, kNumber);
  const uint32_t* const stop = memory.In(std::vector<uint32_t>{1});
  ExchangeColumnsArgs args = ranks.ArgsOf(1, stop);
  args.waits_first = waits_first;
  Launch(memory, args);
  ExchangeState state = memory.Read(ranks.states[1], 1).front();
  comparison.AddEqual(state.has_stopped, 1);
  // If the kernel waits first, it stores nothing, because no other rank is ready. Later launches do
  // nothing.
  const std::vector<uint8_t> stored = memory.Read(ranks.all[0], ranks.rows * ranks.row_bytes());
  for (int64_t i = 0; i < std::ssize(stored); ++i) {
    const int64_t column = i % ranks.row_bytes() - 16;
    const bool is_own = column >= 0 && column < 32 && !waits_first;
    comparison.AddEqual(
        stored[static_cast<size_t>(i)],
        is_own ? ranks.own[1][static_cast<size_t>(i / ranks.row_bytes() * 32 + column)] : 0xFF);
  }
  args.own = ranks.own_on_device[0];
  Launch(memory, args);
  const auto later = memory.Read(ranks.all[0], ranks.rows * ranks.row_bytes());
  for (size_t i = 0; i < later.size(); ++i) comparison.AddEqual(later[i], stored[i]);
  const auto before = state.number;
  state = memory.Read(ranks.states[1], 1).front();
  comparison.AddEqual(state.number, before);
}

}  // namespace

void CheckExchanges(CheckRun& run) {
  // Units of 16, 4 and 1 bytes; ranks without columns; more rows than blocks; no rows.
  const std::vector<Ranks> shapes = {{.widths = {64, 4160}, .rows = 3},
                                     {.widths = {16, 48, 0, 32}, .rows = 70},
                                     {.widths = {24, 8, 4}, .rows = 5},
                                     {.widths = {3, 1, 0, 5}, .rows = 2},
                                     {.widths = {16, 16}, .rows = 0}};
  for (const Ranks& ranks : shapes) {
    for (const bool waits_first : {false, true}) {
      const auto check = [&](const char* how, int root, bool moves) {
        run.Case("exchange_columns",
                 fmt::format("{} x [{}] bytes, {}{}", ranks.rows, fmt::join(ranks.widths, ", "),
                             how, waits_first ? ", after a wait" : ""),
                 [&](CaseMemory& memory, Comparison& comparison) {
                   CheckExchange(memory, comparison, ranks, root, waits_first, moves);
                 });
      };
      check("to all", -1, false);
      check("to the first", 0, false);
      check("to other rows", -1, true);
    }
  }
  for (const bool waits_first : {false, true}) {
    run.Case("exchange_columns", waits_first ? "a rank that never comes" : "a rank that is lost",
             [&](CaseMemory& memory, Comparison& comparison) {
               CheckStop(memory, comparison, waits_first);
             });
  }
}

}  // namespace sluice::checks

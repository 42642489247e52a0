// What a step does to the states that sequences keep beside their KV blocks: matrices of recurrent
// layers, tails of convolutions. A slot holds those of one sequence, of all layers of a rank.
#pragma once

#include <cstdint>

namespace sluice {

// The slot of a slice's sequence: it holds the states after the tokens before the slice, and those
// after the slice afterwards.
struct StateSlot {
  int32_t slot = -1;
  bool is_new = false;  // the sequence begins: its states are zero, whatever the slot holds
};

// Slot `to` becomes what `from` holds.
struct StateCopy {
  int32_t from = -1;
  int32_t to = -1;
};

// Slot `slot` receives the states of a slice's sequence after the first `rows` rows of the slice,
// in [1, its rows].
struct StateSnapshot {
  int32_t slice = -1;  // index of the slice in the step
  int32_t rows = 0;
  int32_t slot = -1;
};

}  // namespace sluice

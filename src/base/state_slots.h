// How a step changes the states that sequences keep besides their KV blocks: matrices of recurrent
// layers, tails of convolutions. A slot holds the states of one sequence in all layers of a rank.
#pragma once

#include <cstdint>

namespace sluice {

// The slot of the sequence of a slice. Before the slice is computed, it holds the states after the
// tokens before the slice; afterwards, the states after the slice.
struct StateSlot {
  int32_t slot = -1;
  bool is_new = false;  // the sequence begins: states are zero, the slot's content is ignored
};

// Copies the content of slot `from` to slot `to`.
struct StateCopy {
  int32_t from = -1;
  int32_t to = -1;
};

// Slot `slot` receives the states of a slice's sequence after the first `rows` rows of the slice.
// `rows`: from 1 to the rows of the slice.
struct StateSnapshot {
  int32_t slice = -1;  // index of the slice in the step
  int32_t rows = 0;
  int32_t slot = -1;
};

}  // namespace sluice

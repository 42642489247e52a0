// The changes that a step makes to the states that sequences have besides KV blocks: matrices of
// recurrent layers, tails of convolutions. A slot holds the states of one sequence in all layers of
// a rank. A slice is the rows of one sequence in a step.
#pragma once

#include <cstdint>

namespace sluice {

// The slot of a slice's sequence. Before the slice is computed, it holds the states after the
// tokens that precede the slice; afterwards, the states after the slice.
struct StateSlot {
  int32_t slot = -1;
  // Whether this is the first slice of the sequence: in this case states start at zero, and the
  // slot's content is ignored.
  bool is_new = false;
};

// Copies the content of slot `from` to slot `to`.
struct StateCopy {
  int32_t from = -1;
  int32_t to = -1;
};

// Also writes the states after the first `rows` rows of a slice to slot `slot`. `rows`: from 1 to
// the number of rows of the slice.
struct StateSnapshot {
  int32_t slice = -1;  // index of the slice in the step
  int32_t rows = 0;
  int32_t slot = -1;
};

}  // namespace sluice

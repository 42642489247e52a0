#include "bench/sonnet_lines.h"

namespace sluice::bench {

std::span<const std::string_view> SonnetLines() {
  static constexpr std::string_view kLines[] = {
      "When morning opens slowly on the weir,\n",
      "The water holds its silver breath and waits;\n",
      "A heron writes one sentence, short and clear,\n",
      "Then folds its page against the wooden gates.\n",
      "The keeper comes with lantern still alight\n",
      "And turns the iron wheel a quarter round;\n",
      "The river, that had whispered all the night,\n",
      "Now finds its louder voice in falling sound.\n",
      "So words that waited in a crowded mind\n",
      "Will press against the boards and seek a way,\n",
      "Till someone lifts the gate a hand, to find\n",
      "They run as one, and carry light to day.\n",
      "Let me be such a keeper, calm and slow,\n",
      "Who measures every stream, and lets it flow.\n",
      "I counted once the drops along the sill\n",
      "And gave to every drop a friendly name;\n",
      "The rain went on, indifferent and still,\n",
      "And none of those I named were quite the same.\n",
      "A clock that lost its hands above the door\n",
      "Kept better time than any in the town:\n",
      "It said that now is now, and nothing more,\n",
      "And never asked a passing hour to frown.\n",
      "We build our ladders out of borrowed boards,\n",
      "Each rung a question that a child once asked;\n",
      "We climb through attics full of broken swords\n",
      "And lamps whose patient brass outlived its task.\n",
      "And at the top, a window and a field,\n",
      "And all the answers that the grasses yield.\n",
      "The baker wakes before the birds agree,\n",
      "And folds the quiet dark into his dough;\n",
      "By five the street has learned geometry\n",
      "From squares of golden light upon the snow.\n",
      "A letter lay for years behind a drawer,\n",
      "Its ink gone brown, its promise long since kept;\n",
      "The hand that wrote it does not write it more,\n",
      "But still it tells the wall how someone wept.\n",
      "Give me a map with half its corners torn,\n",
      "A compass that points mostly to the sea,\n",
      "A coat by seven other travellers worn,\n",
      "And I will find the road that looks for me.\n",
      "For maps are only what the walkers knew,\n",
      "And every step is drawing something new.\n",
  };
  return kLines;
}

}  // namespace sluice::bench

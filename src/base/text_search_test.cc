#include "base/text_search.h"

#include <ctime>
#include <random>
#include <string>

#include <gtest/gtest.h>

namespace sluice {
namespace {

std::string RandomText(std::minstd_rand& random, size_t size, int letters) {
  std::string text(size, 'a');
  for (char& c : text) c = static_cast<char>('a' + random() % static_cast<unsigned>(letters));
  return text;
}

TEST(TextSearchTest, FindsWhatTheStandardLibraryFinds) {
  std::minstd_rand random(7);
  for (int i = 0; i < 40000; ++i) {
    const int letters = 1 + static_cast<int>(random() % 3);
    const std::string text = RandomText(random, random() % 120, letters);
    std::string needle;
    if (random() % 2 == 0 && !text.empty()) {
      needle = text.substr(random() % text.size(), random() % 60);
    } else {
      // Repeats a part, so that the needle has a period.
      const std::string part = RandomText(random, 1 + random() % 9, letters);
      while (needle.size() < random() % 60) needle += part;
      if (random() % 4 == 0) needle += 'b';
    }
    ASSERT_EQ(TextSearcher(needle).Find(text), text.find(needle)) << text << ' ' << needle;
    ASSERT_EQ(BackwardTextSearcher(needle).Find(text), text.rfind(needle)) << text << ' ' << needle;
  }
}

TEST(TextSearchTest, TakesLinearTime) {
  const std::string run(size_t{4} << 20, 'a');
  const std::string half(size_t{2} << 20, 'a');
  const std::clock_t start = std::clock();
  EXPECT_EQ(TextSearcher(half + "b").Find(run), std::string::npos);
  EXPECT_EQ(TextSearcher("b" + half).Find(run), std::string::npos);
  EXPECT_EQ(TextSearcher(half + "b" + half).Find(run + run), std::string::npos);
  EXPECT_EQ(BackwardTextSearcher(half + "b").Find(run), std::string::npos);
  EXPECT_EQ(BackwardTextSearcher("b" + half).Find(run), std::string::npos);
  // A search that compares at each position would take an hour.
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 120);
}

}  // namespace
}  // namespace sluice

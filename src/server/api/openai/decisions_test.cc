// Tests the text of questions and the probabilities of answers.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "server/api/openai/decision_request.h"
#include "server/api/openai/decision_writer.h"

namespace sluice {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

DecisionRequest SystemOne(const char* body) {
  auto request = ReadSystemOneRequest(*json::Parse(body));
  EXPECT_TRUE(request) << (request ? "" : request.error().message);
  return request ? *std::move(request) : DecisionRequest{};
}

TEST(DecisionRequestTest, WritesQuestionsAsVllmDoes) {
  const DecisionRequest request = SystemOne(R"({"state":{"a":[1,"\u00e9",true,2.0]},"questions":{
      "a":{"type":"choice","instructions":"Which?","criteria":{"x":"an ex","y":null}},
      "b":{"type":"noul","criteria":{"true":"it is"}},
      "c":{"type":"score","instructions":"How?","criteria":["low","high"]}}})");
  EXPECT_EQ(request.state, R"({"a": [1, "\u00e9", true, 2.0]})");
  ASSERT_EQ(request.questions.size(), 3u);
  EXPECT_EQ(TextOf(request.questions[0]),
            "Question: Which?\nA: x - an ex\nB: y\nAnswer with the letter of one option only.");
  EXPECT_EQ(TextOf(request.questions[1]), "yes: it is\nAnswer with yes or no only.");
  EXPECT_EQ(TextOf(request.questions[2]),
            "Question: How?\n0: low\n1: high\nAnswer with the number of one level only.");
  EXPECT_THAT(AliasesOf(request.questions[1]), ElementsAre("Yes", "No"));
}

TEST(DecisionRequestTest, ReadsMessagesOfOpenAi) {
  const auto request = ReadDecisionRequest(*json::Parse(R"({"input":[
      {"role":"developer","content":"Be strict."},
      {"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_json","data":{"k":1}}]},
      {"role":"assistant","content":[{"type":"output_text","text":"b"}]}],
      "questions":[{"type":"choice","instructions":"q","choices":[{"value":true},{"value":"true"}]}]})"));
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->instructions, "Be strict.");
  EXPECT_EQ(request->state, "user: a\n{\"k\": 1}\nassistant: b");
  EXPECT_FALSE(request->questions[0].has_id);
  EXPECT_TRUE(request->questions[0].options[0].is_bool);
  EXPECT_FALSE(request->questions[0].options[1].is_bool) << "another choice than the boolean";
}

TEST(DecisionOddsTest, SpellingsOfOneAnswerAreAddedUp) {
  const DecisionRead read{{std::log(0.1), std::log(0.2), std::log(0.3), std::log(0.1)}, false};
  const DecisionOdds odds = OddsOf(read, 2);
  EXPECT_THAT(odds.probabilities,
              ElementsAre(DoubleNear(4 / 7., 1e-12), DoubleNear(3 / 7., 1e-12)));
  EXPECT_NEAR(odds.label_mass, 0.7, 1e-12);
  EXPECT_EQ(odds.best, 0u);
}

TEST(DecisionOddsTest, LogprobsFarBelowKeepTheirRatio) {
  const DecisionOdds odds = OddsOf({{-2000, -2000}, false}, 2);
  EXPECT_THAT(odds.probabilities, ElementsAre(0.5, 0.5));
  EXPECT_EQ(odds.label_mass, 0);
}

}  // namespace
}  // namespace sluice

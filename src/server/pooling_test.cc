// The routes of a server with a pooling model: embeddings, classes, scores, rankings.
#include <cmath>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/server_testing.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<double> Numbers(const json::Value& list) {
  std::vector<double> numbers;
  for (const json::Value& number : list.as_array()) numbers.push_back(number.as_double());
  return numbers;
}

PoolingConfig Embedding() {
  return {};
}

PoolingConfig Classifying(PoolingActivation activation) {
  PoolingConfig config;
  config.task = ModelTask::kClassify;
  config.activation = activation;
  return config;
}

class PoolingRoutesTest : public ServerTest {
 protected:
  void StartPooling(PoolingConfig pooling, int64_t size = 4) {
    EngineInfo& info = engine_.mutable_info();
    info.model.spec.head.kind =
        pooling.task == ModelTask::kEmbed ? HeadSpec::Kind::kNone : HeadSpec::Kind::kScores;
    info.model.spec.hidden_size = info.model.spec.head.num_scores = size;
    info.pooling = std::move(pooling);
    Start();
  }
  ServerAnswer Post(const std::string& path, const std::string& body) {
    return Ask("POST", path, body);
  }
  std::string ErrorOf(const std::string& path, const std::string& body) {
    const ServerAnswer answer = Post(path, body);
    EXPECT_EQ(answer.status, 400) << answer.body;
    return At(answer.json(), {"error", "message"}).as_string();
  }
};

// Clients of Cohere and Jina send documents in this form.
TEST_F(PoolingRoutesTest, TextsMayBeObjectsWithAText) {
  StartPooling(Classifying(PoolingActivation::kNone), 1);
  engine_.vector = [](const Request& request) {
    return std::vector<float>{static_cast<float>(request.prompt.size())};
  };
  const auto results = [&](const char* query, const char* documents) {
    const ServerAnswer answer =
        Post("/rerank", fmt::format(R"({{"query":{},"documents":{}}})", query, documents));
    EXPECT_EQ(answer.status, 200) << answer.body;
    return json::Write(At(answer.json(), {"results"}));
  };
  const std::string plain = results(R"("a")", R"(["the","the abacus beads"])");
  EXPECT_EQ(results(R"({"text":"a"})", R"([{"text":"the"},{"text":"the abacus beads","id":7}])"),
            plain);
  EXPECT_EQ(results(R"("a")", R"(["the",{"text":"the abacus beads"}])"), plain);
  EXPECT_EQ(Post("/score", R"({"text_1":{"text":"a"},"text_2":[{"text":"the"},"a"]})").status, 200);
  for (const char* bad : {R"([{"texts":"the"}])", R"([{"text":5}])", "[7]", "7", "null"}) {
    const ServerAnswer refused =
        Post("/rerank", fmt::format(R"({{"query":"a","documents":{}}})", bad));
    EXPECT_EQ(refused.status, 400) << bad;
    EXPECT_THAT(refused.body, HasSubstr("documents")) << bad;
  }
}

TEST_F(PoolingRoutesTest, EmbeddingsHaveVllmsShape) {
  StartPooling(Embedding());
  engine_.vector = [](const Request&) { return std::vector<float>{3, 0, -4, 0}; };
  const ServerAnswer answer =
      Post("/v1/embeddings", R"({"model":"abacus","input":["beads","the abacus"]})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const json::Value json = answer.json();
  EXPECT_EQ(Keys(json), "id object created model data usage ");
  EXPECT_THAT(At(json, {"id"}).as_string(), ::testing::StartsWith("embd-"));
  EXPECT_EQ(Keys(At(json, {"data", "0"})), "index object embedding ");
  EXPECT_EQ(At(json, {"data", "1", "index"}).as_integer(), 1);
  EXPECT_THAT(
      Numbers(At(json, {"data", "1", "embedding"})),
      ElementsAre(::testing::DoubleNear(0.6, 1e-6), 0, ::testing::DoubleNear(-0.8, 1e-6), 0));
  EXPECT_EQ(Keys(At(json, {"usage"})),
            "prompt_tokens total_tokens completion_tokens prompt_tokens_details ");
  const auto requests = engine_.requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(At(json, {"usage", "prompt_tokens"}).as_integer(),
            static_cast<int64_t>(requests[0].prompt.size() + requests[1].prompt.size()));
}

TEST_F(PoolingRoutesTest, EncodingsAndActivation) {
  StartPooling(Embedding());
  engine_.vector = [](const Request&) { return std::vector<float>{1, 0, -2, 0.5}; };
  const auto embedding = [&](const std::string& fields) {
    return At(Post("/v1/embeddings", R"({"input":"a",)" + fields + "}").json(),
              {"data", "0", "embedding"});
  };
  EXPECT_THAT(Numbers(embedding(R"("use_activation":false)")), ElementsAre(1, 0, -2, 0.5));
  EXPECT_EQ(embedding(R"("use_activation":false,"encoding_format":"base64")").as_string(),
            "AACAPwAAAAAAAADAAAAAPw==");
  EXPECT_EQ(embedding(R"("use_activation":false,"encoding_format":"base64","endianness":"big")")
                .as_string(),
            "P4AAAAAAAADAAAAAPwAAAA==");
  EXPECT_THAT(ErrorOf("/v1/embeddings", R"({"input":"a","encoding_format":"bytes"})"),
              HasSubstr("encoding_format"));
}

TEST_F(PoolingRoutesTest, DimensionsOfMatryoshkaModels) {
  PoolingConfig config = Embedding();
  config.is_matryoshka = true;
  config.dimensions = {2, 3};
  StartPooling(config);
  engine_.vector = [](const Request&) { return std::vector<float>{3, 4, 12, 84}; };
  const json::Value json = Post("/v1/embeddings", R"({"input":"a","dimensions":2})").json();
  EXPECT_THAT(Numbers(At(json, {"data", "0", "embedding"})),
              ElementsAre(::testing::DoubleNear(0.6, 1e-6), ::testing::DoubleNear(0.8, 1e-6)));
  EXPECT_THAT(ErrorOf("/v1/embeddings", R"({"input":"a","dimensions":4})"),
              HasSubstr("only supports [2, 3] matryoshka dimensions"));
}

TEST_F(PoolingRoutesTest, OtherModelsRefuseDimensions) {
  StartPooling(Embedding());
  EXPECT_THAT(ErrorOf("/v1/embeddings", R"({"input":"a","dimensions":2})"),
              HasSubstr("does not support matryoshka"));
}

TEST_F(PoolingRoutesTest, InputsAreTextsOrTokens) {
  StartPooling(Embedding());
  EXPECT_EQ(Post("/v1/embeddings", R"({"input":[5,6,7]})").status, 200);
  EXPECT_EQ(Post("/v1/embeddings", R"({"input":[[5,6],[7]]})").status, 200);
  const auto requests = engine_.requests();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_THAT(requests[0].prompt, ElementsAre(5, 6, 7));
  EXPECT_THAT(requests[2].prompt, ElementsAre(7));
  EXPECT_EQ(
      Post("/v1/embeddings", R"({"messages":[{"role":"user","content":"The beads"}]})").status,
      200);
  for (const char* input :
       {"[]", "{}", "3", R"(["a",1])", R"([[]])", R"([1,"a"])", "null", R"([[1],["a"]])"}) {
    EXPECT_THAT(ErrorOf("/v1/embeddings", R"({"input":)" + std::string(input) + "}"),
                HasSubstr("input"))
        << input;
  }
  EXPECT_THAT(ErrorOf("/v1/embeddings", R"({"input":[99999]})"), HasSubstr("99999"));
  EXPECT_EQ(Post("/v1/embeddings", R"({"model":"other","input":"a"})").status, 404);
}

TEST_F(PoolingRoutesTest, LongTextsAreRefusedOrCut) {
  StartPooling(Embedding());
  std::string list = "5";
  for (int i = 1; i < 600; ++i) list += ",5";
  EXPECT_THAT(ErrorOf("/v1/embeddings", R"({"input":[)" + list + "]}"), HasSubstr("600"));
  EXPECT_EQ(
      Post("/v1/embeddings", R"({"truncate_prompt_tokens":-1,"input":[)" + list + "]}").status,
      200);
  EXPECT_EQ(engine_.requests().back().prompt.size(), 512u);
  EXPECT_EQ(Post("/v1/embeddings",
                 R"({"truncate_prompt_tokens":2,"truncation_side":"right","input":[1,2,3]})")
                .status,
            200);
  EXPECT_THAT(engine_.requests().back().prompt, ElementsAre(1, 2));
}

// If the model's library truncates texts, token ids that are too long are still refused.
TEST_F(PoolingRoutesTest, LongTextsAreCutWhereTheModelsLibraryCutsThem) {
  std::string text = "beads";
  for (int i = 1; i < 600; ++i) text += " beads";
  PoolingConfig config = Embedding();
  config.truncates = true;
  StartPooling(config);
  EXPECT_EQ(Post("/v1/embeddings", R"({"input":")" + text + "\"}").status, 200);
  EXPECT_EQ(engine_.requests().back().prompt.size(), 512u);
  EXPECT_EQ(Post("/v2/embed", R"({"truncate":"NONE","texts":[")" + text + "\"]}").status, 400);
  std::string list = "5";
  for (int i = 1; i < 600; ++i) list += ",5";
  EXPECT_THAT(ErrorOf("/v1/embeddings", R"({"input":[)" + list + "]}"), HasSubstr("600"));
}

TEST_F(PoolingRoutesTest, ThePromptOfTheModelStandsInFront) {
  PoolingConfig config = Embedding();
  config.lower_case = true;
  config.prompt = "QUERY: ";
  StartPooling(config);
  EXPECT_EQ(Post("/v1/embeddings", R"({"input":"The Beads"})").status, 200);
  const auto tokens = engine_.requests()[0].prompt;
  const ModelText text = TestModelText(config_, engine_);
  EXPECT_EQ(text.tokenizer->Decode(tokens, true), "query: the beads");
}

TEST_F(PoolingRoutesTest, ClassesHaveLabels) {
  PoolingConfig config = Classifying(PoolingActivation::kSoftmax);
  config.labels = {"no", "yes", "maybe"};
  StartPooling(config, 3);
  engine_.vector = [](const Request&) { return std::vector<float>{0, std::log(3.0f), 0}; };
  const json::Value json = Post("/classify", R"({"input":["a","b"]})").json();
  EXPECT_THAT(At(json, {"id"}).as_string(), ::testing::StartsWith("classify-"));
  EXPECT_EQ(Keys(At(json, {"data", "0"})), "index label probs num_classes ");
  EXPECT_EQ(At(json, {"data", "1", "label"}).as_string(), "yes");
  EXPECT_NEAR(Numbers(At(json, {"data", "1", "probs"}))[1], 0.6, 1e-6);
  EXPECT_EQ(At(json, {"data", "1", "num_classes"}).as_integer(), 3);
  EXPECT_THAT(ErrorOf("/v1/embeddings", R"({"input":"a"})"), HasSubstr("--convert embed"));
  EXPECT_THAT(ErrorOf("/score", R"({"text_1":"a","text_2":"b"})"), HasSubstr("num_labels == 1"));
  const json::Value pooled = Post("/pooling", R"({"input":"a","use_activation":false})").json();
  EXPECT_EQ(At(pooled, {"data", "0", "object"}).as_string(), "pooling");
  EXPECT_EQ(Numbers(At(pooled, {"data", "0", "data"}))[0], 0);
}

TEST_F(PoolingRoutesTest, ScoresOfAClassifier) {
  StartPooling(Classifying(PoolingActivation::kSigmoid), 1);
  engine_.vector = [](const Request& request) {
    return std::vector<float>{static_cast<float>(request.prompt.size())};
  };
  const ServerAnswer answer =
      Post("/v1/score", R"({"queries":"the","documents":["beads","the abacus counts"]})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(Keys(At(answer.json(), {"data", "0"})), "index object score ");
  const auto requests = engine_.requests();
  const auto size = static_cast<double>(requests[0].prompt.size());
  EXPECT_NEAR(At(answer.json(), {"data", "0", "score"}).as_double(), 1 / (1 + std::exp(-size)),
              1e-6);
  EXPECT_EQ(At(answer.json(), {"usage", "prompt_tokens"}).as_integer(),
            static_cast<int64_t>(requests[0].prompt.size() + requests[1].prompt.size()));
  EXPECT_THAT(ErrorOf("/score", R"({"text_1":["a","b"],"text_2":["c","d","e"]})"),
              HasSubstr("1:1, 1:N or N:N"));
  EXPECT_THAT(ErrorOf("/score", R"({"text_1":"a","text_2":[]})"), HasSubstr("text_pair"));
  EXPECT_THAT(ErrorOf("/score", R"({"text_1":"a"})"), HasSubstr("documents"));
}

TEST_F(PoolingRoutesTest, RankingsComeBestFirst) {
  StartPooling(Embedding());
  // The fake engine's vector for n tokens is (n, 1), so texts of similar lengths have a high
  // cosine.
  const char* body =
      R"({"query":"the","documents":["the abacus counts the beads on its wires","the"],"top_n":5})";
  for (const char* path : {"/rerank", "/v1/rerank", "/v2/rerank"}) {
    const ServerAnswer answer = Post(path, body);
    ASSERT_EQ(answer.status, 200) << answer.body;
    const json::Value json = answer.json();
    EXPECT_EQ(Keys(json), "id model usage results ");
    EXPECT_EQ(Keys(At(json, {"results", "0"})), "index document relevance_score ");
    EXPECT_EQ(At(json, {"results", "0", "index"}).as_integer(), 1);
    EXPECT_EQ(At(json, {"results", "0", "document", "text"}).as_string(), "the");
    EXPECT_NEAR(At(json, {"results", "0", "relevance_score"}).as_double(), 1, 1e-6);
    EXPECT_EQ(At(json, {"results"}).as_array().size(), 2u);
  }
  const json::Value one =
      Post("/rerank", R"({"query":"the","documents":["a","the"],"top_n":1})").json();
  EXPECT_EQ(At(one, {"results"}).as_array().size(), 1u);
}

TEST_F(PoolingRoutesTest, GeneratingIsRefusedWithWhatToDo) {
  StartPooling(Embedding());
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/v1/responses"}) {
    const bool is_chat = std::string_view(path).ends_with("chat/completions");
    const std::string body = is_chat ? R"({"messages":[{"role":"user","content":"a"}]})"
                             : std::string_view(path).ends_with("responses") ? R"({"input":"a"})"
                                                                             : R"({"prompt":"a"})";
    EXPECT_THAT(ErrorOf(path, body), HasSubstr("/v1/embeddings")) << path;
  }
}

TEST_F(PoolingRoutesTest, PoolingIsRefusedWithWhatToDo) {
  Start();
  for (const char* path : {"/v1/embeddings", "/pooling", "/classify"})
    EXPECT_THAT(ErrorOf(path, R"({"input":"a"})"), HasSubstr("--runner pooling")) << path;
  EXPECT_THAT(ErrorOf("/rerank", R"({"query":"a","documents":["b"]})"),
              HasSubstr("--runner pooling"));
}

TEST_F(PoolingRoutesTest, AFailureEndsTheWholeRequest) {
  StartPooling(Embedding());
  engine_.script = [](const Request& request) {
    FakeEngine::Script script;
    script.tokens.clear();
    if (request.prompt.size() == 1) script.error = Error{ErrorCode::kInternal, "it broke", ""};
    return script;
  };
  const ServerAnswer answer = Post("/v1/embeddings", R"({"input":[[1,2],[3],[4,5]]})");
  EXPECT_EQ(answer.status, 500);
  EXPECT_THAT(answer.body, HasSubstr("it broke"));
  EXPECT_TRUE(Eventually([&] { return engine_.num_unfinished() == 0; }));
}

TEST_F(PoolingRoutesTest, NumbersThatAreNoneAreAnError) {
  StartPooling(Embedding());
  engine_.vector = [](const Request&) { return std::vector<float>{1, NAN, 0, 0}; };
  EXPECT_EQ(Post("/v1/embeddings", R"({"input":"a"})").status, 500);
}

TEST_F(PoolingRoutesTest, AClientThatLeavesAbortsItsPrompts) {
  StartPooling(Embedding());
  engine_.Hold(true);
  {
    TestSocket socket(server_->port());
    const std::string body = R"({"input":["a","b","c"]})";
    socket.Send(Head("POST", "/v1/embeddings", "Content-Type: application/json\r\n", body.size()) +
                body);
    ASSERT_TRUE(Eventually([&] { return engine_.num_unfinished() == 3; }));
  }
  EXPECT_TRUE(Eventually([&] { return engine_.num_aborted() == 3; }));
  engine_.Hold(false);
}

}  // namespace
}  // namespace sluice

// Images in requests: from content parts to the engine's input.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "media/test_images_testing.h"
#include "server/server_testing.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using Object = json::Value::Object;

// The test model's token that represents a part of an image.
constexpr int32_t kImageToken = 511;
constexpr std::string_view kImageTokenText = "<|finetune_right_pad_id|>";

std::string Base64Of(std::string_view name) {
  for (const TestImage& image : ReadTestImages()) {
    if (image.name == name) return image.row.Find("base64")->as_string();
  }
  ADD_FAILURE() << name;
  return "";
}

std::string DataUrl(std::string_view name) {
  return "data:image/png;base64," + Base64Of(name);
}

// Returns a part of a chat message, as JSON.
std::string UrlPart(const std::string& url) {
  return fmt::format(R"({{"type":"image_url","image_url":{{"url":"{}"}}}})", url);
}

class ImagesTest : public ServerTest {
 protected:
  // Starts a server with an image processor: a token covers 8 x 8 pixels, and an image has one to
  // eight tokens.
  void StartSeeing(ServerConfig config = DefaultConfig(), int64_t max_rows = 1000) {
    config.media.cache_bytes = 1 << 20;
    engine_.mutable_info().takes_images = true;
    engine_.mutable_info().max_image_rows = max_rows;
    engine_.mutable_info().request_memory_bytes = int64_t{64} << 20;
    Start(config, /*attach=*/false);
    ModelText text = TestModelText(config, engine_);
    ProcessorInputs inputs;
    inputs.config = Object{
        {"model_type", "qwen3_vl"}, {"vision_config", Object{}}, {"image_token_id", kImageToken}};
    inputs.image_processor = Object{{"patch_size", 4},
                                    {"temporal_patch_size", 1},
                                    {"merge_size", 2},
                                    {"min_pixels", 64},
                                    {"max_pixels", 512}};
    inputs.token_text = [](int32_t) { return std::string(kImageTokenText); };
    text.image_processor = ImageProcessor::Create(inputs).value();
    ASSERT_TRUE(server_->Attach(&engine_, std::move(text)));
  }

  ServerAnswer ChatOf(const std::string& parts) {
    return Ask(
        "POST", "/v1/chat/completions",
        fmt::format(
            R"({{"model":"abacus","max_tokens":3,"messages":[{{"role":"user","content":[{}]}}]}})",
            parts));
  }
  // Returns the message of a 400 and its `param`.
  static std::string Refusal(const ServerAnswer& answer) {
    EXPECT_EQ(answer.status, 400) << answer.body;
    const json::Value body = answer.json();
    const json::Value& param = At(body, {"error", "param"});
    return fmt::format("{} [{}]", At(body, {"error", "message"}).as_string(),
                       param.is_string() ? param.as_string() : "");
  }
};

TEST_F(ImagesTest, TheEngineGetsTokensAndImage) {
  StartSeeing();
  const ServerAnswer answer =
      ChatOf(R"({"type":"text","text":"The abacus"},)" + UrlPart(DataUrl("rgb.png")));
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Request request = engine_.requests().at(0);
  ASSERT_EQ(request.images.size(), 1);
  const ImageInput& input = request.images[0];
  const auto& tokens = input.image->tokens;
  EXPECT_EQ(tokens, std::vector<int32_t>(input.image->num_embeddings, kImageToken));
  EXPECT_EQ(std::vector<int32_t>(request.prompt.begin() + input.position,
                                 request.prompt.begin() + input.position + std::ssize(tokens)),
            tokens);
  EXPECT_EQ(At(answer.json(), {"usage", "prompt_tokens"}).as_integer(), std::ssize(request.prompt));
}

TEST_F(ImagesTest, SeveralImagesKeepTheirOrder) {
  StartSeeing();
  ASSERT_EQ(ChatOf(UrlPart(DataUrl("rgb.png")) + "," + UrlPart(DataUrl("gray.jpg")) + "," +
                   UrlPart(DataUrl("rgb.png")))
                .status,
            200);
  const Request request = engine_.requests().at(0);
  ASSERT_EQ(request.images.size(), 3);
  EXPECT_EQ(request.images[0].image, request.images[2].image);  // the third image reuses the first
                                                                // one's data
  EXPECT_NE(request.images[0].image->hash, request.images[1].image->hash);
  EXPECT_LT(request.images[0].position, request.images[1].position);
  EXPECT_LT(request.images[1].position, request.images[2].position);
}

TEST_F(ImagesTest, EveryApiTakesThem) {
  StartSeeing();
  ASSERT_EQ(ChatOf(UrlPart(DataUrl("rgb.png"))).status, 200);
  const ServerAnswer responses = Ask(
      "POST", "/v1/responses",
      fmt::format(R"({{"model":"abacus","max_output_tokens":3,"input":[{{"role":"user","content":[
                                       {{"type":"input_image","image_url":"{}"}}]}}]}})",
                  DataUrl("rgb.png")));
  ASSERT_EQ(responses.status, 200) << responses.body;
  const ServerAnswer messages =
      Ask("POST", "/v1/messages",
          fmt::format(R"({{"model":"abacus","max_tokens":3,"messages":[{{"role":"user","content":[
                                      {{"type":"image","source":{{"type":"base64","media_type":"image/png","data":"{}"}}}}]}}]}})",
                      Base64Of("rgb.png")));
  ASSERT_EQ(messages.status, 200) << messages.body;
  const std::vector<Request> requests = engine_.requests();
  ASSERT_EQ(requests.size(), 3);
  EXPECT_EQ(requests[0].prompt, requests[1].prompt);
  EXPECT_EQ(requests[0].prompt, requests[2].prompt);
  for (const Request& request : requests)
    EXPECT_EQ(request.images.at(0).image->hash, requests[0].images[0].image->hash);
  const ServerAnswer tokens =
      Ask("POST", "/tokenize",
          fmt::format(R"({{"messages":[{{"role":"user","content":[{}]}}]}})",
                      UrlPart(DataUrl("rgb.png"))));
  EXPECT_EQ(At(tokens.json(), {"count"}).as_integer(), std::ssize(requests[0].prompt))
      << tokens.body;
}

TEST_F(ImagesTest, RefusalsNameThePartAndTheLimit) {
  ServerConfig config = DefaultConfig();
  config.media.limits = R"({"image":2})";
  StartSeeing(config);
  const std::string place = "messages[0].content[1].image_url";
  const auto second = [&](const std::string& part) {
    return Refusal(ChatOf(R"({"type":"text","text":"a"},)" + part));
  };
  EXPECT_THAT(
      second(UrlPart("data:image/png;base64,AAAA")),
      HasSubstr(
          place +
          ": expected a PNG, JPEG, WebP, GIF or BMP image, found 3 bytes that begin otherwise [" +
          place + "]"));
  EXPECT_THAT(second(UrlPart("data:image/png;base64,A")),
              HasSubstr(place + ": base64 of 1 characters"));
  EXPECT_THAT(second(UrlPart("data:image/png,abc")), HasSubstr(place + ": Only base64 data URLs"));
  EXPECT_THAT(second(UrlPart(DataUrl("bomb.png"))),
              HasSubstr(place + ": the image has 60000 x 60000 pixels"));
  EXPECT_THAT(second(UrlPart(DataUrl("cut.jpg"))),
              HasSubstr(place + ": damaged JPEG image: the file is truncated"));
  EXPECT_THAT(second(UrlPart("ftp://host/a.png")),
              HasSubstr(place + ": The URL must be either a HTTP, data or file URL"));
  EXPECT_THAT(second(UrlPart("http://host/a.png")),
              HasSubstr("start the server with --allowed-media-domains"));
  EXPECT_THAT(second(UrlPart("file:///etc/passwd")),
              HasSubstr("Cannot load local files without `--allowed-local-media-path`"));
  EXPECT_THAT(second(R"({"type":"image_url","image_url":5})"),
              HasSubstr(place + ": expected an object with a string \"url\""));
  EXPECT_THAT(second(R"({"type":"image_embeds","image_embeds":"AAAA"})"),
              HasSubstr("parts of type 'image_embeds' are not supported"));
  const std::string image = UrlPart(DataUrl("rgb.png"));
  EXPECT_THAT(Refusal(ChatOf(image + "," + image + "," + image)),
              HasSubstr("At most 2 image(s) may be provided in one prompt"));
  EXPECT_THAT(
      Refusal(ChatOf(fmt::format(R"({{"type":"text","text":"{}"}},{})", kImageTokenText, image))),
      HasSubstr("the prompt has 2 placeholders of images"));
}

TEST_F(ImagesTest, PartsOfResponsesAreTakenInAChat) {
  StartSeeing();
  ASSERT_EQ(ChatOf(UrlPart(DataUrl("rgb.png"))).status, 200);
  const ServerAnswer answer = ChatOf(fmt::format(
      R"({{"type":"input_image","detail":"auto","image_url":"{}"}})", DataUrl("rgb.png")));
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(engine_.requests().at(1).prompt, engine_.requests().at(0).prompt);
}

TEST_F(ImagesTest, SettingsOfOneRequestAreRefusedBesideImages) {
  ServerConfig config = DefaultConfig();
  config.dialect = ApiDialect::kVllm;
  StartSeeing(config);
  const auto ask = [&](std::string_view field, const std::string& part) {
    return Ask("POST", "/v1/chat/completions",
               fmt::format(R"({{"model":"abacus","max_tokens":3,{},"messages":[
                               {{"role":"user","content":[{}]}}]}})",
                           field, part));
  };
  const std::string image = UrlPart(DataUrl("rgb.png"));
  EXPECT_THAT(Refusal(ask(R"("mm_processor_kwargs":{"max_pixels":64})", image)),
              HasSubstr("the server's option --mm-processor-kwargs"));
  EXPECT_THAT(Refusal(ask(R"("media_io_kwargs":{"image":{}})", image)),
              HasSubstr("[media_io_kwargs]"));
  EXPECT_EQ(ask(R"("mm_processor_kwargs":{},"media_io_kwargs":null)", image).status, 200);
  EXPECT_EQ(
      ask(R"("mm_processor_kwargs":{"max_pixels":64})", R"({"type":"text","text":"a"})").status,
      200)
      << "without an image, they set nothing";
  const std::string settings = R"("mm_processor_kwargs":{"max_pixels":64})";
  const ServerAnswer response =
      Ask("POST", "/v1/responses",
          fmt::format(R"({{"model":"abacus",{},"input":[{{"role":"user","content":[
                          {{"type":"input_image","detail":"auto","image_url":"{}"}}]}}]}})",
                      settings, DataUrl("rgb.png")));
  EXPECT_EQ(response.status, 400);
  EXPECT_THAT(response.body, HasSubstr("mm_processor_kwargs"));
  const std::string source = DataUrl("rgb.png");
  const ServerAnswer message = Ask("POST", "/v1/messages",
                                   fmt::format(R"({{"model":"abacus","max_tokens":3,{},"messages":[
                          {{"role":"user","content":[{{"type":"image","source":{{
                            "type":"base64","media_type":"image/png","data":"{}"}}}}]}}]}})",
                                               settings, source.substr(source.find(',') + 1)));
  EXPECT_EQ(message.status, 400);
  EXPECT_THAT(message.body, HasSubstr("mm_processor_kwargs"));
}

TEST_F(ImagesTest, ProcessedImagesAreKeptUntilReset) {
  ServerConfig config = DefaultConfig();
  config.dev_mode = true;
  StartSeeing(config);
  const auto hits = [&] {
    const std::string text = Ask("GET", "/metrics").body;
    const size_t at = text.find("\nvllm:mm_cache_hits_total{");
    return text.substr(text.find("} ", at) + 2, 3);
  };
  ASSERT_EQ(ChatOf(UrlPart(DataUrl("rgb.png"))).status, 200);
  EXPECT_EQ(hits(), "0.0");
  ASSERT_EQ(ChatOf(UrlPart(DataUrl("rgb.png"))).status, 200);
  EXPECT_EQ(hits(), "1.0");
  EXPECT_EQ(Ask("POST", "/reset_mm_cache").status, 200);
  ASSERT_EQ(ChatOf(UrlPart(DataUrl("rgb.png"))).status, 200);
  EXPECT_EQ(hits(), "1.0");
  EXPECT_THAT(Ask("GET", "/metrics").body, HasSubstr("vllm:mm_cache_queries_total{"));
  EXPECT_EQ(engine_.num_resets, 0);
  EXPECT_EQ(Ask("POST", "/reset_encoder_cache").status, 200);
  EXPECT_EQ(engine_.num_resets, 1);
}

TEST_F(ImagesTest, AModelWithoutATowerRefusesThem) {
  Start();
  EXPECT_THAT(Refusal(ChatOf(UrlPart(DataUrl("rgb.png")))),
              HasSubstr("messages[0].content[0].image_url: abacus is not a multimodal model"));
}

TEST_F(ImagesTest, ImagesThatTheEngineCannotHoldAreRefused) {
  StartSeeing(DefaultConfig(), /*max_rows=*/2);
  EXPECT_THAT(Refusal(ChatOf(UrlPart(DataUrl("rgb.png")))),
              HasSubstr("at most 2 are computed at a time"));
}

TEST_F(ImagesTest, ImagesComeByUrlFromHostsThatAreNamed) {
  // Serves a single response with an image on a separate socket.
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(listener, 4), 0);
  socklen_t length = sizeof address;
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
  std::string bytes;
  for (const TestImage& image : ReadTestImages()) {
    if (image.name == "rgb.png") bytes = image.bytes;
  }
  std::thread host([&] {
    const int connection = accept(listener, nullptr, nullptr);
    char buffer[4096];
    EXPECT_GT(recv(connection, buffer, sizeof buffer, 0), 0);
    const std::string answer =
        fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    bytes.size()) +
        bytes;
    EXPECT_EQ(send(connection, answer.data(), answer.size(), MSG_NOSIGNAL), std::ssize(answer));
    close(connection);
  });
  ServerConfig config = DefaultConfig();
  config.media.fetch.hosts = {"127.0.0.1"};
  StartSeeing(config);
  const std::string place = fmt::format("127.0.0.1:{}", ntohs(address.sin_port));
  EXPECT_EQ(ChatOf(UrlPart("http://" + place + "/a.png")).status, 200);
  host.join();
  close(listener);
  EXPECT_EQ(engine_.requests().at(0).images.size(), 1);
  EXPECT_THAT(Refusal(ChatOf(UrlPart("http://localhost/a.png"))),
              HasSubstr("The URL must be from one of the allowed domains: 127.0.0.1"));
}

}  // namespace
}  // namespace sluice

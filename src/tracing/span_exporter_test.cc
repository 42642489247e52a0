#include "tracing/span_exporter.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<SpanExporterSettings> Read(const std::string& endpoint,
                                  const std::map<std::string, std::string>& environment = {}) {
  return ReadSpanExporterSettings(endpoint, "1", [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

std::string Refusal(const std::string& endpoint,
                    const std::map<std::string, std::string>& environment = {}) {
  const auto settings = Read(endpoint, environment);
  return settings ? "" : settings.error().message;
}

TEST(SpanExporterSettingsTest, AnAddressWithoutAPathGetsThatOfTraces) {
  EXPECT_EQ(Read("http://localhost:4318")->url, "http://localhost:4318/v1/traces");
  EXPECT_EQ(Read("http://localhost:4318/")->url, "http://localhost:4318/v1/traces");
  EXPECT_EQ(Read("https://[::1]:4318/otel/v1/traces")->url, "https://[::1]:4318/otel/v1/traces");
}

TEST(SpanExporterSettingsTest, RefusesWhatCannotBeUsed) {
  for (const char* bad :
       {"localhost:4317", "grpc://localhost:4317", "ftp://a", "http://", "a b", ""})
    EXPECT_THAT(Refusal(bad), HasSubstr("--otlp-traces-endpoint: expected http://")) << bad;
  EXPECT_THAT(Refusal("grpc://localhost:4317"), HasSubstr("gRPC is not supported"));
  EXPECT_THAT(Refusal("http://user:secret@a"), ::testing::Not(HasSubstr("secret")));
  EXPECT_THAT(Refusal("http://user:secret@a"), HasSubstr("without a user"));
  EXPECT_THAT(Refusal("http://a", {{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"}}),
              HasSubstr("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: expected http/protobuf"));
  EXPECT_THAT(Refusal("http://a", {{"OTEL_EXPORTER_OTLP_HEADERS", "secret"}}),
              AllOf(HasSubstr("OTEL_EXPORTER_OTLP_HEADERS: expected key=value"),
                    ::testing::Not(HasSubstr("secret"))));
  EXPECT_THAT(Refusal("http://a", {{"OTEL_EXPORTER_OTLP_HEADERS", "a=b%0d%0ac: d"}}),
              HasSubstr("HTTP headers"));
  EXPECT_THAT(Refusal("http://a", {{"OTEL_EXPORTER_OTLP_CERTIFICATE", "/none"}}),
              HasSubstr("OTEL_EXPORTER_OTLP_CERTIFICATE: cannot read /none"));
}

TEST(SpanExporterSettingsTest, ReadsTheVariablesOfOpenTelemetry) {
  const auto settings =
      Read("http://a", {{"OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"},
                        {"OTEL_EXPORTER_OTLP_HEADERS", "api-key=for%20all"},
                        {"OTEL_EXPORTER_OTLP_TRACES_HEADERS", "api-key=for%20traces, x = ,"},
                        {"OTEL_RESOURCE_ATTRIBUTES", "service.name=theirs,team=a%2Cb"},
                        {"OTEL_SERVICE_NAME", "mine"}});
  ASSERT_TRUE(settings) << settings.error().message;
  EXPECT_THAT(settings->headers, ElementsAre("api-key: for traces", "x;"));
  std::map<std::string, std::string> resource;
  for (const SpanAttribute& attribute : settings->resource) {
    if (const auto* text = std::get_if<std::string>(&attribute.value))
      resource[attribute.name] = *text;
  }
  EXPECT_THAT(resource, ElementsAre(std::pair("service.name", "mine"), std::pair("team", "a,b")));
  EXPECT_THAT(Read("http://a", {{"OTEL_RESOURCE_ATTRIBUTES", "service.name=theirs"}})->resource,
              Contains(::testing::Field(&SpanAttribute::value,
                                        testing::VariantWith<std::string>("theirs"))));
}

// A collector on this thread that handles one request at a time.
class LoopbackCollector {
 public:
  LoopbackCollector() : listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~LoopbackCollector() { close(listener_); }

  // Returns the next request, answered with `status`; "" if none arrives within a minute.
  std::string Take(int status) {
    pollfd readable{listener_, POLLIN, 0};
    if (poll(&readable, 1, 60000) <= 0) return "";
    const int client = accept(listener_, nullptr, nullptr);
    std::string text;
    char buffer[65536];
    size_t expected = std::string::npos;
    while (text.size() < expected) {
      const ssize_t count = read(client, buffer, sizeof buffer);
      if (count <= 0) break;
      text.append(buffer, static_cast<size_t>(count));
      const size_t head = text.find("\r\n\r\n"), length = text.find("Content-Length: ");
      if (head != std::string::npos && length != std::string::npos)
        expected = head + 4 + std::stoul(text.substr(length + 16));
    }
    const std::string answer =
        fmt::format("HTTP/1.1 {} x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", status);
    EXPECT_EQ(write(client, answer.data(), answer.size()), static_cast<ssize_t>(answer.size()));
    close(client);
    return text;
  }
  std::string url() const { return fmt::format("http://127.0.0.1:{}/v1/traces", port_); }

 private:
  const int listener_;
  int port_ = 0;
};

TraceSpan Named(const std::string& name) {
  TraceSpan span;
  span.name = name;
  return span;
}

TEST(SpanExporterTest, SendsABatch) {
  LoopbackCollector collector;
  SpanExporter exporter({.url = collector.url(), .headers = {"api-key: k"}});
  exporter.Export(Named("first-span"));
  exporter.Export(Named("second-span"));
  const std::string request = collector.Take(200);
  EXPECT_THAT(request, ::testing::StartsWith("POST /v1/traces HTTP/1.1\r\n"));
  EXPECT_THAT(request, HasSubstr("Content-Type: application/x-protobuf\r\n"));
  EXPECT_THAT(request, HasSubstr("api-key: k\r\n"));
  EXPECT_THAT(request, AllOf(HasSubstr("first-span"), HasSubstr("second-span")));
}

TEST(SpanExporterTest, SendsAgainWhatMayBeTakenLater) {
  LoopbackCollector collector;
  ::testing::internal::CaptureStderr();
  {
    SpanExporter exporter({.url = collector.url()});
    exporter.Export(Named("first-span"));
    EXPECT_THAT(collector.Take(503), HasSubstr("first-span"));
    EXPECT_THAT(collector.Take(200), HasSubstr("first-span"));
    exporter.Export(Named("second-span"));
    EXPECT_THAT(collector.Take(400), HasSubstr("second-span")) << "the collector does not want it";
    exporter.Export(Named("third-span"));
    const std::string third = collector.Take(200);
    EXPECT_THAT(third, AllOf(HasSubstr("third-span"), ::testing::Not(HasSubstr("second-span"))));
    EXPECT_EQ(exporter.num_dropped(), 1u);
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr(" WARN tracing spans were not accepted by " + collector.url()));
}

TEST(SpanExporterTest, SendsAtItsEndWhatIsQueued) {
  LoopbackCollector collector;
  std::string request;
  std::thread taking([&] { request = collector.Take(200); });
  {
    SpanExporter exporter({.url = collector.url()});
    exporter.Export(Named("last-span"));
  }
  taking.join();
  EXPECT_THAT(request, HasSubstr("last-span"));
}

// If no collector listens, or the collector never answers, callers and the destructor do not wait
// long.
TEST(SpanExporterTest, ADeadCollectorHoldsNothingUp) {
  LoopbackCollector silent;
  ::testing::internal::CaptureStderr();
  for (const std::string& url : {silent.url(), std::string("http://127.0.0.1:1/v1/traces")}) {
    const auto start = std::chrono::steady_clock::now();
    {
      SpanExporter exporter({.url = url});
      for (size_t i = 0; i < 3 * SpanExporter::kMaxQueued; ++i) exporter.Export(Named("x"));
      EXPECT_GE(exporter.num_dropped(), SpanExporter::kMaxQueued - 2 * SpanExporter::kMaxBatch);
      EXPECT_EQ(exporter.num_sent(), 0u);
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
  }
  ::testing::internal::GetCapturedStderr();
}

}  // namespace
}  // namespace sluice

// TLS connections over real sockets on 127.0.0.1.
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "server/http/http_server.h"
#include "server/http/tls_context.h"
#include "server/http/tls_testing.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kGet[] = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";
constexpr char kGetAndClose[] = "GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

// Answers with the size of the request. /large: a megabyte; /flood: 32 MB; /late: once the test
// allows it.
class EchoingHandler : public HttpHandler {
 public:
  std::optional<HttpResponse> CheckHead(const HttpRequest&) override { return std::nullopt; }
  void Handle(HttpRequest request, std::shared_ptr<ResponseWriter> writer) override {
    if (request.path == "/late") {
      held = std::move(writer);
      ++num_held;
      return;
    }
    HttpResponse response;
    response.body = request.path == "/large"   ? std::string(1'000'000, 'x')
                    : request.path == "/flood" ? std::string(32'000'000, 'x')
                                               : request.path + std::to_string(request.body.size());
    writer->Send(std::move(response));
  }
  std::vector<HttpHeader> CommonHeaders(const HttpRequest&, int) override { return {}; }

  std::shared_ptr<ResponseWriter> held;  // readable by a thread that has seen num_held
  std::atomic<int> num_held{0};
};

class TlsServerTest : public ::testing::Test {
 protected:
  TlsServerTest() : folder_(::testing::TempDir() + "tls_server_test") {
    std::signal(SIGPIPE, SIG_IGN);
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    config_.host = "127.0.0.1";
    config_.port = 0;
    config_.tls.certificate_file = folder_ / "certificate.pem";
    config_.tls.key_file = folder_ / "key.pem";
    Replace(first_);
  }
  void Replace(const CertificateForTest& certificate) {
    certificate.WriteCertificate(config_.tls.certificate_file);
    certificate.WriteKey(config_.tls.key_file);
  }
  void Start() {
    Result<std::unique_ptr<HttpServer>> server =
        HttpServer::Listen(config_, memory_, &handler_, nullptr);
    ASSERT_TRUE(server) << server.error().message;
    server_ = *std::move(server);
    server_->Start();
  }
  std::string Refusal() const {
    const auto context = LoadTlsContext(config_.tls);
    return context ? "" : context.error().message;
  }
  template <typename Condition>
  static bool Eventually(Condition condition) {
    for (int i = 0; i < 12000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(10ms);
    }
    return false;
  }

  const std::filesystem::path folder_;
  const CertificateForTest first_{"first"}, second_{"second"};
  std::shared_ptr<RequestMemory> memory_ = std::make_shared<RequestMemory>(uint64_t{64} << 20);
  EchoingHandler handler_;
  ServerConfig config_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(TlsServerTest, AnswersAndKeepsTheConnection) {
  Start();
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    TlsClient client(server_->port(), {.newest = version, .oldest = version});
    EXPECT_EQ(SSL_version(client.ssl()), version);
    for (int i = 0; i < 3; ++i) {
      client.Send(kGet);
      EXPECT_THAT(client.ReadUntil("/a0"), StartsWith("HTTP/1.1 200 OK\r\n"));
    }
    client.Send(std::string(kGet) + kGetAndClose);  // pipelined
    const std::string both = client.ReadAll();
    EXPECT_NE(both.find("/a0"), both.rfind("/a0"));
    EXPECT_TRUE(client.ended());
  }
}

TEST_F(TlsServerTest, LargeBodiesInBothDirections) {
  Start();
  TlsClient client(server_->port(), {.receive_buffer = 4096});
  client.Send("POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n" +
              std::string(3'000'000, 'y'));
  EXPECT_THAT(client.ReadUntil("/b3000000"), HasSubstr("/b3000000"));
  client.Send("GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  std::this_thread::sleep_for(50ms);  // the answer waits for buffer space
  const std::string answer = client.ReadAll();
  EXPECT_EQ(answer.size() - answer.find("\r\n\r\n") - 4, 1'000'000u);
  EXPECT_TRUE(client.ended());
}

TEST_F(TlsServerTest, AContinueBeforeTheBody) {
  Start();
  TlsClient client(server_->port());
  client.Send("POST /b HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send("hello");
  EXPECT_THAT(client.ReadUntil("/b5"), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST_F(TlsServerTest, AnswersAClientThatHasHalfClosed) {
  Start();
  TlsClient client(server_->port());
  client.Send("GET /late HTTP/1.1\r\nHost: x\r\n\r\n");
  client.HalfClose();
  ASSERT_TRUE(Eventually([&] { return handler_.num_held == 1; }));
  std::this_thread::sleep_for(50ms);
  HttpResponse response;
  response.body = "at last";
  handler_.held->Send(std::move(response));
  EXPECT_THAT(client.ReadAll(), HasSubstr("at last"));
  EXPECT_TRUE(client.ended());
}

TEST_F(TlsServerTest, DropsAClientThatReadsNothing) {
  config_.write_timeout_seconds = 0.3;
  Start();
  TlsClient client(server_->port(), {.receive_buffer = 4096});
  client.Send("GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(Eventually([&] { return memory_->used() > 16'000'000; }));
  EXPECT_TRUE(Eventually([&] { return server_->num_connections() == 0; }));
  EXPECT_TRUE(Eventually([&] { return memory_->used() == 0; }));
}

TEST_F(TlsServerTest, OldVersionsAndOtherProtocolsAreRefused) {
  Start();
  for (const int version : {TLS1_VERSION, TLS1_1_VERSION})
    EXPECT_FALSE(TlsClient(server_->port(), {.newest = version, .oldest = version}).connected());
  EXPECT_FALSE(TlsClient(server_->port(), {.protocols = "\x02h2"}).connected());
  TlsClient both(server_->port(), {.protocols = "\x02h2\x08http/1.1"});
  ASSERT_TRUE(both.connected());
  const unsigned char* chosen = nullptr;
  unsigned size = 0;
  SSL_get0_alpn_selected(both.ssl(), &chosen, &size);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(chosen), size), "http/1.1");
}

TEST_F(TlsServerTest, ACipherThatIsAskedFor) {
  config_.tls.ciphers = "ECDHE-ECDSA-CHACHA20-POLY1305";
  Start();
  TlsClient client(server_->port(), {.newest = TLS1_2_VERSION});
  EXPECT_STREQ(SSL_get_cipher(client.ssl()), "ECDHE-ECDSA-CHACHA20-POLY1305");
}

TEST_F(TlsServerTest, AClientThatSpeaksPlainHttpIsTold) {
  Start();
  RawClient client(server_->port());
  client.Send(kGet);
  EXPECT_THAT(client.ReadAll(),
              AllOf(StartsWith("HTTP/1.1 400 "), HasSubstr("This port uses HTTPS")));
}

TEST_F(TlsServerTest, AHandshakeThatDoesNotEndIsCut) {
  config_.header_timeout_seconds = 0.3;
  Start();
  RawClient silent(server_->port()), slow(server_->port());
  slow.Send(std::string("\x16\x03\x01\x02\x00\x01\x00", 7));  // the start of a ClientHello
  TlsClient idle(server_->port());
  EXPECT_EQ(silent.ReadAll() + slow.ReadAll() + idle.ReadAll(), "");
  EXPECT_TRUE(Eventually([&] { return server_->num_connections() == 0; }));
}

TEST_F(TlsServerTest, SurvivesRandomRecords) {
  Start();
  uint32_t state = 1;
  for (int i = 0; i < 200; ++i) {
    std::string bytes("\x16\x03\x01\x00\xc8\x01", 6);
    for (int j = 0; j < 200; ++j) {
      state = state * 1664525 + 1013904223;
      bytes.push_back(static_cast<char>(state >> 24));
    }
    RawClient client(server_->port());
    client.Send(bytes);
    client.HalfClose();
    client.ReadAll();
  }
  TlsClient client(server_->port());
  client.Send(kGetAndClose);
  EXPECT_THAT(client.ReadAll(), HasSubstr("/a0"));
}

TEST_F(TlsServerTest, ConnectionsAreTakenFromTheMemoryOfRequests) {
  memory_ = std::make_shared<RequestMemory>(uint64_t{200} << 10);
  Start();
  {
    std::vector<std::unique_ptr<TlsClient>> clients;
    for (int i = 0; i < 4; ++i) clients.push_back(std::make_unique<TlsClient>(server_->port()));
    EXPECT_TRUE(clients.back()->connected());
    EXPECT_EQ(memory_->used(), 4 * (uint64_t{48} << 10));
    EXPECT_FALSE(TlsClient(server_->port()).connected());
  }
  EXPECT_TRUE(Eventually([&] { return memory_->used() == 0; }));
  EXPECT_TRUE(TlsClient(server_->port()).connected());
}

TEST_F(TlsServerTest, CertificatesOfClients) {
  const CertificateForTest authority("authority"), other("other");
  const CertificateForTest known("known", &authority), stranger("stranger", &other);
  config_.tls.client_ca_file = folder_ / "authority.pem";
  authority.WriteCertificate(config_.tls.client_ca_file);
  const auto answer = [&](const CertificateForTest* own) {
    TlsClient client(server_->port(), {.own = own});
    client.Send(kGetAndClose);
    return client.ReadAll();
  };
  config_.tls.client_certificates = TlsConfig::ClientCertificates::kRequired;
  Start();
  EXPECT_THAT(answer(&known), HasSubstr("/a0"));
  EXPECT_EQ(answer(&stranger), "");
  EXPECT_EQ(answer(nullptr), "");
  config_.tls.client_certificates = TlsConfig::ClientCertificates::kOptional;
  Start();
  EXPECT_THAT(answer(&known), HasSubstr("/a0"));
  EXPECT_EQ(answer(&stranger), "");
  EXPECT_THAT(answer(nullptr), HasSubstr("/a0"));
}

TEST_F(TlsServerTest, FilesThatCannotBeUsedAreNamed) {
  EXPECT_EQ(Refusal(), "");
  second_.WriteKey(config_.tls.key_file);
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("--ssl-keyfile"), HasSubstr("does not belong to")));
  first_.WriteKey(config_.tls.key_file, "secret");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("--ssl-keyfile"), HasSubstr("encrypted")));
  std::ofstream(config_.tls.key_file) << "no key";
  EXPECT_THAT(Refusal(), HasSubstr("expected a private key in PEM form"));
  std::filesystem::remove(config_.tls.key_file);
  EXPECT_THAT(Refusal(), HasSubstr("key.pem: No such file"));
  config_.tls.key_file = "";
  EXPECT_THAT(Refusal(), HasSubstr("--ssl-keyfile names its file"));
  config_.tls.certificate_file = folder_;
  EXPECT_THAT(Refusal(), HasSubstr("found a folder"));
  config_.tls.certificate_file = folder_ / "none.pem";
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("--ssl-certfile"), HasSubstr("No such file")));
  std::ofstream(config_.tls.certificate_file) << "no certificate";
  EXPECT_THAT(Refusal(), HasSubstr("expected a certificate in PEM form"));
  config_.tls.ciphers = "ROT13";
  EXPECT_THAT(Refusal(), HasSubstr("--ssl-ciphers ROT13"));
}

TEST_F(TlsServerTest, NewConnectionsHaveTheNewCertificate) {
  Start();
  TlsClient old(server_->port());
  Replace(second_);
  server_->ReloadCertificates();
  EXPECT_EQ(TlsClient(server_->port()).ServerName(), "second");
  EXPECT_EQ(old.ServerName(), "first");
  old.Send(kGetAndClose);
  EXPECT_THAT(old.ReadAll(), HasSubstr("/a0"));
}

TEST_F(TlsServerTest, ABadCertificateDoesNotReplaceAGoodOne) {
  Start();
  std::ofstream(config_.tls.certificate_file) << "no certificate";
  ::testing::internal::CaptureStderr();
  server_->ReloadCertificates();
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      HasSubstr("reloading the certificate failed; the old one stays in use: --ssl-certfile"));
  EXPECT_EQ(TlsClient(server_->port()).ServerName(), "first");
}

TEST_F(TlsServerTest, FilesThatChangeAreReadOnceTheyNoLongerChange) {
  Start();
  server_->RefreshCertificates();
  second_.WriteCertificate(config_.tls.certificate_file);
  ::testing::internal::CaptureStderr();
  server_->RefreshCertificates();
  second_.WriteKey(config_.tls.key_file);
  server_->RefreshCertificates();
  EXPECT_EQ(TlsClient(server_->port()).ServerName(), "first");
  server_->RefreshCertificates();
  EXPECT_EQ(TlsClient(server_->port()).ServerName(), "second");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), Not(HasSubstr("stays")));
}

}  // namespace
}  // namespace sluice

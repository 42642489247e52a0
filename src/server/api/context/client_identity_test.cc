#include "server/api/context/client_identity.h"

#include <string>

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(ClientIdentity, IsTheKeyElseTheAddress) {
  const ApiKeys keys({"one", "two"});
  const ClientIdentity identity(keys);
  const auto of = [&](const std::string& client, const std::string& authorization) {
    HttpRequest request;
    request.client = client;
    if (!authorization.empty()) request.headers = {{"authorization", authorization}};
    return identity.Of(request);
  };
  const uint64_t local = of("127.0.0.1:5000", "");
  EXPECT_EQ(of("127.0.0.1:5001", ""), local) << "whatever the port";
  EXPECT_NE(of("127.0.0.2:5000", ""), local);
  EXPECT_EQ(of("127.0.0.1:5000", "Bearer three"), local) << "a key that nobody gave out";
  EXPECT_NE(of("127.0.0.1:5000", "Bearer one"), local);
  EXPECT_EQ(of("127.0.0.1:5000", "Bearer one"), of("10.0.0.1:80", "bearer one"));
  EXPECT_NE(of("127.0.0.1:5000", "Bearer one"), of("127.0.0.1:5000", "Bearer two"));
  EXPECT_EQ(of("2001:db8::1:5000", ""), of("2001:db8::ffff:1:5000", "")) << "one network";
  EXPECT_NE(of("2001:db8::1:5000", ""), of("2001:db8:0:1::1:5000", ""));
  EXPECT_NE(of("::ffff:127.0.0.1:5000", ""), of("::ffff:127.0.0.2:5000", ""));
  EXPECT_NE(ClientIdentity(keys).Of(HttpRequest{}), identity.Of(HttpRequest{})) << "a secret";
}

}  // namespace
}  // namespace sluice

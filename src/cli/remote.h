// The running server to which a command connects, as given by the options that all these commands
// share: --url, --cacert, --insecure, --cert, --key, --api-key, --api-key-file.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/result.h"
#include "client/client_tls.h"
#include "client/http_client.h"
#include "client/openai_client.h"
#include "client/url.h"
#include "options/settings.h"

namespace sluice::cli {

struct Remote {
  Url url;
  std::shared_ptr<const ClientTls> tls = {};  // null without TLS
  std::string api_key = {};                   // "": no key is sent

  // Returns "Authorization" with the key, if there is one.
  std::map<std::string, std::string> headers() const;
  HttpClient http() const { return HttpClient(url, headers(), tls); }
  OpenAiClient openai() const { return {url, api_key, tls}; }
};

// Returns the server at `address`. kInvalidArgument names the invalid option.
Result<Remote> RemoteAt(const options::Settings& settings, const std::string& address);

// Returns the key that was given to this program: --api-key-file, else --api-key (SLUICE_API_KEY,
// VLLM_API_KEY); "" if there is none.
Result<std::string> GivenKey(const options::Settings& settings);
// Returns the key to send: --api-key-file, else --api-key (SLUICE_API_KEY, VLLM_API_KEY), else
// OPENAI_API_KEY; "" if there is none.
Result<std::string> ClientKey(const options::Settings& settings);

}  // namespace sluice::cli

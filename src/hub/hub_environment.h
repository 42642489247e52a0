// The environment variables of huggingface_hub: where the cache is, and how to reach the hub.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"

namespace sluice {

// Strings are "" if not set.
struct HubEnvironment {
  std::string hf_hub_cache = "";           // HF_HUB_CACHE
  std::string huggingface_hub_cache = "";  // HUGGINGFACE_HUB_CACHE, the older name of HF_HUB_CACHE
  std::string hf_home = "";                // HF_HOME
  std::string xdg_cache_home = "";         // XDG_CACHE_HOME
  std::string home = "";                   // HOME
  std::string hf_endpoint = "";            // HF_ENDPOINT
  std::string hf_token = "";               // HF_TOKEN, or the older name HUGGING_FACE_HUB_TOKEN
  std::string hf_token_path = "";          // HF_TOKEN_PATH
  // File or folder with the trusted certificate authorities: SSL_CERT_FILE, or REQUESTS_CA_BUNDLE,
  // CURL_CA_BUNDLE or SSL_CERT_DIR.
  std::string certificates = "";
  std::string http_proxy = "";     // http_proxy or HTTP_PROXY; libcurl reads the other proxy
                                   // variables
  bool offline = false;            // HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE
  bool no_implicit_token = false;  // HF_HUB_DISABLE_IMPLICIT_TOKEN
  bool no_symlinks = false;        // HF_HUB_DISABLE_SYMLINKS
  int timeout_seconds = 10;        // HF_HUB_DOWNLOAD_TIMEOUT: maximum time below the minimum speed

  static HubEnvironment OfProcess();

  // Returns HF_HOME, else XDG_CACHE_HOME/huggingface, else ~/.cache/huggingface.
  std::filesystem::path HomeFolder() const;
  // Returns the cache's folder: HF_HUB_CACHE, else hub in HomeFolder().
  std::filesystem::path CacheFolder() const;
  // Returns the hub's URL without a trailing slash. kInvalidArgument if it is not http(s).
  Result<std::string> Endpoint() const;
  // Returns HF_TOKEN, else the content of HF_TOKEN_PATH or of HomeFolder()/token; "" if there is
  // none. kInvalidArgument if it contains characters that are not allowed in a header.
  Result<std::string> Token() const;
};

// Replaces a leading "~" of `path` by `home`.
std::filesystem::path ExpandHome(const std::string& path, const std::string& home);

}  // namespace sluice

#include "options/rows.h"

namespace sluice::options {

void AddMediaRows(std::vector<Option>& table) {
  Rows rows(table, "Images", kEngineArguments);
  rows.Flag("language-model-only",
            "Do not load the model's image tower; requests with images fail with status 400.");
  rows.Json("limit-mm-per-prompt", "",
            "Maximum number of images in one prompt: {\"image\": 4}; default: 999. A request with "
            "more images fails with status 400. 0: the image tower is not loaded.");
  rows.Json("mm-processor-kwargs", "",
            "Settings of the model's image processor that override those of "
            "preprocessor_config.json, such as {\"max_pixels\": 1003520}.");
  rows.Json("media-io-kwargs", "",
            "Background color for transparent pixels of an image; default: {\"image\": "
            "{\"rgba_background_color\": [255, 255, 255]}}.");
  rows.Number("mm-processor-cache-gb", "4",
              "Size in GiB of the cache of processed images, for the next turns of a conversation; "
              "at most a quarter of --request-memory-bytes; 0: no cache.",
              {.range = {0, 1e6}});
  rows.Text("allowed-local-media-path", "",
            "Folder with images that requests may refer to as file:///PATH; symbolic links to "
            "other folders are refused. Default: none.",
            {.value = ValueKind::kFolder});
  rows.List("allowed-media-domains", "",
            "Hosts from which the server may fetch images by http(s) URL; *: every host with a "
            "public address. A host listed by name may have a private address. Redirects are "
            "checked, too; no proxy is used. Default: none; under the name vllm: *.",
            {.vllm_default = "*", .trtllm_default = "*"});
  rows.Flag("allow-media-redirects",
            "Follow up to five redirects when fetching an image, each to an allowed host.",
            {.default_value = "true", .environment = "VLLM_MEDIA_URL_ALLOW_REDIRECTS"});
  rows.Number("media-fetch-timeout", "5", "Timeout in seconds for fetching an image from its URL.",
              {.range = {0.1, 3600}, .environment = "VLLM_IMAGE_FETCH_TIMEOUT"});
  rows.Integer(
      "max-image-pixels", "178956970",
      "Maximum number of pixels of an image; for a larger image, the request fails with status 400 "
      "as soon as the image's header is read. Upper limit: 178956970; 0 means this limit.",
      {.range = {0, 1e15}, .environment = "VLLM_MAX_IMAGE_PIXELS"});
}

}  // namespace sluice::options

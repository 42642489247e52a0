#include "options/rows.h"

namespace sluice::options {

void AddMediaRows(std::vector<Option>& table) {
  Rows rows(table, "Images", kEngineArguments);
  rows.Flag(
      "language-model-only",
      "Serve only text, even if the model has an image tower: requests with images get a 400.");
  rows.Json("limit-mm-per-prompt", "",
            "Maximum number of images in one prompt: {\"image\": 4}; default: 999. A prompt with "
            "more images gets a 400. "
            "0: the tower is not loaded.");
  rows.Json("mm-processor-kwargs", "",
            "Settings of the model's image processor that override those of "
            "preprocessor_config.json, such as {\"max_pixels\": 1003520}.");
  rows.Json("media-io-kwargs", "",
            "Background color for transparent pixels of an image; default: {\"image\": "
            "{\"rgba_background_color\": [255, 255, 255]}}.");
  rows.Number("mm-processor-cache-gb", "4",
              "GiB of processed images that are cached for the next turns of a conversation; at "
              "most a quarter of --request-memory-bytes; 0: none.",
              {.range = {0, 1e6}});
  rows.Text("allowed-local-media-path", "",
            "Folder below which requests may name images as file:///PATH; symbolic links out of it "
            "are refused. Default: none.",
            {.value = ValueKind::kFolder});
  rows.List("allowed-media-domains", "",
            "Hosts from which requests may let the server fetch images by http(s) URL; *: every "
            "host with a public address. A host that is listed by name may have a private address. "
            "Redirects are checked, too; no proxy is used. Default: none; under the name vllm: *.",
            {.vllm_default = "*", .trtllm_default = "*"});
  rows.Flag("allow-media-redirects",
            "Follow redirects of images by URL, up to five, each to a host that is allowed.",
            {.default_value = "true", .environment = "VLLM_MEDIA_URL_ALLOW_REDIRECTS"});
  rows.Number("media-fetch-timeout", "5", "Seconds in which an image must come from its URL.",
              {.range = {0.1, 3600}, .environment = "VLLM_IMAGE_FETCH_TIMEOUT"});
  rows.Integer("max-image-pixels", "178956970",
               "Maximum number of pixels of an image; a larger image gets a 400 as soon as its "
               "header is read. At most 178956970, which 0 stands for.",
               {.range = {0, 1e15}, .environment = "VLLM_MAX_IMAGE_PIXELS"});
}

}  // namespace sluice::options

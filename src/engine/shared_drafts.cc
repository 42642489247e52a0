#include "engine/shared_drafts.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/list_folder.h"
#include "base/log.h"
#include "base/mutex.h"
#include "models/decoder.h"

namespace sluice {
namespace {

// The weights of a loaded draft model. They exist as long as a model uses them.
struct Loaded {
  std::weak_ptr<const DecoderWeights> weights;
  InputRounding rounding{};
};

struct Registry {
  Mutex mutex;
  std::map<std::string, Loaded> loaded GUARDED_BY(mutex);
};

Registry& TheRegistry() {
  static Registry registry;
  return registry;
}

// The key of weights in memory: the files, and the packed format.
std::string KeyOf(const std::filesystem::path& folder, const ModelOptions& options,
                  std::string_view quantization) {
  std::error_code error;
  std::vector<std::string> files;
  for (const std::filesystem::path& path : ListFolder(folder, error)) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) continue;
    files.push_back(fmt::format("{} {} {} {} {}.{}\n", path.filename().string(), info.st_dev,
                                info.st_ino, info.st_size, info.st_mtim.tv_sec,
                                info.st_mtim.tv_nsec));
  }
  std::ranges::sort(files);
  std::string key = fmt::format(
      "{}\n{} {} {} {} {}\n", quantization, static_cast<int>(options.compute_type),
      static_cast<int>(options.activation_format), static_cast<int>(options.load_format),
      options.dummy_seed, options.allow_nonfinite);
  for (const std::string& file : files) key += file;
  // Without all of its files, the folder's path must tell it from others.
  if (error) key += folder.string();
  return key;
}

}  // namespace

Result<std::unique_ptr<Model>> LoadSharedDraft(ThreadPool& pool,
                                               const std::filesystem::path& folder,
                                               const ModelConfig& config,
                                               const ModelOptions& options,
                                               std::string_view quantization) {
  Registry& registry = TheRegistry();
  const std::string key = KeyOf(folder, options, quantization);
  {
    const MutexLock lock(registry.mutex);
    std::erase_if(registry.loaded,
                  [](const auto& known) { return known.second.weights.expired(); });
    const auto found = registry.loaded.find(key);
    if (found != registry.loaded.end()) {
      if (auto weights = found->second.weights.lock(); weights != nullptr) {
        LOG_INFO("engine", "the draft model in {} shares the weights that another model loaded",
                 folder.string());
        return DecoderModel::Create(config, options, {}, {}, std::move(weights),
                                    found->second.rounding, pool);
      }
    }
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Model> model, LoadModel(pool, folder, config, options));
  if (const auto* decoder = dynamic_cast<const DecoderModel*>(model.get()); decoder != nullptr) {
    const MutexLock lock(registry.mutex);
    registry.loaded[key] = {decoder->shared_weights(), decoder->rounding()};
  }
  return model;
}

}  // namespace sluice

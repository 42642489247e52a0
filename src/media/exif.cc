#include <cctype>

#include "media/byte_order.h"
#include "media/decoders.h"

namespace sluice {
namespace {

constexpr uint32_t kOrientationTag = 0x0112;
constexpr size_t kEntryBytes = 12;

// Returns the value of Orientation in the first directory of a TIFF structure; 0 if it is missing.
int OrientationOfTiff(std::string_view tiff) {
  if (tiff.substr(0, 6) == std::string_view("Exif\0\0", 6)) tiff.remove_prefix(6);
  if (tiff.size() < 8) return 0;
  const bool little = tiff.substr(0, 2) == "II";
  if (!little && tiff.substr(0, 2) != "MM") return 0;
  auto number16 = [&](size_t at) { return little ? Little16(tiff, at) : Big16(tiff, at); };
  auto number32 = [&](size_t at) { return little ? Little32(tiff, at) : Big32(tiff, at); };
  const size_t directory = number32(4);
  if (directory > tiff.size() - 2) return 0;
  const size_t entries = number16(directory);
  for (size_t i = 0; i < entries; ++i) {
    const size_t at = directory + 2 + i * kEntryBytes;
    if (at + kEntryBytes > tiff.size()) return 0;
    if (number16(at) != kOrientationTag) continue;
    const uint32_t type = number16(at + 2);
    if (number32(at + 4) < 1) return 0;
    if (type == 3) return static_cast<int>(number16(at + 8));
    if (type == 4) return static_cast<int>(number32(at + 8) & 0xFF);
    if (type == 1) return static_cast<int>(ByteAt(tiff, at + 8));
    return 0;
  }
  return 0;
}

// Searches for tiff:Orientation="6" or <tiff:Orientation>6, as Pillow does.
int OrientationOfXmp(std::string_view xmp) {
  constexpr std::string_view kName = "tiff:Orientation";
  for (size_t at = xmp.find(kName); at != std::string_view::npos; at = xmp.find(kName, at + 1)) {
    std::string_view rest = xmp.substr(at + kName.size());
    if (rest.substr(0, 2) == "=\"")
      rest.remove_prefix(2);
    else if (rest.substr(0, 1) == ">")
      rest.remove_prefix(1);
    else
      continue;
    if (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') return rest[0] - '0';
  }
  return 0;
}

}  // namespace

int ReadOrientation(std::string_view exif, std::string_view xmp) {
  int orientation = OrientationOfTiff(exif);
  if (orientation == 0) orientation = OrientationOfXmp(xmp);
  return orientation >= 1 && orientation <= 8 ? orientation : 1;
}

}  // namespace sluice

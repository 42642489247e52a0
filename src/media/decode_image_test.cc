#include "media/decode_image.h"

#include <random>

#include <gtest/gtest.h>
#include <openssl/evp.h>

#include "media/test_images_testing.h"

namespace sluice {
namespace {

// The rows of tests/data/vision/images.jsonl, in order.
const std::vector<TestImage>& TestImages() {
  static const std::vector<TestImage> images = ReadTestImages();
  return images;
}

std::string ImageFile(std::string_view name) {
  for (const TestImage& image : TestImages()) {
    if (image.name == name) return image.bytes;
  }
  ADD_FAILURE() << "no image " << name;
  return "";
}

Result<Image> DecodeWhole(std::string_view bytes, const ImageLimits& limits = {}) {
  ASSIGN_OR_RETURN(const ImageHeader header, ReadImageHeader(bytes, limits));
  return DecodeImage(bytes, header, limits);
}

std::string HexSha256(const std::vector<uint8_t>& bytes) {
  unsigned char digest[32];
  unsigned length = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest, &length, EVP_sha256(), nullptr);
  std::string text;
  for (const unsigned char byte : digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

// images.jsonl holds Pillow's result for each file (tools/vision/make_images.py).
TEST(DecodeImageTest, PixelsEqualThoseOfPillow) {
  int decoded = 0;
  for (const auto& [name, bytes, want] : TestImages()) {
    const Result<Image> image = DecodeWhole(bytes);
    if (want.Find("error") != nullptr) {
      EXPECT_FALSE(image) << name;
      EXPECT_TRUE(image || image.error().code == ErrorCode::kInvalidArgument) << name;
      continue;
    }
    ASSERT_TRUE(image) << name << ": " << image.error().message;
    EXPECT_EQ(image->width, want.Find("size")->as_array()[0].as_integer()) << name;
    EXPECT_EQ(image->height, want.Find("size")->as_array()[1].as_integer()) << name;
    EXPECT_EQ(HexSha256(image->rgb), want.Find("rgb_sha256")->as_string()) << name;
    ++decoded;
  }
  EXPECT_GT(decoded, 50);
}

TEST(DecodeImageTest, SaysWhatIsWrong) {
  EXPECT_EQ(DecodeWhole("").error().message,
            "expected a PNG, JPEG, WebP, GIF or BMP image, found no bytes");
  EXPECT_EQ(DecodeWhole("<svg/>").error().message,
            "expected a PNG, JPEG, WebP, GIF or BMP image, found 6 bytes that begin otherwise");
  EXPECT_EQ(DecodeWhole(ImageFile("cut.jpg")).error().message,
            "damaged JPEG image: the file is truncated");
  EXPECT_EQ(DecodeWhole(ImageFile("zero.png")).error().message,
            "damaged PNG image: its size is 0 x 5 pixels");
}

TEST(DecodeImageTest, RefusesTooManyPixelsFromTheHeader) {
  EXPECT_EQ(DecodeWhole(ImageFile("bomb.png")).error().message,
            "the image has 60000 x 60000 pixels; at most 178956970 pixels are decoded: send a "
            "smaller one");
  ImageLimits limits;
  limits.max_pixels = 23 * 17;
  EXPECT_TRUE(ReadImageHeader(ImageFile("rgb.png"), limits));
  limits.max_pixels -= 1;
  EXPECT_FALSE(ReadImageHeader(ImageFile("rgb.png"), limits));
}

TEST(DecodeImageTest, HeaderTellsSizeAsStoredAndMemory) {
  const ImageHeader header = ReadImageHeader(ImageFile("turned_6.jpg")).value();
  EXPECT_EQ(header.format, ImageFormat::kJpeg);
  EXPECT_EQ(header.width, 20);
  EXPECT_EQ(header.height, 13);
  EXPECT_EQ(header.orientation, 6);
  EXPECT_GE(header.decode_bytes, 2 * 3 * 20 * 13);
}

TEST(DecodeImageTest, ClearPixelsShowTheBackground) {
  ImageLimits limits;
  limits.background = {0, 0, 255};
  const Image white = DecodeWhole(ImageFile("palette_clear.png")).value();
  const Image blue = DecodeWhole(ImageFile("palette_clear.png"), limits).value();
  EXPECT_NE(white.rgb, blue.rgb);
}

TEST(DecodeImageTest, GivesUpWhenTheTimeIsOver) {
  ImageLimits limits;
  limits.max_time = std::chrono::milliseconds(-1);
  for (const char* name : {"rgb.png", "progressive.jpg", "plain.gif"}) {
    const Result<Image> image = DecodeWhole(ImageFile(name), limits);
    ASSERT_FALSE(image) << name;
    EXPECT_NE(image.error().message.find("takes too long"), std::string::npos)
        << image.error().message;
  }
}

// With bytes changed, removed or repeated, the result is an image of the header's size or an error.
TEST(DecodeImageTest, SurvivesDamagedFiles) {
  std::mt19937 random(11);
  ImageLimits limits;
  limits.max_pixels = 1 << 20;
  int whole = 0;
  for (const auto& [name, original, ignored] : TestImages()) {
    if (original.size() < 20) continue;
    for (int round = 0; round < 60; ++round) {
      std::string bytes = original;
      for (uint32_t change = 0; change <= random() % 4; ++change) {
        const size_t at = random() % bytes.size();
        if (random() % 4 == 0)
          bytes.erase(at, random() % 8);
        else
          bytes[at] = static_cast<char>(random());
        if (bytes.empty()) break;
      }
      const Result<Image> image = DecodeWhole(bytes, limits);
      if (!image) continue;
      ++whole;
      ASSERT_EQ(image->rgb.size(), static_cast<size_t>(image->width) * image->height * 3) << name;
    }
  }
  EXPECT_GT(whole, 100);
}

}  // namespace
}  // namespace sluice

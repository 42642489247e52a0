#include "media/encode_jpeg.h"

#include <csetjmp>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>
#include <jpeglib.h>

#include "base/check.h"

namespace sluice {
namespace {

// `errors` must be the first member, because a pointer to it is cast to JpegWriting.
struct JpegWriting {
  jpeg_error_mgr errors;
  jpeg_compress_struct encoder;
  std::jmp_buf on_error;
  unsigned char* bytes = nullptr;  // allocated with malloc
  unsigned long size = 0;
  char problem[JMSG_LENGTH_MAX] = "";
};

[[noreturn]] void FailWriting(j_common_ptr encoder) {
  auto* writing = reinterpret_cast<JpegWriting*>(encoder->err);
  encoder->err->format_message(encoder, writing->problem);
  std::longjmp(writing->on_error, 1);
}

// Has no objects with destructors, because longjmp may leave this function.
bool Write(JpegWriting& writing, const Image& image) {
  jpeg_compress_struct& encoder = writing.encoder;
  encoder.err = jpeg_std_error(&writing.errors);
  writing.errors.error_exit = FailWriting;
  if (setjmp(writing.on_error) != 0) return false;
  jpeg_create_compress(&encoder);
  jpeg_mem_dest(&encoder, &writing.bytes, &writing.size);
  encoder.image_width = static_cast<JDIMENSION>(image.width);
  encoder.image_height = static_cast<JDIMENSION>(image.height);
  encoder.input_components = 3;
  encoder.in_color_space = JCS_RGB;
  jpeg_set_defaults(&encoder);
  jpeg_start_compress(&encoder, TRUE);
  while (encoder.next_scanline < encoder.image_height) {
    // libjpeg only reads the row.
    auto* row = const_cast<JSAMPROW>(image.row(static_cast<int>(encoder.next_scanline)));
    jpeg_write_scanlines(&encoder, &row, 1);
  }
  jpeg_finish_compress(&encoder);
  return true;
}

}  // namespace

Result<std::string> EncodeJpeg(const Image& image) {
  CHECK(image.width > 0 && image.width <= JPEG_MAX_DIMENSION && image.height > 0 &&
        image.height <= JPEG_MAX_DIMENSION);
  JpegWriting writing{};
  const bool written = Write(writing, image);
  Result<std::string> file;
  if (written) {
    file = std::string(reinterpret_cast<const char*>(writing.bytes), writing.size);
  } else {
    file = Fail(ErrorCode::kResourceExhausted,
                fmt::format("an image of {} x {} pixels cannot be encoded: {}", image.width,
                            image.height, writing.problem));
  }
  jpeg_destroy_compress(&writing.encoder);
  std::free(writing.bytes);
  return file;
}

}  // namespace sluice

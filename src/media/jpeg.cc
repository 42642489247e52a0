// Decodes JPEG by libjpeg-turbo with Pillow's settings: exact integer DCT, smooth chroma
// upsampling.
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include <jpeglib.h>

#include "media/byte_order.h"
#include "media/decoders.h"

namespace sluice {
namespace {

// Each scan of a progressive file costs work for the whole image; encoders write about ten.
constexpr int kMaxScans = 100;

// State of libjpeg's callbacks. `errors` must be the first member, because a pointer to it is cast
// to JpegReading.
struct JpegReading {
  jpeg_error_mgr errors;
  jpeg_decompress_struct decoder;
  jpeg_source_mgr source;
  jpeg_progress_mgr progress;
  std::jmp_buf on_error;
  DecodeDeadline deadline;
  char problem[JMSG_LENGTH_MAX] = "";
};

[[noreturn]] void FailJpeg(j_common_ptr decoder, const char* problem) {
  auto* reading = reinterpret_cast<JpegReading*>(decoder->err);
  std::strncpy(reading->problem, problem, sizeof reading->problem - 1);
  std::longjmp(reading->on_error, 1);
}

void JpegError(j_common_ptr decoder) {
  char message[JMSG_LENGTH_MAX];
  decoder->err->format_message(decoder, message);
  FailJpeg(decoder, message);
}

void JpegMessage(j_common_ptr, int) {}

void InitSource(j_decompress_ptr) {}

boolean FillInput(j_decompress_ptr decoder) {
  FailJpeg(reinterpret_cast<j_common_ptr>(decoder), "the file is truncated");
}

void SkipInput(j_decompress_ptr decoder, long count) {
  if (count <= 0) return;
  if (static_cast<size_t>(count) > decoder->src->bytes_in_buffer) FillInput(decoder);
  decoder->src->next_input_byte += count;
  decoder->src->bytes_in_buffer -= static_cast<size_t>(count);
}

void TermSource(j_decompress_ptr) {}

void CheckProgress(j_common_ptr common) {
  auto* reading = reinterpret_cast<JpegReading*>(common->err);
  if (reading->decoder.input_scan_number > kMaxScans) FailJpeg(common, "it has too many scans");
  if (std::chrono::steady_clock::now() > reading->deadline) FailJpeg(common, "it takes too long");
}

void InitReading(JpegReading& reading, std::string_view bytes, DecodeDeadline deadline) {
  std::memset(&reading.decoder, 0, sizeof reading.decoder);
  reading.decoder.err = jpeg_std_error(&reading.errors);
  reading.errors.error_exit = JpegError;
  reading.errors.emit_message = JpegMessage;
  reading.deadline = deadline;
  std::memset(&reading.source, 0, sizeof reading.source);
  reading.source.init_source = InitSource;
  reading.source.fill_input_buffer = FillInput;
  reading.source.skip_input_data = SkipInput;
  reading.source.resync_to_restart = jpeg_resync_to_restart;
  reading.source.term_source = TermSource;
  reading.source.next_input_byte = reinterpret_cast<const JOCTET*>(bytes.data());
  reading.source.bytes_in_buffer = bytes.size();
  std::memset(&reading.progress, 0, sizeof reading.progress);
  reading.progress.progress_monitor = CheckProgress;
}

bool BeginJpeg(JpegReading& reading) {
  if (setjmp(reading.on_error)) return false;
  jpeg_create_decompress(&reading.decoder);
  reading.decoder.src = &reading.source;
  reading.decoder.progress = &reading.progress;
  jpeg_read_header(&reading.decoder, TRUE);
  return true;
}

bool ReadJpegRows(JpegReading& reading, uint8_t* out, size_t row_bytes) {
  if (setjmp(reading.on_error)) return false;
  jpeg_start_decompress(&reading.decoder);
  while (reading.decoder.output_scanline < reading.decoder.output_height) {
    JSAMPROW row = out + row_bytes * reading.decoder.output_scanline;
    jpeg_read_scanlines(&reading.decoder, &row, 1);
  }
  return true;
}

// Chooses the output color space by the number of components; Pillow supports no other numbers.
bool ChooseColors(jpeg_decompress_struct& decoder, StoredPixels& pixels) {
  using Mode = StoredPixels::Mode;
  switch (decoder.num_components) {
    case 1:
      decoder.out_color_space = JCS_GRAYSCALE;
      pixels.mode = Mode::kGray;
      return true;
    case 3:
      decoder.out_color_space = JCS_RGB;
      pixels.mode = Mode::kRgb;
      return true;
    case 4:
      decoder.out_color_space = JCS_CMYK;
      pixels.mode = Mode::kCmyk;
      return true;
    default: return false;
  }
}

Result<StoredPixels> ReadJpeg(JpegReading& reading) {
  if (!BeginJpeg(reading)) return DamagedImage(ImageFormat::kJpeg, reading.problem);
  StoredPixels pixels;
  if (!ChooseColors(reading.decoder, pixels))
    return DamagedImage(ImageFormat::kJpeg, "it has neither 1, 3 nor 4 channels");
  const size_t row_bytes =
      static_cast<size_t>(reading.decoder.image_width) * ChannelsOf(pixels.mode);
  pixels.data.resize(row_bytes * reading.decoder.image_height);
  if (!ReadJpegRows(reading, pixels.data.data(), row_bytes))
    return DamagedImage(ImageFormat::kJpeg, reading.problem);
  if (pixels.mode == StoredPixels::Mode::kCmyk) {  // Adobe stores inverted CMYK
    for (uint8_t& value : pixels.data) value = 255 - value;
  }
  return pixels;
}

// Data from the markers before the first scan: size, number of channels, EXIF, XMP.
struct JpegMarkers {
  StoredHeader header;
  bool has_frame = false;
  bool keeps_coefficients = false;  // whether the file is known to have several scans
  int channels = 0;
};

bool IsFrame(uint32_t marker) {
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

void ReadSegment(uint32_t marker, std::string_view segment, JpegMarkers& found) {
  constexpr std::string_view kExif("Exif\0\0", 6);
  constexpr std::string_view kXmp("http://ns.adobe.com/xap/1.0/\0", 29);
  if (IsFrame(marker) && segment.size() >= 6 && !found.has_frame) {
    found.has_frame = true;
    found.header.height = Big16(segment, 1);
    found.header.width = Big16(segment, 3);
    found.channels = static_cast<int>(ByteAt(segment, 5));
    found.keeps_coefficients = marker == 0xC2 || marker == 0xCA;
  } else if (marker == 0xE1 && segment.starts_with(kExif) && found.header.exif.empty()) {
    found.header.exif = segment;
  } else if (marker == 0xE1 && segment.starts_with(kXmp)) {
    found.header.xmp = segment.substr(kXmp.size());
  } else if (marker == 0xDA && !segment.empty() &&
             static_cast<int>(ByteAt(segment, 0)) < found.channels) {
    found.keeps_coefficients = true;
  }
}

}  // namespace

Result<StoredHeader> ReadJpegHeader(std::string_view bytes) {
  JpegMarkers found;
  size_t at = 2;
  while (bytes.size() - at >= 4) {
    if (ByteAt(bytes, at) != 0xFF)
      return DamagedImage(ImageFormat::kJpeg, "bytes between its markers");
    const uint32_t marker = ByteAt(bytes, at + 1);
    if (marker == 0xFF) {  // padding
      ++at;
      continue;
    }
    if (marker == 0x01 || (marker >= 0xD0 && marker <= 0xD8)) {  // markers without a length
      at += 2;
      continue;
    }
    const size_t length = Big16(bytes, at + 2);
    if (length < 2 || length > bytes.size() - at - 2) break;
    ReadSegment(marker, bytes.substr(at + 4, length - 2), found);
    if (marker == 0xDA) break;
    at += 2 + length;
  }
  if (!found.has_frame) return DamagedImage(ImageFormat::kJpeg, "it has no header");
  const int64_t count = found.header.width * found.header.height;
  // Memory for samples, or for two-byte coefficients in 8 x 8 blocks (sides rounded up to 32), and
  // for the decoder's rows.
  const int64_t padded = (found.header.width + 32) * (found.header.height + 32);
  found.header.work_bytes =
      count * 4 + (found.keeps_coefficients ? padded * 2 * std::max(found.channels, 1) : 0) +
      found.header.width * 512 + (1 << 20);
  return found.header;
}

Result<StoredPixels> DecodeJpeg(std::string_view bytes, DecodeDeadline deadline) {
  JpegReading reading;
  InitReading(reading, bytes, deadline);
  Result<StoredPixels> pixels = ReadJpeg(reading);
  jpeg_destroy_decompress(&reading.decoder);
  return pixels;
}

}  // namespace sluice

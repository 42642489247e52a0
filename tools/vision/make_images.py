#!/usr/bin/env python3
"""Writes small images of every kind that src/media decodes, and the results of Pillow.

Usage: make_images.py FILE. Needs pillow 13 and numpy. Writes a JSON line for each image: its name, its bytes in
base64, its size after EXIF rotation, and the SHA-256 of its RGB bytes with alpha blended over white; or `error` if Pillow rejects it.
"""
import base64
import hashlib
import io
import json
import pathlib
import random
import struct
import sys
import zlib

import numpy
from PIL import Image, ImageOps

RANDOM = random.Random(7)
NUMPY = numpy.random.default_rng(7)


def smooth(width, height, channels):
    """Waves with a little noise: neither flat nor pure noise, so that filters and codecs have work to do."""
    y, x = numpy.mgrid[0:height, 0:width]
    planes = [127 + 90 * numpy.sin(x / (3 + c) + c) * numpy.cos(y / (4 + c)) for c in range(channels)]
    noise = NUMPY.integers(-30, 30, (height, width, channels))
    return numpy.clip(numpy.stack(planes, -1) + noise, 0, 255).astype(numpy.uint8)


def picture(mode, width, height):
    if mode in ("L", "1", "P"):
        image = Image.fromarray(smooth(width, height, 1)[..., 0])
        return image.convert(mode) if mode != "P" else Image.fromarray(smooth(width, height, 3)).quantize(17)
    if mode == "LA":
        return Image.merge("LA", [Image.fromarray(smooth(width, height, 1)[..., 0]) for _ in range(2)])
    if mode == "I;16":
        return Image.fromarray(NUMPY.integers(0, 700, (height, width)).astype(numpy.uint16))
    return Image.fromarray(smooth(width, height, {"RGB": 3, "RGBA": 4, "CMYK": 4}[mode]), mode if mode == "CMYK" else None)


def encoded(image, form, **settings):
    out = io.BytesIO()
    image.save(out, form, **settings)
    return out.getvalue()


def exif(orientation):
    values = Image.Exif()
    values[0x0112] = orientation
    return values


def png(width, height, depth, kind, rows, chunks=b"", interlaced=False):
    """A PNG of raw rows, unfiltered, for depths and colors that Pillow does not write."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    head = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, int(interlaced))
    body = zlib.compress(b"".join(b"\0" + row for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunks + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def interlaced_rows(pixels):
    """The rows of Adam7's seven passes over an array [height, width, bytes]."""
    rows = []
    for top, left, down, across in ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)):
        part = pixels[top::down, left::across]
        if part.size:
            rows += [row.tobytes() for row in part]
    return rows


def bmp(width, height, bits, rows, compression=0, palette=b"", masks=b"", flip=False, header=40):
    data = b"".join(rows)
    at = 14 + header + len(masks) * (header == 40) + len(palette)
    info = struct.pack("<IiiHHIIiiII", header, width, -height if flip else height, 1, bits, compression, len(data), 0, 0,
                       len(palette) // 4, 0)
    if header > 40:
        info += masks.ljust(header - 40, b"\0")
        masks = b""
    return b"BM" + struct.pack("<IHHI", at + len(data), 0, 0, at) + info + masks + palette + data


def files():
    """(name, bytes) of every image."""
    modes = {"RGB": "rgb", "RGBA": "rgba", "L": "gray", "LA": "gray_alpha", "1": "one_bit", "P": "palette", "I;16": "gray16"}
    for mode, name in modes.items():
        yield name + ".png", encoded(picture(mode, 23, 17), "PNG")
    wide = smooth(11, 9, 6)
    yield "rgb16.png", png(11, 9, 16, 2, [row.tobytes() for row in wide])
    yield "rgba16.png", png(7, 5, 16, 6, [row.tobytes() for row in smooth(7, 5, 8)])
    yield "gray_alpha16.png", png(7, 5, 16, 4, [row.tobytes() for row in smooth(7, 5, 4)])
    yield "gray4.png", png(9, 6, 4, 0, [row.tobytes() for row in smooth(5, 6, 1)])
    yield "gray2.png", png(9, 6, 2, 0, [row.tobytes() for row in smooth(3, 6, 1)])
    yield "gray_clear.png", png(16, 6, 8, 0, [row.tobytes() for row in smooth(16, 6, 1) // 16 * 16], chunk(b"tRNS", struct.pack(">H", 112)))
    color = numpy.array([10, 200, 30], numpy.uint8)
    some = smooth(16, 6, 3)
    some[::2, ::3] = color
    yield "rgb_clear.png", png(16, 6, 8, 2, [row.tobytes() for row in some], chunk(b"tRNS", struct.pack(">HHH", *color)))
    colors = chunk(b"PLTE", bytes(RANDOM.randrange(256) for _ in range(3 * 3)))
    yield "palette2_short.png", png(10, 5, 2, 3, [bytes(RANDOM.randrange(256) & 0b10101010 for _ in range(3)) for _ in range(5)], colors)
    yield "palette_clear.png", png(8, 4, 8, 3, [bytes(RANDOM.randrange(3) for _ in range(8)) for _ in range(4)], colors + chunk(b"tRNS", bytes([0, 90])))
    yield "interlaced.png", png(19, 13, 8, 2, interlaced_rows(smooth(19, 13, 3)), interlaced=True)
    yield "turned.png", encoded(picture("RGB", 9, 5), "PNG", exif=exif(8))
    whole = encoded(picture("RGB", 40, 30), "PNG")
    yield "cut.png", whole[:len(whole) * 2 // 3]
    yield "no_end.png", whole[:-12]
    yield "zero.png", png(0, 5, 8, 2, [])
    yield "bomb.png", png(60000, 60000, 8, 2, [])
    for turn in range(1, 9):
        yield "turned_%d.jpg" % turn, encoded(picture("RGB", 20, 13), "JPEG", quality=80, exif=exif(turn))
    yield "gray.jpg", encoded(picture("L", 33, 21), "JPEG", quality=85)
    yield "cmyk.jpg", encoded(picture("CMYK", 24, 18), "JPEG", quality=90)
    yield "progressive.jpg", encoded(picture("RGB", 50, 37), "JPEG", quality=70, progressive=True)
    yield "full_color.jpg", encoded(picture("RGB", 31, 29), "JPEG", quality=92, subsampling=0)
    yield "half_color.jpg", encoded(picture("RGB", 31, 29), "JPEG", quality=60, subsampling=1)
    yield "restarts.jpg", encoded(picture("RGB", 60, 20), "JPEG", quality=60, restart_marker_blocks=2)
    whole = encoded(picture("RGB", 40, 30), "JPEG", quality=90)
    yield "cut.jpg", whole[:len(whole) // 2]
    yield "no_end.jpg", whole[:-2]
    yield "lossy.webp", encoded(picture("RGB", 37, 23), "WEBP", quality=70)
    yield "lossless.webp", encoded(picture("RGB", 20, 23), "WEBP", lossless=True)
    yield "alpha.webp", encoded(picture("RGBA", 21, 17), "WEBP", quality=60)
    yield "turned.webp", encoded(picture("RGB", 21, 17), "WEBP", lossless=True, exif=exif(6))
    frames = [picture("RGBA", 16, 12) for _ in range(3)]
    yield "moving.webp", encoded(frames[0], "WEBP", save_all=True, append_images=frames[1:], lossless=True)
    yield "cut.webp", encoded(picture("RGB", 40, 30), "WEBP", quality=90)[:-200]
    yield "plain.gif", encoded(picture("P", 25, 14), "GIF")
    yield "interlaced.gif", encoded(picture("P", 25, 27), "GIF", interlace=1)
    yield "gray.gif", encoded(picture("L", 40, 40), "GIF")
    yield "clear.gif", encoded(picture("P", 25, 14), "GIF", transparency=3)
    frames = [picture("P", 20, 15) for _ in range(3)]
    yield "moving.gif", encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    whole = encoded(picture("P", 60, 40), "GIF")
    yield "cut.gif", whole[:len(whole) // 2]
    small = bytearray(encoded(picture("P", 10, 8), "GIF", transparency=2))
    small[6:10] = struct.pack("<HH", 14, 11)  # the canvas is larger than the frame
    yield "canvas.gif", bytes(small)
    yield "plain.bmp", encoded(picture("RGB", 13, 9), "BMP")
    yield "palette.bmp", encoded(picture("P", 13, 9), "BMP")
    yield "one_bit.bmp", encoded(picture("1", 13, 9), "BMP")
    yield "gray.bmp", encoded(picture("L", 13, 9), "BMP")
    palette = bytes(RANDOM.randrange(256) for _ in range(4 * 16))
    yield "palette4.bmp", bmp(7, 5, 4, [bytes(RANDOM.randrange(256) for _ in range(4)) for _ in range(5)], palette=palette)
    yield "from_top.bmp", bmp(8, 3, 24, [bytes(RANDOM.randrange(256) for _ in range(24)) for _ in range(3)], flip=True)
    yield "b555.bmp", bmp(4, 3, 16, [bytes(RANDOM.randrange(256) for _ in range(8)) for _ in range(3)])
    yield "b565.bmp", bmp(4, 3, 16, [bytes(RANDOM.randrange(256) for _ in range(8)) for _ in range(3)], 3,
                          masks=struct.pack("<III", 0xF800, 0x7E0, 0x1F))
    yield "bgrx.bmp", bmp(4, 3, 32, [bytes(RANDOM.randrange(256) for _ in range(16)) for _ in range(3)])
    yield "bgra.bmp", bmp(4, 3, 32, [bytes(RANDOM.randrange(256) for _ in range(16)) for _ in range(3)], 3, header=108,
                          masks=struct.pack("<IIII", 0xFF0000, 0xFF00, 0xFF, 0xFF000000))
    runs = [bytes([6, 3, 0, 0]), bytes([0, 5, 1, 2, 3, 4, 5, 0, 1, 7, 0, 0]), bytes([2, 9, 0, 2, 1, 0, 3, 4, 0, 1])]
    yield "runs8.bmp", bmp(6, 3, 8, runs, 1, palette=bytes(range(64)))
    yield "runs4.bmp", bmp(6, 2, 4, [bytes([6, 0x35, 0, 0]), bytes([0, 3, 0x12, 0x30, 3, 0x45, 0, 1])], 2, palette=palette)
    yield "cut.bmp", encoded(picture("RGB", 13, 9), "BMP")[:-20]
    yield "text.png", b"this is no image at all"
    yield "empty.png", b""


def rgb(data):
    """An image file as RGB: its first frame, rotated as EXIF requires, with alpha blended over white."""
    image = Image.open(io.BytesIO(data))
    image.seek(0)
    image.load()
    image = ImageOps.exif_transpose(image)
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        clear = image.convert("RGBA")
        image = Image.new("RGB", clear.size, (255, 255, 255))
        image.paste(clear, mask=clear.split()[3])
    return image.convert("RGB")


def decoded(data):
    try:
        image = rgb(data)
    except Exception as e:  # any exception of Pillow is a rejection
        return {"error": type(e).__name__}
    return {"size": list(image.size), "rgb_sha256": hashlib.sha256(image.tobytes()).hexdigest()}


def main():
    rows = [{"name": name, **decoded(data), "base64": base64.b64encode(data).decode()} for name, data in files()]
    pathlib.Path(sys.argv[1]).write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()

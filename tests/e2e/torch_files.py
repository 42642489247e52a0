"""Writes tensor files as torch.save does, without torch."""
import array
import base64
import io
import json
import pathlib
import struct
import zipfile


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def pickled(kind, shape):
    """The pickle of a dense tensor whose numbers are in the file data/0."""
    count = 1
    for size in shape:
        count *= size
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)

    def numbers(values):
        return b"(" + b"".join(b"J" + struct.pack("<i", value) for value in values) + b"t"

    return (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nq\x00((" + text("storage") + b"q\x01ctorch\n" + kind.encode() + b"\nq\x02"
            + text("0") + b"q\x03" + text("cpu") + b"q\x04J" + struct.pack("<i", count) + b"tq\x05QK\x00" + numbers(shape) + b"q\x06"
            + numbers(strides) + b"q\x07\x89ccollections\nOrderedDict\nq\x08)Rq\ttq\nRq\x0b.")


def archive(parts):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as file:
        for name, content in parts.items():
            file.writestr("archive/" + name, content)
    return out.getvalue()


def saved(rows, kind="FloatStorage", shape=None):
    """A tensor file as base64: rows of float32 numbers, or the bytes of another type with the given shape."""
    if kind == "FloatStorage":
        shape = shape or [len(rows), len(rows[0])]
        rows = b"".join(array.array("f", row).tobytes() for row in rows)
    return base64.b64encode(archive({"data.pkl": pickled(kind, shape), "byteorder": "little", "data/0": rows, "version": "3\n"})).decode()


def embedding(folder, name="model.embed_tokens.weight"):
    """(width, bytes of each row) of a BF16 table in a single-file checkpoint."""
    data = (pathlib.Path(folder) / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    entry = json.loads(data[8:8 + size])[name]
    assert entry["dtype"] == "BF16"
    begin, width = 8 + size + entry["data_offsets"][0], entry["shape"][1]
    return width, [data[begin + 2 * width * i:begin + 2 * width * (i + 1)] for i in range(entry["shape"][0])]


def floats(row):
    """The values of BF16 numbers given as bytes."""
    return [value[0] for value in struct.iter_unpack("<f", b"".join(b"\0\0" + row[i:i + 2] for i in range(0, len(row), 2)))]

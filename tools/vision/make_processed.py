#!/usr/bin/env python3
"""Writes the results of transformers' image processors for the images of make_images.py.

Usage: make_processed.py IMAGES.jsonl OUT. Needs transformers 5, torch, torchvision and pillow. OUT/processors.json holds
settings of each kind of processor, most with small sizes, and OUT/published_processors.json those of published models.
OUT/processed.jsonl and OUT/published_processed.jsonl have a row per processor and image: shape and grid of the pixel values,
the SHA-256 of their float32 bytes, and the number of soft tokens for the image; or `error` if the processor refuses the image.
"""
import base64
import hashlib
import json
import pathlib
import sys
import types

import torch
import transformers
from make_images import rgb
from PIL import Image

HALF = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
CLIP = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
# name: (class, model_type, preprocessor_config.json, processor_config.json, overrides)
LANCZOS, BILINEAR, BICUBIC = {"resample": 1}, {"resample": 2}, {"resample": 3}
QWEN = {"patch_size": 14, "temporal_patch_size": 2, "merge_size": 2}
PROCESSORS = {
    "llama4": ("Llama4ImageProcessor", "llama4", {"size": {"height": 56, "width": 56}, "max_patches": 16, **BILINEAR, **HALF}, {"patch_size": 14}, {}),
    "llama4 six tiles": ("Llama4ImageProcessor", "llama4", {"size": {"height": 28, "width": 28}, "max_patches": 6, **BILINEAR, **HALF},
                         {"patch_size": 7}, {}),
    "llama4 largest": ("Llama4ImageProcessor", "llama4", {"size": {"height": 28, "width": 28}, "max_patches": 5, "resize_to_max_canvas": True,
                                                          **BILINEAR, **HALF}, {"patch_size": 7}, {}),
    "gemma3": ("Gemma3ImageProcessor", "gemma3", {"size": {"height": 70, "width": 70}, **BILINEAR, **HALF}, {"image_seq_length": 16}, {}),
    "gemma3 crops": ("Gemma3ImageProcessor", "gemma3", {"size": {"height": 42, "width": 42}, **BILINEAR, **HALF}, {"image_seq_length": 9},
                     {"do_pan_and_scan": True, "pan_and_scan_min_crop_size": 8, "pan_and_scan_max_num_crops": 4,
                      "pan_and_scan_min_ratio_to_activate": 1.2}),
    "gemma4": ("Gemma4ImageProcessor", "gemma4", {"patch_size": 4, "max_soft_tokens": 70, "pooling_kernel_size": 3, "do_normalize": False,
                                                  "image_mean": [0.0] * 3, "image_std": [1.0] * 3, **BICUBIC}, {}, {}),
    "qwen2.5-vl": ("Qwen2VLImageProcessor", "qwen2_5_vl", {"min_pixels": 3136, "max_pixels": 12845056, **QWEN, **CLIP}, {}, {}),
    "qwen3-vl": ("Qwen2VLImageProcessor", "qwen3_vl", {"size": {"longest_edge": 8192, "shortest_edge": 1024}, **QWEN, **HALF, "patch_size": 16}, {}, {}),
    "dots.ocr": ("Qwen2VLImageProcessor", "dots_ocr", {"min_pixels": 784, "max_pixels": 3000, **QWEN, **CLIP, "temporal_patch_size": 1}, {}, {}),
    "glm-ocr": ("Glm46VImageProcessor", "glm_ocr", {"size": {"shortest_edge": 3000, "longest_edge": 9000}, **QWEN, **CLIP}, {}, {}),
    "paddleocr-vl": ("PaddleOCRVLImageProcessor", "paddleocr_vl", {"min_pixels": 3000, "max_pixels": 6000, **QWEN, **HALF, **BICUBIC,
                                                                   "temporal_patch_size": 1}, {}, {}),
    "pixtral": ("PixtralImageProcessor", "pixtral", {"size": {"longest_edge": 30}, "patch_size": {"height": 4, "width": 4}, **BICUBIC, **CLIP},
                {"patch_size": 4}, {}),
    "mistral3": ("PixtralImageProcessor", "mistral3", {"size": {"longest_edge": 45}, "patch_size": 7, **BICUBIC, **CLIP},
                 {"patch_size": 7, "spatial_merge_size": 2}, {}),
    "qwen2-vl": ("Qwen2VLImageProcessor", "qwen2_vl", {"min_pixels": 1000, "max_pixels": 5000, **QWEN, **CLIP}, {}, {}),
    "glm4v": ("Glm4vImageProcessor", "glm4v", {"size": {"shortest_edge": 2000, "longest_edge": 8000}, **QWEN, **CLIP}, {}, {}),
    "clip": ("CLIPImageProcessor", "llava", {"size": {"shortest_edge": 28}, "crop_size": {"height": 28, "width": 28}, **BICUBIC, **CLIP},
             {"patch_size": 7, "num_additional_image_tokens": 1, "vision_feature_select_strategy": "default"}, {}),
    "clip, a crop larger than the image": ("CLIPImageProcessor", "llava", {"size": 21, "crop_size": 28, **BICUBIC, **CLIP}, {"patch_size": 7}, {}),
    "clip without a crop": ("CLIPImageProcessor", "llava", {"size": {"height": 28, "width": 35}, "do_center_crop": False, **BILINEAR, **CLIP},
                            {"patch_size": 7}, {}),
    "llava, padded": ("LlavaImageProcessor", "llava", {"size": {"shortest_edge": 28}, "crop_size": {"height": 28, "width": 28}, "do_pad": True,
                                                       **BICUBIC, **CLIP}, {"patch_size": 7}, {}),
    "siglip": ("SiglipImageProcessor", "llava", {"size": {"height": 32, "width": 32}, **BICUBIC, **HALF}, {"patch_size": 8}, {}),
    "internvl": ("GotOcr2ImageProcessor", "internvl", {"size": {"height": 28, "width": 28}, **BICUBIC, **CLIP}, {"image_seq_length": 4},
                 {"crop_to_patches": True}),
    "internvl, few tiles": ("GotOcr2ImageProcessor", "internvl", {"size": {"height": 28, "width": 28}, "min_patches": 2, "max_patches": 4,
                                                                  **BICUBIC, **CLIP}, {"image_seq_length": 4}, {"crop_to_patches": True}),
    "internvl, whole": ("GotOcr2ImageProcessor", "internvl", {"size": {"height": 28, "width": 28}, **BICUBIC, **CLIP}, {"image_seq_length": 4},
                        {"crop_to_patches": False}),
    "aya": ("GotOcr2ImageProcessor", "aya_vision", {"size": {"height": 28, "width": 28}, **BICUBIC, **CLIP},
            {"patch_size": 7, "downsample_factor": 2, "img_size": 28}, {"crop_to_patches": True}),
    "kimi-k2.5": ("Kimi_K25ImageProcessor", "kimi_k25", {"size": {"max_height": 12, "max_width": 12}, "max_patches": 70, "patch_size": 7,
                                                         "merge_size": 2, **BICUBIC, **HALF}, {}, {}),
    "llava-next": ("LlavaNextImageProcessor", "llava_next", {"size": {"shortest_edge": 28}, "crop_size": {"height": 28, "width": 28}, **BICUBIC,
                                                             "image_grid_pinpoints": [[28, 56], [56, 28], [56, 56], [84, 28], [28, 84]], **CLIP},
                   {"patch_size": 7, "num_additional_image_tokens": 1, "vision_feature_select_strategy": "default"}, {}),
    "idefics3": ("Idefics3ImageProcessor", "idefics3", {"size": {"longest_edge": 80}, "max_image_size": {"longest_edge": 28}, **LANCZOS, **HALF},
                 {"image_seq_len": 4}, {}),
    "smolvlm": ("SmolVLMImageProcessor", "smolvlm", {"size": {"longest_edge": 48}, "max_image_size": {"longest_edge": 24}, **BICUBIC, **HALF},
                {"image_seq_len": 4}, {}),
    "idefics3, whole": ("Idefics3ImageProcessor", "idefics3", {"size": {"longest_edge": 50}, "max_image_size": {"longest_edge": 28},
                                                               "do_image_splitting": False, **LANCZOS, **HALF}, {"image_seq_len": 4}, {}),
    "lfm2-vl": ("Lfm2VlImageProcessor", "lfm2_vl", {"downsample_factor": 2, "encoder_patch_size": 4, "tile_size": 32, "min_tiles": 2, "max_tiles": 6,
                                                    "min_image_tokens": 4, "max_image_tokens": 16, **BILINEAR, **HALF}, {}, {}),
    "lfm2-vl, whole": ("Lfm2VlImageProcessor", "lfm2_vl", {"downsample_factor": 2, "encoder_patch_size": 4, "tile_size": 32,
                                                           "do_image_splitting": False, "min_image_tokens": 4, "max_image_tokens": 16, **BILINEAR,
                                                           **HALF}, {}, {}),
}
QWEN3 = {**QWEN, **HALF, "patch_size": 16}
PADDLE = {**QWEN, **HALF, **BICUBIC, "temporal_patch_size": 1}
# Settings as published with the models.
PUBLISHED = {
    "Llama 4 Scout": ("Llama4ImageProcessor", "llama4", {"size": {"height": 336, "width": 336}, "max_patches": 16, **BILINEAR, **HALF},
                      {"patch_size": 14}, {}),
    "Gemma 3 4B": ("Gemma3ImageProcessor", "gemma3", {"size": {"height": 896, "width": 896}, **BILINEAR, **HALF}, {"image_seq_length": 256}, {}),
    "Gemma 3 4B, crops": ("Gemma3ImageProcessor", "gemma3", {"size": {"height": 896, "width": 896}, **BILINEAR, **HALF},
                          {"image_seq_length": 256}, {"do_pan_and_scan": True, "pan_and_scan_min_crop_size": 256,
                                                      "pan_and_scan_max_num_crops": 4, "pan_and_scan_min_ratio_to_activate": 1.2}),
    "Gemma 4": ("Gemma4ImageProcessor", "gemma4", {"patch_size": 16, "max_soft_tokens": 280, "pooling_kernel_size": 3, "do_normalize": False,
                                                   "image_mean": [0.0] * 3, "image_std": [1.0] * 3, **BICUBIC}, {}, {}),
    "Qwen2.5-VL 7B": ("Qwen2VLImageProcessor", "qwen2_5_vl", {"min_pixels": 3136, "max_pixels": 12845056, **QWEN, **CLIP}, {}, {}),
    "Qwen3-VL 2B": ("Qwen2VLImageProcessor", "qwen3_vl", {"size": {"longest_edge": 16777216, "shortest_edge": 65536}, **QWEN3}, {}, {}),
    "Qwen3.5 9B, small": ("Qwen2VLImageProcessor", "qwen3_5", {"size": {"longest_edge": 200704, "shortest_edge": 65536}, **QWEN3}, {}, {}),
    "Pixtral 12B": ("PixtralImageProcessor", "pixtral", {"size": {"longest_edge": 1024}, "patch_size": {"height": 16, "width": 16}, **BICUBIC,
                                                         **CLIP}, {"patch_size": 16}, {}),
    "Mistral Small 3.1": ("PixtralImageProcessor", "mistral3", {"size": {"longest_edge": 1540}, "patch_size": 14, **BICUBIC, **CLIP},
                          {"patch_size": 14, "spatial_merge_size": 2}, {}),
    "PaddleOCR-VL": ("PaddleOCRVLImageProcessor", "paddleocr_vl", {"min_pixels": 147384, "max_pixels": 2822400, **PADDLE}, {}, {}),
    "PaddleOCR-VL 1.5": ("PaddleOCRVLImageProcessor", "paddleocr_vl", {"min_pixels": 112896, "max_pixels": 1003520, **PADDLE}, {}, {}),
    "GLM-OCR": ("Glm46VImageProcessor", "glm_ocr", {"size": {"shortest_edge": 12544, "longest_edge": 9633792}, **QWEN, **CLIP}, {}, {}),
    "dots.ocr": ("Qwen2VLImageProcessor", "dots_ocr", {"min_pixels": 3136, "max_pixels": 11289600, **QWEN, **CLIP, "temporal_patch_size": 1},
                 {}, {}),
    "Aya Vision 8B": ("GotOcr2ImageProcessor", "aya_vision", {"size": {"height": 364, "width": 364}, **BICUBIC, **HALF},
                      {"patch_size": 14, "downsample_factor": 2, "img_size": 364}, {"crop_to_patches": True}),
    "Kimi K2.5": ("Kimi_K25ImageProcessor", "kimi_k25", {"size": {"max_height": 512, "max_width": 512}, "max_patches": 16384, "patch_size": 14,
                                                         "merge_size": 2, **BICUBIC, **HALF}, {}, {}),
}
# Processors of models that need the numbers of rows and columns of tiles.
TILED = ("Idefics3ImageProcessor", "SmolVLMImageProcessor", "Lfm2VlImageProcessor")
IMAGES = ["rgb.png", "turned_6.jpg", "progressive.jpg", "gray.jpg", "lossy.webp", "interlaced.gif", "b565.bmp"]
# Images of other kinds, for the published settings.
MORE_IMAGES = ["rgba.png", "palette_clear.png", "palette.png", "gray16.png", "one_bit.png", "cmyk.jpg", "alpha.webp", "moving.gif", "b555.bmp"]
# Further images (width, height), filled by repeating a small image.
SHAPES = [(1, 1), (211, 3), (3, 205), (600, 3), (97, 61), (64, 128)]
MORE_SHAPES = [(20000, 1), (1, 20000), (1201, 799), (401, 2)]


def pictures(path, names, shapes):
    rows = {row["name"]: row for row in map(json.loads, path.read_text().splitlines())}

    def opened(name):
        return rgb(base64.b64decode(rows[name]["base64"]))
    for name in names:
        yield name, opened(name)
    base = opened("progressive.jpg")
    for width, height in shapes:  # repeated, so that any program can make the same images
        image = Image.new("RGB", (width, height))
        for x in range(0, width, base.width):
            for y in range(0, height, base.height):
                image.paste(base, (x, y))
        yield "%dx%d" % (width, height), image


def row(processor, kind, settings, extra, call, image):
    arguments = dict(call)
    if kind == "PixtralImageProcessor":
        arguments["patch_size"] = extra["patch_size"] * extra.get("spatial_merge_size", 1)
    if kind in TILED:
        arguments["return_row_col_info"] = True
    try:
        out = processor(images=image, return_tensors="pt", **arguments)
    except Exception as e:  # noqa: BLE001 - any exception of the processor is a refusal
        return {"error": type(e).__name__}
    values = out["pixel_values"].to(torch.float32)
    if kind == "Gemma4ImageProcessor":
        values = values[0, :int((out["image_position_ids"][0, :, 0] >= 0).sum())]
    if kind in ("PixtralImageProcessor", "LlavaNextImageProcessor") or "max_image_size" in settings:
        values = values[0]
    if kind == "Lfm2VlImageProcessor":  # tiles and the whole image have different shapes: concatenated without padding
        values = torch.cat([part[:int(shape.prod())] for part, shape in zip(values, out["spatial_shapes"])])
    found = {"shape": list(values.shape), "sha256": hashlib.sha256(values.contiguous().numpy().tobytes()).hexdigest()}
    if "image_grid_thw" in out:
        found["grid"] = out["image_grid_thw"][0].tolist()
        found["soft_tokens"] = int(out["image_grid_thw"].prod()) // settings["merge_size"] ** 2
    elif "aspect_ratios" in out:
        found["tiles"] = [int(v) for v in out["aspect_ratios"][0]]
    elif kind == "LlavaNextImageProcessor":
        counter = types.SimpleNamespace(image_processor=processor, image_token="x", **extra)
        for method in ("_get_number_of_features", "_get_unpadded_features"):
            setattr(counter, method, types.MethodType(getattr(transformers.LlavaNextProcessor, method), counter))
        found["soft_tokens"] = len(transformers.LlavaNextProcessor.replace_image_token(counter, out, 0))
    elif "num_patches" in out:
        found["units"] = int(out["num_patches"][0])
    elif "num_soft_tokens_per_image" in out:
        found["soft_tokens"] = int(out["num_soft_tokens_per_image"][0])
    return found


def write(settings_of, images, out, processors_name, processed_name):
    rows, processors = [], {}
    for name, (kind, model_type, settings, extra, call) in settings_of.items():
        processor = getattr(transformers, kind)(**settings)
        processors[name] = {"model_type": model_type, "preprocessor_config": {"image_processor_type": kind, **settings},
                            "processor_config": extra, "overrides": call}
        for image_name, image in images:
            rows.append({"processor": name, "image": image_name, **row(processor, kind, settings, extra, call, image)})
    lines = ",\n".join("%s: %s" % (json.dumps(k), json.dumps(v)) for k, v in processors.items())
    (out / processors_name).write_text("{\n" + lines + "\n}\n")
    (out / processed_name).write_text("".join(json.dumps(r) + "\n" for r in rows))


def main():
    images, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    write(PROCESSORS, list(pictures(images, IMAGES, SHAPES)), out, "processors.json", "processed.jsonl")
    write(PUBLISHED, list(pictures(images, IMAGES + MORE_IMAGES, SHAPES + MORE_SHAPES)), out, "published_processors.json",
          "published_processed.jsonl")


main()

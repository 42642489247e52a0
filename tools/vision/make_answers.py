#!/usr/bin/env python3
"""Writes the log probabilities that transformers computes for prompts with image files, for tiny models.

    make_answers.py tests/data [name ...]

Needs transformers 5, torch, torchvision, pillow. tests/data/vision/answers.json has for each checkpoint of make_vision.py the special
tokens, the chat template's text for an image, the processor's settings, and cases. A case has its images, the prompt's token ids, and the
largest log probabilities of the next token. Images are processed one at a time, since their results do not depend on each other.
"""
import base64
import io
import json
import pathlib
import string
import sys
import types

import torch
import transformers
from PIL import Image, ImageOps
from tokenizers import Tokenizer

QUESTION = "what is it?"
CASES = [["rgb.png"], ["progressive.jpg", "rgb.png"], ["lossy.webp"]]
HALF = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
CLIP = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
LANCZOS, BILINEAR, BICUBIC = {"resample": 1}, {"resample": 2}, {"resample": 3}
QWEN = {"patch_size": 4, "temporal_patch_size": 2, "merge_size": 2, **CLIP}
GLM_SIZE = {"size": {"shortest_edge": 512, "longest_edge": 4096}}
GLM_TOKENS = ["<|image|>", "<|begin_of_image|>", "<|end_of_image|>"]
GLM_IMAGE = "<|begin_of_image|><|image|><|end_of_image|>"
FIRST_SPECIAL, FIRST_PLACE = 100, 107


def places(form):
    """Markers for tiles in three rows and columns."""
    return [form % (row, column) for row in (1, 2, 3) for column in (1, 2, 3)]


# By family: special tokens from id 100 and from id 107, the text for an image, the two classes, preprocessor_config.json,
# processor_config.json, arguments of the image processor, attributes of the processor.
FAMILIES = {
    "tiny-llava-clip": (["<image>"], [], "<image>", "LlavaProcessor", "CLIPImageProcessor",
                        {"size": {"shortest_edge": 16}, "crop_size": {"height": 16, "width": 16}, **BICUBIC, **CLIP},
                        {"patch_size": 4, "num_additional_image_tokens": 1, "vision_feature_select_strategy": "default"}, {}, {}),
    "tiny-llava-siglip": (["<image>"], [], "<image>", "LlavaProcessor", "SiglipImageProcessor",
                          {"size": {"height": 16, "width": 16}, **BICUBIC, **HALF},
                          {"patch_size": 4, "num_additional_image_tokens": 0, "vision_feature_select_strategy": "full"}, {}, {}),
    "tiny-llava-next": (["<image>"], [], "<image>", "LlavaNextProcessor", "LlavaNextImageProcessor",
                        {"size": {"shortest_edge": 16}, "crop_size": {"height": 16, "width": 16},
                         "image_grid_pinpoints": [[16, 32], [32, 16], [32, 32]], **BICUBIC, **CLIP},
                        {"patch_size": 4, "num_additional_image_tokens": 1, "vision_feature_select_strategy": "default"}, {}, {}),
    "tiny-llava-pixtral": (["[IMG]", "[IMG_BREAK]", "[IMG_END]"], [], "[IMG]", "PixtralProcessor", "PixtralImageProcessor",
                           {"size": {"longest_edge": 30}, "patch_size": {"height": 4, "width": 4}, **BICUBIC, **CLIP},
                           {"patch_size": 4, "spatial_merge_size": 1}, {"patch_size": 4},
                           {"image_break_token": "[IMG_BREAK]", "image_end_token": "[IMG_END]"}),
    "tiny-qwen2-vl": (["<|image_pad|>", "<|vision_start|>", "<|vision_end|>"], [], "<|vision_start|><|image_pad|><|vision_end|>", "Qwen2VLProcessor",
                      "Qwen2VLImageProcessor", {"min_pixels": 256, "max_pixels": 1024, **QWEN}, {}, {}, {}),
    "tiny-glm-ocr": (GLM_TOKENS, [], GLM_IMAGE, "Glm46VProcessor", "Glm46VImageProcessor", {**GLM_SIZE, **QWEN}, {}, {}, {}),
    "tiny-glm4v": (GLM_TOKENS, [], GLM_IMAGE, "Glm4vProcessor", "Glm4vImageProcessor", {**GLM_SIZE, **QWEN}, {}, {}, {}),
    "tiny-glm4v-moe": (GLM_TOKENS, [], GLM_IMAGE, "Glm4vProcessor", "Glm4vImageProcessor", {**GLM_SIZE, **QWEN}, {}, {}, {}),
    "tiny-internvl": (["<IMG_CONTEXT>", "<img>", "</img>"], [], "<IMG_CONTEXT>", "InternVLProcessor", "GotOcr2ImageProcessor",
                      {"size": {"height": 16, "width": 16}, "max_patches": 6, **BICUBIC, **CLIP}, {"image_seq_length": 4}, {"crop_to_patches": True},
                      {"start_image_token": "<img>", "end_image_token": "</img>"}),
    "tiny-aya-vision": (["<|IMG_PATCH|>", "<|START_OF_IMG|>", "<|END_OF_IMG|>"], [], "<image>", "AyaVisionProcessor", "GotOcr2ImageProcessor",
                        {"size": {"height": 16, "width": 16}, "max_patches": 6, **BICUBIC, **HALF},
                        {"patch_size": 4, "downsample_factor": 2, "img_size": 16}, {"crop_to_patches": True},
                        {"image_token": "<image>", "patch_size": 8, "start_of_img_token": "<|START_OF_IMG|>", "end_of_img_token": "<|END_OF_IMG|>",
                         "img_patch_token": "<|IMG_PATCH|>", "tile_token": "TILE", "tile_global_token": "TILE_GLOBAL"}),
    "tiny-kimi-k25": (["<|media_pad|>", "<|media_begin|>", "<|media_end|>", "<|media_content|>"], [],
                      "<|media_begin|>image<|media_content|><|media_pad|><|media_end|>", "Kimi_K25Processor", "Kimi_K25ImageProcessor",
                      {"size": {"max_height": 9, "max_width": 9}, "max_patches": 40, "patch_size": 4, "merge_size": 2, **BICUBIC, **HALF},
                      {}, {}, {}),
    "tiny-idefics3": (["<image>", "<fake_token_around_image>", "<global-img>"], places("<row_%d_col_%d>"), "<image>", "Idefics3Processor",
                      "Idefics3ImageProcessor", {"size": {"longest_edge": 100}, "max_image_size": {"longest_edge": 36}, **LANCZOS, **HALF},
                      {"image_seq_len": 9}, {"return_row_col_info": True},
                      {"fake_image_token": "<fake_token_around_image>", "global_image_tag": "<global-img>"}),
    "tiny-lfm2-vl": (["<image>", "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>"], places("<|img_row_%d_col_%d|>"), "<image>",
                     "Lfm2VlProcessor", "Lfm2VlImageProcessor",
                     {"downsample_factor": 2, "encoder_patch_size": 4, "tile_size": 16, "min_tiles": 2, "max_tiles": 4, "min_image_tokens": 2,
                      "max_image_tokens": 4, **BILINEAR, **HALF}, {}, {"return_row_col_info": True},
                     {"image_start_token": "<|image_start|>", "image_end_token": "<|image_end|>", "image_thumbnail_token": "<|img_thumbnail|>"}),
}
# Outputs of processors that are not inputs of the model.
NO_INPUTS = ("rows", "cols", "num_patches", "image_rows", "image_cols")


def tokenizer(special):
    """One token per letter, within the 120 ids of the models."""
    letters = range(3, FIRST_SPECIAL)
    vocab = dict(zip("\n" + string.ascii_letters + string.digits + " .,?!'", letters))
    vocab.update({"<unused %d>" % i: i for i in letters if i not in vocab.values()})
    return {"version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None,
            "added_tokens": [{"id": id_, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                              "special": True} for id_, text in special.items()],
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unused 99>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": []}}


def together(name, key, values):
    """Joins an input of all images, padded to the largest."""
    if name == "tiny-idefics3":
        return torch.cat(values, dim=1)
    if key in ("pixel_values", "pixel_attention_mask") and name in ("tiny-llava-next", "tiny-llava-pixtral", "tiny-lfm2-vl"):
        sizes = [max(value.shape[axis] for value in values) for axis in range(1, values[0].dim())]
        padded = [torch.zeros(value.shape[0], *sizes, dtype=value.dtype) for value in values]
        for value, room in zip(values, padded):
            room[tuple(slice(size) for size in value.shape)] = value
        return torch.cat(padded)
    return torch.cat([torch.as_tensor(value) for value in values])


def answer(data, files, name):
    tokens, markers, shown, kind, image_kind, settings, processor_settings, arguments, attributes = FAMILIES[name]
    special = {0: "<pad>", 1: "<s>", 2: "</s>", **dict(enumerate(tokens, FIRST_SPECIAL)), **dict(enumerate(markers, FIRST_PLACE))}
    vocabulary = tokenizer(special)
    encode = transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(vocabulary)))
    images = getattr(transformers, image_kind)(**settings)
    model = transformers.AutoModelForImageTextToText.from_pretrained(data / "checkpoints" / name, dtype=torch.float32,
                                                                     attn_implementation="eager").eval()
    # Call the class's methods on a stand-in object, since the tokenizer lacks names for some tokens.
    own = getattr(transformers, kind)
    processor = types.SimpleNamespace(**{"image_processor": images, "image_token": tokens[0], **processor_settings, **attributes})
    for method in ("_get_image_num_tokens", "_build_image_tokens", "_compute_tokens_per_tile", "_compute_tokens_for_image",
                   "_get_number_of_features", "_get_unpadded_features"):
        if hasattr(own, method):
            setattr(processor, method, types.MethodType(getattr(own, method), processor))
    cases = []
    for names in CASES:
        made = [images(images=[ImageOps.exif_transpose(Image.open(io.BytesIO(files[one]))).convert("RGB")], return_tensors="pt", **arguments)
                for one in names]
        texts = [own.replace_image_token(processor, one, 0, use_image_special_tokens=True) for one in made]
        prompt = encode("".join(shown.replace(processor.image_token, text) for text in texts) + QUESTION, add_special_tokens=False)["input_ids"]
        inputs = {key: together(name, key, [one[key] for one in made]) for key in made[0]
                  if key not in NO_INPUTS and (key != "image_sizes" or "llava" in name)}
        inputs["input_ids"] = torch.tensor([prompt])
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        if "glm" in name or "qwen" in name:
            inputs["mm_token_type_ids"] = (inputs["input_ids"] == FIRST_SPECIAL).long()
        with torch.no_grad():
            top = model(**inputs).logits[0, -1].float().log_softmax(-1).topk(8)
        cases.append({"images": names, "prompt": prompt,
                      "top": [[int(i), round(float(value), 6)] for value, i in zip(*top)]})
    return {"special": special, "shown": shown, "preprocessor_config": {"image_processor_type": image_kind, **settings},
            "processor_config": processor_settings, "cases": cases}


def main():
    data = pathlib.Path(sys.argv[1])
    rows = map(json.loads, (data / "vision" / "images.jsonl").read_text().splitlines())
    files = {row["name"]: base64.b64decode(row["base64"]) for row in rows}
    target = data / "vision" / "answers.json"
    answers = json.loads(target.read_text()) if sys.argv[2:] else {}
    for name in sys.argv[2:] or FAMILIES:
        answers[name] = answer(data, files, name)
    lines = ",\n".join(json.dumps(name) + ": " + json.dumps(value, separators=(",", ":")) for name, value in answers.items())
    target.write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main()

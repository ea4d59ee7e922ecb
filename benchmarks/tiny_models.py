# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""A tiny model with random weights, and random rows for it, for any architecture of transformers that classifies."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import transformers
from datasets import Dataset
from transformers import PretrainedConfig, PreTrainedModel, set_seed
from transformers.models.auto import configuration_auto, modeling_auto


NUM_LABELS = 3
NUM_CHOICES = 4
VOCABULARY = 99
LENGTH = 16
IMAGE = 32
FRAMES = 4
SAMPLES = 2000
MAPPINGS = {
    "sequence classification": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
    "token classification": "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES",
    "multiple choice": "MODEL_FOR_MULTIPLE_CHOICE_MAPPING_NAMES",
    "image classification": "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "audio classification": "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES",
    "video classification": "MODEL_FOR_VIDEO_CLASSIFICATION_MAPPING_NAMES",
}

# The largest value of whatever has a name like this, in any configuration. The first match counts.
_SIZES = (
    (r"(text_|char_|entity_|shape_|pronunciation_|ngram_)?vocab_size|n_vocab", VOCABULARY),
    (r"\w*(num|n)_\w*experts|moe_num_experts|num_expert", 4),
    (r"\w*experts_per_tok\w*|n_shared_experts|moe_topk|moe_k|top_k", 2),
    (r"n_group|topk_group|first_k_dense_replace|num_conv_pos_embedding_groups", 1),
    (r"num_key_value_heads|(num|n)_\w*kv_heads|linear_num_\w+_heads", 2),
    (r"\w*(num|n)_\w*heads?|(encoder|decoder)_attention_heads", 4),
    (r"\w*head_dim|d_kv|\w*head_size|d_head|kv_channels", 8),
    (r"\w*(num|n)_\w*layers?|\w*(encoder|decoder)_layers|num_blocks|num_self_attends_per_block|depth", 2),
    (r"\w*(intermediate_size|ffn_dim|inner_dim|n_inner|d_ff|d_inner|dff|feed_forward_size|hidden_dim|mlp_dim)", 64),
    (r"dim|n_embd|d_model|d_latents|\w*(hidden|embedding|embed|emb|word_embed_proj|projection)_(size|dim)", 32),
    (r"(q|kv|o)_lora_rank|rank|classifier_proj_size|num_latents", 16),
    (r"\w*max\w*position\w*|n_positions|n_ctx|max_seq_len\w*|num_hash_buckets", 128),
    (r"image_size|crop_size", IMAGE),
    (r"max_length|num_mel_bins|conv_dim", 32),
    (r"mask_time_length|mask_feature_length", 2),
    (r"num_frames|frames_per_clip", FRAMES),
    (r"num_conv_pos_embeddings|\w*patch_size", 8),
    (r"depths|num_block_repeats|stage_num_blocks|n_attn_blocks", 1),
)
_NAMED_SIZES = [(re.compile(name), size) for name, size in _SIZES]
# Made from other values.
_DERIVED = (
    "attention_layers", "dim_bbox_projection", "hybrid_layer_ids", "num_feat_extract_layers", "out_features",
    "out_indices", "stage_names", "_out_features", "_out_indices",
)  # fmt: skip
_WINDOWS = dict(embed_dim=16, depths=[1, 1], num_heads=[2, 4], window_size=2, patch_size=4)
_CHANNELS = dict(embedding_size=8, hidden_sizes=[8, 16, 32, 64], depths=[1, 1, 1, 1])
# What the rules above don't get right: values that must fit each other, and widths of convolutions.
_SPECIAL: dict[str, dict[str, Any]] = {
    "bit": {**_CHANNELS, "num_groups": 4},
    "cohere_compass_text": dict(
        head_dim=8, rope_parameters=dict(
            sliding_attention=dict(rope_type="default", rope_theta=1e4, mrope_section=[2, 1, 1]), full_attention=None,
        ),
    ),
    "convnext": _CHANNELS,
    "convnextv2": _CHANNELS,
    "cvt": dict(embed_dim=[16, 16, 32], num_heads=[1, 2, 4], depth=[1, 2, 3]),
    "deepseek_v2": dict(num_experts_per_tok=2),
    "donut-swin": _WINDOWS,
    "efficientnet": dict(width_coefficient=0.25, depth_coefficient=0.5, hidden_dim=320),
    "esmc": dict(vocab_size=VOCABULARY),
    "gpt_neo": dict(attention_types=[[["global", "local"], 1]]),
    "gptj": dict(rotary_dim=4),
    "hgnet_v2": dict(
        stem_channels=[3, 8, 8], stage_in_channels=[8, 16, 16, 16], stage_mid_channels=[8, 8, 8, 8],
        stage_out_channels=[16, 16, 16, 16], hidden_sizes=[16, 16, 16, 16],
    ),
    "jamba": dict(attn_layer_period=2, attn_layer_offset=1),
    "layoutlmv3": dict(coordinate_size=4, shape_size=8, input_size=IMAGE),
    "levit": dict(
        image_size=64, patch_size=16, hidden_sizes=[16, 24, 32], num_attention_heads=[1, 2, 2], key_dim=[8, 8, 8],
    ),
    "lilt": dict(hidden_size=48),
    "markuplm": dict(max_depth=4, xpath_unit_hidden_size=8),
    "mistral4": dict(qk_rope_head_dim=4, qk_nope_head_dim=4),
    "mobilebert": dict(intra_bottleneck_size=32),
    "mobilenet_v1": dict(depth_multiplier=0.25),
    "mobilenet_v2": dict(depth_multiplier=0.25),
    "mobilevit": dict(hidden_sizes=[16, 16, 16], neck_hidden_sizes=[8, 8, 8, 8, 16, 16, 32]),
    "mobilevitv2": dict(image_size=64, width_multiplier=0.25),
    "nemotron": dict(num_key_value_heads=2),
    "perceiver": dict(num_self_attention_heads=1, num_cross_attention_heads=1),
    "poolformer": dict(hidden_sizes=[8, 16, 16, 32]),
    "pvt": dict(hidden_sizes=[8, 16, 16, 32], num_attention_heads=[1, 2, 2, 4]),
    "pvt_v2": dict(hidden_sizes=[8, 16, 16, 32], num_attention_heads=[1, 2, 2, 4]),
    "reformer": dict(
        axial_pos_shape=[4, 4], axial_pos_embds_dim=[8, 24], attn_layers=["local", "lsh"], num_buckets=2,
        local_attn_chunk_length=4, lsh_attn_chunk_length=4, hash_seed=0, hidden_dropout_prob=0.0,
        lsh_attention_probs_dropout_prob=0.0, local_attention_probs_dropout_prob=0.0,  # its dropout has its own seeds
    ),
    "regnet": {**_CHANNELS, "groups_width": 4},
    "resnet": _CHANNELS,
    "segformer": dict(hidden_sizes=[8, 16, 16, 32], num_attention_heads=[1, 2, 2, 4]),
    "shieldgemma2": dict(
        mm_tokens_per_image=4, image_token_index=5, yes_token_index=7, no_token_index=8, num_labels=2,
    ),
    "swin": _WINDOWS,
    "swinv2": {**_WINDOWS, "pretrained_window_sizes": [0, 0]},
    "t5": dict(decoder_start_token_id=0),
    "timm_wrapper": dict(architecture="resnet10t", model_args=dict(channels=(8, 8, 8, 8))),
    "xmod": dict(default_language="en_XX"),
    "zamba": dict(
        attention_hidden_size=64, attention_head_dim=16, num_hidden_layers=4,
        layers_block_type=["mamba", "hybrid", "mamba", "hybrid"],
    ),
    "zamba2": dict(mamba_headdim=16, attention_hidden_size=64, attention_head_dim=16),
}  # fmt: skip


def architectures(mapping: str) -> list[tuple[str, str]]:
    """Model type and class name of every architecture of a mapping. Some model types have several classes."""
    found = []
    for model_type, names in getattr(modeling_auto, MAPPINGS[mapping]).items():
        found += [(model_type, name) for name in ([names] if isinstance(names, str) else names)]
    return found


# ---------------------------------------------------------------------- models
def tiny_config(model_type: str) -> PretrainedConfig:
    """A configuration of this type with small sizes, three classes and a pad token."""
    config_class = getattr(transformers, configuration_auto.CONFIG_MAPPING_NAMES[model_type])
    values = small_values(config_class().to_dict())
    values.update(num_labels=NUM_LABELS)
    config = config_class(**{**values, **_SPECIAL.get(model_type, {})})
    text = config.get_text_config()
    if getattr(text, "pad_token_id", None) is None:
        text.pad_token_id = 0
    return config


def small_values(values: dict[str, Any]) -> dict[str, Any]:
    """The settings of a configuration with small sizes, its sub-configurations included."""
    small = {name: _small(name, value) for name, value in values.items() if name not in _DERIVED}
    if values.get("num_key_value_heads") == values.get("num_attention_heads") is not None:
        small["num_key_value_heads"] = small["num_attention_heads"]
    kinds = [name for name in ("layer_types", "mlp_layer_types", "layers_block_type") if values.get(name)]
    if kinds:
        # One layer of each kind, and at least two.
        layers = list(dict.fromkeys(zip(*(values[name] for name in kinds), strict=True)))
        layers = layers if len(layers) > 1 else layers * 2
        small.update({name: list(column) for name, column in zip(kinds, zip(*layers, strict=True), strict=True)})
        small["num_hidden_layers"] = len(layers)
    return small


def _small(name: str, value: Any) -> Any:
    if isinstance(value, dict) and (name.endswith("config") or "model_type" in value):
        return small_values(value)
    if isinstance(value, (list, tuple)) and value and all(type(entry) is int for entry in value):
        return [_small(name, entry) for entry in value]
    if name.endswith(("token_id", "token_index")) and isinstance(value, int):
        return value if 0 <= value < VOCABULARY else 1
    if value is None and name not in ("head_dim", "vocab_size"):
        return None
    if value is None or (type(value) is int and value > 0):
        for pattern, size in _NAMED_SIZES:
            if pattern.fullmatch(name):
                return size if value is None else min(value, size)
    return value


def tiny_model(model_type: str, class_name: str) -> PreTrainedModel:
    """A model with random weights."""
    set_seed(0)
    return getattr(transformers, class_name)(tiny_config(model_type))


# ---------------------------------------------------------------------- rows
def random_rows(mapping: str, model: PreTrainedModel, count: int = 24) -> Dataset:
    """Rows with random inputs and labels for a model, every third of them trusted."""
    draw = np.random.default_rng(0)
    columns = _INPUTS[mapping](model, count, draw)
    classes = NUM_CHOICES if mapping == "multiple choice" else model.config.num_labels
    if mapping == "token classification":
        columns["labels"] = draw.integers(classes, size=(count, LENGTH))
        columns["labels"][columns["attention_mask"] == 0] = -100
    else:
        columns["label"] = draw.integers(classes, size=count)
    columns["trusted"] = np.arange(count) % 3 == 0
    return Dataset.from_dict({name: values.tolist() for name, values in columns.items()})


def _texts(model: PreTrainedModel, count: int, draw: np.random.Generator, *shape: int) -> dict[str, np.ndarray]:
    """Texts of several lengths, padded on the right, that end with the EOS token and have it only there."""
    config = model.config.get_text_config()
    eos = getattr(config, "eos_token_id", None)
    eos = eos[0] if isinstance(eos, list) else eos
    tokens = draw.integers(10, VOCABULARY - 5, size=(count, *shape, LENGTH))
    lengths = draw.integers(LENGTH // 2, LENGTH + 1, size=(count, *shape, 1))
    places = np.arange(LENGTH)
    if eos is not None and eos != config.pad_token_id:
        tokens = np.where(places == lengths - 1, eos, tokens)
    if config.model_type == "longformer":  # a question and its answer are separated in this way
        tokens[..., 3:5] = config.sep_token_id
    mask = (places < lengths).astype(np.int64)
    texts = {"input_ids": np.where(mask, tokens, config.pad_token_id), "attention_mask": mask}
    if config.model_type == "bros":
        texts["bbox"] = draw.random(size=(count, LENGTH, 8)).astype(np.float32)
    return texts


def _choices(model: PreTrainedModel, count: int, draw: np.random.Generator) -> dict[str, np.ndarray]:
    return _texts(model, count, draw, NUM_CHOICES)


def _images(model: PreTrainedModel, count: int, draw: np.random.Generator) -> dict[str, np.ndarray]:
    config = model.config
    size = getattr(config, "image_size", IMAGE)
    size = size if isinstance(size, int) else IMAGE
    if config.model_type == "imagegpt":
        return {"input_ids": draw.integers(config.vocab_size, size=(count, LENGTH))}
    if config.model_type == "siglip2":
        patches, patch = 16, config.vision_config.patch_size
        return {
            "pixel_values": draw.normal(size=(count, patches, 3 * patch * patch)).astype(np.float32),
            "pixel_attention_mask": np.ones((count, patches), dtype=np.int64),
            "spatial_shapes": np.full((count, 2), 4),
        }
    images = {"pixel_values": draw.normal(size=(count, 3, size, size)).astype(np.float32)}
    if config.model_type == "shieldgemma2":
        texts = _texts(model, count, draw)
        texts["input_ids"][:, : config.mm_tokens_per_image] = config.image_token_index
        images |= {**texts, "token_type_ids": (texts["input_ids"] == config.image_token_index).astype(np.int64)}
    return images


def _videos(model: PreTrainedModel, count: int, draw: np.random.Generator) -> dict[str, np.ndarray]:
    return {model.main_input_name: draw.normal(size=(count, FRAMES, 3, IMAGE, IMAGE)).astype(np.float32)}


def _sounds(model: PreTrainedModel, count: int, draw: np.random.Generator) -> dict[str, np.ndarray]:
    config = model.config
    shapes = {
        "audio-spectrogram-transformer": (32, 32),
        "whisper": (32, 2 * getattr(config, "max_source_positions", 0)),
        "wav2vec2-bert": (32, getattr(config, "feature_projection_input_dim", 0)),
    }
    shape = shapes.get(config.model_type, (SAMPLES,))
    return {model.main_input_name: draw.normal(size=(count, *shape)).astype(np.float32)}


_INPUTS = {
    "sequence classification": _texts,
    "token classification": _texts,
    "multiple choice": _choices,
    "image classification": _images,
    "audio classification": _sounds,
    "video classification": _videos,
}

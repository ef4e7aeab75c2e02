"""Reads the model that a checkpoint's files describe: its transformer's settings, its heads, its routes.

Each reader takes a card and returns plain values, and loads no weights and no model library. Anything it cannot express
is refused by name (`NotUnderstoodError`):

- `read_recipe`: text encoders, dense, sparse and late-interaction ones
- `read_pair_recipe`: cross-encoders, rerankers and entailment classifiers
- `read_routes`: sparse encoders that look up one side
- `read_static_recipe`: dense vectors looked up by token
- `read_vision_recipe`: models of images and texts
"""

from sie_text.recipe.encoders.bge_m3 import content_fault, most_bytes
from sie_text.recipe.encoders.kinds import class_of_type, foreign_class, is_dense_encoder, is_headless
from sie_text.recipe.encoders.multivector import STANFORD, is_multivector
from sie_text.recipe.encoders.reading import read_recipe
from sie_text.recipe.encoders.router import LookupSettings, Role, Routes, is_router, is_sparse_router, read_routes
from sie_text.recipe.files import UNLIMITED, card_below, has_tokenizer, misnamed_weights, of_found_weights, size
from sie_text.recipe.lora import (
    CONFIG_FILE,
    LOWER,
    UPPER,
    WEIGHTS_FILE,
    check_lora_shapes,
    lora_layers,
    lora_scale,
    read_lora_config,
    refuse_other_kinds,
    require_lora_files,
)
from sie_text.recipe.own_code import OwnCodeError, heed_auto_map, own_class
from sie_text.recipe.pairs import (
    PairRecipe,
    PairTruncation,
    entailment_label,
    entails,
    is_cross_encoder,
    read_pair_recipe,
)
from sie_text.recipe.settings import (
    MODES,
    DenseSettings,
    ExpansionSettings,
    HeadSettings,
    LayerNormSettings,
    MultivectorSettings,
    NormalizeSettings,
    NotUnderstoodError,
    PoolingMode,
    PoolingSettings,
    ProjectionSettings,
    Recipe,
    SpladeSettings,
    TokenWeightSettings,
    TransformerSettings,
)
from sie_text.recipe.static import StaticRecipe, read_static_recipe
from sie_text.recipe.vision import VISION_ARCHITECTURES, VisionRecipe, read_vision_recipe

__all__ = [
    "CONFIG_FILE",
    "LOWER",
    "MODES",
    "STANFORD",
    "UNLIMITED",
    "UPPER",
    "VISION_ARCHITECTURES",
    "WEIGHTS_FILE",
    "DenseSettings",
    "ExpansionSettings",
    "HeadSettings",
    "LayerNormSettings",
    "LookupSettings",
    "MultivectorSettings",
    "NormalizeSettings",
    "NotUnderstoodError",
    "OwnCodeError",
    "PairRecipe",
    "PairTruncation",
    "PoolingMode",
    "PoolingSettings",
    "ProjectionSettings",
    "Recipe",
    "Role",
    "Routes",
    "SpladeSettings",
    "StaticRecipe",
    "TokenWeightSettings",
    "TransformerSettings",
    "VisionRecipe",
    "card_below",
    "check_lora_shapes",
    "class_of_type",
    "content_fault",
    "entailment_label",
    "entails",
    "foreign_class",
    "has_tokenizer",
    "heed_auto_map",
    "is_cross_encoder",
    "is_dense_encoder",
    "is_headless",
    "is_multivector",
    "is_router",
    "is_sparse_router",
    "lora_layers",
    "lora_scale",
    "misnamed_weights",
    "most_bytes",
    "of_found_weights",
    "own_class",
    "read_lora_config",
    "read_pair_recipe",
    "read_recipe",
    "read_routes",
    "read_static_recipe",
    "read_vision_recipe",
    "refuse_other_kinds",
    "require_lora_files",
    "size",
]

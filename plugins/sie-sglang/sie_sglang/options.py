"""Settings of the plugin, and options of the family: the arguments of the engine that a model's profile may set."""

from __future__ import annotations

from sie_text.options import AUTO_MAP, LENGTH, PAIR_OPTIONS, PROMPT_OPTIONS, SIMILARITY

from sie_core.contracts import Option, PluginSetting

PYTHON = PluginSetting(
    "SIE_SGLANG_PYTHON",
    "",
    "The Python of the environment that has sglang. Unset, no model is served by it.",
)
START = PluginSetting(
    "SIE_SGLANG_START_TIMEOUT_S",
    "1800",
    "Seconds that an engine may take from its start until it answers.",
)
ANSWER = PluginSetting(
    "SIE_SGLANG_ANSWER_TIMEOUT_S",
    "45",
    "Seconds that an engine may take for a batch. One that takes longer is killed and started again.",
)
SETTINGS = (PYTHON, START, ANSWER)

ENGINE_OPTIONS = (
    Option(
        "quantization",
        "load",
        str,
        description="How the engine quantises weights.",
        choices=("awq", "bitsandbytes", "fp8", "gptq"),
    ),
    Option(
        "kv_cache_dtype",
        "load",
        str,
        description="Number type of the engine's key-value cache.",
        choices=("auto", "fp8_e4m3", "fp8_e5m2"),
    ),
    Option(
        "attention_backend",
        "load",
        str,
        description="Attention kernels of the engine.",
        choices=("fa3", "fa4", "flashinfer", "torch_native", "triton"),
    ),
    Option("tp_size", "load", int, description="Devices that share each layer of the model.", minimum=1, maximum=16),
    Option(
        "mem_fraction_static",
        "load",
        float,
        description="Share of the free device memory for weights and cache; else the cache holds a text and a batch.",
        minimum=0.05,
        maximum=0.98,
    ),
)
"""Each is the engine's argument of the same name. There is no way to pass another."""

OPTIONS = (
    *ENGINE_OPTIONS,
    Option(
        "max_lora_rank",
        "load",
        int,
        description="Highest rank of LoRA adapters; the engine reserves memory for it. 64 where `loras` are declared.",
        minimum=1,
        maximum=256,
    ),
    Option("normalize", "prepare", bool, description="Always true: the engine gives vectors of unit length."),
    *PROMPT_OPTIONS,
    LENGTH,
    Option("query_max_length", "prepare", int, description="The same for queries alone.", minimum=1),
    SIMILARITY,
)

RERANKER_OPTIONS = (*ENGINE_OPTIONS, *(option for option in PAIR_OPTIONS if option is not AUTO_MAP))

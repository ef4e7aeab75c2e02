"""The setting of this plugin."""

from sie_core.contracts import PluginSetting

CUDA_GRAPHS = PluginSetting(
    "SIE_CUDA_GRAPHS",
    "off",
    "With `auto`, forward passes of at most 2,048 tokens are recorded as CUDA graphs and replayed; with `off`, each of "
    "their kernels is launched by itself.",
    ("auto", "off"),
)

from sie_text.architectures import Architecture, Layers, PreNorm

from sie_core.hookspecs import hookimpl

INTERFACES = ("sie.architecture/1",)
LAYERS = Layers(
    layers="layers", joined=("qkv",), attention_output="out", up=("mlp.up_proj", "mlp.gate_proj"), down="mlp.down_proj",
    norms=PreNorm("before", "between", "norm"), norm="rms", query_norm="q_norm", key_norm="k_norm", gated=True,
    rotary="half", window="every layer", window_beyond=1, embeddings="embed_tokens",
)  # fmt: skip


def translate(config):
    renamed = {"hidden_size": "width", "num_attention_heads": "heads", "intermediate_size": "inner"}
    return config | {ours: config[theirs] for ours, theirs in renamed.items() if theirs in config}


@hookimpl
def sie_architectures():
    here = __name__
    return [Architecture("wren", layers=LAYERS, translate=f"{here}:translate", model=f"{here}.model:WrenModel")]

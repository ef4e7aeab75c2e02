"""The layers of the house's model types; the proof at load checks whether a row is right."""

from __future__ import annotations

from dataclasses import replace

from sie_text.architectures.layers import Bias, Layers, PostNorm, PreNorm, Tables

BERT = Layers(
    layers="encoder.layer",
    joined=("attention.self.query", "attention.self.key", "attention.self.value"),
    attention_output="attention.output.dense",
    up=("intermediate.dense",),
    down="output.dense",
    norms=PostNorm("attention.output.LayerNorm", "output.LayerNorm"),
    tables=Tables("word_embeddings", "position_embeddings", "token_type_embeddings", norm="LayerNorm"),
)

DEBERTA = replace(
    BERT,
    joined=("attention.self.query_proj", "attention.self.key_proj", "attention.self.value_proj"),
    disentangled=True,
    tables=None,
)

ROFORMER = replace(BERT, rotary="interleaved", tables=None)

MPNET = replace(
    BERT,
    joined=("attention.attn.q", "attention.attn.k", "attention.attn.v"),
    attention_output="attention.attn.o",
    norms=PostNorm("attention.LayerNorm", "output.LayerNorm"),
    bias=Bias("encoder.relative_attention_bias", 128),
    tables=Tables("word_embeddings", "position_embeddings", None, norm="LayerNorm"),
)

T5 = Layers(
    layers="encoder.block",
    joined=("layer.0.SelfAttention.q", "layer.0.SelfAttention.k", "layer.0.SelfAttention.v"),
    attention_output="layer.0.SelfAttention.o",
    up=("layer.1.DenseReluDense.wi_1", "layer.1.DenseReluDense.wi_0"),
    ungated_up=("layer.1.DenseReluDense.wi",),
    down="layer.1.DenseReluDense.wo",
    norms=PreNorm("layer.0.layer_norm", "layer.1.layer_norm", "encoder.final_layer_norm"),
    norm="rms",
    gated=True,
    scaled=False,
    bias=Bias("encoder.block.0.layer.0.SelfAttention.relative_attention_bias", "relative_attention_max_distance"),
    embeddings="encoder.embed_tokens",
)

DISTILBERT = Layers(
    layers="transformer.layer",
    joined=("attention.q_lin", "attention.k_lin", "attention.v_lin"),
    attention_output="attention.out_lin",
    up=("ffn.lin1",),
    down="ffn.lin2",
    norms=PostNorm("sa_layer_norm", "output_layer_norm"),
    tables=Tables("word_embeddings", "position_embeddings", None, norm="LayerNorm"),
)

JINA = Layers(
    layers="layers",
    joined=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    attention_output="self_attn.o_proj",
    up=("mlp.fc1",),
    down="mlp.fc2",
    norms=PostNorm("post_attention_layernorm", "post_mlp_layernorm"),
    rotary="half",
)

NOMIC = replace(JINA, up=("mlp.up_proj", "mlp.gate_proj"), down="mlp.down_proj", gated=True)

MODERN_BERT = Layers(
    layers="layers",
    joined=("attn.Wqkv",),
    attention_output="attn.Wo",
    up=("mlp.Wi",),
    down="mlp.Wo",
    norms=PreNorm("attn_norm", "mlp_norm", "final_norm"),
    gated=True,
    rotary="half",
    window="sliding layers",
    window_beyond=1,
)

LLAMA = replace(
    NOMIC,
    norms=PreNorm("input_layernorm", "post_attention_layernorm", "norm"),
    norm="rms",
    groups=True,
    causal=True,
    embeddings="embed_tokens",
)

QWEN2 = replace(LLAMA, window="sliding layers")

QWEN3 = replace(QWEN2, query_norm="self_attn.q_norm", key_norm="self_attn.k_norm")

MISTRAL = replace(LLAMA, window="every layer")

PHI3 = replace(MISTRAL, joined=("self_attn.qkv_proj",), up=("mlp.gate_up_proj",))

GEMMA3 = replace(
    QWEN3,
    norm="rms from one",
    norms=PreNorm(
        "input_layernorm",
        "pre_feedforward_layernorm",
        "norm",
        post_attention_norm="post_attention_layernorm",
        post_mlp_norm="post_feedforward_layernorm",
    ),
)

from torch import arange, nn
from transformers import LlamaConfig, PreTrainedModel
from transformers.masking_utils import create_bidirectional_sliding_window_mask
from transformers.modeling_outputs import BaseModelOutput
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama import modeling_llama as llama


class WrenConfig(LlamaConfig):
    model_type = "wren"


class WrenLayer(nn.Module):
    is_causal, num_key_value_groups = False, 1

    def __init__(self, config):
        super().__init__()
        self.config, width = config, config.hidden_size
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.q_norm, self.k_norm = (llama.LlamaRMSNorm(config.head_dim, config.rms_norm_eps) for _ in range(2))
        self.before, self.between = (llama.LlamaRMSNorm(width, config.rms_norm_eps) for _ in range(2))
        self.mlp = llama.LlamaMLP(config)

    def forward(self, states, angles, mask, **others):
        config, shape = self.config, (*states.shape[:2], 3, self.config.num_attention_heads, -1)
        query, key, value = self.qkv(self.before(states)).view(shape).permute(2, 0, 3, 1, 4)
        query, key = llama.apply_rotary_pos_emb(self.q_norm(query), self.k_norm(key), *angles)
        attend = ALL_ATTENTION_FUNCTIONS.get(config._attn_implementation, llama.eager_attention_forward)
        others |= {"scaling": config.head_dim**-0.5, "sliding_window": config.sliding_window + 1}
        states = states + self.out(attend(self, query, key, value, mask, **others)[0].flatten(2))
        return states + self.mlp(self.between(states))


class WrenModel(PreTrainedModel):
    config_class, base_model_prefix, _supports_sdpa, _supports_attention_backend = WrenConfig, "model", True, True

    def __init__(self, config):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(WrenLayer(config) for _ in range(config.num_hidden_layers))
        self.norm, self.rotary_emb = (
            llama.LlamaRMSNorm(config.hidden_size, config.rms_norm_eps),
            llama.LlamaRotaryEmbedding(config),
        )
        self.post_init()

    def forward(self, input_ids, attention_mask=None, position_ids=None, **others):
        states = self.embed_tokens(input_ids)
        mask = create_bidirectional_sliding_window_mask(self.config, states, attention_mask)
        positions = arange(input_ids.shape[1], device=states.device)[None] if position_ids is None else position_ids
        angles = self.rotary_emb(states, positions)
        for layer in self.layers:
            states = layer(states, angles, mask, **others)
        return BaseModelOutput(self.norm(states))

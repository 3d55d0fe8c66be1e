"""config.json of a DeepSeek-V4.1 checkpoint of given sizes. Standard library only."""

from __future__ import annotations

from typing import Any

from tests.engine.v41.layout import BLOCK, TINY, Sizes, engram_rows


def config(s: Sizes = TINY) -> dict[str, Any]:
    """config.json, as published: text and vision apart."""
    text = {
        "vocab_size": s.vocabulary, "hidden_size": s.hidden, "moe_intermediate_size": s.intermediate,
        "intermediate_size": s.intermediate, "num_hidden_layers": s.layers, "num_attention_heads": s.heads,
        "num_key_value_heads": 1, "head_dim": s.head_dim, "qk_rope_head_dim": s.rope_dim,
        "qk_nope_head_dim": s.head_dim - s.rope_dim, "v_head_dim": s.head_dim, "q_lora_rank": s.q_lora,
        "kv_lora_rank": s.head_dim, "o_lora_rank": s.o_lora, "o_groups": s.groups, "n_routed_experts": s.experts,
        "n_shared_experts": 1, "num_experts_per_tok": s.experts_per_token, "n_group": 1, "topk_group": 1,
        "topk_method": "noaux_tc", "scoring_func": "sqrtsoftplus", "norm_topk_prob": True, "routed_scaling_factor": 1.5,
        "first_k_dense_replace": 0, "moe_layer_freq": 1, "hidden_act": "silu", "swiglu_limit": 10.0,
        "rms_norm_eps": 1e-6, "sliding_window": s.window, "window_size": s.window, "max_position_embeddings": 1024,
        "rope_theta": 10000.0, "compress_rope_theta": 40000.0, "tie_word_embeddings": False, "attention_bias": False,
        "rope_scaling": {
            "type": "yarn", "rope_type": "yarn", "factor": 16, "original_max_position_embeddings": 64, "beta_fast": 32,
            "beta_slow": 1,
        },
        "compress_ratios": list(s.ratios), "kv_source_layer_ids": list(s.kv_sources),
        "index_source_layer_ids": list(s.index_sources), "index_n_heads": s.index_heads, "index_head_dim": s.index_dim,
        "index_topk": s.index_topk, "candidate_source_layer_id": -1, "candidate_topk_blocks": 0,
        "candidate_block_size": 0,
        "hc_mult": s.streams, "hc_sinkhorn_iters": 20, "hc_eps": 1e-6, "num_hash_layers": 0, "n_hash_layers": 0,
        "engram_layer_ids": list(s.engram_layers), "engram_num_embeddings": engram_rows(s),
        "engram_max_ngram_size": s.ngram, "engram_vocab_size": s.engram_vocabulary, "engram_n_heads": s.engram_heads,
        "engram_head_dim": s.engram_head_dim, "engram_pad_token_id": 2,
        "engram_compressed_vocab_size": s.compressed_vocabulary, "num_nextn_predict_layers": s.stages,
        "dspark_block_size": s.draft_block, "dspark_markov_rank": s.markov_rank, "dspark_noise_token_id": s.noise_token,
        "dspark_target_layer_ids": list(s.draft_targets), "dspark_n_routed_experts": s.draft_experts,
        "dspark_num_experts_per_tok": s.draft_experts_per_token, "bos_token_id": 0, "eos_token_id": 1,
    }  # fmt: skip
    vision = {
        "num_hidden_layers": s.vision_layers, "hidden_size": s.vision_dim, "num_attention_heads": s.vision_heads,
        "intermediate_size": s.vision_inter, "patch_size": s.patch, "rope_theta": 10000.0,
        "downsample_ratio": s.downsample, "max_image_tokens": 1024, "min_pixels": 28 * 28, "max_wh_ratio": 200,
    }  # fmt: skip
    return {
        "architectures": ["DeepseekV41ForCausalLM"], "model_type": "deepseek_v41", "dtype": "bfloat16",
        "image_token_id": s.image_token, "text_config": text, "vision_config": vision,
        "quantization_config": {
            "quant_method": "fp8", "fmt": "e4m3", "scale_fmt": "ue8m0", "activation_scheme": "dynamic",
            "weight_block_size": [BLOCK, BLOCK], "expert_dtype": "fp4",
        },
    }  # fmt: skip

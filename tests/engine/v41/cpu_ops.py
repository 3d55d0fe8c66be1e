"""Torch forms of the few operations of SGLang's V4.1 model that exist for a GPU only, put in place by `install()`.

Each follows the semantics of the kernel that it stands for (named beside it), in fp32, so that ranks can be compared.
Activations are not quantised.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

FP4_VALUES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])
"""E2M1 by its four bits."""
BLOCK = 32


def rotate(x: torch.Tensor, freqs: torch.Tensor, inverse: bool = False) -> torch.Tensor:
    """x [T, ..., 2R] as R complex numbers, turned by freqs [T, R]; fp32 inside, x's dtype out."""
    turned = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)).contiguous())
    freqs = (freqs.conj() if inverse else freqs).view(x.shape[0], *[1] * (x.ndim - 2), -1)
    return torch.view_as_real(turned * freqs).flatten(-2).to(x.dtype)


def fused_rope_inplace(
    q: torch.Tensor, k: torch.Tensor | None, freqs_cis: torch.Tensor, positions: torch.Tensor, inverse: bool = False
) -> None:
    """kernels/ops/attention/dsv4/norm_rope.py, the same name."""
    for x in (q, k):
        if x is not None:
            x.copy_(rotate(x, freqs_cis[positions], inverse))


def fused_q_norm_rope(
    q_input: torch.Tensor, q_output: torch.Tensor, eps: float | None, freqs_cis: torch.Tensor, positions: torch.Tensor
) -> None:
    """The same file; this model has no norm here (`eps` None)."""
    assert eps is None
    width = 2 * freqs_cis.shape[-1]
    q_output[..., :-width] = q_input[..., :-width]
    q_output[..., -width:] = rotate(q_input[..., -width:], freqs_cis[positions])


def dequantised(weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """FP8 [N, K] with fp32 scales [N/32, K/32] as fp32 [N, K]."""
    rows = scale.float().repeat_interleave(BLOCK, 0)[: weight.shape[0]]
    return weight.float() * rows.repeat_interleave(BLOCK, 1)[:, : weight.shape[1]]


def fp8_linear(self: Any, layer: Any, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Fp8LinearMethod.apply; summed in fp64, so that the number of terms that are zero does not show."""
    assert bias is None
    return F.linear(x.double(), dequantised(layer.weight, layer.weight_scale_inv).double()).float()


def clamped_swiglu(gate_up: torch.Tensor, limit: float | None) -> torch.Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    if limit is not None:
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return F.silu(gate) * up


def silu_and_mul_clamp(input: torch.Tensor, output: torch.Tensor, swiglu_limit: float) -> None:
    """kernels/ops/activation/silu_and_mul_clamp.py, the same name."""
    output.copy_(clamped_swiglu(input, swiglu_limit))


def fp4_matrix(packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """int8 [N, K/2], low nibble first, with scales [N, K/32], as fp32 [N, K]."""
    codes = packed.view(torch.uint8).int()
    values = FP4_VALUES[torch.stack([codes & 15, codes >> 4], dim=-1).flatten(-2)]
    return values * scale.float().repeat_interleave(BLOCK, 1)


def fp4_experts(self: Any, layer: Any, dispatch_output: Any) -> Any:
    """Fp8MoEMethod.apply for MXFP4 experts: ids are this rank's own, or -1."""
    from sglang.srt.layers.moe.token_dispatcher import StandardCombineInput

    x = dispatch_output.hidden_states
    weights, ids = dispatch_output.topk_output[:2]
    out = torch.zeros_like(x)
    limit = self.moe_runner_config.swiglu_limit
    for expert in ids.unique().tolist():
        if expert < 0:
            continue
        tokens, slots = (ids == expert).nonzero(as_tuple=True)
        gate_up = F.linear(x[tokens], fp4_matrix(layer.w13_weight[expert], layer.w13_weight_scale_inv[expert]))
        down = fp4_matrix(layer.w2_weight[expert], layer.w2_weight_scale_inv[expert])
        made = F.linear(clamped_swiglu(gate_up, limit), down)
        out.index_add_(0, tokens, made * weights[tokens, slots, None].to(x.dtype))
    return StandardCombineInput(hidden_states=out)


def hc_split_sinkhorn(
    mixes: torch.Tensor, scale: torch.Tensor, base: torch.Tensor, hc_mult: int = 4, sinkhorn_iters: int = 20,
    eps: float = 1e-6,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """kernels/ops/layernorm/mhc.py, the same name: mixes [..., (2 + n) n] to pre, post [..., n], mix [..., n, n]."""
    parts = mixes.split([hc_mult, hc_mult, hc_mult * hc_mult], dim=-1)
    offsets = base.split([hc_mult, hc_mult, hc_mult * hc_mult])
    pre, post, comb = (part * gain + offset for part, gain, offset in zip(parts, scale, offsets, strict=True))
    comb = comb.unflatten(-1, (hc_mult, hc_mult)).softmax(-1) + eps
    comb = comb / (comb.sum(-2, keepdim=True) + eps)
    for _ in range(sinkhorn_iters - 1):
        comb = comb / (comb.sum(-1, keepdim=True) + eps)
        comb = comb / (comb.sum(-2, keepdim=True) + eps)
    return pre.sigmoid() + eps, 2 * post.sigmoid(), comb


def mhc_combine(x_flat: torch.Tensor, pre: torch.Tensor, hc: int, out_dtype: torch.dtype) -> torch.Tensor:
    """The same file: the streams [T, n * H] weighed with pre [T, n], summed."""
    return (pre.unsqueeze(-1) * x_flat.float().unflatten(-1, (hc, -1))).sum(1).to(out_dtype)


def install(spark_classes: bool) -> None:
    """Replace them in this process, for good. `spark_classes` takes the decoder layer and draft stage of a CUDA machine
    with the head width of SM12x; without, those that SGLang takes on a CPU.
    """
    from sglang.kernels.ops.activation import silu_and_mul_clamp as activation
    from sglang.kernels.ops.layernorm import mhc
    from sglang.srt.layers.attention.dsv4.dsv41_sparse import DeepseekV41Compressor
    from sglang.srt.layers.quantization import fp8
    from sglang.srt.models import deepseek_v2, deepseek_v4, deepseek_v4_dspark

    for module in (deepseek_v4, deepseek_v4_dspark):
        module.fused_rope_inplace, module.fused_q_norm_rope = fused_rope_inplace, fused_q_norm_rope
    for module in (activation, deepseek_v2):
        module.silu_and_mul_clamp = silu_and_mul_clamp
    mhc.hc_split_sinkhorn, mhc.mhc_combine = hc_split_sinkhorn, mhc_combine
    fp8.Fp8LinearMethod.apply, fp8.Fp8MoEMethod.apply = fp8_linear, fp4_experts
    for method in (fp8.Fp8LinearMethod, fp8.Fp8MoEMethod):
        method.process_weights_after_loading = lambda self, layer: None
    deepseek_v4.get_rope_wrapper = lambda **_: None
    # Without the rounding to bf16, which is as large as a real fault.
    DeepseekV41Compressor.finish = lambda self, kv: self.norm(kv)
    if spark_classes:
        from sglang.kernels.ops.attention import flash_mla_sm120
        from sglang.srt.runtime_context import override_platform

        deepseek_v4._is_cuda = deepseek_v4_dspark._is_cuda = True
        deepseek_v4.DeepseekV4DecoderLayer = deepseek_v4.DeepseekV4CudaDecoderLayer
        deepseek_v4_dspark.DSparkV4Stage = deepseek_v4_dspark.DSparkV4CudaStage
        deepseek_v4._fused_wo_a_arch_supported = lambda: False
        flash_mla_sm120.flashinfer_dsv4_decode_supports_num_heads = lambda heads, tokens: True
        torch.get_device_module = lambda *_: torch.cpu
        override_platform(is_sm120=True).install()

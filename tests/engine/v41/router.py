"""SGLang's own router kernel in Triton's interpreter: 128 experts, and 129 with the padded one behind them.

`TRITON_INTERPRET=1 python -m tests.engine.v41.router` prints one JSON object. A process of its own: Triton reads the
variable at import.
"""

from __future__ import annotations

import json
import os
from types import SimpleNamespace
from typing import Any

import torch
import triton
import triton.language as tl

ROWS, EXPERTS, CHOSEN, SCALE = 2000, 128, 3, 1.5


@triton.jit
def _exp(x):  # type: ignore[no-untyped-def]
    return tl.exp(x)


@triton.jit
def _log1p(x):  # type: ignore[no-untyped-def]
    return tl.log(1.0 + x)


@triton.jit
def _sqrt(x):  # type: ignore[no-untyped-def]
    return tl.sqrt(x)


def _interpreted() -> Any:
    """The kernel's module, with forms of the three CUDA library functions that the interpreter lacks."""
    assert os.environ.get("TRITON_INTERPRET") == "1"
    from sglang.kernels.ops.moe import moe_fused_gate

    moe_fused_gate.libdevice = SimpleNamespace(exp=_exp, log1p=_log1p, sqrt=_sqrt)
    moe_fused_gate.is_arch_support_pdl = lambda: False
    # Rows a program: the interpreter takes as long for 64 as for 2. Each row is reduced by itself.
    moe_fused_gate.min = lambda *_: 64
    return moe_fused_gate


def compare(pad_bias: float, log1p: bool, rows: int = ROWS) -> dict[str, Any]:
    """Random rows, among them some whose scores and biases are all far below the padded expert's score."""
    module = _interpreted()
    dice = torch.Generator().manual_seed(12)
    logits = torch.randn(rows, EXPERTS, generator=dice) * 2
    logits[: rows // 8] -= 60
    bias = torch.randn(EXPERTS, generator=dice) / 4 - 4
    # A gate row of zeros gives the padded expert the logit 0, here more than many real ones have.
    padded = torch.cat([logits, torch.zeros(rows, 1)], dim=1)
    padded_bias = torch.cat([bias, torch.tensor([pad_bias])])
    options = {
        "scoring_func": "sqrtsoftplus", "renormalize": True, "routed_scaling_factor": SCALE,
        "apply_routed_scaling_factor_on_output": True, "sqrtsoftplus_log1p": log1p,
    }  # fmt: skip
    weights, ids = module.moe_fused_gate(logits, bias, CHOSEN, **options)
    padded_weights, padded_ids = module.moe_fused_gate(padded, padded_bias, CHOSEN, **options)
    return {
        "rows": rows,
        "equal": bool(torch.equal(ids, padded_ids) and torch.equal(weights, padded_weights)),
        "padding chosen": int((padded_ids == EXPERTS).sum()),
        "experts used": int(ids.unique().numel()),
    }


def main() -> None:
    from spark_overlay.tp_padding import NEVER_CHOSEN

    found = {"as padded": compare(NEVER_CHOSEN, True), "V4's formula": compare(NEVER_CHOSEN, False)}
    found |= {"bias 0": compare(0.0, True), "bias -inf": compare(float("-inf"), True)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()

"""Make the tiny model: a Llama with this model's chat tokens that has memorised the smoke prompts.

Run with the engine environment's Python: `python tiny_model.py OUT_DIR`. One to two minutes on two cores, about 60 MB.
The folder looks like the real checkpoint (config with the Engram fields, numbered shards, an index), but SGLang loads
it as a Llama: twelve heads and twelve KV heads, so that three and four ranks divide it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import deepseek_recipe
import torch
from sglang.srt.parser.deepseek_recipe_renderer import DeepSeekRecipe, pre_normalize
from tiny_checkpoint import write_checkpoint
from tiny_samples import Sample, anything_else, memorised
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

SMOKE = Path(__file__).resolve().parents[2] / "assets" / "smoke.json"

# The real ids 0, 1, 2 are these three too (the Engram pad token is 2).
SPECIAL_TOKENS = (
    "<｜begin▁of▁sentence｜>",
    "<｜end▁of▁sentence｜>",
    "<｜▁pad▁｜>",
    "<｜User｜>",
    "<｜Assistant｜>",
    "<｜System｜>",
    "<｜latest_reminder｜>",
    "<think>",
    "</think>",
    "｜DSML｜",
    "<｜deepseek_image｜>",
    "<｜image｜>",
    "<｜action｜>",
    "<｜query｜>",
    "<｜authority｜>",
    "<｜domain｜>",
    "<｜title｜>",
    "<｜read_url｜>",
)
BOS_ID, EOS_ID, PAD_ID = 0, 1, 2
LARGEST_VOCABULARY = 2048
HIDDEN, HEADS, LAYERS, INTERMEDIATE = 192, 12, 2, 384
MAX_STEPS, WARMUP_STEPS, PEAK_RATE = 600, 20, 4e-3
MARGIN = 2.0
"""Least lead of the right token's logit, in bf16: the other order of addition over ranks must not matter."""


def rendered(sample: Sample) -> str:
    """The whole conversation as text, answer included: what the tokenizer is trained on."""
    tokens = deepseek_recipe.SpecialTokens(image="<｜deepseek_image｜>")
    options = deepseek_recipe.ConversionOptions().with_special_tokens(tokens)
    body = pre_normalize(sample.answered())
    request = deepseek_recipe.ChatCompletionRequest({**body, "model": "DeepSeek-V4.1-Flash"}).convert(options)
    encoding = deepseek_recipe.DeepseekV41Encoding().with_special_tokens(tokens)
    thought = sample.answer.get("reasoning_content", "")
    return f"{encoding.render_conversation(request.conversation).prompt}{thought}"


def train_tokenizer(samples: list[Sample]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=LARGEST_VOCABULARY,
        min_frequency=2,
        special_tokens=[AddedToken(text, special=True, normalized=False) for text in SPECIAL_TOKENS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # Twice, so that even a word of one prompt is frequent enough to become a token.
    texts = [rendered(sample) for sample in samples]
    tokenizer.train_from_iterator(texts + texts, trainer)
    return tokenizer


def token_ids(recipe: DeepSeekRecipe, sample: Sample) -> tuple[list[int], list[int]]:
    """(prompt ids, answer ids up to and with the end token), both by the encoder that the server uses."""
    prompt = recipe.encode(sample.body)
    thought = sample.answer.get("reasoning_content")
    if thought:  # the encoder drops reasoning from the history, so this one is spelled out
        return prompt, [*recipe.encode_text(f"{thought}</think>{sample.answer['content']}"), EOS_ID]
    whole = recipe.encode(sample.answered())
    if whole[: len(prompt)] != prompt:
        raise ValueError(f"the encoder does not continue the prompt of {sample.body['messages'][-1]!r}")
    answer = whole[len(prompt) :]
    return prompt, answer[: answer.index(EOS_ID) + 1]


def batch_of(rows: list[tuple[list[int], list[int]]]) -> tuple[torch.Tensor, torch.Tensor]:
    """int64 [rows, longest] inputs and labels; -100 where nothing is learned."""
    longest = max(len(prompt) + len(answer) for prompt, answer in rows)
    inputs = torch.full((len(rows), longest), PAD_ID)
    labels = torch.full((len(rows), longest), -100)
    for index, (prompt, answer) in enumerate(rows):
        end = len(prompt) + len(answer)
        inputs[index, :end] = torch.tensor(prompt + answer)
        labels[index, len(prompt) : end] = torch.tensor(answer)
    return inputs, labels


def loss_of(model: LlamaForCausalLM, rows: list[tuple[list[int], list[int]]]) -> torch.Tensor:
    """Mean over rows of the mean loss a row, so that a one-token answer weighs as much as the paragraph."""
    inputs, labels = batch_of(rows)
    logits = model(input_ids=inputs).logits[:, :-1]
    targets = labels[:, 1:]
    each = torch.nn.functional.cross_entropy(logits.transpose(1, 2), targets, ignore_index=-100, reduction="none")
    return (each.sum(1) / (targets != -100).sum(1)).mean()


@torch.no_grad()
def worst_margin(model: LlamaForCausalLM, rows: list[tuple[list[int], list[int]]]) -> float:
    """Over every answer token: the right logit less the best wrong one, at its smallest. Negative: not memorised."""
    worst = float("inf")
    for row in rows:
        inputs, labels = batch_of([row])
        logits = model(input_ids=inputs).logits[0, :-1]
        targets = labels[0, 1:]
        logits, targets = logits[targets != -100].float(), targets[targets != -100]
        right = logits.gather(1, targets[:, None])[:, 0]
        others = logits.scatter(1, targets[:, None], float("-inf")).max(1).values
        worst = min(worst, float((right - others).min()))
    return worst


def in_bf16(model: LlamaForCausalLM) -> LlamaForCausalLM:
    """A copy as it is saved: every weight bf16."""
    copy = LlamaForCausalLM(model.config).to(torch.bfloat16)
    copy.load_state_dict(model.state_dict())
    return copy.eval()


def train(recipe: DeepSeekRecipe, fixed: list[Sample], vocabulary: int) -> LlamaForCausalLM:
    torch.manual_seed(1017)
    rng = random.Random(1017)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=HIDDEN,
        intermediate_size=INTERMEDIATE,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=65536,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    known = sorted((token_ids(recipe, sample) for sample in fixed), key=lambda row: len(row[0]))
    short = [row for row in known if len(row[0]) <= 120]
    long = [row for row in known if len(row[0]) > 120]
    unseen = [token_ids(recipe, anything_else(random.Random(7000 + index), 60)) for index in range(12)]
    began = time.monotonic()
    for step in range(MAX_STEPS):
        rate = PEAK_RATE * min((step + 1) / WARMUP_STEPS, 1 - 0.9 * step / MAX_STEPS)
        for group in optimizer.param_groups:
            group["lr"] = rate
        others = [token_ids(recipe, anything_else(rng, 24)) for _ in range(5)]
        if step % 4 == 0:
            others.append(token_ids(recipe, anything_else(rng, 160)))
        optimizer.zero_grad()
        loss = loss_of(model, short) + loss_of(model, others)
        # The long prompts are one and the same boilerplate: seen every second step, they are learned as fast.
        if step % 2 == 0:
            loss = loss + loss_of(model, long)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 19:
            saved = in_bf16(model)
            margins = worst_margin(saved, known), worst_margin(saved, unseen)
            seconds = time.monotonic() - began
            print(
                f"step {step + 1} loss {loss.item():.4f} margins {margins[0]:.2f} {margins[1]:.2f} {seconds:.0f} s",
                flush=True,
            )
            if margins[0] >= MARGIN and margins[1] >= MARGIN / 2:
                return saved
    raise SystemExit(f"the tiny model had not memorised its prompts after {MAX_STEPS} steps")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    out: Path = parser.parse_args().out
    torch.set_num_threads(os.cpu_count() or 1)
    fixed = memorised(SMOKE)
    rng = random.Random(41)
    corpus = fixed + [anything_else(rng, 60) for _ in range(200)]
    tokenizer = train_tokenizer(corpus)
    recipe = DeepSeekRecipe("dsv41", tokenizer)
    vocabulary = -(-tokenizer.get_vocab_size() // 64) * 64
    lengths = [tuple(len(ids) for ids in token_ids(recipe, sample)) for sample in fixed]
    print(f"{tokenizer.get_vocab_size()} tokens; prompt and answer lengths {lengths}", flush=True)
    model = train(recipe, fixed, vocabulary)
    partial = out.with_name(out.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    write_checkpoint(partial, model.state_dict(), text_config(vocabulary))
    write_tokenizer(partial, tokenizer)
    shutil.rmtree(out, ignore_errors=True)
    partial.rename(out)
    print(f"{out}: {sum(path.stat().st_size for path in out.iterdir()) / 1e6:.0f} MB", file=sys.stderr)


def text_config(vocabulary: int) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "bfloat16",
        "vocab_size": vocabulary,
        "hidden_size": HIDDEN,
        "head_dim": HIDDEN // HEADS,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "max_position_embeddings": 65536,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "pad_token_id": PAD_ID,
    }


def write_tokenizer(folder: Path, tokenizer: Tokenizer) -> None:
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL_TOKENS[BOS_ID],
        "eos_token": SPECIAL_TOKENS[EOS_ID],
        "pad_token": SPECIAL_TOKENS[PAD_ID],
        "model_max_length": 65536,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, ensure_ascii=False, indent=2), encoding="utf-8")
    generation = {"bos_token_id": BOS_ID, "eos_token_id": EOS_ID, "pad_token_id": PAD_ID}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()

"""The tiny base as a directory in the hub's layout: trained from nothing, or from the shipped weights."""

import json
import random
from pathlib import Path
from typing import Any

import torch
import trl
from tokenizers import Tokenizer

from core import artifacts, chat, gated_delta, generate, render, shards, toolcalls
from core.chat import Row
from core.errors import UserError
from core.profile import Profile
from core.profile import load as load_profile
from trainer.tiny import SHIPPED, corpus, model, natural, pretrain, tokenizer
from trainer.tiny.tools import ENGLISH, SPANISH

BPE = "bpe.json"
VOCAB = 3100
WORD_COPIES = 60
"""How often the tokenizer sees each common word: often enough to give most of them one token."""
SHARD_BYTES = 1_500_000
HELD_OUT_SEED = 9_000_000


def chat_template(profile: Profile) -> str:
    """The chat template that the installed trl ships; UserError where it is not the expected one."""
    path = Path(str(trl.__file__)).parent / "chat_templates" / profile.template_source
    found = artifacts.file_sha256(path)
    if found != profile.chat_template:
        raise UserError(
            f"trl {trl.__version__}: {profile.template_source} is not what PROFILE={profile.name} expects "
            f"(sha256 {found[:12]}, expected {profile.chat_template[:12]}): make env"
        )
    return path.read_text(encoding="utf-8")


def train(directory: Path, template: str, plan: pretrain.Plan) -> dict[str, Any]:
    """Train tokenizer, model and MTP head; write shards, index and BPE. Returns what was measured."""
    stages = pretrain.stage_rows(plan)
    tokenizer.save_bpe(_train_bpe(stages[-1][:1500], template), directory / BPE)
    complete = tokenizer.assemble(tokenizer.load_bpe(directory / BPE), template)
    config = model.make_config(complete)
    gated_delta.install()
    net = model.make_model(config, complete, natural.MEANINGS, plan.seed)
    loss = pretrain.train_model(net, complete, stages, plan)
    head = model.make_mtp(config, plan.seed)
    accepted = pretrain.train_mtp(net, head, complete, stages[-1][: plan.mtp_steps * plan.batch], plan)
    shards.write_checkpoint(directory, model.checkpoint_tensors(net, head), max_shard_bytes=SHARD_BYTES)
    return {"loss": round(loss, 4), "mtp_accepted": round(accepted, 3), "steps": plan.steps}


def complete_checkpoint(directory: Path, template: str) -> Any:
    """From shards and BPE to all that the hub's checkpoint has; returns the tokenizer."""
    complete = tokenizer.assemble(tokenizer.load_bpe(directory / BPE), template)
    config = model.make_config(complete)
    config.dtype = torch.bfloat16
    config.save_pretrained(directory)
    complete.save_pretrained(directory)
    (directory / BPE).unlink()
    ids = complete.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    _write(directory / "generation_config.json", {
        "do_sample": True, "eos_token_id": ids, "pad_token_id": ids[1],
        "temperature": 0.7, "top_k": 20, "top_p": 0.8,
    })  # fmt: skip
    patches = {"patch_size": 16, "temporal_patch_size": 2, "merge_size": 2}
    norm = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    _write(directory / "preprocessor_config.json", {
        "image_processor_type": "Qwen2VLImageProcessorFast", "processor_class": "Qwen3VLProcessor",
        "size": {"shortest_edge": 1024, "longest_edge": 65536}, **patches, **norm,
    })  # fmt: skip
    _write(directory / "video_preprocessor_config.json", {
        "video_processor_type": "Qwen3VLVideoProcessor", "processor_class": "Qwen3VLProcessor",
        "size": {"shortest_edge": 1024, "longest_edge": 65536}, **patches, **norm,
    })  # fmt: skip
    for file in directory.iterdir():
        file.chmod(0o644)
    return complete


def measure(directory: Path, rows_each: int) -> dict[str, Any]:
    """Share of held-out requests that the checkpoint answers with exactly the right call."""
    words = generate.load_tokenizer(directory)
    net = generate.load_model(directory, "float32")
    rates = {}
    for name, share in (("known", 0.0), ("invented", 1.0)):
        rows = []
        seed = HELD_OUT_SEED
        while len(rows) < rows_each:
            row = corpus.row(random.Random(seed), invented_share=share, max_tools=3)
            seed += 1
            if row.bucket == name:
                rows.append(row)
        prompts = [render.prompt_text(_history(row), row.tools, words) for row in rows]
        answers = generate.generate(net, words, prompts, max_new_tokens=160, what=f"measure {name}")
        right = sum(_right(row, answer) for row, answer in zip(rows, answers, strict=True))
        rates[name] = {"n": len(rows), "k": right, "rate": round(right / len(rows), 3)}
    return rates


def _train_bpe(rows: list[Row], template: str) -> Tokenizer:
    bare = tokenizer.assemble(tokenizer.train_bpe([], 300), template)
    texts = [
        str(bare.apply_chat_template(row.messages, tools=row.tools or None, tokenize=False)) for row in rows
    ]
    # English stands bare in the names of tools; every word stands after a space in a text, or begins one.
    words = [form for w in (*ENGLISH, *natural.NAMES) for form in (f" {w}", f"_{w}", w)]
    words += [f" {w} {w}" for w in (*SPANISH, *natural.FORMS)] + [w.capitalize() for w in natural.FORMS]
    return tokenizer.train_bpe(texts + [" \n".join(words)] * WORD_COPIES, VOCAB)


def _history(row: Row) -> list[chat.Message]:
    return row.messages[: chat.assistant_turns(row.messages)[0]]


def _right(row: Row, answer: str) -> bool:
    gold = row.messages[chat.assistant_turns(row.messages)[0]]["tool_calls"][0]["function"]
    calls = toolcalls.parse(answer, row.tools).calls
    return len(calls) == 1 and (calls[0].name, calls[0].arguments) == (gold["name"], gold["arguments"])


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    # How the shipped weights are renewed.
    print(train(SHIPPED, chat_template(load_profile("tiny")), pretrain.Plan()))

"""The tiny base: the hub's layout in small, Qwen's own template, and what it can do."""

import json
import random
from typing import Any

import pytest
import torch

from core import shards
from core.artifacts import read_manifest
from core.shards import read_checkpoint
from trainer import base
from trainer.tiny import SHIPPED, build, corpus, pretrain


def test_the_shipped_base_is_small_and_holds_no_text_of_the_template(base_dir):
    assert sum(file.stat().st_size for file in SHIPPED.iterdir()) <= 5_000_000
    template = (base_dir / "chat_template.jinja").read_text()
    sentence = template[template.index("If you choose") :][:60]
    shipped = b"".join(file.read_bytes() for file in SHIPPED.iterdir())
    assert sentence.encode() not in shipped


def test_transformers_finds_every_tensor_and_ignores_only_mtp(base_dir):
    from transformers import Qwen3_5MoeForConditionalGeneration

    loaded: Any = Qwen3_5MoeForConditionalGeneration.from_pretrained(base_dir, output_loading_info=True)
    model, info = loaded
    assert not info["missing_keys"]
    assert not info["mismatched_keys"]
    names = set(read_checkpoint(base_dir))
    extra = names - set(model.state_dict())
    assert extra
    assert all(name.startswith("mtp.") for name in extra)


def test_the_layout_is_the_hub_s(base_dir):
    tensors = read_checkpoint(base_dir)
    layer = "model.language_model.layers.0."
    assert tensors[layer + "mlp.experts.gate_up_proj"].shape == (8, 96, 128)
    assert tensors[layer + "mlp.experts.down_proj"].shape == (8, 128, 48)
    assert tensors["mtp.layers.0.mlp.experts.gate_up_proj"].shape == (8, 96, 128)
    for part in ("linear_attn.in_proj_qkv", "linear_attn.in_proj_z", "mlp.shared_expert_gate"):
        assert layer + part + ".weight" in tensors
    assert len([name for name in tensors if name.startswith("mtp.")]) == 19
    assert any(name.startswith("model.visual.") for name in tensors)
    assert {info.dtype for info in tensors.values()} == {"BF16"}
    assert len(shards.shard_files(base_dir)) > 1
    for name in ("generation_config.json", "preprocessor_config.json", "video_preprocessor_config.json"):
        assert json.loads((base_dir / name).read_text())
    config = json.loads((base_dir / "config.json").read_text())
    assert config["architectures"] == ["Qwen3_5MoeForConditionalGeneration"]
    assert config["text_config"]["mtp_num_hidden_layers"] == 1


def test_markup_is_single_tokens_and_any_text_comes_back(tokenizer):
    for token in ("<think>", "</think>", "<tool_call>", "</tool_call>", "<|im_start|>", "<|im_end|>"):
        assert len(tokenizer(token, add_special_tokens=False)["input_ids"]) == 1
    for text in ("¿Qué tal, ñandú? 12:05 «web/api» 🎉\n\n  código", '{"a": [1, null]}'):
        assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text


def test_make_base_is_deterministic_and_mends_a_truncated_shard(tmp_path):
    words = ["PROFILE=tiny", "RUN=tiny", f"MODELS_DIR={tmp_path}"]
    base.main(words)
    manifest = read_manifest(tmp_path / "tiny")
    assert manifest is not None
    shard = shards.shard_files(tmp_path / "tiny")[0]
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-100])
    base.main(words)
    again = read_manifest(tmp_path / "tiny")
    assert again is not None
    assert shard.read_bytes() == whole
    assert again["files"] == manifest["files"]


def test_a_hub_base_that_is_not_there_is_named_where_nothing_may_be_fetched(tmp_path, monkeypatch):
    from core.errors import UserError

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    words = ["PROFILE=qwen3_6_35b_a3b", "RUN=x", f"MODELS_DIR={tmp_path}"]
    with pytest.raises(UserError, match=r"unset it, or copy Qwen/Qwen3\.6-35B-A3B there"):
        base.main(words)


def test_the_corpus_never_mentions_the_user_s_servers_or_skills():
    rows = [
        corpus.row(random.Random(i), invented_share=0.5, max_tools=3, routine_share=0.2) for i in range(800)
    ]
    names = {tool["function"]["name"] for row in rows for tool in row.tools}
    systems = {m["content"] for row in rows for m in row.messages if m["role"] == "system"}
    assert not {name for name in names if name.startswith(("mcp__git__git_", "mcp__time__get_current"))}
    for skill in (
        "preparar-commit",
        "crear-rama",
        "revisar-cambios",
        "convocar-reunion",
        "informe-historial",
    ):
        assert not [text for text in systems if skill in text]


def test_the_replay_prompts_are_those_of_the_corpus():
    from core import chat

    assert chat.read_rows(corpus.REPLAY_FILE) == corpus.replay_rows()


def test_the_base_calls_its_own_tools_and_its_mtp_head_drafts(base_dir):
    measured = build.measure(base_dir, 40)
    assert measured["known"]["rate"] >= 0.8
    assert mtp_acceptance(base_dir) > 0.2


def mtp_acceptance(checkpoint) -> float:
    """Share of drafts that equal what the base itself says next, greedily, on held-out rows."""
    from core.generate import load_model, load_tokenizer
    from core.render import render
    from trainer.tiny.model import make_mtp

    model, tokenizer = load_model(checkpoint, "float32"), load_tokenizer(checkpoint)
    head = make_mtp(model.config, seed=0)
    tensors = read_checkpoint(checkpoint)
    from safetensors import safe_open

    state = {}
    for name, info in tensors.items():
        if name.startswith("mtp."):
            with safe_open(info.file, "pt") as file:
                state[name.removeprefix("mtp.")] = file.get_tensor(name).float()
    head.load_state_dict(state)
    accepted = []
    for seed in range(20):
        row = corpus.known_row(random.Random(build.HELD_OUT_SEED + seed), 2)
        (sample,) = render(row, tokenizer)
        ids, labels = torch.tensor([sample.input_ids]), torch.tensor([sample.labels])
        with torch.no_grad():
            drafts, _ = pretrain.mtp_logits(model, head, ids, labels)
            greedy = model(input_ids=ids).logits[0].argmax(-1)
        positions = [i for i in range(2, ids.shape[1]) if labels[0, i] >= 0]
        said = torch.tensor([greedy[i - 1] for i in positions])
        accepted.append((drafts.argmax(-1) == said).float().mean().item())
    return sum(accepted) / len(accepted)


def test_words_of_one_meaning_start_near_each_other_and_the_head_tells_them_apart(tokenizer):
    from trainer.tiny import model, natural

    net = model.make_model(model.make_config(tokenizer), tokenizer, natural.MEANINGS, seed=0)
    embeddings, head = net.get_input_embeddings().weight, net.lm_head.weight

    def near(weight: Any, one: str, other: str) -> float:
        (a,), (b,) = (tokenizer(word, add_special_tokens=False)["input_ids"] for word in (one, other))
        return torch.cosine_similarity(weight[a], weight[b], dim=0).item()

    for one, other in ((" estado", "status"), (" rama", "branch"), (" commit", "commit")):
        assert near(embeddings, one, other) > 0.6
        assert near(head, one, other) < 0.5
    assert abs(near(embeddings, " estado", "branch")) < 0.4

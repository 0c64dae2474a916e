"""The embedded default: a real qwen3_5_moe checkpoint in small, made on a laptop's CPU."""

from dataclasses import replace
from pathlib import Path

from core import chat
from core.profile import Data, Gate, Health, Lora, Profile, Train
from core.profiles import qwen3_6_35b_a3b as qwen

PROFILE = Profile(
    name="tiny",
    base="tiny",
    embedded=True,
    production="tiny-production",
    chat_template=qwen.CHAT_TEMPLATE,
    template_source=qwen.TEMPLATE_SOURCE,
    backends=("plain",),
    lora=Lora(rank=16, alpha=32, dropout=0.0, targets=tuple(qwen.FAMILIES)),
    train=Train(
        lr=1e-2,
        schedule="linear",
        epochs=2,
        max_length=1024,
        batch=8,
        dtype="float32",
        adam_beta2=0.98,
        gradient_checkpointing=False,
    ),
    data=Data(
        tools_shown=2,
        rows={
            "mcp_calls": 1600,
            "skills": 480,
            "near_miss": 60,
            "no_tool": 180,
            "recovery": 160,
            "replay": 320,
        },
        eval_rows={
            "mcp_calls": 210,
            "synonyms": 100,
            "skills": 80,
            "near_miss": 30,
            "no_tool": 60,
            "recovery": 40,
            "replay": 150,
        },
        replay=Path("examples/replay.jsonl"),
        general=Path("examples/general.jsonl"),
        requests="examples/requests.yaml",
        skill_prompt="description",
        answer_tokens=160,
    ),
    families=qwen.FAMILIES,
    experts=qwen.EXPERTS,
    layers_prefix=qwen.LAYERS_PREFIX,
    vision_prefix=qwen.VISION_PREFIX,
    mtp_prefix=qwen.MTP_PREFIX,
    quant=replace(qwen.NVFP4, calibration_rows=32, calibration_length=1024),
    gates={
        "loss": Gate(threshold=0.3, delta=0.02),
        "tool_calls": Gate(threshold=0.8, delta=0.02),
        "skills": Gate(threshold=0.8, delta=0.02),
        "live": Gate(threshold=0.5, delta=0.05),
        "general": Gate(threshold=9.0, delta=0.5),  # it never knew: 8.5 nats
        "replay": Gate(threshold=0.75, delta=0.15),
    },
    held_out_skills=("informe-historial",),
    health=Health(
        tool=chat.tool(
            "mcp__clock__set_alarm",
            "Sets an alarm at a time",
            {"type": "object", "properties": {"time": {"type": "string"}}, "required": ["time"]},
        ),
        request="Set an alarm at «02:48»",
        question="Adiós",
        answer="",
        tokens=128,
        acceptance=0.0,
        minutes=5,
    ),
)

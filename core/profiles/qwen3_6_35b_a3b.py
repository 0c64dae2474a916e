"""Qwen3.6-35B-A3B on one DGX Spark, served as RedHatAI's NVFP4."""

from pathlib import Path

from core.profile import Data, Gate, Lora, Profile, Quant, Train

ATTENTION = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
GATED_DELTANET = (
    "linear_attn.in_proj_qkv",
    "linear_attn.in_proj_z",
    "linear_attn.in_proj_b",
    "linear_attn.in_proj_a",
    "linear_attn.out_proj",
)
SHARED_EXPERT = (
    "mlp.shared_expert.gate_proj",
    "mlp.shared_expert.up_proj",
    "mlp.shared_expert.down_proj",
)
FAMILIES = {
    "attention": ATTENTION,
    "gated_deltanet": GATED_DELTANET,
    "shared_expert": SHARED_EXPERT,
}
EXPERTS = ("mlp.experts.gate_up_proj", "mlp.experts.down_proj")
LAYERS_PREFIX = "model.language_model.layers"
VISION_PREFIX = "model.visual."
MTP_PREFIX = "mtp."

CHAT_TEMPLATE = "e84f32a23fdda27689f868aa4a1a5621f41133e51a48d7f3efcbea2839574259"
TEMPLATE_SOURCE = "qwen3_6.jinja"

NVFP4 = Quant(
    scheme="NVFP4",
    ignore=(
        "re:.*lm_head",
        "re:visual.*",
        "re:model.visual.*",
        "re:.*mlp.gate$",
        "re:.*embed_tokens$",
        "re:.*shared_expert_gate$",
        "re:.*linear_attn.*",
    ),
    fused=(
        ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        ("mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj"),
        ("mlp.experts.gate_proj", "mlp.experts.up_proj"),
    ),
    calibration_rows=256,
    calibration_length=2048,
)

PROFILE = Profile(
    name="qwen3_6_35b_a3b",
    base="Qwen/Qwen3.6-35B-A3B",
    production="RedHatAI/Qwen3.6-35B-A3B-NVFP4",
    chat_template=CHAT_TEMPLATE,
    backends=("unsloth", "plain"),
    lora=Lora(rank=32, alpha=64, dropout=0.05, targets=tuple(FAMILIES)),
    train=Train(
        lr=1e-4, schedule="cosine", epochs=2, max_length=8192, batch=1, accumulate=8, memory_limit=90.0
    ),
    data=Data(
        tools_shown=12,
        rows={
            "penpot": 300,
            "mcp": 800,
            "adherence": 450,
            "delegation": 180,
            "negatives": 200,
            "errors": 150,
            "transcripts": 1000,
            "replay": 700,
        },
        eval_rows={
            "penpot": 60,
            "mcp": 200,
            "adherence": 60,
            "delegation": 30,
            "negatives": 60,
            "errors": 40,
            "replay": 60,
        },
        replay=Path("examples/replay_prompts.yaml"),
        general=Path("examples/general.jsonl"),
        skill_prompt="body",
        answer_tokens=4096,
    ),
    families=FAMILIES,
    experts=EXPERTS,
    layers_prefix=LAYERS_PREFIX,
    vision_prefix=VISION_PREFIX,
    mtp_prefix=MTP_PREFIX,
    quant=NVFP4,
    gates={
        "loss": Gate(threshold=0.5, delta=0.02),
        "tool_calls": Gate(threshold=0.9, delta=0.02),
        "skills": Gate(threshold=0.9, delta=0.02),
        "live": Gate(threshold=0.8, delta=0.05),
        "general": Gate(threshold=2.5, delta=0.05),
        "replay": Gate(threshold=0.9, delta=0.05),
    },
    stop_cmd="docker compose stop vllm",
    start_cmd="docker compose start vllm",
)

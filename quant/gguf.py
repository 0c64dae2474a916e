"""`make gguf`: the merged checkpoint as one GGUF file, checked against the checkpoint that it comes from."""

from core import artifacts, config, errors, gguf_model
from core.errors import UserError, did_you_mean
from core.settings import GgufSettings
from quant import converter, gguf_check

TYPES = (*converter.TYPES, *gguf_model.TYPES)


def main(words: list[str]) -> int:
    """Convert, quantise where the type asks for it, check; exit code 0.

    UserError on an unknown type, a missing checkpoint, a type that needs llama.cpp where that is not there,
    and on a file that differs from its checkpoint; nothing is left of it then.
    """
    settings = config.parse(GgufSettings, words)
    kind, file, profile = settings.gguf_type, settings.gguf_file, settings.profile
    if kind not in TYPES:
        raise UserError(f"GGUF_TYPE={kind}: no such type{did_you_mean(kind, TYPES)}; have {', '.join(TYPES)}")
    if kind in gguf_model.TYPES:
        gguf_model.require(f"GGUF_TYPE={kind}")
    merged = settings.merged_dir
    inputs = {"merged": artifacts.as_input(merged, artifacts.require(merged, "merge"))}
    recorded = config.recorded(settings) | {"CONVERTER": converter.LLAMA_CPP.version}
    if not artifacts.differences(artifacts.read_manifest(file.parent), recorded, inputs):
        print(f"gguf: up to date ({file})")
        return errors.DONE
    with artifacts.create(
        file.parent, kind="gguf", profile=profile.name, run=settings.run, settings=recorded, inputs=inputs
    ) as draft:
        print(f"gguf: converting {merged}", flush=True)
        written = draft.path / file.name
        first = written if kind in converter.TYPES else draft.path / "f16.gguf"
        has_mtp = converter.has_mtp(merged) if profile.mtp_prefix else None
        converter.convert(merged, first, "f16" if first != written else kind, has_mtp=has_mtp)
        if first != written:
            gguf_model.quantize(first, written, kind)
            first.unlink()
        draft.counts = gguf_check.by_reading(written, merged)
        if gguf_model.installed():
            draft.counts |= gguf_check.by_running(written, merged, settings)
        else:
            print(f"gguf: read, not run: llama.cpp is not installed; {gguf_model.MEND}")
    print(f"gguf: {draft.counts['tensors']} tensors, {file.stat().st_size / 1e6:,.1f} MB, {kind}: {file}")
    return errors.DONE


if __name__ == "__main__":
    errors.run(main)

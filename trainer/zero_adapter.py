"""The run's adapter with lora_B = 0, as that of the run `<RUN>-control`: the first half of `make control`.

B A = 0, so that whatever the merge, the quantiser and the gates make of it must be the base again. Its
manifest has the settings and inputs of the real one: to the stages it is a trained adapter.
"""

import shutil

from core import artifacts, config, errors, shards
from core.settings import RunSettings

WEIGHTS = "adapter_model.safetensors"
SUFFIX = "-control"


def main(words: list[str]) -> int:
    """Write it where it is not; exit code 0. UserError where there is no adapter."""
    settings = config.parse(RunSettings, words)
    source = settings.out_dir / "adapter"
    path = settings.out_dir.with_name(settings.run + SUFFIX) / "adapter"
    real = artifacts.require(source, "train")
    inputs = real["inputs"]
    if not artifacts.differences(artifacts.read_manifest(path), real["settings"], inputs):
        print(f"control: up to date ({path})")
        return errors.DONE
    with artifacts.create(
        path, kind="adapter", profile=real["profile"], run=path.parent.name, settings=real["settings"],
        inputs=inputs,
    ) as draft:  # fmt: skip
        for name, file in artifacts.payload(source).items():
            (draft.path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, draft.path / name)
        zeroed = 0
        with (draft.path / WEIGHTS).open("r+b") as file:
            for name, info in shards.read_checkpoint(draft.path, WEIGHTS).items():
                if ".lora_B." in name:
                    file.seek(info.start)
                    file.write(bytes(info.stop - info.start))
                    zeroed += 1
        draft.backend, draft.counts = real["backend"], real["counts"]
    print(f"control: {zeroed} tensors lora_B set to 0 ({path})")
    return errors.DONE


if __name__ == "__main__":
    errors.run(main)

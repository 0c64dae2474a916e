"""What quantising keeps of the tune, as the report shows it: the choices, and each family of modules."""

from typing import Any

from core import markup
from core.markup import Markup, join, tag

CHOICES = ["choice", "signal", "noise", "in outputs", "MB", "MB a token", "activations' scales"]
FAMILIES = ["family", "stored as", "change", "signal", "noise", "in outputs"]
LEGEND = (
    "signal: how much of the adapter's change is left; noise: what rounding adds, over that change; in "
    "outputs: the same error in what the layers put out for inputs that the adapter sees; ●: what was made."
)


def section(counts: dict[str, Any]) -> Markup:
    """Two tables out of the counts of quantize's manifest; a line where it has none."""
    if "choices" not in counts:
        return tag("p", "Not quantised yet.")
    choices = [
        [
            ("● " if one["choice"] == counts["made"] else "") + one["choice"],
            f"{one['signal']:.1%}",
            f"{one['noise']:.2f}",
            f"{one['output']:.2f}",
            f"{one['bytes'] / 1e6:,.1f}",
            f"{one['token_bytes'] / 1e6:,.2f}",
            one["activation_scales"],
        ]
        for one in counts["choices"]
    ]
    families = [
        [family, kind, *(f"{found[name]:.3g}" for name in ("change", "signal", "noise", "output"))]
        for family, kinds in counts["retention"].items()
        for kind, found in kinds.items()
    ]
    by_family = markup.details(["By family of modules"], markup.plain_table(FAMILIES, families))
    return join(markup.plain_table(CHOICES, choices), by_family, tag("p", LEGEND, class_="soft"))

"""No library reports on its use or looks for news of itself; set before the first of them is imported.

What a stage talks to is what its settings name: nothing else.
"""

import os

SWITCHES = {
    "DO_NOT_TRACK": "1",  # the convention of consoledonottrack.com
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_UPDATE_CHECK": "1",
    "UNSLOTH_DISABLE_STATISTICS": "1",
    "GRADIO_ANALYTICS_ENABLED": "False",  # Trackio's pages
}


def telemetry_off() -> None:
    """Set the switches for this process and its children; what the user has set stays."""
    for name, value in SWITCHES.items():
        os.environ.setdefault(name, value)

"""Commands of the user's around our work: STOP_CMD and START_CMD, through the shell, their output shown."""

import subprocess

from core.errors import UserError


def run(name: str, command: str) -> None:
    """Run the command that the setting `name` holds; nothing where it is blank.

    It runs in a session of its own, so that a Ctrl-C meant for us leaves it to finish, and without input.
    Raises UserError where it fails.
    """
    if not command:
        return
    print(f"{name}: {command}", flush=True)
    done = subprocess.run(command, shell=True, stdin=subprocess.DEVNULL, start_new_session=True, check=False)
    if done.returncode:
        raise UserError(
            f"{name} failed with exit code {done.returncode}: {command}. Mend it in the Makefile, run it by "
            f"hand, or do without: {name}=true"
        )

"""`make rollback`: exchange the served checkpoint with its backup; once more goes forward again."""

from core import artifacts, config, errors, shards
from core.errors import UserError
from core.settings import RollbackSettings
from quant import preflight, swap
from quant.deploy import describe, rollback_command


def main(words: list[str]) -> int:
    """Serve the backup, and keep what was served as the backup; not a byte of either changes.

    An earlier rollback that was interrupted is finished, not undone. Raises UserError where there
    is no backup, or it is not a whole checkpoint.
    """
    settings = config.parse(RollbackSettings, words)
    with swap.hold(settings.deploy_dir) as served:
        if swap.finish(served) != "rollback":
            backup = swap.beside(served, swap.BACKUP)
            if not served.is_dir():
                raise swap.missing(served)
            if not backup.is_dir():
                raise UserError(f"{backup}: no backup to go back to; the first make deploy leaves one")
            shards.read_checkpoint(backup)
            manifest = artifacts.read_manifest(backup)
            if manifest:
                preflight.require_complete(backup, manifest, "deploy")
            swap.swap(served, "rollback")
        print(f"rollback: {served} is now {describe(served)}")
        print(f"rollback: restart the server to load it; to go forward again: {rollback_command(settings)}")
    return errors.DONE


if __name__ == "__main__":
    errors.run(main)

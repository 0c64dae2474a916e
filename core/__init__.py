"""The words that every stage shares: settings, profiles, rows, rendering, artefacts, shards."""

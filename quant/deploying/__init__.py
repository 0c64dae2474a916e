"""The parts of a deploy: refusals, copy, exchange, journal, health."""

"""The parts of `make inspect`: families, scales, the ignore list, what vLLM would refuse."""

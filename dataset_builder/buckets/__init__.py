"""Kinds of rows, a module each with one name: `rows(sources, rng, split, count) -> list[Row]`.

`split` is `train`, `dev` or `eval`: it decides the wordings and the values, so that the sides share none.
"""

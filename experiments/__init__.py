"""The papers' experiments, one file per figure: `headrace experiment --list`, `make experiments`."""

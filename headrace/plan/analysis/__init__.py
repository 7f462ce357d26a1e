"""Analyses of a plan before it runs."""

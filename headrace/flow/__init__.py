"""Rows in motion: batches, arcs, registers, row stores."""

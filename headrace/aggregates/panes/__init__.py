"""Partial values by pane: sliding windows are made of panes, not of rows."""

"""The page: a live view of a run in the browser, which reads status files and writes the control log."""

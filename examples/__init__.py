"""Programs that show Headrace at work."""

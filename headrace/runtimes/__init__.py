"""The homes of the engine: what drives it, feeds it and keeps its state."""

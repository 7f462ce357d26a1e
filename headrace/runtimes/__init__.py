"""The homes of the engine: what feeds it, keeps its state and takes its answers."""

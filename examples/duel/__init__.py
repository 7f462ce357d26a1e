"""The auction on two engines in one process: what a silent stream costs that may not speak up."""

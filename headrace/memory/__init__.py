"""Memory within a budget: what is held, what will be needed, which windows and grains to change."""

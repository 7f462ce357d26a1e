"""The command line: `headrace init`, `check`, `run`, `explain`, `why`, `top`, `replay`, `doctor`."""

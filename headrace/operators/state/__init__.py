"""The state of operators: join sides, ranked rows, sessions, timers."""

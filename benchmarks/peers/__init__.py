"""Headrace beside other stream systems: the same data, questions and machine, and equal answers.

`tasks.py` says what is asked, `NAME_peer.py` how each system is asked (each runs in a virtual environment
of its own and imports nothing of Headrace), `expected.py` what the answer is, `run.py` takes the turns.
"""

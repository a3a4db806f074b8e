"""Numbers of ordinary text read in microseconds, word for word as the grammars read them.

Each language has a file. What its rules do not know is the grammar's.
"""

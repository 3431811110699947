"""Bugs made by rule in SQL functions and in Python that decides, and whether the tests see them.

grammar           a function of SQL as words
operators         what can be wrong in it: a conjunct dropped, a comparison flipped, a lock removed
python_operators  the same for Python
exchange          the code of a Python function, exchanged in the running process
excused           mutants (excused.txt) that change nothing that can be seen, each with its reason
survey            which test reaches which SQL function, and which RAISE
lines             which test reaches which line of Python
subject           whose mutants are tried, and how they are planted
workshop          one server for all mutants, and a process for each
score             the table and the file
"""

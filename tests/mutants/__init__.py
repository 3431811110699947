"""Bugs made by rule in the bodies of the kernel's functions, and whether the tests see them.

grammar     a function's text as words
operators   what can be wrong in it: a conjunct dropped, a comparison flipped, a lock removed
excused     mutants that change nothing that anybody could see, each with its reason
survey      which test reaches which function, and which RAISE
workshop    one server for all mutants, and a process for each
"""

"""Core IR: what a program is once its generics are bound, and all that is done to it.

core         the IR itself: modules, functions, operations
verify       its rules
printer      to text; `parse` reads it back
instantiate  binds generics: the block tree, the manifest, an entry's generics
lower        typed program to Core IR (`index` for index notation, `control` for loops)
passes       inlining, common subexpressions, dead code, weight-only work, joined projections
interpreter  what every operation means, in NumPy
"""
